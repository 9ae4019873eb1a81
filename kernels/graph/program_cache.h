// Programs by the bytes that described them, bounded in entries and bytes. Idle
// ones go, least recently used first; one that is in use gives up its place
// only where no other has one to give, for its bytes stay. Those that are not
// there are compiled in its CompileQueue, plans are made in its PlanQueue. A
// key may be a whole model: it is looked up where it lies, one copy serves all
// that is kept of it, and a large one is compared and freed on a thread of the
// queue. Thread-safe; Find takes no lock that a compilation holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/base/clock.h"
#include "kernels/base/export.h"
#include "kernels/base/longest_wait.h"
#include "kernels/base/timer_queue.h"
#include "kernels/graph/compile_queue.h"
#include "kernels/graph/plan_queue.h"
#include "kernels/graph/program.h"

namespace weir {

struct ProgramCacheOptions {
  size_t max_programs = 256;
  // Keys and Program::held_bytes, of programs that are cached or in use, which
  // they are as long as somebody holds them or a plan of theirs. What finds no
  // room beside those is not cached; and while what is in use has more bytes,
  // nothing is compiled and no plan made (ProgramRoom::Admit). So it may be
  // passed by what each thread makes at the moment, and by one program.
  size_t max_bytes = size_t{1} << 30;
  // An owner may have as many waiting as there is room left for, and so half of
  // all; nobody's, whose owner is empty, may be all. So it is with bytes, and
  // with plans.
  size_t max_queued = CompileQueueOptions().max_queued;
  // Of keys that wait, are being compared with those of others or compiled, or
  // are about to be freed. One may wait beyond it, alone.
  size_t max_queued_bytes = CompileQueueOptions().max_queued_bytes;
  // Callers, on all compilations together; and plans that wait.
  size_t max_waiters = CompileQueueOptions().max_waiters;
  int threads = CompileQueueOptions().threads;
  // The plans of one program are made one at a time. The first thread makes
  // any; the others none of programs whose last plan took longer than
  // quick_plan, whatever came of it, or which have none yet and more than
  // kSmallPlanNodes; the last, if there are three or more, only of those whose
  // last one was quick. So a dear plan holds up its like, and a shape of what
  // is known to be quick waits for neither.
  int plan_threads = PlanQueueOptions().threads;
  absl::Duration quick_plan = PlanQueueOptions().quick_plan;
  EvaluationLimits evaluation = {};  // of every program
  Device* text_device = nullptr;     // as in ProgramOptions
};

struct ProgramCacheStats {
  size_t programs = 0;
  size_t bytes = 0;  // with those of programs that only others still hold
  // That wait; queued_bytes: as max_queued_bytes.
  size_t queued = 0, queued_bytes = 0, plans_queued = 0;
  size_t running = 0;  // compilations
  uint64_t hits = 0, misses = 0, evicted = 0, failed = 0;
  CompileQueue::Times times;
};

class WEIR_EXPORT ProgramCache {
 public:
  using ProgramOr = CompileQueue::ProgramOr;
  using GraphFactory = CompileQueue::GraphFactory;
  using PlanOr = PlanQueue::PlanOr;

  // All outlive the cache. A timer that fires later finds it gone.
  // A caller's wait for a program or a plan ends after `max_wait`, if not at
  // its deadline. Programs and their plans end in `reclaim`, and are made only
  // while no more than ReclaimQueue::kMaxWaiting wait for their end; null: they
  // end where they are dropped.
  ProgramCache(Device* device, const OpRegistry* registry, TimerQueue* timers,
               ProgramCacheOptions options = {},
               std::shared_ptr<ReclaimQueue> reclaim = nullptr,
               absl::Duration max_wait = absl::Nanoseconds(kLongestWait));
  ~ProgramCache();  // Stop()

  // A key, or the pieces of one in their order.
  using KeyPieces = absl::Span<const std::string_view>;

