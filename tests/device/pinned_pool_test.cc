#include "kernels/device/pinned_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/backend/devices.h"
#include "kernels/base/error_info.h"
#include "tests/device/fault_injecting_device.h"

namespace weir {
namespace {

class PinnedPoolTest : public ::testing::Test {
 protected:
  FaultInjectingDevice device_{
      MakeCpuDevice({.cpu_threads = 1, .cache_dir = {}})};
};

TEST_F(PinnedPoolTest, BuffersComeInClassesAndAreUsedAgain) {
  PinnedPool pool(&device_, 1 << 20);
  std::byte* data;
  {
    auto buffer = *pool.Acquire(5000);
    EXPECT_EQ(buffer.size(), 5000u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 4096, 0u);
    std::memset(buffer.data(), 1, 8192);
    data = buffer.data();
    EXPECT_EQ(pool.stats().leased_bytes, 8192u);
  }
  EXPECT_EQ(pool.stats().leased_bytes, 0u);
  EXPECT_EQ(pool.stats().cached_bytes, 8192u);
  EXPECT_EQ((*pool.Acquire(8192)).data(), data);
  EXPECT_EQ(device_.calls(DeviceCall::kAllocatePinned), 1u);
}

TEST_F(PinnedPoolTest, NothingIsABufferOfTheSmallestClass) {
  PinnedPool pool(&device_, 1 << 20);
  auto buffer = *pool.Acquire(0);
  EXPECT_EQ(buffer.size(), 0u);
  EXPECT_FALSE(buffer.empty());
  EXPECT_NE(buffer.data(), nullptr);
  EXPECT_EQ(pool.stats().leased_bytes, 4096u);
}

TEST_F(PinnedPoolTest, TheBudgetHolds) {
  PinnedPool pool(&device_, 3 * 4096, "the budget");
  auto a = *pool.Acquire(4096);
  auto b = *pool.Acquire(8192);
  const absl::Status refused = pool.Acquire(1).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Reason(refused), "HOST_MEMORY_EXHAUSTED");
  EXPECT_NE(refused.message().find("(the budget)"), std::string::npos);
  EXPECT_TRUE(RetryAfter(refused).has_value());
  EXPECT_EQ(pool.stats().refused_total, 1u);
  a.Reset();
  EXPECT_TRUE(pool.Acquire(1).ok());
}

TEST_F(PinnedPoolTest, WhatCanNeverFitGetsNoRetryHint) {
  PinnedPool pool(&device_, 10000);
  for (const size_t bytes :
       {size_t{10001}, size_t{9000}, std::numeric_limits<size_t>::max()}) {
    const absl::Status refused = pool.Acquire(bytes).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_FALSE(RetryAfter(refused).has_value());
  }
}

// After a burst, what is still used stays, and so does a little of the rest.
TEST_F(PinnedPoolTest, WhatLaysUnusedIsFreed) {
  PinnedPool pool(&device_, 1 << 20);
  {
    std::vector<PinnedBuffer> burst;
    for (int i = 0; i < 4; ++i) burst.push_back(*pool.Acquire(65536));
    for (int i = 0; i < 3; ++i) burst.push_back(*pool.Acquire(4096));
  }
  EXPECT_EQ(pool.stats().cached_bytes, 4 * 65536u + 3 * 4096u);
  EXPECT_FALSE(pool.TrimOne(0)) << "all was used since the pool was made";
  EXPECT_EQ(pool.stats().cached_bytes, 4 * 65536u + 3 * 4096u);
  {
    const auto a = *pool.Acquire(65536);
    const auto b = *pool.Acquire(65536);
  }
  { const auto again = *pool.Acquire(65536); }
  // The two large ones, then one small one, one at a time.
  const size_t keep = 2 * 65536 + 2 * 4096;
  EXPECT_TRUE(pool.TrimOne(keep));
  EXPECT_EQ(pool.stats().cached_bytes, 3 * 65536u + 3 * 4096u);
  EXPECT_TRUE(pool.TrimOne(keep));
  EXPECT_EQ(pool.stats().cached_bytes, 2 * 65536u + 3 * 4096u);
  EXPECT_TRUE(pool.TrimOne(keep));
  EXPECT_EQ(pool.stats().cached_bytes, keep);
  EXPECT_FALSE(pool.TrimOne(keep));
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(pool.TrimOne(0));
  EXPECT_FALSE(pool.TrimOne(0));
  EXPECT_EQ(pool.stats().cached_bytes, 0u);
  EXPECT_EQ(pool.stats().leased_bytes, 0u);
  EXPECT_EQ(device_.calls(DeviceCall::kAllocatePinned), 7u);
  EXPECT_TRUE(pool.Acquire(65536).ok());
}

TEST_F(PinnedPoolTest, CachedBuffersMakeRoomForOtherClasses) {
  PinnedPool pool(&device_, 4 * 4096);
  {
    auto a = *pool.Acquire(4096);
    auto b = *pool.Acquire(4096);
    auto c = *pool.Acquire(4096);
  }
  EXPECT_EQ(pool.stats().cached_bytes, 3u * 4096);
  auto large = pool.Acquire(8192);
  ASSERT_TRUE(large.ok());
  EXPECT_EQ(pool.stats().cached_bytes, 2u * 4096);
  EXPECT_EQ(pool.stats().leased_bytes, 2u * 4096);
}

// For threads that may not wait.
TEST_F(PinnedPoolTest, ABufferNowIsQuickOrNone) {
  constexpr size_t kMebi = size_t{1} << 20;
  PinnedPool pool(&device_, 32 * kMebi);
  const auto now = [&](size_t bytes) {
    auto buffer = pool.AcquireNow(bytes);
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    return *std::move(buffer);
  };
  EXPECT_FALSE(now(16 * kMebi).empty());
  EXPECT_FALSE(now(16 * kMebi).empty());  // the same again
  EXPECT_TRUE(now(17 * kMebi).empty());   // much to make
  EXPECT_EQ(device_.calls(DeviceCall::kAllocatePinned), 1u);
  EXPECT_FALSE(now(8 * kMebi).empty());
  const auto held = now(8 * kMebi);
  EXPECT_FALSE(now(8 * kMebi).empty());  // 32 MiB are there
  EXPECT_TRUE(now(1).empty());           // something would have to go
  EXPECT_EQ(pool.stats().leased_bytes, 8 * kMebi);
  EXPECT_EQ(pool.stats().refused_total, 0u);
  EXPECT_TRUE(pool.Acquire(1).ok());
  EXPECT_LT(pool.stats().cached_bytes, 24 * kMebi);
}

TEST_F(PinnedPoolTest, AShortHostGetsNothingBackNow) {
  PinnedPool pool(&device_, 1 << 20);
  pool.Acquire(4096)->Reset();
  device_.Fail(DeviceCall::kAllocatePinned,
               absl::ResourceExhaustedError("none"));
  const auto buffer = pool.AcquireNow(8192);
  ASSERT_TRUE(buffer.ok());
  EXPECT_TRUE(buffer->empty());
  EXPECT_EQ(pool.stats().leased_bytes, 0u);
  EXPECT_EQ(pool.stats().cached_bytes, 4096u);
}

TEST_F(PinnedPoolTest, AFailedAllocationGivesItsBytesBack) {
  PinnedPool pool(&device_, 1 << 20);
  device_.Fail(DeviceCall::kAllocatePinned,
               absl::ResourceExhaustedError("none"), 1, 2);
  const absl::Status refused = pool.Acquire(1).status();
  EXPECT_EQ(Reason(refused), "HOST_MEMORY_EXHAUSTED");
  EXPECT_EQ(pool.stats().leased_bytes, 0u);
  EXPECT_TRUE(pool.Acquire(1).ok());
}

TEST_F(PinnedPoolTest, AShortHostGetsTheCacheBack) {
  PinnedPool pool(&device_, 1 << 20);
  (*pool.Acquire(4096)).Reset();
  device_.Fail(DeviceCall::kAllocatePinned,
               absl::ResourceExhaustedError("none"));
  EXPECT_TRUE(pool.Acquire(8192).ok());
  // Back again, without the 4 KiB, which were freed for it.
  EXPECT_EQ(pool.stats().cached_bytes, 8192u);
}

TEST_F(PinnedPoolTest, AReleasedBlockReturnsFromACallback) {
  PinnedPool pool(&device_, 1 << 20);
  auto buffer = *pool.Acquire(1);
  PinnedBuffer::Block* block = buffer.Release();
  EXPECT_TRUE(buffer.empty());
  EXPECT_EQ(buffer.data(), nullptr);
  EXPECT_EQ(pool.stats().leased_bytes, 4096u);
  PinnedBuffer::Return(block);
  EXPECT_EQ(pool.stats().leased_bytes, 0u);
}

// The smallest ones do not count: what is that small is not worth a copy.
TEST_F(PinnedPoolTest, KnowsWhenHalfOfItIsLent) {
  PinnedPool pool(&device_, 8 * 4096);
  auto small = *pool.Acquire(1);
  PinnedBuffer::Block* const little = small.Release();
  EXPECT_EQ(pool.stats().lent_bytes, 0u);
  auto large = *pool.Acquire(4 * 4096);
  EXPECT_FALSE(pool.lends_much());
  PinnedBuffer::Block* const four = large.Release();
  EXPECT_EQ(pool.stats().lent_bytes, 4u * 4096);
  EXPECT_FALSE(pool.lends_much());
  auto more = *pool.Acquire(2 * 4096);
  PinnedBuffer::Block* const two = more.Release();
  EXPECT_TRUE(pool.lends_much());
  for (PinnedBuffer::Block* block : {little, four, two}) {
    PinnedBuffer::Return(block);
  }
  EXPECT_FALSE(pool.lends_much());
  EXPECT_EQ(pool.stats().lent_bytes, 0u);
}

TEST_F(PinnedPoolTest, TrimFreesWhatIsCached) {
  PinnedPool pool(&device_, 1 << 20);
  auto kept = *pool.Acquire(1);
  (*pool.Acquire(1)).Reset();
  pool.Trim();
  EXPECT_EQ(pool.stats().cached_bytes, 0u);
  EXPECT_EQ(pool.stats().leased_bytes, 4096u);
}

TEST_F(PinnedPoolTest, BuffersTravelBetweenThreads) {
  PinnedPool pool(&device_, 64 << 12);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (size_t i = 0; i < 2000; ++i) {
        auto buffer = pool.Acquire((i % 3 + 1) * 4096);
        ASSERT_TRUE(buffer.ok());
        std::memset(buffer->data(), t, buffer->size());
        PinnedBuffer moved = *std::move(buffer);
        ASSERT_EQ(moved.data()[0], static_cast<std::byte>(t));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool.stats().leased_bytes, 0u);
  EXPECT_LE(pool.stats().cached_bytes, size_t{64} << 12);
}

// More than one chunk of blocks, all of them there at once, and taken again
// without the device.
TEST_F(PinnedPoolTest, ManyBuffersAreTakenAgain) {
  constexpr size_t kBuffers = 500;
  PinnedPool pool(&device_, kBuffers << 12);
  for (int round = 0; round < 2; ++round) {
    std::vector<PinnedBuffer> buffers;
    std::set<const std::byte*> addresses;
    for (size_t i = 0; i < kBuffers; ++i) {
      auto buffer = pool.AcquireNow(4096);
      ASSERT_TRUE(buffer.ok()) << buffer.status();
      addresses.insert(buffer->data());
      buffers.push_back(*std::move(buffer));
    }
    EXPECT_EQ(addresses.size(), kBuffers);
    EXPECT_FALSE(pool.AcquireNow(4096).ok());
  }
  EXPECT_EQ(device_.calls(DeviceCall::kAllocatePinned), kBuffers);
}

// Of a budget that never holds all that is wanted, with buffers that are freed
// to make room for others of other classes.
TEST_F(PinnedPoolTest, TheBudgetHoldsAtEveryMoment) {
  constexpr size_t kBudget = 8 << 12;
  constexpr size_t kThreads = 4;
  PinnedPool pool(&device_, kBudget);
  std::atomic<size_t> held = 0;
  std::atomic<bool> done = false;
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 3000; ++i) {
        const size_t bytes = size_t{4096} << ((t + i) % 3);
        auto buffer = i % 2 == 0 ? pool.Acquire(bytes) : pool.AcquireNow(bytes);
        if (!buffer.ok() || buffer->empty()) continue;
        const size_t capacity = buffer->capacity();
        EXPECT_LE(held += capacity, kBudget);
        auto* const first = reinterpret_cast<size_t*>(buffer->data());
        *first = t;  // without any order of its own
        EXPECT_EQ(*first, t);
        held -= capacity;
      }
    });
  }
  std::thread trimmer([&] {
    while (!done) {
      if (!pool.TrimOne(0)) std::this_thread::yield();
      const PinnedPoolStats now = pool.stats();
      EXPECT_LE(now.leased_bytes + now.cached_bytes, kBudget);
    }
  });
  for (std::thread& thread : threads) thread.join();
  done = true;
  trimmer.join();
  EXPECT_EQ(pool.stats().leased_bytes, 0u);
  EXPECT_TRUE(pool.Acquire(kBudget).ok()) << "the whole of it is there again";
  pool.Trim();
  EXPECT_EQ(pool.stats().cached_bytes, 0u);
}

// Whoever ends the pool has seen that nothing is leased any more.
TEST_F(PinnedPoolTest, EndsWhileItsLastBufferReturns) {
  for (int i = 0; i < 200; ++i) {
    auto pool = std::make_unique<PinnedPool>(&device_, 1 << 20);
    auto buffer = *pool->Acquire(4096);
    std::thread other([&buffer] { buffer.Reset(); });
    while (pool->stats().leased_bytes > 0) std::this_thread::yield();
    pool.reset();
    other.join();
  }
}

}  // namespace
}  // namespace weir
