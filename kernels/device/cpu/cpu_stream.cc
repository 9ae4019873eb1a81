#include "kernels/device/cpu/cpu_stream.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/thread_role.h"
#include "kernels/device/cpu/cpu_device.h"

namespace weir {

CpuStrand::CpuStrand(WorkerPool* workers, const DeviceHealth* health,
                     std::shared_ptr<Timeline> timeline, size_t level)
    : workers_(workers),
      health_(health),
      timeline_(std::move(timeline)),
      level_(level) {}

void CpuStrand::Enqueue(CpuStream* stream, StreamTask* task,
                        bool inline_if_idle) {
  last_.store(task->completion.sequence);
  // On a lost device there is nothing to wait for but what came before.
  uint32_t none = 0;
  if ((inline_if_idle || health_->poisoned()) &&
      unfinished_.compare_exchange_strong(none, 1)) {
    Execute(stream, task, task->completion.enqueued_at);
    Next();
    return;
  }
  {
    MutexLock lock(&mu_);
    stream_ = stream;
    queue_.Push(task);
  }
  // Counted only now: what is counted, and not run here, is in the queue.
  if (unfinished_.fetch_add(1) == 0) Schedule();
}

void CpuStrand::Run() {
  std::shared_ptr<CpuStrand> self;
  StreamTask* task;
  CpuStream* stream;
  {
    MutexLock lock(&mu_);
    self = std::move(scheduled_);
    task = queue_.Pop();
    stream = stream_;
  }
  Execute(stream, task, NowNanos());
  Next();
}

// To the end of the line: streams of one priority take turns.
void CpuStrand::Schedule() {
  {
    MutexLock lock(&mu_);
    scheduled_ = shared_from_this();
  }
  workers_->Schedule(this, level_);
}

void CpuStrand::Next() {
  if (unfinished_.fetch_sub(1) != 1) Schedule();
}

void CpuStrand::Execute(CpuStream* stream, StreamTask* task, Nanos now) {
  Completion& completion = task->completion;
  completion.launched_at = completion.started_at = now;
  absl::Status status = std::move(completion.status);
  if (health_->poisoned()) status = health_->status();
  if (status.ok()) status = task->Launch(*stream);
  completion.status = std::move(status);
  // Bound as on a thread that does nothing else, wherever this runs.
  const ScopedThreadRole role(ThreadRole::kCompletion);
  // Whatever it waited for was reached before it ran.
  std::optional<absl::Status> outcome = task->Settle(completion);
  completion.outcome =
      outcome.has_value()
          ? *std::move(outcome)
          : absl::InternalError("it ran before what it depends on");
  completion.completed_at = NowNanos();
  completion.device_time = completion.completed_at - completion.started_at;
  // From here on the stream may be gone.
  timeline_->Advance(completion.sequence, completion.outcome).IgnoreError();
  timeline_->SetLaunched(completion.sequence);
  task->Complete(completion);
}

CpuStream::CpuStream(CpuDevice* device, uint64_t id, int priority,
                     std::shared_ptr<CpuStrand> strand)
    : Stream(strand->timeline()),
      device_(device),
      id_(id),
      priority_(priority),
      strand_(std::move(strand)) {}

CpuStream::~CpuStream() = default;

Device& CpuStream::device() const { return *device_; }

uint64_t CpuStream::Enqueue(StreamTask* task, Inline inline_run) {
  // The task may drop the stream's last use before this function ends.
  const std::shared_ptr<CpuStrand> strand = strand_;
  const uint64_t sequence = last_sequence_.load(std::memory_order_relaxed) + 1;
  task->completion = Completion();
  task->completion.sequence = sequence;
  task->completion.enqueued_at = NowNanos();
  if (sequence - timeline_->value() > kMaxUnfinished) {
    task->completion.status = WithReason(
        absl::ResourceExhaustedError(absl::StrCat(
            "stream ", id_, " has ", kMaxUnfinished, " unfinished works")),
        "STREAM_FULL");
  }
  last_sequence_.store(sequence, std::memory_order_release);
  strand->Enqueue(this, task, inline_run == Inline::kIfIdle);
  // Only now that the strand has the work may others wait for it on the device.
  strand->timeline()->SetLaunched(sequence);
  return sequence;
}

absl::Status CpuStream::CopyToDevice(void* dst, const void* src, size_t bytes) {
  return CopyOnDevice(dst, src, bytes);
}

absl::Status CpuStream::CopyToHost(void* dst, const void* src, size_t bytes) {
  return CopyOnDevice(dst, src, bytes);
}

absl::Status CpuStream::CopyOnDevice(void* dst, const void* src, size_t bytes) {
  if (bytes != 0) std::memcpy(dst, src, bytes);
  return absl::OkStatus();
}

absl::Status CpuStream::Fill(void* dst, uint8_t value, size_t bytes) {
  if (bytes != 0) std::memset(dst, value, bytes);
  return absl::OkStatus();
}

absl::Status CpuStream::WaitOnDevice(const Point& point) {
  if (auto outcome = point.Outcome()) return *std::move(outcome);
  if (point.timeline == timeline_) return absl::OkStatus();  // in order anyway
  if (point.timeline->device() != device_ ||
      point.timeline->launched() < point.value) {
    return absl::FailedPreconditionError(absl::StrCat(
        "stream ", id_, " cannot wait for ", point.timeline->name(), " = ",
        point.value, ": not launched on ", DeviceName(device_->info())));
  }
  return device_->WaitFor(point);
}

}  // namespace weir
