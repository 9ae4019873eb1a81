// An engine and small programs for the tests of kernels/eval, which run on
// every device. Works are held with timelines that the test advances: nothing
// sleeps.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/backend/devices.h"
#include "kernels/base/error_info.h"
#include "kernels/base/thread_role.h"
#include "kernels/eval/engine.h"
#include "kernels/eval/eval_context.h"
#include "kernels/ops/registry.h"
#include "tests/eval/work_waiter.h"

namespace weir {

// out = op(in, ...) over float vectors of any length.
inline Graph MakeGraph(std::string op, size_t inputs,
                       Attributes attributes = {}, std::string domain = "") {
  Graph graph;
  graph.opsets = {{"", 17}, {"weir", 1}};
  GraphNode node;
  node.name = "the_node";
  node.domain = std::move(domain);
  node.op = std::move(op);
  node.attributes = std::move(attributes);
  for (size_t i = 0; i < inputs; ++i) {
    const std::string name = "in" + std::to_string(i);
    graph.inputs.push_back({name, DType::kFloat, SymbolicDims{Dim()}});
    node.inputs.push_back(name);
  }
  node.outputs = {"out"};
  graph.nodes = {node};
  graph.outputs = {"out"};
  return graph;
}

// Of floats at `data`, which need not be aligned.
inline InputSource FloatsAt(const void* data, size_t count) {
  InputSource source;
  source.dtype = DType::kFloat;
  source.dims = {static_cast<int64_t>(count)};
  source.pieces = {
      std::string_view(static_cast<const char*>(data), count * sizeof(float))};
  return source;
}

inline InputSource Floats(const std::vector<float>& values) {
  return FloatsAt(values.data(), values.size());
}

inline std::vector<float> Result(const Work& work, size_t i = 0) {
  const auto bytes = work.OutputBytes(i);
  const auto* first = reinterpret_cast<const float*>(bytes.data());
  return std::vector<float>(first, first + bytes.size() / sizeof(float));
}

// The parameter is a device as --device names it.
class EvalTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    registry_ = MakeOpRegistry({.test_operators = true});
    auto device = MakeDevice(GetParam(), {.cpu_threads = 2}, *registry_);
    if (Reason(device.status()) == "NO_CUDA_DEVICE") {
      GTEST_SKIP() << device.status().message();
    }
    ASSERT_TRUE(device.ok()) << device.status();
    auto engine =
        Engine::Create(*std::move(device), registry_.get(), SmallEngine());
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }

  void TearDown() override {
    const MisplacedWaits misplaced = CountMisplacedWaits();
    EXPECT_EQ(misplaced.count, 0u) << misplaced.first;
  }

  static EngineOptions SmallEngine() {
    EngineOptions options;
    options.streams.max = 4;
    options.pinned_bytes = size_t{64} << 20;
    options.tensor_bytes = size_t{64} << 20;
    // However busy the machine is that they are made on.
    options.programs.quick_plan = absl::InfiniteDuration();
    return options;
  }

  std::shared_ptr<const Program> Compile(Graph graph) {
    auto program =
        Program::Compile(std::move(graph), engine_->device(), *registry_);
    EXPECT_TRUE(program.ok()) << program.status();
    return *std::move(program);
  }

  std::shared_ptr<const Program> Compile(std::string op, size_t inputs,
                                         Attributes attributes = {},
                                         std::string domain = "") {
    return Compile(MakeGraph(std::move(op), inputs, std::move(attributes),
                             std::move(domain)));
  }

  std::shared_ptr<EvalContext> NewContext(ContextOptions options = {}) {
    return EvalContext::Create(engine_.get(), options);
  }

  static Activation Enter(const std::shared_ptr<EvalContext>& context,
                          HandlerId handler = NewHandlerId()) {
    auto activation = context->Enter(handler);
    EXPECT_TRUE(activation.ok()) << activation.status();
    return *std::move(activation);
  }

  std::unique_ptr<OpRegistry> registry_;
  std::unique_ptr<Engine> engine_;
};

// Every suite runs on both devices; names hold "cpu" or "cuda".
#define WEIR_EVAL_ON_EVERY_DEVICE(suite)                               \
  INSTANTIATE_TEST_SUITE_P(                                            \
      Devices, suite, ::testing::Values("cpu", "cuda:0"),              \
      [](const auto& info) {                                           \
        return std::string(info.param).substr(0, 4) == "cuda" ? "cuda" \
                                                              : "cpu"; \
      })

// A work with the waiter that watches it.
struct WatchedWork {
  std::shared_ptr<Work> work = std::make_shared<Work>();
  WorkWaiter waiter;

  WorkRequest& request() { return work->request; }
  absl::Status Done() { return waiter.WaitDone(*work); }
  absl::Status Returned() { return waiter.WaitReturned(*work); }
};

}  // namespace weir
