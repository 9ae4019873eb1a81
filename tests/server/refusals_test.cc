// What a refusal tells: which field of the request is at fault, and whether the
// caller or the server is short of something.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "kernels/base/error_info.h"
#include "tests/server/model_folder.h"
#include "tests/server/server_fixture.h"

namespace weir::testing {
namespace {

using grpc::StatusCode;
using ::testing::HasSubstr;

class RefusalsTest : public ::testing::Test {
 protected:
  RefusalsTest()
      : server_([this](ServerOptions& o) {
          models_.Write("gather", GatherModel());
          o.model_repository = models_.path();
        }) {}

  // Of Evaluate and, as far as it says the same, of Explain.
  void ExpectRefused(const v1::EvaluateRequest& request, StatusCode code,
                     const std::string& part, const std::string& field) {
    grpc::Status status = Evaluate(server_, request).status;
    EXPECT_TRUE(Refused(status, code, part));
    EXPECT_EQ(Field(FromGrpcStatus(status)), field);
    if (field.rfind("graph", 0) != 0) return;
    v1::ExplainRequest explain;
    *explain.mutable_graph() = request.graph();
    for (const v1::NamedTensor& input : request.inputs()) {
      v1::NamedTensorSpec* spec = explain.add_inputs();
      spec->set_name(input.name());
      *spec->mutable_spec() = input.value().spec();
    }
    grpc::ClientContext context;
    SetPatience(&context);
    v1::ExplainResponse response;
    status = server_.catalog().Explain(&context, explain, &response);
    EXPECT_TRUE(Refused(status, code, part));
    EXPECT_EQ(Field(FromGrpcStatus(status)), field);
  }

  ModelFolder models_;
  TestServer server_;
};

// y = x + w, in this order.
v1::EvaluateRequest Sum() {
  return Program(R"(
      inputs { name: "x" spec { dtype: DATA_TYPE_FLOAT shape: 2 } }
      inputs { name: "w" spec { dtype: DATA_TYPE_FLOAT shape: 2 } }
      nodes { op: "Add" inputs: "x" inputs: "w" outputs: "y" }
      outputs: "y")");
}

const std::string kTwo = Bytes<float>({1, 2});

// The caller's order, which is not the graph's.
TEST_F(RefusalsTest, FieldsCountTheRequestsInputs) {
  v1::EvaluateRequest request = Sum();
  AddInput(&request, "w", v1::DATA_TYPE_FLOAT, {2}, kTwo.substr(1));
  AddInput(&request, "x", v1::DATA_TYPE_FLOAT, {2}, kTwo);
  ExpectRefused(request, StatusCode::INVALID_ARGUMENT, "\"w\"", "inputs[0]");
  request.mutable_inputs(0)->mutable_value()->set_raw(kTwo);
  EXPECT_TRUE(Evaluate(server_, request).status.ok());

  // Its shape is no longer the declared one.
  request.mutable_inputs(0)->mutable_value()->mutable_spec()->set_shape(0, 1);
  request.mutable_inputs(0)->mutable_value()->set_raw(kTwo.substr(4));
  ExpectRefused(request, StatusCode::INVALID_ARGUMENT, "input \"w\"",
                "inputs[0]");
  // Nor its type.
  request = Sum();
  AddInput(&request, "w", v1::DATA_TYPE_FLOAT, {2}, kTwo);
  AddInput(&request, "x", v1::DATA_TYPE_INT32, {2}, kTwo);
  ExpectRefused(request, StatusCode::INVALID_ARGUMENT, "input \"x\"",
                "inputs[1]");

  inference::ModelInferRequest infer;
  infer.set_model_name("gather");
  AddInput(&infer, "i", "INT64", {1}, "1234567");
  AddInput(&infer, "x", "FP32", {2}, kTwo);
  grpc::Status status = Infer(server_, infer).status;
  EXPECT_TRUE(Refused(status, StatusCode::INVALID_ARGUMENT, "\"i\""));
  EXPECT_EQ(Field(FromGrpcStatus(status)), "raw_input_contents[0]");
  infer.set_raw_input_contents(0, Bytes<int64_t>({0}));
  infer.set_raw_input_contents(1, kTwo + "x");
  status = Infer(server_, infer).status;
  EXPECT_TRUE(Refused(status, StatusCode::INVALID_ARGUMENT, "\"x\""));
  EXPECT_EQ(Field(FromGrpcStatus(status)), "raw_input_contents[1]");
}

TEST_F(RefusalsTest, FieldsOfAGraphBeginWithIt) {
  const std::string graph = R"(
      inputs { name: "x" spec { dtype: DATA_TYPE_FLOAT shape: 2 } }
      nodes { op: "Relu" inputs: "x" outputs: "y" })";
  v1::EvaluateRequest request = Program(graph + "outputs: \"nope\"");
  AddInput(&request, "x", v1::DATA_TYPE_FLOAT, {2}, kTwo);
  ExpectRefused(request, StatusCode::INVALID_ARGUMENT, "nope",
                "graph.definition.outputs[0]");

