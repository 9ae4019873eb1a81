// Streams that a space has acquired, over the wire: who may have one, which
// works run there and in which order, and when it goes back.
#include <gmock/gmock.h>

#include <future>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/error_info.h"
#include "proto/weir/v1/evaluator.pb.h"
#include "tests/server/lane_hold.h"
#include "tests/server/server_fixture.h"
#include "tests/services/space_call_fixture.h"

namespace weir::testing {
namespace {

using ::testing::HasSubstr;

// There before the server is.
struct WithHold {
  LaneHold hold_;
};

class StreamCommandTest : protected WithHold, public SpaceCallTest {
 protected:
  explicit StreamCommandTest(int streams = 8)
      : SpaceCallTest([this, streams](ServerOptions& options) {
          options.streams = streams;
          options.space_streams = 3;
          hold_.AddTo(options);
        }) {}
  ~StreamCommandTest() override { hold_.Open(); }

  static v1::Command AcquireCommand(uint64_t stream) {
    v1::Command command;
    command.mutable_stream_acquire()->set_stream(stream);
    return command;
  }
  v1::StreamInfo Acquire(uint64_t stream) {
    const v1::CommandResult result = RunOne(AcquireCommand(stream));
    EXPECT_FALSE(result.has_error()) << result.error().message();
    return result.stream_acquire().stream();
  }
  v1::CommandResult Release(uint64_t stream) {
    v1::Command command;
    command.mutable_stream_release()->set_stream(stream);
    return RunOne(command);
  }
  v1::CommandResult Reserve(uint64_t stream, uint64_t slot,
                            int64_t timeout_ns = 0) {
    v1::Command command;
    command.mutable_stream_reserve()->set_stream(stream);
    command.mutable_stream_reserve()->set_slot(slot);
    command.mutable_stream_reserve()->set_timeout_ns(timeout_ns);
    return RunOne(command);
  }

