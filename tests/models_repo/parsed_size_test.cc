#include "server/models/parsed_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "kernels/base/error_info.h"
#include "proto/weir/v1/graph.pb.h"
#include "server/models/onnx_import.h"
#include "tests/models_repo/onnx_model.h"

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
