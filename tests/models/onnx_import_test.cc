#include "server/models/onnx_import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <memory>

#include "kernels/base/error_info.h"
#include "kernels/base/stop_token.h"
#include "kernels/graph/program.h"
#include "tests/models/onnx_model.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::weir::testing::AddFloats;
using ::weir::testing::AddModel;
using ::weir::testing::AddNode;
using ::weir::testing::AddValue;
using ::weir::testing::EmptyModel;
using ::weir::testing::TempFolder;

absl::StatusOr<Graph> Import(const onnx::ModelProto& model) {
  return ImportOnnx(model.SerializeAsString());
}

void ExpectError(const absl::Status& status, absl::StatusCode code,
                 std::vector<std::string> words) {
  EXPECT_EQ(status.code(), code) << status;
  for (const std::string& word : words) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }
}

template <typename T>
std::vector<T> Values(const Graph& graph, const std::string& name) {
  const HostTensor& tensor = graph.constants.at(name)->tensor;
  const T* data = tensor.as<T>();
  return {data, data + *NumElements(tensor.dims)};
}

TEST(OnnxImportTest, TooManyNodesAreRefusedBeforeTheyAreCopied) {
  onnx::ModelProto model = AddModel();
  for (size_t i = 0; i < GraphLimits().max_nodes; ++i) {
    AddNode(&model, "Neg", {"x"}, {"y"});
  }
  const absl::Status status = Import(model).status();
  ExpectError(status, absl::StatusCode::kResourceExhausted, {"100001 nodes"});
  EXPECT_EQ(Reason(status), "GRAPH_TOO_LARGE");
  // Constants are none.
  for (onnx::NodeProto& node : *model.mutable_graph()->mutable_node()) {
    node.set_op_type("Constant");
  }
  EXPECT_NE(Reason(Import(model).status()), "GRAPH_TOO_LARGE");
}

TEST(OnnxImportTest, ALongNameIsRefusedBeforeItIsRepeated) {
  const std::string name(2000, 'n');
  std::vector<onnx::ModelProto> models(5, AddModel());
  onnx::NodeProto* const node = models[0].mutable_graph()->mutable_node(0);
  node->add_attribute()->set_name(name);
  models[1].mutable_graph()->mutable_node(0)->set_domain(name);
  models[2].mutable_graph()->add_output()->set_name(name);
  models[2].mutable_graph()->add_output()->set_name(name);
  models[3].add_functions()->set_name(name);
  models[4].add_opset_import()->set_domain(name);
  for (const onnx::ModelProto& model : models) {
    ExpectError(Import(model).status(), absl::StatusCode::kInvalidArgument,
                {"a name of 2000 bytes is longer than 1024"});
    EXPECT_LT(Import(model).status().message().size(), 2048u);
  }
}

TEST(OnnxImportTest, ReadsAGraph) {
  const auto graph = Import(AddModel());
  ASSERT_TRUE(graph.ok()) << graph.status();
  ASSERT_EQ(graph->inputs.size(), 1u);
  EXPECT_EQ(graph->inputs[0].name, "x");
  EXPECT_EQ(graph->inputs[0].dtype, DType::kFloat);
  EXPECT_EQ(ShapeString(graph->inputs[0].shape), "[s0,2]");
  EXPECT_THAT(graph->symbols, ElementsAre("N"));
  EXPECT_THAT(graph->outputs, ElementsAre("y"));
  EXPECT_EQ(graph->opsets.at(""), 17);
  ASSERT_EQ(graph->nodes.size(), 1u);
  EXPECT_EQ(graph->nodes[0].op, "Add");
  EXPECT_EQ(graph->nodes[0].name, "sum");
  EXPECT_THAT(Values<float>(*graph, "b"), ElementsAre(10, 20));
}

TEST(OnnxImportTest, SharesSymbolsByName) {
  onnx::ModelProto model = AddModel();
  AddValue(model.mutable_graph()->add_input(), "z", onnx::TensorProto::INT8,
           {"N", "", "M"});
  const auto graph = Import(model);
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(ShapeString(graph->inputs[1].shape), "[s0,?,s1]");
  EXPECT_THAT(graph->symbols, ElementsAre("N", "M"));
}

