#include "server/models/definition_import.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "proto/weir/v1/graph.pb.h"
#include "server/bytes/bytes_elements.h"

namespace weir {
namespace {

TEST(DefinitionImportTest, TakesWhatAnInputDoesNotSayFromWhatIsGiven) {
  v1::GraphDefinition definition;
  definition.add_inputs()->set_name("x");
  definition.add_inputs()->set_name("y");
  const std::vector<GivenInput> given = {{"y", DType::kInt8, 3},
                                         {"x", DType::kFloat, 1},
                                         {"x", DType::kDouble, 2}};
  const auto graph = ImportDefinition(definition, given);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->inputs[0].dtype, DType::kFloat);
  EXPECT_EQ(graph->inputs[0].shape->size(), 1u);
  EXPECT_EQ(graph->inputs[1].dtype, DType::kInt8);
  EXPECT_EQ(graph->inputs[1].shape->size(), 3u);

  definition.add_inputs()->set_name("z");
  const absl::Status missing = ImportDefinition(definition, given).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kInvalidArgument) << missing;
  EXPECT_EQ(Field(missing), ".inputs");
  EXPECT_EQ(missing.message(),
            "input \"z\" is missing: the graph declares no spec for it, so the "
            "request must give one");
}

// Three megabytes that would become hundreds: the graph is never made.
v1::GraphDefinition WithEmptyParts(int field, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    bytes += {static_cast<char>(field << 3 | 2), '\0'};
  }
  v1::GraphDefinition definition;
  EXPECT_TRUE(definition.ParseFromString(bytes));
  return definition;
}

