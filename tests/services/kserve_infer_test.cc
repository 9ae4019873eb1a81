// KServe v2 ModelInfer over the wire.
#include <gmock/gmock.h>

#include <algorithm>
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

// In raw form as in the typed one, and out of an initializer.
TEST(InferTest, BooleansAreZeroOrOneFromTheBeginning) {
  onnx::ModelProto model = EmptyModel();
  AddValue(model.mutable_graph()->add_input(), "x", onnx::TensorProto::BOOL,
           {"N"});
  AddValue(model.mutable_graph()->add_output(), "y", onnx::TensorProto::BOOL,
           {"N"});
  AddValue(model.mutable_graph()->add_output(), "c", onnx::TensorProto::BOOL,
           {"4"});
  onnx::TensorProto* c = model.mutable_graph()->add_initializer();
  c->set_name("c");
  c->set_data_type(onnx::TensorProto::BOOL);
  c->add_dims(4);
  c->set_raw_data(std::string("\x01\x02\x00\xff", 4));
  AddNode(&model, "Identity", {"x"}, {"y"}, "copy");
  ModelFolder models;
  models.Write("flags", model);
  TestServer server(
      [&](ServerOptions& o) { o.model_repository = models.path(); });
  inference::ModelInferRequest request;
  request.set_model_name("flags");
  std::string raw;
  for (int i = 0; i < 100; ++i) raw += static_cast<char>(i % 5 == 0 ? 0 : i);
  AddInput(&request, "x", "BOOL", {100}, raw);
  const InferAnswer answer = Infer(server, request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.response.raw_output_contents_size(), 2);
  const std::string& y = answer.response.raw_output_contents(0);
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(y[i], i % 5 == 0 ? 0 : 1) << i;
  EXPECT_EQ(answer.response.raw_output_contents(1),
            std::string("\x01\x01\x00\x01", 4));
}

