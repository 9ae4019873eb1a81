#include "kernels/ops/registry.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend/devices.h"
#include "tests/ops/op_test.h"

namespace weir {
namespace {

using testing::HasSubstr;

absl::Status CheckTypes(std::string op, std::vector<DType> types,
                        Attributes attributes = {}, int outputs = 1) {
  NodeInfo node = Node(std::move(op), std::move(attributes));
  node.name = "n1";
  node.input_types = std::move(types);
  node.num_outputs = outputs;
  return MakeOpRegistry()->Check(node);
}

TEST(OpRegistryTest, EveryOperatorOfTheListHasDefinitionAndCpuKernel) {
  const auto registry = MakeOpRegistry({.test_operators = true});
  std::set<std::string> listed;
#define OP(domain, Name, family, ...) listed.insert(#domain "." #Name);
#include "kernels/ops/ops.def"
#undef OP
  std::vector<const OpDef*> defs = registry->List();
  for (const char* const name :
       {"FusedConv", "FusedElementwise", "FusedMatMul", "Relayout"}) {
    defs.push_back(registry->FindInternal("weir", name));
    ASSERT_NE(defs.back(), nullptr) << name;
    EXPECT_TRUE(defs.back()->internal) << name;
  }
  std::set<std::string> found;
  for (const OpDef* def : defs) {
    const std::string name(def->name);
    // Chains are joined for other devices alone.
    EXPECT_EQ(registry->HasKernel(DeviceKind::kCpu, def->domain, name),
              name != "FusedElementwise")
        << name;
    EXPECT_NE(def->infer, nullptr) << name;
    EXPECT_FALSE(def->doc.empty()) << name;
    EXPECT_FALSE(def->outputs.empty()) << name;
    for (const AttributeDef& attribute : def->attributes) {
      EXPECT_FALSE(attribute.doc.empty()) << name << "." << attribute.name;
    }
    found.insert((def->domain.empty() ? "onnx." : "weir.") + name);
  }
  EXPECT_EQ(found, listed);
}

// ONNX made inputs of lists that were attributes. Which of two holds, nothing
// says.
TEST(OpRegistryTest, AListIsAnAttributeOrAnInputNotBoth) {
  const auto registry = MakeOpRegistry();
  std::set<std::string> found;
  for (const OpDef* def : registry->List()) {
    if (!def->domain.empty()) continue;
    for (size_t i = 0; i < def->inputs.size(); ++i) {
      const std::string name(def->inputs[i].name);
      const bool attribute = std::any_of(
          def->attributes.begin(), def->attributes.end(),
          [&](const AttributeDef& known) { return known.name == name; });
      if (!attribute) continue;
      found.insert(std::string(def->name));
      for (const int opset : {11, 13, 21}) {
        SCOPED_TRACE(testing::Message() << def->name << " " << opset);
        NodeInfo node = Node(std::string(def->name),
                             Attrs({{name, std::vector<int64_t>{1}}}), opset);
        node.input_types.assign(i, DType::kFloat);
        node.input_types.push_back(DType::kInt64);
        std::vector<SymbolicShape> shapes(i, SymbolicDims{1, 1});
        shapes.push_back(SymbolicDims{1});
        for (const bool known : {false, true}) {
          std::vector<std::optional<std::vector<int64_t>>> lists(i + 1);
          if (known) lists[i] = {1};
          const absl::Status refused =
              InferShapes(node, shapes, lists).status();
          EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
          EXPECT_THAT(refused.message(), HasSubstr("attribute \"" + name));
          EXPECT_THAT(refused.message(),
                      HasSubstr("input " + std::to_string(i)));
        }
        // Each alone will do.
        node.attributes = {};
        EXPECT_TRUE(InferShapes(node, shapes).ok());
        node.input_types.pop_back();
        shapes.pop_back();
        node.attributes = Attrs({{name, std::vector<int64_t>{1}}});
        EXPECT_TRUE(InferShapes(node, shapes).ok());
      }
    }
  }
  EXPECT_THAT(found, testing::IsSupersetOf({"ReduceSum", "ReduceMax", "Split",
                                            "Squeeze", "Unsqueeze"}));
}

TEST(OpRegistryTest, InternalOperatorsCannotBeNamed) {
  const auto registry = MakeOpRegistry();
  EXPECT_EQ(registry->Find("weir", "FusedConv"), nullptr);
  EXPECT_NE(registry->FindInternal("weir", "FusedConv"), nullptr);
  for (const OpDef* def : registry->List()) EXPECT_FALSE(def->internal);
}

TEST(OpRegistryTest, KernelsSayWhatTheyTake) {
  const auto parent = MakeOpRegistry();
  OpRegistry registry(parent.get());
  DeviceInfo cpu_info, cuda_info;
  cuda_info.kind = DeviceKind::kCuda;
  NodeInfo node = WeirNode("FusedConv");
  node.input_types = {DType::kFloat, DType::kFloat};
  EXPECT_TRUE(registry.Takes(cpu_info, node));
  EXPECT_TRUE(registry.TakesChannelsLast(cpu_info, node));
  EXPECT_FALSE(registry.Takes(cuda_info, node));
  node.input_types = {DType::kFloat16, DType::kFloat16};
  EXPECT_FALSE(registry.Takes(cpu_info, node));
  const auto cpu = MakeCpuDevice({});
  EXPECT_TRUE(
      absl::IsUnimplemented(registry.CreateKernel(node, *cpu).status()));
  const auto refuse =
      [](const NodeInfo&,
         Device&) -> absl::StatusOr<std::unique_ptr<const Kernel>> {
    return absl::UnimplementedError("never made");
  };
  EXPECT_EQ(registry.Traits(cuda_info, node).scratch_bytes, nullptr);
  KernelTraits traits;
  traits.scratch_bytes = [](const NodeInfo&, const PlanArgs&) {
    return int64_t{7};
  };
  ASSERT_TRUE(registry
                  .RegisterKernel(DeviceKind::kCuda, "weir", "FusedConv",
                                  refuse, traits)
                  .ok());
  EXPECT_EQ(registry.Traits(cuda_info, node).scratch_bytes(node, {}), 7);
  EXPECT_EQ(registry.Traits(cpu_info, node).scratch_bytes, nullptr);
  EXPECT_TRUE(registry.Takes(cuda_info, node));
  EXPECT_FALSE(registry.TakesChannelsLast(cuda_info, node));
  node.input_types = {DType::kFloat16, DType::kFloat};
  EXPECT_FALSE(registry.Takes(cuda_info, node));
}

TEST(OpRegistryTest, TestOperatorsAreHiddenUnlessAskedFor) {
  const auto registry = MakeOpRegistry();
  EXPECT_EQ(registry->Find("weir", "Spin"), nullptr);
  EXPECT_FALSE(registry->HasKernel(DeviceKind::kCpu, "weir", "Spin"));
  for (const OpDef* def : registry->List()) EXPECT_FALSE(def->test_only);
  const auto named = MakeOpRegistry({.test_operators_name = "a switch"});
  const OpRegistry nested(named.get());
  EXPECT_STREQ(nested.HiddenBy("weir", "Spin"), "a switch");
  EXPECT_EQ(nested.HiddenBy("weir", "Resize"), nullptr);
  EXPECT_EQ(nested.HiddenBy("weir", "Nothing"), nullptr);
  EXPECT_NE(MakeOpRegistry({.test_operators = true})->Find("weir", "Spin"),
            nullptr);
}

TEST(OpRegistryTest, NestedRegistrySeesItsParent) {
  const auto parent = MakeOpRegistry();
  OpRegistry nested(parent.get());
  OpDef def;
  def.domain = "weir";
  def.name = "Mine";
  EXPECT_EQ(nested.Register(def).code(), absl::StatusCode::kInvalidArgument);
  def.infer = [](InferContext&) { return absl::OkStatus(); };
  EXPECT_EQ(nested.Register(def).code(), absl::StatusCode::kInvalidArgument);
  def.cost = LinearCost;
  ASSERT_TRUE(nested.Register(def).ok());
  EXPECT_EQ(nested.Register(def).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_NE(nested.Find("weir", "Mine"), nullptr);
  EXPECT_EQ(parent->Find("weir", "Mine"), nullptr);
  EXPECT_EQ(nested.Find("", "Add"), parent->Find("", "Add"));
  EXPECT_TRUE(nested.HasKernel(DeviceKind::kCpu, "", "Add"));
  EXPECT_EQ(nested.List().size(), parent->List().size() + 1);

  // A kernel for an operator of the parent stays in the nested registry.
  const auto factory =
      [](const NodeInfo&,
         Device&) -> absl::StatusOr<std::unique_ptr<const Kernel>> {
    return absl::UnimplementedError("none");
  };
  EXPECT_TRUE(
      nested.RegisterKernel(DeviceKind::kCuda, "", "Add", factory).ok());
  EXPECT_TRUE(nested.HasKernel(DeviceKind::kCuda, "", "Add"));
  EXPECT_FALSE(parent->HasKernel(DeviceKind::kCuda, "", "Add"));
  EXPECT_EQ(nested.RegisterKernel(DeviceKind::kCuda, "", "Add", factory).code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(
      nested.RegisterKernel(DeviceKind::kCuda, "", "None", factory).code(),
      absl::StatusCode::kNotFound);
}

TEST(OpRegistryTest, ChecksArity) {
  EXPECT_TRUE(CheckTypes("Add", {DType::kFloat, DType::kFloat}).ok());
  const absl::Status one = CheckTypes("Add", {DType::kFloat});
  EXPECT_EQ(one.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(one.message()), HasSubstr("n1"));
  EXPECT_THAT(std::string(one.message()), HasSubstr("input 1 (B)"));
  EXPECT_FALSE(
      CheckTypes("Add", {DType::kFloat, DType::kFloat, DType::kFloat}).ok());
  EXPECT_FALSE(CheckTypes("Add", {DType::kFloat, DType::kFloat}, {}, 2).ok());
  // A missing optional input before a given one.
  EXPECT_TRUE(
      CheckTypes("Clip", {DType::kFloat, DType::kInvalid, DType::kFloat}).ok());
  EXPECT_TRUE(CheckTypes("Max", std::vector<DType>(40, DType::kInt8)).ok());
  EXPECT_FALSE(CheckTypes("Max", {}).ok());
  EXPECT_TRUE(CheckTypes("Split", {DType::kFloat}, {}, 7).ok());
}

TEST(OpRegistryTest, ChecksTypes) {
  EXPECT_EQ(CheckTypes("Add", {DType::kFloat, DType::kDouble}).code(),
            absl::StatusCode::kInvalidArgument);
  const absl::Status strings =
      CheckTypes("Add", {DType::kString, DType::kString});
  EXPECT_EQ(strings.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(strings.message()),
              HasSubstr("cannot be string; 'weir ops Add' lists the types"));
  EXPECT_TRUE(CheckTypes("Pow", {DType::kFloat, DType::kInt8}).ok());
  const absl::Status unknown = CheckTypes("Nothing", {});
  EXPECT_EQ(unknown.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("Nothing"));
}

TEST(OpRegistryTest, ChecksAttributes) {
  const std::vector<DType> one = {DType::kFloat};
  EXPECT_TRUE(CheckTypes("Flatten", one, Attrs({{"axis", int64_t{1}}})).ok());
  EXPECT_FALSE(CheckTypes("Flatten", one, Attrs({{"axes", int64_t{1}}})).ok());
  EXPECT_THAT(
      std::string(
          CheckTypes("Flatten", one, Attrs({{"axis", 1.0f}})).message()),
      HasSubstr("attribute \"axis\" is a float (f); it must be an int (i)"));
  EXPECT_FALSE(CheckTypes("Flatten", one,
                          Attrs({{"axis", int64_t{1}}, {"axis", int64_t{1}}}))
                   .ok());
  EXPECT_FALSE(CheckTypes("Cast", one).ok());  // "to" is required
}

absl::Status AddFarIdentity(OpRegistry& registry) {
  return registry.RegisterKernel(
      DeviceKind::kCuda, "", "Identity",
      [](const NodeInfo&,
         Device&) -> absl::StatusOr<std::unique_ptr<const Kernel>> {
        return absl::UnimplementedError("far");
      });
}

// A second device of a kind finds the kernels that the first one brought.
TEST(OpRegistryTest, KernelsOfAKindAreRegisteredOnce) {
  const auto registry = MakeOpRegistry();
  ASSERT_FALSE(registry->HasKernel(DeviceKind::kCuda, "", "Identity"));
  for (int device = 0; device < 2; ++device) {
    EXPECT_TRUE(
        registry->RegisterKernelsOnce(DeviceKind::kCuda, AddFarIdentity).ok());
    EXPECT_TRUE(registry->HasKernel(DeviceKind::kCuda, "", "Identity"));
  }
  // By one backend, not by two.
  EXPECT_TRUE(absl::IsAlreadyExists(AddFarIdentity(*registry)));
}

// One that failed did not happen: it is told again.
TEST(OpRegistryTest, AFailedRegistrationIsToldToEveryDevice) {
  const auto registry = MakeOpRegistry();
  const auto fail = [](OpRegistry&) { return absl::InternalError("broken"); };
  for (int device = 0; device < 2; ++device) {
    EXPECT_TRUE(absl::IsInternal(
        registry->RegisterKernelsOnce(DeviceKind::kCuda, fail)));
  }
}

TEST(AttributesTest, ReadsWithFallbacks) {
  const Attributes attributes =
      Attrs({{"i", int64_t{3}},
             {"f", 0.5f},
             {"s", std::string("text")},
             {"is", std::vector<int64_t>{1, 2}},
             {"fs", std::vector<float>{0.25f}},
             {"ss", std::vector<std::string>{"a", "b"}}});
  EXPECT_EQ(attributes.Int("i", 0), 3);
  EXPECT_EQ(attributes.Int("none", 7), 7);
  EXPECT_EQ(attributes.Float("f", 0), 0.5f);
  EXPECT_EQ(attributes.String("s", ""), "text");
  EXPECT_EQ(attributes.String("none", "x"), "x");
  EXPECT_EQ(attributes.Ints("is"), (std::vector<int64_t>{1, 2}));
  EXPECT_TRUE(attributes.Ints("none").empty());
  EXPECT_EQ(attributes.Floats("fs"), std::vector<float>{0.25f});
  EXPECT_EQ(attributes.Strings("ss").size(), 2u);
  EXPECT_EQ(attributes.Tensor("none"), nullptr);
  EXPECT_TRUE(attributes.Has("i"));
}

}  // namespace
}  // namespace weir
