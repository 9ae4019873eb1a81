// Timelines of a space, over the wire.
#include <gtest/gtest.h>

#include <vector>

#include "proto/weir/v1/evaluator.pb.h"
#include "tests/server/server_fixture.h"
#include "tests/services/space_call_fixture.h"

namespace weir::testing {
namespace {

class TimelineCommandsTest : public SpaceCallTest {
 protected:
  v1::CommandResult Delete(uint64_t timeline, bool number_only) {
    v1::Command command;
    command.mutable_timeline_delete()->set_timeline(timeline);
    command.mutable_timeline_delete()->set_number_only(number_only);
    return RunOne(command);
  }

  // Doubles tensor `from` as `to`, once timeline `after` is at 1, and brings
  // timeline `signal` there.
  void DoubleBetween(uint64_t from, uint64_t to, uint64_t after,
                     uint64_t signal) {
    v1::EvaluateRequest request = Double(from, to);
    request.add_after()->set_timeline(after);
    request.mutable_after(0)->set_value(1);
    request.add_signal()->set_timeline(signal);
    request.mutable_signal(0)->set_value(1);
    const EvaluateAnswer answer = Evaluate(request);
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  }
};

TEST_F(TimelineCommandsTest, ANumberThatIsFreedLeavesWorksTheirTimeline) {
  for (const uint64_t timeline : {1u, 2u, 3u}) CreateTimeline(timeline);
  ASSERT_FALSE(Put(1, {1}).has_error());
  DoubleBetween(1, 2, 1, 2);
  DoubleBetween(2, 3, 2, 3);
  ASSERT_FALSE(Delete(2, /*number_only=*/true).has_error());
  EXPECT_EQ(ReasonOf(Signal(2, 1).error()), "TIMELINE_NOT_FOUND");
  EXPECT_EQ(Describe().held().timelines(), 3u) << "works hold it";
  CreateTimeline(2);  // another one
  ASSERT_FALSE(Signal(1, 1).has_error());
  EXPECT_EQ(Read(3), std::vector<float>({4}));
  EXPECT_EQ(Delete(2, /*number_only=*/true).timeline_delete().value(), 0u);
  EXPECT_TRUE(Eventually([&] { return Describe().held().timelines() == 2; }));
}

TEST_F(TimelineCommandsTest, WhatWaitsForADeletedOneFails) {
  CreateTimeline(1);
  CreateTimeline(2);
  ASSERT_FALSE(Put(1, {1}).has_error());
  DoubleBetween(1, 2, 1, 2);
  ASSERT_FALSE(Delete(1, /*number_only=*/false).has_error());
  EXPECT_EQ(ReasonOf(Get(2).error()), "TIMELINE_DELETED");
}

}  // namespace
}  // namespace weir::testing
