// DALI's request in process on the CPU: 640 x 480 RGB -> shorter side 256 ->
// crop 224 -> flip -> normalize to float CHW. Each thread runs the kernels of
// the four operators as a plan would, one after the other. DALI dynamic mode
// does 175 a second with one thread and 347 with two, on 2 cores; the target is
// 700 with two.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "kernels/backend/devices.h"
#include "kernels/ops/registry.h"
#include "tests/bench/judged.h"

namespace weir {
namespace {

// Infer needs a context per node; host inputs do not occur here.
class OneInput : public InferContext {
 public:
  OneInput(const NodeInfo& node, const Dims& dims)
      : node_(node), input_(ToSymbolic(dims)) {}

  const NodeInfo& node() const override { return node_; }
  const SymbolicShape& input_shape(size_t) const override { return input_; }
  std::optional<absl::Span<const int64_t>> HostInts(size_t) const override {
    return std::nullopt;
  }
  void SetOutput(size_t, DType dtype, SymbolicShape shape) override {
    output_.dtype = dtype;
    output_.dims = ToConcrete(shape).value();
    output_.bytes = static_cast<size_t>(ByteSize(dtype, output_.dims).value());
    output_.elements = NumElements(output_.dims).value();
  }
  const TensorMeta& output() const { return output_; }

 private:
  const NodeInfo& node_;
  const SymbolicShape input_;
  TensorMeta output_;
};

template <typename T>
T OrDie(absl::StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
  std::exit(1);
}

NodeInfo Node(std::string op, Attributes attributes, DType input) {
  NodeInfo node;
  node.name = op;
  node.domain = "weir";
  node.op = std::move(op);
  node.attributes = std::move(attributes);
  node.input_types = {input};
  return node;
}

class Chain {
 public:
  Chain(const OpRegistry& registry, Device& device) {
    TensorMeta in = {.dtype = DType::kUint8,
                     .dims = {480, 640, 3},
                     .elements = 480 * 640 * 3,
                     .bytes = 480 * 640 * 3};
    Attributes resize, crop, flip, normalize;
    resize.Set("resize_shorter", 256.0f);
    crop.Set("crop_w", 224.0f);
    crop.Set("crop_h", 224.0f);
    normalize.Set("mean", std::vector<float>{123.675f, 116.28f, 103.53f});
    normalize.Set("stddev", std::vector<float>{58.395f, 57.12f, 57.375f});
    normalize.Set("output_layout", std::string("CHW"));
    for (auto& [op, attributes] :
         {std::pair<const char*, Attributes>{"Resize", resize},
          {"Crop", crop},
          {"Flip", flip},
          {"Normalize", normalize}}) {
      const NodeInfo node = Node(op, attributes, in.dtype);
      OneInput inference(node, in.dims);
      if (!registry.Find("weir", op)->infer(inference).ok()) std::exit(1);
      Step step;
      step.kernel = OrDie(registry.CreateKernel(node, device));
      const std::vector<int64_t> none;
      step.plan = OrDie(step.kernel->Plan({.inputs = {&in, 1},
                                           .outputs = {&inference.output(), 1},
                                           .host_ints = {&none, 1}}));
      step.output.resize(inference.output().bytes + kAlignment);
      step.scratch.resize(step.plan->scratch_bytes() + kAlignment);
      in = inference.output();
      steps_.push_back(std::move(step));
    }
  }

  size_t steps() const { return steps_.size(); }

  // `only`: that step alone, on what the last whole run left.
  void Run(Stream& stream, const std::vector<std::byte>& picture,
           size_t only = SIZE_MAX) {
    const void* input = picture.data();
    for (size_t i = 0; i < steps_.size(); ++i) {
      Step& step = steps_[i];
      void* output = Align(step.output.data());
      if (only == SIZE_MAX || only == i) {
        const RunArgs args = {.stream = stream,
                              .inputs = {&input, 1},
                              .outputs = {&output, 1},
                              .scratch = Align(step.scratch.data()),
                              .random = {}};
        if (!step.plan->Run(args).ok()) std::exit(1);
      }
      input = output;
    }
    benchmark::DoNotOptimize(input);
  }

 private:
  static constexpr size_t kAlignment = 256;

  struct Step {
    std::unique_ptr<const Kernel> kernel;
    std::unique_ptr<const KernelPlan> plan;
    std::vector<std::byte> output;
    std::vector<std::byte> scratch;
  };

  static void* Align(std::byte* data) {
    const auto address = reinterpret_cast<uintptr_t>(data);
    return data + (kAlignment - address % kAlignment) % kAlignment;
  }

  std::vector<Step> steps_;
};

std::vector<std::byte> Picture() {
  std::vector<std::byte> picture(480 * 640 * 3);
  uint32_t state = 1;
  for (std::byte& value : picture) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<std::byte>(state >> 24);
  }
  return picture;
}

struct Fixture {
  std::unique_ptr<OpRegistry> registry = MakeOpRegistry();
  std::unique_ptr<Device> device = MakeCpuDevice({.cpu_threads = 1});
  std::unique_ptr<Stream> stream = OrDie(device->CreateStream(0));
};

const Fixture& Shared() {
  static const Fixture* fixture = new Fixture;
  return *fixture;
}

void BM_Preprocess(benchmark::State& state) {
  const Fixture& fixture = Shared();
  Chain chain(*fixture.registry, *fixture.device);
  const std::vector<std::byte> picture = Picture();
  for (auto _ : state) chain.Run(*fixture.stream, picture);
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_Preprocess)->UseRealTime()->Threads(1)->Threads(2);

// Resize, Crop, Flip, Normalize alone.
void BM_Step(benchmark::State& state) {
  const Fixture& fixture = Shared();
  Chain chain(*fixture.registry, *fixture.device);
  const std::vector<std::byte> picture = Picture();
  chain.Run(*fixture.stream, picture);
  const auto step = static_cast<size_t>(state.range(0));
  constexpr std::array kNames = {"Resize", "Crop", "Flip", "Normalize"};
  state.SetLabel(kNames[step]);
  for (auto _ : state) chain.Run(*fixture.stream, picture, step);
}
BENCHMARK(BM_Step)->DenseRange(0, 3);

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  return weir::bench::RunJudged(
      argc, argv,
      {{.name = "BM_Preprocess/real_time/threads:2", .least_per_second = 700}});
}
