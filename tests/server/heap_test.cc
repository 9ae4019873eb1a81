#include "server/heap.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "kernels/base/mutex.h"

namespace weir {
namespace {

// Sanitizers bring an allocator of their own.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kOwnAllocator = true;
#elif defined(__has_feature)
constexpr bool kOwnAllocator =
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kOwnAllocator = false;
#endif

int64_t AnonymousBytes() {
  std::ifstream file("/proc/self/status");
  const std::string name = "RssAnon:";
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(name, 0) == 0) {
      return int64_t{std::stoll(line.substr(name.size()))} << 10;
    }
  }
  return -1;
}

void UseAndFree(size_t bytes, size_t block) {
  std::vector<std::string> blocks;
  for (size_t used = 0; used < bytes; used += block) {
    blocks.emplace_back(block, 'x');
  }
}

// As the C library describes its heaps, in XML.
int CountHeaps() {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* file = open_memstream(&text, &size);
  malloc_info(0, file);
  std::fclose(file);
  int heaps = 0;
  const std::string_view description(text, size);
  const std::string_view heap = "<heap nr=";
  for (size_t at = description.find(heap); at != description.npos;
       at = description.find(heap, at + 1)) {
    ++heaps;
  }
  std::free(text);
  return heaps;
}

TEST(HeapTest, ThreadsThatLiveOnKeepLittleOfWhatTheyFreed) {
  if (kOwnAllocator) GTEST_SKIP() << "the sanitizer has its own allocator";
  BoundHeap();
  // The largest block that the library would learn from.
  UseAndFree(size_t{30} << 20, size_t{30} << 20);
  const int64_t before = AnonymousBytes();
  ASSERT_GT(before, 0);

  constexpr int kThreads = 7;  // more than kHeaps, each allocating
  constexpr size_t kBytes = size_t{32} << 20;
  Mutex mu;
  CondVar changed;
  int freed = 0;
  bool end = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      UseAndFree(kBytes, 100'000);
      MutexLock lock(&mu);
      ++freed;
      changed.NotifyAll();
      while (!end) changed.Wait(&mu);
    });
  }
  {
    MutexLock lock(&mu);
    while (freed < kThreads) changed.Wait(&mu);
  }
  EXPECT_GE(CountHeaps(), 1);
  EXPECT_LE(CountHeaps(), kHeaps);
  TrimHeap();
  const int64_t kept = AnonymousBytes() - before;
  {
    MutexLock lock(&mu);
    end = true;
    changed.NotifyAll();
  }
  for (std::thread& thread : threads) thread.join();
  // Something for stacks and the test itself.
  EXPECT_LT(kept, kHeaps * static_cast<int64_t>(kHeapEndBytes) + (4 << 20));
}

}  // namespace
}  // namespace weir
