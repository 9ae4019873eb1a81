// What becomes of programs and plans where the host has no memory left for a
// constant's bytes, which may be a model's gigabytes: allocations of one size
// fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/base/alignment.h"
#include "kernels/base/error_info.h"
#include "kernels/graph/graph.h"
#include "kernels/graph/program.h"
#include "tests/graph/plan_runner.h"
#include "tests/graph/test_operators.h"

// AddressSanitizer knows only what its own allocator gave.
#define WEIR_REPLACES_ALLOCATOR 1
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#undef WEIR_REPLACES_ALLOCATOR
#define WEIR_REPLACES_ALLOCATOR 0
#endif
#endif

namespace weir {
namespace {

std::atomic<size_t> refused_size{0};
std::atomic<int> refused_count{0};

[[maybe_unused]] bool Refuses(size_t size) {
  if (size != refused_size) return false;
  ++refused_count;
  return true;
}

}  // namespace
}  // namespace weir

#if WEIR_REPLACES_ALLOCATOR
extern "C" void* aligned_alloc(size_t alignment, size_t size) noexcept {
  void* memory = nullptr;
  if (weir::Refuses(size)) return nullptr;
  return posix_memalign(&memory, alignment, size) == 0 ? memory : nullptr;
}
#endif

namespace weir {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::weir::testing::Input;
using ::weir::testing::Ints;
using ::weir::testing::Node;
using ::weir::testing::PlanRunner;

// No memory for `bytes` of elements while it lives.
class NoMemoryFor {
 public:
  explicit NoMemoryFor(size_t bytes) {
    refused_count = 0;
    refused_size = AlignUp(bytes);
  }
  ~NoMemoryFor() { refused_size = 0; }
};

// Aligned so that programs use it where it lies, and ask for no memory of the
// same size.
std::shared_ptr<const Constant> Ramp(const Dims& dims) {
  const auto elements = static_cast<size_t>(NumElements(dims).value());
  const std::shared_ptr<float> data(
      static_cast<float*>(
          aligned_alloc(kBlockAlignment, AlignUp(elements * sizeof(float)))),
      free);
  std::iota(data.get(), data.get() + elements, 1.0f);
  auto constant = std::make_shared<Constant>();
  constant->tensor = {DType::kFloat, dims, data.get()};
  constant->owner = data;
  return constant;
}

class HostMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!WEIR_REPLACES_ALLOCATOR)
      GTEST_SKIP() << "no allocator of the test's own";
  }

  std::shared_ptr<const Program> Compile(const Graph& graph) {
    auto program = Program::Compile(Graph(graph), *device_, *registry_, {});
    EXPECT_TRUE(program.ok()) << program.status();
    return program.ok() ? *program : nullptr;
  }

  struct Ran {
    std::vector<std::string> kernels;  // of the steps
    std::vector<float> output;
  };

  // With memory for all again once there is a plan.
  Ran Evaluate(const Graph& graph, const HostTensor& x, size_t no_memory_for) {
    Ran ran;
    auto refusal = std::make_unique<NoMemoryFor>(no_memory_for);
    const auto program = Compile(graph);
    if (program == nullptr) return ran;
    const auto plan = program->MakePlan({x});
    refusal.reset();
    EXPECT_TRUE(plan.ok()) << plan.status();
    if (!plan.ok()) return ran;
    for (size_t i = 0; i < (*plan)->steps(); ++i) {
      ran.kernels.push_back((*plan)->Step(i).kernel);
    }
    PlanRunner runner(*device_, **plan);
    const absl::Status status = runner.Run({x});
    EXPECT_TRUE(status.ok()) << status;
    ran.output = runner.Output<float>(0);
    return ran;
  }

  std::unique_ptr<Device> device_ = MakeCpuDevice({});
  std::unique_ptr<OpRegistry> registry_ = MakeOpRegistry();
};

TEST_F(HostMemoryTest, AConstantThatCannotBeMovedNowIsMovedInEveryRun) {
  const Dims dims = {1, 4, 7, 11};
  Graph graph;
  graph.inputs = {Input("x", ToSymbolic(dims))};
  graph.constants["w"] = Ramp({4, 4, 1, 1});
  graph.constants["k"] = Ramp(dims);
  graph.nodes = {Node("Conv", {"x", "w"}, {"c"}),
                 Node("Mul", {"c", "k"}, {"y"})};
  graph.outputs = {"y"};
  const auto x = Ramp(dims);
  const Ran moved = Evaluate(graph, x->tensor, 0);
  const Ran not_moved = Evaluate(graph, x->tensor, 4 * 7 * 11 * sizeof(float));
  EXPECT_GE(refused_count, 1);
  EXPECT_EQ(not_moved.kernels.size(), moved.kernels.size() + 1);
  EXPECT_EQ(not_moved.output, moved.output);
}

TEST_F(HostMemoryTest, WhatCannotBeFoldedStaysAStep) {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim(300)})};
  graph.constants["k"] = Ramp({300});
  graph.nodes = {Node("Neg", {"k"}, {"n"}), Node("Add", {"x", "n"}, {"y"})};
  graph.outputs = {"y"};
  const auto x = Ramp({300});
  const Ran folded = Evaluate(graph, x->tensor, 0);
  EXPECT_EQ(folded.kernels.size(), 1u);
  const Ran left = Evaluate(graph, x->tensor, 300 * sizeof(float));
  EXPECT_GE(refused_count, 2);  // while the program and the plan are made
  EXPECT_THAT(left.kernels, Contains("cpu/Neg"));
  EXPECT_EQ(left.output, folded.output);
}

// sizes [n] -> shape [1] -> zeros of that shape
Graph ShapesFrom(const std::vector<GraphNode>& nodes, const char* made) {
  Graph graph;
  graph.inputs = {Input("sizes", SymbolicDims{Dim(150)}, DType::kInt64)};
  graph.constants["first"] = Ints({0});
  graph.nodes = nodes;
  graph.nodes.push_back(Node("Gather", {made, "first"}, {"shape"}));
  graph.nodes.push_back(Node("ConstantOfShape", {"shape"}, {"y"}));
  graph.outputs = {"y"};
  return graph;
}

// Without the elements there are no shapes.
TEST_F(HostMemoryTest, WhatShapesDependOnMustFit) {
  const auto sizes = Ints(std::vector<int64_t>(150, 3));
  const auto expect_refused = [&](const Graph& graph, size_t bytes,
                                  const char* named) {
    const auto program = Compile(graph);
    ASSERT_NE(program, nullptr);
    auto refusal = std::make_unique<NoMemoryFor>(bytes);
    const absl::Status status = program->MakePlan({sizes->tensor}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_EQ(Reason(status), "HOST_MEMORY_EXHAUSTED");
    EXPECT_THAT(std::string(status.message()), HasSubstr(named));
    EXPECT_EQ(refused_count, 1);
    refusal.reset();
    EXPECT_TRUE(program->MakePlan({sizes->tensor}).ok());
  };
  expect_refused(ShapesFrom({}, "sizes"), 150 * sizeof(int64_t), "sizes");
  GraphNode twice = Node("Concat", {"sizes", "sizes"}, {"more"}, "twice");
  twice.attributes.Set("axis", int64_t{0});
  expect_refused(ShapesFrom({twice}, "more"), 300 * sizeof(int64_t), "twice");
}

}  // namespace
}  // namespace weir
