#include "kernels/graph/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <functional>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/stop_token.h"
#include "tests/graph/plan_runner.h"
#include "tests/graph/test_operators.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::weir::testing::FarDevice;
using ::weir::testing::Floats;
using ::weir::testing::Input;
using ::weir::testing::Ints;
using ::weir::testing::Node;
using ::weir::testing::PlanRunner;

// Every program behaves the same on a device that shares the host's memory and
// on one that does not.
class ProgramTest : public ::testing::TestWithParam<bool> {
 protected:
  ProgramTest() {
    if (GetParam()) {
      device_ = std::make_unique<FarDevice>();
    } else {
      device_ = MakeCpuDevice({});
    }
  }

  absl::StatusOr<std::shared_ptr<const Program>> Compile(
      Graph graph, const ProgramOptions& options = {}) {
    return Program::Compile(std::move(graph), *device_, operators_.registry,
                            options);
  }

  testing::TestOperators operators_;
  std::unique_ptr<Device> device_;
};

HostTensor Tensor(const std::shared_ptr<const Constant>& constant) {
  return constant->tensor;
}

Graph Sum() {
  Graph graph;
  graph.symbols = {"N"};
  graph.inputs = {Input("x", SymbolicDims{Dim::Symbol(0)}),
                  Input("y", SymbolicDims{Dim::Symbol(0)})};
  graph.nodes = {Node("Add", {"x", "y"}, {"s"}, "sum"),
                 Node("Neg", {"s"}, {"n"})};
  graph.outputs = {"n"};
  return graph;
}

TEST_P(ProgramTest, RunsStepsInOrder) {
  const auto program = Compile(Sum());
  ASSERT_TRUE(program.ok()) << program.status();
  const auto x = Floats({3}, {1, 2, 3});
  const auto y = Floats({3}, {10, 20, 30});
  const auto plan = (*program)->MakePlan({Tensor(x), Tensor(y)});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->steps(), 2u);
  PlanRunner run(*device_, **plan);
  ASSERT_TRUE(run.Run({Tensor(x), Tensor(y)}).ok());
  EXPECT_THAT(run.Output<float>(0), ElementsAre(-11, -22, -33));
}

// One that came to nothing says what it takes at least, until one is made.
TEST_P(ProgramTest, TellsWhatPlansTook) {
  const auto program = *Compile(Sum());
  EXPECT_EQ(program->last_plan_ns(), 0);
  EXPECT_EQ(program->failed_plan_ns(), 0);
  const auto two = Floats({2}, {1, 2}), three = Floats({3}, {1, 2, 3});
  for (int i = 0; i < 10; ++i) {
    const Nanos before = program->failed_plan_ns();
    EXPECT_FALSE(program->MakePlan({Tensor(two), Tensor(three)}).ok());
    EXPECT_GT(program->failed_plan_ns(), 0);
    EXPECT_GE(program->failed_plan_ns(), before);
  }
  EXPECT_EQ(program->last_plan_ns(), 0);
  EXPECT_TRUE(program->MakePlan({Tensor(two), Tensor(two)}).ok());
  const Nanos took = program->last_plan_ns();
  EXPECT_GT(took, 0);
  EXPECT_EQ(program->failed_plan_ns(), 0);
  EXPECT_FALSE(program->MakePlan({Tensor(two), Tensor(three)}).ok());
  EXPECT_EQ(program->last_plan_ns(), took);
  EXPECT_GT(program->failed_plan_ns(), 0);
}

TEST_P(ProgramTest, ShapesAreArguments) {
  const auto program = Compile(Sum());
  ASSERT_TRUE(program.ok());
  for (int64_t n : {1, 5, 1000}) {
    const auto x = Floats({n}, std::vector<float>(static_cast<size_t>(n), 2));
    const auto plan = (*program)->MakePlan({Tensor(x), Tensor(x)});
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ((*plan)->outputs()[0].meta.elements, n);
    PlanRunner run(*device_, **plan);
    ASSERT_TRUE(run.Run({Tensor(x), Tensor(x)}).ok());
    EXPECT_EQ(run.Output<float>(0).back(), -4);
  }
}

TEST_P(ProgramTest, ShapesAreToldApartByTheirRanksToo) {
  Graph graph;
  graph.inputs = {Input("x", std::nullopt), Input("y", std::nullopt)};
  graph.nodes = {Node("Neg", {"x"}, {"a"}), Node("Neg", {"y"}, {"b"})};
  graph.outputs = {"a", "b"};
  const auto program = Compile(std::move(graph));
  ASSERT_TRUE(program.ok()) << program.status();
  const auto planned = [&](Dims x, Dims y) {
    const auto plan = (*program)->MakePlan(
        {{DType::kFloat, x, nullptr}, {DType::kFloat, y, nullptr}});
    if (!plan.ok()) return plan.status().ToString();
    return DimsString((*plan)->outputs()[0].meta.dims) +
           DimsString((*plan)->outputs()[1].meta.dims);
  };
  EXPECT_EQ(planned({2, 3}, {4}), "[2,3][4]");
  EXPECT_EQ(planned({2}, {3, 4}), "[2][3,4]");
}

// Callers choose what is hashed. Abseil's hash, in the version of 2022 that
// distributions have, keeps nothing of what comes before this word where it is
// the last but one.
TEST_P(ProgramTest, TwoKeysOfOneHashAreTwoPlans) {
  constexpr int64_t kForgetting = 0x13198A2E03707344;
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim(4)}, DType::kInt64)};
  graph.constants["first"] = Ints({0});
  graph.nodes = {Node("Gather", {"x", "first"}, {"size"}),
                 Node("ConstantOfShape", {"size"}, {"y"})};
  graph.outputs = {"y"};
  const auto program = Compile(std::move(graph));
  ASSERT_TRUE(program.ok()) << program.status();
  for (const int64_t size : {3, 5}) {
    const auto x = Ints({size, 0, kForgetting, 0});
    const auto plan = (*program)->MakePlan({Tensor(x)});
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ((*plan)->outputs()[0].meta.elements, size);
  }
}

TEST_P(ProgramTest, DeclaresItsInputsAndOutputs) {
  const auto program = Compile(Sum());
  ASSERT_TRUE(program.ok());
  EXPECT_EQ((*program)->inputs()[1].name, "y");
  EXPECT_EQ((*program)->outputs()[0].name, "n");
  EXPECT_EQ(ShapeString((*program)->outputs()[0].shape), "[?]");
  EXPECT_THAT((*program)->symbols(), ElementsAre("N"));
  EXPECT_FALSE((*program)->random());
  EXPECT_FALSE((*program)->InputOnHost(0));
}

std::vector<std::string> Shapes(const std::vector<ValueDecl>& values) {
  std::vector<std::string> shapes;
  for (const ValueDecl& value : values) {
    shapes.push_back(value.name + ShapeString(value.shape));
  }
  return shapes;
}

TEST_P(ProgramTest, OutlinesWhatItWouldDo) {
  const auto program = Compile(Sum());
  ASSERT_TRUE(program.ok()) << program.status();
  const std::string kind = GetParam() ? "cuda/" : "cpu/";
  auto outline = (*program)->Outline({SymbolicShape(), SymbolicShape()});
  ASSERT_TRUE(outline.ok()) << outline.status();
  EXPECT_THAT(Shapes(outline->inputs), ElementsAre("x[s0]", "y[s1]"));
  EXPECT_THAT(Shapes(outline->outputs), ElementsAre("n[?]"));
  ASSERT_EQ(outline->steps.size(), 2u);
  EXPECT_THAT(outline->steps[0].nodes, ElementsAre("sum"));
  EXPECT_EQ(outline->steps[0].kernel, kind + "Add");
  EXPECT_THAT(Shapes(outline->steps[0].outputs), ElementsAre("s[?]"));
  EXPECT_THAT(outline->steps[1].nodes, ElementsAre("#1"));

  // An extent of one input says nothing about the other's of the same name.
  outline = (*program)->Outline({SymbolicShape(), SymbolicDims{Dim(3)}});
  ASSERT_TRUE(outline.ok()) << outline.status();
  EXPECT_THAT(Shapes(outline->inputs), ElementsAre("x[s0]", "y[3]"));
  EXPECT_THAT(Shapes(outline->outputs), ElementsAre("n[3]"));
  EXPECT_THAT(Shapes(outline->steps[0].outputs), ElementsAre("s[3]"));
  EXPECT_EQ(operators_.counts.add, 0);

  const absl::Status refused =
      (*program)
          ->Outline({SymbolicDims{Dim(2)}, SymbolicDims{Dim(3)}})
          .status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("\"sum\" (Add): shapes [2] and [3]"));
  for (const SymbolicDims& bad :
       {SymbolicDims{Dim(2), Dim(2)}, SymbolicDims{Dim(-2)},
        SymbolicDims{Dim(int64_t{1} << 50)}}) {
    EXPECT_EQ((*program)->Outline({bad, SymbolicShape()}).status().code(),
              absl::StatusCode::kInvalidArgument)
        << ShapeString(bad);
  }
}

