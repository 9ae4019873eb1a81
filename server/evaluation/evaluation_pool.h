// Evaluations that are kept for their next use, so that a request in steady
// state makes none; one that failed is not kept. Thread-safe; the engines
// outlive it.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "kernels/base/per_thread.h"
#include "kernels/eval/engine.h"
#include "server/evaluation/evaluation.h"

namespace weir {

class EvaluationPool {
 public:
  class Return {
   public:
    Return() = default;
    explicit Return(EvaluationPool* pool) : pool_(pool) {}
    void operator()(Evaluation* evaluation) const { pool_->Take(evaluation); }

   private:
    EvaluationPool* pool_ = nullptr;
  };
  // Ends on the thread that it began on, and before the pool.
  using Lease = std::unique_ptr<Evaluation, Return>;

  // One that is free on this thread, or a new one.
  Lease Lend(Engine& engine);

 private:
  using FreeList = std::vector<std::unique_ptr<Evaluation>>;
  // One list per engine, of which there are few.
  struct FreeLists {
    FreeList& Of(const Engine& engine);
    std::vector<std::pair<const Engine*, FreeList>> lists;
  };

  void Take(Evaluation* evaluation);

  PerThread<FreeLists> free_;
};

}  // namespace weir
