#include "kernels/tensor/memory_pool.h"

#include <atomic>
#include <memory>
#include <thread>

#include "gtest/gtest.h"
#include "kernels/backend/devices.h"
#include "kernels/base/error_info.h"
#include "tests/base/eventually.h"
#include "tests/device/fault_injecting_device.h"

namespace weir {
namespace {

constexpr size_t kBudget = 1 << 20;

class MemoryPoolTest : public ::testing::Test {
 protected:
  MemoryPoolTest()
      : device_(MakeCpuDevice({.cpu_threads = 1})),
        pool_(device_.get(), kBudget) {}

  std::shared_ptr<TensorStorage> Get(size_t bytes) {
    return pool_.Allocate(bytes).value();
  }

  std::unique_ptr<Device> device_;
  MemoryPool pool_;
};

TEST_F(MemoryPoolTest, GivesAlignedMemoryOfTheSizeAskedFor) {
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{257}, size_t{100000}}) {
    const auto allocation = Get(bytes);
    EXPECT_GE(allocation->size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(allocation->data()) % 256, 0u);
    EXPECT_EQ(&allocation->device(), device_.get());
  }
}

TEST_F(MemoryPoolTest, GivesABlockAgain) {
  const std::byte* const first = Get(1000)->data();
  EXPECT_EQ(Get(900)->data(), first);
  EXPECT_EQ(pool_.stats().cached_bytes, 1024u);
}

TEST_F(MemoryPoolTest, ABlockWaitsForEveryPointOfItsFormerUse) {
  const auto writer = std::make_shared<Timeline>("writer");
  const auto reader = std::make_shared<Timeline>("reader");
  std::byte* first = nullptr;
  {
    const auto a = Get(1000);
    first = a->data();
    a->SetWriter({writer, 1});
    a->AddReader({reader, 1});
  }
  ASSERT_TRUE(writer->Advance(1).ok());
  {
    const auto other = Get(1000);
    EXPECT_NE(other->data(), first);
    // A failed point was reached as well.
    reader->Fail(absl::CancelledError("gone"));
    EXPECT_EQ(Get(1000)->data(), first);
  }
}

TEST_F(MemoryPoolTest, RefusesBeyondItsBudget) {
  const auto half = Get(kBudget / 2);
  const auto more = pool_.Allocate(kBudget / 2 + 1);
  EXPECT_EQ(more.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Reason(more.status()), "DEVICE_MEMORY_EXHAUSTED");
  EXPECT_TRUE(RetryAfter(more.status()).has_value());
  const auto never = pool_.Allocate(kBudget + 1);
  EXPECT_EQ(Reason(never.status()), "DEVICE_MEMORY_EXHAUSTED");
  EXPECT_FALSE(RetryAfter(never.status()).has_value());
  EXPECT_EQ(pool_.Allocate(size_t{1} << 60).status().code(),
            absl::StatusCode::kInvalidArgument);
  const MemoryPoolStats stats = pool_.stats();
  EXPECT_EQ(stats.budget_bytes, kBudget);
  EXPECT_EQ(stats.used_bytes, kBudget / 2);
  EXPECT_EQ(stats.refused_total, 2u);
}

TEST_F(MemoryPoolTest, CachedBlocksMakeRoomForOtherSizes) {
  for (size_t bytes : {kBudget / 2, kBudget / 4, kBudget / 8}) Get(bytes);
  EXPECT_EQ(pool_.stats().used_bytes, 0u);
  EXPECT_EQ(pool_.stats().cached_bytes, kBudget / 8 * 7);
  const auto all = Get(kBudget);
  EXPECT_EQ(pool_.stats().cached_bytes, 0u);
}

TEST_F(MemoryPoolTest, TrimFreesWhatIsNotInUse) {
  const auto kept = Get(1000);
  Get(5000);
  const auto busy = std::make_shared<Timeline>("busy");
  Get(9000)->SetWriter({busy, 1});
  pool_.Trim();
  EXPECT_EQ(pool_.stats().cached_bytes, 16384u);  // the busy one
  ASSERT_TRUE(busy->Advance(1).ok());
  pool_.Trim();
  EXPECT_EQ(pool_.stats().cached_bytes, 0u);
  EXPECT_EQ(pool_.stats().used_bytes, 1024u);
}