TEST_P(ProgramTest, OutlinesWithoutReadingData) {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim(2), Dim()}),
                  Input("shape", SymbolicDims{Dim(2)}, DType::kInt64)};
  graph.nodes = {Node("Reshape", {"x", "shape"}, {"r"}, "form"),
                 Node("Neg", {"r"}, {"y"}), Node("Neg", {"x"}, {"z"})};
  graph.outputs = {"y", "z", "r"};
  const auto program = Compile(std::move(graph));
  ASSERT_TRUE(program.ok()) << program.status();
  const auto outline =
      (*program)->Outline({SymbolicDims{Dim(2), Dim(3)}, SymbolicShape()});
  ASSERT_TRUE(outline.ok()) << outline.status();
  EXPECT_THAT(Shapes(outline->outputs),
              ElementsAre("y[...]", "z[2,3]", "r[...]"));
  // A node that changes nothing but a shape takes no step of its own.
  ASSERT_EQ(outline->steps.size(), 3u);
  EXPECT_THAT(outline->steps[2].nodes, ElementsAre("form"));
  EXPECT_THAT(outline->steps[2].kernel, HasSubstr("/copy"));
}

size_t Taken(const std::string& text) {
  return text.capacity() > std::string().capacity() ? text.capacity() + 1 : 0;
}

size_t Taken(const std::vector<ValueDecl>& values) {
  size_t bytes = values.capacity() * sizeof(ValueDecl);
  for (const ValueDecl& value : values) bytes += Taken(value.name);
  return bytes;
}

size_t Taken(const ProgramOutline& outline) {
  size_t bytes = Taken(outline.inputs) + Taken(outline.outputs) +
                 outline.steps.capacity() * sizeof(StepOutline);
  for (const StepOutline& step : outline.steps) {
    bytes += Taken(step.kernel) + Taken(step.outputs);
    bytes += step.nodes.capacity() * sizeof(std::string);
    for (const std::string& node : step.nodes) bytes += Taken(node);
  }
  return bytes;
}

// Neither constants nor attributes are part of one.
TEST_P(ProgramTest, KnowsWhatAnOutlineTakes) {
  constexpr int kLength = 100;
  Graph graph;
  graph.inputs = {Input("v0", SymbolicDims{Dim()})};
  graph.constants["large"] = Floats({1 << 20}, std::vector<float>(1 << 20, 1));
  for (int i = 0; i < kLength; ++i) {
    graph.nodes.push_back(Node("Neg", {absl::StrCat("v", i)},
                               {absl::StrCat("v", i + 1)},
                               std::string(static_cast<size_t>(i), 'n')));
  }
  graph.outputs = {absl::StrCat("v", kLength), "large"};
  const auto program = Compile(std::move(graph));
  ASSERT_TRUE(program.ok()) << program.status();
  const auto outline = (*program)->Outline({SymbolicDims{Dim(3)}});
  ASSERT_TRUE(outline.ok()) << outline.status();
  ASSERT_EQ(outline->steps.size(), size_t{kLength} + 1);
  EXPECT_GE((*program)->outline_bytes(), Taken(*outline));
  EXPECT_LE((*program)->outline_bytes(), 2 * Taken(*outline));
}

// x, then `length` nodes r0, r1, ... that only give it a shape, of which each
// is an output.
Graph Aliases(int length) {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim(2)})};
  graph.constants["to"] = Ints({2});
  for (int i = 0; i < length; ++i) {
    const std::string from = i == 0 ? "x" : absl::StrCat("r", i - 1);
    graph.nodes.push_back(Node("Reshape", {from, "to"}, {absl::StrCat("r", i)},
                               absl::StrCat("n", i)));
    graph.outputs.push_back(absl::StrCat("r", i));
  }
  return graph;
}

TEST_P(ProgramTest, OutlinesGrowWithTheGraphAlone) {
  constexpr int kLength = 1000;
  const auto program = Compile(Aliases(kLength));
  ASSERT_TRUE(program.ok()) << program.status();
  const auto outline = (*program)->Outline({SymbolicShape()});
  ASSERT_TRUE(outline.ok()) << outline.status();
  size_t names = 0;
  for (const StepOutline& step : outline->steps) names += step.nodes.size();
  EXPECT_EQ(outline->steps.size(), size_t{kLength});
  EXPECT_EQ(names, size_t{kLength});
  EXPECT_THAT(outline->steps[7].nodes, ElementsAre("n7"));

  const auto x = Floats({2}, {1, 2});
  const auto plan = (*program)->MakePlan({Tensor(x)});
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ((*plan)->steps(), size_t{kLength});
  names = 0;
  for (size_t i = 0; i < kLength; ++i) names += (*plan)->Step(i).nodes.size();
  EXPECT_EQ(names, size_t{kLength});
}

// In a thread whose stack has room for no recursion along a graph.
void OnASmallStack(std::function<void()> work) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, size_t{512} << 10), 0);
  pthread_t thread;
  ASSERT_EQ(pthread_create(
                &thread, &attributes,
                [](void* fn) -> void* {
                  (*static_cast<std::function<void()>*>(fn))();
                  return nullptr;
                },
                &work),
            0);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
}

constexpr int kLongChain = 20000;

TEST_P(ProgramTest, HostValuesOfALongChainAreDroppedOneByOne) {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim()})};
  graph.constants["one"] = Ints({1});
  graph.nodes = {Node("Shape", {"x"}, {"s0"})};
  for (int i = 1; i <= kLongChain; ++i) {
    graph.nodes.push_back(Node("Reshape", {absl::StrCat("s", i - 1), "one"},
                               {absl::StrCat("s", i)}));
  }
  graph.nodes.push_back(
      Node("ConstantOfShape", {absl::StrCat("s", kLongChain)}, {"y"}));
  graph.outputs = {"y"};
  const auto program = Compile(std::move(graph));
  ASSERT_TRUE(program.ok()) << program.status();
  OnASmallStack([&] {
    const auto x = Floats({3}, {1, 2, 3});
    const auto plan = (*program)->MakePlan({Tensor(x)});
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(DimsString((*plan)->outputs()[0].meta.dims), "[3]");
  });
}

