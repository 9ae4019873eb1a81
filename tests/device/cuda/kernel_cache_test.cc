// The caches of compiled kernels, with a compiler and a loader of the test's.
#include "kernels/device/cuda/kernel_cache.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "kernels/device/cuda/cubin_cache.h"
#include "tests/base/event.h"

namespace weir {
namespace {

namespace fs = std::filesystem;

// In a file, behind its magic and the size of its key.
constexpr std::streamoff kImageSizeAt = 16;

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "weir-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }
  const std::string& path() const { return path_; }
  size_t files() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
  }

 private:
  std::string path_;
};

TEST(CubinCache, KeepsWhatItIsGiven) {
  Folder folder;
  CubinCache cache(folder.path());
  EXPECT_FALSE(cache.Find("key").has_value());
  cache.Insert("key", "image");
  EXPECT_EQ(cache.Find("key"), "image");
  EXPECT_EQ(CubinCache(folder.path()).Find("key"), "image");
  EXPECT_FALSE(cache.Find("other").has_value());
  EXPECT_EQ(folder.files(), 1u);
}

TEST(CubinCache, IgnoresDamagedFilesAndWritesThemAnew) {
  Folder folder;
  CubinCache cache(folder.path());
  cache.Insert("key", "image");
  const std::string path = cache.PathOf("key");
  for (const char* content : {"", "WEIR",
                              "garbage that is long enough to be a "
                              "header and then some more of it"}) {
    std::ofstream(path, std::ios::trunc) << content;
    EXPECT_FALSE(cache.Find("key").has_value());
    cache.Insert("key", "image");
    EXPECT_EQ(cache.Find("key"), "image");
  }
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('X');  // one bit of the image
  }
  EXPECT_FALSE(cache.Find("key").has_value());
}

TEST(CubinCache, IsBounded) {
  Folder folder;
  CubinCache cache(folder.path(), 4096);
  const std::string image(1000, 'x');
  for (int i = 0; i < 20; ++i) cache.Insert(std::to_string(i), image);
  EXPECT_LE(folder.files(), 4u);
  EXPECT_GE(folder.files(), 3u);
}

// A header may say anything: no more memory is asked for than there can be.
TEST(CubinCache, AnImageAboveTheBoundIsNotRead) {
  Folder folder;
  CubinCache cache(folder.path(), 4096);
  for (const uint64_t size : {uint64_t{4097}, ~uint64_t{0}}) {
    cache.Insert("key", "image");
    {
      std::fstream file(cache.PathOf("key"),
                        std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(kImageSizeAt);
      file.write(reinterpret_cast<const char*>(&size), sizeof(size));
      ASSERT_TRUE(file.good());
    }
    EXPECT_NO_THROW(EXPECT_FALSE(cache.Find("key").has_value())) << size;
  }
}

// When something was used is the time of its file.
TEST(CubinCache, WhatWasUsedLongestAgoGoesFirst) {
  Folder folder;
  const std::string image(1000, 'x');
  CubinCache cache(folder.path(), 4 * 1100);
  const auto now = fs::file_time_type::clock::now();
  // The first was used last, though it was written first.
  const std::vector<std::string> keys = {"used again", "oldest", "older",
                                         "old"};
  for (size_t i = 0; i < keys.size(); ++i) {
    cache.Insert(keys[i], image);
    fs::last_write_time(cache.PathOf(keys[i]),
                        now - std::chrono::hours(10 - i));
  }
  ASSERT_EQ(cache.Find("used again"), image);
  cache.Insert("new", image);
  const auto has = [&](const std::string& key) {
    return fs::exists(cache.PathOf(key));
  };
  EXPECT_FALSE(has("oldest"));
  EXPECT_TRUE(has("used again"));
  EXPECT_TRUE(has("older"));
  EXPECT_TRUE(has("old"));
  EXPECT_TRUE(has("new"));
  cache.Insert("newest", image);
  EXPECT_FALSE(has("older"));
  EXPECT_TRUE(has("used again"));
  EXPECT_TRUE(has("newest"));
}

TEST(CubinCache, WithoutAFolderHoldsNothing) {
  CubinCache none("");
  none.Insert("key", "image");
  EXPECT_FALSE(none.Find("key").has_value());
  CubinCache forbidden("/proc/weir");
  forbidden.Insert("key", "image");
  EXPECT_FALSE(forbidden.Find("key").has_value());
}

std::shared_ptr<const CudaFunction> Loaded(std::atomic<int>* unloaded) {
  return std::make_shared<const CudaFunction>(
      nullptr, nullptr, 0, [unloaded](CUmodule) { ++*unloaded; });
}

TEST(KernelCache, CompilesOnceForAllWhoAsk) {
  std::atomic<int> compiled{0}, unloaded{0};
  Event compiling, released;
  {
    KernelCache cache(
        "", "env",
        [&](const std::string&) -> absl::StatusOr<std::string> {
          ++compiled;
          compiling.Set();
          released.Wait();
          return std::string("image");
        },
        [&](const std::string&) { return Loaded(&unloaded); });
    std::vector<std::thread> threads;
    threads.emplace_back([&] { EXPECT_TRUE(cache.Get("source").ok()); });
    compiling.Wait();
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] { EXPECT_TRUE(cache.Get("source").ok()); });
    }
    released.Set();
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(compiled, 1);
    EXPECT_EQ(cache.stats().kernels, 1u);
    EXPECT_EQ(unloaded, 0);
  }
  EXPECT_EQ(unloaded, 1);
}