TEST(DefinitionImportTest, TooManyNodesAreRefusedBeforeTheyAreCopied) {
  constexpr int kNodes = 1'400'000;
  v1::GraphDefinition definition =
      WithEmptyParts(v1::GraphDefinition::kNodesFieldNumber, kNodes);
  ASSERT_EQ(definition.nodes_size(), kNodes);
  const absl::Status status =
      ImportDefinition(std::move(definition), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(Reason(status), "GRAPH_TOO_LARGE");
  EXPECT_EQ(status.message(),
            "the graph has 1400000 nodes; the limit is 100000");
}

// Each would take its shape from what is given.
TEST(DefinitionImportTest, TooManyValuesAreRefusedBeforeTheyAreCopied) {
  constexpr int kInputs = 1'400'000;
  v1::GraphDefinition definition =
      WithEmptyParts(v1::GraphDefinition::kInputsFieldNumber, kInputs);
  ASSERT_EQ(definition.inputs_size(), kInputs);
  const absl::Status status =
      ImportDefinition(std::move(definition), {{{"", DType::kFloat, 8}}})
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(Reason(status), "GRAPH_TOO_LARGE");
  EXPECT_EQ(status.message(),
            "the graph names 1400000 values; the limit is 400000");
}

// Whatever is wrong with it, an error repeats no name that is longer than one
// may be.
TEST(DefinitionImportTest, ALongNameIsRefusedBeforeItIsRepeated) {
  const std::string name(2000, 'n');
  const auto refused = [&](const v1::GraphDefinition& definition) {
    const absl::Status status = ImportDefinition(definition, {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), "a name of 2000 bytes is longer than 1024");
    return Field(status);
  };
  v1::GraphDefinition attributes;
  v1::Node* node = attributes.add_nodes();
  for (int i = 0; i < 2; ++i) {
    v1::Attribute* attribute = node->add_attributes();
    attribute->set_name(name);
    attribute->set_i(1);
  }
  EXPECT_EQ(refused(attributes),
            "graph.definition.nodes[0].attributes[0].name");
  v1::GraphDefinition constants;
  for (int i = 0; i < 2; ++i) {
    v1::NamedTensor* constant = constants.add_constants();
    constant->set_name(name);
    constant->mutable_value()->mutable_spec()->set_dtype(v1::DATA_TYPE_INT8);
    constant->mutable_value()->set_raw("x");
  }
  EXPECT_EQ(refused(constants), "graph.definition.constants[0]");
  v1::GraphDefinition outputs;
  outputs.add_outputs(name);
  outputs.add_outputs(name);
  EXPECT_EQ(refused(outputs), "graph.definition.outputs[0]");
  v1::GraphDefinition inputs;
  inputs.add_inputs()->set_name(name);
  EXPECT_EQ(refused(inputs), "graph.definition.inputs[0]");
}

TEST(DefinitionImportTest, AnElementTypeIsRequired) {
  v1::GraphDefinition definition;
  v1::GraphInput* input = definition.add_inputs();
  input->set_name("x");
  input->mutable_spec();
  absl::Status status = ImportDefinition(definition, {}).status();
  EXPECT_EQ(status.message(),
            "input \"x\": dtype is not set; it is required (DATA_TYPE_FLOAT, "
            "...)");
  EXPECT_EQ(Field(status), "graph.definition.inputs[0].spec.dtype");
  input->mutable_spec()->set_dtype(static_cast<v1::DataType>(99));
  status = ImportDefinition(definition, {}).status();
  EXPECT_EQ(status.message(),
            "input \"x\": element type 99 is not one that weir knows");
}

v1::TensorValue Text(int64_t count, size_t bytes) {
  v1::TensorValue value;
  value.mutable_spec()->set_dtype(v1::DATA_TYPE_STRING);
  value.mutable_spec()->add_shape(count);
  value.set_raw(std::string(bytes, '\0'));
  return value;
}

// Four bytes on the wire become a view of sixteen.
TEST(DefinitionImportTest, ElementsOfTextAreBoundedInAll) {
  constexpr int64_t kHalf = kMaxTextElements / 2;
  v1::GraphDefinition definition;
  v1::NamedTensor* constant = definition.add_constants();
  constant->set_name("words");
  *constant->mutable_value() = Text(kHalf, 4 * kHalf);
  v1::Node* node = definition.add_nodes();
  node->set_op("Constant");
  v1::Attribute* attribute = node->add_attributes();
  attribute->set_name("value");
  *attribute->mutable_tensor() = Text(kHalf, 4 * kHalf);
  const auto graph = ImportDefinition(definition, {});
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->constants.at("words")->tensor.as<StringRef>()[1].size, 0u);

  constant = definition.add_constants();
  constant->set_name("one");
  *constant->mutable_value() = Text(1, 4);
  absl::Status status = ImportDefinition(definition, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(Reason(status), "GRAPH_TOO_LARGE");
  EXPECT_EQ(Field(status), "graph.definition.constants[1].value.spec.shape");
  EXPECT_EQ(status.message(),
            "constant \"one\": has 1 elements of text; all constants and "
            "attributes of a graph may have 4194304 of them");

  // Of an attribute too.
  definition.clear_constants();
  *attribute->mutable_tensor() =
      Text(kMaxTextElements + 1, 4 * (kMaxTextElements + 1));
  status = ImportDefinition(definition, {}).status();
  EXPECT_EQ(Reason(status), "GRAPH_TOO_LARGE") << status;
  EXPECT_EQ(Field(status),
            "graph.definition.nodes[0].attributes[0].tensor.spec.shape");

  // Of an attribute that is a list of strings, beside others.
  *attribute->mutable_tensor() = Text(kMaxTextElements, 4 * kMaxTextElements);
  v1::Attribute* list = node->add_attributes();
  list->set_name("words");
  list->mutable_strings()->add_values("one");
  status = ImportDefinition(definition, {}).status();
  EXPECT_EQ(Reason(status), "GRAPH_TOO_LARGE") << status;
  EXPECT_EQ(Field(status), "graph.definition.nodes[0].attributes[1].strings");
}

TEST(DefinitionImportTest, TextThatItsBytesCannotHoldTakesNoMemory) {
  v1::GraphDefinition definition;
  definition.add_constants()->set_name("words");
  *definition.mutable_constants(0)->mutable_value() = Text(kMaxTextElements, 9);
  const absl::Status status = ImportDefinition(definition, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_EQ(Field(status), "graph.definition.constants[0].value.raw");
  EXPECT_EQ(status.message(),
            "constant \"words\": its shape asks for 4194304 strings; the 9 "
            "bytes given cannot hold them");
}

// As large as a message: once is enough.
TEST(DefinitionImportTest, ConstantsAreTakenOutOfTheDefinition) {
  v1::GraphDefinition definition;
  v1::NamedTensor* constant = definition.add_constants();
  constant->set_name("c");
  constant->mutable_value()->mutable_spec()->set_dtype(v1::DATA_TYPE_INT8);
  constant->mutable_value()->mutable_spec()->add_shape(4096);
  constant->mutable_value()->set_raw(std::string(4096, 'x'));
  const void* const bytes = constant->value().raw().data();
  const auto graph = ImportDefinition(std::move(definition), {});
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->constants.at("c")->tensor.data, bytes);
}

// One by one, this is 45 billion comparisons of names that begin alike.
TEST(DefinitionImportTest, ManyInputsAreNotComparedWithEachOther) {
  constexpr int kMany = 300'000;
  v1::GraphDefinition definition;
  for (int i = 0; i < kMany; ++i) {
    definition.add_inputs()->set_name(absl::StrCat(std::string(50, 'x'), i));
  }
  std::vector<GivenInput> given;
  for (const v1::GraphInput& input : definition.inputs()) {
    given.push_back({input.name(), DType::kFloat, 1});
  }
  const auto graph = ImportDefinition(definition, given);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->inputs.back().dtype, DType::kFloat);
}

}  // namespace
}  // namespace weir