// An extent that is not known yet may be 1, and is looked at once it is known.
TEST(ProgramOnCpuTest, AScaleOfAllRowsMayHaveExtentsThatAreNotKnown) {
  const std::unique_ptr<OpRegistry> registry = MakeOpRegistry();
  const std::unique_ptr<Device> device = MakeCpuDevice({.cpu_threads = 1});
  Graph graph;
  graph.opsets = {{"", 17}};
  graph.inputs = {Input("x", SymbolicDims{Dim(), Dim()}),
                  Input("scale", SymbolicDims{Dim(), Dim()})};
  graph.nodes = {Node("LayerNormalization", {"x", "scale"}, {"y"})};
  graph.outputs = {"y"};
  const auto program = Program::Compile(std::move(graph), *device, *registry);
  ASSERT_TRUE(program.ok()) << program.status();
  const auto x = Floats({2, 4}, {1, 1, 1, 1, 2, 2, 2, 2});
  const auto all = Floats({1, 4}, {1, 2, 3, 4});
  EXPECT_TRUE((*program)->MakePlan({Tensor(x), Tensor(all)}).ok());
  const auto each = Floats({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ((*program)->MakePlan({Tensor(x), Tensor(each)}).status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST(FoldedTextTest, TextThatIsNotFoldedCounts) {
  const std::unique_ptr<Device> device = MakeCpuDevice({});
  const std::unique_ptr<OpRegistry> registry = MakeOpRegistry();
  constexpr size_t kLength = 1'000'000, kStrings = 10'000;
  Graph graph;
  graph.opsets = {{"", 13}};
  GraphNode node = Node("Constant", {}, {"text"});
  node.attributes.Set(
      "value_strings",
      std::vector<std::string>(kStrings, std::string(kLength / kStrings, 'c')));
  graph.nodes = {std::move(node)};
  graph.outputs = {"text"};
  const auto program = Program::Compile(std::move(graph), *device, *registry);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_GE((*program)->held_bytes(), kLength + kStrings * sizeof(StringRef));
  EXPECT_LT((*program)->held_bytes(),
            2 * kLength + 3 * kStrings * sizeof(StringRef));
}

// The lowered node has its name, and so has its kernel; its label has it too.
TEST(HeldBytesTest, NamesOfNodesCount) {
  const std::unique_ptr<Device> device = MakeCpuDevice({});
  const std::unique_ptr<OpRegistry> registry = MakeOpRegistry();
  constexpr size_t kNodes = 50, kName = 1000;
  const auto held = [&](size_t name_bytes) -> size_t {
    Graph graph;
    graph.inputs = {Input("v0", SymbolicDims{Dim(2)})};
    for (size_t i = 0; i < kNodes; ++i) {
      graph.nodes.push_back(Node("Neg", {absl::StrCat("v", i)},
                                 {absl::StrCat("v", i + 1)},
                                 std::string(name_bytes, 'n')));
    }
    graph.outputs = {absl::StrCat("v", kNodes)};
    const auto program = Program::Compile(std::move(graph), *device, *registry);
    EXPECT_TRUE(program.ok()) << program.status();
    return program.ok() ? (*program)->held_bytes() : 0;
  };
  const size_t more = held(kName) - held(1);
  EXPECT_GE(more, kNodes * 3 * (kName - 1));
  EXPECT_LE(more, kNodes * 4 * kName);
}

// Many references to one string hold it once.
TEST(FoldedTextTest, CharactersCountOnce) {
  const std::unique_ptr<Device> device = MakeCpuDevice({});
  const std::unique_ptr<OpRegistry> registry = MakeOpRegistry();
  constexpr size_t kLength = 100'000;
  constexpr int64_t kReferences = 10'000;
  auto characters = std::make_shared<const std::string>(kLength, 'c');
  const StringRef refs[] = {{characters->data(), characters->size()}};
  auto text = std::make_shared<Constant>();
  text->tensor = {DType::kString, {1}, refs};
  text->owner = std::move(characters);
  Graph graph;
  graph.opsets = {{"", 13}};
  graph.constants["text"] = std::move(text);
  graph.constants["indices"] =
      Ints(std::vector<int64_t>(static_cast<size_t>(kReferences), 0));
  graph.nodes = {Node("Gather", {"text", "indices"}, {"many"})};
  graph.outputs = {"many", "text"};
  const auto program = Program::Compile(std::move(graph), *device, *registry);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_GE((*program)->held_bytes(),
            kLength + kReferences * sizeof(StringRef));
  EXPECT_LT((*program)->held_bytes(), 2 * kLength + 3 * kReferences * 16);
}

TEST(FoldedTextTest, TextOfALongChainIsDroppedOneByOne) {
  const std::unique_ptr<Device> device = MakeCpuDevice({});
  const std::unique_ptr<OpRegistry> registry = MakeOpRegistry();
  auto characters = std::make_shared<const std::string>("characters");
  const std::weak_ptr<const std::string> alive = characters;
  const StringRef refs[] = {{characters->data(), characters->size()}};
  Graph graph;
  graph.opsets = {{"", 13}};
  auto text = std::make_shared<Constant>();
  text->tensor = {DType::kString, {1}, refs};
  text->owner = std::move(characters);
  graph.constants["t0"] = std::move(text);
  for (int i = 1; i <= kLongChain; ++i) {
    graph.nodes.push_back(
        Node("Identity", {absl::StrCat("t", i - 1)}, {absl::StrCat("t", i)}));
  }
  graph.outputs = {absl::StrCat("t", kLongChain)};
  OnASmallStack([&] {
    const auto program = Program::Compile(std::move(graph), *device, *registry);
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_FALSE(alive.expired());
    const auto plan = (*program)->MakePlan({});
    ASSERT_TRUE(plan.ok()) << plan.status();
    PlanRunner run(*device, **plan);
    ASSERT_TRUE(run.Run({}).ok());
    const StringRef out = run.Output<StringRef>(0)[0];
    EXPECT_EQ(std::string(out.data, out.size), "characters");
  });
  graph = Graph();
  EXPECT_TRUE(alive.expired());
}

TEST_P(ProgramTest, APlanTellsItsSteps) {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim(), Dim()})};
  graph.constants["c"] = Floats({2}, {1, 2});
  graph.nodes = {Node("Shape", {"x"}, {"s"}),
                 Node("ConstantOfShape", {"s"}, {"zero"}, "zero"),
                 Node("Add", {"x", "zero"}, {"y"}, "sum")};
  graph.outputs = {"y", "c"};
  const auto program = Compile(std::move(graph));
  ASSERT_TRUE(program.ok()) << program.status();
  // The plan needs no data, and knows what the host finds out.
  const auto plan =
      (*program)->MakePlan({{DType::kFloat, {200, 300}, nullptr}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::vector<std::string> kernels;
  for (size_t i = 0; i < (*plan)->steps(); ++i) {
    kernels.push_back((*plan)->Step(i).kernel);
  }
  const std::string kind = GetParam() ? "cuda/" : "cpu/";
  EXPECT_THAT(kernels, ElementsAre(kind + "ConstantOfShape", kind + "Add",
                                   kind + "copy"));
  EXPECT_THAT(Shapes((*plan)->Step(0).outputs), ElementsAre("zero[200,300]"));
  EXPECT_THAT((*plan)->Step(1).nodes, ElementsAre("sum"));
  EXPECT_THAT(Shapes((*plan)->Step(1).outputs), ElementsAre("y[200,300]"));
  EXPECT_THAT((*plan)->Step(2).nodes, ElementsAre());
  EXPECT_THAT(Shapes((*plan)->Step(2).outputs), ElementsAre("c[2]"));
}

TEST_P(ProgramTest, IsKnownByItsIdentity) {
  ProgramOptions options;
  options.identity = 7;
  const std::string id = (*Compile(Sum(), options))->id();
  EXPECT_EQ(id.size(), 16u);
  EXPECT_EQ((*Compile(Sum(), options))->id(), id);
  options.identity = 8;
  EXPECT_NE((*Compile(Sum(), options))->id(), id);
}

TEST_P(ProgramTest, FoldsConstants) {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim(2)})};
  graph.constants["a"] = Floats({2}, {1, 2});
  graph.constants["b"] = Floats({2}, {3, 4});
  graph.nodes = {Node("Add", {"a", "b"}, {"c"}), Node("Neg", {"c"}, {"d"}),
                 Node("Add", {"x", "d"}, {"y"})};
  graph.outputs = {"y"};
  const auto program = Compile(std::move(graph));
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(operators_.counts.add, 1);
  EXPECT_EQ((*program)->constant_bytes(), 8u);
  const auto x = Floats({2}, {100, 100});
  const auto plan = (*program)->MakePlan({Tensor(x)});
  EXPECT_EQ((*plan)->steps(), 1u);
  PlanRunner run(*device_, **plan);
  ASSERT_TRUE(run.Run({Tensor(x)}).ok());
  EXPECT_THAT(run.Output<float>(0), ElementsAre(96, 94));
}

TEST_P(ProgramTest, NamesTheNodeThatCannotBeFolded) {
  Graph graph;
  graph.constants["a"] = Floats({2}, {1, 2});
  graph.constants["i"] = Ints({7});
  graph.nodes = {Node("Gather", {"a", "i"}, {"y"}, "pick")};
  graph.outputs = {"y"};
  const absl::Status status = Compile(std::move(graph)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"pick\" (Gather)"));
}

// With kernels for products that divide the columns among threads.
TEST_P(ProgramTest, FoldsWhatHasNoElements) {
  for (const char* op : {"Gemm", "MatMul"}) {
    SCOPED_TRACE(op);
    Graph graph;
    graph.opsets = {{"", 13}};
    graph.constants["a"] = Floats({2, 3}, {1, 2, 3, 4, 5, 6});
    graph.constants["b"] = Floats({3, 0}, {});
    graph.nodes = {Node(op, {"a", "b"}, {"y"})};
    graph.outputs = {"y"};
    const auto program =
        Program::Compile(std::move(graph), *device_, *MakeOpRegistry());
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_EQ(ToConcrete((*program)->outputs()[0].shape), Dims({2, 0}));
  }
}

TEST_P(ProgramTest, LeavesWhatNobodyWantsUnfolded) {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim(2)})};
  graph.constants["a"] = Floats({2}, {1, 2});
  graph.constants["i"] = Ints({7});
  graph.nodes = {Node("Gather", {"a", "i"}, {"nowhere"}),
                 Node("Neg", {"x"}, {"y"})};
  graph.outputs = {"y"};
  EXPECT_TRUE(Compile(std::move(graph)).ok());
}