TEST(OnnxImportTest, AnInitializerIsNoInput) {
  onnx::ModelProto model = AddModel();
  AddValue(model.mutable_graph()->add_input(), "b", onnx::TensorProto::FLOAT,
           {"2"});
  EXPECT_EQ(Import(model)->inputs.size(), 1u);
}

TEST(OnnxImportTest, NormalizesTheDomain) {
  onnx::ModelProto model = AddModel();
  model.mutable_opset_import(0)->set_domain("ai.onnx");
  model.mutable_graph()->mutable_node(0)->set_domain("ai.onnx");
  const auto graph = Import(model);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->opsets.at(""), 17);
  EXPECT_EQ(graph->nodes[0].domain, "");
}

TEST(OnnxImportTest, ReadsEveryElementType) {
  onnx::ModelProto model = AddModel();
  const auto add = [&](const char* name, int type, int64_t count) {
    auto* tensor = model.mutable_graph()->add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(type);
    tensor->add_dims(count);
    return tensor;
  };
  add("f64", onnx::TensorProto::DOUBLE, 1)->add_double_data(1.5);
  add("i64", onnx::TensorProto::INT64, 1)->add_int64_data(-7);
  add("i32", onnx::TensorProto::INT32, 1)->add_int32_data(-7);
  add("i16", onnx::TensorProto::INT16, 1)->add_int32_data(-7);
  add("i8", onnx::TensorProto::INT8, 1)->add_int32_data(-7);
  add("u64", onnx::TensorProto::UINT64, 1)->add_uint64_data(7);
  add("u32", onnx::TensorProto::UINT32, 1)->add_uint64_data(7);
  add("u16", onnx::TensorProto::UINT16, 1)->add_int32_data(7);
  add("u8", onnx::TensorProto::UINT8, 1)->add_int32_data(200);
  add("bool", onnx::TensorProto::BOOL, 1)->add_int32_data(2);
  add("f16", onnx::TensorProto::FLOAT16, 1)->add_int32_data(0x3c00);
  add("bf16", onnx::TensorProto::BFLOAT16, 1)->add_int32_data(0x3f80);
  auto* text = add("text", onnx::TensorProto::STRING, 2);
  text->add_string_data("a");
  text->add_string_data("bc");
  add("raw", onnx::TensorProto::INT16, 2)
      ->set_raw_data(std::string("\x01\x00\xff\xff", 4));
  add("rawbool", onnx::TensorProto::BOOL, 2)
      ->set_raw_data(std::string("\x00\x05", 2));
  const auto graph = Import(model);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_THAT(Values<double>(*graph, "f64"), ElementsAre(1.5));
  EXPECT_THAT(Values<int64_t>(*graph, "i64"), ElementsAre(-7));
  EXPECT_THAT(Values<int32_t>(*graph, "i32"), ElementsAre(-7));
  EXPECT_THAT(Values<int16_t>(*graph, "i16"), ElementsAre(-7));
  EXPECT_THAT(Values<int8_t>(*graph, "i8"), ElementsAre(-7));
  EXPECT_THAT(Values<uint64_t>(*graph, "u64"), ElementsAre(7));
  EXPECT_THAT(Values<uint32_t>(*graph, "u32"), ElementsAre(7));
  EXPECT_THAT(Values<uint16_t>(*graph, "u16"), ElementsAre(7));
  EXPECT_THAT(Values<uint8_t>(*graph, "u8"), ElementsAre(200));
  EXPECT_THAT(Values<uint8_t>(*graph, "bool"), ElementsAre(1));
  EXPECT_THAT(Values<uint8_t>(*graph, "rawbool"), ElementsAre(0, 1));
  EXPECT_EQ(float(Values<Float16>(*graph, "f16")[0]), 1.0f);
  EXPECT_EQ(float(Values<Bfloat16>(*graph, "bf16")[0]), 1.0f);
  EXPECT_EQ(std::string_view(Values<StringRef>(*graph, "text")[1]), "bc");
  EXPECT_THAT(Values<int16_t>(*graph, "raw"), ElementsAre(1, -1));
}

