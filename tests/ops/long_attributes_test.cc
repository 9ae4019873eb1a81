// What a caller writes into an attribute may be megabytes. An error that
// repeats it says how it begins, and stays short.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/backend/devices.h"
#include "kernels/base/absl_view.h"
#include "kernels/ops/registry.h"
#include "tests/ops/op_test.h"

namespace weir {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

constexpr size_t kLong = size_t{1} << 20;
constexpr size_t kShort = 2048;

// A node that has nothing wrong but `attribute`.
NodeInfo NodeOf(const OpDef& def, const AttributeDef& attribute,
                std::string text) {
  NodeInfo node = Node(std::string(def.name));
  node.domain = std::string(def.domain);
  if (!node.domain.empty()) node.opset = 1;
  for (const AttributeDef& other : def.attributes) {
    if (other.name == "kernel_shape") {
      node.attributes.Set("kernel_shape", std::vector<int64_t>{4, 4});
    }
    if (other.name == "to") node.attributes.Set("to", int64_t{1});
  }
  node.attributes.Set(std::string(attribute.name), std::move(text));
  for (const InputDef& input : def.inputs) {
    if (input.optional) break;
    node.input_types.push_back(input.types.Has(DType::kFloat) ? DType::kFloat
                               : input.types.Has(DType::kInt64)
                                   ? DType::kInt64
                                   : DType::kUint8);
  }
  return node;
}

TEST(LongAttributesTest, TextIsNotRepeatedWhole) {
  const auto registry = MakeOpRegistry({.test_operators = true});
  const std::unique_ptr<Device> cpu = MakeCpuDevice({});
  std::set<std::string> refused;
  for (const OpDef* def : registry->List()) {
    for (const AttributeDef& attribute : def->attributes) {
      if (attribute.type != AttributeType::kString) continue;
      const NodeInfo node = NodeOf(*def, attribute, std::string(kLong, 'm'));
      const std::string name =
          absl::StrCat(AbslView(def->name), ".", AbslView(attribute.name));
      SCOPED_TRACE(name);
      absl::Status status = InferShapes(node, std::vector<SymbolicShape>(
                                                  node.input_types.size(),
                                                  SymbolicDims{1, 2, 4, 4}))
                                .status();
      if (status.ok()) status = registry->CreateKernel(node, *cpu).status();
      if (status.ok()) continue;
      refused.insert(name);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_LT(status.message().size(), kShort);
      EXPECT_THAT(std::string(status.message().substr(0, kShort)),
                  HasSubstr("\"mmmmm"));
    }
  }
  EXPECT_THAT(
      refused,
      IsSupersetOf({"Gelu.approximate", "Pad.mode", "Fault.mode",
                    "Conv.auto_pad", "MaxPool.auto_pad", "AveragePool.auto_pad",
                    "Resize.interp_type", "Normalize.output_layout"}));
}

TEST(LongAttributesTest, ListsAreNotRepeatedWhole) {
  const std::vector<int64_t> list(kLong, -2);
  NodeInfo transpose = Node("Transpose", Attrs({{"perm", list}}));
  transpose.input_types = {DType::kFloat};
  NodeInfo reshape = Node("Reshape");
  reshape.input_types = {DType::kFloat, DType::kInt64};
  std::vector<int64_t> huge(kLong, int64_t{1} << 40);
  huge[1] = -1;
  const SymbolicShape picture = SymbolicDims{4, 4};
  const SymbolicShape count = SymbolicDims{static_cast<int64_t>(kLong)};
  for (const absl::Status& status :
       {InferShapes(transpose, {picture}).status(),
        InferShapes(reshape, {picture, count}, {std::nullopt, list}).status(),
        InferShapes(reshape, {picture, count}, {std::nullopt, huge})
            .status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_LT(status.message().size(), kShort);
  }
}

}  // namespace
}  // namespace weir
