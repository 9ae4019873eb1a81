#include "server/evaluation/evaluation_pool.h"

#include <cstddef>

namespace weir {
namespace {

constexpr size_t kMaxFree = 256;  // per thread and engine
// Inputs and outputs of a graph above which an evaluation is not kept: a burst
// would leave lists of them behind for good.
constexpr size_t kMaxKept = 64;

}  // namespace

EvaluationPool::FreeList& EvaluationPool::FreeLists::Of(const Engine& engine) {
  for (auto& [of, list] : lists) {
    if (of == &engine) return list;
  }
  return lists.emplace_back(&engine, FreeList()).second;
}

EvaluationPool::Lease EvaluationPool::Lend(Engine& engine) {
  FreeList& free = free_.Mine().Of(engine);
  if (free.empty()) return Lease(new Evaluation(engine), Return(this));
  Lease lease(free.back().release(), Return(this));
  free.pop_back();
  return lease;
}

void EvaluationPool::Take(Evaluation* evaluation) {
  std::unique_ptr<Evaluation> owned(evaluation);
  const WorkRequest& request = owned->request();
  const bool small = request.inputs.size() + request.outputs.size() <= kMaxKept;
  // A context's timeline remembers its failures.
  const bool good = owned->work().status().ok();
  owned->Clear();
  FreeList& free = free_.Mine().Of(owned->engine());
  if (small && good && free.size() < kMaxFree) {
    free.push_back(std::move(owned));
  }
}

}  // namespace weir