TEST(OnnxImportTest, TakesLargeRawData) {
  onnx::ModelProto model = AddModel();
  auto* tensor = model.mutable_graph()->add_initializer();
  tensor->set_name("w");
  tensor->set_data_type(onnx::TensorProto::FLOAT);
  tensor->add_dims(10000);
  std::vector<float> values(10000, 3.0f);
  tensor->set_raw_data(values.data(), values.size() * sizeof(float));
  const auto graph = Import(model);
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(Values<float>(*graph, "w"), values);
}

TEST(OnnxImportTest, ReadsAttributes) {
  onnx::ModelProto model = AddModel();
  auto* node = model.mutable_graph()->mutable_node(0);
  const auto add = [&](const char* name,
                       onnx::AttributeProto::AttributeType type) {
    auto* attribute = node->add_attribute();
    attribute->set_name(name);
    attribute->set_type(type);
    return attribute;
  };
  add("i", onnx::AttributeProto::INT)->set_i(-3);
  add("f", onnx::AttributeProto::FLOAT)->set_f(0.5f);
  add("s", onnx::AttributeProto::STRING)->set_s("SAME");
  add("is", onnx::AttributeProto::INTS)->add_ints(4);
  add("fs", onnx::AttributeProto::FLOATS)->add_floats(1.5f);
  add("ss", onnx::AttributeProto::STRINGS)->add_strings("x");
  auto* tensor = add("t", onnx::AttributeProto::TENSOR)->mutable_t();
  tensor->set_data_type(onnx::TensorProto::INT64);
  tensor->add_int64_data(9);
  const auto graph = Import(model);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const Attributes& read = graph->nodes[0].attributes;
  EXPECT_EQ(read.Int("i", 0), -3);
  EXPECT_EQ(read.Float("f", 0), 0.5f);
  EXPECT_EQ(read.String("s", ""), "SAME");
  EXPECT_THAT(read.Ints("is"), ElementsAre(4));
  EXPECT_THAT(read.Floats("fs"), ElementsAre(1.5f));
  EXPECT_THAT(read.Strings("ss"), ElementsAre("x"));
  EXPECT_EQ(*read.Tensor("t")->tensor.as<int64_t>(), 9);
}

TEST(OnnxImportTest, ConstantNodesBecomeConstants) {
  onnx::ModelProto model = AddModel();
  using Type = onnx::AttributeProto;
  const auto add = [&](const char* output, const char* name,
                       Type::AttributeType type) {
    auto* attribute =
        AddNode(&model, "Constant", {}, {output})->add_attribute();
    attribute->set_name(name);
    attribute->set_type(type);
    return attribute;
  };
  auto* value = add("v", "value", Type::TENSOR);
  value->mutable_t()->set_data_type(onnx::TensorProto::FLOAT);
  value->mutable_t()->add_float_data(2);
  add("i", "value_int", Type::INT)->set_i(5);
  add("f", "value_float", Type::FLOAT)->set_f(6);
  add("is", "value_ints", Type::INTS)->add_ints(7);
  add("fs", "value_floats", Type::FLOATS)->add_floats(8);
  add("s", "value_string", Type::STRING)->set_s("t");
  AddNode(&model, "Neg", {"y"}, {"z"});
  const auto graph = Import(model);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_THAT(Values<float>(*graph, "v"), ElementsAre(2));
  EXPECT_THAT(Values<int64_t>(*graph, "i"), ElementsAre(5));
  EXPECT_EQ(graph->constants.at("i")->tensor.dims.size(), 0u);
  EXPECT_THAT(Values<float>(*graph, "f"), ElementsAre(6));
  EXPECT_THAT(Values<int64_t>(*graph, "is"), ElementsAre(7));
  EXPECT_THAT(Values<float>(*graph, "fs"), ElementsAre(8));
  EXPECT_EQ(std::string_view(Values<StringRef>(*graph, "s")[0]), "t");
  // The position in the file, not in the graph that is left.
  ASSERT_EQ(graph->nodes.size(), 2u);
  EXPECT_EQ(graph->nodes[1].name, "#7");
}

