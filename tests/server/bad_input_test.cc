// What a hostile or broken client may send: each gets a precise status, and the
// next request is served.
#include <gmock/gmock.h>

#include <string>

#include "kernels/base/error_info.h"
#include "tests/server/model_folder.h"
#include "tests/server/server_fixture.h"

namespace weir::testing {
namespace {

using grpc::StatusCode;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class BadInputTest : public ::testing::Test {
 protected:
  BadInputTest()
      : server_([this](ServerOptions& o) {
          models_.Write("floats", IdentityModel(onnx::TensorProto::FLOAT));
          models_.Write("strings", IdentityModel(onnx::TensorProto::STRING));
          models_.Write("gather", GatherModel());
          o.model_repository = models_.path();
        }) {}
  ~BadInputTest() override {
    EXPECT_TRUE(ServesOn(server_));
    EXPECT_EQ(server_.Metric("weir_requests_in_flight"), 0);
    EXPECT_TRUE(server_.Settles());
  }

  // A request that is right but for what the test does to it.
  static inference::ModelInferRequest Good(const std::string& model) {
    inference::ModelInferRequest request;
    request.set_model_name(model);
    if (model == "strings") {
      AddInput(&request, "x", "BYTES", {2}, BytesElements({"a", "bc"}));
    } else {
      AddInput(&request, "x", "FP32", {3}, Bytes<float>({1, 2, 3}));
    }
    if (model == "gather") {
      AddInput(&request, "i", "INT64", {2}, Bytes<int64_t>({2, 0}));
    }
    return request;
  }

  void ExpectInvalid(const inference::ModelInferRequest& request,
                     const std::string& part, const std::string& field) {
    const grpc::Status status = Infer(server_, request).status;
    EXPECT_TRUE(Refused(status, StatusCode::INVALID_ARGUMENT, part));
    EXPECT_EQ(Field(FromGrpcStatus(status)), field);
    EXPECT_TRUE(Infer(server_, Good("floats")).status.ok());
  }

  void ExpectTooManyStrings(const grpc::Status& status,
                            const std::string& total,
                            const std::string& field) {
    EXPECT_TRUE(Refused(status, StatusCode::RESOURCE_EXHAUSTED, total));
    const absl::Status refused = FromGrpcStatus(status);
    EXPECT_EQ(Field(refused), field);
    EXPECT_EQ(Reason(refused), "TOO_MANY_TEXT_ELEMENTS");
    EXPECT_THAT(Metadata(refused),
                UnorderedElementsAre(Pair("elements", total),
                                     Pair("limit", "4194304")));
    EXPECT_TRUE(ServesOn(server_));
  }

  grpc::Status Decode(const std::string& picture) {
    v1::EvaluateRequest request = Program(R"(
        inputs { name: "file" spec { dtype: DATA_TYPE_UINT8 shape: -1 } }
        nodes { name: "decode" domain: "weir" op: "DecodeImage"
                inputs: "file" outputs: "picture" }
        outputs: "picture")");
    AddInput(&request, "file", v1::DATA_TYPE_UINT8,
             {static_cast<int64_t>(picture.size())}, picture);
    const grpc::Status status = Evaluate(server_, request).status;
    EXPECT_TRUE(ServesOn(server_));
    return status;
  }

  ModelFolder models_;
  TestServer server_;
};

uint32_t PngCrc(const std::string& bytes) {
  uint32_t crc = 0xffffffff;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320u : 0u);
    }
  }
  return ~crc;
}

std::string BigEndian(uint32_t value, int bytes = 4) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i) {
    text += static_cast<char>(value >> (8 * i));
  }
  return text;
}

// The same picture, claiming to be 60,000 x 60,000.
std::string HugePng() {
  std::string png = ReadTestFile(TestData("fuzz/image_decode_seeds/rgb.png"));
  png.replace(16, 8, BigEndian(60000) + BigEndian(60000));
  png.replace(29, 4, BigEndian(PngCrc(png.substr(12, 17))));
  return png;
}

std::string HugeJpeg() {
  std::string jpeg =
      ReadTestFile(TestData("fuzz/image_decode_seeds/baseline.jpg"));
  const size_t frame = jpeg.find("\xff\xc0");
  EXPECT_NE(frame, std::string::npos);
  jpeg.replace(frame + 5, 4, BigEndian(60000, 2) + BigEndian(60000, 2));
  return jpeg;
}