  request = Program(graph + "outputs: \"y\"");
  AddInput(&request, "x", v1::DATA_TYPE_FLOAT, {2}, kTwo);
  v1::GraphDefinition* definition =
      request.mutable_graph()->mutable_definition();
  *definition->add_inputs() = definition->inputs(0);
  ExpectRefused(request, StatusCode::INVALID_ARGUMENT, "twice",
                "graph.definition.inputs[1]");

  // What has no field of its own is the graph's all the same.
  request.mutable_graph()->set_onnx_model("garbage");
  ExpectRefused(request, StatusCode::INVALID_ARGUMENT, "no ONNX model",
                "graph.onnx_model");
  request = Program(R"(
      inputs { name: "x" spec { dtype: DATA_TYPE_FLOAT shape: 2 } }
      nodes { name: "odd" op: "Unheard" inputs: "x" outputs: "y" }
      outputs: "y")");
  ExpectRefused(request, StatusCode::UNIMPLEMENTED, "odd", "graph.definition");
}

// Neither the sum of "y" and "y" nor one of them.
TEST_F(RefusalsTest, AnOutputIsNamedOnce) {
  v1::EvaluateRequest request = Program(R"(
      inputs { name: "x" spec { dtype: DATA_TYPE_FLOAT shape: 2 } }
      nodes { op: "Relu" inputs: "x" outputs: "y" }
      outputs: "y" outputs: "y")");
  AddInput(&request, "x", v1::DATA_TYPE_FLOAT, {2}, kTwo);
  ExpectRefused(request, StatusCode::INVALID_ARGUMENT,
                "output \"y\" is listed twice", "graph.definition.outputs[1]");
  onnx::ModelProto model = GatherModel();
  *model.mutable_graph()->add_output() = model.graph().output(0);
  request.mutable_graph()->set_onnx_model(model.SerializeAsString());
  ExpectRefused(request, StatusCode::INVALID_ARGUMENT,
                "output \"y\" is listed twice", "graph.onnx_model");
}

TEST_F(RefusalsTest, RaggedBatchesArePassedOverNowhere) {
  const auto ragged = [](v1::TensorSpec* spec) {
    spec->add_sample_shapes()->add_dims(1);
  };
  v1::EvaluateRequest good = Program(R"(
      inputs { name: "x" spec { dtype: DATA_TYPE_FLOAT shape: 2 } }
      constants { name: "c" value {
        spec { dtype: DATA_TYPE_FLOAT shape: 1 } raw: "\x00\x00\x80\x3f" } }
      nodes { op: "Constant" outputs: "k" attributes { name: "value" tensor {
        spec { dtype: DATA_TYPE_FLOAT shape: 1 } raw: "\x00\x00\x80\x3f" } } }
      nodes { op: "Add" inputs: "x" inputs: "c" outputs: "s" }
      nodes { op: "Add" inputs: "s" inputs: "k" outputs: "y" }
      outputs: "y")");
  AddInput(&good, "x", v1::DATA_TYPE_FLOAT, {2}, kTwo);
  EXPECT_TRUE(Evaluate(server_, good).status.ok());
  const auto definition = [](v1::EvaluateRequest& request) {
    return request.mutable_graph()->mutable_definition();
  };
  v1::EvaluateRequest request = good;
  ragged(definition(request)->mutable_inputs(0)->mutable_spec());
  ExpectRefused(request, StatusCode::UNIMPLEMENTED, "ragged",
                "graph.definition.inputs[0].spec.sample_shapes");
  request = good;
  ragged(definition(request)
             ->mutable_constants(0)
             ->mutable_value()
             ->mutable_spec());
  ExpectRefused(request, StatusCode::UNIMPLEMENTED, "constant \"c\"",
                "graph.definition.constants[0].value.spec.sample_shapes");
  request = good;
  ragged(definition(request)
             ->mutable_nodes(0)
             ->mutable_attributes(0)
             ->mutable_tensor()
             ->mutable_spec());
  ExpectRefused(
      request, StatusCode::UNIMPLEMENTED, "ragged",
      "graph.definition.nodes[0].attributes[0].tensor.spec.sample_shapes");
  request = good;
  ragged(request.mutable_inputs(0)->mutable_value()->mutable_spec());
  ExpectRefused(request, StatusCode::UNIMPLEMENTED, "ragged",
                "inputs[0].value.spec.sample_shapes");
}

TEST_F(RefusalsTest, OpsetsThatItDoesNotKnowAreTheServersLack) {
  for (const int opset : {1, 10, 26, 1000, 1001, 2'000'000'000}) {
    SCOPED_TRACE(opset);
    v1::EvaluateRequest request = IdentityRequest();
    request.mutable_graph()->mutable_definition()->set_opset(opset);
    ExpectRefused(request, StatusCode::UNIMPLEMENTED,
                  "this server knows 11 to 25; export the model with one",
                  "graph.definition.opset");
  }
  v1::EvaluateRequest request = IdentityRequest();
  request.mutable_graph()->mutable_definition()->set_opset(-1);
  ExpectRefused(request, StatusCode::INVALID_ARGUMENT,
                "opset -1 makes no sense; this server knows 11 to 25",
                "graph.definition.opset");
}

// Neither the device nor an operator is at fault, and converting it helps.
TEST_F(RefusalsTest, AModelOfAnOldOpsetIsToldHowToComeToANewOne) {
  onnx::ModelProto model = IdentityModel(onnx::TensorProto::FLOAT);
  model.mutable_opset_import(0)->set_version(9);
  v1::EvaluateRequest request = IdentityRequest();
  request.mutable_graph()->set_onnx_model(model.SerializeAsString());
  const grpc::Status status = Evaluate(server_, request).status;
  EXPECT_EQ(status.error_code(), StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(status.error_message(),
            "opset 9: this server knows 11 to 25; export the model with one of "
            "these, or convert it with onnx.version_converter");
}

// They may be an operator's that weir knows in part.
TEST_F(RefusalsTest, UnknownAttributesAreTheServersLack) {
  v1::EvaluateRequest request = Program(R"(
      inputs { name: "x" }
      nodes { name: "odd" op: "Relu" inputs: "x" outputs: "y"
              attributes { name: "speed" i: 7 } }
      outputs: "y")");
  *request.add_inputs() = IdentityRequest().inputs(0);
  ExpectRefused(request, StatusCode::UNIMPLEMENTED,
                "does not know attribute \"speed\"; \"weir ops Relu\" lists "
                "those that it does",
                "graph.definition");
}

// Opset 24 gave Cast one that is about types which weir does not have.
TEST_F(RefusalsTest, CastMayHaveARoundMode) {
  v1::EvaluateRequest request = Program(R"(
      inputs { name: "x" }
      nodes { op: "Cast" inputs: "x" outputs: "y"
              attributes { name: "to" i: 10 }
              attributes { name: "round_mode" s: "up" } }
      outputs: "y")");
  *request.add_inputs() = IdentityRequest().inputs(0);
  const EvaluateAnswer answer = Evaluate(server_, request);
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
}

TEST_F(RefusalsTest, ConstantsAreNamed) {
  v1::EvaluateRequest request = Program(R"(
      inputs { name: "x" }
      constants { name: "weights" value { spec { dtype: DATA_TYPE_FLOAT }
                                          raw: "\x00\x00\x00" } }
      nodes { op: "Add" inputs: "x" inputs: "weights" outputs: "y" }
      outputs: "y")");
  *request.add_inputs() = IdentityRequest().inputs(0);
  ExpectRefused(request, StatusCode::INVALID_ARGUMENT,
                "constant \"weights\": has 3 bytes",
                "graph.definition.constants[0].value.raw");
}

// One that is no type is the caller's fault, one that weir lacks is not.
TEST_F(RefusalsTest, ElementTypesThatAreNone) {
  v1::EvaluateRequest request = IdentityRequest();
  request.mutable_inputs(0)->mutable_value()->mutable_spec()->clear_dtype();
  ExpectRefused(request, StatusCode::INVALID_ARGUMENT, "dtype is not set",
                "inputs[0].value.spec.dtype");
  v1::ExplainRequest explain;
  *explain.mutable_graph() = request.graph();
  explain.add_inputs()->set_name("x");
  grpc::ClientContext context;
  SetPatience(&context);
  v1::ExplainResponse response;
  const grpc::Status status =
      server_.catalog().Explain(&context, explain, &response);
  EXPECT_TRUE(
      Refused(status, StatusCode::INVALID_ARGUMENT, "dtype is not set"));
  EXPECT_EQ(Field(FromGrpcStatus(status)), "inputs[0].spec.dtype");

  onnx::ModelProto model = GatherModel();
  model.mutable_graph()
      ->mutable_input(0)
      ->mutable_type()
      ->mutable_tensor_type()
      ->set_elem_type(0);
  request.mutable_graph()->set_onnx_model(model.SerializeAsString());
  request.clear_inputs();
  ExpectRefused(request, StatusCode::INVALID_ARGUMENT, "element type",
                "graph.onnx_model");
}

TEST_F(RefusalsTest, ParametersOfATensorHaveItsPath) {
  inference::ModelInferRequest request;
  request.set_model_name("gather");
  AddInput(&request, "x", "FP32", {2}, kTwo);
  AddInput(&request, "i", "INT64", {1}, Bytes<int64_t>({0}));
  (*request.mutable_inputs(1)->mutable_parameters())["shared_memory_region"]
      .set_string_param("r");
  grpc::Status status = Infer(server_, request).status;
  EXPECT_TRUE(Refused(status, StatusCode::UNIMPLEMENTED, "\"i\""));
  EXPECT_EQ(Field(FromGrpcStatus(status)),
            "inputs[1].parameters.shared_memory_region");
  request.mutable_inputs(1)->clear_parameters();
  auto& parameters = *request.add_outputs()->mutable_parameters();
  request.mutable_outputs(0)->set_name("y");
  parameters["classification"].set_int64_param(1);
  status = Infer(server_, request).status;
  EXPECT_TRUE(Refused(status, StatusCode::UNIMPLEMENTED, "\"y\""));
  EXPECT_EQ(Field(FromGrpcStatus(status)),
            "outputs[0].parameters.classification");
  // None is none, in every form.
  parameters["classification"].set_uint64_param(0);
  EXPECT_TRUE(Infer(server_, request).status.ok());
  parameters["classification"].set_bool_param(false);
  EXPECT_TRUE(Infer(server_, request).status.ok());
  parameters["classification"].set_string_param("");
  EXPECT_TRUE(Infer(server_, request).status.ok());
  parameters["shared_memory_region"].set_string_param("");
  parameters["shared_memory_offset"].set_int64_param(0);
  parameters["shared_memory_byte_size"].set_uint64_param(0);
  EXPECT_TRUE(Infer(server_, request).status.ok());
  parameters["classification"].clear_parameter_choice();
  EXPECT_TRUE(Refused(Infer(server_, request).status, StatusCode::UNIMPLEMENTED,
                      "classification"));
}

// The message is whole; what it brings is too much.
TEST_F(RefusalsTest, TypedContentsThatDoNotFitAreNotMalformed) {
  inference::ModelInferRequest request;
  request.set_model_name("gather");
  AddInput(&request, "x", "FP32", {2}, "");
  AddInput(&request, "i", "INT64", {1}, "");
  request.clear_raw_input_contents();
  request.mutable_inputs(1)->mutable_contents()->add_int64_contents(0);
  for (int i = 0; i < 3; ++i) {
    request.mutable_inputs(0)->mutable_contents()->add_fp32_contents(1);
  }
  const grpc::Status status = Infer(server_, request).status;
  EXPECT_TRUE(Refused(status, StatusCode::INVALID_ARGUMENT,
                      "input \"x\": there are more elements than"));
  EXPECT_EQ(Field(FromGrpcStatus(status)), "inputs[0].contents");
}

// What a reply would have is known before it is computed; of text, before it is
// written out. Either way the output is named, and the limit with its flag.
TEST(ReplySizeTest, ATensorIsRefusedBeforeItIsComputed) {
  TestServer server([](ServerOptions& o) { o.max_message_bytes = 1 << 20; });
  v1::EvaluateRequest request = Program(R"(
      inputs { name: "shape" spec { dtype: DATA_TYPE_INT64 shape: 1 } }
      nodes { op: "ConstantOfShape" inputs: "shape" outputs: "y" }
      nodes { op: "Shape" inputs: "y" outputs: "z" }
      outputs: "y" outputs: "z")");
  AddInput(&request, "shape", v1::DATA_TYPE_INT64, {1},
           Bytes<int64_t>({1'000'000}));
  const auto leases = [&] { return server.Leases(); };
  const double before = leases();
  const grpc::Status status = Evaluate(server, request).status;
  EXPECT_TRUE(Refused(status, StatusCode::RESOURCE_EXHAUSTED,
                      "output \"y\" has 4000000 bytes"));
  EXPECT_TRUE(Refused(status, StatusCode::RESOURCE_EXHAUSTED,
                      "1048576, --max-message-bytes"));
  const absl::Status error = FromGrpcStatus(status);
  EXPECT_EQ(Reason(error), "REPLY_TOO_LARGE");
  EXPECT_THAT(Metadata(error),
              ::testing::UnorderedElementsAre(
                  ::testing::Pair("bytes", "4000008"),
                  ::testing::Pair("limit", "1048576"),
                  ::testing::Pair("flag", "--max-message-bytes")));
  EXPECT_EQ(leases(), before);
  // What is not asked for is not counted.
  request.add_outputs()->set_name("z");
  EXPECT_TRUE(Evaluate(server, request).status.ok());
  EXPECT_TRUE(server.Settles());
}

// 400 KB that name 800 MB: nobody may build them.
TEST(ReplySizeTest, TextIsCountedBeforeItIsWritten) {
  onnx::ModelProto model = EmptyModel();
  AddValue(model.mutable_graph()->add_input(), "s", onnx::TensorProto::STRING,
           {"N"});
  AddValue(model.mutable_graph()->add_input(), "i", onnx::TensorProto::INT64,
           {"M"});
  AddValue(model.mutable_graph()->add_output(), "t", onnx::TensorProto::STRING,
           {"M"});
  AddNode(&model, "Gather", {"s", "i"}, {"t"}, "pick");
  for (const char* copy : {"u", "v"}) {
    AddValue(model.mutable_graph()->add_output(), copy,
             onnx::TensorProto::STRING, {"M"});
    AddNode(&model, "Identity", {"t"}, {copy});
  }
  ModelFolder models;
  models.Write("texts", model);
  TestServer server([&](ServerOptions& o) {
    o.model_repository = models.path();
    o.max_message_bytes = 1 << 20;
  });
  const std::string text = BytesElements({std::string(200'000, 'x')});
  const auto infer = [&](int64_t count) {
    inference::ModelInferRequest request;
    request.set_model_name("texts");
    AddInput(&request, "s", "BYTES", {1}, text);
    AddInput(&request, "i", "INT64", {count},
             std::string(static_cast<size_t>(count) * sizeof(int64_t), '\0'));
    return request;
  };
  const auto expect_refused = [&](const grpc::Status& status,
                                  const std::string& part) {
    EXPECT_TRUE(Refused(status, StatusCode::RESOURCE_EXHAUSTED, part));
    EXPECT_TRUE(
        Refused(status, StatusCode::RESOURCE_EXHAUSTED, "--max-message-bytes"));
    EXPECT_EQ(Reason(FromGrpcStatus(status)), "REPLY_TOO_LARGE");
  };
  EXPECT_TRUE(Infer(server, infer(1)).status.ok());
  expect_refused(Infer(server, infer(4000)).status,
                 "output \"t\" has 800016000 bytes");
  // Each of the three would do, all do not.
  expect_refused(Infer(server, infer(2)).status, "1200024 bytes");
  inference::ModelInferRequest one = infer(2);
  one.add_outputs()->set_name("v");
  EXPECT_TRUE(Infer(server, one).status.ok());

  v1::EvaluateRequest evaluate;
  evaluate.mutable_graph()->set_onnx_model(model.SerializeAsString());
  AddInput(&evaluate, "s", v1::DATA_TYPE_STRING, {1}, text);
  AddInput(&evaluate, "i", v1::DATA_TYPE_INT64, {4000},
           std::string(4000 * sizeof(int64_t), '\0'));
  expect_refused(Evaluate(server, evaluate).status,
                 "output \"t\" has 800016000 bytes");
  EXPECT_TRUE(ServesOn(server));
  EXPECT_TRUE(server.Settles());
}

}  // namespace
}  // namespace weir::testing