// What it holds lies in another field, and the one that is read is 0.
TEST(OnnxImportTest, RefusesAConstantOfAnotherTypeThanItsAttribute) {
  onnx::ModelProto model = AddModel();
  auto* attribute = AddNode(&model, "Constant", {}, {"i"})->add_attribute();
  attribute->set_name("value_int");
  attribute->set_type(onnx::AttributeProto::FLOAT);
  attribute->set_f(3);
  ExpectError(Import(model).status(), absl::StatusCode::kInvalidArgument,
              {"value_int", "is of type 1, not 2"});
}

TEST(OnnxImportTest, RefusesGarbage) {
  ExpectError(ImportOnnx("").status(), absl::StatusCode::kInvalidArgument,
              {"empty"});
  ExpectError(ImportOnnx("this is no model").status(),
              absl::StatusCode::kInvalidArgument, {"no ONNX model"});
  ExpectError(ImportOnnx(std::string("\x08\x08", 2)).status(),
              absl::StatusCode::kInvalidArgument, {"no graph"});
  const std::string whole = AddModel().SerializeAsString();
  ExpectError(ImportOnnx(whole.substr(0, whole.size() / 2)).status(),
              absl::StatusCode::kInvalidArgument, {});
  onnx::ModelProto model = AddModel();
  model.clear_ir_version();
  ExpectError(Import(model).status(), absl::StatusCode::kInvalidArgument,
              {"IR version"});
}

TEST(OnnxImportTest, RefusesWhatWeirLacks) {
  onnx::ModelProto model = AddModel();
  model.add_functions()->set_name("swish");
  ExpectError(Import(model).status(), absl::StatusCode::kUnimplemented,
              {"functions", "swish"});
  model = AddModel();
  model.add_training_info();
  ExpectError(Import(model).status(), absl::StatusCode::kUnimplemented,
              {"training"});
  model = AddModel();
  model.mutable_graph()->add_sparse_initializer();
  ExpectError(Import(model).status(), absl::StatusCode::kUnimplemented,
              {"sparse"});
  model = AddModel();
  auto* attribute =
      AddNode(&model, "If", {"x"}, {"z"}, "branch")->add_attribute();
  attribute->set_name("then_branch");
  attribute->set_type(onnx::AttributeProto::GRAPH);
  ExpectError(
      Import(model).status(), absl::StatusCode::kUnimplemented,
      {"\"branch\" (If)", "then_branch", "subgraphs are not supported"});
  model = AddModel();
  model.mutable_graph()->mutable_node(0)->set_domain("com.microsoft");
  ExpectError(Import(model).status(), absl::StatusCode::kUnimplemented,
              {"\"sum\"", "com.microsoft"});
  model = AddModel();
  AddValue(model.mutable_graph()->add_input(), "eight", 17, {"1"});
  ExpectError(Import(model).status(), absl::StatusCode::kUnimplemented,
              {"\"eight\"", "element type 17"});
  model = AddModel();
  for (int i = 0; i < 100'000; ++i) {
    model.mutable_graph()->mutable_node(0)->add_attribute();
  }
  ExpectError(Import(model).status(), absl::StatusCode::kInvalidArgument,
              {"\"sum\"", "100000 attributes"});
  model = AddModel();
  auto* sequence = model.mutable_graph()->add_input();
  sequence->set_name("list");
  sequence->mutable_type()->mutable_sequence_type();
  ExpectError(Import(model).status(), absl::StatusCode::kUnimplemented,
              {"\"list\"", "not a tensor"});
}

