// What the simulated device owes the search: orders that differ are different
// states, and the same choices are the same run.
#include "tests/sim/sim_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/base/atomic.h"
#include "kernels/base/clock.h"
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

// The states that a run comes through, in which everybody goes on.
class States final : public Chooser {
 public:
  size_t Choose(const ChoicePoint& point) override {
    seen_.push_back(point.state);
    return 0;
  }
  const std::vector<uint64_t>& seen() const { return seen_; }

 private:
  std::vector<uint64_t> seen_;
};

// A device of four streams is lost. Their timelines lie where blocks lay that
// were freed from the first to the last, or the other way round.
std::vector<uint64_t> LoseFourStreams(bool from_the_first) {
  Scheduler scheduler;
  States states;
  const Outcome outcome = scheduler.Run(
      [from_the_first] {
        constexpr size_t kStreams = 4;
        SimDevice device;
        std::vector<std::unique_ptr<Stream>> streams;
        // As large as make_shared's.
        std::vector<std::unique_ptr<std::byte[]>> others(kStreams);
        for (auto& other : others) {
          other = std::make_unique<std::byte[]>(sizeof(Timeline) + 16);
        }
        if (from_the_first) std::reverse(others.begin(), others.end());
        while (!others.empty()) others.pop_back();
        for (size_t i = 0; i < kStreams; ++i) {
          streams.push_back(*device.CreateStream(0));
        }
        device.LoseAt(1);
        Quiesce();
        SetExploring(true);
        static_cast<SimStream&>(*streams[0]).Launch([] {});
        for (int i = 0; i < 10; ++i) Yield();
        SetExploring(false);
        Quiesce();
        streams.clear();
      },
      states);
  EXPECT_EQ(outcome.failure, "");
  return states.seen();
}

TEST(SimDevice, WhereStreamsLieInMemoryIsNoMatter) {
  LoseFourStreams(true);  // what is made once is made
  const std::vector<uint64_t> states = LoseFourStreams(true);
  EXPECT_GE(states.size(), 5);
  EXPECT_EQ(LoseFourStreams(true), states);
  EXPECT_EQ(LoseFourStreams(false), states);
}

}  // namespace
}  // namespace weir::sim
