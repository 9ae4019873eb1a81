#include "kernels/eval/lane_hold.h"

#include <gtest/gtest.h>

#include <memory>

#include "kernels/backend/devices.h"
#include "kernels/base/timer_queue.h"
#include "tests/base/eventually.h"
#include "tests/device/fault_injecting_device.h"

namespace weir {
namespace {

class LaneHoldTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = std::make_unique<FaultInjectingDevice>(
        MakeCpuDevice({.cpu_threads = 1}));
    faults_ = device.get();
    device_ = std::move(device);
    StreamPoolOptions options;
    options.max = 2;
    auto pool = StreamPool::Create(device_.get(), &timers_, options);
    ASSERT_TRUE(pool.ok()) << pool.status();
    pool_ = *std::move(pool);
  }

  LaneClaim Take() {
    auto lease = pool_->TryAcquire();
    EXPECT_TRUE(lease.ok()) << lease.status();
    return hold_.Give(*std::move(lease));
  }
  size_t leased() const { return pool_->stats().leased; }

  FaultInjectingDevice* faults_ = nullptr;
  std::unique_ptr<Device> device_;
  TimerQueue timers_;
  std::unique_ptr<StreamPool> pool_;
  LaneHold hold_{/*max_launches=*/100};
};

TEST_F(LaneHoldTest, TheLaneStaysWhileSomethingIsOnItOrAboutToBe) {
  EXPECT_FALSE(hold_.Claim()) << "there is none yet";
  LaneClaim claim = Take();
  Lane* const lane = claim.lane();
  EXPECT_TRUE(hold_.IsOn(lane->stream().timeline().get()));
  ASSERT_TRUE(hold_.Begin(claim, 10));
  EXPECT_FALSE(claim) << "it is used up";
  claim = hold_.Claim();
  ASSERT_TRUE(claim) << "the next one has the same";
  EXPECT_EQ(claim.lane(), lane);
  EXPECT_FALSE(hold_.End(10, /*suspect=*/false));
  EXPECT_EQ(leased(), 1u) << "it is claimed";
  ASSERT_TRUE(hold_.Begin(claim, 10));
  EXPECT_EQ(leased(), 1u);
  EXPECT_FALSE(hold_.End(10, /*suspect=*/false));
  EXPECT_EQ(leased(), 0u);
  EXPECT_FALSE(hold_.Claim());
  EXPECT_FALSE(hold_.IsOn(lane->stream().timeline().get()));
}

TEST_F(LaneHoldTest, WhoDoesNotLaunchGivesItBack) {
  { const LaneClaim claim = Take(); }
  EXPECT_EQ(leased(), 0u);
  LaneClaim claim = Take();
  ASSERT_TRUE(hold_.Begin(claim, 1));
  claim = hold_.Claim();
  ASSERT_TRUE(claim);
  claim.Reset();
  EXPECT_EQ(leased(), 1u) << "something is on it";
  EXPECT_FALSE(hold_.End(1, /*suspect=*/false));
  EXPECT_EQ(leased(), 0u);
}

TEST_F(LaneHoldTest, AFullLaneSaysWhenItHasRoomAgain) {
  LaneClaim claim = Take();
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(hold_.Begin(claim, 10));
    claim = hold_.Claim();
  }
  EXPECT_FALSE(hold_.Begin(claim, 10));
  EXPECT_TRUE(claim) << "it stays";
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(hold_.End(10, /*suspect=*/false));
  EXPECT_TRUE(hold_.End(10, /*suspect=*/false)) << "half of it is free";
  EXPECT_FALSE(hold_.End(10, /*suspect=*/false)) << "once is enough";
  EXPECT_FALSE(hold_.Begin(claim, 200)) << "it has to be alone";
  for (int i = 0; i < 4; ++i) (void)hold_.End(10, /*suspect=*/false);
  EXPECT_TRUE(hold_.Begin(claim, 200));
  EXPECT_FALSE(hold_.End(200, /*suspect=*/false));
  EXPECT_EQ(leased(), 0u);
}

TEST_F(LaneHoldTest, AStreamTakesSoManyWorksAndNoMore) {
  LaneClaim claim = Take();
  size_t begun = 0;
  while (hold_.Begin(claim, 0)) {
    ++begun;
    claim = hold_.Claim();
    ASSERT_TRUE(claim);
    ASSERT_LE(begun, Stream::kMaxUnfinished);
  }
  EXPECT_EQ(begun, Stream::kMaxUnfinished);
  for (; begun > Stream::kMaxUnfinished / 2 + 1; --begun) {
    EXPECT_FALSE(hold_.End(0, /*suspect=*/false));
  }
  EXPECT_TRUE(hold_.End(0, /*suspect=*/false));
  while (--begun > 0) (void)hold_.End(0, /*suspect=*/false);
  EXPECT_EQ(leased(), 1u);
  claim.Reset();
  EXPECT_EQ(leased(), 0u);
}

// A lane that does not pass its check is not handed out again.
TEST_F(LaneHoldTest, ASuspectLaneIsCheckedBeforeAnotherHasItAndNoOther) {
  for (const bool suspect : {false, true}) {
    faults_->Fail(DeviceCall::kCheck, absl::InternalError("unfit"));
    LaneClaim claim = Take();
    ASSERT_TRUE(hold_.Begin(claim, 1));
    EXPECT_FALSE(hold_.End(1, suspect));
    EXPECT_TRUE(testing::Eventually(
        [&] { return pool_->stats().destroyed_total == (suspect ? 1u : 0u); }));
    EXPECT_EQ(faults_->calls(DeviceCall::kCheck), suspect ? 1u : 0u);
  }
}

}  // namespace
}  // namespace weir
