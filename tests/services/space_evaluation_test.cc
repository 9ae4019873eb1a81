// Evaluations and commands in a space, over the wire: what is kept, what waits
// for what, what is refused, and what ends with the space.
#include <gmock/gmock.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/error_info.h"
#include "proto/weir/v1/evaluator.pb.h"
#include "proto/weir/v1/spaces.grpc.pb.h"
#include "tests/server/server_fixture.h"
#include "tests/services/space_call_fixture.h"

namespace weir::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using SpaceEvaluationTest = SpaceCallTest;

TEST_F(SpaceEvaluationTest, KeepsWhatItMakes) {
  ASSERT_FALSE(Put(7, {1, 2, 3}).has_error());
  v1::EvaluateRequest request = Double(7, 8);
  request.set_mode(v1::EVAL_MODE_SYNC_FULL);
  const EvaluateAnswer answer = Evaluate(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.response.outputs_size(), 1);
  const v1::TensorValue& value = answer.response.outputs(0).value();
  EXPECT_EQ(value.tensor(), 8u);
  EXPECT_EQ(value.spec().dtype(), v1::DATA_TYPE_FLOAT);
  EXPECT_THAT(value.spec().shape(), ElementsAre(3));
  EXPECT_EQ(answer.response.report().state(), v1::WORK_STATE_COMPLETED);
  EXPECT_EQ(answer.response.report().inline_reads(), 0u);
  EXPECT_EQ(Read(8), (std::vector<float>{2, 4, 6}));
  EXPECT_EQ(Read(7), (std::vector<float>{1, 2, 3}));
}

// EAGER returns before anything has run: the whole chain waits for a point that
// nobody has reached, and whoever reads its end waits for all of it.
TEST_F(SpaceEvaluationTest, AChainIsAcceptedBeforeItRuns) {
  CreateTimeline(1);
  ASSERT_FALSE(Put(1, {1}).has_error());
  v1::EvaluateRequest first = Double(1, 2);
  first.set_work(100);
  v1::Point* const after = first.add_after();
  after->set_timeline(1);
  after->set_value(5);
  EvaluateAnswer answer = Evaluate(first);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.response.work(), 100u);
  EXPECT_LT(answer.response.report().state(), v1::WORK_STATE_SCHEDULED);
  for (uint64_t tensor = 2; tensor < 8; ++tensor) {
    answer = Evaluate(Double(tensor, tensor + 1));
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_LT(answer.response.report().state(), v1::WORK_STATE_SCHEDULED);
  }
  EXPECT_LT(Query(100).state(), v1::WORK_STATE_SCHEDULED);
  EXPECT_EQ(Describe().held().works(), 7u);
  ASSERT_FALSE(Signal(1, 5).has_error());
  EXPECT_EQ(Read(8), (std::vector<float>{128}));
  v1::Command wait;
  wait.mutable_wait()->add_works(100);
  EXPECT_FALSE(RunOne(wait).has_error());
  EXPECT_EQ(Query(100).state(), v1::WORK_STATE_COMPLETED);
}

TEST_F(SpaceEvaluationTest, AWorkMovesTimelines) {
  CreateTimeline(1);
  ASSERT_FALSE(Put(1, {1}).has_error());
  v1::EvaluateRequest request = Double(1, 2);
  request.add_signal()->set_timeline(1);
  request.mutable_signal(0)->set_value(3);
  v1::RunRequest run;
  *run.add_commands()->mutable_evaluate() = request;
  v1::Wait* const wait = run.add_commands()->mutable_wait();
  wait->add_points()->set_timeline(1);
  wait->mutable_points(0)->set_value(3);
  run.add_commands()->mutable_timeline_delete()->set_timeline(1);
  const v1::RunResponse response = Run(run);
  for (const v1::CommandResult& result : response.results()) {
    EXPECT_FALSE(result.has_error()) << result.error().message();
  }
  EXPECT_EQ(response.results(2).timeline_delete().value(), 3u);
}

