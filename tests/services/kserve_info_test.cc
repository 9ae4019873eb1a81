// KServe v2 apart from ModelInfer, over the wire.
#include <gmock/gmock.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/client.h"
#include "kernels/base/error_info.h"
#include "server/rpc/status_mapping.h"
#include "tests/server/model_folder.h"
#include "tests/server/raw_stream.h"
#include "tests/server/server_fixture.h"

namespace weir::testing {
namespace {

using Kserve = inference::GRPCInferenceService::Stub;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

template <typename Request, typename Response>
Answer<Response> Call(TestServer& server,
                      grpc::Status (Kserve::*method)(grpc::ClientContext*,
                                                     const Request&, Response*),
                      const Request& request) {
  grpc::ClientContext context;
  SetPatience(&context);
  Answer<Response> answer;
  answer.status =
      (server.kserve().*method)(&context, request, &answer.response);
  return answer;
}

class KserveInfoTest : public ::testing::Test {
 protected:
  KserveInfoTest()
      : server_(
            [](ServerOptions& o) { o.model_repository = TestData("data"); }) {}
  TestServer server_;
};

TEST_F(KserveInfoTest, IsLiveAndReady) {
  EXPECT_TRUE(Call(server_, &Kserve::ServerLive, {}).response.live());
  EXPECT_TRUE(Call(server_, &Kserve::ServerReady, {}).response.ready());
  inference::ModelReadyRequest model;
  model.set_name("digits");
  EXPECT_TRUE(Call(server_, &Kserve::ModelReady, model).response.ready());
  model.set_version("1");
  EXPECT_TRUE(Call(server_, &Kserve::ModelReady, model).response.ready());
}

// Who asks is still answered.
TEST(KserveReadinessTest, NothingIsReadyWhileItDrains) {
  TestServer server([](ServerOptions& o) {
    o.model_repository = TestData("data");
    o.drain_delay = absl::Hours(1);
  });
  bool asked = false;
  server.server().Drain([&](absl::Duration) {
    if (std::exchange(asked, true)) return true;
    const auto whole = Call(server, &Kserve::ServerReady, {});
    EXPECT_TRUE(whole.status.ok()) << whole.status.error_message();
    EXPECT_FALSE(whole.response.ready());
    inference::ModelReadyRequest request;
    request.set_name("digits");
    const auto model = Call(server, &Kserve::ModelReady, request);
    EXPECT_TRUE(model.status.ok()) << model.status.error_message();
    EXPECT_FALSE(model.response.ready());
    EXPECT_TRUE(Call(server, &Kserve::ServerLive, {}).response.live());
    return true;
  });
  EXPECT_TRUE(asked);
}

// As Triton: asking whether something is ready is no error.
TEST_F(KserveInfoTest, WhatIsNotThereIsNotReady) {
  for (const auto& [name, version] :
       {std::pair("digits", "2"), std::pair("digits", "newest"),
        std::pair("letters", ""), std::pair("letters", "1"),
        std::pair("", "")}) {
    inference::ModelReadyRequest request;
    request.set_name(name);
    request.set_version(version);
    const auto answer = Call(server_, &Kserve::ModelReady, request);
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_FALSE(answer.response.ready()) << name << " " << version;
  }
}

// A refused model stays refused until somebody mends its files: no status that
// clients retry by themselves, and no hint to.
TEST(RefusedModelTest, IsAnsweredForGood) {
  ModelFolder models;
  models.WriteBytes("broken", "garbage");
  models.Write("half", AddModel(), 1);
  models.WriteBytes("half", "garbage", 2);
  models.WriteConfig("half", "version_policy { all {} }");
  TestServer server(
      [&](ServerOptions& o) { o.model_repository = models.path(); });
  const auto expect_refused = [](const grpc::Status& status) {
    EXPECT_TRUE(Refused(status, grpc::StatusCode::NOT_FOUND, "no ONNX model"));
    const absl::Status error = FromGrpcStatus(status);
    EXPECT_EQ(Reason(error), "MODEL_REFUSED");
    EXPECT_FALSE(RetryAfter(error).has_value());
  };
  for (const auto& [name, version] :
       {std::pair("broken", ""), std::pair("broken", "1"),
        std::pair("half", "2")}) {
    SCOPED_TRACE(absl::StrCat(name, " ", version));
    inference::ModelInferRequest infer;
    infer.set_model_name(name);
    infer.set_model_version(version);
    expect_refused(Infer(server, infer).status);
    inference::ModelMetadataRequest metadata;
    metadata.set_name(name);
    metadata.set_version(version);
    expect_refused(Call(server, &Kserve::ModelMetadata, metadata).status);
    inference::ModelReadyRequest ready;
    ready.set_name(name);
    ready.set_version(version);
    const auto answer = Call(server, &Kserve::ModelReady, ready);
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_FALSE(answer.response.ready());
  }
  inference::ModelMetadataRequest metadata;
  metadata.set_name("half");
  EXPECT_THAT(
      Call(server, &Kserve::ModelMetadata, metadata).response.versions(),
      ElementsAre("1"));
  inference::ModelReadyRequest ready;
  ready.set_name("half");
  EXPECT_TRUE(Call(server, &Kserve::ModelReady, ready).response.ready());

  client::Client client({.address = server.address()});
  const auto broken = client.IsServing("model/broken");
  ASSERT_TRUE(broken.ok()) << broken.status();
  EXPECT_FALSE(*broken);
  const auto half = client.IsServing("model/half");
  ASSERT_TRUE(half.ok()) << half.status();
  EXPECT_TRUE(*half);
}

TEST_F(KserveInfoTest, HealthAnswersForServerAndModels) {
  client::Client client({.address = server_.address()});
  for (const char* service :
       {"", "live", "model/digits", "inference.GRPCInferenceService",
        "weir.v1.Evaluator"}) {
    const auto serving = client.IsServing(service);
    ASSERT_TRUE(serving.ok()) << serving.status();
    EXPECT_TRUE(*serving) << service;
  }
  EXPECT_EQ(client.IsServing("model/letters").status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(KserveInfoTest, TellsItsMetadata) {
  const auto server = Call(server_, &Kserve::ServerMetadata, {});
  ASSERT_TRUE(server.status.ok());
  EXPECT_EQ(server.response.name(), "weir");
  EXPECT_EQ(server.response.version(), Version());
  // Clients do what is listed here: perf_analyzer asks for statistics.
  EXPECT_THAT(server.response.extensions(),
              UnorderedElementsAre("model_configuration", "statistics"));

  inference::ModelMetadataRequest request;
  request.set_name("digits");
  const auto answer = Call(server_, &Kserve::ModelMetadata, request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  const inference::ModelMetadataResponse& model = answer.response;
  EXPECT_EQ(model.name(), "digits");
  EXPECT_THAT(model.versions(), ElementsAre("1"));
  EXPECT_FALSE(model.platform().empty());
  ASSERT_EQ(model.inputs_size(), 1);
  EXPECT_EQ(model.inputs(0).name(), "image");
  EXPECT_EQ(model.inputs(0).datatype(), "FP32");
  EXPECT_THAT(model.inputs(0).shape(), ElementsAre(-1, 1, 8, 8));
  ASSERT_EQ(model.outputs_size(), 2);
  EXPECT_EQ(model.outputs(1).datatype(), "INT64");
  EXPECT_THAT(model.outputs(1).shape(), ElementsAre(-1));
  request.set_name("letters");
  EXPECT_TRUE(Refused(Call(server_, &Kserve::ModelMetadata, request).status,
                      grpc::StatusCode::NOT_FOUND, "letters"));
}

TEST_F(KserveInfoTest, TellsTheConfiguration) {
  inference::ModelConfigRequest request;
  request.set_name("digits");
  const auto answer = Call(server_, &Kserve::ModelConfig, request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.response.config().name(), "digits");
  EXPECT_EQ(answer.response.config().max_batch_size(), 512);
  ASSERT_EQ(answer.response.config().input_size(), 1);
  EXPECT_THAT(answer.response.config().input(0).dims(), ElementsAre(1, 8, 8));
}

// What a client must know of a model that brought no config.pbtxt.
TEST(ModelConfigurationTest, IsCompleteWithoutAFile) {
  ModelFolder models;
  models.Write("sum", AddModel(), 3);
  TestServer server(
      [&](ServerOptions& o) { o.model_repository = models.path(); });
  inference::ModelConfigRequest request;
  request.set_name("sum");
  for (const char* version : {"", "3"}) {
    request.set_version(version);
    const auto answer = Call(server, &Kserve::ModelConfig, request);
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    const inference::ModelConfig& config = answer.response.config();
    EXPECT_EQ(config.name(), "sum");
    EXPECT_EQ(config.platform(), "onnx_weir");
    EXPECT_EQ(config.backend(), "weir");
    EXPECT_EQ(config.default_model_filename(), "model.onnx");
    EXPECT_EQ(config.version_policy().latest().num_versions(), 1u);
    EXPECT_EQ(config.max_batch_size(), 0);
    ASSERT_EQ(config.input_size(), 1);
    EXPECT_EQ(config.input(0).name(), "x");
    EXPECT_EQ(config.input(0).data_type(), inference::TYPE_FP32);
    EXPECT_THAT(config.input(0).dims(), ElementsAre(-1, 2));
    ASSERT_EQ(config.output_size(), 1);
    EXPECT_EQ(config.output(0).name(), "y");
    EXPECT_THAT(config.output(0).dims(), ElementsAre(-1, 2));
    ASSERT_EQ(config.instance_group_size(), 1);
    const inference::ModelInstanceGroup& group = config.instance_group(0);
    EXPECT_EQ(group.name(), "sum_0");
    EXPECT_EQ(group.count(), 1);
    if (TestDevice() == "cpu") {
      EXPECT_EQ(group.kind(), inference::ModelInstanceGroup::KIND_CPU);
      EXPECT_EQ(group.gpus_size(), 0);
    } else {
      EXPECT_EQ(group.kind(), inference::ModelInstanceGroup::KIND_GPU);
      EXPECT_THAT(group.gpus(), ElementsAre(0));
    }
    EXPECT_FALSE(config.has_dynamic_batching());
    EXPECT_FALSE(config.has_model_transaction_policy());
  }
  request.set_version("1");
  EXPECT_TRUE(Refused(Call(server, &Kserve::ModelConfig, request).status,
                      grpc::StatusCode::NOT_FOUND, "\"sum\" version \"1\""));
  request.set_name("product");
  EXPECT_TRUE(Refused(Call(server, &Kserve::ModelConfig, request).status,
                      grpc::StatusCode::NOT_FOUND, "product"));
}

TEST_F(KserveInfoTest, ListsTheRepository) {
  const auto answer = Call(server_, &Kserve::RepositoryIndex, {});
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.response.models_size(), 1);
  EXPECT_EQ(answer.response.models(0).name(), "digits");
  EXPECT_EQ(answer.response.models(0).version(), "1");
  EXPECT_EQ(answer.response.models(0).state(), "READY");
  EXPECT_EQ(answer.response.models(0).reason(), "");
}

TEST_F(KserveInfoTest, HasOneRepositoryWithoutAName) {
  inference::RepositoryIndexRequest request;
  request.set_repository_name("other");
  const grpc::Status status =
      Call(server_, &Kserve::RepositoryIndex, request).status;
  EXPECT_TRUE(Refused(status, grpc::StatusCode::UNIMPLEMENTED,
                      "repository_name \"other\""));
  EXPECT_TRUE(Refused(status, grpc::StatusCode::UNIMPLEMENTED, "leave"));
}

TEST_F(KserveInfoTest, SaysWhatItDoesNotOffer) {
  const std::string service = "/inference.GRPCInferenceService/";
  for (const auto& [name, remedy] :
       {std::pair("RepositoryModelLoad", "restart"),
        std::pair("RepositoryModelUnload", "restart"),
        std::pair("SystemSharedMemoryStatus", "messages"),
        std::pair("SystemSharedMemoryRegister", "messages"),
        std::pair("SystemSharedMemoryUnregister", "messages"),
        std::pair("CudaSharedMemoryStatus", "messages"),
        std::pair("CudaSharedMemoryRegister", "messages"),
        std::pair("CudaSharedMemoryUnregister", "messages"),
        std::pair("TraceSetting", "weir_sync_report"),
        std::pair("LogSettings", "weir admin log-level")}) {
    const grpc::Status status = server_.CallRaw(service + name, "");
    EXPECT_TRUE(Refused(status, grpc::StatusCode::UNIMPLEMENTED, name));
    EXPECT_TRUE(Refused(status, grpc::StatusCode::UNIMPLEMENTED, remedy));
  }
  EXPECT_TRUE(Refused(server_.CallRaw(service + "NoSuchMethod", ""),
                      grpc::StatusCode::UNIMPLEMENTED, ""));
}

// At once, before the caller has sent anything, and after it has.
TEST_F(KserveInfoTest, RefusesStreams) {
  const std::string method = "/inference.GRPCInferenceService/ModelStreamInfer";
  for (int requests : {0, 3}) {
    RawStream stream(server_, method);
    inference::ModelInferRequest request;
    request.set_model_name("digits");
    for (int i = 0; i < requests; ++i) {
      stream.Write(request.SerializeAsString());
    }
    EXPECT_EQ(stream.Read(), std::nullopt);
    const grpc::Status status = stream.Finish();
    EXPECT_TRUE(
        Refused(status, grpc::StatusCode::UNIMPLEMENTED, "ModelStreamInfer"));
    EXPECT_TRUE(
        Refused(status, grpc::StatusCode::UNIMPLEMENTED, "call ModelInfer"));
  }
  inference::ModelReadyRequest request;
  request.set_name("digits");
  EXPECT_TRUE(Call(server_, &Kserve::ModelReady, request).response.ready());
  EXPECT_TRUE(Eventually([&] {
    return server_.Requests("ModelStreamInfer", "UNIMPLEMENTED") == 2;
  }));
}

}  // namespace
}  // namespace weir::testing
