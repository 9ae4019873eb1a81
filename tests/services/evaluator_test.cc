// weir.v1.Evaluator over the wire: results, modes, reports, settings.
#include <gmock/gmock.h>

#include <string>

#include "kernels/base/error_info.h"
#include "tests/server/server_fixture.h"

namespace weir::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

std::string DigitsFolder() { return TestData("data"); }

// y = (x + 1) * x
v1::EvaluateRequest Polynomial() {
  v1::EvaluateRequest request = Program(R"(
      inputs { name: "x" spec { dtype: DATA_TYPE_FLOAT shape: -1 } }
      constants { name: "one" value {
        spec { dtype: DATA_TYPE_FLOAT } raw: "\x00\x00\x80\x3f" } }
      nodes { name: "sum" op: "Add" inputs: "x" inputs: "one" outputs: "s" }
      nodes { name: "product" op: "Mul" inputs: "s" inputs: "x" outputs: "y" }
      outputs: "y" outputs: "s")");
  AddInput(&request, "x", v1::DATA_TYPE_FLOAT, {3}, Bytes<float>({1, 2, 3}));
  return request;
}

TEST(EvaluateTest, ComputesAGraph) {
  TestServer server;
  const EvaluateAnswer answer = Evaluate(server, Polynomial());
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.response.outputs_size(), 2);
  const v1::NamedTensor& y = answer.response.outputs(0);
  EXPECT_EQ(y.name(), "y");
  EXPECT_EQ(y.value().spec().dtype(), v1::DATA_TYPE_FLOAT);
  ASSERT_EQ(y.value().spec().shape_size(), 1);
  EXPECT_EQ(y.value().spec().shape(0), 3);
  EXPECT_EQ(Values<float>(y.value().raw()), (std::vector<float>{2, 6, 12}));
  EXPECT_EQ(Values<float>(answer.response.outputs(1).value().raw()),
            (std::vector<float>{2, 3, 4}));
  EXPECT_EQ(answer.response.work(), 0u);
  EXPECT_FALSE(answer.response.has_settings());
}

