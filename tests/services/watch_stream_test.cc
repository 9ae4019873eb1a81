// Works whose states are told as they change, over the wire.
#include <gmock/gmock.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/base/error_info.h"
#include "proto/weir/v1/evaluator.pb.h"
#include "tests/server/server_fixture.h"
#include "tests/services/space_call_fixture.h"

namespace weir::testing {
namespace {

class WatchStreamTest : public SpaceCallTest {
 protected:
  // A stream, and what it has told.
  struct Watching {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::WatchResponse>> reader;
    std::map<uint64_t, std::vector<v1::WorkState>> states;
    std::map<uint64_t, v1::WorkStatus> last;
    size_t messages = 0;

    // False at its end.
    bool Next() {
      v1::WatchResponse message;
      if (!reader->Read(&message)) return false;
      ++messages;
      for (const v1::WatchedWork& each : message.works()) {
        states[each.work()].push_back(each.status().state());
        last[each.work()] = each.status();
      }
      return true;
    }
    grpc::Status Finish() {
      while (Next()) {
      }
      return reader->Finish();
    }
  };
  std::unique_ptr<Watching> Watch(const std::vector<uint64_t>& works) {
    auto watching = std::make_unique<Watching>();
    Enter(&watching->context);
    v1::WatchRequest request;
    for (const uint64_t work : works) request.add_works(work);
    request.set_report(v1::REPORT_LEVEL_FULL);
    watching->reader = server_.evaluator().Watch(&watching->context, request);
    return watching;
  }
  // Doubles tensor 1 into `work`, as work `work`, at the timeline's value.
  void Park(uint64_t work, uint64_t at) {
    v1::EvaluateRequest request = Double(1, work);
    request.set_work(work);
    After(1, at, &request);
    const EvaluateAnswer answer = Evaluate(request);
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  }
  void SetUp() override {
    SpaceCallTest::SetUp();
    CreateTimeline(1);
    ASSERT_FALSE(Put(1, {1}).has_error());
  }
};

TEST_F(WatchStreamTest, ItTellsEachStateInOrderUntilTheEnd) {
  Park(2, 1);
  Park(3, 2);
  const auto watching = Watch({2, 3});
  ASSERT_TRUE(watching->Next());
  EXPECT_EQ(watching->states.size(), 2u) << "at first all of them";
  EXPECT_LT(watching->states[2].back(), v1::WORK_STATE_SCHEDULED);
  ASSERT_FALSE(Signal(1, 1).has_error());
  while (watching->states[2].back() < v1::WORK_STATE_COMPLETED) {
    ASSERT_TRUE(watching->Next());
  }
  EXPECT_LT(watching->states[3].back(), v1::WORK_STATE_SCHEDULED);
  EXPECT_TRUE(watching->last[2].has_report());
  EXPECT_TRUE(watching->last[2].report().has_details());
  ASSERT_FALSE(Signal(1, 2).has_error());
  const grpc::Status status = watching->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  for (const auto& [work, states] : watching->states) {
    EXPECT_TRUE(std::is_sorted(states.begin(), states.end()));
    EXPECT_EQ(std::adjacent_find(states.begin(), states.end()), states.end());
    EXPECT_EQ(states.back(), v1::WORK_STATE_COMPLETED);
  }
}

TEST_F(WatchStreamTest, OfWorksThatAreDoneItTellsOnce) {
  Park(2, 1);
  ASSERT_FALSE(Signal(1, 1).has_error());
  v1::Command wait;
  wait.mutable_wait()->add_works(2);
  Succeed(wait);
  const auto watching = Watch({2});
  EXPECT_TRUE(watching->Finish().ok());
  EXPECT_EQ(watching->messages, 1u);
  EXPECT_EQ(watching->states[2],
            std::vector<v1::WorkState>{v1::WORK_STATE_COMPLETED});
}

TEST_F(WatchStreamTest, AFailedWorkIsNews) {
  Park(2, 1);
  const auto watching = Watch({2});
  ASSERT_TRUE(watching->Next());
  v1::Command cancel;
  cancel.mutable_cancel()->set_work(2);
  Succeed(cancel);
  EXPECT_TRUE(watching->Finish().ok());
  EXPECT_EQ(watching->states[2].back(), v1::WORK_STATE_ERROR);
  EXPECT_EQ(watching->last[2].failure().code(),
            static_cast<int>(grpc::CANCELLED));
}

// More than a message has.
TEST_F(WatchStreamTest, ManyWorksAreToldInSeveralMessages) {
  std::vector<uint64_t> works;
  for (uint64_t work = 2; work < 202; ++work) {
    Park(work, 1);
    works.push_back(work);
  }
  const auto watching = Watch(works);
  while (watching->states.size() < works.size()) ASSERT_TRUE(watching->Next());
  EXPECT_GE(watching->messages, 4u);
  ASSERT_FALSE(Signal(1, 1).has_error());
  EXPECT_TRUE(watching->Finish().ok());
  for (const uint64_t work : works) {
    EXPECT_EQ(watching->states[work].back(), v1::WORK_STATE_COMPLETED);
  }
}

TEST_F(WatchStreamTest, WhatIsNoWorkIsRefused) {
  Park(2, 1);
  grpc::Status status = Watch({})->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Field(FromGrpcStatus(status)), "works");
  status = Watch(std::vector<uint64_t>(1025, 2))->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  status = Watch({2, 9})->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Reason(FromGrpcStatus(status)), "WORK_NOT_FOUND");
  EXPECT_EQ(Field(FromGrpcStatus(status)), "works[1]");
}

// A work that nobody watches any more goes on; a space that ends ends them all.
TEST_F(WatchStreamTest, ACallerMayLeaveAndASpaceMayEnd) {
  Park(2, 1);
  {
    const auto leaving = Watch({2, 2});
    ASSERT_TRUE(leaving->Next());
    leaving->context.TryCancel();
    EXPECT_EQ(leaving->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_TRUE(Eventually([&] { return Describe().held().waits() == 0; }));
  const auto watching = Watch({2});
  ASSERT_TRUE(watching->Next());
  Close();
  EXPECT_TRUE(watching->Finish().ok());
  EXPECT_EQ(watching->states[2].back(), v1::WORK_STATE_ERROR);
}

}  // namespace
}  // namespace weir::testing
