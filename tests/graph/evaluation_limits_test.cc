// How large an evaluation may be, on every way to a plan: compilation, folding,
// values that shapes depend on, outlines, and plans with concrete shapes.
#include "kernels/graph/evaluation_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/backend/devices.h"
#include "kernels/base/error_info.h"
#include "kernels/base/saturating.h"
#include "kernels/graph/program.h"
#include "tests/graph/plan_runner.h"
#include "tests/graph/test_operators.h"

namespace weir {
namespace {

using ::testing::HasSubstr;
using ::weir::testing::Floats;
using ::weir::testing::Input;
using ::weir::testing::Ints;
using ::weir::testing::Node;

// weir.Work costs `operations`, takes `scratch` bytes and copies its input. It
// counts how often it was planned and run.
struct Counts {
  std::atomic<int> planned{0};
  std::atomic<int> planned_once{0};
  std::atomic<int> ran{0};
};

class WorkPlan final : public KernelPlan {
 public:
  WorkPlan(Counts* counts, size_t bytes, size_t scratch, size_t held,
           bool shares)
      : counts_(counts),
        bytes_(bytes),
        scratch_(scratch),
        held_(held),
        shares_(shares) {}
  size_t scratch_bytes() const override { return scratch_; }
  size_t held_bytes() const override { return held_; }
  // One object, whatever the node.
  std::vector<SharedHold> shared_holds() const override {
    if (!shares_) return {};
    return {{counts_, held_}};
  }
  absl::Status Run(const RunArgs& run) const override {
    ++counts_->ran;
    std::memcpy(run.outputs[0], run.inputs[0], bytes_);
    return absl::OkStatus();
  }

 private:
  Counts* const counts_;
  const size_t bytes_, scratch_, held_;
  const bool shares_;
};

class WorkKernel final : public Kernel {
 public:
  WorkKernel(Counts* counts, const NodeInfo& node)
      : counts_(counts),
        scratch_(static_cast<size_t>(node.attributes.Int(
            "more_scratch", node.attributes.Int("scratch", 0)))),
        held_(static_cast<size_t>(node.attributes.Int("held", 0))),
        shares_(node.attributes.Int("shares", 0) != 0) {}
  absl::StatusOr<std::unique_ptr<const KernelPlan>> Plan(
      const PlanArgs& args) const override {
    ++counts_->planned;
    if (args.once) ++counts_->planned_once;
    return std::make_unique<const WorkPlan>(counts_, args.inputs[0].bytes,
                                            scratch_, held_, shares_);
  }

 private:
  Counts* const counts_;
  const size_t scratch_, held_;
  const bool shares_;
};

OpDef WorkDef() {
  OpDef def;
  def.domain = "weir";
  def.name = "Work";
  def.inputs = {{.name = "X", .types = {DType::kFloat, DType::kInt64}}};
  def.outputs = {{.name = "Y"}};
  def.attributes = {{"operations", AttributeType::kInt, false, ""},
                    {"scratch", AttributeType::kInt, false, ""},
                    // Which the cost says nothing of, as libraries' workspaces.
                    {"more_scratch", AttributeType::kInt, false, ""},
                    // More where the plan runs once.
                    {"once", AttributeType::kInt, false, ""},
                    {"held", AttributeType::kInt, false, ""},
                    {"shares", AttributeType::kInt, false, ""}};
  def.infer = testing::SameShape;
  def.cost = [](const NodeInfo& node, Pace, const PlanArgs& args) {
    return NodeCost{node.attributes.Int("operations", 0) +
                        (args.once ? node.attributes.Int("once", 0) : 0),
                    node.attributes.Int("scratch", 0)};
  };
  def.cpu_weight = 1;
  return def;
}

class EvaluationLimitsTest : public ::testing::Test {
 protected:
  EvaluationLimitsTest()
      : all_(MakeOpRegistry()),
        registry_(all_.get()),
        device_(MakeCpuDevice({})) {
    EXPECT_TRUE(registry_
                    .Register(WorkDef(),
                              [this](const NodeInfo& node, Device&) {
                                return std::make_unique<const WorkKernel>(
                                    &counts_, node);
                              })
                    .ok());
  }

  absl::StatusOr<std::shared_ptr<const Program>> Compile(
      Graph graph, EvaluationLimits limits = {}) {
    ProgramOptions options;
    options.evaluation = limits;
    return Program::Compile(std::move(graph), *device_, registry_, options);
  }

  static GraphNode Work(std::string name, std::string from, std::string to,
                        int64_t operations, int64_t scratch = 0) {
    GraphNode node =
        Node("weir.Work", {std::move(from)}, {std::move(to)}, std::move(name));
    node.attributes.Set("operations", operations);
    node.attributes.Set("scratch", scratch);
    return node;
  }