  // Doubles tensor 1 on that stream, in a context of its own unless one is set.
  static v1::EvaluateRequest On(uint64_t stream, uint64_t to,
                                uint64_t work = 0) {
    v1::EvaluateRequest request = Double(1, to);
    request.set_work(work);
    request.set_report(v1::REPORT_LEVEL_FULL);
    request.mutable_stream_policy()->set_kind(v1::StreamPolicy::KIND_NAMED);
    request.mutable_stream_policy()->set_stream(stream);
    return request;
  }
  static void After(v1::EvaluateRequest* request, uint64_t timeline) {
    request->add_after()->set_timeline(timeline);
    request->mutable_after(0)->set_value(1);
  }
  void Accepted(const v1::EvaluateRequest& request) {
    const EvaluateAnswer answer = Evaluate(request);
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  }
  void Await(uint64_t work) {
    v1::Command command;
    command.mutable_wait()->add_works(work);
    const v1::CommandResult result = RunOne(command);
    EXPECT_FALSE(result.has_error()) << result.error().message();
  }
  v1::SyncReport ReportOf(uint64_t work) {
    v1::Command command;
    command.mutable_query()->set_work(work);
    command.mutable_query()->set_report(v1::REPORT_LEVEL_FULL);
    return RunOne(command).query().report();
  }
  uint64_t StreamsHeld() { return Describe().held().streams(); }
};

class FewStreamsTest : public StreamCommandTest {
 protected:
  FewStreamsTest() : StreamCommandTest(/*streams=*/2) {}
};

TEST_F(StreamCommandTest, AskingAgainAnswersTheSame) {
  const v1::StreamInfo info = Acquire(5);
  EXPECT_GT(info.id(), 0u);
  EXPECT_EQ(info.pool(), TestDevice() + "/priority 0");
  EXPECT_EQ(info.priority(), 0);
  EXPECT_FALSE(info.device_uuid().empty());
  EXPECT_EQ(Acquire(5).id(), info.id());
  EXPECT_NE(Acquire(6).id(), info.id());
  EXPECT_EQ(StreamsHeld(), 2u);
  for (const int setting : {0, 1}) {
    v1::Command other = AcquireCommand(5);
    if (setting == 0) other.mutable_stream_acquire()->set_max_in_flight(3);
    if (setting == 1) {
      other.mutable_stream_acquire()->set_when_full(
          v1::StreamAcquire::WHEN_FULL_REFUSE);
    }
    const v1::Failure error = RunOne(other).error();
    EXPECT_EQ(error.code(), static_cast<int>(grpc::ALREADY_EXISTS));
    EXPECT_EQ(ReasonOf(error), "NUMBER_IN_USE");
    EXPECT_EQ(error.field(), "stream");
  }
}

TEST_F(StreamCommandTest, WorksRunInTheOrderOfAcceptance) {
  CreateTimeline(1);
  CreateContext(1);
  CreateContext(2);
  ASSERT_FALSE(Put(1, {1}).has_error());
  const v1::StreamInfo info = Acquire(5);
  v1::EvaluateRequest first = On(5, 2, 1);
  first.set_context(1);
  After(&first, 1);
  Accepted(first);
  v1::EvaluateRequest second = On(5, 3, 2);
  second.set_context(2);
  Accepted(second);
  v1::EvaluateRequest pooled = Double(1, 4);
  pooled.set_mode(v1::EVAL_MODE_SYNC_FULL);
  Accepted(pooled);
  EXPECT_LT(Query(2).state(), v1::WORK_STATE_SCHEDULED);
  ASSERT_FALSE(Signal(1, 1).has_error());
  Await(2);
  EXPECT_EQ(Query(1).state(), v1::WORK_STATE_COMPLETED);
  const v1::SyncReport report = ReportOf(2);
  EXPECT_EQ(report.stream_id(), info.id());
  EXPECT_EQ(report.stream_sequence(), ReportOf(1).stream_sequence() + 1);
  EXPECT_EQ(report.details().stream().pool(), info.pool());
  EXPECT_EQ(report.details().stream().lease_generation(),
            info.lease_generation());
}

TEST_F(StreamCommandTest, AContextMayHaveAStreamForItsWorks) {
  ASSERT_FALSE(Put(1, {1}).has_error());
  const v1::StreamInfo info = Acquire(5);
  v1::Command create;
  create.mutable_context_create()->set_context(1);
  v1::StreamPolicy* const policy =
      create.mutable_context_create()->mutable_stream_policy();
  policy->set_kind(v1::StreamPolicy::KIND_NAMED);
  policy->set_stream(6);
  EXPECT_EQ(ReasonOf(RunOne(create).error()), "STREAM_NOT_FOUND");
  policy->set_stream(5);
  ASSERT_FALSE(RunOne(create).has_error());
  v1::EvaluateRequest request = Double(1, 2);
  request.set_context(1);
  request.set_mode(v1::EVAL_MODE_SYNC_FULL);
  EvaluateAnswer answer = Evaluate(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.response.report().stream_id(), info.id());
  // What a request says for itself is for it alone.
  request.mutable_outputs(0)->set_tensor(3);
  request.mutable_stream_policy()->set_kind(v1::StreamPolicy::KIND_POOLED);
  answer = Evaluate(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_NE(answer.response.report().stream_id(), info.id());
  // A number is looked for when a work comes.
  ASSERT_FALSE(Release(5).has_error());
  request.clear_stream_policy();
  request.mutable_outputs(0)->set_tensor(4);
  answer = Evaluate(request);
  EXPECT_TRUE(Refused(answer.status, grpc::NOT_FOUND, "no stream 5"));
  EXPECT_EQ(Reason(FromGrpcStatus(answer.status)), "STREAM_NOT_FOUND");
  EXPECT_EQ(Field(FromGrpcStatus(answer.status)), "context");
}

TEST_F(StreamCommandTest, AReleasedStreamGoesBackWhenItsWorksAreDone) {
  CreateTimeline(1);
  ASSERT_FALSE(Put(1, {1}).has_error());
  Acquire(5);
  v1::EvaluateRequest request = On(5, 2, 1);
  After(&request, 1);
  Accepted(request);
  ASSERT_FALSE(Release(5).has_error());
  EXPECT_EQ(StreamsHeld(), 1u);
  const v1::Failure error = Release(5).error();
  EXPECT_EQ(error.code(), static_cast<int>(grpc::NOT_FOUND));
  EXPECT_EQ(ReasonOf(error), "STREAM_NOT_FOUND");
  ASSERT_FALSE(Signal(1, 1).has_error());
  Await(1);
  EXPECT_TRUE(Eventually([&] { return StreamsHeld() == 0; }));
  EXPECT_TRUE(Eventually([&] {
    return server_.DeviceMetric("weir_stream_pool_lanes", "state=\"leased\"") ==
           0;
  }));
}

TEST_F(StreamCommandTest, ASpaceThatEndsGivesItsStreamsBack) {
  CreateTimeline(1);
  ASSERT_FALSE(Put(1, {1}).has_error());
  Acquire(5);
  Acquire(6);
  ASSERT_FALSE(Reserve(6, 1).has_error());
  v1::EvaluateRequest request = On(5, 2);
  After(&request, 1);
  Accepted(request);
  Close();
  EXPECT_TRUE(Eventually([&] {
    return server_.DeviceMetric("weir_stream_pool_lanes", "state=\"leased\"") ==
           0;
  }));
}

TEST_F(StreamCommandTest, StreamsAreFew) {
  for (uint64_t stream = 1; stream <= 3; ++stream) Acquire(stream);
  v1::Failure error = RunOne(AcquireCommand(4)).error();
  EXPECT_EQ(error.code(), static_cast<int>(grpc::RESOURCE_EXHAUSTED));
  EXPECT_EQ(ReasonOf(error), "SPACE_QUOTA");
  EXPECT_GT(error.retry_after_ns(), 0);
  // Half of the pool's, whoever has them.
  token_ = Open();
  Acquire(1);
  error = RunOne(AcquireCommand(2)).error();
  EXPECT_EQ(ReasonOf(error), "STREAM_POOL_EXHAUSTED");
  EXPECT_THAT(error.message(), HasSubstr("4 may be acquired"));
  ASSERT_FALSE(Release(1).has_error());
  Acquire(2);
}

TEST_F(FewStreamsTest, AStreamIsWaitedForAsLongAsIsAsked) {
  HeldEvaluate one(server_, hold_);
  HeldEvaluate other(server_, hold_, hold_.Request(1));
  ASSERT_TRUE(Eventually([&] { return server_.Leases() == 2; }));
  v1::Command acquire = AcquireCommand(5);
  v1::Failure error = RunOne(acquire).error();
  EXPECT_EQ(ReasonOf(error), "STREAM_POOL_EXHAUSTED");
  EXPECT_THAT(error.message(), HasSubstr("set timeout_ns"));
  acquire.mutable_stream_acquire()->set_timeout_ns(1);
  EXPECT_EQ(RunOne(acquire).error().code(),
            static_cast<int>(grpc::DEADLINE_EXCEEDED));
  acquire.mutable_stream_acquire()->set_timeout_ns(60'000'000'000);
  auto acquired =
      std::async(std::launch::async, [&] { return RunOne(acquire); });
  EXPECT_TRUE(Eventually(
      [&] { return server_.DeviceMetric("weir_stream_pool_waiting") == 1; }));
  EXPECT_EQ(Describe().held().waits(), 1u);
  one.Release();
  const v1::CommandResult result = acquired.get();
  EXPECT_FALSE(result.has_error()) << result.error().message();
  EXPECT_GT(result.stream_acquire().stream().id(), 0u);
}

TEST_F(StreamCommandTest, AFullStreamMayRefuse) {
  CreateTimeline(1);
  ASSERT_FALSE(Put(1, {1}).has_error());
  v1::Command acquire = AcquireCommand(5);
  acquire.mutable_stream_acquire()->set_max_in_flight(1);
  acquire.mutable_stream_acquire()->set_when_full(
      v1::StreamAcquire::WHEN_FULL_REFUSE);
  ASSERT_FALSE(RunOne(acquire).has_error());
  v1::EvaluateRequest request = On(5, 2, 1);
  After(&request, 1);
  Accepted(request);
  EvaluateAnswer answer = Evaluate(On(5, 3, 2));
  EXPECT_TRUE(
      Refused(answer.status, grpc::RESOURCE_EXHAUSTED, "1 of at most 1 works"));
  EXPECT_EQ(Reason(FromGrpcStatus(answer.status)), "STREAM_FULL");
  ASSERT_FALSE(Signal(1, 1).has_error());
  Await(1);
  // Its numbers stood for nothing.
  Accepted(On(5, 3, 2));
  Await(2);
}

TEST_F(StreamCommandTest, AJoinTellsOfEachEdge) {
  CreateTimeline(1);
  ASSERT_FALSE(Put(1, {1}).has_error());
  for (uint64_t stream = 5; stream <= 7; ++stream) Acquire(stream);
  v1::EvaluateRequest first = On(5, 2, 1);
  After(&first, 1);
  Accepted(first);
  v1::Command join;
  join.mutable_stream_join()->set_stream(6);
  for (const uint64_t source : {5u, 6u, 7u, 8u}) {
    join.mutable_stream_join()->add_sources(source);
  }
  const v1::CommandResult result = RunOne(join);
  ASSERT_FALSE(result.has_error()) << result.error().message();
  const auto& edges = result.stream_join().edges();
  ASSERT_EQ(edges.size(), 4);
  EXPECT_EQ(edges[0].source(), 5u);
  EXPECT_TRUE(edges[0].kind() == v1::InsertedWait::KIND_HOST_SIDE ||
              edges[0].kind() == v1::InsertedWait::KIND_DEVICE_SIDE);
  EXPECT_EQ(edges[1].kind(), v1::InsertedWait::KIND_ALREADY_REACHED);
  EXPECT_EQ(edges[2].kind(), v1::InsertedWait::KIND_ALREADY_REACHED);
  EXPECT_EQ(ReasonOf(edges[3].failure()), "STREAM_NOT_FOUND");
  Accepted(On(6, 3, 2));
  Accepted(On(7, 4, 3));
  Await(3);
  EXPECT_LT(Query(2).state(), v1::WORK_STATE_SCHEDULED);
  ASSERT_FALSE(Signal(1, 1).has_error());
  Await(2);
  EXPECT_EQ(Query(1).state(), v1::WORK_STATE_COMPLETED);

  join.mutable_stream_join()->set_stream(8);
  EXPECT_EQ(ReasonOf(RunOne(join).error()), "STREAM_NOT_FOUND");
  join.mutable_stream_join()->set_stream(6);
  for (int i = 0; i < 61; ++i) join.mutable_stream_join()->add_sources(5);
  EXPECT_EQ(RunOne(join).error().code(),
            static_cast<int>(grpc::INVALID_ARGUMENT));
}

TEST_F(StreamCommandTest, ASlotHasItsPlaceBeforeItsWorkIsThere) {
  ASSERT_FALSE(Put(1, {1}).has_error());
  Acquire(5);
  ASSERT_FALSE(Reserve(5, 1).has_error());
  Accepted(On(5, 2, 1));
  EXPECT_LT(Query(1).state(), v1::WORK_STATE_SCHEDULED);
  v1::EvaluateRequest filling = On(5, 3, 2);
  filling.mutable_stream_policy()->set_slot(1);
  Accepted(filling);
  Await(1);
  EXPECT_EQ(ReportOf(1).stream_sequence(), ReportOf(2).stream_sequence() + 1);
  // Once.
  filling.set_work(3);
  filling.mutable_outputs(0)->set_tensor(4);
  EvaluateAnswer answer = Evaluate(filling);
  EXPECT_TRUE(
      Refused(answer.status, grpc::FAILED_PRECONDITION, "has its work"));
  EXPECT_EQ(Reason(FromGrpcStatus(answer.status)), "SLOT_FILLED");
  EXPECT_EQ(Field(FromGrpcStatus(answer.status)), "stream_policy.slot");
  filling.mutable_stream_policy()->set_slot(9);
  EXPECT_EQ(Reason(FromGrpcStatus(Evaluate(filling).status)), "SLOT_NOT_FOUND");
}

TEST_F(StreamCommandTest, AnUnusedSlotExpiresAndLetsOthersGo) {
  ASSERT_FALSE(Put(1, {1}).has_error());
  Acquire(5);
  ASSERT_FALSE(Reserve(5, 1, /*timeout_ns=*/1).has_error());
  Accepted(On(5, 2, 1));
  Await(1);
  v1::EvaluateRequest late = On(5, 3);
  late.mutable_stream_policy()->set_slot(1);
  const EvaluateAnswer answer = Evaluate(late);
  EXPECT_TRUE(Refused(answer.status, grpc::FAILED_PRECONDITION, "in time"));
  EXPECT_EQ(Reason(FromGrpcStatus(answer.status)), "SLOT_EXPIRED");
  // Its number may be used again.
  ASSERT_FALSE(Reserve(5, 1).has_error());
  Accepted(late);
}

TEST_F(StreamCommandTest, ReservationsAreBounded) {
  v1::Command acquire = AcquireCommand(5);
  acquire.mutable_stream_acquire()->set_max_in_flight(2);
  ASSERT_FALSE(RunOne(acquire).has_error());
  ASSERT_FALSE(Reserve(5, 1).has_error());
  EXPECT_EQ(ReasonOf(Reserve(5, 1).error()), "NUMBER_IN_USE");
  ASSERT_FALSE(Reserve(5, 2).has_error());
  EXPECT_EQ(ReasonOf(Reserve(5, 3).error()), "STREAM_FULL");
  EXPECT_EQ(ReasonOf(Reserve(6, 1).error()), "STREAM_NOT_FOUND");
}

TEST_F(StreamCommandTest, WhatSaysTooMuchOrNothingIsRefused) {
  Acquire(5);
  ASSERT_FALSE(Put(1, {1}).has_error());
  for (const auto& [field, change] :
       std::vector<std::pair<std::string, void (*)(v1::StreamAcquire*)>>{
           {"stream", [](auto* r) { r->set_stream(0); }},
           {"device", [](auto* r) { r->set_device("gpu:7"); }},
           {"priority", [](auto* r) { r->set_priority(1); }},
           {"max_in_flight", [](auto* r) { r->set_max_in_flight(65); }},
           {"when_full",
            [](auto* r) {
              r->set_when_full(static_cast<v1::StreamAcquire::WhenFull>(7));
            }},
           {"timeout_ns", [](auto* r) { r->set_timeout_ns(-1); }}}) {
    v1::Command command = AcquireCommand(8);
    change(command.mutable_stream_acquire());
    EXPECT_EQ(RunOne(command).error().field(), field);
  }
  EXPECT_EQ(Reserve(5, 0).error().field(), "slot");
  EXPECT_EQ(Reserve(5, 1, -1).error().field(), "timeout_ns");
  EXPECT_EQ(Reserve(5, 1, 61'000'000'000).error().field(), "timeout_ns");
  EXPECT_EQ(StreamsHeld(), 1u);

  using Policy = v1::StreamPolicy;
  for (const auto& [field, change] :
       std::vector<std::pair<std::string, void (*)(Policy*)>>{
           {"stream_policy.stream", [](auto* p) { p->set_stream(0); }},
           {"stream_policy.stream", [](auto* p) { p->set_stream(6); }},
           {"stream_policy.priority", [](auto* p) { p->set_priority(-1); }},
           {"stream_policy.stream",
            [](auto* p) { p->set_kind(Policy::KIND_POOLED); }},
           {"stream_policy.slot",
            [](auto* p) {
              p->set_kind(Policy::KIND_SERVER_DEFAULT);
              p->set_stream(0);
              p->set_slot(1);
            }},
           {"stream_policy.priority", [](auto* p) {
              p->set_kind(Policy::KIND_POOLED);
              p->set_stream(0);
              p->set_priority(1);
            }}}) {
    v1::EvaluateRequest request = On(5, 2);
    change(request.mutable_stream_policy());
    EXPECT_EQ(Field(FromGrpcStatus(Evaluate(request).status)), field);
  }
  v1::Command create;
  create.mutable_context_create()->set_context(1);
  *create.mutable_context_create()->mutable_stream_policy() =
      On(5, 2).stream_policy();
  create.mutable_context_create()->mutable_stream_policy()->set_slot(1);
  EXPECT_EQ(RunOne(create).error().field(), "stream_policy.slot");
}

// It needs no space.
TEST_F(StreamCommandTest, AnybodyMayUseTheServersDefaultStream) {
  v1::EvaluateRequest request = Program(R"(
      inputs { name: "x" }
      nodes { op: "Neg" inputs: "x" outputs: "y" }
      outputs: "y")");
  AddInput(&request, "x", v1::DATA_TYPE_FLOAT, {1}, Bytes<float>({1}));
  request.set_report(v1::REPORT_LEVEL_FULL);
  request.mutable_stream_policy()->set_kind(
      v1::StreamPolicy::KIND_SERVER_DEFAULT);
  std::optional<uint64_t> stream;
  for (int i = 0; i < 2; ++i) {
    const EvaluateAnswer answer = Evaluate(request);
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    const v1::StreamInfo& info = answer.response.report().details().stream();
    EXPECT_EQ(info.pool(), TestDevice() + "/default, priority 0");
    EXPECT_EQ(stream.value_or(info.id()), info.id());
    stream = info.id();
  }
  request.mutable_stream_policy()->set_kind(v1::StreamPolicy::KIND_POOLED);
  const EvaluateAnswer answer = Evaluate(request);
  EXPECT_NE(answer.response.report().stream_id(), *stream);
}

}  // namespace
}  // namespace weir::testing