// Works of one context run in their order; those of different ones do not wait
// for each other.
TEST_F(SpaceEvaluationTest, AContextHasAnOrder) {
  CreateContext(1);
  CreateContext(2);
  CreateTimeline(1);
  ASSERT_FALSE(Put(1, {1}).has_error());
  v1::EvaluateRequest request = Double(1, 2);
  request.set_context(1);
  request.add_after()->set_timeline(1);
  request.mutable_after(0)->set_value(1);
  ASSERT_TRUE(Evaluate(request).status.ok());
  request = Double(1, 3);
  request.set_context(1);
  request.set_work(1);
  ASSERT_TRUE(Evaluate(request).status.ok());
  request = Double(1, 4);
  request.set_context(2);
  request.set_mode(v1::EVAL_MODE_SYNC_FULL);
  ASSERT_TRUE(Evaluate(request).status.ok());
  EXPECT_LT(Query(1).state(), v1::WORK_STATE_SCHEDULED);
  ASSERT_FALSE(Signal(1, 1).has_error());
  EXPECT_EQ(Read(3), (std::vector<float>{2}));
}

TEST_F(SpaceEvaluationTest, AContextSaysWhatItsWorksDoNot) {
  CreateContext(1, v1::EVAL_MODE_SYNC_FULL);
  ASSERT_FALSE(Put(1, {1}).has_error());
  v1::EvaluateRequest request = Double(1, 2);
  request.set_context(1);
  request.set_report_settings(true);
  const EvaluateAnswer answer = Evaluate(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.response.settings().mode(), v1::EVAL_MODE_SYNC_FULL);
  EXPECT_EQ(answer.response.report().state(), v1::WORK_STATE_COMPLETED);
}

// Another call is refused while one is in the context, or waits for its turn.
TEST_F(SpaceEvaluationTest, AContextHasOneHandler) {
  CreateContext(1);
  CreateTimeline(1);
  ASSERT_FALSE(Put(1, {1}).has_error());
  v1::EvaluateRequest holds = Double(1, 2);
  holds.mutable_outputs(0)->clear_tensor();  // inline: it waits for its end
  holds.set_context(1);
  holds.set_work(9);
  holds.add_after()->set_timeline(1);
  holds.mutable_after(0)->set_value(1);
  grpc::ClientContext holding;
  Enter(&holding);
  EvaluateAnswer held;
  std::thread call([&] {
    held.status = server_.evaluator().Evaluate(&holding, holds, &held.response);
  });
  ASSERT_TRUE(Eventually([&] {
    v1::Command command;
    command.mutable_query()->set_work(9);
    return !RunOne(command).has_error();
  }));
  v1::EvaluateRequest other = Double(1, 3);
  other.set_context(1);
  EvaluateAnswer refused = Evaluate(other);
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(Reason(FromGrpcStatus(refused.status)), "CONTEXT_BUSY");
  v1::Command close;
  close.mutable_context_close()->set_context(1);
  EXPECT_EQ(ReasonOf(RunOne(close).error()), "CONTEXT_BUSY");

  other.set_on_conflict(v1::CONTEXT_CONFLICT_QUEUE);
  other.set_mode(v1::EVAL_MODE_SYNC_FULL);
  EvaluateAnswer queued;
  std::thread waits([&] { queued = Evaluate(other); });
  ASSERT_FALSE(Signal(1, 1).has_error());
  call.join();
  waits.join();
  EXPECT_TRUE(held.status.ok()) << held.status.error_message();
  EXPECT_TRUE(queued.status.ok()) << queued.status.error_message();
  EXPECT_FALSE(RunOne(close).has_error());
}