TEST(OnnxImportTest, RefusesOutputsOfOneName) {
  onnx::ModelProto model = AddModel();
  *model.mutable_graph()->add_output() = model.graph().output(0);
  ExpectError(Import(model).status(), absl::StatusCode::kInvalidArgument,
              {"output \"y\" is listed twice"});
}

// The bytes are at fault where there is no type; -1 is what exporters write for
// a size that they do not know.
TEST(OnnxImportTest, ReadsDeclarationsAsTheyAreMeant) {
  onnx::ModelProto model = AddModel();
  AddValue(model.mutable_graph()->add_input(), "void", 0, {"1"});
  ExpectError(Import(model).status(), absl::StatusCode::kInvalidArgument,
              {"\"void\"", "element type"});
  model = AddModel();
  model.mutable_graph()->mutable_initializer(0)->set_data_type(0);
  ExpectError(Import(model).status(), absl::StatusCode::kInvalidArgument,
              {"\"b\"", "element type"});
  model = AddModel();
  AddValue(model.mutable_graph()->add_input(), "any", 1, {"-1", "3"});
  const auto graph = Import(model);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_FALSE((*graph->inputs[1].shape)[0].known());
  EXPECT_EQ((*graph->inputs[1].shape)[1], Dim(3));
  model = AddModel();
  AddValue(model.mutable_graph()->add_input(), "less", 1, {"-2"});
  ExpectError(Import(model).status(), absl::StatusCode::kInvalidArgument,
              {"\"less\"", "negative"});
}

TEST(OnnxImportTest, RefusesBadOpsets) {
  onnx::ModelProto model = AddModel();
  model.clear_opset_import();
  ExpectError(Import(model).status(), absl::StatusCode::kInvalidArgument,
              {"\"sum\" (Add)", "opset"});
  model = AddModel();
  model.mutable_opset_import(0)->set_version(int64_t{1} << 40);
  ExpectError(Import(model).status(), absl::StatusCode::kInvalidArgument,
              {"opset", "this server knows 11 to 25"});
  model = AddModel();
  *model.add_opset_import() = model.opset_import(0);
  model.mutable_opset_import(1)->set_version(11);
  ExpectError(Import(model).status(), absl::StatusCode::kInvalidArgument,
              {"17 and 11"});
}

TEST(OnnxImportTest, RefusesBadTensors) {
  onnx::ModelProto model = AddModel();
  auto* tensor = model.mutable_graph()->mutable_initializer(0);
  tensor->set_dims(0, 3);
  ExpectError(Import(model).status(), absl::StatusCode::kInvalidArgument,
              {"\"b\"", "2 elements", "needs 3"});
  tensor->set_dims(0, int64_t{1} << 62);
  ExpectError(Import(model).status(), absl::StatusCode::kInvalidArgument,
              {"\"b\""});
  tensor->set_dims(0, -2);
  ExpectError(Import(model).status(), absl::StatusCode::kInvalidArgument,
              {"\"b\"", "negative"});
  tensor->set_dims(0, 2);
  tensor->set_raw_data("1234567");
  ExpectError(Import(model).status(), absl::StatusCode::kInvalidArgument,
              {"7 bytes", "need 8"});
  tensor->set_data_type(99);
  ExpectError(Import(model).status(), absl::StatusCode::kUnimplemented,
              {"\"b\"", "99"});
  model = AddModel();
  AddFloats(&model, "b", {1});
  ExpectError(Import(model).status(), absl::StatusCode::kInvalidArgument,
              {"\"b\"", "twice"});
}

TEST(OnnxImportTest, RefusesNegativeDims) {
  onnx::ModelProto model = EmptyModel();
  AddValue(model.mutable_graph()->add_input(), "x", onnx::TensorProto::FLOAT,
           {"-4"});
  ExpectError(Import(model).status(), absl::StatusCode::kInvalidArgument,
              {"\"x\"", "-4"});
}

// -- External data ------------------------------------------------------------