  const std::unique_ptr<OpRegistry> all_;
  OpRegistry registry_;
  const std::unique_ptr<Device> device_;
  Counts counts_;
};

void ExpectTooLarge(const absl::Status& status, const std::string& node,
                    const std::string& asked, const std::string& flag) {
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(Reason(status), "EVALUATION_TOO_LARGE") << status;
  EXPECT_FALSE(RetryAfter(status).has_value());
  for (const std::string& word : {"node \"" + node + "\" (", asked, flag}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }
}

// One node for each limit, with an open dim: nothing is known before there is
// an input.
Graph OpenGraph(GraphNode node, std::vector<std::string> outputs = {"y"}) {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim()})};
  graph.nodes = {std::move(node)};
  graph.outputs = std::move(outputs);
  return graph;
}

HostTensor Of(Dims dims) { return {DType::kFloat, std::move(dims), nullptr}; }

// No working device that computes this is stalled.
TEST_F(EvaluationLimitsTest, AFirstRunMayTakeWhatItsOperationsTake) {
  const auto guess = [this](int64_t operations, Dims dims) {
    const auto program = Compile(OpenGraph(Work("work", "x", "y", operations)),
                                 {.operations = kSaturated});
    EXPECT_TRUE(program.ok()) << program.status();
    const auto plan = (*program)->MakePlan({Of(std::move(dims))});
    EXPECT_TRUE(plan.ok()) << plan.status();
    return (*plan)->longest_ns();
  };
  constexpr int64_t kSecond = 1'000'000'000;
  EXPECT_LT(guess(1'000'000, {1000}), kSecond / 100);
  EXPECT_GE(guess(10'000'000'000'000, {1'000'000}), 1000 * kSecond);
  EXPECT_LT(guess(10'000'000'000'000, {1'000'000}), 1200 * kSecond);
  // One thread makes it all.
  EXPECT_GE(guess(1'000'000'000, {1}), 10 * kSecond);
}

TEST_F(EvaluationLimitsTest, OperationsAreSummedOverTheGraph) {
  Graph graph = OpenGraph(Work("small", "x", "a", 40));
  graph.nodes.push_back(Work("large", "a", "b", 50));
  graph.nodes.push_back(Work("last", "b", "y", 10));
  const auto fits = Compile(graph, {.operations = 100});
  ASSERT_TRUE(fits.ok()) << fits.status();
  EXPECT_TRUE((*fits)->MakePlan({Of({3})}).ok());
  EXPECT_EQ(counts_.planned, 3);

  const auto program = Compile(std::move(graph), {.operations = 99});
  // The count does not depend on shapes here, but shapes are not known.
  ASSERT_TRUE(program.ok()) << program.status();
  const absl::Status status = (*program)->MakePlan({Of({3})}).status();
  ExpectTooLarge(status, "large", "100 operations, 50 of them here",
                 "99 (operations)");
  EXPECT_EQ(counts_.planned, 3) << "kernels were planned before the check";
  EXPECT_EQ(Metadata(status),
            (ReasonMetadata{{"limit", "99"}, {"flag", "operations"}}));
}

// A bound that goes by time: a function takes a CPU hundreds of times as long
// as a product.
TEST_F(EvaluationLimitsTest, ACpusOperationsCountByTheTimeTheyTake) {
  const auto count = [this](const char* op, DType dtype, size_t inputs) {
    Graph graph;
    const auto length = SymbolicDims{Dim(10), Dim(10)};
    graph.inputs = {{.name = "x", .dtype = dtype, .shape = length}};
    graph.nodes = {Node(op, std::vector<std::string>(inputs, "x"), {"y"})};
    graph.outputs = {"y"};
    const absl::Status status =
        Compile(std::move(graph), {.operations = 1}).status();
    EXPECT_EQ(Reason(status), "EVALUATION_TOO_LARGE") << status;
    int64_t operations = 0;
    const std::string text(status.message());
    const size_t at = text.find("would run ");
    EXPECT_NE(at, std::string::npos) << text;
    EXPECT_EQ(std::sscanf(text.c_str() + at, "would run %" SCNd64, &operations),
              1);
    return operations;
  };
  // 100 elements: read and written, and 10 products for each.
  EXPECT_EQ(count("MatMul", DType::kFloat, 2), 1000 + 300 * 10);
  EXPECT_EQ(count("MatMul", DType::kFloat16, 2), 1000 + 300 * 100);
  EXPECT_EQ(count("MatMul", DType::kDouble, 2), 5 * 4000);
  EXPECT_EQ(count("MatMul", DType::kInt32, 2), 5 * 4000);
  EXPECT_EQ(count("Add", DType::kFloat, 2), 200 * 10);
  EXPECT_EQ(count("Add", DType::kBfloat16, 2), 200 * 100);
  // 10 rows, of 2 axes.
  EXPECT_EQ(count("Transpose", DType::kInt64, 1), (100 + 10 * 2 * 6) * 10);
  EXPECT_EQ(count("Relu", DType::kFloat, 1), 100 * 10);
  for (const char* op : {"Exp", "Log", "Sqrt", "Erf", "Tanh", "Sigmoid"}) {
    EXPECT_EQ(count(op, DType::kFloat, 1), 100 * 250) << op;
  }
  EXPECT_EQ(count("Gelu", DType::kFloat, 1), 100 * 250);
  EXPECT_EQ(count("Gelu", DType::kFloat16, 1), 100 * 340);
  EXPECT_EQ(count("Pow", DType::kDouble, 2), 200 * 250);
}

// A thread makes an element, and the others have nothing to do.
TEST_F(EvaluationLimitsTest, FewElementsTakeAGpuAsLongAsTenThousand) {
  ASSERT_TRUE(registry_
                  .RegisterKernel(DeviceKind::kCuda, "weir", "Work",
                                  [this](const NodeInfo& node, Device&) {
                                    return std::make_unique<const WorkKernel>(
                                        &counts_, node);
                                  })
                  .ok());
  testing::FarDevice gpu;
  const Graph graph = OpenGraph(Work("window", "x", "y", 1'000'000));
  const auto plan = [&](Device& device, Dims dims) {
    ProgramOptions options;
    options.evaluation.operations = 100'000'000;
    const auto program =
        Program::Compile(Graph(graph), device, registry_, options);
    EXPECT_TRUE(program.ok()) << program.status();
    return (*program)->MakePlan({Of(std::move(dims))}).status();
  };
  ExpectTooLarge(plan(gpu, {1}), "window", "10000000000 operations",
                 "100000000 (operations)");
  ExpectTooLarge(plan(gpu, {99}), "window", "101010000 operations",
                 "100000000 (operations)");
  EXPECT_TRUE(plan(gpu, {100}).ok());
  EXPECT_TRUE(plan(gpu, {1'000'000}).ok());
  EXPECT_TRUE(plan(gpu, {0}).ok());
  EXPECT_TRUE(plan(*device_, {1}).ok());
}

// An operator's cost has what the CPU's kernel takes.
TEST_F(EvaluationLimitsTest, ADevicesKernelSaysItselfWhatScratchMemoryItTakes) {
  KernelTraits traits;
  traits.scratch_bytes = [](const NodeInfo&, const PlanArgs& args) {
    return 10 * args.outputs[0].elements;
  };
  ASSERT_TRUE(registry_
                  .RegisterKernel(
                      DeviceKind::kCuda, "weir", "Work",
                      [this](const NodeInfo& node, Device&) {
                        return std::make_unique<const WorkKernel>(&counts_,
                                                                  node);
                      },
                      traits)
                  .ok());
  testing::FarDevice gpu;
  const auto plan = [&](Device& device, int64_t of_the_cpu, Dims dims) {
    ProgramOptions options;
    options.evaluation.scratch_bytes = 4096;
    const auto program =
        Program::Compile(OpenGraph(Work("w", "x", "y", 1, of_the_cpu)), device,
                         registry_, options);
    EXPECT_TRUE(program.ok()) << program.status();
    return (*program)->MakePlan({Of(std::move(dims))}).status();
  };
  EXPECT_TRUE(plan(*device_, 0, {410}).ok());
  EXPECT_TRUE(plan(gpu, 0, {409}).ok());
  ExpectTooLarge(plan(gpu, 0, {410}), "w", "4100 of them here",
                 "scratch_bytes");
  const int planned = counts_.planned;
  ExpectTooLarge(plan(*device_, 4097, {1}), "w", "4097 of them here",
                 "scratch_bytes");
  EXPECT_EQ(counts_.planned, planned) << "before a kernel is planned";
}

TEST_F(EvaluationLimitsTest, CountsNeverWrap) {
  Graph graph = OpenGraph(Work("a", "x", "a", kSaturated));
  graph.nodes.push_back(Work("b", "a", "y", kSaturated, kSaturated));
  const auto program = Compile(std::move(graph), {.operations = kSaturated});
  ASSERT_TRUE(program.ok()) << program.status();
  // 2^63 operations pass this limit, but no such block of memory.
  ExpectTooLarge((*program)->MakePlan({Of({3})}).status(), "b",
                 "more than 2^63 bytes", "scratch_bytes");
}

TEST_F(EvaluationLimitsTest, OutputsAreSummed) {
  Graph graph = OpenGraph(Work("first", "x", "a", 1), {"a", "b", "x"});
  graph.nodes.push_back(Work("second", "a", "b", 1));
  const auto program = Compile(graph, {.output_bytes = 1200});
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE((*program)->MakePlan({Of({100})}).ok());
  // Of the third output, which no node makes.
  const absl::Status input = (*program)->MakePlan({Of({101})}).status();
  EXPECT_EQ(Reason(input), "EVALUATION_TOO_LARGE") << input;
  EXPECT_THAT(std::string(input.message()), HasSubstr("404 of them \"x\""));
  ExpectTooLarge((*program)->MakePlan({Of({200})}).status(), "second",
                 "1600 bytes of outputs or more, 800 of them \"b\"",
                 "1200 (output_bytes)");
  const auto half = Compile(graph, {.output_bytes = 600});
  ASSERT_TRUE(half.ok()) << half.status();
  ExpectTooLarge((*half)->MakePlan({Of({200})}).status(), "first", "\"a\"",
                 "output_bytes");
}

TEST_F(EvaluationLimitsTest, ValuesBetweenAreLaidOutFirst) {
  Graph graph = OpenGraph(Work("a", "x", "a", 1));
  graph.nodes.push_back(Work("b", "a", "b", 1));
  graph.nodes.push_back(Work("c", "b", "c", 1));
  graph.nodes.push_back(Work("d", "c", "y", 1));
  // a and b, then b and c: never three at once.
  const auto program = Compile(std::move(graph), {.scratch_bytes = 8192});
  ASSERT_TRUE(program.ok()) << program.status();
  const auto plan = (*program)->MakePlan({Of({1024})});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->arena_bytes(), 8192u);
  const int planned = counts_.planned;
  ExpectTooLarge((*program)->MakePlan({Of({1025})}).status(), "a",
                 "8704 bytes between inputs and outputs, 4100 of them here",
                 "8192 (scratch_bytes)");
  EXPECT_EQ(counts_.planned, planned);
}

TEST_F(EvaluationLimitsTest, ScratchMemoryCountsBeforeAndAfterPlanning) {
  const auto told =
      Compile(OpenGraph(Work("w", "x", "y", 1, 4096)), {.scratch_bytes = 4095});
  ASSERT_TRUE(told.ok()) << told.status();
  ExpectTooLarge((*told)->MakePlan({Of({1})}).status(), "w", "4096 bytes",
                 "scratch_bytes");
  EXPECT_EQ(counts_.planned, 0);

  GraphNode node = Work("w", "x", "y", 1);
  node.attributes.Set("more_scratch", int64_t{4096});
  const auto found = Compile(OpenGraph(node), {.scratch_bytes = 4095});
  ASSERT_TRUE(found.ok()) << found.status();
  ExpectTooLarge((*found)->MakePlan({Of({1})}).status(), "w", "4096 bytes",
                 "scratch_bytes");
  EXPECT_EQ(counts_.planned, 1);
}

// The host computes what it knows, where it has the memory for that; else it is
// a step like others.
TEST_F(EvaluationLimitsTest, WhatTheHostHasNoMemoryForIsLeftToTheDevice) {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim()})};
  graph.constants["c"] = Floats({2}, {1, 2});
  GraphNode folded = Work("folded", "c", "a", 1);
  GraphNode told = Work("told", "s", "b", 1);
  for (GraphNode* node : {&folded, &told}) {
    node->attributes.Set("more_scratch", int64_t{65} << 20);
  }
  graph.nodes = {folded, Node("Shape", {"x"}, {"s"}), told};
  graph.outputs = {"a", "b"};
  const auto program = Compile(std::move(graph));
  ASSERT_TRUE(program.ok()) << program.status();
  const auto plan = (*program)->MakePlan({Of({3})});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->steps(), 2u);
}

