#include "kernels/device/pageable_buffer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "kernels/backend/devices.h"
#include "kernels/base/error_info.h"
#include "tests/device/fault_injecting_device.h"

namespace weir {
namespace {

class PageableBufferTest : public ::testing::Test {
 protected:
  FaultInjectingDevice device_{
      MakeCpuDevice({.cpu_threads = 1, .cache_dir = {}})};
  PinnedPool pool_{&device_, 4 * 4096};
};

TEST_F(PageableBufferTest, TakesItsShareOfTheBudgetAndNothingOfTheDevice) {
  auto buffer = *PageableBuffer::Create(pool_, 5000);
  ASSERT_FALSE(buffer.empty());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 256, 0u);
  std::memset(buffer.data(), 1, 5000);
  EXPECT_EQ(pool_.stats().leased_bytes, 8192u);
  PageableBuffer moved = std::move(buffer);
  EXPECT_TRUE(buffer.empty());  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(pool_.stats().leased_bytes, 8192u);
  moved.Reset();
  EXPECT_TRUE(moved.empty());
  EXPECT_EQ(pool_.stats().leased_bytes, 0u);
  EXPECT_EQ(device_.calls(DeviceCall::kAllocatePinned), 0u);
}

TEST_F(PageableBufferTest, TheBudgetHolds) {
  const auto pinned = *pool_.Acquire(8192);
  const auto there = *PageableBuffer::Create(pool_, 8192);
  const absl::Status refused = PageableBuffer::Create(pool_, 1).status();
  EXPECT_EQ(Reason(refused), "HOST_MEMORY_EXHAUSTED");
  EXPECT_TRUE(RetryAfter(refused).has_value());
  EXPECT_EQ(Reason(pool_.Acquire(1).status()), "HOST_MEMORY_EXHAUSTED");
  for (const size_t bytes :
       {size_t{4 * 4096 + 1}, std::numeric_limits<size_t>::max()}) {
    const absl::Status never = PageableBuffer::Create(pool_, bytes).status();
    EXPECT_EQ(Reason(never), "HOST_MEMORY_EXHAUSTED");
    EXPECT_FALSE(RetryAfter(never).has_value());
  }
  EXPECT_EQ(pool_.stats().refused_total, 4u);
}

// What is cached is freed by somebody who may wait.
TEST_F(PageableBufferTest, WhatIsCachedDoesNotKeepItWaiting) {
  { const auto a = *pool_.Acquire(8192); }
  { const auto b = *pool_.Acquire(4096); }
  EXPECT_FALSE(pool_.TrimOne(1 << 20));
  const auto large = *PageableBuffer::Create(pool_, 4 * 4096);
  ASSERT_FALSE(large.empty());
  EXPECT_EQ(pool_.stats().cached_bytes, 3u * 4096);
  EXPECT_TRUE(pool_.TrimOne(1 << 20));
  EXPECT_TRUE(pool_.TrimOne(1 << 20));
  EXPECT_FALSE(pool_.TrimOne(1 << 20));
  EXPECT_EQ(pool_.stats().cached_bytes, 0u);
}

// What is cached is no room that was charged meanwhile.
TEST_F(PageableBufferTest, WhatIsCachedIsNotLentBeyondTheBudget) {
  { const auto cached = *pool_.Acquire(4 * 4096); }
  auto copy = *PageableBuffer::Create(pool_, 4 * 4096);
  EXPECT_EQ(Reason(pool_.Acquire(4 * 4096).status()), "HOST_MEMORY_EXHAUSTED");
  EXPECT_EQ(Reason(pool_.AcquireNow(4 * 4096).status()),
            "HOST_MEMORY_EXHAUSTED");
  EXPECT_EQ(pool_.stats().leased_bytes, 4u * 4096);
  copy.Reset();
  EXPECT_TRUE(pool_.Acquire(4 * 4096).ok());
  EXPECT_EQ(device_.calls(DeviceCall::kAllocatePinned), 1u);
}

TEST_F(PageableBufferTest, AcquireFreesWhatExceedsTheBudget) {
  { const auto cached = *pool_.Acquire(8192); }
  const auto copy = *PageableBuffer::Create(pool_, 3 * 4096);
  const auto pinned = *pool_.Acquire(4096);
  EXPECT_EQ(pool_.stats().leased_bytes, 4u * 4096);
  EXPECT_EQ(pool_.stats().cached_bytes, 0u);
}

}  // namespace
}  // namespace weir