onnx::ModelProto ExternalModel(const std::string& location,
                               const std::string& offset = "",
                               const std::string& length = "") {
  onnx::ModelProto model = AddModel();
  auto* tensor = model.mutable_graph()->mutable_initializer(0);
  tensor->clear_float_data();
  tensor->set_data_location(onnx::TensorProto::EXTERNAL);
  const auto set = [&](const char* key, const std::string& value) {
    if (value.empty()) return;
    auto* entry = tensor->add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  };
  set("location", location);
  set("offset", offset);
  set("length", length);
  return model;
}

class ExternalDataTest : public ::testing::Test {
 protected:
  ExternalDataTest() {
    const float values[] = {0, 1, 2, 3};
    bytes_.assign(reinterpret_cast<const char*>(values), sizeof(values));
    folder_.Write("model/weights.bin", bytes_);
    folder_.Write("secret.bin", bytes_);
  }

  absl::StatusOr<Graph> ImportFile(const onnx::ModelProto& model) {
    auto file = ImportOnnxFile(
        folder_.Write("model/model.onnx", model.SerializeAsString()));
    if (!file.ok()) return file.status();
    return std::move(file->graph);
  }

  TempFolder folder_;
  std::string bytes_;
};

TEST_F(ExternalDataTest, ReadsFilesBesideTheModel) {
  auto graph = ImportFile(ExternalModel("weights.bin", "4", "8"));
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_THAT(Values<float>(*graph, "b"), ElementsAre(1, 2));
  // An offset that floats cannot be read at.
  graph = ImportFile(ExternalModel("weights.bin", "3", "8"));
  ASSERT_TRUE(graph.ok()) << graph.status();
  float first = 0;
  std::memcpy(&first, bytes_.data() + 3, sizeof(first));
  EXPECT_EQ(Values<float>(*graph, "b")[0], first);
}

