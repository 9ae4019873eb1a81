#include "kernels/eval/engine.h"

#include <algorithm>
#include <utility>

#include "kernels/base/clock.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/thread_role.h"

namespace weir {

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(
    std::unique_ptr<Device> device, const OpRegistry* registry,
    const EngineOptions& options) {
  std::unique_ptr<Engine> engine(
      new Engine(std::move(device), registry, options));
  StreamPoolThreads threads;
  threads.run_slow = [allocator =
                          engine->allocator_.get()](Executor::Task task) {
    allocator->Post(std::move(task));
  };
  threads.run_making = [maker =
                            engine->lane_maker_.get()](Executor::Task task) {
    maker->Post(std::move(task));
  };
  WEIR_ASSIGN_OR_RETURN(
      engine->streams_,
      StreamPool::Create(engine->device_.get(), &engine->timers_,
                         options.streams, std::move(threads)));
  return engine;
}

namespace {

// Continuations are short; two go on while one of them copies.
constexpr size_t kThreads = 3;
// The driver has 32 queues (CudaDevice::Create asks for them) of some 1024
// launches; lanes share them evenly, and half of each stays free.
constexpr size_t kQueuedLaunches = 32 * 512;
constexpr size_t kLeastLaneLaunches = 64;
constexpr size_t kMostLaneLaunches = 512;

}  // namespace

Engine::Engine(std::unique_ptr<Device> device, const OpRegistry* registry,
               const EngineOptions& options)
    : options_(options),
      registry_(registry),
      device_(std::move(device)),
      allocator_(std::make_unique<ThreadExecutor>("weir-allocator",
                                                  ThreadRole::kAllocator)),
      lane_maker_(std::make_unique<ThreadExecutor>("weir-lanes",
                                                   ThreadRole::kAllocator)),
      dispatcher_(std::make_unique<Dispatcher>(&timers_, options.max_parked)),
      pinned_(std::make_unique<PinnedPool>(device_.get(), options.pinned_bytes,
                                           options.pinned_bytes_name)),
      memory_(
          std::make_unique<MemoryPool>(device_.get(), options.tensor_bytes)),
      programs_(std::make_unique<ProgramCache>(
          device_.get(), registry, &timers_, options.programs,
          reclaimer_.queue(), options.max_wait)),
      threads_(std::make_unique<TaskThreads>("weir-eval", kThreads,
                                             ThreadRole::kContinuation)),
      launcher_(std::make_unique<TaskThreads>(
          "weir-launch", options.streams.max, ThreadRole::kLauncher)) {
  TrimLater();
}

size_t Engine::max_lane_launches() const {
  return std::clamp(kQueuedLaunches / options_.streams.max, kLeastLaneLaunches,
                    kMostLaneLaunches);
}

void Engine::TrimLater() {
  const Nanos ttl = absl::ToInt64Nanoseconds(options_.pinned_ttl);
  timers_.Add(NowNanos() + ttl, [this] {
    TrimOne(Trimmed::kPinned, allocator_.get(),
            NowNanos() - absl::ToInt64Nanoseconds(options_.device_ttl));
  });
}

// A piece at a time: whoever needs memory meanwhile does not wait for all. And
// one piece in line: the driver may keep the allocator for long.
void Engine::TrimOne(Trimmed what, Executor* allocator, Nanos before) {
  allocator->Post([this, what, allocator, before] {
    const bool freed = what == Trimmed::kPinned
                           ? pinned_->TrimOne(options_.kept_pinned_bytes)
                           : device_->TrimOne(before);
    if (freed) {
      TrimOne(what, allocator, before);
    } else if (what == Trimmed::kPinned) {
      TrimOne(Trimmed::kDevice, allocator, before);
    } else {
      TrimLater();
    }
  });
}

Engine::~Engine() {
  programs_->Stop();
  dispatcher_->CancelAll();
  launcher_.reset();
  threads_.reset();
  if (streams_ != nullptr) streams_->Stop();
  timers_.Stop();
  allocator_.reset();  // what was posted there frees pinned buffers
}

}  // namespace weir