TEST_F(BadInputTest, Pictures) {
  const std::string jpeg = ReadTestFile(TestData("data/photo.jpg"));
  const std::string png =
      ReadTestFile(TestData("fuzz/image_decode_seeds/rgb.png"));
  EXPECT_TRUE(Decode(jpeg).ok());
  EXPECT_TRUE(Decode(png).ok());
  std::vector<std::string> pictures = {
      "",
      std::string(1000, 'g'),
      jpeg.substr(0, jpeg.size() / 2),
      jpeg.substr(0, 3) + std::string(2000, '\x5a'),
      png.substr(0, 33),
      png.substr(0, png.size() / 2),
      png.substr(0, 33) + std::string(200, '\x5a')};
  for (size_t size = 1; size <= 20; ++size) {
    pictures.push_back(jpeg.substr(0, size));
    pictures.push_back(png.substr(0, size));
  }
  const size_t damaged = pictures.size();
  pictures.push_back(HugePng());
  pictures.push_back(HugeJpeg());
  for (size_t i = 0; i < pictures.size(); ++i) {
    SCOPED_TRACE(i);
    const grpc::Status status = Decode(pictures[i]);
    EXPECT_TRUE(Refused(status, StatusCode::INVALID_ARGUMENT, "decode"));
    EXPECT_EQ(Reason(FromGrpcStatus(status)),
              i < damaged ? "CORRUPT_DATA" : "PICTURE_TOO_LARGE");
    // A run that failed because of the caller's data tells how far it came.
    EXPECT_TRUE(ReportOf(status).has_value());
  }
}

TEST_F(BadInputTest, ShapesThatNobodyCanHold) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{1'000'000'000'000},
        {1'000'000, 1'000'000},
        {int64_t{1} << 62, 4},
        {int64_t{1} << 32, int64_t{1} << 32},
        {-1},
        {-3, -1},
        {INT64_MIN}}) {
    SCOPED_TRACE(shape[0]);
    v1::EvaluateRequest request = IdentityRequest();
    auto* spec = request.mutable_inputs(0)->mutable_value()->mutable_spec();
    spec->clear_shape();
    for (int64_t extent : shape) spec->add_shape(extent);
    const grpc::Status status = Evaluate(server_, request).status;
    EXPECT_TRUE(Refused(status, StatusCode::INVALID_ARGUMENT, "\"x\""));
    EXPECT_EQ(Field(FromGrpcStatus(status)), "inputs[0]");

    for (const char* model : {"floats", "strings"}) {
      inference::ModelInferRequest infer = Good(model);
      infer.mutable_inputs(0)->clear_shape();
      for (int64_t extent : shape) infer.mutable_inputs(0)->add_shape(extent);
      ExpectInvalid(infer, "\"x\"", "inputs[0].shape");
    }
    inference::ModelInferRequest typed = Good("floats");
    typed.clear_raw_input_contents();
    auto* input = typed.mutable_inputs(0);
    input->mutable_contents()->add_fp32_contents(1);
    input->clear_shape();
    for (int64_t extent : shape) input->add_shape(extent);
    ExpectInvalid(typed, "\"x\"", "inputs[0].shape");
  }
}

// A program that would make a huge tensor out of little.
TEST_F(BadInputTest, OutputsThatNobodyCanHold) {
  v1::EvaluateRequest request = Program(R"(
      inputs { name: "shape" spec { dtype: DATA_TYPE_INT64 shape: 2 } }
      nodes { name: "grow" op: "ConstantOfShape" inputs: "shape" outputs: "y" }
      outputs: "y")");
  AddInput(&request, "shape", v1::DATA_TYPE_INT64, {2},
           Bytes<int64_t>({100'000, 100'000}));
  grpc::Status status = Evaluate(server_, request).status;
  EXPECT_TRUE(Refused(status, StatusCode::RESOURCE_EXHAUSTED, ""));
  EXPECT_TRUE(ServesOn(server_));
  request.clear_inputs();
  AddInput(&request, "shape", v1::DATA_TYPE_INT64, {2},
           Bytes<int64_t>({1'000'000, 1'000'000}));
  status = Evaluate(server_, request).status;
  EXPECT_TRUE(Refused(status, StatusCode::INVALID_ARGUMENT, "grow"));
  request.clear_inputs();
  AddInput(&request, "shape", v1::DATA_TYPE_INT64, {2},
           Bytes<int64_t>({-1, 2}));
  status = Evaluate(server_, request).status;
  EXPECT_TRUE(Refused(status, StatusCode::INVALID_ARGUMENT, "grow"));
  request.clear_inputs();
  AddInput(&request, "shape", v1::DATA_TYPE_INT64, {2},
           Bytes<int64_t>({int64_t{1} << 40, int64_t{1} << 40}));
  status = Evaluate(server_, request).status;
  EXPECT_TRUE(Refused(status, StatusCode::INVALID_ARGUMENT, "grow"));
}