TEST_F(EvaluationLimitsTest, CompilationRefusesWhatNoInputCanMakeSmall) {
  Graph graph = OpenGraph(Work("w", "x", "y", 100));
  graph.inputs[0].shape = SymbolicDims{Dim(1000)};
  ExpectTooLarge(Compile(graph, {.operations = 99}).status(), "w",
                 "100 operations", "operations");
  ExpectTooLarge(Compile(graph, {.output_bytes = 3999}).status(), "w",
                 "4000 bytes of outputs", "output_bytes");
  // What nobody wants is not computed either.
  graph.nodes.push_back(Work("unused", "x", "z", 1 << 20));
  EXPECT_TRUE(Compile(graph, {.operations = 100}).ok());
}

// As Explain asks.
TEST_F(EvaluationLimitsTest, OutlinesRefuseWhatPlansWould) {
  const auto program = Compile(OpenGraph(Work("w", "x", "y", 100)),
                               {.output_bytes = 400, .operations = 99});
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE((*program)->Outline({SymbolicShape()}).ok());
  ExpectTooLarge((*program)->Outline({SymbolicDims{Dim(3)}}).status(), "w",
                 "100 operations", "operations");
  const auto outputs =
      Compile(OpenGraph(Work("w", "x", "y", 1)), {.output_bytes = 400});
  EXPECT_TRUE((*outputs)->Outline({SymbolicDims{Dim(100)}}).ok());
  ExpectTooLarge((*outputs)->Outline({SymbolicDims{Dim(101)}}).status(), "w",
                 "404 bytes of outputs", "output_bytes");
}

