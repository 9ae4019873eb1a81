#include "kernels/device/completion.h"

#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace weir {
namespace {

constexpr int kRoundsPerClockRead = 32;

void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void Finish(StreamTask* task, Timeline& timeline, uint64_t fault_word,
            absl::Status status) {
  Completion& completion = task->completion;
  completion.fault = static_cast<FaultCode>(static_cast<uint32_t>(fault_word));
  if (completion.fault != FaultCode::kNone) {
    completion.fault_node = static_cast<uint32_t>(fault_word >> 32) - 1;
  }
  if (completion.status.ok()) completion.status = std::move(status);
  completion.completed_at = NowNanos();
  timeline.Advance(completion.sequence, completion.status).IgnoreError();
  task->Complete(completion);
}

}  // namespace

CompletionMonitor::CompletionMonitor(DeviceHealth* health,
                                     const Options& options)
    : health_(health),
      spin_(absl::ToInt64Nanoseconds(options.spin)),
      max_sleep_(absl::ToInt64Nanoseconds(options.max_sleep)),
      overdue_(absl::ToInt64Nanoseconds(options.overdue)),
      thread_([this] { Run(); }) {}

void CompletionMonitor::Push(const std::shared_ptr<MonitoredStream>& stream,
                             StreamTask* task) {
  {
    MutexLock lock(&stream->mu);
    if (stream->in_flight.empty()) {
      stream->oldest.store(task->completion.sequence,
                           std::memory_order_release);
    }
    stream->in_flight.Push(task);
    if (std::exchange(stream->watched, true)) return;
  }
  MutexLock lock(&mu_);
  incoming_.push_back(stream);
  has_incoming_.store(true, std::memory_order_release);
  if (asleep_) work_.NotifyOne();
}

void CompletionMonitor::FailAll(const absl::Status& cause) {
  // The thread looks at the health in every round while anything is in flight.
  health_->Poison(cause);
}

void CompletionMonitor::Stop() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    work_.NotifyOne();
  }
  if (thread_.joinable()) thread_.join();
}

void CompletionMonitor::TakeIncoming() {
  if (!has_incoming_.load(std::memory_order_acquire)) return;
  const Nanos now = NowNanos();
  MutexLock lock(&mu_);
  for (auto& stream : incoming_) {
    stream->asked_at = now;
    busy_.push_back(std::move(stream));
  }
  incoming_.clear();
  has_incoming_.store(false, std::memory_order_release);
}

bool CompletionMonitor::Sleep() {
  MutexLock lock(&mu_);
  asleep_ = true;
  while (incoming_.empty() && !stopping_) work_.Wait(&mu_);
  asleep_ = false;
  return !incoming_.empty();
}

void CompletionMonitor::Run() {
  pthread_setname_np(pthread_self(), "weir-complete");
  prctl(PR_SET_TIMERSLACK,
        1000);  // ns; the default of 50 us blurs short sleeps
  Nanos last_progress = NowNanos();
  Nanos pause = 0;
  for (uint32_t round = 0;; ++round) {
    TakeIncoming();
    // Read before the records, so that one seen in time is not failed.
    const bool poisoned = health_->poisoned();
    bool progress = false;
    for (size_t i = 0; i < busy_.size();) {
      MonitoredStream& stream = *busy_[i];
      progress |= Poll(stream);
      if (poisoned) FailRest(stream);
      if (Unwatch(stream)) {
        std::swap(busy_[i], busy_.back());
        busy_.pop_back();
      } else {
        ++i;
      }
    }
    if (!progress && round % kRoundsPerClockRead != 0) {
      Relax();
      continue;
    }
    const Nanos now = NowNanos();
    if (progress) {
      last_progress = now;
      pause = 0;
      continue;
    }
    const Nanos waited = now - last_progress;
    AskOverdue(now);
    if (waited < spin_) {
      Relax();
    } else if (busy_.empty()) {
      if (!Sleep()) return;
      last_progress = NowNanos();
      pause = 0;
    } else if (waited < 2 * spin_) {
      std::this_thread::yield();
    } else {
      pause = std::min(max_sleep_, pause + 2000);
      std::this_thread::sleep_for(std::chrono::nanoseconds(pause));
      round = ~uint32_t{0};  // look at the clock after the next pass
    }
  }
}

bool CompletionMonitor::Poll(MonitoredStream& stream) {
  // With work in flight the stream lives, and its record with it.
  const uint64_t oldest = stream.oldest.load(std::memory_order_acquire);
  if (oldest == 0) return false;
  const uint64_t done = stream.record->sequence.load(std::memory_order_acquire);
  if (done < oldest) return false;
  for (;;) {
    StreamTask* task;
    uint64_t fault_word = 0;
    {
      MutexLock lock(&stream.mu);
      task = stream.in_flight.front();
      if (task == nullptr || task->completion.sequence > done) break;
      stream.in_flight.Pop();
      const StreamTask* next = stream.in_flight.front();
      stream.oldest.store(next == nullptr ? 0 : next->completion.sequence,
                          std::memory_order_release);
      fault_word =
          stream.record
              ->slots[task->completion.sequence % CompletionRecord::kSlots]
              .fault.load(std::memory_order_relaxed);
    }
    Finish(
        task, *stream.timeline, fault_word,
        FaultStatus(static_cast<FaultCode>(static_cast<uint32_t>(fault_word))));
  }
  stream.asked_at = NowNanos();
  return true;
}

void CompletionMonitor::FailRest(MonitoredStream& stream) {
  const absl::Status cause = health_->status();
  for (;;) {
    StreamTask* task;
    {
      MutexLock lock(&stream.mu);
      task = stream.in_flight.Pop();
      const StreamTask* next = stream.in_flight.front();
      stream.oldest.store(next == nullptr ? 0 : next->completion.sequence,
                          std::memory_order_release);
    }
    if (task == nullptr) return;
    Finish(task, *stream.timeline, 0, cause);
  }
}

bool CompletionMonitor::Unwatch(MonitoredStream& stream) {
  if (stream.oldest.load(std::memory_order_relaxed) != 0) return false;
  MutexLock lock(&stream.mu);
  if (!stream.in_flight.empty()) return false;
  stream.watched = false;
  return true;
}

void CompletionMonitor::AskOverdue(Nanos now) {
  if (health_->poisoned()) return;  // the next round fails what is left
  for (const auto& stream : busy_) {
    if (now - stream->asked_at < overdue_ || stream->query == nullptr) continue;
    stream->asked_at = now;
    const absl::Status status = stream->query();
    if (!status.ok()) {
      health_->Poison(status);
      return;
    }
  }
}

}  // namespace weir