// Whoever reads what was to be made by a work that failed inherits that, at any
// distance; the numbers are free for another try.
TEST_F(SpaceEvaluationTest, AFailureReachesWhoeverReadsItsResults) {
  ASSERT_FALSE(Put(1, {1, 2, 3}).has_error());
  v1::EvaluateRequest gather = Program(R"(
      inputs { name: "x" }
      inputs { name: "i" spec { dtype: DATA_TYPE_INT64 shape: -1 } }
      nodes { name: "pick" op: "Gather" inputs: "x" inputs: "i" outputs: "y" }
      outputs: "y")");
  gather.add_inputs()->set_name("x");
  gather.mutable_inputs(0)->mutable_value()->set_tensor(1);
  AddInput(&gather, "i", v1::DATA_TYPE_INT64, {1}, Bytes<int64_t>({9}));
  gather.add_outputs()->set_name("y");
  gather.mutable_outputs(0)->set_tensor(2);
  gather.set_work(5);
  CreateTimeline(1);
  gather.add_after()->set_timeline(1);
  gather.mutable_after(0)->set_value(1);
  ASSERT_TRUE(Evaluate(gather).status.ok());
  ASSERT_TRUE(Evaluate(Double(2, 3)).status.ok());
  ASSERT_TRUE(Evaluate(Double(3, 4)).status.ok());
  ASSERT_FALSE(Signal(1, 1).has_error());
  const v1::CommandResult result = Get(4);
  ASSERT_TRUE(result.has_error());
  EXPECT_THAT(result.error().message(), HasSubstr("pick"));
  v1::Command wait;
  wait.mutable_wait()->add_works(5);
  EXPECT_THAT(RunOne(wait).error().message(), HasSubstr("pick"));
  EXPECT_EQ(Query(5).state(), v1::WORK_STATE_ERROR);
  EXPECT_THAT(Query(5).failure().message(), HasSubstr("pick"));
  EXPECT_EQ(Query(5).report().details().device_error().name(),
            "INDEX_OUT_OF_RANGE");
  wait.mutable_wait()->clear_works();
  wait.mutable_wait()->add_tensors(4);
  EXPECT_TRUE(RunOne(wait).has_error());
  v1::Command describe;
  describe.mutable_tensor_describe()->set_tensor(4);
  EXPECT_TRUE(RunOne(describe).tensor_describe().has_failure());
  ASSERT_FALSE(Put(4, {5}).has_error());
  EXPECT_EQ(Read(4), (std::vector<float>{5}));
}