// Shape -> Gather -> Concat -> Reshape, the chain that exporters write.
TEST_P(ProgramTest, ComputesShapesOnTheHost) {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim(), Dim()})};
  graph.constants["first"] = Ints({0});
  graph.constants["one"] = Ints({1});
  graph.constants["second"] = Ints({1});
  graph.nodes = {Node("Neg", {"x"}, {"n"}),
                 Node("Shape", {"n"}, {"s"}),
                 Node("Gather", {"s", "first"}, {"rows"}),
                 Node("Gather", {"s", "second"}, {"columns"}),
                 Node("Concat", {"columns", "one", "rows"}, {"target"}),
                 Node("Reshape", {"n", "target"}, {"y"})};
  graph.outputs = {"y"};
  const auto program = Compile(std::move(graph));
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_FALSE((*program)->InputOnHost(0));
  const auto x = Floats({2, 3}, {1, 2, 3, 4, 5, 6});
  const auto plan = (*program)->MakePlan({Tensor(x)});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(DimsString((*plan)->outputs()[0].meta.dims), "[3,1,2]");
  EXPECT_EQ((*plan)->steps(), 1u);  // Neg, straight into the outputs
  EXPECT_EQ((*plan)->arena_bytes(), 0u);
  PlanRunner run(*device_, **plan);
  ASSERT_TRUE(run.Run({Tensor(x)}).ok());
  EXPECT_THAT(run.Output<float>(0), ElementsAre(-1, -2, -3, -4, -5, -6));
}

TEST_P(ProgramTest, UploadsHostValuesThatTheDeviceReads) {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim()}),
                  Input("i", SymbolicDims{Dim()}, DType::kInt64)};
  graph.nodes = {Node("Shape", {"x"}, {"s"}), Node("Add", {"s", "i"}, {"y"})};
  graph.outputs = {"y", "s"};
  const auto program = Compile(std::move(graph));
  ASSERT_TRUE(program.ok()) << program.status();
  const auto x = Floats({5}, {1, 2, 3, 4, 5});
  const auto i = Ints({100});
  const auto plan = (*program)->MakePlan({Tensor(x), Tensor(i)});
  ASSERT_TRUE(plan.ok()) << plan.status();
  PlanRunner run(*device_, **plan);
  ASSERT_TRUE(run.Run({Tensor(x), Tensor(i)}).ok());
  EXPECT_THAT(run.Output<int64_t>(0), ElementsAre(105));
  EXPECT_THAT(run.Output<int64_t>(1), ElementsAre(5));
}

TEST_P(ProgramTest, ReadsShapesFromInputs) {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim()}),
                  Input("to", SymbolicDims{Dim(1)}, DType::kInt64)};
  graph.constants["two"] = Ints({2});
  graph.nodes = {Node("Concat", {"to", "two"}, {"shape"}),
                 Node("Reshape", {"x", "shape"}, {"r"}),
                 Node("Neg", {"r"}, {"y"})};
  graph.outputs = {"y", "to"};
  const auto program = Compile(std::move(graph));
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE((*program)->InputOnHost(1));
  const auto x = Floats({4}, {1, 2, 3, 4});
  const auto two = Ints({2});
  const auto plan = (*program)->MakePlan({Tensor(x), Tensor(two)});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE((*plan)->inputs()[1].on_host);
  EXPECT_EQ(DimsString((*plan)->outputs()[0].meta.dims), "[2,2]");
  PlanRunner run(*device_, **plan);
  ASSERT_TRUE(run.Run({Tensor(x), Tensor(two)}).ok());
  EXPECT_THAT(run.Output<float>(0), ElementsAre(-1, -2, -3, -4));
  EXPECT_THAT(run.Output<int64_t>(1), ElementsAre(2));

  // Another value is another plan; the same value is the same one.
  const auto three = Ints({3});
  EXPECT_EQ((*program)->FindPlan({Tensor(x), Tensor(three)}), nullptr);
  EXPECT_EQ((*program)->FindPlan({Tensor(x), Tensor(Ints({2}))}), *plan);
  const absl::Status status =
      (*program)->MakePlan({Tensor(x), Tensor(three)}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("(Reshape)"));
}

TEST_P(ProgramTest, RefusesShapesThatDependOnDeviceData) {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim(64), Dim(64)}, DType::kInt64)};
  graph.nodes = {Node("Add", {"x", "x"}, {"s"}),
                 Node("ConstantOfShape", {"s"}, {"y"}, "fill")};
  graph.outputs = {"y"};
  const absl::Status status = Compile(std::move(graph)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  for (const char* word :
       {"\"fill\"", "input 0 (shape)", "data computed on the device"}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }
}

TEST_P(ProgramTest, DigestsInputsThatStayOnTheHost) {
  Graph graph;
  graph.inputs = {Input("file", SymbolicDims{Dim()}, DType::kUint8)};
  graph.nodes = {Node("weir.Decode", {"file"}, {"picture"}, "decode"),
                 Node("Neg", {"picture"}, {"y"})};
  graph.outputs = {"y"};
  const auto program = Compile(std::move(graph));
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE((*program)->InputOnHost(0));
  const uint8_t bytes[] = {3, 9};
  const HostTensor file = {DType::kUint8, {2}, bytes};
  const auto plan = (*program)->MakePlan({file});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE((*plan)->inputs()[0].on_host);
  EXPECT_EQ((*plan)->input_bytes(), 0u);
  PlanRunner run(*device_, **plan);
  ASSERT_TRUE(run.Run({file}).ok());
  EXPECT_THAT(run.Output<float>(0), ElementsAre(-9, -9, -9));

  // Same digest, other bytes: the same plan, with the new bytes at run time.
  const uint8_t other[] = {3, 8};
  const HostTensor next = {DType::kUint8, {2}, other};
  EXPECT_EQ((*program)->FindPlan({next}), *plan);
  PlanRunner again(*device_, **plan);
  ASSERT_TRUE(again.Run({next}).ok());
  EXPECT_THAT(again.Output<float>(0), ElementsAre(-8, -8, -8));

  const HostTensor truncated = {DType::kUint8, {1}, bytes};
  EXPECT_EQ((*program)->FindPlan({truncated}), nullptr);
  const absl::Status status = (*program)->MakePlan({truncated}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"decode\""));
}

// The thread that looks for a plan has other calls to answer.
TEST_P(ProgramTest, WhatTakesLongToDigestIsLeftToMakePlan) {
  Graph graph;
  graph.outputs = {"all"};
  for (const char* name : {"a", "b"}) {
    graph.inputs.push_back(Input(name, SymbolicDims{Dim()}, DType::kUint8));
    graph.nodes.push_back(
        Node("weir.Decode", {name}, {absl::StrCat("of ", name)}));
  }
  graph.nodes.push_back(Node("Add", {"of a", "of b"}, {"all"}));
  graph.nodes[1].name = "decode";
  const auto program = Compile(std::move(graph));
  ASSERT_TRUE(program.ok()) << program.status();
  const std::vector<uint8_t> bytes(kMaxDigestParts, 3);
  const auto of = [&](int64_t size) {
    return HostTensor{DType::kUint8, {size}, bytes.data()};
  };
  // The budget is that of all inputs together.
  const int64_t half = kQuickDigestParts / 2;
  const auto quick = (*program)->MakePlan({of(half), of(half)});
  ASSERT_TRUE(quick.ok()) << quick.status();
  EXPECT_EQ((*program)->FindPlan({of(half), of(half)}), *quick);
  const auto slow = (*program)->MakePlan({of(half), of(half + 1)});
  ASSERT_TRUE(slow.ok()) << slow.status();
  const int before = testing::decode_digests;
  EXPECT_EQ((*program)->FindPlan({of(half), of(half + 1)}), nullptr);
  EXPECT_EQ(testing::decode_digests - before, 2);
  EXPECT_EQ(*(*program)->MakePlan({of(half), of(half + 1)}), *slow);

  const absl::Status status =
      (*program)->MakePlan({of(kMaxDigestParts), of(2)}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"decode\""));
}

