// What the simulated device owes the search: orders that differ are different
// states.
#include "tests/sim/sim_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "kernels/base/atomic.h"
#include "kernels/base/thread.h"
#include "tests/sim/explorer.h"
#include "tests/sim/scheduler.h"

namespace weir::sim {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSteps = 1'000'000;

// Two threads call what fails for the second of them, and then lose an update:
// wrong only where the first one's call has failed, which it does not at first.
std::function<void()> SecondFails(const DeviceFaults& faults,
                                  bool (*call)(SimDevice&)) {
  return [faults, call] {
    SimDevice device(faults);
    Quiesce();
    SetExploring(true);
    Thread other("other", [&] { call(device); });
    const bool failed = !call(device);
    other.Join();
    Atomic<int> count{0};
    const auto add = [&count] { count.store(count.load() + 1); };
    Thread first("first", add);
    Thread second("second", add);
    first.Join();
    second.Join();
    Check(count.load() == 2 || !failed, "an update is lost");
    SetExploring(false);
  };
}

TEST(SimDevice, WhoseCallFailsIsPartOfTheState) {
  const auto allocate = [](SimDevice& device) {
    return device.Allocate(8).ok();
  };
  EXPECT_THAT(ExploreAll({"allocate", SecondFails({.allocation = 2}, allocate)},
                         3, kSteps)
                  .failure,
              HasSubstr("an update is lost"));
  const auto pin = [](SimDevice& device) {
    return device.AllocatePinned(8).ok();
  };
  EXPECT_THAT(
      ExploreAll({"pin", SecondFails({.pinned_allocation = 2}, pin)}, 3, kSteps)
          .failure,
      HasSubstr("an update is lost"));
}

}  // namespace
}  // namespace weir::sim