TEST(KernelCache, AFailureIsNotKept) {
  std::atomic<int> unloaded{0};
  int calls = 0;
  KernelCache cache(
      "", "env",
      [&](const std::string&) -> absl::StatusOr<std::string> {
        if (++calls == 1) return absl::InternalError("no");
        return std::string("image");
      },
      [&](const std::string&) { return Loaded(&unloaded); });
  EXPECT_FALSE(cache.Get("source").ok());
  EXPECT_TRUE(cache.Get("source").ok());
}

// Callers make as many texts as they like, and as long.
TEST(KernelCache, ForgetsTheOldestAboveItsBytes) {
  std::atomic<int> unloaded{0};
  int compiled = 0;
  KernelCache cache(
      "", "env",
      [&](const std::string&) -> absl::StatusOr<std::string> {
        ++compiled;
        return std::string(size_t{1} << 20, 'i');
      },
      [&](const std::string&) { return Loaded(&unloaded); });
  const auto source = [](int i) {
    return std::to_string(i) + std::string(size_t{3} << 20, 's');
  };
  constexpr int kFit = KernelCache::kMaxBytes / (size_t{4} << 20) - 1;
  for (int i = 0; i < kFit; ++i) ASSERT_TRUE(cache.Get(source(i)).ok());
  EXPECT_EQ(unloaded, 0);
  ASSERT_TRUE(cache.Get(source(0)).ok());  // the newest again
  for (int i = kFit; i < 2 * kFit; ++i) {
    ASSERT_TRUE(cache.Get(source(i)).ok());
    EXPECT_LE(cache.stats().bytes, KernelCache::kMaxBytes);
  }
  EXPECT_EQ(compiled, 2 * kFit);
  EXPECT_EQ(cache.stats().kernels + static_cast<size_t>(unloaded),
            static_cast<size_t>(compiled));
  // One that is larger than all is kept alone.
  const std::string large(KernelCache::kMaxBytes + 1, 'l');
  ASSERT_TRUE(cache.Get(large).ok());
  EXPECT_EQ(cache.stats().kernels, 1u);
  ASSERT_TRUE(cache.Get(large).ok());
  EXPECT_EQ(compiled, 2 * kFit + 1);
}

TEST(KernelCache, FindsKernelsOnDiskUnlessTheEnvironmentChanged) {
  Folder folder;
  std::atomic<int> unloaded{0};
  int compiled = 0;
  const auto make = [&](const char* environment) {
    return std::make_unique<KernelCache>(
        folder.path(), environment,
        [&](const std::string&) -> absl::StatusOr<std::string> {
          ++compiled;
          return std::string("image");
        },
        [&](const std::string&) { return Loaded(&unloaded); });
  };
  EXPECT_TRUE(make("sm_80")->Get("source").ok());
  EXPECT_TRUE(make("sm_80")->Get("source").ok());
  EXPECT_EQ(compiled, 1);
  EXPECT_TRUE(make("sm_90")->Get("source").ok());
  EXPECT_EQ(compiled, 2);
}

// A cubin of another build may not load; it is then compiled again.
TEST(KernelCache, AnImageThatDoesNotLoadIsCompiledAgain) {
  Folder folder;
  std::atomic<int> unloaded{0};
  CubinCache(folder.path()).Insert("env\nsource", "stale");
  KernelCache cache(
      folder.path(), "env",
      [](const std::string&) -> absl::StatusOr<std::string> {
        return std::string("fresh");
      },
      [&](const std::string& image)
          -> absl::StatusOr<std::shared_ptr<const CudaFunction>> {
        if (image == "stale") return absl::InternalError("stale");
        return Loaded(&unloaded);
      });
  EXPECT_TRUE(cache.Get("source").ok());
  EXPECT_EQ(CubinCache(folder.path()).Find("env\nsource"), "fresh");
}

}  // namespace
}  // namespace weir
