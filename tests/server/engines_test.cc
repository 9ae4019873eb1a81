#include "server/engines.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/ops/registry.h"
#include "tests/base/event.h"
#include "tests/graph/plan_runner.h"

namespace weir {
namespace {

struct Ends {
  std::atomic<bool> device_gone{false};
  std::atomic<int> kernels{0}, late_kernels{0};
};

// Reads the host's memory, and so runs text for others.
class NearDevice final : public testing::FarDevice {
 public:
  explicit NearDevice(Ends* ends) : FarDevice(0), ends_(ends) {}
  ~NearDevice() override { ends_->device_gone = true; }
  bool host_addressable() const override { return true; }

 private:
  Ends* const ends_;
};

// Of a near device.
class CountedKernel final : public Kernel {
 public:
  explicit CountedKernel(Ends* ends) : ends_(ends) {}
  ~CountedKernel() override {
    ++ends_->kernels;
    if (ends_->device_gone) ++ends_->late_kernels;
  }
  absl::StatusOr<std::unique_ptr<const KernelPlan>> Plan(
      const PlanArgs&) const override {
    return absl::UnimplementedError("nobody asks for a plan");
  }

 private:
  Ends* const ends_;
};

// A number, negated, and a text, which only the near device has.
Graph TextGraph() {
  Graph graph;
  graph.opsets = {{"", 17}};
  graph.inputs = {{"text", DType::kString, SymbolicDims{Dim(1)}},
                  {"x", DType::kFloat, SymbolicDims{Dim(1)}}};
  GraphNode& node = graph.nodes.emplace_back();
  node.op = "Neg";
  node.inputs = {"x"};
  node.outputs = {"y"};
  graph.outputs = {"text", "y"};
  return graph;
}

// A program may be kept by an engine, and lie on the device of another one.
TEST(EnginesTest, ProgramsEndBeforeTheDeviceThatTheyLieOn) {
  for (const bool near_first : {true, false}) {
    SCOPED_TRACE(near_first);
    Ends ends;
    const std::unique_ptr<OpRegistry> registry = MakeOpRegistry();
    const absl::Status registered = registry->RegisterKernel(
        DeviceKind::kCuda, "", "Neg",
        [&ends](const NodeInfo&, Device& device)
            -> absl::StatusOr<std::unique_ptr<const Kernel>> {
          if (!device.host_addressable()) {
            return absl::UnimplementedError("it reads nothing");
          }
          return std::make_unique<CountedKernel>(&ends);
        });
    ASSERT_TRUE(registered.ok()) << registered;
    auto near = std::make_unique<NearDevice>(&ends);
    EngineOptions options;
    options.pinned_bytes = size_t{1} << 20;
    options.programs.text_device = near.get();
    auto near_engine = *Engine::Create(std::move(near), registry.get(), {});
    auto far_engine = *Engine::Create(std::make_unique<testing::FarDevice>(1),
                                      registry.get(), options);
    Engine& keeper = *far_engine;
    auto engines = std::make_unique<Engines>();
    engines->Add(std::move(near_first ? near_engine : far_engine));
    engines->Add(std::move(near_first ? far_engine : near_engine));
    Event compiled;
    keeper.programs().GetOrCompile(
        "text", TextGraph, kNoDeadline,
        [&](const ProgramCache::ProgramOr& program) {
          EXPECT_TRUE(program.ok()) << program.status();
          EXPECT_TRUE(program.ok() && (*program)->device().host_addressable());
          compiled.Set();
        });
    compiled.Wait();
    EXPECT_EQ(ends.kernels, 0);
    engines.reset();
    EXPECT_EQ(ends.kernels, 1);
    EXPECT_EQ(ends.late_kernels, 0);
  }
}

// Kernels know no flags; whoever meets a bound is told which one to raise.
TEST(EnginesTest, ErrorsNameTheFlagsThatSetBounds) {
  const std::unique_ptr<OpRegistry> registry = MakeOpRegistry();
  ServerOptions options;
  options.devices = {"cuda:0"};
  options.host_bytes = size_t{1} << 20;
  std::string scratch;
  options.make_device =
      [&scratch](std::string_view, const DeviceOptions& device,
                 OpRegistry&) -> absl::StatusOr<std::unique_ptr<Device>> {
    scratch = device.host_scratch_name;
    return std::make_unique<testing::FarDevice>(0);
  };
  const auto engines = Engines::Open(options, {}, registry.get());
  ASSERT_TRUE(engines.ok()) << engines.status();
  ASSERT_EQ((*engines)->all().size(), 2u);
  for (Engine* engine : (*engines)->all()) {
    const bool host = engine != &(*engines)->main();
    const std::string part =
        host ? ", of which the CPU beside a GPU has a quarter" : "";
    const EngineOptions& made = engine->options();
    EXPECT_EQ(made.streams.max_name, std::string("--streams"));
    EXPECT_EQ(made.streams.max_waiters_name, std::string("--queue-length"));
    EXPECT_EQ(made.streams.max_arena_bytes_name, "--arena-bytes" + part);
    EXPECT_EQ(made.pinned_bytes_name, "--host-bytes" + part);
    const EvaluationLimits& limits = made.programs.evaluation;
    EXPECT_EQ(limits.output_bytes_name, std::string("--max-output-bytes"));
    EXPECT_EQ(limits.scratch_bytes_name, std::string("--max-scratch-bytes"));
    EXPECT_EQ(limits.operations_name, std::string("--max-operations"));
    const absl::Status refused =
        engine->pinned().Acquire(size_t{1} << 30).status();
    EXPECT_NE(refused.message().find("(--host-bytes" + part + ")"),
              absl::string_view::npos)
        << refused;
  }
  EXPECT_EQ(scratch,
            "--arena-bytes, of which the host beside a GPU has a quarter");
}

}  // namespace
}  // namespace weir