// So has it where there is much to compare: here 1024 sizes of each input.
TEST_P(ProgramTest, ALongKeyIsLeftToMakePlan) {
  const std::vector<int64_t> sizes(kMaxHostInts, 3);
  for (const size_t count : {size_t{63}, size_t{65}}) {
    SCOPED_TRACE(count);
    Graph graph;
    graph.constants["first"] = Ints({0});
    std::string sum;
    for (size_t i = 0; i < count; ++i) {
      const std::string x = absl::StrCat("x", i);
      const std::string size = absl::StrCat("size", i);
      graph.inputs.push_back(Input(x, SymbolicDims{Dim()}, DType::kInt64));
      graph.nodes.push_back(Node("Gather", {x, "first"}, {size}));
      const std::string before = std::exchange(sum, absl::StrCat("sum", i));
      graph.nodes.push_back(Node("Add", {i == 0 ? size : before, size}, {sum}));
    }
    graph.nodes.push_back(Node("ConstantOfShape", {sum}, {"y"}));
    graph.outputs = {"y"};
    const auto program = Compile(std::move(graph));
    ASSERT_TRUE(program.ok()) << program.status();
    const std::vector<HostTensor> inputs(
        count,
        {DType::kInt64, {static_cast<int64_t>(sizes.size())}, sizes.data()});
    const auto plan = (*program)->MakePlan(inputs);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const bool quick = count < 64;
    EXPECT_EQ((*program)->FindPlan(inputs), quick ? *plan : nullptr);
    EXPECT_EQ(*(*program)->MakePlan(inputs), *plan);
  }
}

// Files may be large, and nodes many.
TEST_P(ProgramTest, AnInputIsDigestedOnceForAllNodesOfAnOperator) {
  Graph graph;
  graph.inputs = {Input("file", SymbolicDims{Dim()}, DType::kUint8)};
  for (int i = 0; i < 100; ++i) {
    graph.outputs.push_back(absl::StrCat("picture", i));
    graph.nodes.push_back(
        Node("weir.Decode", {"file"}, {graph.outputs.back()}));
  }
  const auto program = Compile(std::move(graph));
  ASSERT_TRUE(program.ok()) << program.status();
  const uint8_t bytes[] = {3, 9};
  const HostTensor file = {DType::kUint8, {2}, bytes};
  const int before = testing::decode_digests;
  const auto plan = (*program)->MakePlan({file});
  ASSERT_TRUE(plan.ok()) << plan.status();
  // To look for the plan, and to make it.
  EXPECT_LE(testing::decode_digests - before, 2);
  const int made = testing::decode_digests;
  EXPECT_EQ((*program)->FindPlan({file}), *plan);
  EXPECT_EQ(testing::decode_digests - made, 1);
  PlanRunner run(*device_, **plan);
  ASSERT_TRUE(run.Run({file}).ok());
  EXPECT_THAT(run.Output<float>(99), ElementsAre(9, 9, 9));
}

TEST_P(ProgramTest, AConstantIsDigestedOnceForAllNodesOfAnOperator) {
  Graph graph;
  graph.constants["file"] =
      testing::MakeConstant(DType::kUint8, {2}, std::vector<uint8_t>{3, 9});
  for (int i = 0; i < 100; ++i) {
    const std::string picture = absl::StrCat("picture", i);
    // Half of them nobody wants.
    if (i % 2 == 0) graph.outputs.push_back(picture);
    graph.nodes.push_back(Node("weir.Decode", {"file"}, {picture}));
  }
  const int before = testing::decode_digests;
  const auto program = Compile(std::move(graph));
  ASSERT_TRUE(program.ok()) << program.status();
  const auto plan = (*program)->MakePlan({});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE((*program)->Outline({}).ok());
  EXPECT_EQ(testing::decode_digests - before, 1);
}

// The program goes on with a copy of its own, as of all that is not aligned.
TEST_P(ProgramTest, AConstantIsDigestedOnceWhoeverElseReadsIt) {
  Graph graph;
  alignas(64) static constexpr uint8_t kBytes[] = {0, 3, 9};
  const auto file = std::make_shared<Constant>();
  file->tensor = {DType::kUint8, {2}, kBytes + 1};
  graph.constants["file"] = file;
  graph.nodes.push_back(Node("weir.Decode", {"file"}, {"picture"}));
  graph.nodes.push_back(Node("weir.Decode", {"file"}, {"again"}));
  graph.outputs = {"picture", "again", "file"};
  const int before = testing::decode_digests;
  const auto program = Compile(std::move(graph));
  ASSERT_TRUE(program.ok()) << program.status();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE((*program)->MakePlan({}).ok());
    EXPECT_TRUE((*program)->Outline({}).ok());
  }
  EXPECT_EQ(testing::decode_digests - before, 1);
  if (device_->host_addressable()) {
    EXPECT_EQ(file.use_count(), 1) << "the caller's is held for its digest";
  }
}

// They are read one after the other, by a thread that others wait for.
TEST_P(ProgramTest, TheDigestsOfAllConstantsHaveOneBudget) {
  const auto compile = [&](int64_t parts) {
    Graph graph;
    for (const char* name : {"one", "other"}) {
      auto bytes = std::make_shared<const std::vector<uint8_t>>(
          static_cast<size_t>(parts), uint8_t{1});
      const auto file = std::make_shared<Constant>();
      file->tensor = {DType::kUint8, {parts}, bytes->data()};
      file->owner = std::move(bytes);
      graph.constants[name] = file;
      graph.nodes.push_back(
          Node("weir.Decode", {name}, {absl::StrCat(name, "_picture")}));
    }
    graph.outputs = {"one_picture"};
    return Compile(std::move(graph)).status();
  };
  EXPECT_TRUE(compile(kMaxDigestParts / 2).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(compile(kMaxDigestParts / 2 + 1)));
}

// Nobody waits for the rest of the graph.
TEST_P(ProgramTest, StopsBetweenNodesThatNobodyWants) {
  StopSource stop;
  stop.request_stop();
  Graph graph = Sum();
  graph.nodes.push_back(Node("Neg", {"x"}, {"unwanted"}));
  ProgramOptions options;
  options.stop = stop.get_token();
  EXPECT_TRUE(absl::IsCancelled(
      Program::Compile(std::move(graph), *device_, operators_.registry, options)
          .status()));
}

// Also where inference goes over the graph again, to see what is too large.
TEST_P(ProgramTest, StopsWhereSizesAreCheckedToo) {
  static thread_local StopSource* stop;
  static thread_local int inferred;
  StopSource source;
  stop = &source;
  inferred = 0;
  OpRegistry registry(&operators_.registry);
  OpDef def;
  def.domain = "weir";
  def.name = "Stopping";
  def.doc = "Inferred again, it requests a stop.";
  def.inputs = {{.name = "x", .types = kFixedTypes}};
  def.outputs = {{.name = "y"}};
  def.infer = [](InferContext& context) {
    if (++inferred > 3) stop->request_stop();
    return testing::SameShape(context);
  };
  def.cost = LinearCost;
  ASSERT_TRUE(registry.Register(std::move(def)).ok());
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim(2)})};
  graph.nodes = {Node("weir.Stopping", {"x"}, {"a"}),
                 Node("weir.Stopping", {"a"}, {"b"}),
                 Node("weir.Stopping", {"b"}, {"c"})};
  graph.outputs = {"c"};
  ProgramOptions options;
  options.stop = source.get_token();
  EXPECT_TRUE(absl::IsCancelled(
      Program::Compile(std::move(graph), *device_, registry, options)
          .status()));
  EXPECT_EQ(inferred, 4);
}

// And in the middle of one that the host computes, which asks as it goes.
TEST_P(ProgramTest, StopsWithinWhatTheHostComputes) {
  static thread_local StopSource* stop;
  static thread_local bool was_asked;
  StopSource source;
  stop = &source;
  was_asked = false;
  class StoppingKernel final : public Kernel, public KernelPlan {
   public:
    absl::StatusOr<std::unique_ptr<const KernelPlan>> Plan(
        const PlanArgs&) const override {
      return std::make_unique<StoppingKernel>();
    }
    absl::Status Run(const RunArgs& run) const override {
      EXPECT_FALSE(run.team->GivenUp());
      stop->request_stop();
      was_asked = run.team->GivenUp();
      return absl::OkStatus();
    }
  };
  OpRegistry registry(&operators_.registry);
  OpDef def;
  def.domain = "weir";
  def.name = "Stopping";
  def.doc = "It requests a stop.";
  def.inputs = {{.name = "x", .types = kFixedTypes}};
  def.outputs = {{.name = "y"}};
  def.infer = testing::SameShape;
  def.cost = LinearCost;
  ASSERT_TRUE(registry
                  .Register(std::move(def),
                            [](const NodeInfo&, Device&) {
                              return std::make_unique<const StoppingKernel>();
                            })
                  .ok());
  Graph graph;
  graph.constants["c"] = Ints({2});
  graph.nodes = {Node("weir.Stopping", {"c"}, {"y"})};
  graph.outputs = {"y"};
  ProgramOptions options;
  options.stop = source.get_token();
  EXPECT_TRUE(absl::IsCancelled(
      Program::Compile(std::move(graph), *device_, registry, options)
          .status()));
  EXPECT_TRUE(was_asked);
}