TEST_F(BadInputTest, RawBytesOneShortOrOneLong) {
  for (int change : {-1, 1, -12}) {
    SCOPED_TRACE(change);
    std::string raw = Bytes<float>({1, 2, 3});
    raw.resize(static_cast<size_t>(static_cast<int>(raw.size()) + change));
    inference::ModelInferRequest request = Good("floats");
    request.set_raw_input_contents(0, raw);
    const grpc::Status status = Infer(server_, request).status;
    EXPECT_TRUE(Refused(status, StatusCode::INVALID_ARGUMENT, "x"));

    v1::EvaluateRequest evaluate = IdentityRequest();
    evaluate.mutable_inputs(0)->mutable_value()->set_raw(raw +
                                                         std::string(4, '\0'));
    EXPECT_TRUE(Refused(Evaluate(server_, evaluate).status,
                        StatusCode::INVALID_ARGUMENT, "x"));
    EXPECT_TRUE(ServesOn(server_));
  }
}

TEST_F(BadInputTest, ContentsThatDoNotFitTheInputs) {
  inference::ModelInferRequest request = Good("floats");
  request.add_raw_input_contents("more");
  ExpectInvalid(request, "2 raw contents are given for 1 inputs",
                "raw_input_contents");

  request = Good("floats");
  request.clear_raw_input_contents();
  ExpectInvalid(request, "neither contents nor", "inputs[0]");

  request = Good("floats");
  request.mutable_inputs(0)->mutable_contents()->add_fp32_contents(1);
  ExpectInvalid(request, "use one of them", "inputs[0].contents");

  // One input typed, the other raw.
  request = Good("gather");
  request.clear_raw_input_contents();
  for (float value : {1.f, 2.f, 3.f}) {
    request.mutable_inputs(0)->mutable_contents()->add_fp32_contents(value);
  }
  request.add_raw_input_contents(Bytes<int64_t>({0, 1}));
  ExpectInvalid(request, "use one of them", "inputs[0].contents");

  request = Good("floats");
  request.clear_raw_input_contents();
  request.mutable_inputs(0)->mutable_contents()->add_fp32_contents(1);
  ExpectInvalid(request, "1 elements, the shape 3", "inputs[0].contents");
  for (int i = 0; i < 3; ++i) {
    request.mutable_inputs(0)->mutable_contents()->add_fp32_contents(1);
  }
  ExpectInvalid(request, "more elements than", "inputs[0].contents");

  // No memory is taken for what the message cannot hold.
  request.mutable_inputs(0)->set_shape(0, 1 << 20);
  ExpectInvalid(request, "the shape asks for 1048576 elements",
                "inputs[0].contents");

  request = Good("floats");
  request.clear_raw_input_contents();
  for (int i = 0; i < 3; ++i) {
    request.mutable_inputs(0)->mutable_contents()->add_int_contents(1);
  }
  ExpectInvalid(request, "FP32 elements belong in contents.fp32_contents",
                "inputs[0].contents");
}

TEST_F(BadInputTest, StringsThatRunPastTheEnd) {
  const std::string good = BytesElements({"a", "bc"});
  std::string past = good;
  past[5] = 3;  // the second length
  std::string far = good;
  far.replace(5, 4, "\xff\xff\xff\xff");
  for (const std::string& raw :
       {past, far, good.substr(0, good.size() - 1), good.substr(0, 7),
        good + "x", std::string()}) {
    SCOPED_TRACE(raw.size());
    inference::ModelInferRequest request = Good("strings");
    request.set_raw_input_contents(0, raw);
    ExpectInvalid(request, "\"x\"", "raw_input_contents[0]");

    v1::EvaluateRequest evaluate;
    evaluate.mutable_graph()->mutable_model()->set_name("strings");
    AddInput(&evaluate, "x", v1::DATA_TYPE_STRING, {2}, raw);
    const grpc::Status status = Evaluate(server_, evaluate).status;
    EXPECT_TRUE(Refused(status, StatusCode::INVALID_ARGUMENT, "\"x\""));
    EXPECT_EQ(Field(FromGrpcStatus(status)), "inputs[0]");
    EXPECT_TRUE(ServesOn(server_));
  }
}

