#include "kernels/device/stream_pool.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/holders.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/thread.h"
#include "kernels/device/device.h"
#include "kernels/device/stream_pool_state.h"

namespace weir {
namespace {

struct Delivery {
  StreamPool::LeaseCallback callback;
  absl::StatusOr<StreamLease> lease;
};

// Runs callbacks that a returned lane has made due. A callback that drops its
// lease at once makes the next one due in the same thread: a list instead of
// recursion keeps the stack flat.
void Deliver(std::vector<Delivery> deliveries) {
  std::vector<Delivery>*& running =
      ThreadOwn<Delivery, std::vector<Delivery>*>();
  if (deliveries.empty()) return;
  if (running != nullptr) {
    std::move(deliveries.begin(), deliveries.end(),
              std::back_inserter(*running));
    return;
  }
  running = &deliveries;
  for (size_t i = 0; i < deliveries.size(); ++i) {
    Delivery delivery = std::move(deliveries[i]);  // the vector may grow
    delivery.callback(std::move(delivery.lease));
  }
  running = nullptr;
}

}  // namespace

StreamLease& StreamLease::operator=(StreamLease&& other) noexcept {
  if (this != &other) {
    Reset();
    pool_ = std::exchange(other.pool_, nullptr);
    lane_ = std::exchange(other.lane_, nullptr);
  }
  return *this;
}

void StreamLease::MarkSuspect() {
  if (lane_ != nullptr) lane_->suspect_ = true;
}

void StreamPool::State::FailWaitersWhenPoisoned() {
  lost_ = device_->health().OnPoisoned(
      [weak = weak_from_this()](const absl::Status&) {
        if (auto state = HoldIfThere(weak)) {
          state->FailWaiters(state->device_->health().status());
        }
      });
}

absl::Status StreamPool::State::Refused() const {
  const StreamPoolStats now = stats();
  return WithRetryAfter(
      WithReason(absl::ResourceExhaustedError(absl::StrCat(
                     "all ", options_.max, " streams are in use (",
                     options_.max_name, "); ", now.waiting,
                     " works wait for one (", options_.max_waiters_name, ")")),
                 "STREAM_POOL_EXHAUSTED",
                 {{"max", absl::StrCat(options_.max)},
                  {"leased", absl::StrCat(now.leased)},
                  {"draining", absl::StrCat(now.draining)},
                  {"waiting", absl::StrCat(now.waiting)}}),
      absl::Milliseconds(10));
}

absl::Status StreamPool::State::Unusable() const {
  if (stopping_) return absl::CancelledError("the stream pool is stopping");
  return device_->health().status();
}

StreamLease StreamPool::State::LeaseOut(Lane* lane) {
  leases_total_.fetch_add(1, std::memory_order_relaxed);
  ++lane->generation_;
  return StreamLease(pool, lane);
}

std::optional<StreamLease> StreamPool::State::TakeIdle() {
  Lane* const lane = lanes_.TakeIdle();
  if (lane == nullptr) return std::nullopt;
  return LeaseOut(lane);
}

std::optional<StreamLease> StreamPool::State::LeaseQuickly() {
  if (attention_.load() || device_->health().poisoned()) return std::nullopt;
  Lane* const lane = lanes_.TakeIdle();
  if (lane == nullptr) return std::nullopt;
  if (!attention_.load()) return LeaseOut(lane);
  // Whoever began to wait, or stopped the pool, may have looked before.
  {
    MutexLock lock(&mu_);
    lanes_.Change(/*leased=*/-1, /*idle=*/1);
    PutBack(lane);
    changed_.NotifyAll();
  }
  Serve();
  return std::nullopt;
}

absl::StatusOr<StreamLease> StreamPool::State::TryAcquire() {
  if (auto lease = LeaseQuickly()) return *std::move(lease);
  bool refused = false;
  {
    MutexLock lock(&mu_);
    WEIR_RETURN_IF_ERROR(Unusable());
    refused = !waiters_.empty();  // nobody is overtaken
    if (!refused) {
      if (auto lease = TakeIdle()) return *std::move(lease);
      refused = !MayCreate();
    }
    if (refused) {
      ++refused_total_;
    } else {
      ++creating_;
    }
  }
  if (refused) return Refused();
  absl::StatusOr<StreamLease> lease = CreateLeased();
  if (!lease.ok()) Serve();
  return lease;
}

absl::StatusOr<StreamLease> StreamPool::State::AcquireNow() {
  if (auto lease = LeaseQuickly()) return *std::move(lease);
  MutexLock lock(&mu_);
  WEIR_RETURN_IF_ERROR(Unusable());
  if (waiters_.empty()) {
    if (auto lease = TakeIdle()) return *std::move(lease);
  }
  return StreamLease();
}

uint64_t StreamPool::State::Acquire(Nanos deadline, LeaseCallback callback) {
  if (auto quick = LeaseQuickly()) {
    callback(*std::move(quick));
    return 0;
  }
  absl::StatusOr<StreamLease> lease = absl::UnknownError("");
  uint64_t wait = 0;
  bool create = false;
  bool refused = false;
  const bool create_here = threads_.run_making == nullptr;
  {
    MutexLock lock(&mu_);
    std::optional<StreamLease> idle;
    if (absl::Status unusable = Unusable(); !unusable.ok()) {
      lease = std::move(unusable);
    } else if (waiters_.empty() && (idle = TakeIdle()).has_value()) {
      lease = *std::move(idle);
    } else if (create_here && waiters_.empty() && MayCreate()) {
      ++creating_;
      create = true;
    } else if (create = !create_here && MayCreateFor(waiters_.size() + 1);
               !create && waiters_.size() >= options_.max_waiters + creating_) {
      ++refused_total_;
      refused = true;
    } else {
      ++waited_total_;
      wait = ++next_waiter_;
      const TimerQueue::TimerId timer = timers_->Add(
          deadline, [self = shared_from_this(), wait] { self->Expire(wait); });
      waiters_.emplace(wait, Waiter{std::move(callback), deadline, timer});
      SetAttention();
      if (create) ++creating_;
    }
  }
  if (wait != 0) {
    if (create) CreateForWaiters();
    // One may have been returned before that was known.
    if (lanes_.count().idle > 0) Serve();
    return wait;
  }
  if (create) lease = CreateLeased();
  if (refused) lease = Refused();
  const bool failed = create && !lease.ok();
  // It was moved where somebody waits, who has returned.
  // NOLINTNEXTLINE(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
  callback(std::move(lease));
  if (failed) Serve();  // whoever queued behind this attempt
  return 0;
}

bool StreamPool::State::ReturnQuickly(Lane* lane) {
  const bool has_arena = lane->arena_bytes() > 0;
  if (lane->suspect_ || attention_.load() || !TrimIsArmedFor(has_arena) ||
      device_->health().poisoned()) {
    return false;
  }
  lanes_.Change(/*leased=*/-1, /*idle=*/1);
  lanes_.PutIdle(lane);
  if (!attention_.load() && TrimIsArmedFor(has_arena)) return true;
  {
    MutexLock lock(&mu_);
    changed_.NotifyAll();
    ArmTrimTimer();
  }
  Serve();
  return true;
}

void StreamPool::State::Return(Lane* lane) {
  const std::shared_ptr<Timeline>& timeline = lane->stream().timeline();
  const uint64_t last = lane->stream().last_sequence();
  if (timeline->value() == last) {
    if (!ReturnQuickly(lane)) TakeBack(lane, /*leased=*/true);
    return;
  }
  {
    MutexLock lock(&mu_);
    lanes_.Change(/*leased=*/-1, /*idle=*/0);
    ++draining_;
    changed_.NotifyAll();
  }
  // The lane belongs to this continuation now.
  const std::shared_ptr<Timeline> kept = timeline;
  kept->OnReached(last, [self = shared_from_this(), lane](absl::Status) {
    self->TakeBack(lane, /*leased=*/false);
  });
}

// Nothing runs on the lane any more. On the thread that completes works, which
// must not wait for the device. Until then it is leased, or draining.
void StreamPool::State::TakeBack(Lane* lane, bool leased) {
  const bool lost = device_->health().poisoned();
  const bool well = !lost && !lane->suspect_ && lane->stream().idle();
  bool examine = false;
  {
    MutexLock lock(&mu_);
    if (!leased) --draining_;
    changed_.NotifyAll();
    // Once the pool stops nobody gets it any more, whatever it is fit for, and
    // it ends with the others.
    if (well || (stopping_ && !lost)) {
      lanes_.Change(leased ? -1 : 0, /*idle=*/1);
      PutBack(lane);
    } else {
      if (leased) lanes_.Change(/*leased=*/-1, /*idle=*/0);
      ++draining_;
      examine = true;
      if (!lost && threads_.run_making != nullptr) {
        threads_.run_making(
            [self = shared_from_this(), lane] { self->Examine(lane); });
        return;
      }
    }
  }
  if (examine) return Examine(lane);
  Serve();
}

void StreamPool::State::PutBack(Lane* lane) {
  lanes_.PutIdle(lane);
  ArmTrimTimer();
}

StreamPool::LeaseCallback StreamPool::State::TakeFirstWaiter() {
  auto first = waiters_.extract(waiters_.begin());
  SetAttention();
  if (first.mapped().timer != 0) timers_->Cancel(first.mapped().timer);
  return std::move(first.mapped().callback);
}

// Gives lanes to waiters as long as there are both.
void StreamPool::State::Serve() {
  for (;;) {
    std::vector<Delivery> due;
    size_t creations = 0;  // elsewhere
    bool create = false;   // here
    {
      MutexLock lock(&mu_);
      const Nanos now = waiters_.empty() ? 0 : NowNanos();
      while (!waiters_.empty() && !create) {
        if (waiters_.begin()->second.deadline <= now) {
          ++expired_total_;
          due.push_back({TakeFirstWaiter(),
                         absl::DeadlineExceededError("no stream became free")});
        } else if (auto lease = TakeIdle()) {
          due.push_back({TakeFirstWaiter(), *std::move(lease)});
        } else if (!MayCreate() || !Unusable().ok()) {
          break;
        } else if (threads_.run_making != nullptr) {
          while (MayCreateFor(waiters_.size())) {
            ++creating_;
            ++creations;
          }
          break;
        } else {
          ++creating_;
          create = true;
          due.push_back({TakeFirstWaiter(), absl::UnknownError("")});
        }
      }
    }
    while (creations-- > 0) CreateForWaiters();
    if (create) due.back().lease = CreateLeased();
    Deliver(std::move(due));
    if (!create) return;
  }
}

void StreamPool::State::Expire(uint64_t waiter) {
  LeaseCallback callback;
  {
    MutexLock lock(&mu_);
    const auto found = waiters_.find(waiter);
    if (found == waiters_.end()) return;
    callback = std::move(found->second.callback);
    waiters_.erase(found);
    SetAttention();
    ++expired_total_;
  }
  callback(absl::DeadlineExceededError("no stream became free"));
}

void StreamPool::State::CancelWait(uint64_t wait) {
  std::optional<Waiter> waiter;
  {
    MutexLock lock(&mu_);
    const auto found = waiters_.find(wait);
    if (found == waiters_.end()) return;
    waiter = std::move(found->second);
    waiters_.erase(found);
    SetAttention();
  }
  if (waiter->timer != 0) timers_->Cancel(waiter->timer);
  waiter->callback(absl::CancelledError("the wait for a stream was cancelled"));
}

void StreamPool::State::FailWaiters(const absl::Status& status) {
  std::map<uint64_t, Waiter> waiters;
  {
    MutexLock lock(&mu_);
    waiters.swap(waiters_);
    SetAttention();
  }
  for (auto& [id, waiter] : waiters) {
    if (waiter.timer != 0) timers_->Cancel(waiter.timer);
    waiter.callback(status);
  }
}

void StreamPool::State::Stop() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    SetAttention();
  }
  FailWaiters(absl::CancelledError("the stream pool is stopping"));
  MutexLock lock(&mu_);
  while (lanes_.count().leased != 0 || creating_ != 0) changed_.Wait(&mu_);
}