TEST_F(MemoryPoolTest, TakesNowOnlyWhatIsThereOrQuickToMake) {
  FaultInjectingDevice slow(MakeCpuDevice({.cpu_threads = 1}));
  slow.set_allocation_waits();
  MemoryPool pool(&slow, kBudget);
  EXPECT_EQ(pool.AllocateNow(1000).value(), nullptr);
  EXPECT_EQ(slow.calls(DeviceCall::kAllocate), 0u);
  EXPECT_EQ(pool.stats().used_bytes, 0u);
  EXPECT_EQ(pool.stats().refused_total, 0u);
  { const auto made = pool.Allocate(1000).value(); }
  EXPECT_NE(pool.AllocateNow(1000).value(), nullptr);
  // Not what is free of another size, which would have to be freed.
  EXPECT_EQ(pool.AllocateNow(kBudget).value(), nullptr);
  EXPECT_EQ(slow.calls(DeviceCall::kFree), 0u);
  // Quick where the device says so.
  EXPECT_NE(pool_.AllocateNow(1000).value(), nullptr);
  EXPECT_EQ(pool_.AllocateNow(2 * kBudget).value(), nullptr)
      << "Allocate says why";
}

TEST(MemoryPoolFaultTest, ADeviceThatIsFullGetsTheCacheBack) {
  FaultInjectingDevice device(MakeCpuDevice({.cpu_threads = 1}));
  MemoryPool pool(&device, kBudget);
  pool.Allocate(1000).value().reset();
  EXPECT_GT(pool.stats().cached_bytes, 0u);
  device.Fail(DeviceCall::kAllocate, absl::ResourceExhaustedError("oom"));
  const auto larger = pool.Allocate(100'000);
  EXPECT_TRUE(larger.ok()) << larger.status();
  EXPECT_EQ(pool.stats().cached_bytes, 0u);
}

TEST(MemoryPoolFaultTest, WhatCannotBeMadeTakesNoRoom) {
  FaultInjectingDevice device(MakeCpuDevice({.cpu_threads = 1}));
  MemoryPool pool(&device, kBudget);
  device.Fail(DeviceCall::kAllocate, absl::InternalError("no"));
  EXPECT_EQ(pool.Allocate(1000).status(), absl::InternalError("no"));
  EXPECT_EQ(pool.stats().used_bytes, 0u);
  EXPECT_EQ(pool.stats().refused_total, 1u);
  device.Fail(DeviceCall::kAllocate, absl::ResourceExhaustedError("oom"));
  EXPECT_EQ(pool.AllocateNow(1000).value(), nullptr);
  EXPECT_EQ(pool.stats().used_bytes, 0u);
  EXPECT_EQ(pool.stats().refused_total, 1u);
  const auto all = pool.Allocate(kBudget);
  EXPECT_TRUE(all.ok()) << all.status();
}

// What runs is waited for, and what has ended costs no wait.
TEST(MemoryPoolFaultTest, NothingIsFreedAtTheEndWhileItIsUsed) {
  for (const bool used : {true, false}) {
    SCOPED_TRACE(used);
    FaultInjectingDevice device(MakeCpuDevice({.cpu_threads = 1}));
    const auto writer = std::make_shared<Timeline>("writer");
    auto pool = std::make_unique<MemoryPool>(&device, kBudget);
    pool->Allocate(1000).value()->SetWriter({writer, 1});
    ASSERT_TRUE(used || writer->Advance(1).ok());
    auto& hold = device.HoldCall(DeviceCall::kSynchronize);
    std::atomic<bool> ended = false;
    std::thread closer([&] {
      pool.reset();
      ended = true;
    });
    EXPECT_TRUE(testing::Eventually(
        [&] { return ended || device.calls(DeviceCall::kSynchronize) > 0; }));
    EXPECT_EQ(device.calls(DeviceCall::kFree), used ? 0u : 1u);
    hold.Release();
    closer.join();
    EXPECT_EQ(device.calls(DeviceCall::kFree), 1u);
    EXPECT_EQ(device.calls(DeviceCall::kSynchronize), used ? 1u : 0u);
  }
}

TEST(MemoryPoolSizeTest, LargeBlocksWasteLittle) {
  const auto device = MakeCpuDevice({.cpu_threads = 1});
  MemoryPool pool(device.get(), size_t{1} << 26);
  for (size_t bytes = 1 << 20; bytes < size_t{1} << 25; bytes += 999999) {
    const size_t size = pool.Allocate(bytes).value()->size();
    EXPECT_GE(size, bytes);
    EXPECT_LE(size, bytes + bytes / 4);
  }
}

}  // namespace
}  // namespace weir