TEST_P(ProgramTest, HostBytesOnTheDeviceToo) {
  Graph graph;
  graph.inputs = {Input("file", SymbolicDims{Dim()}, DType::kUint8)};
  graph.nodes = {Node("weir.Decode", {"file"}, {"picture"}, "decode")};
  graph.outputs = {"picture", "file"};
  const auto program = Compile(std::move(graph));
  if (device_->host_addressable()) {
    EXPECT_TRUE(program.ok()) << program.status();
  } else {
    EXPECT_EQ(program.status().code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(program.status().message()),
                HasSubstr("\"decode\""));
  }
}

TEST_P(ProgramTest, CopiesOutputsThatNoStepMakes) {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim(2)})};
  graph.constants["c"] = Floats({1}, {7});
  graph.constants["flat"] = Ints({2, 1});
  graph.nodes = {Node("Neg", {"x"}, {"y"}),
                 Node("Reshape", {"y", "flat"}, {"alias"}),
                 Node("Reshape", {"x", "flat"}, {"input_alias"})};
  graph.outputs = {"x", "c", "y", "y", "alias", "input_alias"};
  const auto program = Compile(std::move(graph));
  ASSERT_TRUE(program.ok()) << program.status();
  const auto x = Floats({2}, {1, 2});
  const auto plan = (*program)->MakePlan({Tensor(x)});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->steps(), 6u);  // Neg writes one output; five copies
  PlanRunner run(*device_, **plan);
  ASSERT_TRUE(run.Run({Tensor(x)}).ok());
  EXPECT_THAT(run.Output<float>(0), ElementsAre(1, 2));
  EXPECT_THAT(run.Output<float>(1), ElementsAre(7));
  EXPECT_THAT(run.Output<float>(2), ElementsAre(-1, -2));
  EXPECT_THAT(run.Output<float>(3), ElementsAre(-1, -2));
  EXPECT_THAT(run.Output<float>(4), ElementsAre(-1, -2));
  EXPECT_THAT(run.Output<float>(5), ElementsAre(1, 2));
  EXPECT_EQ(DimsString((*plan)->outputs()[4].meta.dims), "[2,1]");
}

TEST_P(ProgramTest, ReusesTheArena) {
  Graph graph;
  graph.inputs = {Input("v0", SymbolicDims{Dim(1000)})};
  for (int i = 0; i < 20; ++i) {
    graph.nodes.push_back(
        Node("Neg", {absl::StrCat("v", i)}, {absl::StrCat("v", i + 1)}));
  }
  graph.outputs = {"v20"};
  const auto program = Compile(std::move(graph));
  ASSERT_TRUE(program.ok());
  const auto x = Floats({1000}, std::vector<float>(1000, 3));
  const auto plan = (*program)->MakePlan({Tensor(x)});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ((*plan)->arena_bytes(), 2 * 4096u);
  PlanRunner run(*device_, **plan);
  ASSERT_TRUE(run.Run({Tensor(x)}).ok());
  EXPECT_EQ(run.Output<float>(0)[999], 3);
}

TEST_P(ProgramTest, GivesScratchThatMeetsNothing) {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim(100)})};
  graph.nodes = {Node("Neg", {"x"}, {"a"}), Node("weir.Scratch", {"a"}, {"b"}),
                 Node("Add", {"a", "b"}, {"y"})};
  graph.outputs = {"y"};
  const auto program = Compile(std::move(graph));
  ASSERT_TRUE(program.ok()) << program.status();
  const auto x = Floats({100}, std::vector<float>(100, 3));
  const auto plan = (*program)->MakePlan({Tensor(x)});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ((*plan)->arena_bytes(), 3 * 512u);
  PlanRunner run(*device_, **plan);
  ASSERT_TRUE(run.Run({Tensor(x)}).ok());
  EXPECT_EQ(run.Output<float>(0)[99], -6);
}

TEST_P(ProgramTest, LeavesOutWhatNobodyWants) {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim(2)})};
  graph.nodes = {Node("Neg", {"x"}, {"unused"}), Node("Add", {"x", "x"}, {"y"}),
                 Node("weir.Random", {}, {"dice"})};
  graph.outputs = {"y"};
  const auto program = Compile(std::move(graph));
  ASSERT_TRUE(program.ok());
  EXPECT_FALSE((*program)->random());
  const auto x = Floats({2}, {1, 2});
  EXPECT_EQ((*(*program)->MakePlan({Tensor(x)}))->steps(), 1u);
}

TEST_P(ProgramTest, NeverFoldsWhatIsRandom) {
  Graph graph;
  graph.nodes = {Node("weir.Random", {}, {"y"})};
  graph.outputs = {"y"};
  const auto program = Compile(std::move(graph));
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE((*program)->random());
  const auto plan = (*program)->MakePlan({});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ((*program)->FindPlan({}), *plan);
  PlanRunner run(*device_, **plan);
  ASSERT_TRUE(run.Run({}, /*seed=*/42).ok());
  EXPECT_THAT(run.Output<float>(0), ElementsAre(42, 42, 42, 42));
}

TEST_P(ProgramTest, SkipsStepsWithNothingToCompute) {
  const auto program = Compile(Sum());
  const auto x = Floats({0}, {});
  const auto plan = (*program)->MakePlan({Tensor(x), Tensor(x)});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->steps(), 0u);
  EXPECT_EQ((*plan)->outputs()[0].meta.elements, 0);
}

TEST_P(ProgramTest, NamesTheNodeOfAFault) {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim(2)}),
                  Input("i", SymbolicDims{Dim()}, DType::kInt64)};
  graph.nodes = {Node("Neg", {"x"}, {"n"}),
                 Node("Gather", {"n", "i"}, {"y"}, "pick")};
  graph.outputs = {"y"};
  const auto program = Compile(std::move(graph));
  ASSERT_TRUE(program.ok());
  const auto x = Floats({2}, {1, 2});
  const auto i = Ints({5});
  const auto plan = (*program)->MakePlan({Tensor(x), Tensor(i)});
  ASSERT_TRUE(plan.ok());
  PlanRunner run(*device_, **plan);
  const absl::Status status = run.Run({Tensor(x), Tensor(i)});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("node \"pick\" (Gather)"));
  EXPECT_EQ(NodeIndex(status), 1u);
  EXPECT_EQ((*plan)->FaultAt(1, FaultCode::kIndexOutOfRange), status);
}

TEST_P(ProgramTest, NamesTheDimsOfAnOutputAsTheCallerDoes) {
  Graph graph;
  graph.symbols = {"N", "C", "D"};
  const Dim n = Dim::Symbol(0), c = Dim::Symbol(1), d = Dim::Symbol(2);
  graph.inputs = {Input("x", SymbolicDims{n, c}),
                  Input("y", SymbolicDims{n, d})};
  graph.nodes = {Node("Neg", {"x"}, {"a"}), Node("Neg", {"y"}, {"b"})};
  graph.outputs = {"a", "b"};
  const auto program = Compile(Graph(graph));
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ((*program)->outputs()[1].shape, (SymbolicDims{n, d}));

  graph.declared_outputs = {{"a", DType::kFloat, SymbolicDims{n, c}},
                            {"b", DType::kFloat, SymbolicDims{n, 2, d}}};
  const absl::Status refused = Compile(std::move(graph)).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.message(),
            "output \"b\" has shape [N,D] where [N,2,D] is declared");
}

// As models and messages do, where there is no name.
TEST_P(ProgramTest, AnOpenExtentWithoutANameIsMinusOne) {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim(), Dim(3)})};
  graph.nodes = {Node("Neg", {"x"}, {"y"})};
  graph.outputs = {"y"};
  const auto program = Compile(std::move(graph));
  ASSERT_TRUE(program.ok()) << program.status();
  const auto x = Floats({2}, {1, 2});
  EXPECT_THAT(std::string((*program)->MakePlan({Tensor(x)}).status().message()),
              HasSubstr("has shape [2] where [-1,3] is declared"));
}