TEST_F(EvaluationLimitsTest, FoldingLeavesWhatIsLong) {
  const auto folds = [&](int64_t operations, int64_t scratch) {
    Graph graph;
    graph.constants["x"] = Floats({2}, {1, 2});
    graph.nodes = {Work("w", "x", "y", operations, scratch)};
    graph.outputs = {"y"};
    counts_.ran = 0;
    const auto program = Compile(std::move(graph));
    EXPECT_TRUE(program.ok()) << program.status();
    return counts_.ran == 1;
  };
  EXPECT_TRUE(folds(1000, 1000));
  EXPECT_FALSE(folds(int64_t{1} << 40, 0));
  EXPECT_FALSE(folds(0, int64_t{1} << 40));
  // Of the budget's 256 MiB, but more than the host gives one node.
  EXPECT_FALSE(folds(0, int64_t{100} << 20));
}

// 30 times 2^20 powers, of 25 ns each.
TEST_F(EvaluationLimitsTest, FoldingGoesByTheTimeThatItTakes) {
  Graph graph;
  graph.constants["a"] = Floats({512, 1}, std::vector<float>(512, 1.5f));
  graph.constants["b"] = Floats({1, 512}, std::vector<float>(512, 2.5f));
  const auto left = [&](const char* op) {
    graph.nodes.clear();
    graph.outputs.clear();
    for (int i = 0; i < 200; ++i) {
      graph.nodes.push_back(Node(op, {"a", "b"}, {absl::StrCat("y", i)}));
      graph.outputs.push_back(absl::StrCat("y", i));
    }
    const auto program = Compile(graph);
    EXPECT_TRUE(program.ok()) << program.status();
    const auto plan = (*program)->MakePlan({});
    EXPECT_TRUE(plan.ok()) << plan.status();
    return std::count_if(graph.nodes.begin(), graph.nodes.end(),
                         [&, i = size_t{0}](auto&) mutable {
                           return (*plan)->Step(i++).kernel ==
                                  absl::StrCat("cpu/", op);
                         });
  };
  EXPECT_EQ(left("Add"), 0);
  EXPECT_GT(left("Pow"), 100);
}

