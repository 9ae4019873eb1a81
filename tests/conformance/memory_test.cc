#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/device/pinned_pool.h"
#include "tests/conformance/device_conformance.h"

namespace weir {
namespace {

class MemoryConformance : public DeviceConformance {};

uintptr_t Address(const void* data) {
  return reinterpret_cast<uintptr_t>(data);
}

TEST_P(MemoryConformance, IsAligned) {
  for (const size_t bytes : {1u, 3u, 256u, 4097u, 1u << 20}) {
    auto memory = *device().Allocate(bytes);
    EXPECT_EQ(Address(memory.data()) % 256, 0u);
    EXPECT_EQ(memory.size(), bytes);
    auto pinned = *device().AllocatePinned(bytes);
    EXPECT_EQ(Address(pinned.data()) % 4096, 0u);
    EXPECT_EQ(pinned.size(), bytes);
    std::memset(pinned.data(), 1, bytes);
  }
}

TEST_P(MemoryConformance, TellsHowMuchIsFree) {
  const auto free = device().QueryFreeMemory();
  ASSERT_TRUE(free.ok()) << free.status();
  EXPECT_GT(*free, 0);
  EXPECT_LE(*free, device().info().total_memory);
  EXPECT_FALSE(device().info().runtime.empty());
}

TEST_P(MemoryConformance, NoBytesAreNoMemory) {
  auto memory = device().Allocate(0);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(memory->size(), 0u);
  auto pinned = device().AllocatePinned(0);
  ASSERT_TRUE(pinned.ok());
  EXPECT_EQ(pinned->size(), 0u);
}

TEST_P(MemoryConformance, MovesWithItsOwner) {
  auto a = *device().Allocate(64);
  void* const data = a.data();
  DeviceMemory b = std::move(a);
  EXPECT_EQ(a.data(), nullptr);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(a.size(), 0u);
  EXPECT_EQ(b.data(), data);
  b = DeviceMemory();
  EXPECT_EQ(b.data(), nullptr);
}

TEST_P(MemoryConformance, BytesTravelThereAndBack) {
  auto stream = MakeStream();
  for (const size_t bytes : {1u, 4097u, 1u << 20}) {
    auto in = *device().AllocatePinned(bytes);
    auto out = *device().AllocatePinned(bytes);
    auto first = *device().Allocate(bytes);
    auto second = *device().Allocate(bytes);
    for (size_t i = 0; i < bytes; ++i) {
      in.data()[i] = static_cast<std::byte>(i * 7 + 3);
    }
    std::memset(out.data(), 0, bytes);
    EXPECT_TRUE(RunOn(*stream, [&](Stream& s) -> absl::Status {
                  WEIR_RETURN_IF_ERROR(
                      s.CopyToDevice(first.data(), in.data(), bytes));
                  WEIR_RETURN_IF_ERROR(
                      s.CopyOnDevice(second.data(), first.data(), bytes));
                  return s.CopyToHost(out.data(), second.data(), bytes);
                }).ok());
    EXPECT_EQ(std::memcmp(in.data(), out.data(), bytes), 0);
  }
}

TEST_P(MemoryConformance, FillTouchesItsRangeOnly) {
  auto stream = MakeStream();
  auto memory = *device().Allocate(300);
  auto host = *device().AllocatePinned(300);
  EXPECT_TRUE(RunOn(*stream, [&](Stream& s) -> absl::Status {
                auto* data = static_cast<std::byte*>(memory.data());
                WEIR_RETURN_IF_ERROR(s.Fill(data, 0xaa, 300));
                WEIR_RETURN_IF_ERROR(s.Fill(data + 1, 0x55, 298));
                return s.CopyToHost(host.data(), data, 300);
              }).ok());
  EXPECT_EQ(host.data()[0], std::byte{0xaa});
  EXPECT_EQ(host.data()[1], std::byte{0x55});
  EXPECT_EQ(host.data()[298], std::byte{0x55});
  EXPECT_EQ(host.data()[299], std::byte{0xaa});
}

TEST_P(MemoryConformance, EmptyCopiesDoNothing) {
  auto stream = MakeStream();
  EXPECT_TRUE(RunOn(*stream, [&](Stream& s) -> absl::Status {
                WEIR_RETURN_IF_ERROR(s.CopyToDevice(nullptr, nullptr, 0));
                WEIR_RETURN_IF_ERROR(s.CopyOnDevice(nullptr, nullptr, 0));
                WEIR_RETURN_IF_ERROR(s.CopyToHost(nullptr, nullptr, 0));
                return s.Fill(nullptr, 0, 0);
              }).ok());
}

TEST_P(MemoryConformance, ExhaustionIsNotSticky) {
  for (const size_t bytes : {size_t{1} << 50, ~size_t{0} - 4096}) {
    const absl::Status never = device().Allocate(bytes).status();
    EXPECT_EQ(never.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(Reason(never), "DEVICE_MEMORY_EXHAUSTED");
    EXPECT_FALSE(RetryAfter(never).has_value()) << never;
    const absl::Status pinned = device().AllocatePinned(bytes).status();
    EXPECT_EQ(pinned.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(Reason(pinned), "HOST_MEMORY_EXHAUSTED");
  }
  // What fits once others have given memory back.
  const auto all = static_cast<size_t>(device().info().total_memory);
  const auto some = device().Allocate(size_t{1} << 20);
  ASSERT_TRUE(some.ok()) << some.status();
  const absl::Status now = device().Allocate(all).status();
  EXPECT_EQ(now.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Reason(now), "DEVICE_MEMORY_EXHAUSTED");
  EXPECT_TRUE(RetryAfter(now).has_value()) << now;
  EXPECT_FALSE(device().health().poisoned());
  auto stream = MakeStream();
  auto memory = device().Allocate(1024);
  ASSERT_TRUE(memory.ok());
  EXPECT_TRUE(RunOn(*stream, [&](Stream& s) {
                return s.Fill(memory->data(), 1, 1024);
              }).ok());
}

TEST_P(MemoryConformance, FreedMemoryCanBeHadAgain) {
  // A sixteenth of the device, more often than it would fit if it leaked.
  const auto bytes = static_cast<size_t>(
      std::min<int64_t>(device().info().total_memory / 16, 256 << 20));
  const int64_t rounds =
      device().info().total_memory / static_cast<int64_t>(bytes) + 1;
  for (int64_t i = 0; i < std::min<int64_t>(rounds, 1000); ++i) {
    auto memory = device().Allocate(bytes);
    ASSERT_TRUE(memory.ok()) << memory.status();
  }
}

TEST_P(MemoryConformance, PooledBuffersCarryBytes) {
  PinnedPool pool(&device(), 1 << 20);
  auto stream = MakeStream();
  auto memory = *device().Allocate(5000);
  auto buffer = *pool.Acquire(5000);
  std::memset(buffer.data(), 0x3c, 5000);
  auto result = *pool.Acquire(5000);
  EXPECT_TRUE(RunOn(*stream, [&](Stream& s) -> absl::Status {
                WEIR_RETURN_IF_ERROR(
                    s.CopyToDevice(memory.data(), buffer.data(), 5000));
                return s.CopyToHost(result.data(), memory.data(), 5000);
              }).ok());
  EXPECT_EQ(std::memcmp(buffer.data(), result.data(), 5000), 0);
}

WEIR_INSTANTIATE_CONFORMANCE(MemoryConformance);

}  // namespace
}  // namespace weir
