#include "kernels/graph/compile_queue.h"

#include <algorithm>
#include <utility>

#include "kernels/base/bucket.h"
#include "kernels/base/holders.h"
#include "kernels/base/long_step_bytes.h"
#include "kernels/base/status_macros.h"
#include "kernels/graph/wait_limits.h"

namespace weir {

CompileQueue::CompileQueue(Maker* maker, TimerQueue* timers,
                           const CompileQueueOptions& options)
    : maker_(maker), timers_(timers), options_(options) {
  for (int i = 0; i < options.threads; ++i) {
    threads_.emplace_back("weir-compile", [this] { Run(); });
  }
}

CompileQueue::~CompileQueue() { Stop(); }

CompileQueue::WaitId CompileQueue::Get(Key key, uint64_t hash,
                                       GraphFactory factory, Nanos deadline,
                                       Done done, std::string owner) {
  const bool large = key->size() > kLongStepBytes;
  const std::shared_ptr<Compilation> arrival = ReclaimQueue::Share(
      std::make_unique<Compilation>(), large ? reading_ : nullptr);
  arrival->hash = hash;
  arrival->key = std::move(key);
  arrival->factory = std::move(factory);
  arrival->owner = std::move(owner);
  absl::StatusOr<WaitId> id = 0;
  {
    MutexLock lock(&mu_);
    id = Admit(arrival, deadline, done);
    if (id.ok() && large) ++arriving_;
  }
  if (!id.ok()) {
    done(id.status());
    return 0;
  }
  if (!large) return Place(arrival, *id) ? *id : 0;
  // Run before Stop returns, so that the bare pointer will do.
  reading_->Post([this, arrival, id = *id] {
    (void)Place(arrival, id);
    MutexLock lock(&mu_);
    --arriving_;
  });
  return *id;
}

absl::StatusOr<CompileQueue::WaitId> CompileQueue::Admit(
    const std::shared_ptr<Compilation>& arrival, Nanos deadline, Done& done) {
  if (stopping_) return CompileQueueStopping();
  if (waits_.size() >= options_.max_waiters) {
    return CompileQueueFull("callers wait for programs", "max_waiters",
                            options_.max_waiters);
  }
  const size_t size = arrival->key->size();
  // Others are read, and join or are refused, before their callers go on.
  if (size > kLongStepBytes) WEIR_RETURN_IF_ERROR(CheckBytes(size, arriving_));
  arrival->charge = ByteCharge(keys_, size);
  const WaitId id = next_wait_++;
  Waiter& waiter = arrival->waiters[id];
  waiter.done = std::move(done);
  waiter.timer =
      EndWaitLater(*timers_, deadline, options_.max_wait,
                   [weak = weak_from_this(), id](absl::Status status) {
                     const auto alive = HoldIfThere(weak);
                     if (alive != nullptr) alive->Leave(id, std::move(status));
                   });
  waits_[id] = arrival;
  return id;
}

absl::Status CompileQueue::CheckBytes(size_t more, size_t others) const {
  if (queue_.empty() && others == 0) return absl::OkStatus();
  if (keys_->bytes() + more <= options_.max_queued_bytes) {
    return absl::OkStatus();
  }
  return CompileQueueFull("bytes of graphs wait to be compiled",
                          "max_queued_bytes", options_.max_queued_bytes);
}

absl::Status CompileQueue::CheckQueue(const Compilation& arrival) const {
  if (queue_.size() >= options_.max_queued) {
    return CompileQueueFull("graphs wait to be compiled", "max_queued",
                            options_.max_queued);
  }
  WEIR_RETURN_IF_ERROR(CheckBytes(0, 0));
  if (arrival.owner.empty()) return absl::OkStatus();
  const Turns::Share share = queue_.ShareOf(arrival.owner);
  if (share.items == 0) return absl::OkStatus();
  if (share.items >= options_.max_queued - queue_.size()) {
    return CompileQueueFull("graphs of one client wait to be compiled",
                            "max_queued", share.items);
  }
  const size_t others = keys_->bytes() - arrival.key->size();
  if (share.weight + arrival.key->size() >
      options_.max_queued_bytes - std::min(others, options_.max_queued_bytes)) {
    return CompileQueueFull("bytes of one client's graphs wait to be compiled",
                            "max_queued_bytes", share.weight);
  }
  return absl::OkStatus();
}

void CompileQueue::MoveUp(Compilation& compilation, const std::string& owner) {
  if (compilation.stage != Compilation::Stage::kWaits ||
      queue_.owner(compilation.place) == owner ||
      queue_.ShareOf(owner).items >= queue_.Rank(compilation.place)) {
    return;
  }
  std::shared_ptr<Compilation> moved = queue_.Remove(compilation.place);
  compilation.place =
      queue_.Push(owner, std::move(moved), compilation.key->size());
}

bool CompileQueue::Place(const std::shared_ptr<Compilation>& arrival,
                         WaitId id) {
  const uint64_t hash = arrival->hash;
  const std::string_view whole = *arrival->key;
  // Keys are compared without the lock.
  std::shared_ptr<Compilation> other;
  for (;;) {
    // First: what is kept after this is either found or noticed below.
    const std::shared_ptr<const void> kept = maker_->Kept(hash);
    ProgramOr now = maker_->Find(hash, whole);
    const bool joins = other != nullptr && *other->key == whole;
    Waiter waiter;
    {
      MutexLock lock(&mu_);
      auto node = arrival->waiters.extract(id);
      if (node.empty()) return false;  // the caller has left
      if (*now == nullptr) {
        // It may have been finished since it was looked up.
        if (Joinable(hash) != other || maker_->Kept(hash) != kept) {
          other = Joinable(hash);
          arrival->waiters.insert(std::move(node));
          continue;
        }
        if (!joins) {
          if (absl::Status full = CheckQueue(*arrival); !full.ok()) {
            now = std::move(full);
          }
        }
      }
      if (now.ok() && *now == nullptr) {
        ++misses_;
        if (joins) {
          other->waiters.insert(std::move(node));
          MoveUp(*other, arrival->owner);
          waits_[id] = std::move(other);
          return true;
        }
        arrival->waiters.insert(std::move(node));
        arrival->stage = Compilation::Stage::kWaits;
        compiling_.emplace(hash, arrival);
        arrival->place =
            queue_.Push(arrival->owner, arrival, arrival->key->size());
        work_.NotifyOne();
        return true;
      }
      waiter = std::move(node.mapped());
      waits_.erase(id);
    }
    timers_->Cancel(waiter.timer);
    waiter.done(std::move(now));
    return false;
  }
}

std::shared_ptr<CompileQueue::Compilation> CompileQueue::Joinable(
    uint64_t hash) const {
  const auto found = compiling_.find(hash);
  return found == compiling_.end() ? nullptr : found->second;
}

void CompileQueue::Run() {
  for (;;) {
    std::shared_ptr<Compilation> compilation;
    Turns::Owner owner;
    {
      MutexLock lock(&mu_);
      while (queue_.empty() && !stopping_) work_.Wait(&mu_);
      if (stopping_) return;
      std::tie(compilation, owner) = queue_.Take();
      compilation->stage = Compilation::Stage::kRuns;
      ++running_;
    }
    Compile(std::move(compilation));
    MutexLock lock(&mu_);
    queue_.Done(owner);
  }
}

void CompileQueue::Compile(std::shared_ptr<Compilation> compilation) {
  const Nanos began = NowNanos();
  ProgramOr program = maker_->Make(compilation->key, compilation->hash,
                                   std::move(compilation->factory),
                                   compilation->stop.get_token());
  std::map<WaitId, Waiter> waiters;
  {
    MutexLock lock(&mu_);
    // Before anybody is told.
    --running_;
    if (program.ok()) AddTime(NowNanos() - began);
    // If everybody left, another one of this key may have come since, and may
    // even have ended.
    if (Joinable(compilation->hash) == compilation) {
      compiling_.erase(compilation->hash);
    }
    if (!program.ok()) {
      if (!compilation->stop.stop_requested()) {
        ++failed_;
      } else if (stopping_) {
        program = CompileQueueStopping();
      }
    }
    waiters.swap(compilation->waiters);
    for (const auto& [id, waiter] : waiters) waits_.erase(id);
  }
  compilation = nullptr;
  for (auto& [id, waiter] : waiters) {
    timers_->Cancel(waiter.timer);
    waiter.done(program);
  }
}

void CompileQueue::GiveUp(Compilation& compilation) {
  if (Joinable(compilation.hash).get() == &compilation) {
    compiling_.erase(compilation.hash);
  }
  compilation.stop.request_stop();
  if (compilation.stage == Compilation::Stage::kWaits) {
    queue_.Remove(compilation.place);
  }
}

void CompileQueue::Leave(WaitId id, absl::Status status) {
  std::shared_ptr<Compilation> compilation;
  Waiter waiter;
  {
    MutexLock lock(&mu_);
    const auto found = waits_.find(id);
    if (found == waits_.end()) return;
    compilation = std::move(found->second);
    waits_.erase(found);
    waiter = std::move(compilation->waiters.extract(id).mapped());
    if (compilation->waiters.empty()) GiveUp(*compilation);
  }
  compilation = nullptr;  // its bytes go before the answer
  timers_->Cancel(waiter.timer);
  waiter.done(std::move(status));
}

void CompileQueue::Cancel(WaitId wait) { Leave(wait, LeftWhileWaiting()); }

CompileQueue::Stats CompileQueue::stats() const {
  MutexLock lock(&mu_);
  return {.queued = queue_.size(),
          .queued_bytes = keys_->bytes(),
          .running = running_,
          .misses = misses_,
          .failed = failed_,
          .times = times_};
}

void CompileQueue::AddTime(Nanos took) {
  ++times_.counts[BucketOf(Times::kBounds, took)];
  times_.sum_ns += static_cast<uint64_t>(std::max<Nanos>(took, 0));
}

void CompileQueue::Close() {
  std::vector<WaitId> waiting;
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    for (const auto& [id, compilation] : waits_) {
      if (compilation->stage == Compilation::Stage::kRuns) {
        compilation->stop.request_stop();
      } else {
        waiting.push_back(id);
      }
    }
    work_.NotifyAll();
  }
  for (const WaitId id : waiting) Leave(id, CompileQueueStopping());
}

void CompileQueue::Stop() {
  Close();
  std::vector<Thread> threads;
  std::unique_ptr<Reclaimer> reader;
  {
    MutexLock lock(&mu_);
    threads.swap(threads_);
    reader = std::move(reader_);
  }
  for (Thread& thread : threads) thread.Join();
}

}  // namespace weir