// Four bytes each on the wire, and far more once they are told apart.
TEST_F(BadInputTest, MoreStringsThanARequestMayHave) {
  constexpr int64_t kTooMany = (int64_t{1} << 22) + 1;
  const std::string raw(kTooMany * sizeof(uint32_t), '\0');
  inference::ModelInferRequest request = Good("strings");
  request.mutable_inputs(0)->set_shape(0, kTooMany);
  request.set_raw_input_contents(0, raw);
  ExpectTooManyStrings(Infer(server_, request).status, "4194305",
                       "raw_input_contents[0]");

  auto* input = request.mutable_inputs(0);
  request.clear_raw_input_contents();
  for (int64_t i = 0; i < kTooMany; ++i) {
    input->mutable_contents()->add_bytes_contents();
  }
  ExpectTooManyStrings(Infer(server_, request).status, "4194305",
                       "inputs[0].contents");

  v1::EvaluateRequest evaluate;
  evaluate.mutable_graph()->mutable_model()->set_name("strings");
  AddInput(&evaluate, "x", v1::DATA_TYPE_STRING, {kTooMany}, raw);
  ExpectTooManyStrings(Evaluate(server_, evaluate).status, "4194305",
                       "inputs[0]");

  // Those of all inputs count together, and are told together.
  evaluate = Program(R"(
      inputs { name: "a" } inputs { name: "b" }
      nodes { op: "Identity" inputs: "a" outputs: "y" }
      nodes { op: "Identity" inputs: "b" outputs: "z" }
      outputs: "y" outputs: "z")");
  for (const char* name : {"a", "b"}) {
    AddInput(&evaluate, name, v1::DATA_TYPE_STRING, {kTooMany - 1},
             raw.substr(sizeof(uint32_t)));
  }
  ExpectTooManyStrings(Evaluate(server_, evaluate).status, "8388608",
                       "inputs[1]");
}

TEST_F(BadInputTest, InputsGivenTwiceUnknownOrMissing) {
  inference::ModelInferRequest request = Good("floats");
  AddInput(&request, "x", "FP32", {3}, Bytes<float>({1, 2, 3}));
  ExpectInvalid(request, "given twice", "inputs[1]");

  request = Good("floats");
  AddInput(&request, "z", "FP32", {3}, Bytes<float>({1, 2, 3}));
  ExpectInvalid(request, "no input \"z\"", "inputs[1]");

  request = Good("gather");
  request.mutable_inputs()->RemoveLast();
  request.mutable_raw_input_contents()->RemoveLast();
  ExpectInvalid(request, "\"i\"", "inputs");

  v1::EvaluateRequest evaluate = IdentityRequest();
  *evaluate.add_inputs() = evaluate.inputs(0);
  grpc::Status status = Evaluate(server_, evaluate).status;
  EXPECT_TRUE(Refused(status, StatusCode::INVALID_ARGUMENT, "twice"));
  EXPECT_EQ(Field(FromGrpcStatus(status)), "inputs[1]");

  evaluate = IdentityRequest();
  evaluate.mutable_inputs(0)->set_name("z");
  EXPECT_TRUE(Refused(Evaluate(server_, evaluate).status,
                      StatusCode::INVALID_ARGUMENT, ""));

  evaluate = IdentityRequest();
  evaluate.clear_inputs();
  EXPECT_TRUE(Refused(Evaluate(server_, evaluate).status,
                      StatusCode::INVALID_ARGUMENT, "x"));

  evaluate = IdentityRequest();
  evaluate.mutable_inputs(0)->mutable_value()->clear_raw();
  EXPECT_TRUE(Refused(Evaluate(server_, evaluate).status,
                      StatusCode::INVALID_ARGUMENT, "no bytes"));
  evaluate.mutable_inputs(0)->mutable_value()->set_tensor(5);
  EXPECT_TRUE(Refused(Evaluate(server_, evaluate).status,
                      StatusCode::INVALID_ARGUMENT, "needs a space"));
}

