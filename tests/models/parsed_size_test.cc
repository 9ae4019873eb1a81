#include "server/models/parsed_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <string_view>

#include "kernels/base/error_info.h"
#include "proto/weir/v1/graph.pb.h"
#include "server/models/onnx_import.h"
#include "tests/models/onnx_model.h"

namespace weir::testing {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::Message;

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

// `count` times an empty message or string, as field `number`.
std::string Empties(int number, size_t count) {
  std::string bytes;
  for (size_t i = 0; i < count; ++i) {
    bytes += static_cast<char>(number << 3 | 2);
    bytes += '\0';
  }
  return bytes;
}

// `count` times `part`.
std::string Times(std::string_view part, size_t count) {
  std::string bytes;
  for (size_t i = 0; i < count; ++i) bytes += part;
  return bytes;
}

using std::string_view_literals::operator""sv;

// What is counted covers what protobuf takes, and not ten times as much.
void ExpectCovers(Message& message) {
  const std::string bytes = message.SerializeAsString();
  const int64_t counted = ParsedBytes(*message.GetDescriptor(), bytes, kAll);
  ASSERT_TRUE(message.ParseFromString(bytes));
  const auto taken = static_cast<int64_t>(message.SpaceUsedLong());
  EXPECT_GE(counted + static_cast<int64_t>(bytes.size()) +
                static_cast<int64_t>(sizeof(onnx::ModelProto)),
            taken);
  EXPECT_LT(counted, 10 * taken);
}

TEST(ParsedSizeTest, CoversWhatProtobufTakes) {
  v1::GraphDefinition graph;
  onnx::ModelProto model = EmptyModel();
  for (int i = 0; i < 500; ++i) {
    v1::Node* node = graph.add_nodes();
    node->set_name("a name that is longer than a string holds by itself");
    node->set_op("Sum");
    for (int j = 0; j < i % 7; ++j) {
      node->add_inputs("x");
      node->add_attributes()->mutable_ints()->add_values(j);
      node->add_attributes()->mutable_floats()->add_values(0);
      node->add_attributes()->mutable_strings()->add_values("s");
    }
    onnx::NodeProto* to = AddNode(&model, "Sum", {"x", "y"}, {"z"});
    to->add_attribute()->add_ints(i);
    to->add_attribute()->set_s(std::string(static_cast<size_t>(i), 's'));
    AddFloats(&model, "w", std::vector<float>(100, 1));
    onnx::TensorProto* numbers = model.mutable_graph()->add_initializer();
    for (int j = 0; j < 50; ++j) numbers->add_int64_data(j);
    for (int j = 0; j < 50; ++j) numbers->add_int32_data(0x3c00);
  }
  ExpectCovers(graph);
  ExpectCovers(model);
}

TEST(ParsedSizeTest, CountsEveryPartOfNothing) {
  constexpr size_t kCount = 10'000;
  for (int number = 1; number <= 4; ++number) {
    v1::GraphDefinition graph;
    ASSERT_TRUE(graph.ParseFromString(Empties(number, kCount)));
    ExpectCovers(graph);
  }
  onnx::GraphProto onnx;
  ASSERT_TRUE(onnx.ParseFromString(Empties(1, kCount)));
  ExpectCovers(onnx);
  // Fields that nobody knows are kept too.
  v1::Node unknown;
  ASSERT_TRUE(unknown.ParseFromString(Empties(15, kCount)));
  ExpectCovers(unknown);
}

// Parses `count` times `part` into a Kept. What protobuf does not know it keeps
// in lists that double, beside those of before.
template <typename Kept>
void ExpectKept(std::string_view part, size_t count) {
  Kept message;
  ASSERT_TRUE(message.ParseFromString(Times(part, count)));
  const int64_t counted =
      ParsedBytes(*message.GetDescriptor(), message.SerializeAsString(), kAll);
  EXPECT_GE(counted, static_cast<int64_t>(count) * 48);
  ExpectCovers(message);
}

TEST(ParsedSizeTest, CountsKnownFieldsOfAnotherWireType) {
  constexpr size_t kCount = 10'000;
  // producer_name, a string, as each kind of number.
  ExpectKept<onnx::ModelProto>("\x10\x00"sv, kCount);
  ExpectKept<onnx::ModelProto>("\x11\0\0\0\0\0\0\0\0"sv, kCount);
  ExpectKept<onnx::ModelProto>("\x15\0\0\0\0"sv, kCount);
  // ir_version, a number, as a string and as another kind of number.
  ExpectKept<onnx::ModelProto>("\x0a\x00"sv, kCount);
  ExpectKept<onnx::ModelProto>("\x0d\0\0\0\0"sv, kCount);
  // Those of graph.proto: nodes as numbers, the opset as a string.
  ExpectKept<v1::GraphDefinition>("\x08\x00"sv, kCount);
  ExpectKept<v1::GraphDefinition>("\x2a\x00"sv, kCount);
  // Repeated numbers take both of their forms, and no third.
  ExpectKept<onnx::AttributeProto>("\x45\0\0\0\0"sv, kCount);
  // One such field in each message.
  ExpectKept<v1::GraphDefinition>("\x0a\x02\x08\x00"sv, kCount);
  ExpectKept<onnx::GraphProto>("\x0a\x02\x18\x00"sv, kCount);
}

TEST(ParsedSizeTest, CountsWhatIsKnownOutsideOfAGroup) {
  constexpr size_t kCount = 10'000;
  const std::string known = Times("\x08\x00"sv, kCount);
  const std::string strings = Times("\x12\x00"sv, kCount);
  ExpectKept<onnx::ModelProto>("\x7b" + known + strings + "\x7c", 1);
  ExpectKept<v1::GraphDefinition>("\x7b" + strings + known + "\x7c", 1);
  // A group in a group, and many empty ones; what follows them is known.
  ExpectKept<onnx::ModelProto>("\x7b\x7b\x08\x00\x7c\x08\x00\x7c"sv, kCount);
  ExpectKept<v1::GraphDefinition>("\x7b\x7c"sv, kCount);
  const std::string after = "\x7b\x7c" + known;
  EXPECT_LT(ParsedBytes(*onnx::ModelProto::descriptor(), after, kAll), 1000);
  // One that is not closed, or closed as another.
  EXPECT_GT(ParsedBytes(*onnx::ModelProto::descriptor(), "\x7b" + known, kAll),
            static_cast<int64_t>(kCount) * 48);
  EXPECT_GT(ParsedBytes(*onnx::ModelProto::descriptor(),
                        "\x7b" + known + "\x74", kAll),
            static_cast<int64_t>(kCount) * 48);
}

TEST(ParsedSizeTest, CountsUnknownValuesOfEnums) {
  constexpr size_t kCount = 10'000;
  // AttributeProto.type and TensorProto.data_location.
  ExpectKept<onnx::AttributeProto>("\xa0\x01\x7f"sv, kCount);
  ExpectKept<onnx::TensorProto>("\x70\x7f"sv, kCount);
  const std::string known = Times("\xa0\x01\x01"sv, kCount);
  EXPECT_EQ(ParsedBytes(*onnx::AttributeProto::descriptor(), known, kAll), 0);
}

TEST(ParsedSizeTest, StopsWhereThereIsEnoughOrNoMessage) {
  const Descriptor& type = *v1::GraphDefinition::descriptor();
  const std::string many = Empties(1, 1'000'000);
  const int64_t counted = ParsedBytes(type, many, 1'000'000);
  EXPECT_GE(counted, 1'000'000);
  EXPECT_LT(counted, 1'001'000);
  // A length beyond the end, a field number of 0, nothing at all.
  EXPECT_LT(ParsedBytes(type, "\x0a\x7f", kAll), 1000);
  EXPECT_EQ(ParsedBytes(type, std::string(1, '\0'), kAll), 0);
  EXPECT_EQ(ParsedBytes(type, "", kAll), 0);
}

TEST(ParsedSizeTest, RefusesWhatIsOnlyUnknown) {
  // 16 MB that protobuf would make 384 MB of.
  for (const std::string_view part :
       {"\x10\x00"sv, "\x3a\x04\x7b\x08\x00\x7c"sv,
        "\x3a\x06\x2a\x04\x70\x7f\x70\x7f"sv}) {
    const std::string bytes = Times(part, (size_t{16} << 20) / part.size());
    const absl::Status status = ImportOnnx(bytes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_EQ(Reason(status), "GRAPH_TOO_LARGE");
  }
}

TEST(ParsedSizeTest, RefusesABombBeforeItIsParsed) {
  onnx::ModelProto model = EmptyModel();
  std::string graph = Empties(1, 5'000'000);
  model.clear_graph();
  std::string bytes = model.SerializeAsString();
  bytes += static_cast<char>(7 << 3 | 2);
  for (size_t size = graph.size();; size >>= 7) {
    if (size < 0x80) {
      bytes += static_cast<char>(size);
      break;
    }
    bytes += static_cast<char>(size | 0x80);
  }
  bytes += graph;
  const absl::Status status = ImportOnnx(bytes).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(Reason(status), "GRAPH_TOO_LARGE");
}

}  // namespace
}  // namespace weir::testing
