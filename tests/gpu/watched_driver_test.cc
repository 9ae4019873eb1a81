// Whether the driver is watched (watched_driver.cc) where run.sh says so.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "kernels/backend/devices.h"
#include "kernels/base/error_info.h"
#include "kernels/base/thread_role.h"
#include "kernels/ops/registry.h"

namespace weir {
namespace {

TEST(WatchedDriverTest, AWaitOfTheCudaDriverIsSeenBesideThatOfTheDevice) {
  if (std::getenv("WEIR_WATCHED_DRIVER") == nullptr) {
    GTEST_SKIP() << "the driver is watched in tests/gpu/run.sh alone";
  }
  const auto registry = MakeOpRegistry();
  const auto device = MakeDevice("cuda:0", DeviceOptions(), *registry);
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ(CountMisplacedWaits().count, 0u);
  {
    const ScopedThreadRole role(ThreadRole::kIo);
    // Device::Synchronize says that it may wait, and then the driver does.
    EXPECT_TRUE((*device)->Synchronize().ok());
  }
  EXPECT_EQ(CountMisplacedWaits().count, 2u);
}

}  // namespace
}  // namespace weir
