#include "tests/sim/sim_device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "tests/sim/heap.h"
#include "tests/sim/scheduler.h"

namespace weir::sim {
namespace {

constexpr unsigned char kNew = 0xcd;
constexpr unsigned char kFreed = 0xdd;
// Of a block, what is filled and looked at: tensors of the scenarios are small.
constexpr size_t kWatched = 1024;
constexpr size_t kAlignment = 4096;
constexpr Nanos kLateAnswer = 50'000;

DeviceInfo MakeInfo() {
  DeviceInfo info;
  info.kind = DeviceKind::kCuda;
  info.uuid = "SIM-0";
  info.name = "simulation";
  info.total_memory = int64_t{1} << 40;
  info.multiprocessors = 1;
  return info;
}

CompletionMonitor::Options MonitorOptions() {
  CompletionMonitor::Options options;
  // It sleeps at once: to spin only makes steps.
  options.spin = absl::ZeroDuration();
  options.max_sleep = absl::Microseconds(10);
  options.overdue = absl::Microseconds(100);
  options.stall = absl::Seconds(10);
  return options;
}

// Whether this call is the one that is to fail. Where none is, calls are no
// steps.
bool IsTheOne(int failing, Atomic<int>& calls) {
  return failing != 0 && ++calls == failing;
}

}  // namespace

struct SimDevice::Queue {
  struct Operation {
    std::function<void()> run;     // null: it waits
    std::shared_ptr<Queue> other;  // for whose record
    uint64_t value = 0;
  };

  // Both are the device's.
  CompletionRecord record;
  FaultSlot slots[CompletionRecord::kSlots] = {};
  Mutex mu;
  CondVar changed;
  std::deque<Operation> operations WEIR_GUARDED_BY(mu);
  bool stopping WEIR_GUARDED_BY(mu) = false;
  // Operations that were taken out and are not done. Nobody but the stream's
  // thread changes it, in steps that others see for other reasons.
  size_t taken = 0;
  Thread thread;