TEST_F(BadInputTest, UnknownModelsVersionsAndOutputs) {
  inference::ModelInferRequest request = Good("floats");
  request.set_model_name("nothing");
  EXPECT_TRUE(Refused(Infer(server_, request).status, StatusCode::NOT_FOUND,
                      "nothing"));
  request.clear_model_name();
  ExpectInvalid(request, "model_name is not set", "model_name");
  {
    grpc::ClientContext context, second;
    SetPatience(&context);
    SetPatience(&second);
    inference::ModelMetadataResponse metadata;
    EXPECT_TRUE(Refused(server_.kserve().ModelMetadata(&context, {}, &metadata),
                        StatusCode::INVALID_ARGUMENT, "name is not set"));
    inference::ModelConfigResponse config;
    EXPECT_TRUE(Refused(server_.kserve().ModelConfig(&second, {}, &config),
                        StatusCode::INVALID_ARGUMENT, "name is not set"));
  }
  request = Good("floats");
  request.set_model_version("2");
  EXPECT_TRUE(
      Refused(Infer(server_, request).status, StatusCode::NOT_FOUND, "2"));
  request.set_model_version("one");
  EXPECT_TRUE(
      Refused(Infer(server_, request).status, StatusCode::NOT_FOUND, "one"));
  request = Good("floats");
  request.set_model_name("../floats");
  EXPECT_TRUE(
      Refused(Infer(server_, request).status, StatusCode::NOT_FOUND, ""));
  request = Good("floats");
  request.add_outputs()->set_name("z");
  ExpectInvalid(request, "no output \"z\"", "outputs[0]");
  request = Good("floats");
  request.add_outputs()->set_name("y");
  request.add_outputs()->set_name("y");
  ExpectInvalid(request, "twice", "outputs[1]");

  v1::EvaluateRequest evaluate;
  AddInput(&evaluate, "x", v1::DATA_TYPE_FLOAT, {3}, Bytes<float>({1, 2, 3}));
  for (const auto& [name, version] :
       {std::pair("nothing", 0), std::pair("floats", 2),
        std::pair("floats", -1)}) {
    auto* model = evaluate.mutable_graph()->mutable_model();
    model->set_name(name);
    model->set_version(version);
    const grpc::Status status = Evaluate(server_, evaluate).status;
    EXPECT_TRUE(Refused(status, StatusCode::NOT_FOUND, name));
    EXPECT_EQ(Field(FromGrpcStatus(status)), "graph.model");
    EXPECT_TRUE(ServesOn(server_));
  }
}

TEST_F(BadInputTest, UnknownDatatypesAndOperators) {
  for (const char* datatype : {"FP8", "", "fp32", "INT64"}) {
    inference::ModelInferRequest request = Good("floats");
    request.mutable_inputs(0)->set_datatype(datatype);
    ExpectInvalid(request, "FP32", "inputs[0].datatype");
  }
  for (int dtype : {0, 14, 15, 17, 99, -1}) {
    SCOPED_TRACE(dtype);
    v1::EvaluateRequest request = IdentityRequest();
    request.mutable_inputs(0)->mutable_value()->mutable_spec()->set_dtype(
        static_cast<v1::DataType>(dtype));
    const grpc::Status status = Evaluate(server_, request).status;
    EXPECT_TRUE(Refused(status, StatusCode::INVALID_ARGUMENT,
                        dtype == 0 ? "dtype is not set" : "element type"));
    EXPECT_EQ(Field(FromGrpcStatus(status)), "inputs[0].value.spec.dtype");
    EXPECT_TRUE(ServesOn(server_));
  }
  v1::EvaluateRequest request = IdentityRequest();
  auto* node = request.mutable_graph()->mutable_definition()->mutable_nodes(0);
  node->set_op("Unheard");
  node->set_name("strange");
  grpc::Status status = Evaluate(server_, request).status;
  EXPECT_TRUE(Refused(status, StatusCode::UNIMPLEMENTED, "Unheard"));
  EXPECT_TRUE(Refused(status, StatusCode::UNIMPLEMENTED, "strange"));
  node->set_domain("com.example");
  EXPECT_TRUE(Refused(Evaluate(server_, request).status,
                      StatusCode::UNIMPLEMENTED, "com.example"));
}