// As Evaluate tells it, before anything is made for the inputs that a model
// declares: those may be far more than are given.
TEST(InferTest, OneOfManyMissingInputsIsNamedFirst) {
  constexpr int kInputs = 2'000;
  ModelFolder models;
  onnx::ModelProto model = EmptyModel();
  for (int i = 0; i < kInputs; ++i) {
    AddValue(model.mutable_graph()->add_input(), "x" + std::to_string(i),
             onnx::TensorProto::FLOAT, {"N"});
  }
  AddValue(model.mutable_graph()->add_output(), "y", onnx::TensorProto::FLOAT,
           {"N"});
  AddNode(&model, "Identity", {"x0"}, {"y"});
  models.Write("many", model);
  TestServer server(
      [&](ServerOptions& o) { o.model_repository = models.path(); });
  inference::ModelInferRequest request;
  request.set_model_name("many");
  AddInput(&request, "x0", "FP64", {1}, Bytes<double>({1}));  // takes FP32
  AddInput(&request, "x2", "FP32", {1}, Bytes<float>({1}));
  const grpc::Status status = Infer(server, request).status;
  EXPECT_TRUE(Refused(status, grpc::StatusCode::INVALID_ARGUMENT,
                      "input \"x1\" of model \"many\" is missing"));
  EXPECT_EQ(Field(FromGrpcStatus(status)), "inputs");
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
      : server_(
            [](ServerOptions& o) { o.model_repository = TestData("data"); }) {}

  static inference::ModelInferRequest Request(int64_t samples) {
    const std::string bytes = ReadTestFile(TestData("data/digits_samples.f32"));
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
  // Each as the reference evaluator has it.
  const std::vector<float> expected =
      Values<float>(ReadTestFile(TestData("data/digits_probabilities.f32")));
  EXPECT_THAT(Values<float>(answer.response.raw_output_contents(0)),
              ::testing::Pointwise(::testing::FloatNear(1e-5f), expected));
  const std::vector<int64_t> digits =
      Values<int64_t>(answer.response.raw_output_contents(1));
  ASSERT_EQ(digits.size(), 360u);
  std::istringstream labels(ReadTestFile(TestData("data/digits_labels.txt")));
  int right = 0;
  for (size_t i = 0; i < digits.size(); ++i) {
    const auto row = expected.begin() + static_cast<std::ptrdiff_t>(10 * i);
    EXPECT_EQ(digits[i], std::max_element(row, row + 10) - row) << i;
    int64_t label = -1;
    labels >> label;
    right += digits[i] == label ? 1 : 0;
  }
  EXPECT_EQ(right, 354);
}

TEST_F(DigitsTest, ReturnsTheOutputsAskedForInTheirOrder) {
  inference::ModelInferRequest request = Request(2);
  InferAnswer answer = Infer(server_, request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.response.raw_output_contents_size(), 2);
  const std::string probabilities = answer.response.raw_output_contents(0);
  const std::string digits = answer.response.raw_output_contents(1);
  EXPECT_EQ(probabilities.size(), 80u);
  EXPECT_EQ(digits.size(), 16u);

  request.add_outputs()->set_name("digit");
  answer = Infer(server_, request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.response.outputs_size(), 1);
  EXPECT_EQ(answer.response.outputs(0).name(), "digit");
  EXPECT_THAT(answer.response.raw_output_contents(), ElementsAre(digits));

  request.add_outputs()->set_name("probabilities");
  answer = Infer(server_, request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.response.outputs_size(), 2);
  EXPECT_EQ(answer.response.outputs(0).name(), "digit");
  EXPECT_EQ(answer.response.outputs(1).name(), "probabilities");
  EXPECT_THAT(answer.response.raw_output_contents(),
              ElementsAre(digits, probabilities));
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

inference::InferParameter Bool(bool value) {
  inference::InferParameter parameter;
  parameter.set_bool_param(value);
  return parameter;
}

inference::InferParameter Int64(int64_t value) {
  inference::InferParameter parameter;
  parameter.set_int64_param(value);
  return parameter;
}

inference::InferParameter Uint64(uint64_t value) {
  inference::InferParameter parameter;
  parameter.set_uint64_param(value);
  return parameter;
}

inference::InferParameter Text(const std::string& value) {
  inference::InferParameter parameter;
  parameter.set_string_param(value);
  return parameter;
}

inference::InferParameter Double(double value) {
  inference::InferParameter parameter;
  parameter.set_double_param(value);
  return parameter;
}

struct Parameter {
  const char* name;
  inference::InferParameter value;
};

TEST_F(DigitsTest, PassesParametersThatAskForNothing) {
  for (const Parameter& parameter : std::vector<Parameter>{
           // In every request of perf_analyzer. One request has one response
           // here, which is the final one and not empty.
           {"triton_enable_empty_final_response", Bool(false)},
           {"triton_enable_empty_final_response", Bool(true)},
           {"sequence_id", Int64(0)},
           {"sequence_id", Uint64(0)},
           {"sequence_id", Text("")},
           {"sequence_start", Bool(false)},
           {"sequence_end", Bool(false)},
           {"binary_data_output", Bool(true)},
           {"priority", Int64(0)},
           {"priority", Int64(INT64_MAX)},
           {"priority", Uint64(UINT64_MAX)},
           {"timeout", Int64(0)},
           {"timeout", Int64(INT64_MAX)},
           {"timeout", Uint64(1)},
           {"my_own", Bool(true)},
           {"my_own", Double(.5)}}) {
    SCOPED_TRACE(std::string(parameter.name) + " " +
                 parameter.value.ShortDebugString());
    inference::ModelInferRequest request = Request(1);
    (*request.mutable_parameters())[parameter.name] = parameter.value;
    const InferAnswer answer = Infer(server_, request);
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.response.outputs_size(), 2);
    EXPECT_TRUE(answer.response.parameters().empty());
  }
  inference::ModelInferRequest request = Request(1);
  auto* output = request.add_outputs();
  output->set_name("digit");
  (*output->mutable_parameters())["classification"] = Int64(0);
  EXPECT_TRUE(Infer(server_, request).status.ok());
}

TEST_F(DigitsTest, RefusesParametersThatItCannotFollow) {
  const auto invalid = grpc::StatusCode::INVALID_ARGUMENT;
  const auto unimplemented = grpc::StatusCode::UNIMPLEMENTED;
  struct Case {
    Parameter parameter;
    grpc::StatusCode code;
    const char* word;
  };
  for (const Case& c : std::vector<Case>{
           {{"triton_x", Bool(true)}, invalid, "triton_x"},
           {{"triton_enable_empty_final_response", Int64(0)}, invalid, "bool"},
           {{"sequence_id", Int64(1)}, unimplemented, "sequence_id"},
           {{"sequence_id", Text("a")}, unimplemented, "sequence_id"},
           {{"sequence_id", Bool(false)}, invalid, "sequence_id"},
           {{"sequence_start", Bool(true)}, unimplemented, "sequence_start"},
           {{"sequence_end", Int64(0)}, invalid, "bool"},
           {{"priority", Int64(-1)}, invalid, "-1"},
           {{"priority", Text("high")}, invalid, "integer"},
           {{"priority", Double(1)}, invalid, "integer"},
           {{"priority", {}}, invalid, "integer"},
           {{"timeout", Int64(-5)}, invalid, "microseconds"},
           {{"timeout", Text("5ms")}, invalid, "integer"},
           {{"timeout", Bool(true)}, invalid, "integer"}}) {
    SCOPED_TRACE(std::string(c.parameter.name) + " " +
                 c.parameter.value.ShortDebugString());
    inference::ModelInferRequest request = Request(1);
    (*request.mutable_parameters())[c.parameter.name] = c.parameter.value;
    const grpc::Status status = Infer(server_, request).status;
    EXPECT_TRUE(Refused(status, c.code, c.parameter.name));
    EXPECT_TRUE(Refused(status, c.code, c.word));
    EXPECT_EQ(Field(FromGrpcStatus(status)),
              std::string("parameters.") + c.parameter.name);
  }
  inference::ModelInferRequest request = Request(1);
  (*request.mutable_inputs(0)->mutable_parameters())["shared_memory_region"] =
      Text("r");
  EXPECT_TRUE(Refused(Infer(server_, request).status, unimplemented,
                      "shared_memory_region"));
  request = Request(1);
  auto* output = request.add_outputs();
  output->set_name("digit");
  (*output->mutable_parameters())["classification"] = Int64(3);
  EXPECT_TRUE(
      Refused(Infer(server_, request).status, unimplemented, "classification"));
}

// s = a + b, both float [N]; p = a, q = b.
onnx::ModelProto PairModel() {
  onnx::ModelProto model = EmptyModel();
  for (const char* name : {"a", "b"}) {
    AddValue(model.mutable_graph()->add_input(), name, onnx::TensorProto::FLOAT,
             {"N"});
  }
  for (const char* name : {"s", "p", "q"}) {
    AddValue(model.mutable_graph()->add_output(), name,
             onnx::TensorProto::FLOAT, {"N"});
  }
  AddNode(&model, "Add", {"a", "b"}, {"s"}, "sum");
  AddNode(&model, "Identity", {"a"}, {"p"});
  AddNode(&model, "Identity", {"b"}, {"q"});
  return model;
}

inference::ModelInferRequest PairRequest(const std::vector<float>& a,
                                         const std::vector<float>& b) {
  inference::ModelInferRequest request;
  request.set_model_name("pair");
  AddInput(&request, "a", "FP32", {static_cast<int64_t>(a.size())}, Bytes(a));
  AddInput(&request, "b", "FP32", {static_cast<int64_t>(b.size())}, Bytes(b));
  return request;
}

// t [N, 2], i [N, 2] -> t x i transposed: what CLIP does with its texts and
// pictures, whose extents it calls by one name.
TEST(ShapesTest, ExtentsOfOneNameMayDiffer) {
  onnx::ModelProto model = EmptyModel();
  for (const char* name : {"t", "i"}) {
    AddValue(model.mutable_graph()->add_input(), name, onnx::TensorProto::FLOAT,
             {"batch", "2"});
  }
  AddValue(model.mutable_graph()->add_output(), "scores",
           onnx::TensorProto::FLOAT, {"batch", "batch"});
  AddNode(&model, "Transpose", {"i"}, {"it"}, "turn");
  AddNode(&model, "MatMul", {"t", "it"}, {"scores"}, "compare");
  ModelFolder models;
  models.Write("clip", model);
  models.Write("pair", PairModel());
  TestServer server(
      [&](ServerOptions& o) { o.model_repository = models.path(); });
  inference::ModelInferRequest request;
  request.set_model_name("clip");
  AddInput(&request, "t", "FP32", {3, 2}, Bytes<float>({1, 0, 0, 1, 1, 1}));
  AddInput(&request, "i", "FP32", {2, 2}, Bytes<float>({5, 6, 7, 8}));
  const InferAnswer answer = Infer(server, request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_THAT(answer.response.outputs(0).shape(), ElementsAre(3, 2));
  EXPECT_THAT(Values<float>(answer.response.raw_output_contents(0)),
              ElementsAre(5, 7, 6, 8, 11, 15));

  // An operator that needs them equal says so, and one that broadcasts does.
  EXPECT_TRUE(Refused(Infer(server, PairRequest({1, 2}, {3, 4, 5})).status,
                      grpc::StatusCode::INVALID_ARGUMENT,
                      "\"sum\" (Add): shapes [2] and [3]"));
  const InferAnswer broadcast = Infer(server, PairRequest({1}, {3, 4, 5}));
  ASSERT_TRUE(broadcast.status.ok()) << broadcast.status.error_message();
  EXPECT_THAT(Values<float>(broadcast.response.raw_output_contents(0)),
              ElementsAre(4, 5, 6));
}

TEST(ShapesTest, ConfiguredDimsAreWhatIsTaken) {
  ModelFolder models;
  models.Write("pair", PairModel());
  models.WriteConfig("pair", R"(
      input [ { name: "a" data_type: TYPE_FP32 dims: [ 2 ] },
              { name: "b" data_type: TYPE_FP32 dims: [ -1 ] } ])");
  TestServer server(
      [&](ServerOptions& o) { o.model_repository = models.path(); });
  EXPECT_TRUE(Infer(server, PairRequest({1, 2}, {3, 4})).status.ok());
  EXPECT_TRUE(Infer(server, PairRequest({1, 2}, {3})).status.ok());
  grpc::Status status = Infer(server, PairRequest({1, 2, 3}, {3, 4, 5})).status;
  for (const char* word : {"\"a\"", "\"pair\"", "[3]", "[2]"}) {
    EXPECT_TRUE(Refused(status, grpc::StatusCode::INVALID_ARGUMENT, word));
  }
  EXPECT_EQ(Field(FromGrpcStatus(status)), "inputs[0].shape");
  inference::ModelInferRequest request = PairRequest({1, 2}, {3, 4});
  request.mutable_inputs(1)->add_shape(1);
  status = Infer(server, request).status;
  EXPECT_TRUE(Refused(status, grpc::StatusCode::INVALID_ARGUMENT, "[2,1]"));
  EXPECT_EQ(Field(FromGrpcStatus(status)), "inputs[1].shape");

  // Evaluate takes the model as it is served.
  v1::EvaluateRequest evaluate;
  evaluate.mutable_graph()->mutable_model()->set_name("pair");
  AddInput(&evaluate, "a", v1::DATA_TYPE_FLOAT, {3}, Bytes<float>({1, 2, 3}));
  AddInput(&evaluate, "b", v1::DATA_TYPE_FLOAT, {3}, Bytes<float>({1, 2, 3}));
  status = Evaluate(server, evaluate).status;
  EXPECT_TRUE(Refused(status, grpc::StatusCode::INVALID_ARGUMENT, "[2]"));
  EXPECT_EQ(Field(FromGrpcStatus(status)), "inputs[0]");
}

TEST(ShapesTest, TheBatchIsOne) {
  ModelFolder models;
  models.Write("pair", PairModel());
  models.WriteConfig("pair", "max_batch_size: 4");
  TestServer server(
      [&](ServerOptions& o) { o.model_repository = models.path(); });
  EXPECT_TRUE(Infer(server, PairRequest({1, 2}, {3, 4})).status.ok());
  // Broadcast it would, but a batch of one and one of three are no batch.
  const grpc::Status status = Infer(server, PairRequest({1}, {3, 4, 5})).status;
  for (const char* word : {"\"a\"", "\"b\"", "1", "3"}) {
    EXPECT_TRUE(Refused(status, grpc::StatusCode::INVALID_ARGUMENT, word));
  }
  EXPECT_EQ(Field(FromGrpcStatus(status)), "inputs[1].shape");
  inference::ModelInferRequest scalar = PairRequest({1}, {3});
  scalar.mutable_inputs(0)->clear_shape();
  EXPECT_TRUE(Refused(Infer(server, scalar).status,
                      grpc::StatusCode::INVALID_ARGUMENT, "[-1]"));
}

}  // namespace
}  // namespace weir::testing