void StreamPool::State::Close() {
  Stop();
  Lanes lanes;
  TimerQueue::TimerId timer = 0;
  {
    MutexLock lock(&mu_);
    for (;;) {
      for (Lane* lane : lanes_.TakeAllIdle()) lanes.push_back(lane);
      // One may be counted, and about to be put there.
      const bool all = lanes.size() == lanes_.count().idle;
      if (all && draining_ == 0 && retired_ == 0) break;
      changed_.Wait(&mu_);
    }
    lanes_.Change(/*leased=*/0, -static_cast<int>(lanes.size()));
    retired_ = lanes.size();
    timer = trim_armed_.load() ? trim_timer_ : 0;
  }
  Destroy(lanes);
  if (timer != 0) timers_->Cancel(timer);
}

StreamPoolStats StreamPool::State::stats() const {
  MutexLock lock(&mu_);
  const LaneTable::Count now = lanes_.count();
  StreamPoolStats stats;
  stats.idle = now.idle;
  stats.leased = now.leased;
  stats.draining = draining_;
  stats.retired = retired_;
  stats.max = options_.max;
  stats.waiting = waiters_.size();
  stats.created_total = created_total_;
  stats.destroyed_total = destroyed_total_;
  stats.leases_total = leases_total_.load(std::memory_order_relaxed);
  stats.waited_total = waited_total_;
  stats.refused_total = refused_total_;
  stats.expired_total = expired_total_;
  stats.arena_bytes = arenas_.bytes.load(std::memory_order_relaxed);
  return stats;
}

