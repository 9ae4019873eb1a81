// What passes over graphs do, seen from outside: by the steps of plans and by
// results beside those of graphs that passes leave alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/utf8.h"
#include "kernels/graph/graph.h"
#include "kernels/graph/program.h"
#include "kernels/ops/packed_constants.h"
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

std::shared_ptr<const Constant> Random(const Dims& dims, uint32_t seed) {
  std::minstd_rand random(seed + 1);
  std::uniform_real_distribution<float> spread(-1, 1);
  std::vector<float> values(static_cast<size_t>(NumElements(dims).value()));
  for (float& value : values) value = spread(random);
  return Floats(dims, std::move(values));
}

// A device, and what it can do.
struct Machine {
  std::unique_ptr<Device> device = MakeCpuDevice({});
  std::unique_ptr<OpRegistry> registry = MakeOpRegistry();
};

std::shared_ptr<const Program> Compile(Machine& machine, const Graph& graph) {
  auto program =
      Program::Compile(Graph(graph), *machine.device, *machine.registry, {});
  EXPECT_TRUE(program.ok()) << program.status();
  return program.ok() ? *program : nullptr;
}

struct Ran {
  std::vector<std::string> kernels;             // of the steps
  std::vector<std::vector<std::string>> nodes;  // of the steps
  std::vector<float> output;                    // output 0
};

std::vector<HostTensor> Tensors(
    const std::vector<std::shared_ptr<const Constant>>& values) {
  std::vector<HostTensor> tensors;
  for (const auto& value : values) tensors.push_back(value->tensor);
  return tensors;
}

Ran Evaluate(Machine& machine, const Graph& graph,
             const std::vector<std::shared_ptr<const Constant>>& inputs) {
  Ran ran;
  const auto program = Compile(machine, graph);
  if (program == nullptr) return ran;
  const auto plan = program->MakePlan(Tensors(inputs));
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return ran;
  for (size_t i = 0; i < (*plan)->steps(); ++i) {
    const StepOutline step = (*plan)->Step(i);
    ran.kernels.push_back(step.kernel);
    ran.nodes.push_back(step.nodes);
  }
  PlanRunner runner(*machine.device, **plan);
  const absl::Status status = runner.Run(Tensors(inputs));
  EXPECT_TRUE(status.ok()) << status;
  ran.output = runner.Output<float>(0);
  return ran;
}

int Count(const std::vector<std::string>& kernels, const std::string& wanted) {
  return static_cast<int>(std::count(kernels.begin(), kernels.end(), wanted));
}

GraphNode Conv(std::vector<std::string> inputs, const std::string& output,
               int64_t kernel, int64_t groups = 1, int64_t stride = 1) {
  GraphNode node = Node("Conv", std::move(inputs), {output}, output + "_conv");
  const int64_t pad = kernel / 2;
  node.attributes.Set("group", groups);
  node.attributes.Set("strides", std::vector<int64_t>{stride, stride});
  node.attributes.Set("pads", std::vector<int64_t>{pad, pad, pad, pad});
  return node;
}

// x -> Conv -> [+ r] -> [Relu | Clip] -> y
struct Block {
  int64_t channels = 8, out_channels = 12, groups = 1;
  int64_t side = 9, kernel = 3, stride = 1, batch = 1;
  bool bias = true, residual = true, residual_first = false;
  std::string activation = "Relu";

  int64_t OutSide() const { return (side - 1) / stride + 1; }
  Dims In() const { return {batch, channels, side, side}; }
  Dims Out() const { return {batch, out_channels, OutSide(), OutSide()}; }

  Graph MakeGraph() const {
    Graph graph;
    graph.symbols = {"N"};
    graph.inputs = {Input(
        "x", SymbolicDims{Dim::Symbol(0), channels, Dim(side), Dim(side)})};
    graph.constants["w"] =
        Random({out_channels, channels / groups, kernel, kernel}, 1);
    graph.constants["b"] = Random({out_channels}, 2);
    graph.constants["low"] = Floats({}, {-0.25});
    graph.constants["high"] = Floats({}, {0.5});
    std::vector<std::string> inputs = {"x", "w"};
    if (bias) inputs.push_back("b");
    graph.nodes = {Conv(inputs, "c", kernel, groups, stride)};
    std::string last = "c";
    if (residual) {
      // Of the same shape, whatever the batch: it is computed from x.
      graph.constants["v"] = Random({out_channels, channels, 1, 1}, 3);
      graph.nodes.insert(graph.nodes.begin(),
                         {Conv({"x", "v"}, "r0", 1, 1, stride),
                          Node("Neg", {"r0"}, {"r"}, "neg")});
      graph.nodes.push_back(residual_first
                                ? Node("Add", {"r", "c"}, {"s"}, "sum")
                                : Node("Add", {"c", "r"}, {"s"}, "sum"));
      last = "s";
    }
    if (activation == "Relu") {
      graph.nodes.push_back(Node("Relu", {last}, {"y"}, "act"));
      last = "y";
    } else if (activation == "Clip") {
      graph.nodes.push_back(Node("Clip", {last, "low", "high"}, {"y"}, "act"));
      last = "y";
    }
    graph.outputs = {last};
    return graph;
  }
};

// Every value is an output too: then nothing can be joined.
Graph Unfused(Graph graph) {
  for (const GraphNode& node : graph.nodes) {
    if (node.outputs[0] != graph.outputs[0]) {
      graph.outputs.push_back(node.outputs[0]);
    }
  }
  return graph;
}

void ExpectNear(const std::vector<float>& actual,
                const std::vector<float>& expected, double bound) {
  ASSERT_EQ(actual.size(), expected.size());
  double worst = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(std::isnan(actual[i]), std::isnan(expected[i])) << i;
    if (std::isnan(expected[i]) || actual[i] == expected[i]) continue;
    worst = std::max(worst, std::abs(static_cast<double>(actual[i]) -
                                     static_cast<double>(expected[i])));
  }
  EXPECT_LE(worst, bound);
}

// -- Fusing -------------------------------------------------------------------

