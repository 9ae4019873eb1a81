#include "kernels/device/completion.h"

#include <sys/prctl.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/thread_role.h"
#include "kernels/device/overdue_asker.h"

namespace weir {
namespace {

constexpr int kRoundsPerClockRead = 32;
constexpr Nanos kJudgeEvery = 20'000'000;
constexpr size_t kMaxSuspects = 16;

std::string Milliseconds(Nanos time) {
  return absl::StrCat(time / 1'000'000, " ms");
}

}  // namespace

CompletionMonitor::CompletionMonitor(DeviceHealth* health, Options options)
    : health_(health),
      options_(std::move(options)),
      spin_(absl::ToInt64Nanoseconds(options_.spin)),
      max_sleep_(absl::ToInt64Nanoseconds(options_.max_sleep)),
      overdue_(absl::ToInt64Nanoseconds(options_.overdue)),
      stall_(absl::ToInt64Nanoseconds(options_.stall)),
      asker_(std::make_unique<OverdueAsker>(health, &options_.hooks)),
      thread_("weir-complete", [this] { Run(); }) {}

CompletionMonitor::~CompletionMonitor() { Stop(); }

void CompletionMonitor::Push(const std::shared_ptr<MonitoredStream>& stream,
                             StreamTask* task) {
  {
    MutexLock lock(&stream->mu);
    if (stream->in_flight.empty()) {
      stream->oldest.store(task->completion.sequence,
                           std::memory_order_release);
    }
    stream->in_flight.Push(task);
    stream->launching = nullptr;
    stream->waiting_since = 0;
    if (std::exchange(stream->watched, true)) return;
  }
  Watch(stream);
}

void CompletionMonitor::SetLaunchWaits(
    const std::shared_ptr<MonitoredStream>& stream, StreamTask* task,
    bool waits) {
  const Nanos now = options_.hooks.Now();
  {
    MutexLock lock(&stream->mu);
    stream->waiting_since = waits ? now : 0;
    if (std::exchange(stream->launching, task) == nullptr) {
      task->completion.started_at = task->completion.enqueued_at;
    }
    if (std::exchange(stream->watched, true)) return;
  }
  Watch(stream);
}

void CompletionMonitor::Watch(const std::shared_ptr<MonitoredStream>& stream) {
  MutexLock lock(&mu_);
  incoming_.push_back(stream);
  has_incoming_.store(true, std::memory_order_release);
  if (asleep_) work_.NotifyOne();
}

void CompletionMonitor::Stop() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    work_.NotifyOne();
  }
  if (thread_.Joinable()) thread_.Join();
  asker_.reset();
}

