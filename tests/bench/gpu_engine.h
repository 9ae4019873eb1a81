// An engine on the first GPU and chains of one operator, for the GPU
// benchmarks.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "kernels/eval/engine.h"
#include "kernels/eval/eval_context.h"
#include "kernels/ops/registry.h"
#include "tests/eval/work_waiter.h"

namespace weir::bench {

class GpuEngine {
 public:
  // Ends the program, with success, if there is no GPU.
  explicit GpuEngine(size_t streams);

  Engine& engine() { return *engine_; }

  // out = op(op(... in)), `length` times, over a vector of float.
  std::shared_ptr<const Program> Chain(const std::string& domain,
                                       const std::string& op,
                                       const Attributes& attributes,
                                       int length);

 private:
  std::unique_ptr<OpRegistry> registry_;
  std::unique_ptr<Engine> engine_;
};

// Evaluates `program` on `bytes` of host memory in a context of its own, and
// waits for the result on the host.
class Evaluation {
 public:
  Evaluation(Engine* engine, std::shared_ptr<const Program> program,
             size_t bytes);
  void Run();

 private:
  std::shared_ptr<EvalContext> context_;
  const HandlerId handler_;
  std::string input_;
  Work work_;
};

}  // namespace weir::bench