TEST(FusePassTest, GivesWhatTheNodesGive) {
  Machine cpu;
  std::vector<Block> blocks;
  for (const std::string activation : {"", "Relu", "Clip"}) {
    for (const bool residual : {false, true}) {
      if (!residual && activation.empty()) continue;
      Block block;
      block.activation = activation;
      block.residual = residual;
      block.residual_first = activation == "Clip";
      block.bias = activation != "Relu" || residual;
      blocks.push_back(block);
      block.kernel = 1;
      block.batch = 3;
      block.stride = 2;
      blocks.push_back(block);
      block = {.channels = 24, .out_channels = 24, .groups = 24, .side = 15};
      block.activation = activation;
      block.residual = residual;
      blocks.push_back(block);
      block = {.channels = 64, .out_channels = 256, .side = 28, .kernel = 1};
      block.activation = activation;
      block.residual = residual;
      blocks.push_back(block);
      block = {.side = 1};
      block.activation = activation;
      block.residual = residual;
      blocks.push_back(block);
    }
  }
  for (const Block& block : blocks) {
    SCOPED_TRACE(absl::StrCat(block.activation, " residual ", block.residual,
                              " side ", block.side, " kernel ", block.kernel,
                              " groups ", block.groups));
    const Graph graph = block.MakeGraph();
    const auto x = Random(block.In(), 7);
    const Ran fused = Evaluate(cpu, graph, {x});
    const Ran alone = Evaluate(cpu, Unfused(graph), {x});
    EXPECT_EQ(Count(fused.kernels, "cpu/weir.FusedConv"), 1);
    EXPECT_EQ(Count(fused.kernels, "cpu/Add") +
                  Count(fused.kernels, "cpu/Relu") +
                  Count(fused.kernels, "cpu/Clip"),
              0);
    EXPECT_EQ(Count(alone.kernels, "cpu/weir.FusedConv"), 0);
    const auto products = static_cast<double>(block.channels / block.groups *
                                              block.kernel * block.kernel);
    ExpectNear(fused.output, alone.output,
               2 * (products + 2) * 0x1p-24 * (products + 2));
  }
}

TEST(FusePassTest, KeepsNaNAndInfinity) {
  Machine cpu;
  for (const std::string activation : {"Relu", "Clip"}) {
    Block block = {.side = 5, .kernel = 1};
    block.activation = activation;
    const Graph graph = block.MakeGraph();
    std::vector<float> values(8 * 25, 0.5f);
    values[3] = std::nanf("");
    values[9] = std::numeric_limits<float>::infinity();
    values[17] = -std::numeric_limits<float>::infinity();
    const auto x = Floats(block.In(), values);
    const Ran fused = Evaluate(cpu, graph, {x});
    EXPECT_EQ(Count(fused.kernels, "cpu/weir.FusedConv"), 1);
    EXPECT_TRUE(std::isnan(fused.output[3]));
    ExpectNear(fused.output, Evaluate(cpu, Unfused(graph), {x}).output, 1e-5);
  }
}

TEST(FusePassTest, NamesEveryNode) {
  Machine cpu;
  const Block block;
  const Ran ran = Evaluate(cpu, block.MakeGraph(), {Random(block.In(), 1)});
  ASSERT_FALSE(ran.nodes.empty());
  EXPECT_THAT(ran.nodes,
              ::testing::Contains(ElementsAre("c_conv", "sum", "act")));
  const auto program = Compile(cpu, block.MakeGraph());
  const auto outline = program->Outline({SymbolicShape()});
  ASSERT_TRUE(outline.ok());
  std::vector<std::string> outlined;
  for (const StepOutline& step : outline->steps) {
    outlined.push_back(step.kernel);
  }
  EXPECT_EQ(outlined, ran.kernels);
}

TEST(FusePassTest, LeavesWhatOthersRead) {
  Machine cpu;
  const Block block;
  Graph graph = block.MakeGraph();
  graph.nodes.push_back(Node("Neg", {"c"}, {"n"}));
  graph.outputs.push_back("n");
  const Ran ran = Evaluate(cpu, graph, {Random(block.In(), 1)});
  EXPECT_EQ(Count(ran.kernels, "cpu/weir.FusedConv"), 0);
}

TEST(FusePassTest, LeavesWhatDoesNotFit) {
  Machine cpu;
  const Block block = {.residual = false, .activation = "Clip"};
  const auto x = Random(block.In(), 1);
  const auto fused = [&](const Graph& graph,
                         std::vector<std::shared_ptr<const Constant>> inputs) {
    return Count(Evaluate(cpu, graph, inputs).kernels, "cpu/weir.FusedConv");
  };
  EXPECT_EQ(fused(block.MakeGraph(), {x}), 1);

  Graph given_bound = block.MakeGraph();
  given_bound.constants.erase("high");
  given_bound.inputs.push_back(Input("high", ToSymbolic(Dims{})));
  EXPECT_EQ(fused(given_bound, {x, Floats({}, {1})}), 0);

  // A bound that is not a number bounds nothing, which no fused code says.
  for (const char* bound : {"low", "high"}) {
    SCOPED_TRACE(bound);
    Graph no_number = block.MakeGraph();
    no_number.constants[bound] = Floats({}, {std::nanf("")});
    EXPECT_EQ(fused(no_number, {x}), 0);
  }

  Graph broadcast = block.MakeGraph();
  broadcast.constants["one"] = Random({1, 12, 1, 1}, 5);
  broadcast.nodes[1] = Node("Add", {"c", "one"}, {"y"});
  EXPECT_EQ(fused(broadcast, {x}), 0);

  Graph twice = block.MakeGraph();
  twice.nodes[1] = Node("Add", {"c", "c"}, {"y"});
  EXPECT_EQ(fused(twice, {x}), 0);

  // The convolution is the bound, not what is bounded.
  Graph bound;
  bound.inputs = {Input("x", SymbolicDims{1, 1, 1, 1})};
  bound.constants["w"] = Floats({1, 1, 1, 1}, {2});
  bound.constants["z"] = Floats({3}, {1, 2, 3});
  bound.nodes = {Conv({"x", "w"}, "c", 1), Node("Clip", {"z", "c"}, {"y"})};
  bound.outputs = {"y"};
  EXPECT_EQ(fused(bound, {Floats({1, 1, 1, 1}, {1})}), 0);
  EXPECT_THAT(Evaluate(cpu, bound, {Floats({1, 1, 1, 1}, {1})}).output,
              ElementsAre(2, 2, 3));
}

TEST(FusePassTest, CallersCannotNameWhatItMakes) {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{1, 1, 2, 2})};
  graph.constants["w"] = Floats({1, 1, 1, 1}, {1});
  graph.nodes = {Node("weir.FusedConv", {"x", "w"}, {"y"}, "mine")};
  graph.outputs = {"y"};
  const absl::Status status = Validate(graph, *MakeOpRegistry()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"mine\""));
}

