// DEFERRED evaluations over the wire: what has them run, that it does so once,
// and what is told of their errors.
#include <gmock/gmock.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "proto/weir/v1/evaluator.pb.h"
#include "tests/base/eventually.h"
#include "tests/server/server_fixture.h"
#include "tests/services/held_space_fixture.h"
#include "tests/services/space_call_fixture.h"

namespace weir::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class DeferredEvaluationTest : public HeldSpaceTest {
 protected:
  void SetUp() override {
    HeldSpaceTest::SetUp();
    CreateContext(1, v1::EVAL_MODE_DEFERRED);
    CreateContext(2);
    ASSERT_FALSE(Put(1, {1}).has_error());
  }

  // Accepted in context 1, which says that it is deferred.
  void Defer(v1::EvaluateRequest request) {
    request.set_context(1);
    const EvaluateAnswer answer = Evaluate(request);
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.response.report().state(), v1::WORK_STATE_NOT_ENQUEUED);
    EXPECT_EQ(answer.response.report().wait(), v1::WAIT_PERFORMED_NONE);
  }
  void DeferDouble(uint64_t from, uint64_t to, uint64_t work) {
    v1::EvaluateRequest request = Double(from, to);
    request.set_work(work);
    Defer(std::move(request));
  }

  // y = x[i], made at `site`.
  static v1::EvaluateRequest Gather(uint64_t from, int64_t index, uint64_t to,
                                    const std::string& site) {
    v1::EvaluateRequest request = Program(absl::StrCat(R"(
        inputs { name: "x" }
        inputs { name: "i" spec { dtype: DATA_TYPE_INT64 shape: -1 } }
        nodes { name: "pick" op: "Gather" inputs: "x" inputs: "i" outputs: "y"
                call_site: ")",
                                                       site, R"(" }
        outputs: "y")"));
    request.add_inputs()->set_name("x");
    request.mutable_inputs(0)->mutable_value()->set_tensor(from);
    AddInput(&request, "i", v1::DATA_TYPE_INT64, {1}, Bytes<int64_t>({index}));
    request.add_outputs()->set_name("y");
    request.mutable_outputs(0)->set_tensor(to);
    return request;
  }

  v1::CommandResult WaitFor(uint64_t work) {
    v1::Command wait;
    wait.mutable_wait()->add_works(work);
    return RunOne(wait);
  }
  v1::TensorDescription DescribeTensor(uint64_t tensor) {
    v1::Command describe;
    describe.mutable_tensor_describe()->set_tensor(tensor);
    return RunOne(describe).tensor_describe();
  }
};

TEST_F(DeferredEvaluationTest, WaitsUntilItsResultIsRead) {
  DeferDouble(1, 2, 10);
  EXPECT_EQ(Describe().held().works(), 1u);
  EXPECT_FALSE(DescribeTensor(2).ready());
  EXPECT_EQ(Query(10).state(), v1::WORK_STATE_NOT_ENQUEUED)
      << "who asks waits for nothing";
  EXPECT_EQ(Read(2), (std::vector<float>{2}));
  EXPECT_EQ(Query(10).state(), v1::WORK_STATE_COMPLETED);
  EXPECT_TRUE(Eventually([&] { return Describe().held().works() == 0; }));
}

TEST_F(DeferredEvaluationTest, RunsWithWhatItNeedsAndNoMore) {
  for (uint64_t tensor = 1; tensor < 6; ++tensor) {
    DeferDouble(tensor, tensor + 1, tensor + 10);
  }
  EXPECT_EQ(Read(5), (std::vector<float>{16}));
  EXPECT_EQ(Query(15).state(), v1::WORK_STATE_NOT_ENQUEUED);
  EXPECT_EQ(Read(6), (std::vector<float>{32}));
}