TEST_P(ProgramTest, NamesTheInputThatDoesNotFit) {
  const auto program = Compile(Sum());
  ASSERT_TRUE(program.ok());
  const auto two = Floats({2}, {1, 2});
  const auto matrix = Floats({1, 2}, {1, 2});
  const auto ints = Ints({1, 2});
  // A tensor that differs from these in type alone does not get their plan.
  ASSERT_TRUE((*program)->MakePlan({Tensor(two), Tensor(two)}).ok());
  const auto expect = [&](std::vector<HostTensor> inputs, const char* word,
                          const char* field) {
    const absl::Status status = (*program)->MakePlan(inputs).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(word));
    EXPECT_EQ(Field(status), field);
    EXPECT_EQ((*program)->FindPlan(inputs), nullptr);
  };
  expect({Tensor(matrix), Tensor(two)}, "[1,2] where [N]", "inputs[0]");
  expect({Tensor(two), Tensor(ints)}, "is int64 where float", "inputs[1]");
  expect({Tensor(two)}, "1 inputs where 2", "inputs");
  HostTensor negative = Tensor(two);
  negative.dims = {-2};
  expect({negative, Tensor(two)}, "negative", "inputs[0]");
  HostTensor huge = Tensor(two);
  huge.dims = {1'000'000'000'000};
  expect({huge, Tensor(two)}, "\"x\"", "inputs[0]");
}

// Models for pictures and words call the extents of both "batch" and take 3 of
// the one with 5 of the other: only the operators say what must agree.
TEST_P(ProgramTest, OneNameOnTwoExtentsDoesNotBindThem) {
  Graph graph;
  graph.symbols = {"batch"};
  const SymbolicDims rows = {Dim::Symbol(0), Dim(1)};
  graph.inputs = {
      Input("words", rows), Input("pictures", rows),
      Input("square", SymbolicDims{Dim::Symbol(0), Dim::Symbol(0)})};
  graph.nodes = {Node("Neg", {"words"}, {"w"}),
                 Node("Neg", {"pictures"}, {"p"}),
                 Node("Neg", {"square"}, {"s"})};
  graph.outputs = {"w", "p", "s"};
  const auto program = Compile(std::move(graph));
  ASSERT_TRUE(program.ok()) << program.status();
  const auto three = Floats({3, 1}, {1, 2, 3});
  const auto five = Floats({5, 1}, {1, 2, 3, 4, 5});
  const auto wide = Floats({1, 2}, {7, 8});
  const std::vector<HostTensor> inputs = {Tensor(three), Tensor(five),
                                          Tensor(wide)};
  const auto plan = (*program)->MakePlan(inputs);
  ASSERT_TRUE(plan.ok()) << plan.status();
  PlanRunner run(*device_, **plan);
  ASSERT_TRUE(run.Run(inputs).ok());
  EXPECT_THAT(run.Output<float>(0), ElementsAre(-1, -2, -3));
  EXPECT_THAT(run.Output<float>(1), ElementsAre(-1, -2, -3, -4, -5));
  EXPECT_THAT(run.Output<float>(2), ElementsAre(-7, -8));
}

TEST_P(ProgramTest, NamesTheNodeThatNeedsExtentsToAgree) {
  const auto program = Compile(Sum());
  ASSERT_TRUE(program.ok());
  const auto one = Floats({1}, {10});
  const auto two = Floats({2}, {1, 2});
  const auto three = Floats({3}, {1, 2, 3});
  const absl::Status status =
      (*program)->MakePlan({Tensor(two), Tensor(three)}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("\"sum\" (Add): shapes [2] and [3]"));
  // What the operator broadcasts may differ.
  const auto plan = (*program)->MakePlan({Tensor(one), Tensor(three)});
  ASSERT_TRUE(plan.ok()) << plan.status();
  PlanRunner run(*device_, **plan);
  ASSERT_TRUE(run.Run({Tensor(one), Tensor(three)}).ok());
  EXPECT_THAT(run.Output<float>(0), ElementsAre(-11, -12, -13));
}

TEST_P(ProgramTest, RefusesAnOperatorWithoutAKernel) {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim(2)})};
  graph.opsets[""] = 17;
  graph.nodes = {Node("Erf", {"x"}, {"y"}, "odd")};
  graph.outputs = {"y"};
  const absl::Status status = Compile(std::move(graph)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  for (const std::string& word :
       {std::string("odd"), std::string("Erf"), std::string("opset 17"),
        std::string("float"), DeviceName(device_->info())}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }
}

// Whether it is kept or not, and without another plan being made.
TEST_P(ProgramTest, CountsAPlanAsLongAsItLives) {
  ProgramOptions options;
  options.max_plans = 1;
  options.room = std::make_shared<ProgramRoom>();
  const auto account = options.room->account();
  auto program = *Compile(Sum(), options);
  const size_t alone = account->bytes();
  EXPECT_EQ(program->held_bytes(), alone);
  const auto plan_of = [&](int64_t n) {
    const std::vector<HostTensor> inputs(2, {DType::kFloat, {n}, nullptr});
    return *program->MakePlan(inputs);
  };
  auto one = plan_of(1);
  const size_t with_one = account->bytes();
  EXPECT_GE(with_one, alone + one->held_bytes());
  auto other = plan_of(2);  // the program keeps this one
  const size_t with_both = account->bytes();
  EXPECT_GE(with_both, with_one + other->held_bytes());
  EXPECT_EQ(program->held_bytes(), with_both);
  one = nullptr;
  EXPECT_LE(account->bytes(), with_one);
  program = nullptr;
  EXPECT_GE(account->bytes(), alone);
  other = nullptr;
  EXPECT_EQ(account->bytes(), 0u);
}

TEST_P(ProgramTest, KeepsTheLatestPlans) {
  const auto program = Compile(Sum(), {.max_plans = 2, .limits = {}});
  ASSERT_TRUE(program.ok());
  const auto one = Floats({1}, {1});
  const auto two = Floats({2}, {1, 2});
  const auto three = Floats({3}, {1, 2, 3});
  const auto plan = [&](const auto& x) {
    return *(*program)->MakePlan({Tensor(x), Tensor(x)});
  };
  const auto found = [&](const auto& x) {
    return (*program)->FindPlan({Tensor(x), Tensor(x)});
  };
  const auto first = plan(one);
  plan(two);
  EXPECT_EQ(found(one), first);
  plan(three);  // the second has been used least recently
  EXPECT_EQ(found(one), first);
  EXPECT_EQ(found(two), nullptr);
  EXPECT_NE(found(three), nullptr);
  EXPECT_EQ(plan(one), first);
}

TEST_P(ProgramTest, APlanOutlivesItsProgram) {
  std::shared_ptr<const Plan> plan;
  const auto x = Floats({2}, {1, 2});
  {
    Graph graph;
    graph.inputs = {Input("x", SymbolicDims{Dim(2)})};
    graph.constants["c"] = Floats({2}, {10, 20});
    graph.nodes = {Node("Add", {"x", "c"}, {"y"})};
    graph.outputs = {"y"};
    const auto program = Compile(std::move(graph));
    ASSERT_TRUE(program.ok());
    plan = *(*program)->MakePlan({Tensor(x)});
  }
  PlanRunner run(*device_, *plan);
  ASSERT_TRUE(run.Run({Tensor(x)}).ok());
  EXPECT_THAT(run.Output<float>(0), ElementsAre(11, 22));
}

