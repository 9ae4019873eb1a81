// Everything that evaluations on one device share: lanes, pinned buffers,
// tensor memory, timers, the dispatcher and the programs. Made once per device
// and process; thread-safe; outlives every context.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/base/export.h"
#include "kernels/base/longest_wait.h"
#include "kernels/base/reclaimer.h"
#include "kernels/base/timer_queue.h"
#include "kernels/device/device.h"
#include "kernels/device/dispatcher.h"
#include "kernels/device/pinned_pool.h"
#include "kernels/device/stream_pool.h"
#include "kernels/eval/executor.h"
#include "kernels/eval/task_threads.h"
#include "kernels/graph/program_cache.h"
#include "kernels/ops/registry.h"
#include "kernels/tensor/memory_pool.h"

namespace weir {

struct EngineOptions {
  StreamPoolOptions streams;
  size_t pinned_bytes = size_t{2} << 30;           // staging and replies
  const char* pinned_bytes_name = "pinned_bytes";  // in errors
  // How long pinned buffers lie unused, twice at most, before they are freed;
  // kept_pinned_bytes of them stay.
  absl::Duration pinned_ttl = absl::Seconds(2);
  size_t kept_pinned_bytes = size_t{32} << 20;
  // Of what the device keeps, dear to make again: so long, and one pinned_ttl.
  absl::Duration device_ttl = absl::Seconds(60);
  size_t tensor_bytes = size_t{4} << 30;  // tensors that callers keep
  size_t max_parked = 65536;              // works waiting for points
  // Longest wait for points, a lane, a program or a plan of a work without an
  // earlier deadline.
  absl::Duration max_wait = absl::Nanoseconds(kLongestWait);
  // On the CPU, plans measured below this run on the calling thread.
  absl::Duration inline_below = absl::Microseconds(50);
  ProgramCacheOptions programs;
};

class WEIR_EXPORT Engine {
 public:
  // `registry` outlives the engine.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(
      std::unique_ptr<Device> device, const OpRegistry* registry,
      const EngineOptions& options = {});

  // REQUIRES: every context is closed, so that no work is left. Waits for what
  // its own threads still do; compilations are given up at their next step.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const EngineOptions& options() const { return options_; }
  Device& device() { return *device_; }
  const OpRegistry& registry() const { return *registry_; }
  TimerQueue& timers() { return timers_; }
  Dispatcher& dispatcher() { return *dispatcher_; }
  StreamPool& streams() { return *streams_; }
  PinnedPool& pinned() { return *pinned_; }
  MemoryPool& memory() { return *memory_; }
  ProgramCache& programs() { return *programs_; }
  // Under the strands of contexts that bring no executor of their own.
  TaskThreads& threads() { return *threads_; }
  // For what keeps a thread on the way to a stream: launches of works with so
  // many that they wait for room in the driver's queue, of those that decode
  // pictures on the host, and of plans for the first time, where libraries may
  // load their kernels; copies of large inputs. Threads are made as they are
  // needed, as many as lanes at most.
  TaskThreads& launcher() { return *launcher_; }
  // Launches of one lane that are not done, unless one work alone has more: all
  // lanes together leave room in the driver's queues, so that nobody who
  // launches waits there.
  size_t max_lane_launches() const;
  // Where memory is taken and given back if that may take long
  // (Device::quick_bytes).
  ThreadExecutor& allocator() { return *allocator_; }
  // Where programs of this engine's device and their plans end, whoever made
  // them.
  const std::shared_ptr<ReclaimQueue>& reclaim() const {
    return reclaimer_.queue();
  }

 private:
  Engine(std::unique_ptr<Device> device, const OpRegistry* registry,
         const EngineOptions& options);
  void TrimLater();
  enum class Trimmed : uint8_t { kPinned, kDevice };
  void TrimOne(Trimmed what, Executor* allocator, Nanos before);

  const EngineOptions options_;
  const OpRegistry* const registry_;
  // In order of construction; destroyed from the last to the first.
  std::unique_ptr<Device> device_;
  Reclaimer reclaimer_;
  TimerQueue timers_;
  std::unique_ptr<ThreadExecutor> allocator_;
  // Makes and examines lanes, beside the allocator, which a large piece of
  // memory may keep for long.
  std::unique_ptr<ThreadExecutor> lane_maker_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::unique_ptr<StreamPool> streams_;
  std::unique_ptr<PinnedPool> pinned_;
  std::unique_ptr<MemoryPool> memory_;
  std::unique_ptr<ProgramCache> programs_;
  std::unique_ptr<TaskThreads> threads_;
  std::unique_ptr<TaskThreads> launcher_;
};

}  // namespace weir