// Any byte but 0 is true, as an input and as a constant, whatever reads it.
TEST(EvaluateTest, BooleansAreZeroOrOneFromTheBeginning) {
  TestServer server;
  v1::EvaluateRequest request = Program(R"(
      inputs { name: "x" spec { dtype: DATA_TYPE_BOOL shape: -1 } }
      constants {
        name: "c"
        value { spec { dtype: DATA_TYPE_BOOL shape: 9 }
                raw: "\001\377\000\002\000\001\200\001\000" }
      }
      nodes { op: "Identity" inputs: "x" outputs: "same" }
      nodes { op: "Not" inputs: "x" outputs: "not" }
      nodes { op: "And" inputs: "x" inputs: "c" outputs: "and" }
      nodes { op: "Equal" inputs: "x" inputs: "c" outputs: "equal" }
      nodes { op: "Where" inputs: "x" inputs: "x" inputs: "c" outputs: "or" }
      nodes { op: "ReduceMin" inputs: "x" outputs: "least" }
      nodes {
        op: "Cast" inputs: "x" outputs: "number"
        attributes { name: "to" i: 6 }
      }
      outputs: "same" outputs: "not" outputs: "and" outputs: "equal"
      outputs: "or" outputs: "least" outputs: "number" outputs: "c")");
  AddInput(&request, "x", v1::DATA_TYPE_BOOL, {9},
           std::string("\x00\x01\x02\xff\x80\x03\x01\x00\xfe", 9));
  const EvaluateAnswer answer = Evaluate(server, request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  using Bools = std::vector<uint8_t>;
  const auto output = [&](int i) { return answer.response.outputs(i).value(); };
  EXPECT_EQ(Values<uint8_t>(output(0).raw()),
            (Bools{0, 1, 1, 1, 1, 1, 1, 0, 1}));
  EXPECT_EQ(Values<uint8_t>(output(1).raw()),
            (Bools{1, 0, 0, 0, 0, 0, 0, 1, 0}));
  EXPECT_EQ(Values<uint8_t>(output(2).raw()),
            (Bools{0, 1, 0, 1, 0, 1, 1, 0, 0}));
  EXPECT_EQ(Values<uint8_t>(output(3).raw()),
            (Bools{0, 1, 0, 1, 0, 1, 1, 0, 0}));
  EXPECT_EQ(Values<uint8_t>(output(4).raw()),
            (Bools{1, 1, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(Values<uint8_t>(output(5).raw()), (Bools{0}));
  EXPECT_EQ(Values<int32_t>(output(6).raw()),
            (std::vector<int32_t>{0, 1, 1, 1, 1, 1, 1, 0, 1}));
  EXPECT_EQ(Values<uint8_t>(output(7).raw()),
            (Bools{1, 1, 0, 1, 0, 1, 1, 1, 0}));
}

TEST(EvaluateTest, ReturnsTheOutputsAskedForInTheirOrder) {
  TestServer server;
  v1::EvaluateRequest request = Polynomial();
  request.add_outputs()->set_name("s");
  EvaluateAnswer answer = Evaluate(server, request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.response.outputs_size(), 1);
  EXPECT_EQ(answer.response.outputs(0).name(), "s");
  EXPECT_EQ(answer.response.report().inline_reads(), 1u);

  request.add_outputs()->set_name("y");
  answer = Evaluate(server, request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.response.outputs_size(), 2);
  EXPECT_EQ(answer.response.outputs(0).name(), "s");
  EXPECT_EQ(answer.response.outputs(1).name(), "y");
  EXPECT_EQ(Values<float>(answer.response.outputs(1).value().raw()),
            (std::vector<float>{2, 6, 12}));
}

// More bytes than are copied into the head of a reply, in several outputs.
TEST(EvaluateTest, ReturnsLargeOutputs) {
  TestServer server;
  v1::EvaluateRequest request = Polynomial();
  std::vector<float> x(1 << 20);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 1000);
  request.clear_inputs();
  AddInput(&request, "x", v1::DATA_TYPE_FLOAT, {1 << 20}, Bytes(x));
  for (int repeat = 0; repeat < 3; ++repeat) {
    const EvaluateAnswer answer = Evaluate(server, request);
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    const auto y = Values<float>(answer.response.outputs(0).value().raw());
    const auto s = Values<float>(answer.response.outputs(1).value().raw());
    ASSERT_EQ(y.size(), x.size());
    ASSERT_EQ(s.size(), x.size());
    for (size_t i = 0; i < x.size(); i += 997) {
      ASSERT_EQ(y[i], (x[i] + 1) * x[i]) << i;
      ASSERT_EQ(s[i], x[i] + 1) << i;
    }
  }
}

TEST(EvaluateTest, CarriesStringsAndEmptyTensors) {
  TestServer server;
  v1::EvaluateRequest request = Program(R"(
      inputs { name: "x" }
      nodes { op: "Identity" inputs: "x" outputs: "y" }
      outputs: "y")");
  const std::string raw = BytesElements({"weir", "", std::string(3, '\0')});
  AddInput(&request, "x", v1::DATA_TYPE_STRING, {3}, raw);
  EvaluateAnswer answer = Evaluate(server, request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.response.outputs(0).value().raw(), raw);

  request.clear_inputs();
  AddInput(&request, "x", v1::DATA_TYPE_FLOAT, {2, 0, 3}, "");
  answer = Evaluate(server, request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.response.outputs(0).value().raw(), "");
  EXPECT_EQ(answer.response.outputs(0).value().spec().shape(1), 0);
}

// However the graph has them.
TEST(EvaluateTest, AnInputThatDoesNotFitIsNamedAsTheRequestHasIt) {
  TestServer server;
  v1::EvaluateRequest request = Program(R"(
      inputs { name: "a" spec { dtype: DATA_TYPE_FLOAT shape: 2 } }
      inputs { name: "b" spec { dtype: DATA_TYPE_FLOAT shape: 2 } }
      nodes { op: "Add" inputs: "a" inputs: "b" outputs: "y" }
      outputs: "y")");
  AddInput(&request, "b", v1::DATA_TYPE_FLOAT, {2}, Bytes<float>({1, 2}));
  AddInput(&request, "a", v1::DATA_TYPE_FLOAT, {3}, Bytes<float>({1, 2, 3}));
  const grpc::Status status = Evaluate(server, request).status;
  EXPECT_TRUE(Refused(status, grpc::StatusCode::INVALID_ARGUMENT, "\"a\""));
  EXPECT_EQ(Field(FromGrpcStatus(status)), "inputs[1]");
}

// More than an I/O thread copies by itself: one text, and many short ones.
TEST(EvaluateTest, CarriesMuchText) {
  TestServer server;
  for (const auto& texts :
       {std::vector<std::string>{"a", std::string(3 << 20, 'l')},
        std::vector<std::string>(200'000, "short")}) {
    v1::EvaluateRequest request = Program(R"(
        inputs { name: "x" }
        nodes { op: "Identity" inputs: "x" outputs: "y" }
        outputs: "y")");
    const std::string raw = BytesElements(texts);
    AddInput(&request, "x", v1::DATA_TYPE_STRING,
             {static_cast<int64_t>(texts.size())}, raw);
    const EvaluateAnswer answer = Evaluate(server, request);
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_TRUE(answer.response.outputs(0).value().raw() == raw);
  }
}

TEST(EvaluateTest, RunsServedModels) {
  TestServer server(
      [](ServerOptions& o) { o.model_repository = DigitsFolder(); });
  const std::string samples = ReadTestFile(TestData("data/digits_samples.f32"));
  v1::EvaluateRequest request;
  request.mutable_graph()->mutable_model()->set_name("digits");
  AddInput(&request, "image", v1::DATA_TYPE_FLOAT, {2, 1, 8, 8},
           samples.substr(0, 2 * 64 * sizeof(float)));
  EvaluateAnswer answer = Evaluate(server, request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.response.outputs_size(), 2);
  EXPECT_EQ(answer.response.outputs(1).value().spec().dtype(),
            v1::DATA_TYPE_INT64);

  request.mutable_graph()->mutable_model()->set_version(1);
  EXPECT_TRUE(Evaluate(server, request).status.ok());
  request.mutable_graph()->mutable_model()->set_version(7);
  answer = Evaluate(server, request);
  EXPECT_TRUE(Refused(answer.status, grpc::StatusCode::NOT_FOUND,
                      "no model \"digits\" version \"7\"; it has 1"));
  request.mutable_graph()->mutable_model()->clear_version();
  // Whose input it is, is told as ModelInfer tells it.
  constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
  v1::EvaluateRequest wrong = request;
  wrong.clear_inputs();
  EXPECT_TRUE(Refused(Evaluate(server, wrong).status, kInvalid,
                      "input \"image\" of model \"digits\" is missing"));
  wrong = request;
  wrong.mutable_inputs(0)->set_name("picture");
  EXPECT_TRUE(Refused(Evaluate(server, wrong).status, kInvalid,
                      "model \"digits\" has no input \"picture\", but "
                      "\"image\""));
  wrong = request;
  wrong.add_outputs()->set_name("z");
  EXPECT_TRUE(Refused(Evaluate(server, wrong).status, kInvalid,
                      "model \"digits\" has no output \"z\", but "
                      "\"probabilities\", \"digit\""));
  wrong = request;
  wrong.mutable_graph()->mutable_model()->clear_name();
  answer = Evaluate(server, wrong);
  EXPECT_TRUE(Refused(answer.status, kInvalid, "name is not set"));
  EXPECT_EQ(Field(FromGrpcStatus(answer.status)), "graph.model.name");
  request.mutable_graph()->mutable_model()->set_name("letters");
  answer = Evaluate(server, request);
  EXPECT_TRUE(Refused(answer.status, grpc::StatusCode::NOT_FOUND, "letters"));
  EXPECT_EQ(Field(FromGrpcStatus(answer.status)), "graph.model");
  EXPECT_TRUE(ServesOn(server));
}

TEST(EvaluateTest, RunsOnnxModelsFromTheRequest) {
  TestServer server;
  v1::EvaluateRequest request;
  request.mutable_graph()->set_onnx_model(
      ReadTestFile(TestData("data/digits/1/model.onnx")));
  const std::string samples = ReadTestFile(TestData("data/digits_samples.f32"));
  AddInput(&request, "image", v1::DATA_TYPE_FLOAT, {1, 1, 8, 8},
           samples.substr(0, 64 * sizeof(float)));
  const EvaluateAnswer answer = Evaluate(server, request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.response.outputs_size(), 2);
}

TEST(EvaluateTest, ReportsWhatWasSynchronizedInEveryMode) {
  TestServer server;
  for (v1::EvalMode mode : {v1::EVAL_MODE_UNSPECIFIED, v1::EVAL_MODE_EAGER,
                            v1::EVAL_MODE_SYNC_CPU, v1::EVAL_MODE_SYNC_FULL}) {
    SCOPED_TRACE(v1::EvalMode_Name(mode));
    v1::EvaluateRequest request = IdentityRequest();
    request.set_mode(mode);
    const EvaluateAnswer answer = Evaluate(server, request);
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    // The output was asked for inline: that waits for it in every mode.
    const v1::SyncReport& report = answer.response.report();
    EXPECT_EQ(report.state(), v1::WORK_STATE_COMPLETED);
    EXPECT_EQ(report.wait(), v1::WAIT_PERFORMED_RECORD);
    EXPECT_EQ(report.inline_reads(), 1u);
    EXPECT_NE(report.stream_id(), 0u);
    EXPECT_GT(report.stream_sequence(), 0u);
    EXPECT_GT(report.queue_ns(), 0);
    EXPECT_GT(report.execution_ns(), 0);
    EXPECT_GE(report.total_ns(), report.queue_ns());
    EXPECT_FALSE(report.has_details());
  }
}

TEST(EvaluateTest, RefusesDeferredModeWhereThereAreNoSpaces) {
  TestServer server([](ServerOptions& options) { options.max_spaces = 0; });
  v1::EvaluateRequest request = IdentityRequest();
  request.set_mode(v1::EVAL_MODE_DEFERRED);
  const EvaluateAnswer answer = Evaluate(server, request);
  EXPECT_TRUE(
      Refused(answer.status, grpc::StatusCode::UNIMPLEMENTED, "DEFERRED"));
  EXPECT_EQ(Field(FromGrpcStatus(answer.status)), "mode");
  EXPECT_TRUE(ServesOn(server));
}

TEST(EvaluateTest, FullReportsHaveDetails) {
  TestServer server;
  v1::EvaluateRequest request = IdentityRequest();
  request.set_report(v1::REPORT_LEVEL_FULL);
  request.set_mode(v1::EVAL_MODE_SYNC_FULL);
  const EvaluateAnswer answer = Evaluate(server, request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  const v1::SyncReport& report = answer.response.report();
  ASSERT_TRUE(report.has_details());
  const v1::SyncDetails& details = report.details();
  EXPECT_EQ(details.stream().id(), report.stream_id());
  EXPECT_THAT(details.stream().pool(), HasSubstr(TestDevice()));
  EXPECT_GT(details.stream().lease_generation(), 0u);
  EXPECT_FALSE(details.stream().device_uuid().empty());
  EXPECT_FALSE(details.has_device_error());
  const v1::WorkTimes& times = details.times();
  EXPECT_GT(times.received_ns(), 1'600'000'000'000'000'000);
  EXPECT_GE(times.enqueued_ns(), times.received_ns());
  EXPECT_GE(times.leased_ns(), times.enqueued_ns());
  EXPECT_GE(times.scheduled_ns(), times.leased_ns());
  EXPECT_GE(times.completed_ns(), times.scheduled_ns());
  EXPECT_EQ(details.transfers().transport(), v1::Transfers::TRANSPORT_INLINE);
}

TEST(EvaluateTest, ReportsItsSettingsWhenAsked) {
  TestServer server;
  v1::EvaluateRequest request = Program(R"(
      nodes { domain: "weir" op: "RandomUniform" outputs: "y"
              attributes { name: "shape" ints { values: 16 } } }
      outputs: "y")");
  request.set_report_settings(true);
  request.set_rng_seed(42);
  request.set_mode(v1::EVAL_MODE_SYNC_CPU);
  request.set_device(TestDevice());
  EvaluateAnswer answer = Evaluate(server, request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  const v1::ResolvedSettings first = answer.response.settings();
  EXPECT_EQ(first.mode(), v1::EVAL_MODE_SYNC_CPU);
  EXPECT_EQ(first.rng_seed(), 42u);
  EXPECT_FALSE(first.program_cached());
  EXPECT_FALSE(first.device_uuid().empty());
  EXPECT_EQ(first.stream_id(), answer.response.report().stream_id());

  request.set_device(first.device_uuid());
  answer = Evaluate(server, request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_TRUE(answer.response.settings().program_cached());
}

TEST(EvaluateTest, NothingLeaksIntoTheNextRequest) {
  TestServer server;
  v1::EvaluateRequest request = Program(R"(
      nodes { domain: "weir" op: "RandomUniform" outputs: "y"
              attributes { name: "shape" ints { values: 16 } } }
      outputs: "y")");
  request.set_rng_seed(7);
  request.set_mode(v1::EVAL_MODE_SYNC_CPU);
  request.set_report_settings(true);
  const EvaluateAnswer one = Evaluate(server, request);
  ASSERT_TRUE(one.status.ok()) << one.status.error_message();
  const EvaluateAnswer again = Evaluate(server, request);
  ASSERT_TRUE(again.status.ok()) << again.status.error_message();
  EXPECT_EQ(one.response.outputs(0).value().raw(),
            again.response.outputs(0).value().raw());

  request.clear_rng_seed();
  request.clear_mode();
  for (int i = 0; i < 4; ++i) {  // whichever I/O thread and context
    const EvaluateAnswer other = Evaluate(server, request);
    ASSERT_TRUE(other.status.ok()) << other.status.error_message();
    EXPECT_NE(other.response.outputs(0).value().raw(),
              one.response.outputs(0).value().raw());
    EXPECT_EQ(other.response.settings().mode(), v1::EVAL_MODE_EAGER);
  }
}

// Nor does the seed, into a program that draws nothing.
TEST(EvaluateTest, ASeedIsTheRequestsOwn) {
  TestServer server([](ServerOptions& o) { o.io_threads = 1; });
  v1::EvaluateRequest random = Program(R"(
      nodes { domain: "weir" op: "RandomUniform" outputs: "y"
              attributes { name: "shape" ints { values: 16 } } }
      outputs: "y")");
  random.set_rng_seed(987654321);
  random.set_report_settings(true);
  EvaluateAnswer answer = Evaluate(server, random);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.response.settings().rng_seed(), 987654321u);
  v1::EvaluateRequest plain = IdentityRequest();
  plain.set_report_settings(true);
  answer = Evaluate(server, plain);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.response.settings().rng_seed(), 0u);
  plain.set_rng_seed(7);
  answer = Evaluate(server, plain);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.response.settings().rng_seed(), 7u);
}

TEST(EvaluateTest, AFailedEvaluationCarriesItsReport) {
  TestServer server;
  v1::EvaluateRequest request = Program(R"(
      inputs { name: "x" }
      nodes { name: "broken" domain: "weir" op: "Fault"
              inputs: "x" outputs: "y" }
      outputs: "y")");
  AddInput(&request, "x", v1::DATA_TYPE_FLOAT, {2}, Bytes<float>({1, 2}));
  const EvaluateAnswer answer = Evaluate(server, request);
  EXPECT_TRUE(Refused(answer.status, grpc::StatusCode::INTERNAL, "broken"));
  const auto report = ReportOf(answer.status);
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->state(), v1::WORK_STATE_ERROR);
  EXPECT_EQ(report->wait(), v1::WAIT_PERFORMED_RECORD);
  EXPECT_EQ(report->inline_reads(), 0u) << "it has no results";
  const v1::WorkTimes& times = report->details().times();
  EXPECT_GT(times.scheduled_ns(), 0);
  EXPECT_GE(times.completed_ns(), times.scheduled_ns());
  ASSERT_TRUE(report->details().has_device_error());
  EXPECT_THAT(report->details().device_error().node(), HasSubstr("broken"));
  EXPECT_EQ(report->details().device_error().code(), 4);
  EXPECT_EQ(report->details().device_error().name(), "INJECTED_FAULT");
  EXPECT_FALSE(report->details().device_error().sticky());
  EXPECT_TRUE(ServesOn(server));
}

// Neither a completion nor a result is told of that there was not.
TEST(EvaluateTest, TheReportOfAWorkThatNeverRanSaysSo) {
  TestServer server;
  v1::EvaluateRequest request = Program(R"(
      inputs { name: "a" } inputs { name: "b" }
      nodes { name: "sum" op: "Add" inputs: "a" inputs: "b" outputs: "y" }
      outputs: "y")");
  AddInput(&request, "a", v1::DATA_TYPE_FLOAT, {2}, Bytes<float>({1, 2}));
  AddInput(&request, "b", v1::DATA_TYPE_FLOAT, {3}, Bytes<float>({1, 2, 3}));
  const EvaluateAnswer answer = Evaluate(server, request);
  EXPECT_TRUE(
      Refused(answer.status, grpc::StatusCode::INVALID_ARGUMENT, "\"sum\""));
  const auto report = ReportOf(answer.status);
  ASSERT_TRUE(report.has_value()) << "it was refused as it was planned";
  EXPECT_EQ(report->state(), v1::WORK_STATE_ERROR);
  EXPECT_EQ(report->wait(), v1::WAIT_PERFORMED_NONE);
  EXPECT_EQ(report->stream_id(), 0u);
  EXPECT_EQ(report->execution_ns(), 0);
  EXPECT_EQ(report->inline_reads(), 0u);
  const v1::WorkTimes& times = report->details().times();
  EXPECT_GE(times.enqueued_ns(), times.received_ns());
  EXPECT_EQ(times.scheduled_ns(), 0);
  EXPECT_EQ(times.completed_ns(), 0);
}

TEST(EvaluateTest, WhatIsRefusedBeforeThereIsAWorkHasNoReport) {
  TestServer server;
  v1::EvaluateRequest unknown = Program(R"(
      inputs { name: "x" }
      nodes { op: "NoSuch" inputs: "x" outputs: "y" } outputs: "y")");
  AddInput(&unknown, "x", v1::DATA_TYPE_FLOAT, {1}, Bytes<float>({1}));
  v1::EvaluateRequest without = IdentityRequest();
  without.clear_inputs();
  for (const v1::EvaluateRequest& request : {unknown, without}) {
    const EvaluateAnswer answer = Evaluate(server, request);
    EXPECT_FALSE(answer.status.ok());
    EXPECT_FALSE(ReportOf(answer.status).has_value());
  }
}

// Its work ran, and what was waited for was: only the reply cannot be sent.
TEST(EvaluateTest, AReplyThatIsTooLargeCarriesTheReportOfItsWork) {
  TestServer server([](ServerOptions& o) { o.max_message_bytes = 1 << 16; });
  v1::EvaluateRequest request = Program(R"(
      inputs { name: "text" } inputs { name: "i" }
      nodes { op: "Gather" inputs: "text" inputs: "i" outputs: "y" }
      outputs: "y")");
  AddInput(&request, "text", v1::DATA_TYPE_STRING, {1},
           BytesElements({std::string(10'000, 'x')}));
  AddInput(&request, "i", v1::DATA_TYPE_INT64, {8},
           std::string(8 * sizeof(int64_t), '\0'));
  const EvaluateAnswer answer = Evaluate(server, request);
  EXPECT_EQ(Reason(FromGrpcStatus(answer.status)), "REPLY_TOO_LARGE");
  const auto report = ReportOf(answer.status);
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->state(), v1::WORK_STATE_COMPLETED);
  EXPECT_EQ(report->inline_reads(), 1u);
}

TEST(EvaluateTest, SettingsOutsideTheOfferAreRefused) {
  TestServer server;
  const struct {
    const char* field;
    std::function<void(v1::EvaluateRequest*)> change;
    grpc::StatusCode code;
    const char* part = "";  // of the message
  } cases[] = {
      {"mode", [](auto* r) { r->set_mode(static_cast<v1::EvalMode>(9)); },
       grpc::StatusCode::INVALID_ARGUMENT,
       "9 is not an evaluation mode; there are EVAL_MODE_DEFERRED, "
       "EVAL_MODE_EAGER, EVAL_MODE_SYNC_CPU and EVAL_MODE_SYNC_FULL"},
      {"context", [](auto* r) { r->set_context(3); },
       grpc::StatusCode::INVALID_ARGUMENT},
      {"after", [](auto* r) { r->add_after()->set_timeline(1); },
       grpc::StatusCode::INVALID_ARGUMENT},
      {"signal", [](auto* r) { r->add_signal()->set_timeline(1); },
       grpc::StatusCode::INVALID_ARGUMENT},
      {"stream_policy.kind",
       [](auto* r) {
         r->mutable_stream_policy()->set_kind(v1::StreamPolicy::KIND_NAMED);
       },
       grpc::StatusCode::UNIMPLEMENTED},
      {"stream_policy.kind",
       [](auto* r) {
         r->mutable_stream_policy()->set_kind(
             static_cast<v1::StreamPolicy::Kind>(9));
       },
       grpc::StatusCode::INVALID_ARGUMENT},
      {"on_conflict",
       [](auto* r) { r->set_on_conflict(static_cast<v1::ContextConflict>(9)); },
       grpc::StatusCode::INVALID_ARGUMENT,
       "9 is not a way to meet a context that is in use"},
      {"stream_policy.stream",
       [](auto* r) {
         r->mutable_stream_policy()->set_kind(v1::StreamPolicy::KIND_POOLED);
         r->mutable_stream_policy()->set_stream(3);
       },
       grpc::StatusCode::INVALID_ARGUMENT, "only KIND_NAMED has a stream"},
      {"inputs[0]", [](auto* r) { r->mutable_inputs(0)->set_name("X"); },
       grpc::StatusCode::INVALID_ARGUMENT, "the graph has no input \"X\""},
      {"inputs", [](auto* r) { r->clear_inputs(); },
       grpc::StatusCode::INVALID_ARGUMENT, "input \"x\" is missing"},
      {"inputs[0].value.spec.shape",
       [](auto* r) {
         auto* spec = r->mutable_inputs(0)->mutable_value()->mutable_spec();
         spec->clear_shape();
         for (int i = 0; i < 9; ++i) spec->add_shape(1);
       },
       grpc::StatusCode::INVALID_ARGUMENT,
       "input \"x\": rank 9 is more than 8 dimensions"},
      {"inputs[0].value.spec.dtype",
       [](auto* r) {
         r->mutable_inputs(0)->mutable_value()->mutable_spec()->set_dtype(
             v1::DATA_TYPE_UNSPECIFIED);
       },
       grpc::StatusCode::INVALID_ARGUMENT,
       "input \"x\": dtype is not set; it is required (DATA_TYPE_FLOAT, ...)"},
      {"inputs[0].value.spec.dtype",
       [](auto* r) {
         r->mutable_inputs(0)->mutable_value()->mutable_spec()->set_dtype(
             static_cast<v1::DataType>(99));
       },
       grpc::StatusCode::INVALID_ARGUMENT},
      {"precision", [](auto* r) { r->set_precision(v1::PRECISION_TF32); },
       grpc::StatusCode::UNIMPLEMENTED},
      {"precision", [](auto* r) { r->set_precision(v1::PRECISION_FP16); },
       grpc::StatusCode::UNIMPLEMENTED},
      {"precision", [](auto* r) { r->set_precision(v1::PRECISION_BF16); },
       grpc::StatusCode::UNIMPLEMENTED},
      {"stream_policy.priority",
       [](auto* r) { r->mutable_stream_policy()->set_priority(-5); },
       grpc::StatusCode::INVALID_ARGUMENT},
      {"device", [](auto* r) { r->set_device("cuda:77"); },
       grpc::StatusCode::NOT_FOUND},
      {"label", [](auto* r) { r->set_label(std::string(257, 'l')); },
       grpc::StatusCode::INVALID_ARGUMENT},
      {"outputs[0]", [](auto* r) { r->add_outputs()->set_name("z"); },
       grpc::StatusCode::INVALID_ARGUMENT},
      {"outputs[1]",
       [](auto* r) {
         r->add_outputs()->set_name("y");
         r->add_outputs()->set_name("y");
       },
       grpc::StatusCode::INVALID_ARGUMENT},
      {"outputs[0].tensor",
       [](auto* r) {
         r->add_outputs()->set_name("y");
         r->mutable_outputs(0)->set_tensor(5);
       },
       grpc::StatusCode::INVALID_ARGUMENT, "needs a space"},
      {"outputs[0].region",
       [](auto* r) {
         r->add_outputs()->set_name("y");
         r->mutable_outputs(0)->mutable_region()->set_region("shared");
       },
       grpc::StatusCode::UNIMPLEMENTED},
      {"precision",
       [](auto* r) { r->set_precision(static_cast<v1::Precision>(77)); },
       grpc::StatusCode::INVALID_ARGUMENT,
       "77 is not a precision; this server computes in PRECISION_STRICT alone"},
      {"report",
       [](auto* r) { r->set_report(static_cast<v1::ReportLevel>(9)); },
       grpc::StatusCode::INVALID_ARGUMENT,
       "9 is not a report level; there are REPORT_LEVEL_BRIEF and "
       "REPORT_LEVEL_FULL"},
      {"graph", [](auto* r) { r->clear_graph(); },
       grpc::StatusCode::INVALID_ARGUMENT},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.field);
    v1::EvaluateRequest request = IdentityRequest();
    c.change(&request);
    const EvaluateAnswer answer = Evaluate(server, request);
    EXPECT_TRUE(Refused(answer.status, c.code, c.part));
    EXPECT_EQ(Field(FromGrpcStatus(answer.status)), c.field);
    EXPECT_TRUE(ServesOn(server));
  }
}

// Somebody who has a space wants the call to be in it.
TEST(EvaluateTest, ASpacesTokenIsNeverPassedOver) {
  for (const bool offered : {false, true}) {
    TestServer server([&](ServerOptions& options) {
      if (!offered) options.max_spaces = 0;
    });
    grpc::ClientContext context;
    SetPatience(&context);
    context.AddMetadata("weir-space-bin", std::string(16, '\x01'));
    v1::EvaluateResponse response;
    const grpc::Status status =
        server.evaluator().Evaluate(&context, IdentityRequest(), &response);
    EXPECT_TRUE(offered ? Refused(status, grpc::StatusCode::NOT_FOUND, "")
                        : Refused(status, grpc::StatusCode::UNIMPLEMENTED,
                                  "weir-space-bin"));
    EXPECT_TRUE(ServesOn(server));
  }
}

TEST(EvaluateTest, FieldsThatNeedASpaceAreNotOfferedWithoutAny) {
  TestServer server([](ServerOptions& options) { options.max_spaces = 0; });
  v1::EvaluateRequest request = IdentityRequest();
  request.set_context(3);
  const EvaluateAnswer answer = Evaluate(server, request);
  EXPECT_TRUE(Refused(answer.status, grpc::StatusCode::UNIMPLEMENTED,
                      "this server does not offer"));
  EXPECT_EQ(Field(FromGrpcStatus(answer.status)), "context");
}

// Though a graph declares far more inputs than a request may give.
TEST(EvaluateTest, OneOfManyMissingInputsIsNamed) {
  TestServer server;
  v1::EvaluateRequest request = Program(R"(
      nodes { op: "Identity" inputs: "x0" outputs: "y" }
      outputs: "y")");
  auto* definition = request.mutable_graph()->mutable_definition();
  for (int i = 0; i < 20'000; ++i) {
    v1::GraphInput* input = definition->add_inputs();
    input->set_name("x" + std::to_string(i));
    input->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT);
  }
  AddInput(&request, "x0", v1::DATA_TYPE_FLOAT, {}, Bytes<float>({1}));
  AddInput(&request, "x2", v1::DATA_TYPE_FLOAT, {}, Bytes<float>({1}));
  const EvaluateAnswer answer = Evaluate(server, request);
  EXPECT_TRUE(Refused(answer.status, grpc::StatusCode::INVALID_ARGUMENT,
                      "input \"x1\" of the graph is missing"));
  EXPECT_EQ(Field(FromGrpcStatus(answer.status)), "inputs");
  EXPECT_TRUE(ServesOn(server));
}

TEST(EvaluateTest, AVersionLabelIsNeverPassedOver) {
  TestServer server(
      [](ServerOptions& o) { o.model_repository = DigitsFolder(); });
  v1::EvaluateRequest request;
  auto* model = request.mutable_graph()->mutable_model();
  model->set_name("digits");
  model->set_version_label("stable");
  const EvaluateAnswer answer = Evaluate(server, request);
  EXPECT_TRUE(
      Refused(answer.status, grpc::StatusCode::NOT_FOUND, "\"stable\""));
  const absl::Status status = FromGrpcStatus(answer.status);
  EXPECT_EQ(Reason(status), "MODEL_NOT_FOUND");
  EXPECT_EQ(Field(status), "graph.model.version_label");
  // An empty one is none: the call gets to what is missing behind it.
  model->set_version_label("");
  EXPECT_EQ(Field(FromGrpcStatus(Evaluate(server, request).status)), "inputs");
}

TEST(EvaluateTest, WhatIsUnspecifiedIsTheDefault) {
  TestServer server;
  v1::EvaluateRequest request = IdentityRequest();
  request.set_report_settings(true);
  const EvaluateAnswer unspecified = Evaluate(server, request);
  ASSERT_TRUE(unspecified.status.ok()) << unspecified.status.error_message();
  EXPECT_EQ(unspecified.response.settings().mode(), v1::EVAL_MODE_EAGER);
  EXPECT_EQ(unspecified.response.settings().precision(), v1::PRECISION_STRICT);
  EXPECT_FALSE(unspecified.response.report().has_details());

  request.set_mode(v1::EVAL_MODE_EAGER);
  request.mutable_stream_policy()->set_kind(v1::StreamPolicy::KIND_POOLED);
  request.set_precision(v1::PRECISION_STRICT);
  request.set_report(v1::REPORT_LEVEL_BRIEF);
  request.set_on_conflict(v1::CONTEXT_CONFLICT_REFUSE);
  const EvaluateAnswer spelled_out = Evaluate(server, request);
  ASSERT_TRUE(spelled_out.status.ok()) << spelled_out.status.error_message();
  EXPECT_FALSE(spelled_out.response.report().has_details());
}

TEST(EvaluateTest, APrecisionThatIsNotAllowedIsRefusedByName) {
  TestServer server;
  v1::EvaluateRequest request = IdentityRequest();
  request.set_precision(v1::PRECISION_TF32);
  const EvaluateAnswer answer = Evaluate(server, request);
  EXPECT_TRUE(Refused(answer.status, grpc::StatusCode::UNIMPLEMENTED,
                      "PRECISION_TF32"));
  const absl::Status status = FromGrpcStatus(answer.status);
  EXPECT_EQ(Reason(status), "PRECISION_NOT_ALLOWED");
  EXPECT_THAT(Metadata(status),
              UnorderedElementsAre(Pair("precision", "PRECISION_TF32"),
                                   Pair("allowed", "PRECISION_STRICT")));
}

}  // namespace
}  // namespace weir::testing
