// Programs by the bytes that described them, bounded in entries and bytes,
// least recently used out first. Compilation runs on the cache's own threads,
// one at a time per key, and its queue is bounded. A key may be a whole model:
// it is looked up where it lies, and one copy serves all that is kept of it.
// Thread-safe; Find takes no lock that a compilation holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/base/clock.h"
#include "kernels/base/export.h"
#include "kernels/base/timer_queue.h"
#include "kernels/graph/program.h"

namespace weir {

struct ProgramCacheOptions {
  size_t max_programs = 256;
  size_t max_bytes = size_t{1} << 30;  // keys and Program::held_bytes
  size_t max_queued = 256;
  size_t max_queued_bytes = size_t{1}
                            << 30;  // keys of those; one may be larger
  size_t max_waiters = 65536;       // callers, on all compilations together
  int threads = 1;
  EvaluationLimits evaluation = {};  // of every program
  Device* text_device = nullptr;     // as in ProgramOptions
};

struct ProgramCacheStats {
  size_t programs = 0, queued = 0, bytes = 0;
  uint64_t hits = 0, misses = 0, evicted = 0, failed = 0;
};

class WEIR_EXPORT ProgramCache {
 public:
  using ProgramOr = absl::StatusOr<std::shared_ptr<const Program>>;
  using GraphFactory = absl::AnyInvocable<absl::StatusOr<Graph>()>;
  using PlanOr = absl::StatusOr<std::shared_ptr<const Plan>>;

  // All outlive the cache. A timer that fires later finds it gone.
  ProgramCache(Device* device, const OpRegistry* registry, TimerQueue* timers,
               ProgramCacheOptions options = {});
  ~ProgramCache();  // Stop()

  // A key, or the pieces of one in their order.
  using KeyPieces = absl::Span<const std::string_view>;

  // Null if it is not there. Keys are compared whole, not by hash alone.
  std::shared_ptr<const Program> Find(KeyPieces key);
  std::shared_ptr<const Program> Find(std::string_view key) {
    return Find(KeyPieces(&key, 1));
  }

  // The program of `key`, compiled from the graph that `factory` makes on a
  // compile thread if it is not there. Callers of one key share one
  // compilation; a failure is not cached. `done` runs exactly once: inline on a
  // hit, else on a compile thread, or with DEADLINE_EXCEEDED at `deadline` (the
  // compilation goes on for others), RESOURCE_EXHAUSTED (reason
  // COMPILE_QUEUE_FULL) or CANCELLED by Stop.
  void GetOrCompile(std::shared_ptr<const std::string> key,
                    GraphFactory factory, Nanos deadline,
                    absl::AnyInvocable<void(ProgramOr)> done);
  void GetOrCompile(std::string key, GraphFactory factory, Nanos deadline,
                    absl::AnyInvocable<void(ProgramOr)> done) {
    GetOrCompile(std::make_shared<const std::string>(std::move(key)),
                 std::move(factory), deadline, std::move(done));
  }

  // Program::MakePlan on a compile thread. The inputs' data must stay until
  // `done` has run, which it does exactly once.
  void MakePlan(std::shared_ptr<const Program> program,
                absl::Span<const HostTensor> inputs,
                absl::AnyInvocable<void(PlanOr)> done);

  ProgramCacheStats stats() const;
  void Stop();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace weir