// Floats -> halves -> x / 8 + mask -> Gelu, as torch exports it -> floats.
Graph GeluAndScores(DType dtype, bool numbers_first) {
  Graph graph;
  graph.symbols = {"N"};
  graph.inputs = {
      Input("floats", SymbolicDims{Dim::Symbol(0), Dim(5), Dim(7)})};
  graph.constants["eight"] = Floats({}, {8});
  graph.constants["root"] = Floats({}, {1.41421354f});
  graph.constants["one"] = Floats({1}, {1});
  graph.constants["half"] = Floats({}, {0.5});
  graph.constants["mask"] = Random({5, 1}, 4);
  for (const char* name : {"floats", "eight", "root", "one", "half", "mask"}) {
    GraphNode cast = Node("Cast", {name}, {absl::StrCat(name, "16")});
    cast.attributes.Set("to", static_cast<int64_t>(dtype));
    graph.nodes.push_back(std::move(cast));
  }
  const auto pair = [&](std::string a, std::string b) {
    if (numbers_first) std::swap(a, b);
    return std::vector<std::string>{a, b};
  };
  GraphNode back = Node("Cast", {"y16"}, {"y"});
  back.attributes.Set("to", static_cast<int64_t>(DType::kFloat));
  for (const GraphNode& node :
       {Node("Div", {"floats16", "eight16"}, {"scaled"}, "scale"),
        Node("Add", pair("scaled", "mask16"), {"x"}, "mask"),
        Node("Div", {"x", "root16"}, {"r"}, "root"),
        Node("Erf", {"r"}, {"e"}, "erf"),
        Node("Add", pair("e", "one16"), {"a"}, "add"),
        Node("Mul", pair("a", "x"), {"m"}, "times"),
        Node("Mul", pair("m", "half16"), {"y16"}, "half"), back}) {
    graph.nodes.push_back(node);
  }
  graph.outputs = {"y"};
  return graph;
}

// -- On a device with other kernels -------------------------------------------

// A pretended GPU that computes with the CPU's kernels, of the operators that
// it is given; it may promise more than they do.
struct FarMachine : Machine {
  explicit FarMachine(const std::vector<std::string>& ops,
                      KernelTraits traits = {}) {
    auto far = std::make_unique<OpRegistry>(registry.get());
    for (const std::string& op : ops) {
      const GraphNode named = Node(op, {}, {});
      EXPECT_TRUE(far->RegisterKernel(
                         DeviceKind::kCuda, named.domain, named.op,
                         [this](const NodeInfo& node, Device&) {
                           return parent->CreateKernel(node, *near);
                         },
                         traits)
                      .ok());
    }
    parent = std::move(registry);
    registry = std::move(far);
    device = std::make_unique<FarDevice>();
  }

  std::unique_ptr<OpRegistry> parent;
  std::unique_ptr<Device> near = MakeCpuDevice({});
};

TEST(FusePassTest, AsksTheRegistryWhatTheDeviceTakes) {
  const Block block;
  const Graph graph = block.MakeGraph();
  const auto x = Random(block.In(), 3);
  FarMachine without({"Conv", "Add", "Relu", "Neg"});
  const Ran alone = Evaluate(without, graph, {x});
  EXPECT_THAT(alone.kernels, ElementsAre("cuda/Conv", "cuda/Neg", "cuda/Conv",
                                         "cuda/Add", "cuda/Relu"));
  // No kernel of the pretended GPU takes channels last: no layouts change.
  FarMachine with({"Conv", "Add", "Relu", "Neg", "weir.FusedConv"});
  const Ran fused = Evaluate(with, graph, {x});
  EXPECT_THAT(fused.kernels,
              ElementsAre("cuda/Conv", "cuda/Neg", "cuda/weir.FusedConv"));
  ExpectNear(fused.output, alone.output, 1e-4);
}

// The machine's device takes all nodes of this operator of weir's, and `run` is
// all that becomes of them.
void Pretend(Machine& machine, const char* op, const absl::Status& run) {
  EXPECT_TRUE(
      machine.registry
          ->RegisterKernel(
              DeviceKind::kCuda, "weir", op,
              [run](const NodeInfo&,
                    Device&) -> absl::StatusOr<std::unique_ptr<const Kernel>> {
                return MakeKernel([run](const PlanArgs&) {
                  return RunFunction([run](const RunArgs&) { return run; });
                });
              })
          .ok());
}

// A machine that takes chains, and does not run them.
struct ChainMachine : FarMachine {
  ChainMachine() : FarMachine({"Cast", "Div", "Erf", "Add", "Mul", "Reshape"}) {
    Pretend(*this, "FusedElementwise", absl::OkStatus());
  }
};

TEST(FusePassTest, JoinsChainsAsExportersWriteThem) {
  for (const bool first : {false, true}) {
    ChainMachine machine;
    const Ran ran = Evaluate(machine, GeluAndScores(DType::kFloat16, first),
                             {Random({3, 5, 7}, 1)});
    EXPECT_THAT(ran.kernels,
                ElementsAre("cuda/Cast", "cuda/weir.FusedElementwise",
                            "cuda/weir.FusedElementwise", "cuda/Cast"));
    EXPECT_THAT(ran.nodes[1], ElementsAre("scale", "mask"));
    EXPECT_THAT(ran.nodes[2],
                ElementsAre("root", "erf", "add", "times", "half"));
  }
}

// As models of open sizes have them, behind a Reshape.
TEST(FusePassTest, JoinsChainsOfOneShapeThatIsNotKnown) {
  Graph graph = GeluAndScores(DType::kFloat16, false);
  graph.inputs.push_back(
      {.name = "s", .dtype = DType::kInt64, .shape = SymbolicDims{Dim(3)}});
  for (GraphNode& node : graph.nodes) {
    if (node.name == "scale") node.inputs[0] = "reshaped";
  }
  graph.nodes.push_back(Node("Reshape", {"floats16", "s"}, {"reshaped"}));
  ChainMachine machine;
  const Ran ran =
      Evaluate(machine, graph, {Random({3, 5, 7}, 1), Ints({3, 5, 7})});
  // Of what is added nobody knows whether it makes more of the scores.
  EXPECT_THAT(ran.kernels,
              ElementsAre("cuda/Cast", "cuda/Div", "cuda/Add",
                          "cuda/weir.FusedElementwise", "cuda/Cast"));
}

TEST(FusePassTest, LeavesChainsWhoseValuesOthersRead) {
  Graph graph = GeluAndScores(DType::kFloat16, false);
  graph.outputs.push_back("e");
  ChainMachine machine;
  const Ran ran = Evaluate(machine, graph, {Random({3, 5, 7}, 1)});
  EXPECT_EQ(Count(ran.kernels, "cuda/weir.FusedElementwise"), 1);
  EXPECT_EQ(Count(ran.kernels, "cuda/Erf"), 1);
}

