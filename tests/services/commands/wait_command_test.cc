// Waits for moments, works and tensors of a space, over the wire.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <thread>

#include "proto/weir/v1/evaluator.pb.h"
#include "tests/server/server_fixture.h"
#include "tests/services/space_call_fixture.h"

namespace weir::testing {
namespace {

using WaitCommandTest = SpaceCallTest;

TEST_F(WaitCommandTest, AWaitHasAtMostSoManyEntries) {
  v1::Command wait;
  for (int i = 0; i < 1025; ++i) wait.mutable_wait()->add_works(1);
  EXPECT_EQ(RunOne(wait).error().code(),
            static_cast<int>(grpc::INVALID_ARGUMENT));
  wait.mutable_wait()->mutable_works()->RemoveLast();
  EXPECT_EQ(ReasonOf(RunOne(wait).error()), "WORK_NOT_FOUND");
}

TEST_F(WaitCommandTest, AWaitHasFewerMoments) {
  CreateTimeline(1);
  v1::Command wait;
  for (int i = 0; i < 65; ++i)
    wait.mutable_wait()->add_points()->set_timeline(1);
  const v1::Failure failure = RunOne(wait).error();
  EXPECT_EQ(failure.code(), static_cast<int>(grpc::INVALID_ARGUMENT));
  EXPECT_EQ(failure.field(), "points");
  wait.mutable_wait()->mutable_points()->RemoveLast();
  EXPECT_FALSE(RunOne(wait).has_error()) << "values of 0 are reached";
}

TEST_F(WaitCommandTest, WhatAWaitKeepsCounts) {
  v1::OpenSpaceRequest small;
  small.mutable_quota()->set_input_bytes(1000);
  token_ = Open(small);
  CreateTimeline(1);
  v1::Command wait;
  for (uint64_t value = 1; value <= 4; ++value) {
    v1::Point* const point = wait.mutable_wait()->add_points();
    point->set_timeline(1);
    point->set_value(value);
  }
  EXPECT_EQ(ReasonOf(RunOne(wait).error()), "SPACE_QUOTA");
  wait.mutable_wait()->mutable_points()->DeleteSubrange(2, 2);
  ASSERT_FALSE(Signal(1, 4).has_error());
  EXPECT_FALSE(RunOne(wait).has_error());
}

TEST_F(WaitCommandTest, ForEverIsAsLongAsMayBe) {
  CreateTimeline(1);
  v1::Command wait;
  wait.mutable_wait()->add_points()->set_timeline(1);
  wait.mutable_wait()->mutable_points(0)->set_value(1);
  wait.mutable_wait()->set_timeout_ns(INT64_MAX);
  v1::CommandResult result;
  std::thread call([&] { result = RunOne(wait); });
  EXPECT_TRUE(Eventually([&] { return Describe().held().waits() == 1; }));
  EXPECT_FALSE(Signal(1, 1).has_error());
  call.join();
  EXPECT_FALSE(result.has_error()) << result.error().message();
}

TEST_F(WaitCommandTest, AWaitEnds) {
  CreateTimeline(1);
  v1::Command wait;
  wait.mutable_wait()->add_points()->set_timeline(1);
  wait.mutable_wait()->mutable_points(0)->set_value(1);
  wait.mutable_wait()->set_timeout_ns(1000);
  EXPECT_EQ(RunOne(wait).error().code(),
            static_cast<int>(grpc::DEADLINE_EXCEEDED));
  wait.mutable_wait()->set_timeout_ns(0);
  v1::CommandResult result;
  std::thread call([&] { result = RunOne(wait); });
  v1::Command deletes;
  deletes.mutable_timeline_delete()->set_timeline(1);
  ASSERT_FALSE(RunOne(deletes).has_error());
  call.join();
  // It may have come when there was no timeline any more.
  EXPECT_TRUE(ReasonOf(result.error()) == "TIMELINE_DELETED" ||
              ReasonOf(result.error()) == "TIMELINE_NOT_FOUND")
      << result.error().message();
}

}  // namespace
}  // namespace weir::testing