TEST_F(SpaceEvaluationTest, NumbersStandForOneThing) {
  ASSERT_FALSE(Put(1, {1}).has_error());
  EXPECT_EQ(ReasonOf(Put(1, {2}).error()), "NUMBER_IN_USE");
  EXPECT_EQ(Read(1), (std::vector<float>{1}));
  EXPECT_EQ(Put(0, {2}).error().code(),
            static_cast<int>(grpc::INVALID_ARGUMENT));
  v1::EvaluateRequest request = Double(1, 2);
  request.set_work(3);
  ASSERT_TRUE(Evaluate(request).status.ok());
  request.mutable_outputs(0)->set_tensor(4);
  const EvaluateAnswer again = Evaluate(request);
  EXPECT_EQ(again.status.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  // What was not accepted has taken no number.
  const v1::CommandResult none = Get(4);
  EXPECT_EQ(ReasonOf(none.error()), "TENSOR_NOT_FOUND");
}

TEST_F(SpaceEvaluationTest, FreedNumbersAreGone) {
  ASSERT_FALSE(Put(1, std::vector<float>(1024, 1)).has_error());
  EXPECT_EQ(Describe().held().tensor_bytes(), 4096u);
  EXPECT_EQ(Describe().held().tensors(), 1u);
  v1::Command free;
  free.mutable_tensor_free()->set_tensor(1);
  EXPECT_FALSE(RunOne(free).has_error());
  EXPECT_EQ(ReasonOf(RunOne(free).error()), "TENSOR_NOT_FOUND");
  const EvaluateAnswer gone = Evaluate(Double(1, 2));
  EXPECT_EQ(gone.status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Field(FromGrpcStatus(gone.status)), "inputs[0].value.tensor");
  EXPECT_EQ(Describe().held().tensor_bytes(), 0u);
  EXPECT_EQ(Describe().held().tensors(), 0u);
}

TEST_F(SpaceEvaluationTest, AQuotaHolds) {
  v1::OpenSpaceRequest small;
  small.mutable_quota()->set_tensor_bytes(100);
  token_ = Open(small);
  ASSERT_FALSE(Put(1, std::vector<float>(20, 1)).has_error());
  EXPECT_EQ(ReasonOf(Put(2, std::vector<float>(20, 1)).error()), "SPACE_QUOTA");
  v1::Command free;
  free.mutable_tensor_free()->set_tensor(1);
  ASSERT_FALSE(RunOne(free).has_error());
  EXPECT_FALSE(Put(2, std::vector<float>(20, 1)).has_error());
}

// Works that wait do so with their inputs in memory that others need, too.
TEST_F(SpaceEvaluationTest, InputsOfWorksThatWaitAreBounded) {
  v1::OpenSpaceRequest small;
  small.mutable_quota()->set_input_bytes(6000);
  token_ = Open(small);
  CreateTimeline(1);
  v1::EvaluateRequest request = IdentityRequest();
  request.set_mode(v1::EVAL_MODE_EAGER);
  request.clear_inputs();
  AddInput(&request, "x", v1::DATA_TYPE_FLOAT, {4}, Bytes<float>({1, 2, 3, 4}));
  request.add_outputs()->set_name("y");
  request.add_after()->set_timeline(1);
  request.mutable_after(0)->set_value(1);
  for (uint64_t tensor = 1; tensor <= 6; ++tensor) {
    request.mutable_outputs(0)->set_tensor(tensor);
    const EvaluateAnswer answer = Evaluate(request);
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  }
  request.mutable_outputs(0)->set_tensor(7);
  EXPECT_EQ(Reason(FromGrpcStatus(Evaluate(request).status)), "SPACE_QUOTA");
  // Its bytes, and what is kept of an input and of a moment beside them.
  EXPECT_EQ(Describe().held().input_bytes(), 6u * (16 + 384 + 512));
  ASSERT_FALSE(Signal(1, 1).has_error());
  EXPECT_EQ(Read(6), (std::vector<float>{1, 2, 3, 4}));
  v1::Command wait;
  for (uint64_t tensor = 1; tensor <= 6; ++tensor) {
    wait.mutable_wait()->add_tensors(tensor);
  }
  ASSERT_FALSE(RunOne(wait).has_error());
  EXPECT_TRUE(Evaluate(request).status.ok());
}

// A work that waits to read one output of another holds the memory of all.
TEST_F(SpaceEvaluationTest, WhatAReaderKeepsInMemoryCounts) {
  CreateTimeline(1);
  v1::EvaluateRequest two = Program(R"(
      inputs { name: "x" }
      nodes { op: "Add" inputs: "x" inputs: "x" outputs: "y" }
      nodes { op: "Mul" inputs: "x" inputs: "x" outputs: "z" }
      outputs: "y" outputs: "z")");
  AddInput(&two, "x", v1::DATA_TYPE_FLOAT, {1}, Bytes<float>({3}));
  two.add_outputs()->set_name("y");
  two.mutable_outputs(0)->set_tensor(1);
  two.add_outputs()->set_name("z");
  two.mutable_outputs(1)->set_tensor(2);
  two.add_after()->set_timeline(1);
  two.mutable_after(0)->set_value(1);
  ASSERT_TRUE(Evaluate(two).status.ok());
  v1::EvaluateRequest reader = Double(1, 3);
  reader.add_after()->set_timeline(1);
  reader.mutable_after(0)->set_value(2);
  ASSERT_TRUE(Evaluate(reader).status.ok());
  ASSERT_FALSE(Signal(1, 1).has_error());
  v1::Command wait;
  wait.mutable_wait()->add_tensors(2);
  ASSERT_FALSE(RunOne(wait).has_error());
  v1::Command free;
  free.mutable_tensor_free()->set_tensor(2);
  ASSERT_FALSE(RunOne(free).has_error());
  EXPECT_EQ(Describe().held().tensors(), 3u);
  ASSERT_FALSE(Signal(1, 2).has_error());
  EXPECT_EQ(Read(3), (std::vector<float>{12}));
  EXPECT_TRUE(Eventually([&] { return Describe().held().tensors() == 2; }));
}

TEST_F(SpaceEvaluationTest, CallsThatWaitAreBounded) {
  v1::OpenSpaceRequest small;
  small.mutable_quota()->set_waits(1);
  token_ = Open(small);
  CreateTimeline(1);
  v1::Command wait;
  wait.mutable_wait()->add_points()->set_timeline(1);
  wait.mutable_wait()->mutable_points(0)->set_value(1);
  v1::CommandResult result;
  std::thread call([&] { result = RunOne(wait); });
  ASSERT_TRUE(Eventually([&] { return Describe().held().waits() == 1; }));
  EXPECT_EQ(ReasonOf(RunOne(wait).error()), "SPACE_QUOTA");
  EXPECT_EQ(ReasonOf(Put(1, {1}).error()), "SPACE_QUOTA");
  ASSERT_FALSE(Signal(1, 1).has_error());
  call.join();
  EXPECT_FALSE(result.has_error()) << result.error().message();
  EXPECT_FALSE(Put(1, {1}).has_error());
}

// In whatever mode it is to be answered.
TEST_F(SpaceEvaluationTest, CallsThatWaitForMomentsAreBounded) {
  v1::OpenSpaceRequest small;
  small.mutable_quota()->set_waits(1);
  token_ = Open(small);
  CreateTimeline(1);
  ASSERT_FALSE(Put(1, {1}).has_error());
  v1::EvaluateRequest request = Double(1, 2);
  request.set_mode(v1::EVAL_MODE_SYNC_CPU);
  request.add_after()->set_timeline(1);
  request.mutable_after(0)->set_value(1);
  EvaluateAnswer first;
  std::thread call([&] { first = Evaluate(request); });
  EXPECT_TRUE(Eventually([&] { return Describe().held().waits() == 1; }));
  v1::EvaluateRequest second = request;
  second.mutable_outputs(0)->set_tensor(3);
  second.set_mode(v1::EVAL_MODE_EAGER);
  EXPECT_EQ(Reason(FromGrpcStatus(Evaluate(second).status)), "SPACE_QUOTA");
  EXPECT_FALSE(Signal(1, 1).has_error());
  call.join();
  EXPECT_TRUE(first.status.ok()) << first.status.error_message();
}

// They stay while later commands of their call wait.
TEST_F(SpaceEvaluationTest, ResultsOfARunCountWhileItGoesOn) {
  CreateTimeline(1);
  constexpr size_t kBytes = 60'000;
  ASSERT_FALSE(
      Put(1, std::vector<float>(kBytes / sizeof(float), 1)).has_error());
  v1::RunRequest request;
  for (int i = 0; i < 10; ++i) {
    request.add_commands()->mutable_tensor_get()->set_tensor(1);
  }
  request.add_commands()->mutable_wait()->add_points()->set_timeline(1);
  request.mutable_commands(10)->mutable_wait()->mutable_points(0)->set_value(1);
  std::thread call([&] { Run(request); });
  EXPECT_TRUE(Eventually([&] {
    return server_.Metric("weir_request_bytes_in_flight") >= 10 * kBytes;
  }));
  ASSERT_FALSE(Signal(1, 1).has_error());
  call.join();
}

// Whoever leaves while its work waits ends that.
TEST_F(SpaceEvaluationTest, ACallThatIsCancelledEndsItsWork) {
  CreateTimeline(1);
  ASSERT_FALSE(Put(1, {1}).has_error());
  v1::EvaluateRequest waits = Double(1, 2);
  waits.set_mode(v1::EVAL_MODE_SYNC_FULL);
  waits.set_work(9);
  waits.add_after()->set_timeline(1);
  waits.mutable_after(0)->set_value(1);
  grpc::ClientContext context;
  Enter(&context);
  std::thread call([&] {
    v1::EvaluateResponse response;
    const grpc::Status status =
        server_.evaluator().Evaluate(&context, waits, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  });
  ASSERT_TRUE(Eventually([&] {
    v1::Command command;
    command.mutable_query()->set_work(9);
    return !RunOne(command).has_error();
  }));
  context.TryCancel();
  call.join();
  v1::Command wait;
  wait.mutable_wait()->add_works(9);
  EXPECT_EQ(RunOne(wait).error().code(), static_cast<int>(grpc::CANCELLED));
  EXPECT_EQ(Query(9).state(), v1::WORK_STATE_ERROR);
}

// And whoever leaves a wait, or a line before a context, leaves nothing there.
TEST_F(SpaceEvaluationTest, ACallThatIsCancelledLeavesItsLine) {
  CreateTimeline(1);
  grpc::ClientContext context;
  Enter(&context);
  v1::RunRequest request;
  request.add_commands()->mutable_wait()->add_points()->set_timeline(1);
  request.mutable_commands(0)->mutable_wait()->mutable_points(0)->set_value(1);
  std::thread call([&] {
    v1::RunResponse response;
    EXPECT_EQ(
        server_.evaluator().Run(&context, request, &response).error_code(),
        grpc::StatusCode::CANCELLED);
  });
  ASSERT_TRUE(Eventually([&] { return Describe().held().waits() == 1; }));
  context.TryCancel();
  call.join();
  EXPECT_TRUE(Eventually([&] { return Describe().held().waits() == 0; }));
}

TEST_F(SpaceEvaluationTest, ErrorsNameFieldsOfTheCommand) {
  const v1::CommandResult none = Get(77);
  EXPECT_EQ(none.error().field(), "tensor");
  EXPECT_EQ(none.error().message().rfind("the space has no tensor 77", 0), 0u)
      << none.error().message();
  ASSERT_FALSE(Put(1, {1}).has_error());
  EXPECT_EQ(Put(1, {1}).error().field(), "tensor");
  v1::Command command;
  command.mutable_tensor_put()->set_tensor(2);
  EXPECT_EQ(RunOne(command).error().field(), "value");
  command.mutable_context_create();
  EXPECT_EQ(RunOne(command).error().field(), "context");
  command.mutable_timeline_create();
  EXPECT_EQ(RunOne(command).error().field(), "timeline");
}

TEST_F(SpaceEvaluationTest, SpacesShareNoNumbers) {
  ASSERT_FALSE(Put(1, {1}).has_error());
  const std::string other = Open();
  EXPECT_EQ(EvaluateIn(other, Double(1, 2)).status.error_code(),
            grpc::StatusCode::NOT_FOUND);
  const EvaluateAnswer none = weir::testing::Evaluate(server_, Double(1, 2));
  EXPECT_EQ(none.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(none.status.error_message(), HasSubstr("Spaces.Open"));
}

// Whatever waits in a space that is closed ends with it, its callers too.
TEST_F(SpaceEvaluationTest, AClosedSpaceEndsWhatWaits) {
  CreateTimeline(1);
  ASSERT_FALSE(Put(1, {1}).has_error());
  v1::EvaluateRequest waits = Double(1, 2);
  waits.mutable_outputs(0)->clear_tensor();
  waits.set_work(9);
  waits.add_after()->set_timeline(1);
  waits.mutable_after(0)->set_value(1);
  grpc::ClientContext context;
  Enter(&context);
  EvaluateAnswer answer;
  std::thread call([&] {
    answer.status =
        server_.evaluator().Evaluate(&context, waits, &answer.response);
  });
  ASSERT_TRUE(Eventually([&] {
    v1::Command command;
    command.mutable_query()->set_work(9);
    return !RunOne(command).has_error();
  }));
  Close();
  call.join();
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::CANCELLED);
  const EvaluateAnswer gone = Evaluate(Double(1, 2));
  EXPECT_EQ(gone.status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Reason(FromGrpcStatus(gone.status)), "SPACE_NOT_FOUND");
}

TEST_F(SpaceEvaluationTest, ACommandThatFailsDoesNotStopTheRest) {
  v1::RunRequest request;
  request.add_commands();
  request.add_commands()->mutable_tensor_free()->set_tensor(1);
  request.add_commands()->mutable_timeline_create()->set_timeline(1);
  request.add_commands()->mutable_timeline_signal()->set_timeline(1);
  const v1::RunResponse response = Run(request);
  EXPECT_EQ(response.results(0).error().code(),
            static_cast<int>(grpc::INVALID_ARGUMENT));
  EXPECT_EQ(ReasonOf(response.results(1).error()), "TENSOR_NOT_FOUND");
  EXPECT_TRUE(response.results(2).has_timeline_create());
  EXPECT_EQ(ReasonOf(response.results(3).error()), "TIMELINE_NOT_INCREASING");
}

// More commands than a thread does in a row.
TEST_F(SpaceEvaluationTest, RunsManyCommandsInTheirOrder) {
  ASSERT_FALSE(Put(1, {1}).has_error());
  v1::RunRequest request;
  for (uint64_t i = 1; i <= 100; ++i) {
    *request.add_commands()->mutable_evaluate() = Double(i, i + 1);
    request.add_commands()->mutable_tensor_free()->set_tensor(i);
  }
  const v1::RunResponse response = Run(request);
  for (const v1::CommandResult& result : response.results()) {
    ASSERT_FALSE(result.has_error()) << result.error().message();
  }
  EXPECT_EQ(Read(101), (std::vector<float>{1.26765060022822940e30f}));
  EXPECT_EQ(Describe().held().tensors(), 1u);
}

TEST_F(SpaceEvaluationTest, ACancelledWorkNeverRuns) {
  CreateTimeline(1);
  ASSERT_FALSE(Put(1, {1}).has_error());
  v1::EvaluateRequest request = Double(1, 2);
  request.set_work(4);
  request.add_after()->set_timeline(1);
  request.mutable_after(0)->set_value(1);
  ASSERT_TRUE(Evaluate(request).status.ok());
  v1::Command cancel;
  cancel.mutable_cancel()->set_work(4);
  ASSERT_FALSE(RunOne(cancel).has_error());
  v1::Command wait;
  wait.mutable_wait()->add_works(4);
  EXPECT_EQ(RunOne(wait).error().code(), static_cast<int>(grpc::CANCELLED));
  EXPECT_EQ(Query(4).state(), v1::WORK_STATE_ERROR);
  EXPECT_EQ(Get(2).error().code(), static_cast<int>(grpc::CANCELLED));
}

TEST_F(SpaceEvaluationTest, ASpecMustBeTheTensors) {
  ASSERT_FALSE(Put(1, {1, 2}).has_error());
  v1::EvaluateRequest request = Double(1, 2);
  v1::TensorSpec* const spec =
      request.mutable_inputs(0)->mutable_value()->mutable_spec();
  spec->set_dtype(v1::DATA_TYPE_INT32);
  spec->add_shape(2);
  EXPECT_EQ(Evaluate(request).status.error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  spec->set_dtype(v1::DATA_TYPE_FLOAT);
  spec->set_shape(0, 3);
  EXPECT_EQ(Evaluate(request).status.error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  spec->set_shape(0, -1);
  EXPECT_TRUE(Evaluate(request).status.ok());
}

// Where nobody knows the shape before the tensor is made.
TEST_F(SpaceEvaluationTest, ASpecMustBeThatOfATensorThatIsNotThereYet) {
  CreateTimeline(1);
  ASSERT_FALSE(Put(1, {1, 2}).has_error());
  v1::EvaluateRequest first = Double(1, 2);
  first.add_after()->set_timeline(1);
  first.mutable_after(0)->set_value(1);
  ASSERT_TRUE(Evaluate(first).status.ok());
  uint64_t to = 3;
  for (const int64_t extent : {2, 3}) {
    v1::EvaluateRequest request = Double(2, to++);
    v1::TensorSpec* const spec =
        request.mutable_inputs(0)->mutable_value()->mutable_spec();
    spec->set_dtype(v1::DATA_TYPE_FLOAT);
    spec->add_shape(extent);
    ASSERT_TRUE(Evaluate(request).status.ok());
  }
  ASSERT_FALSE(Signal(1, 1).has_error());
  EXPECT_EQ(Read(3), (std::vector<float>{4, 8}));
  EXPECT_EQ(Get(4).error().code(),
            static_cast<int>(grpc::StatusCode::FAILED_PRECONDITION));
}

// A Run whose results do not fit tells so of the commands that they are of.
TEST(RunTest, ErrorsFitBesideTheResults) {
  TestServer server(
      [](ServerOptions& options) { options.max_message_bytes = 4096; });
  const auto channel = server.Connect();
  grpc::ClientContext opens;
  v1::OpenSpaceResponse space;
  ASSERT_TRUE(v1::Spaces::NewStub(channel)->Open(&opens, {}, &space).ok());
  v1::RunRequest request;
  v1::TensorPut* const put = request.add_commands()->mutable_tensor_put();
  put->set_tensor(1);
  put->mutable_value()->mutable_spec()->set_dtype(v1::DATA_TYPE_UINT8);
  put->mutable_value()->mutable_spec()->add_shape(3000);
  put->mutable_value()->set_raw(std::string(3000, '\1'));
  request.add_commands()->mutable_tensor_get()->set_tensor(1);
  for (int i = 0; i < 12; ++i) {
    request.add_commands()->mutable_tensor_get()->set_tensor(2);
  }
  grpc::ClientContext context;
  SetPatience(&context);
  context.AddMetadata(kSpaceHeader, space.token());
  v1::RunResponse response;
  const grpc::Status status =
      server.evaluator().Run(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.results(1).tensor_get().outputs(0).value().raw().size(),
            3000u);
  for (int i = 2; i < response.results_size(); ++i) {
    EXPECT_EQ(response.results(i).error().code(),
              static_cast<int>(grpc::NOT_FOUND));
  }
}

}  // namespace
}  // namespace weir::testing