TEST_F(DeferredEvaluationTest, RunsForWhoWaitsForItsWorkOrItsTensor) {
  DeferDouble(1, 2, 10);
  DeferDouble(2, 3, 11);
  EXPECT_FALSE(WaitFor(10).has_error());
  EXPECT_EQ(Query(10).state(), v1::WORK_STATE_COMPLETED);
  EXPECT_EQ(Query(11).state(), v1::WORK_STATE_NOT_ENQUEUED);
  v1::Command wait;
  wait.mutable_wait()->add_tensors(3);
  EXPECT_FALSE(RunOne(wait).has_error());
  EXPECT_TRUE(DescribeTensor(3).ready());
}

TEST_F(DeferredEvaluationTest, RunsForWhoWaitsForWhatItSignals) {
  CreateTimeline(1);
  v1::EvaluateRequest signals = Double(1, 2);
  signals.add_signal()->set_timeline(1);
  signals.mutable_signal(0)->set_value(5);
  Defer(signals);
  v1::Command wait;
  wait.mutable_wait()->add_points()->set_timeline(1);
  wait.mutable_wait()->mutable_points(0)->set_value(4);
  EXPECT_FALSE(RunOne(wait).has_error());
  EXPECT_EQ(Read(2), (std::vector<float>{2}));

  // And if that comes when somebody waits already.
  wait.mutable_wait()->mutable_points(0)->set_value(6);
  v1::CommandResult waited;
  std::thread call([&] { waited = RunOne(wait); });
  EXPECT_TRUE(Eventually([&] { return Describe().held().waits() == 1; }));
  signals = Double(1, 3);
  signals.add_signal()->set_timeline(1);
  signals.mutable_signal(0)->set_value(6);
  Defer(signals);
  call.join();
  EXPECT_FALSE(waited.has_error()) << waited.error().message();
}

// Whatever context that is in.
TEST_F(DeferredEvaluationTest, RunsForAWorkThatReadsItElsewhere) {
  DeferDouble(1, 2, 10);
  v1::EvaluateRequest reader = Double(2, 3);
  reader.set_context(2);
  reader.set_mode(v1::EVAL_MODE_SYNC_FULL);
  ASSERT_TRUE(Evaluate(reader).status.ok());
  EXPECT_EQ(Query(10).state(), v1::WORK_STATE_COMPLETED);
  EXPECT_EQ(Read(3), (std::vector<float>{4}));
}

// Nobody enters the context for that: here a call is in it all the time.
TEST_F(DeferredEvaluationTest, RunsThoughItsContextIsInUse) {
  DeferDouble(1, 2, 10);
  v1::EvaluateRequest holds = hold().Request();
  holds.set_context(1);
  holds.set_mode(v1::EVAL_MODE_SYNC_FULL);
  EvaluateAnswer held;
  std::thread inside([&] { held = Evaluate(holds); });
  hold().WaitUntilHeld();
  v1::EvaluateRequest refused = Double(1, 4);
  refused.set_context(1);
  EXPECT_EQ(Evaluate(refused).status.error_code(), grpc::StatusCode::ABORTED);
  std::vector<float> read;
  std::thread reads([&] { read = Read(2); });
  EXPECT_TRUE(Eventually(
      [&] { return Query(10).state() > v1::WORK_STATE_NOT_ENQUEUED; }));
  hold().Open();
  inside.join();
  reads.join();
  EXPECT_TRUE(held.status.ok()) << held.status.error_message();
  EXPECT_EQ(read, (std::vector<float>{2}));
}

// Invariant 9.
TEST_F(DeferredEvaluationTest, RunsOnceForThirtyTwoWhoWait) {
  constexpr int kWaiters = 32;
  v1::EvaluateRequest random = Program(R"(
      nodes { domain: "weir" op: "RandomUniform" outputs: "y"
              attributes { name: "shape" ints { values: 64 } } }
      outputs: "y")");
  random.add_outputs()->set_name("y");
  random.mutable_outputs(0)->set_tensor(2);
  random.set_work(10);
  Defer(random);
  std::vector<std::vector<float>> read(kWaiters);
  std::vector<std::thread> waiters;
  for (size_t i = 0; i < kWaiters; ++i) {
    waiters.emplace_back([this, i, &read] {
      if (i % 2 == 1) {
        EXPECT_FALSE(WaitFor(10).has_error());
      }
      read[i] = Read(2);
    });
  }
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_EQ(read[0].size(), 64u);
  // Another run would have drawn other numbers.
  EXPECT_THAT(read, ::testing::Each(read[0]));
  v1::Command flush;
  flush.mutable_context_flush()->set_context(1);
  EXPECT_EQ(RunOne(flush).context_flush().executed_size(), 0);
}