  bool IsIdle() WEIR_REQUIRES(mu) { return operations.empty() && taken == 0; }
};

SimDevice::SimDevice(const DeviceFaults& faults)
    : Device(MakeInfo()),
      faults_(faults),
      until_lost_(faults.operation),
      monitor_(
          std::make_unique<CompletionMonitor>(&health_, MonitorOptions())) {}

SimDevice::~SimDevice() {
  monitor_->Stop();
  monitor_ = nullptr;
  Check(queues_.empty(), "streams outlive their device");
  Check(blocks_ == 0,
        absl::StrCat("memory of the device is leaked: ", blocks_, " blocks"));
  for (const auto& [data, bytes] : freed_) {
    const auto* watched = static_cast<const unsigned char*>(data);
    Check(std::all_of(watched, watched + std::min(bytes, kWatched),
                      [](unsigned char byte) { return byte == kFreed; }),
          "memory of the device was written to after it had been freed");
    std::free(data);
  }
}

absl::StatusOr<void*> SimDevice::Take(size_t bytes) {
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* const data = std::aligned_alloc(kAlignment, rounded);
  std::memset(data, kNew, std::min(bytes, kWatched));
  ++blocks_;
  return data;
}

void SimDevice::Give(void* data, size_t bytes) {
  --blocks_;
  std::memset(data, kFreed, std::min(bytes, kWatched));
  freed_.emplace_back(data, bytes);
}

absl::StatusOr<void*> SimDevice::AllocateRaw(size_t bytes) {
  if (IsTheOne(faults_.allocation, allocations_)) {
    return absl::ResourceExhaustedError("no memory, says the simulation");
  }
  return Take(bytes);
}

absl::StatusOr<void*> SimDevice::AllocatePinnedRaw(size_t bytes) {
  if (IsTheOne(faults_.pinned_allocation, pinned_allocations_)) {
    return absl::ResourceExhaustedError("no host memory, says the simulation");
  }
  return Take(bytes);
}

absl::Status SimDevice::FailCopy() {
  if (!IsTheOne(faults_.copy, copies_)) return absl::OkStatus();
  return absl::InternalError("a copy failed, says the simulation");
}

absl::Status SimDevice::Query() {
  if (Choose(2) == 1) Sleep(kLateAnswer);
  if (!lost_.load()) return absl::OkStatus();
  return absl::InternalError("the device is lost, says the simulation");
}

bool SimDevice::GoesOn() {
  if (until_lost_.load() > 0 && until_lost_.fetch_sub(1) == 1) {
    Note("the device is lost");
    lost_.store(true);
  }
  return !lost_.load();
}

std::shared_ptr<SimDevice::Queue> SimDevice::QueueOf(uint64_t stream) const {
  MutexLock lock(&mu_);
  const auto queue = queues_.find(stream);
  return queue == queues_.end() ? nullptr : queue->second;
}

bool SimDevice::IsIdle(uint64_t stream) const {
  const Unobserved look;
  const std::shared_ptr<Queue> queue = QueueOf(stream);
  if (queue == nullptr) return true;
  // With its record the last one is done.
  queue->record.sequence.load();
  MutexLock lock(&queue->mu);
  return queue->IsIdle();
}

absl::StatusOr<std::unique_ptr<Stream>> SimDevice::CreateStream(int) {
  WEIR_RETURN_IF_ERROR(health_.status());
  const uint64_t id = ++streams_;
  if (id == static_cast<uint64_t>(faults_.stream)) {
    return absl::ResourceExhaustedError("no stream, says the simulation");
  }
  auto timeline = std::make_shared<Timeline>(
      absl::StrCat("sim/stream/", id), this,
      TimelineOwner{TimelineOwner::Kind::kStream, id});
  return std::unique_ptr<Stream>(new SimStream(this, std::move(timeline), id));
}

// -- Streams ------------------------------------------------------------------

SimStream::SimStream(SimDevice* device, std::shared_ptr<Timeline> timeline,
                     uint64_t id)
    : Stream(std::move(timeline)),
      device_(device),
      id_(id),
      queue_(std::make_shared<SimDevice::Queue>()),
      monitored_(std::make_shared<MonitoredStream>()) {
  monitored_->record = &queue_->record;
  monitored_->timeline = timeline_;
  monitored_->query = [device] { return device->Query(); };
  {
    MutexLock lock(&device_->mu_);
    device_->queues_.emplace(id, queue_);
  }
  queue_->thread = Thread(
      "stream", [device, queue = queue_.get()] { device->RunStream(*queue); });
}

void SimDevice::RunStream(Queue& queue) {
  for (;;) {
    std::deque<Queue::Operation> operations;
    {
      MutexLock lock(&queue.mu);
      queue.taken = 0;
      while (queue.operations.empty() && !queue.stopping) {
        queue.changed.Wait(&queue.mu);
      }
      if (queue.operations.empty()) return;
      operations.swap(queue.operations);
      queue.taken = operations.size();
    }
    while (!operations.empty()) {
      const Queue::Operation next = std::move(operations.front());
      operations.pop_front();
      if (!GoesOn()) break;
      if (next.run != nullptr) {
        next.run();
      } else {
        while (next.other->record.sequence.load() < next.value &&
               !lost_.load()) {
          AwaitChange(kNever);
        }
        --queue.taken;
      }
    }
  }
}

SimStream::~SimStream() {
  {
    MutexLock lock(&queue_->mu);
    sim::Check(device_->lost_.load() || queue_->IsIdle(),
               "a stream is destroyed that is not idle");
    queue_->stopping = true;
    queue_->changed.NotifyAll();
  }
  queue_->thread.Join();
  MutexLock lock(&device_->mu_);
  device_->queues_.erase(id_);
}

void SimStream::Add(std::function<void()> run,
                    std::shared_ptr<SimDevice::Queue> other, uint64_t value) {
  if (device_->lost_.load()) return;
  MutexLock lock(&queue_->mu);
  queue_->operations.push_back({std::move(run), std::move(other), value});
  queue_->changed.NotifyOne();
}

void SimStream::Launch(std::function<void()> run) {
  Add([queue = queue_.get(), run = std::move(run)] {
    run();
    --queue->taken;
  });
}

uint64_t SimStream::Enqueue(StreamTask* task, Inline) {
  const uint64_t sequence = last_sequence_.load(std::memory_order_relaxed) + 1;
  task->completion = Completion();
  task->completion.sequence = sequence;
  task->completion.enqueued_at = NowNanos();
  const uint64_t unfinished = sequence - 1 - timeline_->value();
  last_sequence_.store(sequence, std::memory_order_release);
  if (!device_->health().poisoned()) {
    task->completion.status =
        unfinished < kMaxUnfinished
            ? Issue(task, sequence)
            : WithReason(absl::ResourceExhaustedError("the stream is full"),
                         "STREAM_FULL");
    Add([queue = queue_.get(), sequence] {
      const size_t slot = sequence % CompletionRecord::kSlots;
      queue->record.slots[slot].fault.store(queue->slots[slot].word);
      queue->record.sequence.store(sequence);
      // Idle from here on, if it is the last, whoever looks.
      --queue->taken;
    });
    task->completion.launched_at = NowNanos();
    timeline_->SetLaunched(sequence);
  }
  device_->monitor().Push(monitored_, task);
  return sequence;
}

absl::Status SimStream::Issue(StreamTask* task, uint64_t sequence) {
  const size_t slot = sequence % CompletionRecord::kSlots;
  queue_->record.slots[slot].fault.store(0);
  Launch([queue = queue_.get(), slot] { queue->slots[slot].word = 0; });
  return task->Launch(*this);
}

FaultSlot* SimStream::fault_slot() {
  return &queue_->slots[last_sequence() % CompletionRecord::kSlots];
}

absl::Status SimStream::CopyOnDevice(void* dst, const void* src, size_t bytes) {
  WEIR_RETURN_IF_ERROR(device_->FailCopy());
  if (bytes == 0) return absl::OkStatus();
  Launch([dst, src, bytes] { std::memcpy(dst, src, bytes); });
  return absl::OkStatus();
}

absl::Status SimStream::CopyToDevice(void* dst, const void* src, size_t bytes) {
  return CopyOnDevice(dst, src, bytes);
}

absl::Status SimStream::CopyToHost(void* dst, const void* src, size_t bytes) {
  return CopyOnDevice(dst, src, bytes);
}

absl::Status SimStream::Fill(void* dst, uint8_t value, size_t bytes) {
  Launch([dst, value, bytes] { std::memset(dst, value, bytes); });
  return absl::OkStatus();
}

absl::Status SimStream::WaitOnDevice(const Point& point) {
  if (auto outcome = point.Outcome()) return *std::move(outcome);
  if (point.timeline == timeline_) return absl::OkStatus();
  if (point.timeline->device() != device_ ||
      point.timeline->launched() < point.value) {
    return absl::FailedPreconditionError(
        absl::StrCat("stream ", id_, " cannot wait for ",
                     point.timeline->name(), " = ", point.value));
  }
  // A stream that is gone is idle.
  if (auto other = device_->QueueOf(point.timeline->owner().number)) {
    Add(nullptr, std::move(other), point.value);
  }
  return absl::OkStatus();
}

}  // namespace weir::sim