TEST_P(ProgramTest, RefusesARunThatCannotFit) {
  Graph graph;
  graph.inputs = {Input("s", SymbolicDims{Dim(1)}, DType::kInt64)};
  for (int i = 0; i < 4; ++i) {
    const std::string name = absl::StrCat("big", i);
    graph.nodes.push_back(Node("ConstantOfShape", {"s"}, {name}));
    graph.outputs.push_back(name);
  }
  const auto program = Compile(std::move(graph));
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(
      (*program)->MakePlan({Tensor(Ints({200'000'000'000}))}).status().code(),
      absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(
      (*program)->MakePlan({Tensor(Ints({1'000'000'000'000}))}).status().code(),
      absl::StatusCode::kInvalidArgument);
}

TEST_P(ProgramTest, MeasuresItself) {
  const auto program = Compile(Sum());
  const auto x = Floats({1}, {1});
  const auto plan = *(*program)->MakePlan({Tensor(x), Tensor(x)});
  EXPECT_EQ(plan->measured_ns(), 0);
  plan->RecordDuration(8000, 1000);
  EXPECT_EQ(plan->measured_ns(), 8000);
  plan->RecordDuration(16000, 1000);
  EXPECT_EQ(plan->measured_ns(), 9000);
}

TEST_P(ProgramTest, KnowsHowLongItRunsAtMost) {
  const auto program = Compile(Sum());
  const auto x = Floats({1}, {1});
  const auto plan = *(*program)->MakePlan({Tensor(x), Tensor(x)});
  // Not measured: no less than any device takes, and no reason to wait long.
  EXPECT_GE(plan->longest_ns(), 1'000'000);
  EXPECT_LE(plan->longest_ns(), 10'000'000);
  EXPECT_EQ(plan->longest_device_ns(), plan->longest_ns());
  plan->RecordDuration(8000, 1000);
  EXPECT_EQ(plan->longest_ns(), 8000);
  plan->RecordDuration(800'000'000, 2000);
  EXPECT_EQ(plan->longest_ns(), 800'000'000);
  EXPECT_EQ(plan->longest_device_ns(), 2000);
  // One that was long is remembered for a while.
  for (int i = 0; i < 20; ++i) plan->RecordDuration(8000, 1000);
  EXPECT_GT(plan->longest_ns(), 400'000'000);
  for (int i = 0; i < 2000; ++i) plan->RecordDuration(8000, 1000);
  EXPECT_LT(plan->longest_ns(), 10'000);
  EXPECT_GE(plan->longest_ns(), 8000);
}

INSTANTIATE_TEST_SUITE_P(, ProgramTest, ::testing::Values(false, true),
                         [](const auto& info) {
                           return info.param ? "Far" : "Near";
                         });

TEST(ProgramUploadTest, UploadsMoreThanTheStagingHolds) {
  testing::TestOperators operators;
  FarDevice device;
  Graph graph;
  const size_t n = (size_t{40} << 20) / sizeof(float);
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i % 1000);
  graph.constants["small"] = Floats({3}, {1, 2, 3});
  graph.constants["weights"] =
      Floats({static_cast<int64_t>(n)}, std::move(values));
  graph.outputs = {"small", "weights"};
  const auto program =
      Program::Compile(std::move(graph), device, operators.registry);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(device.streams_made, 1);
  const auto plan = (*program)->MakePlan({});
  ASSERT_TRUE(plan.ok());
  PlanRunner run(device, **plan);
  ASSERT_TRUE(run.Run({}).ok());
  EXPECT_THAT(run.Output<float>(0), ElementsAre(1, 2, 3));
  const auto weights = run.Output<float>(1);
  for (size_t i = 0; i < n; ++i) {
    ASSERT_EQ(weights[i], static_cast<float>(i % 1000));
  }
}

// Text and numbers, of a device that cannot read text.
class ProgramTextTest : public ::testing::Test {
 protected:
  ProgramTextTest() : registry_(MakeOpRegistry()) {
    // A GPU's kernel refuses text, as those of weir's CUDA backend do.
    for (const char* op : {"Identity", "Neg"}) {
      EXPECT_TRUE(registry_
                      ->RegisterKernel(
                          DeviceKind::kCuda, "", op,
                          [](const NodeInfo& node, Device&)
                              -> absl::StatusOr<std::unique_ptr<const Kernel>> {
                            if (node.input_types[0] == DType::kString) {
                              return absl::UnimplementedError("text");
                            }
                            return MakeKernel(Copy);
                          })
                      .ok());
    }
  }

  static absl::StatusOr<RunFunction> Copy(const PlanArgs& args) {
    return RunFunction([bytes = args.inputs[0].bytes](const RunArgs& run) {
      std::memcpy(run.outputs[0], run.inputs[0], bytes);
      return absl::OkStatus();
    });
  }

  absl::StatusOr<std::shared_ptr<const Program>> Compile(Graph graph,
                                                         Device* text_device) {
    ProgramOptions options;
    options.text_device = text_device;
    return Program::Compile(std::move(graph), far_, *registry_, options);
  }

  static Graph Copies(DType dtype) {
    Graph graph;
    graph.opsets = {{"", 17}};
    graph.symbols = {"N"};
    graph.inputs = {{"x", dtype, SymbolicDims{Dim::Symbol(0)}}};
    graph.nodes = {Node("Identity", {"x"}, {"y"})};
    graph.outputs = {"y"};
    return graph;
  }

  std::unique_ptr<OpRegistry> registry_;
  FarDevice far_;
  std::unique_ptr<Device> cpu_ = MakeCpuDevice({});
};

TEST_F(ProgramTextTest, NumbersStayWhereTheyAre) {
  const auto program = Compile(Copies(DType::kFloat), cpu_.get());
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(&(*program)->device(), &far_);
}

TEST_F(ProgramTextTest, TextGoesToTheHost) {
  const absl::Status nowhere =
      Compile(Copies(DType::kString), nullptr).status();
  EXPECT_EQ(nowhere.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(nowhere.message()), HasSubstr("text"));
  const auto program = Compile(Copies(DType::kString), cpu_.get());
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(&(*program)->device(), cpu_.get());
  EXPECT_NE((*program)->id(),
            (*Compile(Copies(DType::kFloat), cpu_.get()))->id());
}

// Whole: the part that the device could run goes along.
TEST_F(ProgramTextTest, TextTakesTheNumbersWithIt) {
  Graph graph = Copies(DType::kString);
  graph.inputs.push_back({"n", DType::kFloat, SymbolicDims{Dim::Symbol(0)}});
  graph.nodes.push_back(Node("Neg", {"n"}, {"m"}));
  graph.outputs.push_back("m");
  const auto program = Compile(std::move(graph), cpu_.get());
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(&(*program)->device(), cpu_.get());
}

TEST_F(ProgramTextTest, TextWhoseElementsNothingReadsStaysOnTheHost) {
  Graph graph = Copies(DType::kFloat);
  graph.inputs.push_back({"t", DType::kString, SymbolicDims{Dim::Symbol(0)}});
  const auto program = Compile(std::move(graph), cpu_.get());
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(&(*program)->device(), &far_);
  const auto plan =
      (*program)->MakePlan({HostTensor{DType::kFloat, {1}, nullptr},
                            HostTensor{DType::kString, {1}, nullptr}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_FALSE((*plan)->inputs()[0].on_host);
  EXPECT_TRUE((*plan)->inputs()[1].on_host);
}

TEST_F(ProgramTextTest, TextOfAnAttributeGoesToTheHost) {
  const auto made = [](const char* op, const char* attribute) {
    Graph graph;
    graph.opsets = {{"", 17}};
    graph.nodes = {Node(op, {}, {"y"})};
    graph.nodes[0].attributes.Set(attribute, std::string("hi"));
    graph.outputs = {"y"};
    return graph;
  };
  const auto program = Compile(made("Constant", "value_string"), cpu_.get());
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(&(*program)->device(), cpu_.get());
}

// What no device can run is refused for its own reason; and what only the CPU
// could run is no reason to leave the device.
TEST_F(ProgramTextTest, OnlyTextIsAReason) {
  Graph numbers = Copies(DType::kFloat);
  numbers.nodes[0].op = "Exp";
  const absl::Status refused = Compile(std::move(numbers), cpu_.get()).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("Exp"));
  Graph text = Copies(DType::kString);
  text.nodes[0].op = "Exp";
  EXPECT_FALSE(Compile(std::move(text), cpu_.get()).ok());
}

TEST(ProgramUploadTest, SaysWhenConstantsDoNotFitNow) {
  testing::TestOperators operators;
  FarDevice device;
  const auto compile = [&] {
    Graph graph;
    graph.constants["c"] = Floats({1}, {1});
    graph.outputs = {"c"};
    return Program::Compile(std::move(graph), device, operators.registry)
        .status();
  };
  device.out_of_memory = true;
  const absl::Status status = compile();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("constants"));
  // They may once others are gone.
  EXPECT_EQ(Reason(status), "DEVICE_MEMORY_EXHAUSTED");
  EXPECT_TRUE(RetryAfter(status).has_value());
  device.out_of_memory = false;
  EXPECT_TRUE(compile().ok()) << compile();
}

TEST(ProgramUploadTest, SaysWhenWhatAPlanComputesDoesNotFitNow) {
  testing::TestOperators operators;
  FarDevice device;
  Graph graph;
  graph.inputs = {Input("x", SymbolicShape())};
  graph.nodes = {Node("Shape", {"x"}, {"s"})};
  graph.outputs = {"s"};
  const auto program =
      Program::Compile(std::move(graph), device, operators.registry);
  ASSERT_TRUE(program.ok()) << program.status();
  const auto x = Floats({3}, {1, 2, 3});
  device.out_of_memory = true;
  const absl::Status status = (*program)->MakePlan({Tensor(x)}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Reason(status), "DEVICE_MEMORY_EXHAUSTED");
  EXPECT_TRUE(RetryAfter(status).has_value());
  device.out_of_memory = false;
  EXPECT_TRUE((*program)->MakePlan({Tensor(x)}).ok());
}

}  // namespace
}  // namespace weir