// What the host runs it runs once: kernels are told, and what that takes more
// is of its budgets alone.
TEST_F(EvaluationLimitsTest, TheHostPlansForOneRun) {
  const auto plan = [&](int64_t once) {
    Graph graph;
    graph.inputs = {Input("x", SymbolicDims{Dim()})};
    graph.constants["c"] = Floats({2}, {1, 2});
    graph.nodes = {Work("folded", "c", "a", 1), Node("Shape", {"x"}, {"s"}),
                   Work("told", "s", "b", 1), Work("step", "x", "y", 1)};
    for (GraphNode& node : graph.nodes) {
      if (node.op == "Work") node.attributes.Set("once", once);
    }
    graph.outputs = {"a", "b", "y"};
    counts_.planned = counts_.planned_once = counts_.ran = 0;
    const auto program = Compile(std::move(graph), {.operations = 100});
    EXPECT_TRUE(program.ok()) << program.status();
    const auto plan = (*program)->MakePlan({Of({3})});
    EXPECT_TRUE(plan.ok()) << plan.status();
  };
  plan(0);
  EXPECT_EQ(counts_.planned, 3);
  EXPECT_EQ(counts_.planned_once, 2);
  EXPECT_EQ(counts_.ran, 2);
  plan(int64_t{1} << 40);
  EXPECT_EQ(counts_.planned, 3);
  EXPECT_EQ(counts_.planned_once, 0);
  EXPECT_EQ(counts_.ran, 0);
}

TEST_F(EvaluationLimitsTest, FoldingHasABudgetForTheWholeGraph) {
  Graph graph;
  graph.constants["x0"] = Floats({1}, {1});
  for (int i = 0; i < 20; ++i) {
    graph.nodes.push_back(Work("", absl::StrCat("x", i),
                               absl::StrCat("x", i + 1), int64_t{1} << 30));
  }
  graph.outputs = {"x20"};
  ASSERT_TRUE(Compile(std::move(graph)).ok());
  EXPECT_EQ(counts_.ran, 8);  // 2^33 operations
}

// A value that a shape depends on is computed on the host while a plan is made.
TEST_F(EvaluationLimitsTest, ShapesThatTakeLongAreRefused) {
  const auto plan = [&](int64_t operations, int64_t scratch) {
    Graph graph;
    graph.inputs = {Input("s", SymbolicDims{Dim(1)}, DType::kInt64)};
    graph.nodes = {Work("long", "s", "t", operations, scratch),
                   Node("ConstantOfShape", {"t"}, {"y"})};
    graph.outputs = {"y"};
    const auto program = Compile(std::move(graph));
    EXPECT_TRUE(program.ok()) << program.status();
    const auto size = Ints({3});
    counts_.ran = 0;
    return (*program)->MakePlan({size->tensor}).status();
  };
  EXPECT_TRUE(plan(1000, 1000).ok());
  EXPECT_EQ(counts_.ran, 1);
  for (const auto& [operations, scratch] :
       {std::pair<int64_t, int64_t>{int64_t{1} << 40, 0},
        {0, int64_t{1} << 32}}) {
    const absl::Status status = plan(operations, scratch);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("\"long\""));
    EXPECT_EQ(counts_.ran, 0);
  }
}

