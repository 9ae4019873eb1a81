// The caches of compiled kernels, with a compiler and a loader of the test's.
#include "kernels/device/cuda/kernel_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "kernels/device/cuda/cubin_cache.h"
#include "tests/base/event.h"

// As in containers, where every server is the first process. (It stands before
// the C library's.)
pid_t getpid() noexcept { return 1; }

namespace {
// What mkdir, which the C++ library finds here first, answers if it is not 0.
std::atomic<int> mkdir_error = 0;
std::atomic<bool> random_refused = false;
}  // namespace

// As a container's filter of system calls may refuse it.
ssize_t getrandom(void* buffer, size_t size, unsigned flags) {
  if (!random_refused) return syscall(SYS_getrandom, buffer, size, flags);
  errno = EPERM;
  return -1;
}

[[gnu::visibility("default")]] int mkdir(const char* path,
                                         mode_t mode) noexcept {
  if (mkdir_error == 0) return mkdirat(AT_FDCWD, path, mode);
  errno = mkdir_error;
  return -1;
}

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
  EXPECT_TRUE(cache.Insert("key", "image").ok());
  EXPECT_EQ(cache.Find("key"), "image");
  EXPECT_EQ(CubinCache(folder.path()).Find("key"), "image");
  EXPECT_FALSE(cache.Find("other").has_value());
  EXPECT_EQ(folder.files(), 1u);
}

TEST(CubinCache, IgnoresDamagedFilesAndWritesThemAnew) {
  Folder folder;
  CubinCache cache(folder.path());
  EXPECT_TRUE(cache.Insert("key", "image").ok());
  const std::string path = cache.PathOf("key");
  for (const char* content : {"", "WEIR",
                              "garbage that is long enough to be a "
                              "header and then some more of it"}) {
    std::ofstream(path, std::ios::trunc) << content;
    EXPECT_FALSE(cache.Find("key").has_value());
    EXPECT_TRUE(cache.Insert("key", "image").ok());
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
  for (int i = 0; i < 20; ++i)
    EXPECT_TRUE(cache.Insert(std::to_string(i), image).ok());
  EXPECT_LE(folder.files(), 4u);
  EXPECT_GE(folder.files(), 3u);
}

// A header may say anything: no more memory is asked for than there can be.
TEST(CubinCache, AnImageAboveTheBoundIsNotRead) {
  Folder folder;
  CubinCache cache(folder.path(), 4096);
  for (const uint64_t size : {uint64_t{4097}, ~uint64_t{0}}) {
    EXPECT_TRUE(cache.Insert("key", "image").ok());
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
    EXPECT_TRUE(cache.Insert(keys[i], image).ok());
    fs::last_write_time(cache.PathOf(keys[i]),
                        now - std::chrono::hours(10 - i));
  }
  ASSERT_EQ(cache.Find("used again"), image);
  EXPECT_TRUE(cache.Insert("new", image).ok());
  const auto has = [&](const std::string& key) {
    return fs::exists(cache.PathOf(key));
  };
  EXPECT_FALSE(has("oldest"));
  EXPECT_TRUE(has("used again"));
  EXPECT_TRUE(has("older"));
  EXPECT_TRUE(has("old"));
  EXPECT_TRUE(has("new"));
  EXPECT_TRUE(cache.Insert("newest", image).ok());
  EXPECT_FALSE(has("older"));
  EXPECT_TRUE(has("used again"));
  EXPECT_TRUE(has("newest"));
}

TEST(CubinCache, WithoutAFolderHoldsNothing) {
  CubinCache none("");
  EXPECT_TRUE(none.Insert("key", "image").ok());
  EXPECT_FALSE(none.Find("key").has_value());
  CubinCache forbidden("/proc/weir");
  EXPECT_TRUE(forbidden.Insert("key", "image").ok());
  EXPECT_FALSE(forbidden.Find("key").has_value());
}

// Files cannot have so many bytes: a disk that fills up, to whoever writes.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : before_(signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &limit_), 0);
    const rlimit small = {bytes, limit_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  }
  ~FullDisk() {
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit_), 0);
    signal(SIGXFSZ, before_);
  }

 private:
  rlimit limit_;
  const sighandler_t before_;
};

TEST(CubinCache, SaysWhatCouldNotBeWritten) {
  Folder folder;
  const std::string image(5000, 'x');
  CubinCache cache(folder.path());
  {
    const FullDisk full(4096);
    const absl::Status status = cache.Insert("key", image);
    EXPECT_NE(status.message().find(folder.path()), std::string::npos)
        << status;
    EXPECT_NE(status.message().find(strerror(EFBIG)), std::string::npos)
        << status;
  }
  // Half a file would take room and serve nobody.
  EXPECT_EQ(folder.files(), 0u);
  EXPECT_TRUE(cache.Insert("key", image).ok());
  EXPECT_EQ(cache.Find("key"), image);
  fs::remove_all(folder.path());
  EXPECT_TRUE(cache.Insert("key", image).ok());
  EXPECT_EQ(cache.Find("key"), image);
}