// The mask makes the sum larger than what is scaled.
TEST(FusePassTest, LeavesChainsOfSeveralShapes) {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim(7)})};
  graph.constants["two"] = Floats({}, {2});
  graph.constants["mask"] = Random({5, 1}, 4);
  graph.nodes = {Node("Div", {"x", "two"}, {"d"}),
                 Node("Add", {"d", "mask"}, {"y"})};
  graph.outputs = {"y"};
  ChainMachine machine;
  EXPECT_THAT(Evaluate(machine, graph, {Random({7}, 1)}).kernels,
              ElementsAre("cuda/Div", "cuda/Add"));
}

// The host knows no chains.
TEST(FusePassTest, LeavesChainsThatShapesDependOn) {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim(6)}),
                  Input("n", SymbolicDims{Dim(2)})};
  graph.constants["two"] = Floats({}, {2});
  graph.constants["one"] = Floats({}, {1});
  GraphNode cast = Node("Cast", {"s"}, {"shape"});
  cast.attributes.Set("to", static_cast<int64_t>(DType::kInt64));
  graph.nodes = {
      Node("Div", {"n", "two"}, {"d"}), Node("Add", {"d", "one"}, {"s"}), cast,
      Node("Reshape", {"x", "shape"}, {"r"}), Node("Mul", {"r", "two"}, {"y"})};
  graph.outputs = {"y"};
  ChainMachine machine;
  const Ran ran =
      Evaluate(machine, graph, {Random({6}, 1), Floats({2}, {2, 4})});
  EXPECT_THAT(ran.kernels, ElementsAre("cuda/Mul"));
  EXPECT_EQ(ran.output.size(), 6u);
}

// A machine whose device takes every FusedConv, and does not run it; the CPU's
// kernel takes floats alone.
struct ConvMachine : FarMachine {
  ConvMachine() : FarMachine({"Cast", "Conv", "Relu", "Reshape", "Neg"}) {
    Pretend(*this, "FusedConv", absl::OkStatus());
  }

  static GraphNode Cast(const char* from, const char* to, DType dtype) {
    GraphNode node = Node("Cast", {from}, {to});
    node.attributes.Set("to", static_cast<int64_t>(dtype));
    return node;
  }
};

// What the shape of an input tells the host, it knows; it has no kernel for
// what the device makes of it.
TEST(FusePassTest, TheHostLeavesToTheDeviceWhatItsKernelDoesNotTake) {
  for (const DType dtype : {DType::kDouble, DType::kFloat16}) {
    ConvMachine machine;
    Graph graph;
    graph.inputs = {Input("x", SymbolicDims{Dim(), Dim()})};
    graph.constants["one"] = Floats({1, 1, 1, 1}, {1});
    graph.constants["picture"] = Ints({1, 1, 1, 2});
    graph.nodes = {Node("Shape", {"x"}, {"s"}),
                   ConvMachine::Cast("s", "typed", dtype),
                   ConvMachine::Cast("one", "w", dtype),
                   Node("Neg", {"typed"}, {"less"}),
                   Node("Reshape", {"less", "picture"}, {"p"}),
                   Conv({"p", "w"}, "c", 1),
                   Node("Relu", {"c"}, {"r"}),
                   ConvMachine::Cast("r", "y", DType::kFloat)};
    graph.outputs = {"y"};
    const Ran ran = Evaluate(machine, graph, {Random({2, 3}, 1)});
    EXPECT_THAT(ran.kernels, ElementsAre("cuda/weir.FusedConv", "cuda/Cast"));
  }
}

TEST(FusePassTest, LeavesConvolutionsThatShapesDependOn) {
  ConvMachine machine;
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim(6)}),
                  Input("n", SymbolicDims{1, 1, 1, 2})};
  graph.constants["one"] = Floats({1, 1, 1, 1}, {1});
  graph.constants["two"] = Ints({2});
  graph.nodes = {ConvMachine::Cast("n", "halves", DType::kFloat16),
                 ConvMachine::Cast("one", "w", DType::kFloat16),
                 Conv({"halves", "w"}, "c", 1),
                 Node("Relu", {"c"}, {"r"}),
                 Node("Reshape", {"r", "two"}, {"flat"}),
                 ConvMachine::Cast("flat", "shape", DType::kInt64),
                 Node("Reshape", {"x", "shape"}, {"y"}),
                 Node("Neg", {"y"}, {"z"})};
  graph.outputs = {"z"};
  const Ran ran =
      Evaluate(machine, graph, {Random({6}, 1), Floats({1, 1, 1, 2}, {2, 3})});
  EXPECT_THAT(ran.kernels, ElementsAre("cuda/Neg"));
  EXPECT_EQ(ran.output.size(), 6u);
}

TEST(FusePassTest, ErrorsNameTheCallersNode) {
  FarMachine machine({"Conv", "Add", "Relu", "Neg"});
  Pretend(machine, "FusedConv", absl::InternalError("it broke"));
  const Block block;
  const auto x = Random(block.In(), 3);
  const auto program = Compile(machine, block.MakeGraph());
  const auto plan = program->MakePlan(Tensors({x}));
  ASSERT_TRUE(plan.ok()) << plan.status();
  PlanRunner runner(*machine.device, **plan);
  EXPECT_THAT(std::string(runner.Run(Tensors({x})).message()),
              HasSubstr("node \"c_conv\" (Conv)"));
}

Graph MatMulWithRow(const Dims& row) {
  Graph graph;
  graph.symbols = {"N"};
  graph.inputs = {Input("x", SymbolicDims{Dim::Symbol(0), 5, Dim(6)})};
  graph.constants["w"] = Random({6, 4}, 1);
  graph.constants["b"] = Random(row, 2);
  graph.nodes = {Node("MatMul", {"x", "w"}, {"m"}, "product"),
                 Node("Add", {"b", "m"}, {"y"}, "row")};
  graph.outputs = {"y"};
  return graph;
}

TEST(FusePassTest, MatMulAddsItsRow) {
  Machine cpu;
  const auto x = Random({3, 5, 6}, 9);
  const Graph graph = MatMulWithRow({4});
  const Ran fused = Evaluate(cpu, graph, {x});
  EXPECT_THAT(fused.kernels, ElementsAre("cpu/weir.FusedMatMul"));
  EXPECT_THAT(fused.nodes, ElementsAre(ElementsAre("product", "row")));
  FarMachine far({"MatMul", "Add"});
  const Ran alone = Evaluate(far, graph, {x});
  EXPECT_THAT(alone.kernels, ElementsAre("cuda/MatMul", "cuda/Add"));
  ExpectNear(fused.output, alone.output, 16 * 0x1p-24 * 8);
}

