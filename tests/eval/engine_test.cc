#include "kernels/eval/engine.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "kernels/device/devices.h"

namespace weir {
namespace {

TEST(EngineTest, PinnedBuffersThatNobodyUsesGoBack) {
  const auto registry = MakeOpRegistry({});
  auto device = MakeDevice("cpu", {.cpu_threads = 1}, *registry);
  ASSERT_TRUE(device.ok()) << device.status();
  EngineOptions options;
  options.pinned_ttl = absl::Milliseconds(1);
  options.kept_pinned_bytes = 8192;
  const auto engine =
      Engine::Create(*std::move(device), registry.get(), options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  PinnedPool& pool = (*engine)->pinned();
  {
    const auto large = pool.Acquire(1 << 20);
    const auto small = pool.Acquire(8192);
    ASSERT_TRUE(large.ok() && small.ok());
    EXPECT_EQ(pool.stats().leased_bytes, (1 << 20) + 8192u);
  }
  // On a thread of the engine's: this waits for it as long as a busy machine
  // may take.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (pool.stats().cached_bytes > 8192 &&
         std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
  EXPECT_EQ(pool.stats().cached_bytes, 8192u);
}

}  // namespace
}  // namespace weir
