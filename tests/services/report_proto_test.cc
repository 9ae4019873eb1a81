#include "server/services/report_proto.h"

#include <gmock/gmock.h>

#include <string>

#include "kernels/backend/devices.h"

namespace weir {
namespace {

constexpr int64_t kOffset = 1'700'000'000'000'000'000;

class ReportProtoTest : public ::testing::Test {
 protected:
  ReportProtoTest() {
    report_.state = WorkState::kCompleted;
    report_.wait = WaitKind::kRecord;
    report_.stream_id = 9;
    report_.sequence = 12;
    report_.accepted_at = 110;
    report_.planned_at = 120;
    report_.ready_at = 130;
    report_.leased_at = 140;
    report_.launched_at = 150;
    report_.completed_at = 170;
    report_.lease_generation = 3;
    report_.bytes_in = 40;
    report_.bytes_out = 50;
  }

  v1::SyncReport Fill(bool full) const {
    v1::SyncReport message;
    FillReport(report_,
               {.device = device_->info(),
                .received = 100,
                .replied = 190,
                .unix_minus_steady_ns = kOffset,
                .inline_reads = 2,
                .full = full},
               &message);
    return message;
  }

  const std::unique_ptr<Device> device_ = MakeCpuDevice({.cpu_threads = 1});
  SyncReport report_;
};

// On the wire a state is one higher, because 0 is UNSPECIFIED.
TEST_F(ReportProtoTest, StatesAndWaitsHaveTheirWireNumbers) {
  const std::pair<WorkState, v1::WorkState> states[] = {
      {WorkState::kNotEnqueued, v1::WORK_STATE_NOT_ENQUEUED},
      {WorkState::kEnqueued, v1::WORK_STATE_ENQUEUED},
      {WorkState::kCommitted, v1::WORK_STATE_COMMITTED},
      {WorkState::kScheduled, v1::WORK_STATE_SCHEDULED},
      {WorkState::kCompleted, v1::WORK_STATE_COMPLETED},
      {WorkState::kError, v1::WORK_STATE_ERROR}};
  for (const auto& [state, wire] : states) {
    report_.state = state;
    EXPECT_EQ(Fill(false).state(), wire);
  }
  const std::pair<WaitKind, v1::WaitPerformed> waits[] = {
      {WaitKind::kNone, v1::WAIT_PERFORMED_NONE},
      {WaitKind::kQuery, v1::WAIT_PERFORMED_QUERY},
      {WaitKind::kRecord, v1::WAIT_PERFORMED_RECORD},
      {WaitKind::kStream, v1::WAIT_PERFORMED_STREAM},
      {WaitKind::kDevice, v1::WAIT_PERFORMED_DEVICE}};
  for (const auto& [wait, wire] : waits) {
    report_.wait = wait;
    EXPECT_EQ(Fill(false).wait(), wire);
  }
}

TEST_F(ReportProtoTest, CountsFromWhenTheRequestWasThere) {
  const v1::SyncReport message = Fill(true);
  EXPECT_EQ(message.queue_ns(), 50);
  EXPECT_EQ(message.execution_ns(), 20);
  EXPECT_EQ(message.total_ns(), 90);
  EXPECT_EQ(message.stream_id(), 9u);
  EXPECT_EQ(message.stream_sequence(), 12u);
  EXPECT_EQ(message.inline_reads(), 2u);
  const v1::WorkTimes& times = message.details().times();
  EXPECT_EQ(times.received_ns(), kOffset + 100);
  EXPECT_EQ(times.enqueued_ns(), kOffset + 110);
  EXPECT_EQ(times.planned_ns(), kOffset + 120);
  EXPECT_EQ(times.ready_ns(), kOffset + 130);
  EXPECT_EQ(times.leased_ns(), kOffset + 140);
  EXPECT_EQ(times.scheduled_ns(), kOffset + 150);
  EXPECT_EQ(times.completed_ns(), kOffset + 170);
  EXPECT_EQ(message.details().transfers().host_to_device_bytes(), 40u);
  EXPECT_EQ(message.details().transfers().device_to_host_bytes(), 50u);
}

TEST_F(ReportProtoTest, WhatDidNotHappenHasNoTime) {
  report_ = SyncReport();
  report_.accepted_at = 110;
  report_.state = WorkState::kError;
  const v1::SyncReport message = Fill(false);
  EXPECT_EQ(message.queue_ns(), 0);
  EXPECT_EQ(message.execution_ns(), 0);
  EXPECT_EQ(message.total_ns(), 90);
  EXPECT_EQ(message.inline_reads(), 0u) << "it has no results";
  ASSERT_TRUE(message.has_details()) << "an error is told in full";
  EXPECT_EQ(message.details().times().leased_ns(), 0);
  EXPECT_EQ(message.details().times().completed_ns(), 0);
}

TEST_F(ReportProtoTest, AWaitSaysWhoseTimelineItIs) {
  using Kind = TimelineOwner::Kind;
  report_.waits.push_back(
      {{Kind::kStream, 5}, device_.get(), 77, InsertedWait::Kind::kDevice});
  report_.waits.push_back(
      {{Kind::kContext, 6}, nullptr, 78, InsertedWait::Kind::kHost});
  report_.waits.push_back(
      {{Kind::kCaller, 0}, nullptr, 79, InsertedWait::Kind::kNone});
  const v1::SyncReport message = Fill(true);
  const v1::SyncDetails& details = message.details();
  ASSERT_EQ(details.waits_size(), 3);
  EXPECT_EQ(details.waits(0).from_case(), v1::InsertedWait::kStream);
  EXPECT_EQ(details.waits(0).stream(), 5u);
  EXPECT_EQ(details.waits(0).from_device_uuid(), device_->info().uuid);
  EXPECT_EQ(details.waits(0).value(), 77u);
  EXPECT_EQ(details.waits(0).to(), 9u);
  EXPECT_EQ(details.waits(0).kind(), v1::InsertedWait::KIND_DEVICE_SIDE);
  EXPECT_EQ(details.waits(1).from_case(), v1::InsertedWait::kContext);
  EXPECT_EQ(details.waits(1).context(), 6u);
  EXPECT_EQ(details.waits(1).from_device_uuid(), "");
  EXPECT_EQ(details.waits(1).kind(), v1::InsertedWait::KIND_HOST_SIDE);
  EXPECT_EQ(details.waits(2).from_case(), v1::InsertedWait::kTimeline)
      << "number 0 is one too";
  EXPECT_EQ(details.waits(2).kind(), v1::InsertedWait::KIND_ALREADY_REACHED);
}

TEST_F(ReportProtoTest, LongListsAreCounted) {
  const auto timeline = std::make_shared<Timeline>("t");
  for (uint64_t i = 0; i < 70; ++i) {
    report_.AddWait({timeline, i}, InsertedWait::Kind::kHost);
  }
  EXPECT_EQ(report_.waits.size(), 64u) << "it is kept with its work";
  const v1::SyncReport message = Fill(true);
  EXPECT_EQ(message.details().waits_size(), 64);
  EXPECT_EQ(message.details().waits_omitted(), 6u);
}

TEST_F(ReportProtoTest, TheDevicesErrorIsTold) {
  report_.state = WorkState::kError;
  report_.device_errors.push_back(
      {700, "cudaErrorIllegalAddress", "somewhere", true, "node \"x\""});
  const v1::SyncReport message = Fill(false);
  const v1::DeviceError& error = message.details().device_error();
  EXPECT_EQ(error.code(), 700);
  EXPECT_EQ(error.name(), "cudaErrorIllegalAddress");
  EXPECT_EQ(error.text(), "somewhere");
  EXPECT_TRUE(error.sticky());
  EXPECT_EQ(error.node(), "node \"x\"");
}

}  // namespace
}  // namespace weir