// No file can be opened: as on a disk without inodes, or above a quota.
class NoFiles {
 public:
  NoFiles() {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &limit_), 0);
    const rlimit none = {0, limit_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  ~NoFiles() { EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit_), 0); }

 private:
  rlimit limit_;
};

TEST(CubinCache, AFolderThatIsFullAtTheStartIsTriedAgain) {
  Folder folder;
  std::unique_ptr<const CubinCache> cache;
  {
    const NoFiles full;
    cache = std::make_unique<const CubinCache>(folder.path());
    EXPECT_FALSE(cache->Insert("key", "image").ok());
  }
  EXPECT_TRUE(cache->Insert("key", "image").ok());
  EXPECT_EQ(cache->Find("key"), "image");
}

TEST(CubinCache, AFolderThatHadNoRoomIsMadeLater) {
  Folder folder;
  const std::string path = folder.path() + "/a/new/one";
  for (const int error : {ENOSPC, EDQUOT}) {
    mkdir_error = error;
    const CubinCache cache(path);
    const absl::Status status = cache.Insert("key", "image");
    mkdir_error = 0;
    EXPECT_NE(status.message().find(strerror(error)), std::string::npos)
        << status;
    EXPECT_TRUE(cache.Insert("key", "image").ok());
    EXPECT_EQ(cache.Find("key"), "image");
    fs::remove_all(folder.path() + "/a");
  }
  // Nor is one made that could never be.
  mkdir_error = EROFS;
  const CubinCache cache(path);
  EXPECT_TRUE(cache.Insert("key", "image").ok());
  mkdir_error = 0;
  EXPECT_TRUE(cache.Insert("key", "image").ok());
  EXPECT_FALSE(fs::exists(path));
}