TEST(FusePassTest, MatMulIsLeftAloneWhereNoRowIsAdded) {
  Machine cpu;
  const auto x = Random({3, 5, 6}, 9);
  for (const Dims& row : {Dims{1}, Dims{5, 1}, Dims{5, 4}, Dims{1, 1, 4}}) {
    EXPECT_THAT(Evaluate(cpu, MatMulWithRow(row), {x}).kernels,
                ElementsAre("cpu/MatMul", "cpu/Add"));
  }
  Graph shared = MatMulWithRow({4});
  shared.outputs.push_back("m");
  EXPECT_THAT(Evaluate(cpu, shared, {x}).kernels,
              ElementsAre("cpu/MatMul", "cpu/Add"));
}

// -- Layouts ------------------------------------------------------------------

// A slice to the largest int32 is all of an axis, but for the longest.
TEST(FusePassTest, ARowIsAsLongAsItIsWhateverItsSymbol) {
  constexpr int64_t kLongest = std::numeric_limits<int32_t>::max();
  Graph graph;
  graph.opsets = {{"", 18}};
  graph.symbols = {"n"};
  graph.inputs = {Input("a", SymbolicDims{Dim(1), Dim(0)}),
                  Input("w", SymbolicDims{Dim(0), Dim::Symbol(0)})};
  graph.constants["0"] = Ints({0});
  graph.constants["1"] = Ints({1});
  graph.constants["-16"] = Ints({-16});
  graph.constants["longest"] = Ints({kLongest});
  graph.nodes = {Node("Slice", {"w", "0", "longest", "1"}, {"part"}),
                 Node("ReduceSum", {"part", "0"}, {"row"}),
                 Node("MatMul", {"a", "w"}, {"product"}),
                 Node("Add", {"product", "row"}, {"sum"}),
                 Node("Slice", {"sum", "-16", "longest", "1"}, {"y"})};
  graph.nodes[1].attributes.Set("keepdims", int64_t{0});
  graph.outputs = {"y"};
  const Machine machine;
  ProgramOptions options;
  options.evaluation.scratch_bytes = int64_t{1} << 40;
  const auto program = Program::Compile(std::move(graph), *machine.device,
                                        *machine.registry, options);
  ASSERT_TRUE(program.ok()) << program.status();
  const auto plan = (*program)->MakePlan(
      {HostTensor{DType::kFloat, {1, 0}, nullptr},
       HostTensor{DType::kFloat, {0, kLongest + 8}, nullptr}});
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument)
      << plan.status();
}

TEST(LayoutPassTest, MovesOnlyAtTheEdges) {
  Machine cpu;
  Graph graph;
  graph.symbols = {"N"};
  graph.inputs = {
      Input("x", SymbolicDims{Dim::Symbol(0), 3, Dim(17), Dim(17)})};
  graph.constants["w1"] = Random({8, 3, 3, 3}, 1);
  graph.constants["w2"] = Random({8, 8, 3, 3}, 2);
  graph.constants["shift"] = Floats({}, {0.25});
  GraphNode pool = Node("MaxPool", {"b"}, {"p"});
  pool.attributes.Set("kernel_shape", std::vector<int64_t>{3, 3});
  pool.attributes.Set("strides", std::vector<int64_t>{2, 2});
  graph.nodes = {Conv({"x", "w1"}, "a", 3),
                 Node("Add", {"a", "shift"}, {"shifted"}),
                 Node("Sigmoid", {"shifted"}, {"b"}),
                 pool,
                 Conv({"p", "w2"}, "c", 3),
                 Node("Sub", {"c", "p"}, {"d"}),
                 Node("GlobalAveragePool", {"d"}, {"g"}),
                 Node("Flatten", {"g"}, {"y"})};
  graph.outputs = {"y"};
  const auto x = Random({2, 3, 17, 17}, 9);
  const Ran ran = Evaluate(cpu, graph, {x});
  // One on the way in; one pixel needs none on the way out.
  EXPECT_THAT(ran.kernels,
              ElementsAre("cpu/weir.Relayout", "cpu/Conv", "cpu/Add",
                          "cpu/Sigmoid", "cpu/MaxPool", "cpu/Conv", "cpu/Sub",
                          "cpu/GlobalAveragePool"));
  EXPECT_THAT(ran.nodes[0], ElementsAre("a_conv"));
  FarMachine far(
      {"Conv", "Add", "Sigmoid", "MaxPool", "Sub", "GlobalAveragePool"});
  const Ran rows = Evaluate(far, graph, {x});
  EXPECT_EQ(Count(rows.kernels, "cuda/weir.Relayout"), 0);
  ExpectNear(ran.output, rows.output, 1e-5);
}

// Between a convolution and what knows rows alone, and for the graph's outputs.
// Exporters list them with empty names.
TEST(LoweringTest, OutputsLeftOutAtTheEndAreNotThere) {
  Machine machine;
  const auto x = Random({2, 3, 4, 4}, 1);
  const auto per_channel = Floats({3}, {0.5, 1, 2});
  const auto evaluate = [&](GraphNode node, std::vector<std::string> outputs) {
    Graph graph;
    graph.inputs = {Input("x", ToSymbolic(x->tensor.dims))};
    graph.constants["c"] = per_channel;
    node.outputs = std::move(outputs);
    graph.nodes = {std::move(node)};
    graph.outputs = {"y"};
    return Evaluate(machine, graph, {x}).output;
  };
  const GraphNode norm =
      Node("BatchNormalization", {"x", "c", "c", "c", "c"}, {});
  const std::vector<float> normalized = evaluate(norm, {"y"});
  ASSERT_FALSE(normalized.empty());
  EXPECT_EQ(evaluate(norm, {"y", "", ""}), normalized);
  EXPECT_EQ(evaluate(norm, {"y", "", "", "", ""}), normalized);
  GraphNode pool = Node("MaxPool", {"x"}, {});
  pool.attributes.Set("kernel_shape", std::vector<int64_t>{2, 2});
  EXPECT_EQ(evaluate(pool, {"y", ""}), evaluate(pool, {"y"}));
  // How many there are decides.
  GraphNode split = Node("Split", {"x"}, {});
  split.attributes.Set("num_outputs", int64_t{2});
  EXPECT_EQ(evaluate(split, {"y", ""}).size(), 48u);
}