void CompletionMonitor::TakeIncoming() {
  if (!has_incoming_.load(std::memory_order_acquire)) return;
  const Nanos now = options_.hooks.Now();
  ShareTime(NowNanos());
  MutexLock lock(&mu_);
  for (auto& stream : incoming_) {
    stream->asked_at = now;
    stream->shared_from = shared_time_;
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
  const ScopedThreadRole role(ThreadRole::kCompletion);
  prctl(PR_SET_TIMERSLACK,
        1000);  // ns; the default of 50 us blurs short sleeps
  const MonitorHooks& hooks = options_.hooks;
  Nanos active = NowNanos();  // when anything happened last
  Nanos pause = 0;
  for (uint32_t round = 0;; ++round) {
    TakeIncoming();
    bool progress = false;
    // Asked before the records are read, so that one seen in time is not
    // failed.
    if (health_->poisoned()) progress = FailInFlight();
    for (size_t i = 0; i < busy_.size();) {
      progress |= Poll(*busy_[i]);
      if (Unwatch(*busy_[i])) {
        ShareTime(NowNanos());
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
      active = now;
      pause = 0;
      continue;
    }
    const Nanos judged = hooks.Now();
    JudgeStall(judged);
    AskOverdue(judged);
    const Nanos waited = now - active;
    if (waited < spin_) {
      Relax();
    } else if (busy_.empty()) {
      if (!Sleep()) return;
      active = NowNanos();
      pause = 0;
    } else if (waited < 2 * spin_) {
      Yield();
    } else {
      pause = std::min(max_sleep_, pause + 2000);
      SleepFor(pause);
      round = ~uint32_t{0};  // look at the clock after the next pass
    }
  }
}

// Only the monitor's thread takes it out.
StreamTask* CompletionMonitor::Oldest(MonitoredStream& stream) {
  MutexLock lock(&stream.mu);
  return stream.in_flight.front();
}

void CompletionMonitor::TakeOldest(MonitoredStream& stream) {
  MutexLock lock(&stream.mu);
  stream.in_flight.Pop();
  const StreamTask* next = stream.in_flight.front();
  stream.oldest.store(next == nullptr ? 0 : next->completion.sequence,
                      std::memory_order_release);
}

bool CompletionMonitor::Poll(MonitoredStream& stream) {
  // With work in flight, or being launched, the stream lives, and its record
  // with it.
  const uint64_t oldest = stream.oldest.load(std::memory_order_acquire);
  if (oldest == 0) {
    MutexLock lock(&stream.mu);
    if (stream.launching == nullptr) return false;
  }
  PollMark(stream);
  if (oldest == 0) return false;
  const uint64_t done = stream.record->sequence.load(std::memory_order_acquire);
  if (done < oldest) return false;
  stream.asked_at = options_.hooks.Now();
  Progress(stream.asked_at);
  bool any = false;
  for (;; any = true) {
    StreamTask* const task = Oldest(stream);
    if (task == nullptr || task->completion.sequence > done) return any;
    const uint64_t fault_word =
        stream.record
            ->slots[task->completion.sequence % CompletionRecord::kSlots]
            .fault.load(std::memory_order_relaxed);
    const auto fault =
        static_cast<FaultCode>(static_cast<uint32_t>(fault_word));
    if (!Finish(task, stream, fault_word, FaultStatus(fault))) return any;
  }
}

bool CompletionMonitor::PollAll() {
  bool any = false;
  for (bool again = true; again; any |= again) {
    again = false;
    for (const auto& stream : busy_) again |= Poll(*stream);
  }
  return any;
}

// No completion, but the device moves.
void CompletionMonitor::PollMark(MonitoredStream& stream) {
  const uint64_t mark = stream.record->mark.load(std::memory_order_acquire);
  if (mark == stream.mark_seen) return;
  stream.mark_seen = mark;
  stream.asked_at = options_.hooks.Now();
  Progress(stream.asked_at);
}

bool CompletionMonitor::FailInFlight() {
  bool progress = PollAll();
  const size_t suspects = FindSuspects();
  const absl::Status cause = health_->status();
  const absl::Status suspicion = Annotate(
      cause, suspects <= 1
                 ? "this work was running when it failed: "
                 : absl::StrCat("this work and ", suspects - 1,
                                " more were running when it failed: "));
  for (const auto& stream : busy_) {
    while (StreamTask* const task = Oldest(*stream)) {
      progress = true;
      Finish(task, *stream, 0, task->completion.suspect ? suspicion : cause);
    }
  }
  return progress;
}

// Works run in their stream's order: the oldest of each was running, those
// behind it were not. What arrives later was never launched, or is still being
// launched.
size_t CompletionMonitor::FindSuspects() {
  if (std::exchange(suspects_named_, true)) return 0;
  std::vector<std::pair<Nanos, StreamTask*>> found;  // by when they began
  for (const auto& stream : busy_) {
    MutexLock lock(&stream->mu);
    StreamTask* task = stream->in_flight.front();
    Nanos began = 0;
    if (task != nullptr) {
      began = task->completion.launched_at;
    } else if (stream->launching != nullptr) {
      task = stream->launching;
      began = task->completion.started_at;
    }
    if (began == 0) continue;
    task->completion.suspect = true;
    found.emplace_back(began, task);
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> names;
  for (const auto& [began, task] : found) {
    if (names.size() == kMaxSuspects) {
      names.push_back(
          absl::StrCat("and ", found.size() - kMaxSuspects, " more"));
      break;
    }
    names.push_back(task->Describe());
  }
  health_->NameSuspects(std::move(names));
  return found.size();
}

bool CompletionMonitor::Unwatch(MonitoredStream& stream) {
  if (stream.oldest.load(std::memory_order_relaxed) != 0) return false;
  MutexLock lock(&stream.mu);
  if (!stream.in_flight.empty() || stream.launching != nullptr) return false;
  stream.watched = false;
  return true;
}

bool CompletionMonitor::Finish(StreamTask* task, MonitoredStream& stream,
                               uint64_t fault_word, absl::Status status) {
  Completion& completion = task->completion;
  completion.fault = static_cast<FaultCode>(static_cast<uint32_t>(fault_word));
  if (completion.fault != FaultCode::kNone) {
    completion.fault_node = static_cast<uint32_t>(fault_word >> 32) - 1;
  }
  const bool launched = completion.status.ok();
  if (launched) completion.status = std::move(status);
  std::optional<absl::Status> outcome = task->Settle(completion);
  if (!outcome.has_value()) {
    // Before it is asked again the device may be lost.
    if (launched) completion.status = absl::OkStatus();
    return false;
  }
  completion.outcome = *std::move(outcome);
  TakeOldest(stream);
  completion.completed_at = NowNanos();
  const Nanos began = completion.started_at > 0 ? completion.started_at
                                                : completion.launched_at;
  completion.started_at = std::max(began, stream.completed_at);
  stream.completed_at = completion.completed_at;
  ShareTime(completion.completed_at);
  completion.device_time =
      shared_time_ - std::exchange(stream.shared_from, shared_time_);
  stream.timeline->Advance(completion.sequence, completion.outcome)
      .IgnoreError();
  task->Complete(completion);
  return true;
}

// To be called before the number of busy streams changes.
void CompletionMonitor::ShareTime(Nanos now) {
  const auto streams = static_cast<Nanos>(std::max<size_t>(1, busy_.size()));
  shared_time_ += (now - shared_until_) / streams;
  shared_until_ = now;
}

void CompletionMonitor::Progress(Nanos now) {
  if (!health_->poisoned() && std::exchange(stalled_, false)) {
    options_.hooks.Note([&] {
      return absl::StrCat("the device moves again after ",
                          Milliseconds(now - last_progress_));
    });
    health_->SetStalled(absl::OkStatus());
  }
  last_progress_ = now;
}

// The stream that has stood still for longest is asked first: a driver may know
// of a fault only where it happened.
void CompletionMonitor::AskOverdue(Nanos now) {
  if (health_->poisoned()) return;  // the next round fails what is left
  const std::shared_ptr<MonitoredStream>* longest = nullptr;
  for (const auto& stream : busy_) {
    if (now - stream->asked_at < overdue_ || stream->query == nullptr) continue;
    {
      MutexLock lock(&stream->mu);
      // A launch that computes is owed nothing.
      if (stream->in_flight.empty() &&
          (stream->waiting_since == 0 ||
           now - stream->waiting_since < overdue_)) {
        continue;
      }
    }
    if (longest == nullptr || stream->asked_at < (*longest)->asked_at) {
      longest = &stream;
    }
  }
  if (longest != nullptr && asker_->Ask(*longest)) (*longest)->asked_at = now;
}

// However the device shares itself among its streams, by the time that all it
// runs would take one after the other something has completed. Not by the sum
// of what each took: works that always run side by side have each waited for
// the others already. But one that had the device in part may need it whole.
void CompletionMonitor::JudgeStall(Nanos now) {
  if (stalled_ || busy_.empty() || now - last_progress_ < stall_ ||
      now < next_judgement_ || health_->poisoned()) {
    return;
  }
  next_judgement_ = now + kJudgeEvery;
  Nanos longest = 0;
  Nanos sum = 0;
  Nanos first_launch = now;  // the device was idle before
  size_t running = 0;
  for (const auto& stream : busy_) {
    MutexLock lock(&stream->mu);
    const StreamTask* task = stream->in_flight.front();
    Nanos since = 0;
    if (task != nullptr) {
      since = task->completion.launched_at;
    } else if (stream->waiting_since != 0) {
      task = stream->launching;
      since = stream->waiting_since;
    } else {
      continue;
    }
    ++running;
    longest = std::max(longest, task->expected);
    sum += task->expected_device_time;
    first_launch = std::min(first_launch, since);
  }
  const Nanos waited = now - std::max(last_progress_, first_launch);
  const Nanos expected = std::max(longest, sum);
  if (waited < stall_ + expected) return;
  stalled_ = true;
  std::string why = absl::StrCat("the device has completed nothing for ",
                                 Milliseconds(waited), "; the ", running,
                                 " work(s) that it runs should take ",
                                 Milliseconds(expected), " in all");
  options_.hooks.Note([&] { return why; });
  health_->SetStalled(absl::UnavailableError(why));
}

}  // namespace weir