// An output inline is a read.
TEST_F(DeferredEvaluationTest, RunsAtOnceWhereItIsRead) {
  v1::EvaluateRequest request = Double(1, 2);
  request.mutable_outputs(0)->clear_tensor();
  request.set_mode(v1::EVAL_MODE_DEFERRED);
  for (const uint64_t context : {0u, 1u}) {
    request.set_context(context);
    const EvaluateAnswer answer = Evaluate(request);
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.response.report().state(), v1::WORK_STATE_COMPLETED);
    EXPECT_EQ(answer.response.report().inline_reads(), 1u);
  }
  v1::EvaluateRequest stateless = Program(
      "inputs { name: \"x\" } nodes { op: \"Neg\" inputs: \"x\" outputs: "
      "\"y\" } outputs: \"y\"");
  AddInput(&stateless, "x", v1::DATA_TYPE_FLOAT, {1}, Bytes<float>({3}));
  stateless.set_mode(v1::EVAL_MODE_DEFERRED);
  const EvaluateAnswer answer = weir::testing::Evaluate(server_, stateless);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.response.report().state(), v1::WORK_STATE_COMPLETED);
  EXPECT_EQ(Values<float>(answer.response.outputs(0).value().raw()),
            (std::vector<float>{-3}));
}

TEST_F(DeferredEvaluationTest, NeedsAContextToWaitIn) {
  v1::EvaluateRequest request = Double(1, 2);
  request.set_mode(v1::EVAL_MODE_DEFERRED);
  const EvaluateAnswer answer = Evaluate(request);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Field(FromGrpcStatus(answer.status)), "context");
  EXPECT_EQ(ReasonOf(Get(2).error()), "TENSOR_NOT_FOUND");
}

// What can be told at once is: nothing is deferred, and no number taken.
TEST_F(DeferredEvaluationTest, IsCheckedAtOnce) {
  v1::EvaluateRequest unknown = Double(1, 2);
  unknown.mutable_graph()->mutable_definition()->mutable_nodes(0)->set_op("No");
  unknown.set_context(1);
  EXPECT_EQ(Evaluate(unknown).status.error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  v1::EvaluateRequest missing = Double(77, 2);
  missing.set_context(1);
  EXPECT_EQ(Evaluate(missing).status.error_code(), grpc::StatusCode::NOT_FOUND);
  v1::EvaluateRequest taken = Double(1, 1);
  taken.set_context(1);
  EXPECT_EQ(Evaluate(taken).status.error_code(),
            grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(Describe().held().works(), 0u);
  EXPECT_EQ(Describe().held().tensors(), 1u);
}

// Its bytes are gone from the message when the call has returned.
TEST_F(DeferredEvaluationTest, ConsumesInlineInputs) {
  v1::Command put;
  put.mutable_tensor_put()->set_tensor(5);
  put.mutable_tensor_put()->set_context(1);
  v1::TensorValue* const value = put.mutable_tensor_put()->mutable_value();
  value->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT);
  value->mutable_spec()->add_shape(3);
  value->set_raw(Bytes<float>({4, 5, 6}));
  const v1::CommandResult result = RunOne(put);
  ASSERT_FALSE(result.has_error()) << result.error().message();
  EXPECT_EQ(result.tensor_put().report().state(), v1::WORK_STATE_NOT_ENQUEUED);
  ASSERT_FALSE(Put(6, {7, 8, 9}).has_error());
  EXPECT_EQ(Read(5), (std::vector<float>{4, 5, 6}));
}

// With what came with it: its elements, and its graph, which is kept to be
// joined with others.
TEST_F(DeferredEvaluationTest, CountsWhatItKeepsUntilItHasRun) {
  DeferDouble(1, 2, 10);
  const uint64_t graph = Describe().held().input_bytes();
  EXPECT_GT(graph, Double(1, 2).graph().ByteSizeLong());
  DeferDouble(1, 3, 11);
  EXPECT_EQ(Describe().held().input_bytes(), 2 * graph);
  v1::EvaluateRequest gather = Gather(1, 0, 4, std::string(500, 's'));
  Defer(gather);
  const uint64_t all = Describe().held().input_bytes();
  EXPECT_GT(all, 2 * graph + 500 + sizeof(int64_t));
  gather = Gather(1, 0, 5, "");
  Defer(gather);
  EXPECT_LT(Describe().held().input_bytes() - all, all - 2 * graph - 500);
  EXPECT_EQ(Read(5), (std::vector<float>{1}));
  EXPECT_TRUE(Eventually([&] { return Describe().held().input_bytes() == 0; }));

  v1::OpenSpaceRequest small;
  small.mutable_quota()->set_input_bytes(2 * graph - 1);
  token_ = Open(small);
  CreateContext(1, v1::EVAL_MODE_DEFERRED);
  ASSERT_FALSE(Put(1, {1}).has_error());
  DeferDouble(1, 2, 10);
  v1::EvaluateRequest refused = Double(1, 3);
  refused.set_context(1);
  const EvaluateAnswer answer = Evaluate(refused);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Reason(FromGrpcStatus(answer.status)), "SPACE_QUOTA");
}