TEST_F(EvaluationLimitsTest, SmallValuesAreLeftToTheDevice) {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim()})};
  graph.nodes = {Node("Shape", {"x"}, {"s"}),
                 Work("w", "s", "y", int64_t{1} << 40)};
  graph.outputs = {"y"};
  const auto program = Compile(std::move(graph));
  ASSERT_TRUE(program.ok()) << program.status();
  const auto plan = (*program)->MakePlan({Of({3})});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(counts_.ran, 0);
  EXPECT_EQ((*plan)->steps(), 1u);
}

TEST_F(EvaluationLimitsTest, PlansHoldSoMuchAndNoMore) {
  const auto plan = [&](int64_t held) {
    GraphNode first = Work("first", "x", "a", 1);
    GraphNode second = Work("second", "a", "y", 1);
    first.attributes.Set("held", held / 2);
    second.attributes.Set("held", held - held / 2);
    Graph graph = OpenGraph(std::move(first));
    graph.nodes.push_back(std::move(second));
    return (*Compile(std::move(graph)))->MakePlan({Of({1})}).status();
  };
  EXPECT_TRUE(plan(256 << 20).ok());
  const absl::Status status = plan((256 << 20) + 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(Reason(status), "EVALUATION_TOO_LARGE");
  EXPECT_EQ(Metadata(status),
            (ReasonMetadata{{"limit", std::to_string(256 << 20)}}));
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"second\""));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("evaluate the graph in parts"));
}

TEST_F(EvaluationLimitsTest, WhatKernelsShareCountsOnceForAPlan) {
  Graph graph = OpenGraph(Work("first", "x", "a", 1));
  graph.nodes.push_back(Work("second", "a", "b", 1));
  graph.nodes.push_back(Work("third", "b", "y", 1));
  for (GraphNode& node : graph.nodes) {
    node.attributes.Set("held", int64_t{200} << 20);
    node.attributes.Set("shares", int64_t{1});
  }
  const auto plan = (*Compile(std::move(graph)))->MakePlan({Of({1})});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GE((*plan)->held_bytes(), size_t{200} << 20);
  EXPECT_LT((*plan)->held_bytes(), size_t{201} << 20);
}

TEST_F(EvaluationLimitsTest, PlansAreKeptByWhatTheyHold) {
  const auto program = [&](int64_t held) {
    GraphNode node = Work("w", "x", "y", 1);
    node.attributes.Set("held", held);
    ProgramOptions options;
    options.max_plan_bytes = size_t{64} << 20;
    return *Program::Compile(OpenGraph(std::move(node)), *device_, registry_,
                             options);
  };
  const auto small = program(24 << 20);
  for (const int64_t n : {1, 2}) ASSERT_TRUE(small->MakePlan({Of({n})}).ok());
  EXPECT_NE(small->FindPlan({Of({1})}), nullptr);
  EXPECT_NE(small->FindPlan({Of({2})}), nullptr);
  ASSERT_TRUE(small->MakePlan({Of({3})}).ok());
  EXPECT_EQ(small->FindPlan({Of({1})}), nullptr);
  EXPECT_NE(small->FindPlan({Of({2})}), nullptr);
  EXPECT_NE(small->FindPlan({Of({3})}), nullptr);

  const auto large = program(65 << 20);
  ASSERT_TRUE(large->MakePlan({Of({1})}).ok());
  EXPECT_EQ(large->FindPlan({Of({1})}), nullptr);
}