TEST(LayoutPassTest, GoesBackForOthers) {
  Machine cpu;
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{1, 4, Dim(5), Dim(6)})};
  graph.constants["w1"] = Random({4, 4, 1, 1}, 1);
  graph.constants["scale"] = Random({4, 1, 1}, 2);
  GraphNode turn = Node("Transpose", {"c"}, {"t"});
  turn.attributes.Set("perm", std::vector<int64_t>{0, 2, 3, 1});
  graph.nodes = {Conv({"x", "w1"}, "c", 1), turn,
                 Node("Mul", {"c", "scale"}, {"m"})};
  graph.outputs = {"t", "m", "c"};
  const auto x = Random({1, 4, 5, 6}, 9);
  const Ran ran = Evaluate(cpu, graph, {x});
  EXPECT_EQ(Count(ran.kernels, "cpu/weir.Relayout"), 2);
  FarMachine far({"Conv", "Transpose", "Mul"});
  for (const std::string first : {"t", "m", "c"}) {
    Graph turned = graph;
    turned.outputs = {first};
    ExpectNear(Evaluate(cpu, turned, {x}).output,
               Evaluate(far, turned, {x}).output, 1e-5);
  }
}

// The CPU's kernels take weights as they are given: moved ones would show.
KernelTraits WeightsToo() {
  KernelTraits traits;
  traits.channels_last = [](const NodeInfo&) { return true; };
  traits.channels_last_weights = true;
  return traits;
}

TEST(LayoutPassTest, WeightsStayWherePicturesHaveOnePixel) {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{1, 4, 1, 1})};
  graph.constants["w"] = Random({3, 4, 3, 3}, 1);
  graph.nodes = {Conv({"x", "w"}, "y", 3)};
  graph.outputs = {"y"};
  const auto x = Random({1, 4, 1, 1}, 9);
  FarMachine far({"Conv", "weir.Relayout"}, WeightsToo());
  Machine cpu;
  ExpectNear(Evaluate(far, graph, {x}).output, Evaluate(cpu, graph, {x}).output,
             1e-5);
}

TEST(LayoutPassTest, WhatTheHostComputesHasTheLayoutThatItKnows) {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{1, 2, 1, 2}),
                  Input("data", SymbolicDims{6})};
  std::vector<float> weights(18, 0);
  weights[4] = 1;  // the middle, of the first channel
  graph.constants["w"] = Floats({1, 2, 3, 3}, std::move(weights));
  GraphNode cast = Node("Cast", {"flat"}, {"integers"});
  cast.attributes.Set("to", static_cast<int64_t>(DType::kInt64));
  GraphNode flatten = Node("Flatten", {"c"}, {"flat"});
  flatten.attributes.Set("axis", int64_t{0});
  graph.nodes = {Conv({"x", "w"}, "c", 3),
                 flatten,
                 cast,
                 Node("Squeeze", {"integers"}, {"shape"}),
                 Node("Reshape", {"data", "shape"}, {"shaped"}),
                 Node("Neg", {"shaped"}, {"y"})};
  graph.outputs = {"y"};
  FarMachine far({"Conv", "weir.Relayout", "Neg"}, WeightsToo());
  const auto program = Compile(far, graph);
  ASSERT_NE(program, nullptr);
  const auto plan = program->MakePlan(
      Tensors({Floats({1, 2, 1, 2}, {2, 3, 10, 20}), Random({6}, 1)}));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT((*plan)->outputs()[0].meta.dims, ElementsAre(2, 3));
}

// Of a file the host reads what the decoder's plan needs, and decodes nothing.
TEST(LayoutPassTest, WhatFollowsADecoderIsLaidOutForTheDevice) {
  const char* const tests = std::getenv("WEIR_TEST_DATA");
  std::ifstream in(
      absl::StrCat(tests == nullptr ? "tests" : tests, "/data/photo.jpg"),
      std::ios::binary);
  const std::string photo((std::istreambuf_iterator<char>(in)), {});
  ASSERT_FALSE(photo.empty());
  Graph graph;
  graph.symbols = {"N"};
  graph.inputs = {Input("file", SymbolicDims{Dim::Symbol(0)}, DType::kUint8)};
  graph.constants["w"] = Random({8, 3, 3, 3}, 1);
  graph.constants["batch"] = Ints({0});
  GraphNode cast = Node("Cast", {"picture"}, {"floats"});
  cast.attributes.Set("to", static_cast<int64_t>(DType::kFloat));
  GraphNode turn = Node("Transpose", {"floats"}, {"planes"});
  turn.attributes.Set("perm", std::vector<int64_t>{2, 0, 1});
  graph.nodes = {Node("weir.DecodeImage", {"file"}, {"picture"}), cast, turn,
                 Node("Unsqueeze", {"planes", "batch"}, {"x"}),
                 Conv({"x", "w"}, "y", 3)};
  graph.outputs = {"y"};
  FarMachine far(
      {"weir.DecodeImage", "Cast", "Transpose", "Conv", "weir.Relayout"},
      WeightsToo());
  const auto program = Compile(far, graph);
  ASSERT_NE(program, nullptr);
  const HostTensor file = {
      DType::kUint8, {static_cast<int64_t>(photo.size())}, photo.data()};
  const auto plan = program->MakePlan({&file, 1});
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::vector<std::string> kernels;
  for (size_t i = 0; i < (*plan)->steps(); ++i) {
    kernels.push_back((*plan)->Step(i).kernel);
  }
  // To the convolution and from it, and its weights.
  EXPECT_GE(Count(kernels, "cuda/weir.Relayout"), 2);
}

// A node may have a copy for each of its outputs, and a long name, of which
// each tells the beginning: in protobuf's strings, where half a character has
// no place.
TEST(LayoutPassTest, CopiesAreToldInWholeCharacters) {
  std::string name = "a";
  for (int i = 0; i < 300; ++i) name += "\xc3\xa9";
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{1, 1, 4, 4})};
  graph.constants["w"] = Floats({1, 1, 1, 1}, {2});
  graph.nodes = {Conv({"x", "w"}, "c", 1)};
  graph.nodes[0].name = name;
  graph.outputs = {"c"};
  Machine cpu;
  const auto program = Compile(cpu, graph);
  ASSERT_NE(program, nullptr);
  const auto outline = program->Outline({SymbolicDims{1, 1, 4, 4}});
  ASSERT_TRUE(outline.ok()) << outline.status();
  int copies = 0;
  for (const auto& step : outline->steps) {
    for (const std::string& node : step.nodes) {
      EXPECT_TRUE(IsUtf8(node)) << node;
      copies += node.size() < name.size();
    }
  }
  EXPECT_EQ(copies, 2);
}