TEST_F(BadInputTest, GraphsThatAreNone) {
  const struct {
    const char* graph;
    const char* part;
  } cases[] = {
      // A cycle.
      {R"(inputs { name: "x" }
          nodes { name: "first" op: "Add" inputs: "x" inputs: "b" outputs: "a" }
          nodes { name: "second" op: "Identity" inputs: "a" outputs: "b" }
          outputs: "b")",
       "first"},
      // A node that reads itself.
      {R"(inputs { name: "x" }
          nodes { name: "self" op: "Add" inputs: "x" inputs: "y" outputs: "y" }
          outputs: "y")",
       "self"},
      // A value that nobody makes.
      {R"(inputs { name: "x" }
          nodes { name: "lost" op: "Add" inputs: "x" inputs: "q" outputs: "y" }
          outputs: "y")",
       "lost"},
      // A value that two make.
      {R"(inputs { name: "x" }
          nodes { name: "one" op: "Identity" inputs: "x" outputs: "y" }
          nodes { name: "two" op: "Neg" inputs: "x" outputs: "y" }
          outputs: "y")",
       "y"},
      // An output that nobody makes.
      {R"(inputs { name: "x" }
          nodes { name: "one" op: "Identity" inputs: "x" outputs: "y" }
          outputs: "z")",
       "z"},
      // Too few inputs.
      {R"(inputs { name: "x" }
          nodes { name: "half" op: "Add" inputs: "x" outputs: "y" }
          outputs: "y")",
       "half"},
      // Types that do not go together.
      {R"(inputs { name: "x" }
          constants { name: "c" value { spec { dtype: DATA_TYPE_INT32 }
                                        raw: "\x01\x00\x00\x00" } }
          nodes { name: "mixed" op: "Add" inputs: "x" inputs: "c" outputs: "y" }
          outputs: "y")",
       "mixed"},
      // Shapes that do not.
      {R"(inputs { name: "x" }
          constants { name: "c" value { spec { dtype: DATA_TYPE_FLOAT shape: 3 }
                                        raw: "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" } }
          nodes { name: "uneven" op: "Add" inputs: "x" inputs: "c" outputs: "y" }
          outputs: "y")",
       "uneven"},
      // An attribute that is unknown, and one of the wrong kind.
      {R"(inputs { name: "x" }
          nodes { name: "odd" op: "Softmax" inputs: "x" outputs: "y"
                  attributes { name: "axis" s: "last" } }
          outputs: "y")",
       "odd"},
      {R"(inputs { name: "x" }
          nodes { name: "far" op: "Softmax" inputs: "x" outputs: "y"
                  attributes { name: "axis" i: 7 } }
          outputs: "y")",
       "far"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.graph);
    v1::EvaluateRequest request = Program(c.graph);
    *request.add_inputs() = IdentityRequest().inputs(0);
    EXPECT_TRUE(Refused(Evaluate(server_, request).status,
                        StatusCode::INVALID_ARGUMENT, c.part));
    EXPECT_TRUE(ServesOn(server_));
  }
}

// Names that differ are told apart one by one.
TEST_F(BadInputTest, MoreAttributesThanANodeHas) {
  v1::EvaluateRequest request = Program(R"(
      inputs { name: "x" }
      nodes { name: "n" op: "Identity" inputs: "x" outputs: "y" }
      outputs: "y")");
  *request.add_inputs() = IdentityRequest().inputs(0);
  v1::Node* node =
      request.mutable_graph()->mutable_definition()->mutable_nodes(0);
  for (int i = 0; i < 1'000'000; ++i) {
    v1::Attribute* attribute = node->add_attributes();
    attribute->set_name(std::to_string(i));
    attribute->set_i(i);
  }
  const grpc::Status status = Evaluate(server_, request).status;
  EXPECT_TRUE(Refused(status, StatusCode::INVALID_ARGUMENT, "1000000"));
  EXPECT_THAT(Field(FromGrpcStatus(status)),
              ::testing::HasSubstr("nodes[0].attributes"));
  EXPECT_TRUE(ServesOn(server_));
}

TEST_F(BadInputTest, AConstantOneByteShort) {
  v1::EvaluateRequest request = Program(R"(
      inputs { name: "x" }
      constants { name: "c" value { spec { dtype: DATA_TYPE_FLOAT }
                                    raw: "\x00\x00\x00" } }
      nodes { name: "n" op: "Add" inputs: "x" inputs: "c" outputs: "y" }
      outputs: "y")");
  *request.add_inputs() = IdentityRequest().inputs(0);
  const grpc::Status status = Evaluate(server_, request).status;
  EXPECT_TRUE(Refused(status, StatusCode::INVALID_ARGUMENT, "3 bytes"));
  EXPECT_THAT(Field(FromGrpcStatus(status)),
              ::testing::HasSubstr("constants[0]"));
}

