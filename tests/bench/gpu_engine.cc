#include "tests/bench/gpu_engine.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/backend/devices.h"
#include "kernels/base/error_info.h"
#include "tests/bench/gpu_bare.h"

namespace weir::bench {

GpuEngine::GpuEngine(size_t streams)
    : registry_(MakeOpRegistry({.test_operators = true})) {
  auto device = MakeDevice("cuda:0", DeviceOptions(), *registry_);
  if (Reason(device.status()) == "NO_CUDA_DEVICE") {
    std::printf("skipped: %s\n", device.status().ToString().c_str());
    std::exit(0);
  }
  Check(device.status());
  EngineOptions options;
  options.streams.reserved = streams;
  options.streams.max = streams;
  auto engine = Engine::Create(*std::move(device), registry_.get(), options);
  Check(engine.status());
  engine_ = *std::move(engine);
}

std::shared_ptr<const Program> GpuEngine::Chain(const std::string& domain,
                                                const std::string& op,
                                                const Attributes& attributes,
                                                int length) {
  Graph graph;
  graph.opsets = {{"", 17}, {"weir", 1}};
  graph.inputs.push_back({"v0", DType::kFloat, SymbolicDims{Dim()}});
  for (int i = 0; i < length; ++i) {
    GraphNode node;
    node.name = absl::StrCat("step", i);
    node.domain = domain;
    node.op = op;
    node.attributes = attributes;
    node.inputs = {absl::StrCat("v", i)};
    node.outputs = {absl::StrCat("v", i + 1)};
    graph.nodes.push_back(std::move(node));
  }
  graph.outputs = {absl::StrCat("v", length)};
  auto program =
      Program::Compile(std::move(graph), engine_->device(), *registry_);
  Check(program.status());
  return *std::move(program);
}

Evaluation::Evaluation(Engine* engine, std::shared_ptr<const Program> program,
                       size_t bytes)
    : context_(EvalContext::Create(engine, {.mode = EvalMode::kSyncFull})),
      handler_(NewHandlerId()),
      input_(bytes, '\0') {
  InputSource source;
  source.dtype = DType::kFloat;
  source.dims = {static_cast<int64_t>(bytes / sizeof(float))};
  source.pieces = {std::string_view(input_)};
  work_.request.program = std::move(program);
  work_.request.inputs = {std::move(source)};
}

void Evaluation::Run() {
  auto activation = context_->Enter(handler_);
  Check(activation.status());
  WorkWaiter waiter;
  activation->Submit(&work_, &waiter);
  Check(waiter.WaitDone(work_));
}

}  // namespace weir::bench
