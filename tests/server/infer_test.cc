// KServe v2 ModelInfer over the wire.
#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "kernels/base/error_info.h"
#include "tests/server/model_folder.h"
#include "tests/server/server_fixture.h"

namespace weir::testing {
namespace {

using ::testing::ElementsAre;

struct Datatype {
  const char* name;
  int onnx;
  std::string raw;  // three elements
  // Adds them in typed form; not set for types that have none.
  std::function<void(inference::InferTensorContents*)> typed;
};

std::vector<Datatype> Datatypes() {
  using Contents = inference::InferTensorContents;
  return {
      {"BOOL", onnx::TensorProto::BOOL, Bytes<uint8_t>({1, 0, 1}),
       [](Contents* c) {
         for (bool v : {true, false, true}) c->add_bool_contents(v);
       }},
      {"UINT8", onnx::TensorProto::UINT8, Bytes<uint8_t>({0, 7, 255}),
       [](Contents* c) {
         for (uint32_t v : {0u, 7u, 255u}) c->add_uint_contents(v);
       }},
      {"UINT16", onnx::TensorProto::UINT16, Bytes<uint16_t>({0, 7, 65535}),
       [](Contents* c) {
         for (uint32_t v : {0u, 7u, 65535u}) c->add_uint_contents(v);
       }},
      {"UINT32", onnx::TensorProto::UINT32, Bytes<uint32_t>({0, 7, UINT32_MAX}),
       [](Contents* c) {
         for (uint32_t v : {0u, 7u, UINT32_MAX}) c->add_uint_contents(v);
       }},
      {"UINT64", onnx::TensorProto::UINT64, Bytes<uint64_t>({0, 7, UINT64_MAX}),
       [](Contents* c) {
         for (uint64_t v : {uint64_t{0}, uint64_t{7}, UINT64_MAX}) {
           c->add_uint64_contents(v);
         }
       }},
      {"INT8", onnx::TensorProto::INT8, Bytes<int8_t>({-128, 0, 127}),
       [](Contents* c) {
         for (int32_t v : {-128, 0, 127}) c->add_int_contents(v);
       }},
      {"INT16", onnx::TensorProto::INT16, Bytes<int16_t>({-32768, 0, 32767}),
       [](Contents* c) {
         for (int32_t v : {-32768, 0, 32767}) c->add_int_contents(v);
       }},
      {"INT32", onnx::TensorProto::INT32,
       Bytes<int32_t>({INT32_MIN, 0, INT32_MAX}),
       [](Contents* c) {
         for (int32_t v : {INT32_MIN, 0, INT32_MAX}) c->add_int_contents(v);
       }},
      {"INT64", onnx::TensorProto::INT64,
       Bytes<int64_t>({INT64_MIN, 0, INT64_MAX}),
       [](Contents* c) {
         for (int64_t v : {INT64_MIN, int64_t{0}, INT64_MAX}) {
           c->add_int64_contents(v);
         }
       }},
      {"FP16", onnx::TensorProto::FLOAT16,
       Bytes<uint16_t>({0x3c00, 0x8000, 0x7bff}), nullptr},
      {"BF16", onnx::TensorProto::BFLOAT16,
       Bytes<uint16_t>({0x3f80, 0x8000, 0x7f7f}), nullptr},
      {"FP32", onnx::TensorProto::FLOAT, Bytes<float>({1.5f, -0.f, 3e38f}),
       [](Contents* c) {
         for (float v : {1.5f, -0.f, 3e38f}) c->add_fp32_contents(v);
       }},
      {"FP64", onnx::TensorProto::DOUBLE, Bytes<double>({1.5, -0., 1e308}),
       [](Contents* c) {
         for (double v : {1.5, -0., 1e308}) c->add_fp64_contents(v);
       }},
      {"BYTES", onnx::TensorProto::STRING,
       BytesElements({"weir", "", std::string("\0\xff", 2)}),
       [](Contents* c) {
         for (const std::string& v :
              {std::string("weir"), std::string(), std::string("\0\xff", 2)}) {
           c->add_bytes_contents(v);
         }
       }},
  };
}

TEST(InferTest, AllDatatypesInRawAndTypedForm) {
  ModelFolder models;
  for (const Datatype& type : Datatypes()) {
    models.Write(type.name, IdentityModel(type.onnx));
  }
  TestServer server(
      [&](ServerOptions& o) { o.model_repository = models.path(); });
  for (const Datatype& type : Datatypes()) {
    SCOPED_TRACE(type.name);
    inference::ModelInferRequest request;
    request.set_model_name(type.name);
    request.set_id("id of " + std::string(type.name));
    AddInput(&request, "x", type.name, {3}, type.raw);
    InferAnswer answer = Infer(server, request);
    if (type.onnx == onnx::TensorProto::STRING && !ServesStrings()) {
      EXPECT_TRUE(
          Refused(answer.status, grpc::StatusCode::UNAVAILABLE, "text"));
      continue;
    }
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    const inference::ModelInferResponse raw = answer.response;
    EXPECT_EQ(raw.model_name(), type.name);
    EXPECT_EQ(raw.model_version(), "1");
    EXPECT_EQ(raw.id(), request.id());
    ASSERT_EQ(raw.outputs_size(), 1);
    EXPECT_EQ(raw.outputs(0).name(), "y");
    EXPECT_EQ(raw.outputs(0).datatype(), type.name);
    EXPECT_THAT(raw.outputs(0).shape(), ElementsAre(3));
    EXPECT_THAT(raw.raw_output_contents(), ElementsAre(type.raw));
    EXPECT_TRUE(raw.parameters().empty());

    request.clear_raw_input_contents();
    auto* contents = request.mutable_inputs(0)->mutable_contents();
    if (type.typed == nullptr) {
      contents->add_fp32_contents(1);
      answer = Infer(server, request);
      EXPECT_TRUE(Refused(answer.status, grpc::StatusCode::INVALID_ARGUMENT,
                          "raw_input_contents"));
      continue;
    }
    type.typed(contents);
    answer = Infer(server, request);
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_THAT(answer.response.raw_output_contents(), ElementsAre(type.raw));
  }
}

TEST(InferTest, TypedElementsMustFitTheirType) {
  ModelFolder models;
  models.Write("bytes", IdentityModel(onnx::TensorProto::INT8));
  models.Write("words", IdentityModel(onnx::TensorProto::UINT16));
  TestServer server(
      [&](ServerOptions& o) { o.model_repository = models.path(); });
  inference::ModelInferRequest request;
  request.set_model_name("bytes");
  AddInput(&request, "x", "INT8", {1}, "");
  request.clear_raw_input_contents();
  request.mutable_inputs(0)->mutable_contents()->add_int_contents(128);
  EXPECT_TRUE(Refused(Infer(server, request).status,
                      grpc::StatusCode::INVALID_ARGUMENT, "out of the range"));
  request.set_model_name("words");
  request.mutable_inputs(0)->set_datatype("UINT16");
  request.mutable_inputs(0)->clear_contents();
  request.mutable_inputs(0)->mutable_contents()->add_uint_contents(65536);
  EXPECT_TRUE(Refused(Infer(server, request).status,
                      grpc::StatusCode::INVALID_ARGUMENT, "out of the range"));
  EXPECT_TRUE(ServesOn(server));
}

class DigitsTest : public ::testing::Test {
 protected:
  DigitsTest()
      : server_([](ServerOptions& o) {
          o.model_repository = TestData("models");
        }) {}