TEST_F(EvaluationLimitsTest, PlansInUseAreBoundedByWhatTheyHold) {
  GraphNode node = Work("w", "x", "y", 1);
  node.attributes.Set("held", int64_t{24} << 20);
  ProgramOptions options;
  options.max_plans = 2;
  options.max_used_plan_bytes = size_t{64} << 20;
  const auto program = *Program::Compile(OpenGraph(std::move(node)), *device_,
                                         registry_, options);
  std::vector<std::shared_ptr<const Plan>> held;
  for (int64_t n = 1; n <= 3; ++n) {
    auto plan = program->MakePlan({Of({n})});
    ASSERT_TRUE(plan.ok()) << plan.status();
    held.push_back(*std::move(plan));
  }
  // One of them is kept no more, and lives.
  const int planned = counts_.planned;
  const absl::Status status = program->MakePlan({Of({4})}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(Reason(status), "PROGRAM_MEMORY_EXHAUSTED");
  EXPECT_TRUE(RetryAfter(status).has_value());
  EXPECT_EQ(counts_.planned, planned);
  // What nobody uses goes instead, though it was kept.
  held[2] = nullptr;
  EXPECT_NE(program->FindPlan({Of({3})}), nullptr);
  EXPECT_TRUE(program->MakePlan({Of({4})}).ok());
  EXPECT_EQ(program->FindPlan({Of({3})}), nullptr);
  EXPECT_NE(program->FindPlan({Of({2})}), nullptr);
}

// Each lies somewhere, and something knows where.
TEST_F(EvaluationLimitsTest, PlansHoldValuesOfTheHostByWhatTheyTake) {
  constexpr size_t kValues = 1000;
  Graph graph;
  graph.opsets = {{"", 13}};
  graph.inputs = {Input("x", SymbolicDims{Dim()}),
                  {"i", DType::kInt64, SymbolicDims{Dim(1)}}};
  graph.nodes = {Node("Shape", {"x"}, {"n"})};
  std::vector<std::string> values = {"i", "n"};
  for (size_t i = 0; i < kValues; ++i) {
    const std::string last = values.back();
    values.push_back(absl::StrCat("v", i));
    graph.nodes.push_back(Node("Add", {"n", last}, {values.back()}));
  }
  graph.nodes.push_back(Node("Max", values, {"y"}));
  graph.outputs = {"y"};
  const auto program = Compile(std::move(graph));
  ASSERT_TRUE(program.ok()) << program.status();
  const auto plan =
      (*program)->MakePlan({Of({5}), HostTensor{DType::kInt64, {1}, nullptr}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GE((*plan)->held_bytes(), kValues * 256);
}

// Of a step whatever its arity would be some kilobytes here.
TEST_F(EvaluationLimitsTest, PlansHoldTheirOperands) {
  constexpr size_t kOperands = 10000;
  Graph graph;
  graph.opsets = {{"", 13}};
  graph.inputs = {Input("x", SymbolicDims{Dim()})};
  GraphNode concat =
      Node("Concat", std::vector<std::string>(kOperands, "x"), {"y"});
  concat.attributes.Set("axis", int64_t{0});
  graph.nodes = {std::move(concat)};
  graph.outputs = {"y"};
  const auto program = Compile(std::move(graph));
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_GE((*program)->held_bytes(), kOperands * 16);
  const auto plan = (*program)->MakePlan({Of({1})});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GE((*plan)->held_bytes(), kOperands * 64);
  EXPECT_GE((*program)->held_bytes(), kOperands * 16 + (*plan)->held_bytes());
}

TEST_F(EvaluationLimitsTest, ProgramsHoldTheirDeclarations) {
  constexpr size_t kInputs = 10000;
  Graph graph;
  graph.opsets = {{"", 13}};
  std::vector<std::string> names;
  for (size_t i = 0; i < kInputs; ++i) {
    names.push_back(absl::StrCat("an input with a long name ", i));
    graph.inputs.push_back(Input(names.back(), SymbolicDims{Dim()}));
  }
  GraphNode concat = Node("Concat", names, {"y"});
  concat.attributes.Set("axis", int64_t{0});
  graph.nodes = {std::move(concat)};
  graph.outputs = {"y"};
  const auto program = Compile(std::move(graph));
  ASSERT_TRUE(program.ok()) << program.status();
  // Each is there as a declaration and as the graph's value.
  constexpr size_t kName = sizeof("an input with a long name ");
  EXPECT_GE((*program)->held_bytes(),
            kInputs * 2 * (sizeof(ValueDecl) + kName));
}

TEST_F(EvaluationLimitsTest, ProgramsHoldTheTextThatFoldedStringsLieIn) {
  const std::string page(size_t{1} << 20, 'x');
  const StringRef strings[] = {{page.data(), page.size()}, {page.data(), 1}};
  auto text = std::make_shared<Constant>();
  text->tensor = {DType::kString, {2}, strings};
  text->owner = std::make_shared<int>();
  auto second = std::make_shared<Constant>();
  const int64_t one = 1;
  second->tensor = {DType::kInt64, {1}, &one};
  Graph graph;
  graph.opsets = {{"", 13}};
  graph.constants["text"] = std::move(text);
  graph.constants["second"] = std::move(second);
  graph.nodes = {Node("Gather", {"text", "second"}, {"y"})};
  graph.outputs = {"y"};
  const auto program = Compile(std::move(graph));
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_GE((*program)->held_bytes(), page.size());
}

// Launches are what a device apart from the host takes; the CPU has none.
TEST(EvaluationLimitsLaunchesTest, AreCountedWhenThePlanIsMade) {
  testing::TestOperators operators;
  Graph chain;
  chain.inputs = {Input("x", SymbolicDims{Dim()})};
  chain.nodes = {Node("Neg", {"x"}, {"a"}, "first"),
                 Node("Neg", {"a"}, {"b"}, "second"),
                 Node("Neg", {"b"}, {"y"}, "third")};
  chain.outputs = {"y"};
  // They count, too, though they are no node's.
  Graph copies;
  copies.inputs = chain.inputs;
  copies.outputs = {"x", "x", "x"};
  for (const bool far : {false, true}) {
    std::unique_ptr<Device> device;
    if (far) {
      device = std::make_unique<testing::FarDevice>();
    } else {
      device = MakeCpuDevice({});
    }
    const auto plan =
        [&](const Graph& graph,
            int64_t most) -> absl::StatusOr<std::shared_ptr<const Plan>> {
      ProgramOptions options;
      options.evaluation.launches = most;
      const auto program =
          Program::Compile(graph, *device, operators.registry, options);
      if (!program.ok()) return program.status();
      const auto x = Floats({2}, {1, 2});
      return (*program)->MakePlan({x->tensor});
    };
    for (const Graph* graph : {&chain, &copies}) {
      const auto fits = plan(*graph, 3);
      ASSERT_TRUE(fits.ok()) << fits.status();
      EXPECT_EQ((*fits)->launches(), 3u);
      EXPECT_EQ(Reason(plan(*graph, 2).status()),
                far ? "EVALUATION_TOO_LARGE" : "");
    }
    if (!far) continue;
    ExpectTooLarge(plan(chain, 2).status(), "first",
                   "would take 3 launches or more, 1 of them here",
                   "the limit is 2 (split it into several)");
  }
}

// -- Defaults -----------------------------------------------------------------

TEST(EvaluationLimitsDefaultTest, ComeFromTheDevice) {
  DeviceInfo info;
  info.total_memory = 4000;
  EXPECT_EQ(Resolve({}, info).scratch_bytes, 1000);
  EXPECT_EQ(Resolve({}, info).output_bytes, 1000);
  const EvaluationLimits given = {
      .output_bytes = 1, .scratch_bytes = 2, .operations = 3};
  EXPECT_EQ(Resolve(given, info).output_bytes, 1);
  EXPECT_EQ(Resolve(given, info).scratch_bytes, 2);
  EXPECT_EQ(Resolve(given, info).operations, 3);
  EXPECT_EQ(Resolve({}, info).launches, 262'144);
  EXPECT_EQ(Resolve({.launches = 4}, info).launches, 4);
  info.total_memory = 0;
  EXPECT_EQ(Resolve({}, info).scratch_bytes, kMaxTensorBytes);
  EXPECT_EQ(Resolve({.scratch_bytes = kSaturated}, info).scratch_bytes,
            kMaxTensorBytes);
}

// What a device does in a time that somebody waits.
TEST(EvaluationLimitsDefaultTest, OperationsGoByTheDeviceAndItsThreads) {
  constexpr int64_t kTera = 1'000'000'000'000;
  const auto cpu = MakeCpuDevice({.cpu_threads = 2});
  EXPECT_EQ(Resolve({}, cpu->info()).operations, 2 * kTera);
  EXPECT_EQ(Resolve({.operations = 9 * kTera}, cpu->info()).operations,
            9 * kTera);
  EXPECT_EQ(Resolve({}, DeviceInfo()).operations, 100 * kTera);
  // No CPU does more than that.
  const auto large = MakeCpuDevice({.cpu_threads = 120});
  EXPECT_EQ(Resolve({}, large->info()).operations, 100 * kTera);
}

// Operations of BERT-large, 64 times 512 tokens: its products.
TEST_F(EvaluationLimitsTest, BertLargeFitsAGpuAndTenToTheFifteenDoesNot) {
  constexpr int64_t kRows = 64 * 512, kWidth = 1024, kInner = 4096;
  Graph graph;
  const auto input = [&](const char* name, std::vector<Dim> dims) {
    graph.inputs.push_back(Input(name, SymbolicDims(dims.begin(), dims.end())));
  };
  input("x", {kRows, kWidth});
  input("w", {kWidth, kWidth});
  input("up", {kWidth, kInner});
  input("down", {kInner, kWidth});
  input("q", {64 * 16, 512, 64});
  input("k", {64 * 16, 64, 512});
  std::string at = "x";
  int made = 0;
  const auto product = [&](const std::string& a, const std::string& b) {
    const std::string to = absl::StrCat("v", made++);
    graph.nodes.push_back(Node("MatMul", {a, b}, {to}));
    return to;
  };
  for (int layer = 0; layer < 24; ++layer) {
    for (int i = 0; i < 4; ++i) at = product(at, "w");
    at = product(product(at, "up"), "down");
    graph.outputs.push_back(product(product("q", "k"), "q"));
  }
  graph.outputs.push_back(at);
  DeviceInfo gpu;
  gpu.kind = DeviceKind::kCuda;
  gpu.pace = Pace::kSideBySide;
  const EvaluationLimits limits = {.output_bytes = kMaxTensorBytes,
                                   .scratch_bytes = kMaxTensorBytes,
                                   .operations = Resolve({}, gpu).operations};
  const auto program = Compile(std::move(graph), limits);
  EXPECT_TRUE(program.ok()) << program.status();

  Graph large;
  large.inputs = {Input("x", SymbolicDims{Dim(100'000), Dim(100'000)})};
  large.nodes = {Node("MatMul", {"x", "x"}, {"y"}, "product")};
  large.outputs = {"y"};
  ExpectTooLarge(Compile(std::move(large), limits).status(), "product",
                 "1000300000000000", "operations");
}

}  // namespace
}  // namespace weir
