#include "kernels/eval/lane_hold.h"

#include <gtest/gtest.h>

#include <memory>

#include "kernels/base/timer_queue.h"
#include "kernels/device/devices.h"
#include "kernels/ops/registry.h"

namespace weir {
namespace {

class LaneHoldTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = MakeDevice("cpu", {.cpu_threads = 1}, *registry_);
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    StreamPoolOptions options;
    options.max = 2;
    auto pool = StreamPool::Create(device_.get(), &timers_, options);
    ASSERT_TRUE(pool.ok()) << pool.status();
    pool_ = *std::move(pool);
  }

  void Take() {
    auto lease = pool_->TryAcquire();
    ASSERT_TRUE(lease.ok()) << lease.status();
    hold_.Give(*std::move(lease));
  }
  size_t leased() const { return pool_->stats().leased; }

  const std::unique_ptr<OpRegistry> registry_ = MakeOpRegistry();
  std::unique_ptr<Device> device_;
  TimerQueue timers_;
  std::unique_ptr<StreamPool> pool_;
  LaneHold hold_{/*max_launches=*/100};
};

TEST_F(LaneHoldTest, TheLaneStaysWhileSomethingIsOnItOrAboutToBe) {
  EXPECT_FALSE(hold_.Claim()) << "there is none yet";
  Take();
  Lane* const lane = hold_.lane();
  ASSERT_TRUE(hold_.Begin(10));
  ASSERT_TRUE(hold_.Claim()) << "the next one has the same";
  EXPECT_EQ(hold_.lane(), lane);
  EXPECT_FALSE(hold_.End(10, /*suspect=*/false).lease) << "it is claimed";
  ASSERT_TRUE(hold_.Begin(10));
  EXPECT_EQ(leased(), 1u);
  EXPECT_TRUE(hold_.End(10, /*suspect=*/false).lease);
  EXPECT_EQ(leased(), 0u);
  EXPECT_FALSE(hold_.Claim());
}

TEST_F(LaneHoldTest, WhoDoesNotLaunchGivesItBack) {
  Take();
  EXPECT_TRUE(hold_.Unclaim().lease);
  EXPECT_EQ(leased(), 0u);
  Take();
  ASSERT_TRUE(hold_.Begin(1));
  ASSERT_TRUE(hold_.Claim());
  EXPECT_FALSE(hold_.Unclaim().lease) << "something is on it";
  EXPECT_TRUE(hold_.End(1, /*suspect=*/false).lease);
}

TEST_F(LaneHoldTest, AFullLaneSaysWhenItHasRoomAgain) {
  Take();
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(hold_.Begin(10));
    ASSERT_TRUE(hold_.Claim());
  }
  EXPECT_FALSE(hold_.Begin(10));
  EXPECT_FALSE(hold_.Begin(200));
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(hold_.End(10, /*suspect=*/false).has_room);
  }
  EXPECT_TRUE(hold_.End(10, /*suspect=*/false).has_room)
      << "half of it is free";
  EXPECT_FALSE(hold_.End(10, /*suspect=*/false).has_room) << "once is enough";
  EXPECT_FALSE(hold_.Begin(200)) << "it has to be alone";
  for (int i = 0; i < 4; ++i) (void)hold_.End(10, /*suspect=*/false);
  EXPECT_TRUE(hold_.Begin(200));
  EXPECT_TRUE(hold_.End(200, /*suspect=*/false).lease);
}

TEST_F(LaneHoldTest, AStreamTakesSoManyWorksAndNoMore) {
  Take();
  size_t begun = 0;
  while (hold_.Begin(0)) {
    ++begun;
    ASSERT_TRUE(hold_.Claim());
    ASSERT_LE(begun, Stream::kMaxUnfinished);
  }
  EXPECT_EQ(begun, Stream::kMaxUnfinished);
  while (begun > Stream::kMaxUnfinished / 2 + 1) {
    EXPECT_FALSE(hold_.End(0, /*suspect=*/false).has_room);
    --begun;
  }
  EXPECT_TRUE(hold_.End(0, /*suspect=*/false).has_room);
  while (--begun > 0) (void)hold_.End(0, /*suspect=*/false);
  (void)hold_.Unclaim();
  EXPECT_EQ(leased(), 0u);
}

TEST_F(LaneHoldTest, ASuspectLaneIsCheckedBeforeAnotherHasIt) {
  Take();
  const uint64_t number = hold_.lane()->number();
  ASSERT_TRUE(hold_.Begin(1));
  hold_.End(1, /*suspect=*/true).lease.Reset();
  EXPECT_EQ(leased(), 0u);
  Take();
  EXPECT_EQ(hold_.lane()->number(), number) << "it was found fit";
  (void)hold_.Unclaim();
}

}  // namespace
}  // namespace weir