TEST_F(BadInputTest, OnnxModelsThatAreNone) {
  const std::string good =
      IdentityModel(onnx::TensorProto::FLOAT).SerializeAsString();
  for (const std::string& bytes :
       {std::string("\xff\xff\xff"), good.substr(0, good.size() - 3),
        std::string(100, 'o')}) {
    v1::EvaluateRequest request = IdentityRequest();
    request.mutable_graph()->set_onnx_model(bytes);
    EXPECT_TRUE(Refused(Evaluate(server_, request).status,
                        StatusCode::INVALID_ARGUMENT, ""));
    EXPECT_TRUE(ServesOn(server_));
  }
}

TEST_F(BadInputTest, MessagesThatAreNone) {
  const std::string bad[] = {"\xff", std::string("\x0a\xff\xff\xff\x7f", 5),
                             std::string(64, '\xfe'),
                             std::string("\x0b\x0b\x0b", 3)};
  for (const char* method :
       {"/weir.v1.Evaluator/Evaluate",
        "/inference.GRPCInferenceService/ModelInfer",
        "/inference.GRPCInferenceService/ModelMetadata",
        "/weir.v1.Catalog/DescribeOperator", "/weir.v1.Catalog/Explain"}) {
    for (const std::string& bytes : bad) {
      SCOPED_TRACE(method);
      EXPECT_TRUE(Refused(server_.CallRaw(method, bytes),
                          StatusCode::INVALID_ARGUMENT, ""));
      EXPECT_TRUE(ServesOn(server_));
    }
  }
  // The last bytes of a good message are missing.
  const std::string infer = Good("floats").SerializeAsString();
  EXPECT_TRUE(
      Refused(server_.CallRaw("/inference.GRPCInferenceService/ModelInfer",
                              infer.substr(0, infer.size() - 1)),
              StatusCode::INVALID_ARGUMENT, ""));
}

// Two bytes each, of which protobuf would make more than a hundred.
TEST_F(BadInputTest, ManyUnknownFields) {
  std::string fields;
  while (fields.size() < 100'000) fields += std::string("\x7a\x00", 2);
  for (const char* method :
       {"/inference.GRPCInferenceService/ServerLive",
        "/inference.GRPCInferenceService/ModelMetadata",
        "/weir.v1.Catalog/ListDevices", "/weir.v1.Admin/Drain"}) {
    SCOPED_TRACE(method);
    EXPECT_TRUE(Refused(server_.CallRaw(method, fields),
                        StatusCode::RESOURCE_EXHAUSTED, "65536"));
  }
  EXPECT_TRUE(server_
                  .CallRaw("/inference.GRPCInferenceService/ServerLive",
                           fields.substr(0, 1000))
                  .ok());
  EXPECT_TRUE(ServesOn(server_));
}

TEST_F(BadInputTest, IndicesOutOfRange) {
  for (int64_t index : {int64_t{3}, int64_t{-4}, INT64_MAX, INT64_MIN}) {
    SCOPED_TRACE(index);
    inference::ModelInferRequest request = Good("gather");
    request.set_raw_input_contents(1, Bytes<int64_t>({0, index}));
    grpc::Status status = Infer(server_, request).status;
    EXPECT_TRUE(Refused(status, StatusCode::INVALID_ARGUMENT, "pick"));

    v1::EvaluateRequest evaluate;
    evaluate.mutable_graph()->mutable_model()->set_name("gather");
    AddInput(&evaluate, "x", v1::DATA_TYPE_FLOAT, {3}, Bytes<float>({1, 2, 3}));
    AddInput(&evaluate, "i", v1::DATA_TYPE_INT64, {1}, Bytes<int64_t>({index}));
    status = Evaluate(server_, evaluate).status;
    EXPECT_TRUE(Refused(status, StatusCode::INVALID_ARGUMENT, "pick"));
    ASSERT_TRUE(ReportOf(status).has_value());
    EXPECT_EQ(ReportOf(status)->state(), v1::WORK_STATE_ERROR);
    EXPECT_THAT(ReportOf(status)->details().device_error().node(),
                ::testing::HasSubstr("pick"));
    EXPECT_TRUE(Infer(server_, Good("gather")).status.ok());
  }
}

}  // namespace
}  // namespace weir::testing