void StreamLease::Reset() {
  if (lane_ == nullptr) return;
  // The pool may be gone as soon as it counts one lease less.
  const auto state = pool_->state_;
  pool_ = nullptr;
  state->Return(std::exchange(lane_, nullptr));
}

absl::StatusOr<std::unique_ptr<StreamPool>> StreamPool::Create(
    Device* device, TimerQueue* timers, const StreamPoolOptions& options,
    StreamPoolThreads threads) {
  if (options.max == 0 || options.reserved > options.max) {
    return absl::InvalidArgumentError(
        absl::StrCat("a stream pool needs 1 <= max and reserved <= max, not ",
                     options.reserved, " and ", options.max));
  }
  auto state =
      std::make_shared<State>(device, timers, options, std::move(threads));
  WEIR_RETURN_IF_ERROR(state->Prepare());
  state->FailWaitersWhenPoisoned();
  auto pool = std::unique_ptr<StreamPool>(new StreamPool(state));
  state->pool = pool.get();
  return pool;
}

StreamPool::~StreamPool() { state_->Close(); }

absl::StatusOr<StreamLease> StreamPool::TryAcquire() {
  return state_->TryAcquire();
}

absl::StatusOr<StreamLease> StreamPool::AcquireNow() {
  return state_->AcquireNow();
}

uint64_t StreamPool::Acquire(Nanos deadline, LeaseCallback callback) {
  return state_->Acquire(deadline, std::move(callback));
}

void StreamPool::CancelWait(uint64_t wait) { state_->CancelWait(wait); }

size_t StreamPool::Trim(size_t keep) { return state_->Trim(keep); }

void StreamPool::Stop() { state_->Stop(); }

StreamPoolStats StreamPool::stats() const { return state_->stats(); }

Device& StreamPool::device() const { return state_->device(); }

}  // namespace weir