// Servers that share a folder compile the same at the same time, and a file
// that another has put there meanwhile is as good.
TEST(CubinCache, WritersOfTheSameKeysDoNotMeet) {
  Folder folder;
  constexpr int kWriters = 4, kKeys = 200;
  int gate[2];
  ASSERT_EQ(pipe(gate), 0);
  std::vector<pid_t> writers;
  for (int i = 0; i < kWriters; ++i) {
    writers.push_back(fork());
    ASSERT_GE(writers.back(), 0);
    if (writers.back() > 0) continue;
    close(gate[1]);
    pollfd open = {gate[0], 0, 0};
    poll(&open, 1, -1);  // until the other end is closed
    const CubinCache cache(folder.path());
    const std::string image(20'000, 'x');
    int failures = 0;
    for (int key = 0; key < kKeys; ++key) {
      if (!cache.Insert(std::to_string(key), image).ok()) ++failures;
    }
    _exit(failures == 0 ? 0 : 1);
  }
  close(gate[0]);
  close(gate[1]);
  for (const pid_t writer : writers) {
    int status = -1;
    ASSERT_EQ(waitpid(writer, &status, 0), writer);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  EXPECT_EQ(folder.files(), static_cast<size_t>(kKeys));
}

// Whoever else may write to the folder knows no name that will be written to.
TEST(CubinCache, FollowsNoLinkThatLiesInWait) {
  Folder folder, elsewhere;
  const std::string victim = elsewhere.path() + "/victim";
  std::ofstream(victim) << "precious";
  const CubinCache reader(folder.path());
  const std::string id = "." + std::to_string(getpid());
  fs::create_symlink(victim, folder.path() + "/.trial" + id);
  for (int i = 0; i < 3000; ++i) {
    fs::create_symlink(victim,
                       reader.PathOf("key") + id + "." + std::to_string(i));
  }
  const CubinCache cache(folder.path());
  EXPECT_EQ(fs::file_size(victim), 8u);
  EXPECT_TRUE(cache.Insert("key", "image").ok());
  EXPECT_EQ(cache.Find("key"), "image");
  EXPECT_EQ(fs::file_size(victim), 8u);
}

// Without random numbers all have one name, and one has it at a time.
TEST(CubinCache, WhatAnotherWritesIsNotRemoved) {
  Folder folder;
  const std::string end = ".0000000000000000";
  const std::string trial = folder.path() + "/trial.cubin" + end;
  const std::string kernel = CubinCache(folder.path()).PathOf("key") + end;
  std::ofstream(trial) << "another's";
  std::ofstream(kernel) << "another's";
  random_refused = true;
  const CubinCache cache(folder.path());
  const absl::Status status = cache.Insert("key", "image");
  EXPECT_NE(status.message().find(strerror(EEXIST)), std::string::npos)
      << status;
  EXPECT_TRUE(fs::exists(trial));
  EXPECT_TRUE(fs::exists(kernel));
  EXPECT_TRUE(cache.Insert("other", "image").ok());
  EXPECT_EQ(cache.Find("other"), "image");
  random_refused = false;
}

// A process that ended while it wrote leaves a file that nobody will finish.
TEST(CubinCache, RemovesWhatWasNeverFinished) {
  Folder folder;
  const CubinCache cache(folder.path());
  const auto now = fs::file_time_type::clock::now();
  const auto write = [&](const std::string& name, std::chrono::minutes age) {
    std::ofstream(name) << "half";
    fs::last_write_time(name, now - age);
    return name;
  };
  const std::string abandoned =
      write(cache.PathOf("a") + ".1.2", std::chrono::minutes(61));
  const std::string written =
      write(cache.PathOf("b") + ".0123456789abcdef", std::chrono::minutes(30));
  const std::string trial =
      write(folder.path() + "/trial.cubin.0123456789abcdef",
            std::chrono::minutes(61));
  const std::string last =
      write(cache.PathOf("c") + ".fedcba9876543210", std::chrono::minutes(61));
  EXPECT_TRUE(cache.Insert("key", "image").ok());
  EXPECT_FALSE(fs::exists(abandoned));
  EXPECT_FALSE(fs::exists(trial));
  EXPECT_FALSE(fs::exists(last));
  EXPECT_TRUE(fs::exists(written));
  // Also while its room is what is missing.
  write(abandoned, std::chrono::minutes(61));
  const FullDisk full(0);
  EXPECT_FALSE(cache.Insert("other", "image").ok());
  EXPECT_FALSE(fs::exists(abandoned));
}

// Others may keep their files in the folder, of whatever age and size.
TEST(CubinCache, LeavesFilesOfOthersAlone) {
  Folder folder;
  const CubinCache cache(folder.path(), 4096);
  const std::string kernel = cache.PathOf("a");
  const std::vector<std::string> others = {
      folder.path() + "/notes.txt",
      folder.path() + "/mine.cubin",
      folder.path() + "/mine.cubin.gz",
      folder.path() + "/mine.cubin.0123456789abcdef",
      folder.path() + "/trial.cubin.gz",
      folder.path() + "/trial.cubin.2",
      kernel + ".gz",
      kernel + ".bad",
      kernel + ".0123456789abcdef0",
  };
  for (const std::string& name : others) {
    std::ofstream(name) << std::string(5000, 'x');
    fs::last_write_time(
        name, fs::file_time_type::clock::now() - std::chrono::hours(1000));
  }
  EXPECT_TRUE(cache.Insert("key", "image").ok());
  for (const std::string& name : others) EXPECT_TRUE(fs::exists(name)) << name;
  // Nor do they leave the kernels less room.
  EXPECT_EQ(cache.Find("key"), "image");
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

TEST(KernelCache, CountsWhereItFoundKernels) {
  Folder folder;
  std::atomic<int> unloaded{0};
  const auto make = [&] {
    return std::make_unique<KernelCache>(
        folder.path(), "env",
        [&](const std::string& source) -> absl::StatusOr<std::string> {
          if (source == "bad") return absl::InternalError("no");
          return std::string(5000, 'i');
        },
        [&](const std::string&) { return Loaded(&unloaded); });
  };
  auto cache = make();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(cache->Get("source").ok());
  EXPECT_FALSE(cache->Get("bad").ok());
  EXPECT_EQ(cache->stats().misses_total, 2u);
  EXPECT_EQ(cache->stats().memory_hits_total, 2u);
  EXPECT_EQ(cache->stats().disk_hits_total, 0u);
  EXPECT_EQ(cache->stats().write_failures_total, 0u);
  cache = make();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(cache->Get("source").ok());
  EXPECT_EQ(cache->stats().misses_total, 0u);
  EXPECT_EQ(cache->stats().memory_hits_total, 2u);
  EXPECT_EQ(cache->stats().disk_hits_total, 1u);
  // It serves, and says that the next process will have to compile.
  const FullDisk full(4096);
  EXPECT_TRUE(cache->Get("another").ok());
  EXPECT_EQ(cache->stats().misses_total, 1u);
  EXPECT_EQ(cache->stats().write_failures_total, 1u);
  EXPECT_NE(cache->stats().write_failure.find(folder.path()),
            std::string::npos);
}

// A folder that could never be written to was told of at the start, and fills
// nobody's log; what others wrote into it serves.
TEST(KernelCache, AFolderThatIsOnlyReadIsNoFailure) {
  std::atomic<int> unloaded{0};
  KernelCache cache(
      "/proc", "env",
      [](const std::string&) -> absl::StatusOr<std::string> {
        return std::string("image");
      },
      [&](const std::string&) { return Loaded(&unloaded); });
  EXPECT_TRUE(cache.Get("source").ok());
  EXPECT_EQ(cache.stats().misses_total, 1u);
  EXPECT_EQ(cache.stats().write_failures_total, 0u);
}

// A cubin of another build may not load; it is then compiled again.
TEST(KernelCache, AnImageThatDoesNotLoadIsCompiledAgain) {
  Folder folder;
  std::atomic<int> unloaded{0};
  EXPECT_TRUE(CubinCache(folder.path()).Insert("env\nsource", "stale").ok());
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
