// Waits for moments, works and tensors of a space, over the wire.
#include <gtest/gtest.h>

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