TEST(LayoutPassTest, PoolsOfEveryShapeAgree) {
  Machine cpu;
  FarMachine far({"Conv", "MaxPool", "AveragePool", "GlobalAveragePool"});
  for (const std::string op : {"MaxPool", "AveragePool", "GlobalAveragePool"}) {
    for (const bool padded : {false, true}) {
      for (const int64_t channels : {1, 5, 70}) {
        Graph graph;
        graph.inputs = {Input("x", SymbolicDims{2, 3, Dim(9), Dim(7)})};
        graph.constants["w"] = Random({channels, 3, 1, 1}, 1);
        GraphNode pool = Node(op, {"c"}, {"y"});
        if (op != "GlobalAveragePool") {
          pool.attributes.Set("kernel_shape", std::vector<int64_t>{3, 2});
          pool.attributes.Set("strides", std::vector<int64_t>{2, 1});
          if (padded) {
            pool.attributes.Set("pads", std::vector<int64_t>{1, 1, 2, 0});
            pool.attributes.Set("ceil_mode", int64_t{1});
          }
          if (padded && op == "AveragePool") {
            pool.attributes.Set("count_include_pad", int64_t{1});
          }
        }
        graph.nodes = {Conv({"x", "w"}, "c", 1), pool};
        graph.outputs = {"y"};
        SCOPED_TRACE(absl::StrCat(op, " ", padded, " ", channels));
        std::vector<float> values(2 * 3 * 63);
        for (size_t i = 0; i < values.size(); ++i) {
          values[i] = std::sin(static_cast<float>(i));
        }
        values[40] = std::nanf("");
        const auto x = Floats({2, 3, 9, 7}, values);
        ExpectNear(Evaluate(cpu, graph, {x}).output,
                   Evaluate(far, graph, {x}).output, 1e-5);
      }
    }
  }
}

// -- Packed weights -----------------------------------------------------------

TEST(PackedWeightsTest, ArePackedOnceForAllPlans) {
  Machine cpu;
  Block block = {.channels = 128, .out_channels = 128, .side = 4};
  const Graph graph = block.MakeGraph();
  const auto program = Compile(cpu, graph);
  ASSERT_NE(program, nullptr);
  std::vector<std::shared_ptr<const Plan>> plans;
  for (const int64_t batch : {1, 2, 5}) {
    block.batch = batch;
    const auto x = Random(block.In(), 3);
    plans.push_back(*program->MakePlan(Tensors({x})));
    for (int run = 0; run < 3; ++run) {
      PlanRunner runner(*cpu.device, *plans.back());
      ASSERT_TRUE(runner.Run(Tensors({x})).ok());
    }
    EXPECT_EQ(program->packed_constants(), 2u) << batch;
  }
  // No run needs room for packing.
  const size_t weights = 128 * 128 * 9 * sizeof(float);
  EXPECT_LT(plans[0]->arena_bytes(), weights);
}

TEST(PackedWeightsTest, CountWithTheProgram) {
  Machine cpu;
  Block block = {.channels = 128, .out_channels = 128, .side = 4};
  const auto program = Compile(cpu, block.MakeGraph());
  ASSERT_NE(program, nullptr);
  const size_t before = program->held_bytes();
  const auto x = Random(block.In(), 3);
  const auto plan = *program->MakePlan(Tensors({x}));
  // 3 x 3 and 1 x 1.
  const size_t packed = 128 * 128 * (9 + 1) * sizeof(float);
  EXPECT_GE(program->held_bytes(), before + packed + plan->held_bytes());
  // Two convolutions of the library's, with the code that it makes for them.
  EXPECT_GT(plan->held_bytes(), 2 * (size_t{35} << 10));
}

// A product with a constant of `columns` columns, as its operator is written.
Graph ProductWithConstant(const std::string& op, int64_t columns, DType dtype) {
  Graph graph;
  graph.symbols = {"N"};
  graph.inputs = {Input("x", SymbolicDims{Dim::Symbol(0), 40})};
  const bool turned = op == "Gemm, turned";
  graph.constants["w"] = Random(turned ? Dims{columns, 40} : Dims{40, columns},
                                static_cast<uint32_t>(columns));
  graph.constants["b"] = Random({columns}, 2);
  const auto cast = [&](const std::string& from, DType to,
                        const std::string& name) {
    GraphNode node = Node("Cast", {from}, {name});
    node.attributes.Set("to", static_cast<int64_t>(to));
    graph.nodes.push_back(node);
  };
  for (const std::string name : {"x", "w", "b"}) {
    cast(name, dtype, "own_" + name);
  }
  if (op == "MatMul") {
    graph.nodes.push_back(Node("MatMul", {"own_x", "own_w"}, {"p"}));
    graph.nodes.push_back(Node("Add", {"p", "own_b"}, {"s"}));
  } else {
    graph.nodes.push_back(Node("Gemm", {"own_x", "own_w", "own_b"}, {"s"}));
    graph.nodes.back().attributes.Set("transB", int64_t{turned ? 1 : 0});
  }
  cast("s", DType::kFloat, "y");
  graph.outputs = {"y"};
  return graph;
}

// Wide constants are brought into panels, and half ones widened: once, by the
// first plan. Others are read where they lie.
TEST(PackedWeightsTest, OfProductsArePackedOnceForAllPlans) {
  Machine cpu;
  struct Case {
    std::string op;
    DType dtype;
    int64_t columns;
    size_t packed;
  };
  for (const Case& c :
       std::vector<Case>{{"MatMul", DType::kFloat, 1500, 1},
                         {"MatMul", DType::kFloat, 1024, 0},
                         {"Gemm", DType::kFloat, 1537, 1},
                         {"Gemm, turned", DType::kFloat, 1500, 0},
                         {"MatMul", DType::kFloat16, 50, 1},
                         {"Gemm", DType::kBfloat16, 1500, 1},
                         {"Gemm, turned", DType::kFloat16, 1500, 1}}) {
    SCOPED_TRACE(absl::StrCat(c.op, " ", std::string(DTypeName(c.dtype)), " ",
                              c.columns));
    const Graph graph = ProductWithConstant(c.op, c.columns, c.dtype);
    Graph given = graph;  // with the constant as an input
    const auto w = given.constants["w"];
    given.constants.erase("w");
    given.inputs.push_back(Input("w", ToSymbolic(w->tensor.dims)));
    const auto program = Compile(cpu, graph);
    ASSERT_NE(program, nullptr);
    const size_t before = program->held_bytes();
    std::vector<std::shared_ptr<const Plan>> plans;
    for (const int64_t rows : {1, 7, 300}) {
      const auto x = Random({rows, 40}, 3);
      plans.push_back(*program->MakePlan(Tensors({x})));
      std::vector<float> output;
      for (int run = 0; run < 2; ++run) {
        PlanRunner runner(*cpu.device, *plans.back());
        const absl::Status status = runner.Run(Tensors({x}));
        ASSERT_TRUE(status.ok()) << status;
        output = runner.Output<float>(0);
      }
      EXPECT_EQ(program->packed_constants(), c.packed) << rows;
      // The same sums in another order; of halves, rounded to 8 bits or more.
      const double sums = 40 * 42 * 0x1p-23;
      ExpectNear(output, Evaluate(cpu, given, {x, w}).output,
                 c.dtype == DType::kFloat ? sums : 40 * 0x1p-8);
    }
    const size_t packed =
        c.packed * 40 * static_cast<size_t>(c.columns) * sizeof(float);
    EXPECT_GE(program->held_bytes(), before + packed);
  }
}