  // Reads some 5 GB of a key in a second.
  using KeyHash = uint64_t;
  static KeyHash Hash(KeyPieces key);

  // Null if it is not there. Keys are compared whole, not by hash alone.
  // `hash` is the key's.
  std::shared_ptr<const Program> Find(KeyPieces key, KeyHash hash);
  std::shared_ptr<const Program> Find(KeyPieces key) {
    return Find(key, Hash(key));
  }
  std::shared_ptr<const Program> Find(std::string_view key) {
    return Find(KeyPieces(&key, 1));
  }

  // To compare or free a key of more than kLongStepBytes takes long.
  // GetOrCompile, Cancel and whatever else ends a wait leave that to a thread
  // of the cache: they may be called on any thread if the caller keeps no
  // reference of its own.

  // A caller that waits, for Cancel. 0: it does not wait (any more).
  using WaitId = uint64_t;

  // The program of `key`, compiled from the graph that `factory` makes on a
  // compile thread if it is not there. Callers of one key share one
  // compilation; a failure is not cached. `done` runs exactly once: inline on a
  // hit, if the key is not large, else on a thread of the cache, or with
  // DEADLINE_EXCEEDED at `deadline` or after the longest wait
  // (reason COMPILE_WAIT_TOO_LONG), RESOURCE_EXHAUSTED (reason
  // COMPILE_QUEUE_FULL or PROGRAM_MEMORY_EXHAUSTED), or CANCELLED by Cancel or
  // Stop. The compilation goes on only while somebody waits for it. `hash` is
  // the key's. `owner` is who asks: compilations of one owner follow one
  // another, owners take turns, and a program that several want comes when the
  // first of them would have it.
  WaitId GetOrCompile(std::shared_ptr<const std::string> key, KeyHash hash,
                      GraphFactory factory, Nanos deadline,
                      absl::AnyInvocable<void(ProgramOr)> done,
                      std::string owner = {});
  WaitId GetOrCompile(std::shared_ptr<const std::string> key,
                      GraphFactory factory, Nanos deadline,
                      absl::AnyInvocable<void(ProgramOr)> done,
                      std::string owner = {}) {
    const std::string_view whole = *key;
    return GetOrCompile(std::move(key), Hash({&whole, 1}), std::move(factory),
                        deadline, std::move(done), std::move(owner));
  }
  WaitId GetOrCompile(std::string key, GraphFactory factory, Nanos deadline,
                      absl::AnyInvocable<void(ProgramOr)> done,
                      std::string owner = {}) {
    return GetOrCompile(std::make_shared<const std::string>(std::move(key)),
                        std::move(factory), deadline, std::move(done),
                        std::move(owner));
  }

  // Program::MakePlan on a plan thread. The program may be of another cache, or
  // of none: its plan lies in its own room, where others go for it if need be,
  // which nobody waits for, or refuse it (Program::MakePlan). `done` runs
  // exactly once, as that of GetOrCompile; with DEADLINE_EXCEEDED or CANCELLED
  // the plan was not made. Owners take turns, as with compilations. Where
  // Program::InputOnHost, the inputs' data must stay until then, so that a
  // caller who leaves such a plan in the making is told at its next step.
  WaitId MakePlan(std::shared_ptr<const Program> program,
                  std::vector<HostTensor> inputs, Nanos deadline,
                  absl::AnyInvocable<void(PlanOr)> done,
                  std::string owner = {});
  WaitId MakePlan(std::shared_ptr<const Program> program,
                  absl::Span<const HostTensor> inputs, Nanos deadline,
                  absl::AnyInvocable<void(PlanOr)> done,
                  std::string owner = {});

  // The caller does not wait any more: its `done` runs here with CANCELLED,
  // unless it has run, or runs.
  void Cancel(WaitId wait);

  ProgramCacheStats stats() const;
  void Stop();

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::shared_ptr<CompileQueue> compilations_;
  std::shared_ptr<PlanQueue> plans_;
};

}  // namespace weir