TEST_F(DeferredEvaluationTest, ACancelledOneNeverRuns) {
  DeferDouble(1, 2, 10);
  v1::Command cancel;
  cancel.mutable_cancel()->set_work(10);
  ASSERT_FALSE(RunOne(cancel).has_error());
  EXPECT_EQ(WaitFor(10).error().code(), static_cast<int>(grpc::CANCELLED));
  EXPECT_EQ(Get(2).error().code(), static_cast<int>(grpc::CANCELLED));
}

TEST_F(DeferredEvaluationTest, ASpaceThatIsClosedEndsIt) {
  DeferDouble(1, 2, 10);
  const std::string token = token_;
  Close();
  const EvaluateAnswer gone = EvaluateIn(token, Double(2, 3));
  EXPECT_EQ(gone.status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_TRUE(ServesOn(server_));
}

// -- Errors -------------------------------------------------------------------

// One that shows only when they run, in a program that is joined of both.
TEST_F(DeferredEvaluationTest, AnErrorNamesTheNodeAndTheLineOfItsOwnCall) {
  ASSERT_FALSE(Put(20, {1, 2, 3}).has_error());
  Defer(Gather(20, 1, 21, "good.py:1"));
  Defer(Gather(20, 9, 22, "first.py:3"));
  Defer(Gather(20, 8, 23, "second.py:4"));
  DeferDouble(22, 24, 30);
  const v1::CommandResult reader = Get(24);
  EXPECT_EQ(reader.error().code(), static_cast<int>(grpc::INVALID_ARGUMENT));
  EXPECT_EQ(ReasonOf(reader.error()), "INDEX_OUT_OF_RANGE");
  EXPECT_THAT(reader.error().message(),
              AllOf(HasSubstr("first.py:3: node \"pick\" (Gather)"),
                    Not(HasSubstr("second.py"))));
  const v1::CommandResult second = Get(23);
  EXPECT_THAT(second.error().message(),
              AllOf(HasSubstr("second.py:4: node \"pick\" (Gather)"),
                    Not(HasSubstr("first.py"))));
  EXPECT_EQ(Read(21), (std::vector<float>{2}));
  EXPECT_TRUE(WaitFor(30).has_error());  // its reader may fail before it
  const v1::WorkStatus status = Query(30);
  EXPECT_THAT(status.failure().message(), HasSubstr("first.py:3"));
}

// A line of the caller's is no part of what is compiled.
TEST_F(DeferredEvaluationTest, LinesShareAProgramAndEachErrorNamesItsOwn) {
  ASSERT_FALSE(Put(20, {1, 2, 3}).has_error());
  std::string program;
  uint64_t to = 30;
  for (const char* site : {"", "one.py:1", "two.py:22", "one.py:1"}) {
    SCOPED_TRACE(site);
    v1::EvaluateRequest request = Gather(20, 9, ++to, site);
    request.mutable_outputs(0)->clear_tensor();
    request.set_mode(v1::EVAL_MODE_SYNC_FULL);
    const EvaluateAnswer failed = Evaluate(request);
    EXPECT_EQ(failed.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(failed.status.error_message(),
                StartsWith(absl::StrCat(site, *site == '\0' ? "" : ": ",
                                        "node \"pick\"")));
    request = Gather(20, 2, ++to, site);
    request.set_mode(v1::EVAL_MODE_SYNC_FULL);
    request.set_report_settings(true);
    const EvaluateAnswer good = Evaluate(request);
    ASSERT_TRUE(good.status.ok()) << good.status.error_message();
    EXPECT_TRUE(good.response.settings().program_cached());
    if (program.empty()) program = good.response.settings().program();
    EXPECT_EQ(good.response.settings().program(), program);
  }
}

// What is compiled together is refused to each with its own line.
TEST_F(DeferredEvaluationTest, AGraphThatIsRefusedNamesTheLineToo) {
  for (const char* site : {"one.py:1", "two.py:22"}) {
    for (const bool explained : {false, true}) {
      v1::EvaluateRequest request = Gather(1, 0, 2, site);
      request.mutable_graph()->mutable_definition()->mutable_nodes(0)->set_op(
          "NoSuch");
      grpc::Status status;
      if (explained) {
        grpc::ClientContext context;
        SetPatience(&context);
        v1::ExplainRequest explain;
        *explain.mutable_graph() = request.graph();
        v1::NamedTensorSpec* const input = explain.add_inputs();
        input->set_name("x");
        input->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT);
        input->mutable_spec()->add_shape(1);
        v1::ExplainResponse response;
        status = v1::Catalog::NewStub(server_.Connect())
                     ->Explain(&context, explain, &response);
      } else {
        status = Evaluate(request).status;
      }
      EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
      EXPECT_THAT(status.error_message(),
                  AllOf(StartsWith(absl::StrCat(site, ": ")),
                        HasSubstr("node \"pick\" (NoSuch)")));
    }
  }
}

// A work that failed is tried again when it is asked for again, and a graph
// that was refused is compiled anew.
TEST_F(DeferredEvaluationTest, AFailureIsNeverServedAgain) {
  ASSERT_FALSE(Put(20, {1, 2, 3}).has_error());
  for (int round = 0; round < 2; ++round) {
    Defer(Gather(20, 9, 21, "a.py:1"));
    EXPECT_EQ(ReasonOf(Get(21).error()), "INDEX_OUT_OF_RANGE");
    // Its number is free, and its program is sound.
    Defer(Gather(20, 2, 21, "a.py:1"));
    EXPECT_EQ(Read(21), (std::vector<float>{3}));
    v1::Command free;
    free.mutable_tensor_free()->set_tensor(21);
    EXPECT_FALSE(RunOne(free).has_error());
  }
  v1::EvaluateRequest bad = Double(1, 2);
  bad.mutable_graph()->mutable_definition()->mutable_nodes(0)->set_op("No");
  bad.set_context(1);
  const double before = server_.DeviceMetric("weir_program_misses_total");
  for (int round = 0; round < 2; ++round) {
    EXPECT_FALSE(Evaluate(bad).status.ok());
  }
  EXPECT_EQ(server_.DeviceMetric("weir_program_misses_total"), before + 2);
}

}  // namespace
}  // namespace weir::testing