  static inference::ModelInferRequest Request(int64_t samples) {
    const std::string bytes =
        ReadTestFile(TestData("models/digits_samples.f32"));
    inference::ModelInferRequest request;
    request.set_model_name("digits");
    AddInput(&request, "image", "FP32", {samples, 1, 8, 8},
             bytes.substr(0, static_cast<size_t>(samples) * 256));
    return request;
  }

  TestServer server_;
};

TEST_F(DigitsTest, ClassifiesTheHeldOutSamples) {
  const InferAnswer answer = Infer(server_, Request(360));
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.response.outputs_size(), 2);
  EXPECT_EQ(answer.response.outputs(0).name(), "probabilities");
  EXPECT_THAT(answer.response.outputs(0).shape(), ElementsAre(360, 10));
  EXPECT_EQ(answer.response.outputs(1).datatype(), "INT64");
  std::istringstream labels(ReadTestFile(TestData("models/digits_labels.txt")));
  int right = 0;
  for (int64_t digit :
       Values<int64_t>(answer.response.raw_output_contents(1))) {
    int64_t label = -1;
    labels >> label;
    right += digit == label ? 1 : 0;
  }
  EXPECT_GE(right, 342);  // 0.95
}

TEST_F(DigitsTest, ReturnsTheOutputsAskedForInTheirOrder) {
  inference::ModelInferRequest request = Request(2);
  request.add_outputs()->set_name("digit");
  InferAnswer answer = Infer(server_, request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.response.outputs_size(), 1);
  EXPECT_EQ(answer.response.outputs(0).name(), "digit");
  EXPECT_EQ(answer.response.raw_output_contents(0).size(), 16u);

  request.add_outputs()->set_name("probabilities");
  answer = Infer(server_, request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.response.outputs_size(), 2);
  EXPECT_EQ(answer.response.outputs(1).name(), "probabilities");
  EXPECT_EQ(answer.response.raw_output_contents(1).size(), 80u);
}

TEST_F(DigitsTest, RefusesShapesThatTheModelDoesNotTake) {
  inference::ModelInferRequest request = Request(1);
  request.mutable_inputs(0)->clear_shape();
  for (int64_t extent : {1, 64}) request.mutable_inputs(0)->add_shape(extent);
  EXPECT_TRUE(Refused(Infer(server_, request).status,
                      grpc::StatusCode::INVALID_ARGUMENT, "image"));
  request.mutable_inputs(0)->clear_shape();
  for (int64_t extent : {1, 1, 4, 16}) {
    request.mutable_inputs(0)->add_shape(extent);
  }
  EXPECT_TRUE(Refused(Infer(server_, request).status,
                      grpc::StatusCode::INVALID_ARGUMENT, "image"));
  EXPECT_TRUE(ServesOn(server_));
}

TEST_F(DigitsTest, RefusesABatchBeyondTheModelsLimit) {
  constexpr size_t kMost = 512;  // digits/config.pbtxt
  for (size_t batch : {kMost, kMost + 1}) {
    inference::ModelInferRequest request = Request(1);
    request.mutable_inputs(0)->set_shape(0, static_cast<int64_t>(batch));
    request.set_raw_input_contents(0, std::string(batch * 8 * 8 * 4, '\0'));
    const grpc::Status status = Infer(server_, request).status;
    if (batch == kMost) {
      EXPECT_TRUE(status.ok()) << status.error_message();
    } else {
      EXPECT_TRUE(Refused(status, grpc::StatusCode::INVALID_ARGUMENT, "512"));
    }
  }
}

TEST_F(DigitsTest, CarriesItsReportWhenAsked) {
  for (const char* wish : {"brief", "full"}) {
    SCOPED_TRACE(wish);
    inference::ModelInferRequest request = Request(1);
    (*request.mutable_parameters())["weir_sync_report"].set_string_param(wish);
    const InferAnswer answer = Infer(server_, request);
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    const auto found = answer.response.parameters().find("weir_sync_report");
    ASSERT_NE(found, answer.response.parameters().end());
    const auto report = nlohmann::json::parse(found->second.string_param());
    EXPECT_EQ(report["state"], "WORK_STATE_COMPLETED");
    EXPECT_EQ(report["wait"], "WAIT_PERFORMED_RECORD");
    EXPECT_NE(report["stream_id"], "0");
    EXPECT_EQ(report["inline_reads"], 2);  // both outputs
    EXPECT_EQ(report.contains("details"), std::string(wish) == "full");
    if (report.contains("details")) {
      EXPECT_EQ(report["details"]["stream"]["id"], report["stream_id"]);
    }
  }
  inference::ModelInferRequest request = Request(1);
  (*request.mutable_parameters())["weir_sync_report"].set_string_param("brief");
  request.add_outputs()->set_name("digit");
  const InferAnswer one = Infer(server_, request);
  ASSERT_TRUE(one.status.ok()) << one.status.error_message();
  EXPECT_EQ(nlohmann::json::parse(
                one.response.parameters().at("weir_sync_report").string_param())
                .at("inline_reads"),
            1);
  request = Request(1);
  (*request.mutable_parameters())["weir_sync_report"].set_string_param("all");
  grpc::Status status = Infer(server_, request).status;
  EXPECT_TRUE(
      Refused(status, grpc::StatusCode::INVALID_ARGUMENT, "weir_sync_report"));
  EXPECT_EQ(Field(FromGrpcStatus(status)), "parameters.weir_sync_report");
  (*request.mutable_parameters())["weir_sync_report"].set_bool_param(true);
  EXPECT_TRUE(Refused(Infer(server_, request).status,
                      grpc::StatusCode::INVALID_ARGUMENT, "brief"));
}

TEST_F(DigitsTest, RefusesParametersThatItCannotFollow) {
  inference::ModelInferRequest request = Request(1);
  (*request.mutable_parameters())["sequence_id"].set_int64_param(1);
  EXPECT_TRUE(Refused(Infer(server_, request).status,
                      grpc::StatusCode::UNIMPLEMENTED, "sequence_id"));
  request.clear_parameters();
  (*request.mutable_parameters())["triton_x"].set_bool_param(true);
  EXPECT_TRUE(Refused(Infer(server_, request).status,
                      grpc::StatusCode::INVALID_ARGUMENT, "triton_x"));
  request.clear_parameters();
  (*request.mutable_inputs(0)->mutable_parameters())["shared_memory_region"]
      .set_string_param("r");
  EXPECT_TRUE(Refused(Infer(server_, request).status,
                      grpc::StatusCode::UNIMPLEMENTED, "shared_memory_region"));
  request = Request(1);
  (*request.mutable_parameters())["my_own"].set_bool_param(true);
  EXPECT_TRUE(Infer(server_, request).status.ok());
}

}  // namespace
}  // namespace weir::testing