TEST(PackedWeightsTest, AreNoMoreThanTheirLimit) {
  PackedConstants packed;
  packed.Limit(1000);
  const float weights[2] = {};
  const auto get = [&](int i, size_t bytes) {
    return *packed.Get(&weights[i], "form", bytes,
                       [](std::byte*) { return absl::OkStatus(); });
  };
  auto first = get(0, 600);
  EXPECT_NE(first, nullptr);
  EXPECT_EQ(get(1, 401), nullptr);
  EXPECT_NE(get(1, 400), nullptr);
  EXPECT_EQ(get(1, 1001), nullptr);
  EXPECT_EQ(get(0, 600), first);
  first.reset();
  EXPECT_NE(get(1, 1000), nullptr);
  EXPECT_EQ(packed.bytes(), 0u);
}

// -- On a GPU -----------------------------------------------------------------

// Convolutions of a network's kinds in float16: the first, depthwise, with a
// residual, with several channels of a group, of one pixel (and with nine taps
// there); pools between them.
Graph HalfNetwork() {
  Graph graph;
  graph.symbols = {"N"};
  graph.inputs = {
      Input("x", SymbolicDims{Dim::Symbol(0), 3, Dim(33), Dim(33)})};
  const auto half = [&](const std::string& name, const std::string& from) {
    GraphNode cast = Node("Cast", {from}, {name});
    cast.attributes.Set("to", static_cast<int64_t>(DType::kFloat16));
    graph.nodes.push_back(cast);
  };
  const auto constant = [&](const std::string& name, const Dims& dims,
                            uint32_t seed) {
    graph.constants[name + "_float"] = Random(dims, seed);
    half(name, name + "_float");
  };
  constant("w1", {16, 3, 3, 3}, 1);
  constant("b1", {16}, 2);
  constant("w2", {32, 1, 3, 3}, 3);
  constant("b2", {32}, 4);
  constant("w3", {32, 32, 1, 1}, 5);
  constant("w4", {24, 8, 3, 3}, 6);
  constant("w5", {10, 24, 1, 1}, 7);
  constant("b5", {10}, 8);
  constant("w6", {10, 10, 3, 3}, 9);
  graph.constants["low"] = Floats({}, {0});
  graph.constants["high"] = Floats({}, {6});
  half("half_low", "low");
  half("half_high", "high");
  half("h", "x");
  GraphNode pool = Node("MaxPool", {"r1"}, {"p1"});
  pool.attributes.Set("kernel_shape", std::vector<int64_t>{3, 3});
  pool.attributes.Set("strides", std::vector<int64_t>{2, 2});
  GraphNode back = Node("Cast", {"flat"}, {"y"});
  back.attributes.Set("to", static_cast<int64_t>(DType::kFloat));
  for (const GraphNode& node :
       {Conv({"h", "w1", "b1"}, "c1", 3, 1, 2), Node("Relu", {"c1"}, {"r1"}),
        pool, Conv({"p1", "w2", "b2"}, "c2", 3, 16),
        Node("Clip", {"c2", "half_low", "half_high"}, {"r2"}),
        Conv({"r2", "w3"}, "c3", 1), Node("Add", {"c3", "r2"}, {"s3"}),
        Node("Relu", {"s3"}, {"r3"}), Conv({"r3", "w4"}, "c4", 3, 4),
        Node("GlobalAveragePool", {"c4"}, {"g"}),
        Conv({"g", "w5", "b5"}, "c5", 1), Conv({"c5", "w6"}, "c6", 3),
        Node("Flatten", {"c6"}, {"flat"}), back}) {
    graph.nodes.push_back(node);
  }
  graph.outputs = {"y"};
  return graph;
}

class PassesOnCudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = MakeDevice("cuda:0", {}, *gpu.registry);
    if (Reason(device.status()) == "NO_CUDA_DEVICE") {
      GTEST_SKIP() << device.status().message();
    }
    ASSERT_TRUE(device.ok()) << device.status();
    gpu.device = *std::move(device);
  }

  Machine gpu;
};

TEST_F(PassesOnCudaTest, ChainsGiveWhatTheirNodesGiveBitForBit) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> values = {0,      -0.0f,     kInfinity,      -kInfinity,
                               65504,  -65504,    std::nanf(""),  6e-8f,
                               40'000, -1.99707f, std::sqrt(2.0f)};
  std::minstd_rand random(5);
  std::normal_distribution<float> spread(0, 3);
  while (values.size() < 3 * 5 * 7) values.push_back(spread(random));
  const auto x = Floats({3, 5, 7}, std::move(values));
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    for (const bool first : {false, true}) {
      const Graph graph = GeluAndScores(dtype, first);
      const Ran fused = Evaluate(gpu, graph, {x});
      EXPECT_EQ(Count(fused.kernels, "cuda/weir.FusedElementwise"), 2);
      const Ran alone = Evaluate(gpu, Unfused(graph), {x});
      EXPECT_EQ(Count(alone.kernels, "cuda/weir.FusedElementwise"), 0);
      ASSERT_EQ(fused.output.size(), alone.output.size());
      for (size_t i = 0; i < fused.output.size(); ++i) {
        if (std::isnan(fused.output[i]) && std::isnan(alone.output[i]))
          continue;
        EXPECT_EQ(std::bit_cast<uint32_t>(fused.output[i]),
                  std::bit_cast<uint32_t>(alone.output[i]))
            << DTypeName(dtype) << " " << i;
      }
    }
  }
}

TEST_F(PassesOnCudaTest, HalvesHaveChannelsLastAndTheSameAnswers) {
  Machine cpu;
  const Graph graph = HalfNetwork();
  const auto x = Random({2, 3, 33, 33}, 9);
  const Ran ran = Evaluate(gpu, graph, {x});
  EXPECT_EQ(Count(ran.kernels, "cuda/weir.FusedConv"), 3);
  EXPECT_EQ(Count(ran.kernels, "cuda/Conv"), 3);
  // Around each of the pools, and for the first convolution: none of weights.
  EXPECT_EQ(Count(ran.kernels, "cuda/weir.Relayout"), 4);
  // Sums of up to 288 halves below 6, each rounded to 11 bits, over 5 layers.
  ExpectNear(ran.output, Evaluate(cpu, graph, {x}).output, 0.25);
}

}  // namespace
}  // namespace weir