// In whatever way they come: a kernel may take any other byte for either.
TEST_F(ExternalDataTest, BooleansAreZeroOrOne) {
  for (const size_t count : {size_t{3}, size_t{10'000}}) {
    std::string raw(count, '\xff');
    raw[0] = '\0';
    raw[1] = '\x02';
    std::vector<uint8_t> expected(count, 1);
    expected[0] = 0;
    folder_.Write("model/flags.bin", "before" + raw);
    onnx::ModelProto model = ExternalModel("flags.bin", "6");
    auto* external = model.mutable_graph()->mutable_initializer(0);
    external->set_name("external");
    auto* inside = model.mutable_graph()->add_initializer();
    inside->set_name("inside");
    inside->set_raw_data(raw);
    for (auto* tensor : {external, inside}) {
      tensor->set_data_type(onnx::TensorProto::BOOL);
      tensor->clear_dims();
      tensor->add_dims(static_cast<int64_t>(count));
    }
    AddFloats(&model, "b", {10, 20});
    const auto graph = ImportFile(model);
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_EQ(Values<uint8_t>(*graph, "external"), expected);
    EXPECT_EQ(Values<uint8_t>(*graph, "inside"), expected);
  }
}

TEST_F(ExternalDataTest, StaysReadableWhenTheFileIsReplaced) {
  const auto graph = ImportFile(ExternalModel("weights.bin"));
  ASSERT_TRUE(graph.ok());
  std::filesystem::remove(folder_.path() / "model/weights.bin");
  EXPECT_THAT(Values<float>(*graph, "b"), ElementsAre(0, 1));
}

// A mapping would show the new bytes, or end the process.
TEST_F(ExternalDataTest, KeepsWhatItReadWhenTheFileIsChangedInPlace) {
  const auto graph = ImportFile(ExternalModel("weights.bin"));
  ASSERT_TRUE(graph.ok()) << graph.status();
  folder_.Write("model/weights.bin", std::string(bytes_.size(), '\x41'));
  EXPECT_THAT(Values<float>(*graph, "b"), ElementsAre(0, 1));
  std::filesystem::resize_file(folder_.path() / "model/weights.bin", 0);
  EXPECT_THAT(Values<float>(*graph, "b"), ElementsAre(0, 1));
}

TEST_F(ExternalDataTest, ConstantsOfTheSameBytesShareThem) {
  std::filesystem::create_symlink("weights.bin",
                                  folder_.path() / "model/link.bin");
  onnx::ModelProto model = ExternalModel("weights.bin", "0", "8");
  const auto add = [&](const std::string& name, const std::string& location,
                       const std::string& offset) {
    const onnx::ModelProto other = ExternalModel(location, offset, "8");
    auto* tensor = model.mutable_graph()->add_initializer();
    *tensor = other.graph().initializer(0);
    tensor->set_name(name);
  };
  add("same", "link.bin", "0");
  add("within", "././weights.bin", "4");
  add("apart", "weights.bin", "8");  // is within what "within" joins
  const auto graph = ImportFile(model);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_THAT(Values<float>(*graph, "b"), ElementsAre(0, 1));
  EXPECT_THAT(Values<float>(*graph, "within"), ElementsAre(1, 2));
  EXPECT_THAT(Values<float>(*graph, "apart"), ElementsAre(2, 3));
  const auto data = [&](const std::string& name) {
    return graph->constants.at(name)->tensor.as<float>();
  };
  EXPECT_EQ(data("same"), data("b"));
  EXPECT_EQ(data("within"), data("b") + 1);
  EXPECT_EQ(data("apart"), data("b") + 2);
}

// Most of a file may be other models' (here 1 TiB of nothing, which no memory
// would hold), and each part goes with the constants that are made of it.
TEST_F(ExternalDataTest, ReadsOnlyWhatTheModelNames) {
  std::filesystem::resize_file(folder_.path() / "model/weights.bin",
                               uintmax_t{1} << 40);
  onnx::ModelProto model = ExternalModel("weights.bin", "4", "8");
  const onnx::ModelProto other =
      ExternalModel("weights.bin", "1099511627768", "8");
  auto* last = model.mutable_graph()->add_initializer();
  *last = other.graph().initializer(0);
  last->set_name("last");
  auto* value = AddNode(&model, "Constant", {}, {"c"})->add_attribute();
  value->set_name("value");
  value->set_type(onnx::AttributeProto::TENSOR);
  *value->mutable_t() =
      ExternalModel("weights.bin", "8", "8").graph().initializer(0);
  auto graph = ImportFile(model);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_THAT(Values<float>(*graph, "b"), ElementsAre(1, 2));
  EXPECT_THAT(Values<float>(*graph, "c"), ElementsAre(2, 3));
  EXPECT_THAT(Values<float>(*graph, "last"), ElementsAre(0, 0));
  for (const char* name : {"b", "last"}) {
    // A CPU uses it where it lies.
    EXPECT_EQ(
        reinterpret_cast<uintptr_t>(graph->constants.at(name)->tensor.data) %
            64,
        0u)
        << name;
  }
  const std::weak_ptr<const void> part = graph->constants.at("last")->owner;
  graph->constants.erase("last");
  EXPECT_TRUE(part.expired());
}

TEST_F(ExternalDataTest, OneBadTensorSpoilsNoOthersBytes) {
  // Both begin at the same byte; the second would end beyond the file.
  onnx::ModelProto model = ExternalModel("weights.bin", "8", "8");
  auto* beyond = model.mutable_graph()->add_initializer();
  *beyond = ExternalModel("weights.bin", "8").graph().initializer(0);
  beyond->set_name("beyond");
  beyond->set_dims(0, 3);
  ExpectError(ImportFile(model).status(), absl::StatusCode::kInvalidArgument,
              {"\"beyond\"", "beyond the 16 bytes"});
}

TEST_F(ExternalDataTest, ReadsNothingForAServerThatStops) {
  const std::string path = folder_.Write(
      "model/model.onnx", ExternalModel("weights.bin").SerializeAsString());
  StopSource stop;
  EXPECT_TRUE(ImportOnnxFile(path, stop.get_token()).ok());
  stop.request_stop();
  EXPECT_EQ(ImportOnnxFile(path, stop.get_token()).status().code(),
            absl::StatusCode::kCancelled);
}

TEST_F(ExternalDataTest, WhatIsNoFileIsNotRead) {
  const std::string fifo = (folder_.path() / "model/fifo.bin").string();
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  ExpectError(ImportFile(ExternalModel("fifo.bin")).status(),
              absl::StatusCode::kInvalidArgument,
              {"\"b\"", "fifo.bin", "not a regular file"});
}

TEST_F(ExternalDataTest, RefusesPathsThatLeaveTheFolder) {
  const std::string absolute = (folder_.path() / "secret.bin").string();
  for (const std::string& location :
       {std::string("../secret.bin"), std::string("a/../../secret.bin"),
        absolute, std::string("/etc/passwd")}) {
    ExpectError(ImportFile(ExternalModel(location)).status(),
                absl::StatusCode::kInvalidArgument, {"\"b\"", "path"});
  }
  std::filesystem::create_symlink(absolute,
                                  folder_.path() / "model/innocent.bin");
  ExpectError(ImportFile(ExternalModel("innocent.bin")).status(),
              absl::StatusCode::kInvalidArgument,
              {"innocent.bin", "leads out"});
  std::filesystem::create_directory_symlink(folder_.path(),
                                            folder_.path() / "model/up");
  ExpectError(ImportFile(ExternalModel("up/secret.bin")).status(),
              absl::StatusCode::kInvalidArgument, {"leads out"});
  ExpectError(ImportFile(ExternalModel(std::string("a\0b", 3))).status(),
              absl::StatusCode::kInvalidArgument, {"zero byte"});
}

TEST_F(ExternalDataTest, FollowsLinksInsideTheFolder) {
  std::filesystem::create_symlink("weights.bin",
                                  folder_.path() / "model/link.bin");
  EXPECT_TRUE(ImportFile(ExternalModel("link.bin")).ok());
}

TEST_F(ExternalDataTest, RefusesBytesThatAreNotThere) {
  ExpectError(ImportFile(ExternalModel("weights.bin", "12")).status(),
              absl::StatusCode::kInvalidArgument, {"beyond the 16 bytes"});
  ExpectError(
      ImportFile(ExternalModel("weights.bin", "18446744073709551615")).status(),
      absl::StatusCode::kInvalidArgument, {"beyond"});
  ExpectError(ImportFile(ExternalModel("weights.bin", "0", "7")).status(),
              absl::StatusCode::kInvalidArgument, {"7 bytes", "need 8"});
  ExpectError(ImportFile(ExternalModel("weights.bin", "x")).status(),
              absl::StatusCode::kInvalidArgument, {"no number"});
  ExpectError(ImportFile(ExternalModel("ghost.bin")).status(),
              absl::StatusCode::kNotFound, {"ghost.bin"});
  ExpectError(ImportFile(ExternalModel("")).status(),
              absl::StatusCode::kInvalidArgument, {"empty"});
  ExpectError(ImportFile(ExternalModel(".")).status(),
              absl::StatusCode::kInvalidArgument, {});
}

TEST_F(ExternalDataTest, LongTextIsNotRepeatedWhole) {
  const std::string text(1 << 20, 'm');
  for (const onnx::ModelProto& model :
       {ExternalModel("weights.bin", text), ExternalModel(text),
        ExternalModel("/" + text), ExternalModel("../" + text)}) {
    const absl::Status status = ImportFile(model).status();
    ExpectError(status, absl::StatusCode::kInvalidArgument, {"mmmmm..."});
    EXPECT_LT(status.message().size(), 2048u);
  }
  EXPECT_LT(
      Import(ExternalModel("weights.bin", text)).status().message().size(),
      2048u);
}

TEST_F(ExternalDataTest, IsNotForModelsFromTheWire) {
  ExpectError(Import(ExternalModel("weights.bin")).status(),
              absl::StatusCode::kInvalidArgument, {"repository"});
}

}  // namespace
}  // namespace weir
