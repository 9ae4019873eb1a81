// A served model is one thing, whichever service is asked: what it takes, what
// it gives, and what is counted of it.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "kernels/base/error_info.h"
#include "tests/server/model_folder.h"
#include "tests/server/server_fixture.h"

namespace weir::testing {
namespace {

using grpc::StatusCode;
using ::testing::ElementsAre;

// y = a + b and z = a - b, all float [N, 2].
onnx::ModelProto TwoOutputs() {
  onnx::ModelProto model = EmptyModel();
  for (const char* name : {"a", "b"}) {
    AddValue(model.mutable_graph()->add_input(), name, onnx::TensorProto::FLOAT,
             {"N", "2"});
  }
  for (const char* name : {"y", "z"}) {
    AddValue(model.mutable_graph()->add_output(), name,
             onnx::TensorProto::FLOAT, {"N", "2"});
  }
  AddNode(&model, "Add", {"a", "b"}, {"y"}, "sum");
  AddNode(&model, "Sub", {"a", "b"}, {"z"}, "difference");
  return model;
}

std::string Rows(int64_t rows) {
  return std::string(static_cast<size_t>(rows) * 2 * sizeof(float), '\0');
}

inference::ModelInferRequest InferRows(int64_t a, int64_t b) {
  inference::ModelInferRequest request;
  request.set_model_name("two");
  AddInput(&request, "a", "FP32", {a, 2}, Rows(a));
  AddInput(&request, "b", "FP32", {b, 2}, Rows(b));
  return request;
}

v1::EvaluateRequest EvaluateRows(int64_t a, int64_t b) {
  v1::EvaluateRequest request;
  request.mutable_graph()->mutable_model()->set_name("two");
  AddInput(&request, "a", v1::DATA_TYPE_FLOAT, {a, 2}, Rows(a));
  AddInput(&request, "b", v1::DATA_TYPE_FLOAT, {b, 2}, Rows(b));
  return request;
}

grpc::Status ExplainRows(TestServer& server, int64_t a, int64_t b) {
  v1::ExplainRequest request;
  request.mutable_graph()->mutable_model()->set_name("two");
  for (const auto& [name, rows] : {std::pair("a", a), std::pair("b", b)}) {
    v1::NamedTensorSpec* input = request.add_inputs();
    input->set_name(name);
    input->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT);
    input->mutable_spec()->add_shape(rows);
    input->mutable_spec()->add_shape(2);
  }
  grpc::ClientContext context;
  SetPatience(&context);
  v1::ExplainResponse response;
  return server.catalog().Explain(&context, request, &response);
}

inference::ModelStatistics Statistics(TestServer& server) {
  inference::ModelStatisticsRequest request;
  request.set_name("two");
  grpc::ClientContext context;
  SetPatience(&context);
  inference::ModelStatisticsResponse response;
  const grpc::Status status =
      server.kserve().ModelStatistics(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response.model_stats_size() == 1 ? response.model_stats(0)
                                          : inference::ModelStatistics();
}

class ServedModelTest : public ::testing::Test {
 protected:
  std::unique_ptr<TestServer> Serve(const std::string& config) {
    models_.Write("two", TwoOutputs());
    models_.WriteConfig("two", config);
    return std::make_unique<TestServer>([this](ServerOptions& o) {
      o.model_repository = models_.path();
      o.triton_metrics = true;
    });
  }

 private:
  ModelFolder models_;
};

TEST_F(ServedModelTest, ABatchIsRefusedByAllOrNone) {
  const auto server = Serve("max_batch_size: 4");
  const struct {
    int64_t a, b;
    const char* word;  // null: fits
    const char* field;
  } cases[] = {{4, 4, nullptr, ""},
               {5, 5, "a batch of 5", "inputs[0]"},
               // Broadcast they would, but one batch they are not.
               {2, 1, "a batch of 1", "inputs[1]"}};
  for (const auto& c : cases) {
    SCOPED_TRACE(::testing::Message() << c.a << " and " << c.b);
    const grpc::Status infer = Infer(*server, InferRows(c.a, c.b)).status;
    const grpc::Status evaluate =
        Evaluate(*server, EvaluateRows(c.a, c.b)).status;
    const grpc::Status explain = ExplainRows(*server, c.a, c.b);
    if (c.word == nullptr) {
      EXPECT_TRUE(infer.ok()) << infer.error_message();
      EXPECT_TRUE(evaluate.ok()) << evaluate.error_message();
      EXPECT_TRUE(explain.ok()) << explain.error_message();
      continue;
    }
    for (const grpc::Status& status : {infer, evaluate, explain}) {
      EXPECT_TRUE(Refused(status, StatusCode::INVALID_ARGUMENT, c.word));
      EXPECT_THAT(Field(FromGrpcStatus(status)),
                  ::testing::StartsWith(c.field));
    }
  }
  // What Explain is not told may be anything that is served.
  EXPECT_TRUE(ExplainRows(*server, -1, -1).ok());
  EXPECT_TRUE(ExplainRows(*server, 3, -1).ok());
}

TEST_F(ServedModelTest, ConfiguredDimsHoldForExplainToo) {
  const auto server = Serve(R"(
      input [ { name: "a" data_type: TYPE_FP32 dims: [ 3, 2 ] },
              { name: "b" data_type: TYPE_FP32 dims: [ -1, 2 ] } ])");
  EXPECT_TRUE(ExplainRows(*server, 3, 3).ok());
  EXPECT_TRUE(ExplainRows(*server, -1, -1).ok());
  const grpc::Status status = ExplainRows(*server, 4, 4);
  EXPECT_TRUE(Refused(status, StatusCode::INVALID_ARGUMENT, "[4,2]"));
  EXPECT_TRUE(Refused(status, StatusCode::INVALID_ARGUMENT, "[3,2]"));
  EXPECT_EQ(Field(FromGrpcStatus(status)), "inputs[0]");
}

TEST_F(ServedModelTest, EvaluateCountsAsModelInferDoes) {
  const auto server = Serve("max_batch_size: 4");
  EXPECT_TRUE(Infer(*server, InferRows(3, 3)).status.ok());
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(Evaluate(*server, EvaluateRows(2, 2)).status.ok());
  }
  // Wrong before it ran.
  EXPECT_FALSE(Evaluate(*server, EvaluateRows(5, 5)).status.ok());
  const inference::ModelStatistics two = Statistics(*server);
  EXPECT_EQ(two.inference_count(), 3u + 2 + 2);
  EXPECT_EQ(two.execution_count(), 3u);
  EXPECT_EQ(two.inference_stats().success().count(), 3u);
  EXPECT_EQ(two.inference_stats().fail().count(), 1u);
  EXPECT_GT(two.last_inference(), 0u);
  std::vector<std::pair<uint64_t, uint64_t>> batches;
  for (const auto& batch : two.batch_stats()) {
    batches.emplace_back(batch.batch_size(), batch.compute_infer().count());
  }
  EXPECT_THAT(batches, ElementsAre(std::pair(2, 2), std::pair(3, 1)));
  EXPECT_EQ(server->Metric("nv_inference_request_success{model=\"two\","
                           "version=\"1\"}"),
            3);
  // A graph of the caller's own is no model's request.
  EXPECT_TRUE(Evaluate(*server, IdentityRequest()).status.ok());
  EXPECT_EQ(Statistics(*server).execution_count(), 3u);
}

TEST_F(ServedModelTest, HasTheOutputsThatItsConfigurationLists) {
  const auto server =
      Serve(R"(output { name: "z" data_type: TYPE_FP32 dims: [ -1, 2 ] })");
  const InferAnswer all = Infer(*server, InferRows(1, 1));
  ASSERT_TRUE(all.status.ok()) << all.status.error_message();
  ASSERT_EQ(all.response.outputs_size(), 1);
  EXPECT_EQ(all.response.outputs(0).name(), "z");
  EXPECT_EQ(all.response.raw_output_contents_size(), 1);
  const EvaluateAnswer evaluated = Evaluate(*server, EvaluateRows(1, 1));
  ASSERT_TRUE(evaluated.status.ok()) << evaluated.status.error_message();
  ASSERT_EQ(evaluated.response.outputs_size(), 1);
  EXPECT_EQ(evaluated.response.outputs(0).name(), "z");

  grpc::ClientContext context;
  SetPatience(&context);
  inference::ModelMetadataRequest ask;
  ask.set_name("two");
  inference::ModelMetadataResponse metadata;
  EXPECT_TRUE(server->kserve().ModelMetadata(&context, ask, &metadata).ok());
  ASSERT_EQ(metadata.outputs_size(), 1);
  EXPECT_EQ(metadata.outputs(0).name(), "z");
  grpc::ClientContext config_context;
  SetPatience(&config_context);
  inference::ModelConfigRequest ask_config;
  ask_config.set_name("two");
  inference::ModelConfigResponse config;
  EXPECT_TRUE(
      server->kserve().ModelConfig(&config_context, ask_config, &config).ok());
  ASSERT_EQ(config.config().output_size(), 1);
  EXPECT_EQ(config.config().output(0).name(), "z");

  inference::ModelInferRequest other = InferRows(1, 1);
  other.add_outputs()->set_name("y");
  EXPECT_TRUE(Refused(Infer(*server, other).status,
                      StatusCode::INVALID_ARGUMENT, "no output \"y\""));
  v1::EvaluateRequest evaluate = EvaluateRows(1, 1);
  evaluate.add_outputs()->set_name("y");
  EXPECT_TRUE(Refused(Evaluate(*server, evaluate).status,
                      StatusCode::INVALID_ARGUMENT, "no output \"y\""));
}

// In the order of the configuration, as Triton lists them.
TEST_F(ServedModelTest, OutputsFollowTheConfigurationsOrder) {
  const auto server = Serve(R"(
      max_batch_size: 4
      output [ { name: "z" data_type: TYPE_FP32 dims: [ 2 ] },
               { name: "y" data_type: TYPE_FP32 dims: [ 2 ] } ])");
  inference::ModelInferRequest request = InferRows(1, 1);
  request.set_raw_input_contents(0, Bytes<float>({5, 6}));
  request.set_raw_input_contents(1, Bytes<float>({1, 1}));
  const InferAnswer answer = Infer(*server, request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.response.outputs_size(), 2);
  EXPECT_EQ(answer.response.outputs(0).name(), "z");
  EXPECT_THAT(Values<float>(answer.response.raw_output_contents(0)),
              ElementsAre(4, 5));
  EXPECT_EQ(answer.response.outputs(1).name(), "y");
  EXPECT_THAT(Values<float>(answer.response.raw_output_contents(1)),
              ElementsAre(6, 7));
}

}  // namespace
}  // namespace weir::testing
