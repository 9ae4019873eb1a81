#include "kernels/device/stream_pool.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/thread.h"
#include "kernels/device/device.h"

namespace weir {
namespace {

constexpr size_t kMinArena = size_t{64} << 10;
constexpr size_t kArenaStep = size_t{2} << 20;  // beyond it, no powers of two

constexpr absl::Duration kRetryFull = absl::Milliseconds(100);

size_t Rounded(size_t bytes) {
  if (bytes > kArenaStep) {
    return (bytes + kArenaStep - 1) / kArenaStep * kArenaStep;
  }
  return std::bit_ceil(std::max(bytes, kMinArena));
}

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

Lane::Lane(std::unique_ptr<Stream> stream, uint64_t number, LaneArenas* arenas)
    : stream_(std::move(stream)), number_(number), arenas_(arenas) {}

Lane::~Lane() {
  arenas_->bytes.fetch_sub(counted_bytes_, std::memory_order_relaxed);
}

absl::Status LaneArenas::Full(size_t wanted) const {
  absl::Status status =
      WithReason(absl::ResourceExhaustedError(absl::StrCat(
                     "no scratch memory of ", wanted, " bytes: lanes hold ",
                     bytes.load(std::memory_order_relaxed), " of ", max,
                     " bytes (--arena-bytes)")),
                 "DEVICE_MEMORY_EXHAUSTED");
  // Waiting does not help what can never fit.
  if (wanted > max) return status;
  return WithRetryAfter(std::move(status), kRetryFull);
}

void Lane::CountArena() {
  size_t bytes = arena_.size();
  for (const DeviceMemory& block : outgrown_) bytes += block.size();
  // Unsigned arithmetic wraps, and so a decrease is an addition too.
  arenas_->bytes.fetch_add(bytes - counted_bytes_, std::memory_order_relaxed);
  counted_bytes_ = bytes;
}

bool Lane::HasArena(size_t bytes) const {
  return bytes <= arena_.size() && (outgrown_.empty() || !stream_->idle());
}

void Lane::DropArena() {
  outgrown_.clear();
  arena_.Reset();
  CountArena();
}

size_t Lane::ArenaSize(size_t bytes) const {
  return bytes > arenas_->max ? bytes : std::min(Rounded(bytes), arenas_->max);
}

absl::Status Lane::GrowArena(size_t bytes, bool idle,
                             absl::FunctionRef<bool()> drop_idle) {
  if (idle) {
    outgrown_.clear();
    if (bytes > arena_.size()) arena_.Reset();
    CountArena();
    if (bytes <= arena_.size()) return absl::OkStatus();
  }
  const size_t size = ArenaSize(bytes);
  // Counted before it is there, so that two lanes do not take the same room.
  const auto fits = [this, size] {
    const size_t total =
        arenas_->bytes.fetch_add(size, std::memory_order_relaxed) + size;
    if (total <= arenas_->max) return true;
    arenas_->bytes.fetch_sub(size, std::memory_order_relaxed);
    return false;
  };
  bool room = fits();
  while (!room && size <= arenas_->max && drop_idle()) room = fits();
  if (!room) return arenas_->Full(size);
  absl::StatusOr<DeviceMemory> larger = stream_->device().Allocate(size);
  while (absl::IsResourceExhausted(larger.status()) && drop_idle()) {
    larger = stream_->device().Allocate(size);
  }
  if (!larger.ok()) {
    arenas_->bytes.fetch_sub(size, std::memory_order_relaxed);
    return std::move(larger).status();
  }
  counted_bytes_ += size;
  // Work may still use the smaller one.
  if (arena_.data() != nullptr) outgrown_.push_back(std::move(arena_));
  arena_ = *std::move(larger);
  CountArena();
  return absl::OkStatus();
}

absl::StatusOr<std::byte*> Lane::Arena(size_t bytes) {
  if (!HasArena(bytes)) {
    WEIR_RETURN_IF_ERROR(GrowArena(bytes, stream_->idle(), arenas_->drop_idle));
  }
  return static_cast<std::byte*>(arena_.data());
}

std::byte* Lane::ArenaNow(size_t bytes) {
  if (!HasArena(bytes)) {
    const size_t quick = stream_->device().quick_bytes();
    const bool idle = stream_->idle();
    if (ArenaSize(bytes) > quick || (idle && counted_bytes_ > quick) ||
        !GrowArena(bytes, idle, [] { return false; }).ok()) {
      return nullptr;
    }
  }
  return static_cast<std::byte*>(arena_.data());
}

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

// Lanes in the state draining, retired or being created belong to the thread
// or continuation that took them there; the rest to `idle_` or to a lease.
class StreamPool::State : public std::enable_shared_from_this<State> {
 public:
  State(Device* device, TimerQueue* timers, const StreamPoolOptions& options)
      : device_(device),
        timers_(timers),
        options_(options),
        idle_ttl_(absl::ToInt64Nanoseconds(options.idle_ttl)) {
    arenas_.max = options.max_arena_bytes;
    arenas_.drop_idle = [this] { return DropIdleArena(kNoDeadline); };
  }

  Device& device() const { return *device_; }

  absl::Status Prepare();
  void FailWaitersWhenPoisoned();
  absl::StatusOr<StreamLease> TryAcquire();
  absl::StatusOr<StreamLease> AcquireNow();
  uint64_t Acquire(Nanos deadline, LeaseCallback callback);
  void CancelWait(uint64_t wait);
  void Return(Lane* lane);
  size_t Trim(size_t keep);
  void Stop();
  void Close();
  StreamPoolStats stats() const;

  StreamPool* pool = nullptr;  // set once, before the first lease

 private:
  struct Waiter {
    LeaseCallback callback;
    Nanos deadline;
    TimerQueue::TimerId timer;
  };
  using Retired = std::vector<std::unique_ptr<Lane>>;

  absl::StatusOr<std::unique_ptr<Lane>> CreateLane();
  // Makes the lane that the caller has counted in creating_, here.
  absl::StatusOr<StreamLease> CreateLeased();
  // Whether one may be made for one who waits, or comes to wait, beside those
  // that are being made.
  bool MayCreateFor(size_t waiters) const WEIR_REQUIRES(mu_) {
    return creating_ < waiters && MayCreate();
  }
  void CreateForWaiters();  // the same, by run_making, for those who wait
  absl::Status Refused() const;
  absl::Status Unusable() const WEIR_REQUIRES(mu_);
  bool MayCreate() const WEIR_REQUIRES(mu_) {
    return stats_.created() + creating_ < options_.max;
  }
  StreamLease LeaseOut(Lane* lane) WEIR_REQUIRES(mu_);
  std::optional<StreamLease> TakeIdle() WEIR_REQUIRES(mu_);
  size_t Removable() const WEIR_REQUIRES(mu_);
  size_t ExpiredBy(Nanos now) const WEIR_REQUIRES(mu_);
  Retired TakeOldest(size_t count) WEIR_REQUIRES(mu_);
  // Frees one arena, of a lane that has been idle since `since` or longer, if
  // there is one.
  bool DropIdleArena(Nanos since);
  void ArmTrimTimer() WEIR_REQUIRES(mu_);
  void TrimExpired();
  void TakeBack(Lane* lane, size_t StreamPoolStats::*from);
  void Examine(std::unique_ptr<Lane> lane);
  void PutBack(std::unique_ptr<Lane> lane) WEIR_REQUIRES(mu_);
  bool Usable(Lane& lane);
  LeaseCallback TakeFirstWaiter() WEIR_REQUIRES(mu_);
  void Expire(uint64_t waiter);
  void Serve();
  void Destroy(Retired retired);
  void FailWaiters(const absl::Status& status);

  Device* const device_;
  TimerQueue* const timers_;
  const StreamPoolOptions options_;
  const Nanos idle_ttl_;

  LaneArenas arenas_;
  mutable Mutex mu_;
  CondVar changed_;
  StreamPoolStats stats_ WEIR_GUARDED_BY(mu_);  // all but `max` and `waiting`
  size_t creating_ WEIR_GUARDED_BY(mu_) = 0;
  uint64_t next_lane_ WEIR_GUARDED_BY(mu_) = 0;
  uint64_t next_waiter_ WEIR_GUARDED_BY(mu_) = 0;
  bool stopping_ WEIR_GUARDED_BY(mu_) = false;
  bool trim_armed_ WEIR_GUARDED_BY(mu_) = false;
  TimerQueue::TimerId trim_timer_ WEIR_GUARDED_BY(mu_) = 0;
  // Newest last, so idle_since_ grows from front to back.
  std::vector<std::unique_ptr<Lane>> idle_ WEIR_GUARDED_BY(mu_);
  std::map<uint64_t, Waiter> waiters_ WEIR_GUARDED_BY(mu_);  // in arrival order

  DeviceHealth::Watch lost_;  // set before the first lease
};

absl::Status StreamPool::State::Prepare() {
  for (size_t i = 0; i < options_.reserved; ++i) {
    WEIR_ASSIGN_OR_RETURN(std::unique_ptr<Lane> lane, CreateLane());
    lane->idle_since_ = NowNanos();
    MutexLock lock(&mu_);
    ++stats_.created_total;
    ++stats_.idle;
    idle_.push_back(std::move(lane));
  }
  return absl::OkStatus();
}

void StreamPool::State::FailWaitersWhenPoisoned() {
  lost_ = device_->health().OnPoisoned(
      [weak = weak_from_this()](const absl::Status&) {
        if (auto state = weak.lock()) {
          state->FailWaiters(state->device_->health().status());
        }
      });
}

absl::StatusOr<std::unique_ptr<Lane>> StreamPool::State::CreateLane() {
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream,
                        device_->CreateStream(options_.priority));
  MutexLock lock(&mu_);
  return std::make_unique<Lane>(std::move(stream), next_lane_++, &arenas_);
}

absl::StatusOr<StreamLease> StreamPool::State::CreateLeased() {
  absl::StatusOr<std::unique_ptr<Lane>> lane = CreateLane();
  MutexLock lock(&mu_);
  --creating_;
  changed_.NotifyAll();
  if (!lane.ok()) return lane.status();
  ++stats_.created_total;
  return LeaseOut(lane->release());
}

// Whoever waits longest gets the lane, or the error.
void StreamPool::State::CreateForWaiters() {
  options_.run_making([self = shared_from_this()] {
    absl::StatusOr<std::unique_ptr<Lane>> lane = self->CreateLane();
    LeaseCallback unserved;
    {
      MutexLock lock(&self->mu_);
      --self->creating_;
      self->changed_.NotifyAll();
      if (lane.ok()) {
        ++self->stats_.created_total;
        self->PutBack(*std::move(lane));
      } else if (!self->waiters_.empty()) {
        unserved = self->TakeFirstWaiter();
      }
    }
    if (unserved) unserved(lane.status());
    self->Serve();
  });
}

absl::Status StreamPool::State::Refused() const {
  const StreamPoolStats now = stats();
  return WithRetryAfter(
      WithReason(absl::ResourceExhaustedError(absl::StrCat(
                     "all ", options_.max, " streams are in use (--streams); ",
                     now.waiting, " works wait for one (--queue-length)")),
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
  ++stats_.leased;
  ++stats_.leases_total;
  ++lane->generation_;
  return StreamLease(pool, lane);
}

std::optional<StreamLease> StreamPool::State::TakeIdle() {
  if (idle_.empty()) return std::nullopt;
  Lane* const lane = idle_.back().release();
  idle_.pop_back();
  --stats_.idle;
  return LeaseOut(lane);
}

absl::StatusOr<StreamLease> StreamPool::State::TryAcquire() {
  bool refused = false;
  {
    MutexLock lock(&mu_);
    WEIR_RETURN_IF_ERROR(Unusable());
    refused = !waiters_.empty();  // nobody is overtaken
    if (!refused) {
      if (auto lease = TakeIdle()) return *std::move(lease);
      refused = !MayCreate();
    }
    ++(refused ? stats_.refused_total : creating_);
  }
  if (refused) return Refused();
  absl::StatusOr<StreamLease> lease = CreateLeased();
  if (!lease.ok()) Serve();
  return lease;
}

absl::StatusOr<StreamLease> StreamPool::State::AcquireNow() {
  MutexLock lock(&mu_);
  WEIR_RETURN_IF_ERROR(Unusable());
  if (waiters_.empty()) {
    if (auto lease = TakeIdle()) return *std::move(lease);
  }
  return StreamLease();
}

uint64_t StreamPool::State::Acquire(Nanos deadline, LeaseCallback callback) {
  absl::StatusOr<StreamLease> lease = absl::UnknownError("");
  uint64_t wait = 0;
  bool create = false;
  bool refused = false;
  const bool create_here = options_.run_making == nullptr;
  {
    MutexLock lock(&mu_);
    if (absl::Status unusable = Unusable(); !unusable.ok()) {
      lease = std::move(unusable);
    } else if (waiters_.empty() && !idle_.empty()) {
      lease = *TakeIdle();
    } else if (create_here && waiters_.empty() && MayCreate()) {
      ++creating_;
      create = true;
    } else if (create = !create_here && MayCreateFor(waiters_.size() + 1);
               !create && waiters_.size() >= options_.max_waiters + creating_) {
      ++stats_.refused_total;
      refused = true;
    } else {
      ++stats_.waited_total;
      wait = ++next_waiter_;
      const TimerQueue::TimerId timer = timers_->Add(
          deadline, [self = shared_from_this(), wait] { self->Expire(wait); });
      waiters_.emplace(wait, Waiter{std::move(callback), deadline, timer});
      if (create) ++creating_;
    }
  }
  if (wait != 0) {
    if (create) CreateForWaiters();
    return wait;
  }
  if (create) lease = CreateLeased();
  if (refused) lease = Refused();
  const bool failed = create && !lease.ok();
  callback(std::move(lease));
  if (failed) Serve();  // whoever queued behind this attempt
  return 0;
}

void StreamPool::State::Return(Lane* lane) {
  const std::shared_ptr<Timeline> timeline = lane->stream().timeline();
  const uint64_t last = lane->stream().last_sequence();
  if (timeline->value() == last) {
    TakeBack(lane, &StreamPoolStats::leased);
    return;
  }
  {
    MutexLock lock(&mu_);
    --stats_.leased;
    ++stats_.draining;
    changed_.NotifyAll();
  }
  // The lane belongs to this continuation now.
  timeline->OnReached(last, [self = shared_from_this(), lane](absl::Status) {
    self->TakeBack(lane, &StreamPoolStats::draining);
  });
}

// Nothing runs on the lane any more. On the thread that completes works, which
// must not wait for the device.
void StreamPool::State::TakeBack(Lane* lane, size_t StreamPoolStats::*from) {
  std::unique_ptr<Lane> owned(lane);
  const bool lost = device_->health().poisoned();
  const bool well = !lost && !lane->suspect_ && lane->stream().idle();
  {
    MutexLock lock(&mu_);
    --(stats_.*from);
    changed_.NotifyAll();
    // Once the pool stops nobody gets it any more, whatever it is fit for, and
    // it ends with the others.
    if (well || (stopping_ && !lost)) {
      PutBack(std::move(owned));
    } else {
      ++stats_.draining;
      if (!lost && options_.run_slow != nullptr) {
        options_.run_slow(
            [self = shared_from_this(), lane = std::move(owned)]() mutable {
              self->Examine(std::move(lane));
            });
        return;
      }
    }
  }
  if (owned != nullptr) return Examine(std::move(owned));
  Serve();
}

// Asks the device whether a lane that drains may be used again. May take long.
void StreamPool::State::Examine(std::unique_ptr<Lane> lane) {
  const bool usable = Usable(*lane);
  Retired retired;
  {
    MutexLock lock(&mu_);
    --stats_.draining;
    changed_.NotifyAll();
    if (usable) {
      PutBack(std::move(lane));
    } else {
      ++stats_.retired;
      retired.push_back(std::move(lane));
    }
  }
  Destroy(std::move(retired));
  Serve();
}

void StreamPool::State::PutBack(std::unique_ptr<Lane> lane) {
  lane->idle_since_ = NowNanos();
  idle_.push_back(std::move(lane));
  ++stats_.idle;
  ArmTrimTimer();
}

bool StreamPool::State::Usable(Lane& lane) {
  // A timeline that failed as a whole never comes to rest.
  if (!lane.stream().idle() || device_->health().poisoned()) return false;
  if (lane.suspect_ && !lane.stream().Check().ok()) return false;
  lane.suspect_ = false;
  return true;
}

size_t StreamPool::State::Removable() const {
  const size_t living = stats_.created() - stats_.retired;
  return living > options_.reserved ? living - options_.reserved : 0;
}

size_t StreamPool::State::ExpiredBy(Nanos now) const {
  size_t count = 0;
  while (count < idle_.size() && now - idle_[count]->idle_since_ >= idle_ttl_) {
    ++count;
  }
  return std::min(count, Removable());
}

StreamPool::State::Retired StreamPool::State::TakeOldest(size_t count) {
  const auto end = idle_.begin() + static_cast<ptrdiff_t>(count);
  Retired retired(std::make_move_iterator(idle_.begin()),
                  std::make_move_iterator(end));
  idle_.erase(idle_.begin(), end);
  stats_.idle -= count;
  stats_.retired += count;
  return retired;
}

// The lane is out of the pool meanwhile, for freeing is slow, and goes back to
// its place.
bool StreamPool::State::DropIdleArena(Nanos since) {
  std::unique_ptr<Lane> lane;
  {
    MutexLock lock(&mu_);
    const auto found = std::find_if(
        idle_.begin(), idle_.end(), [since](const std::unique_ptr<Lane>& idle) {
          return idle->arena_bytes() > 0 && idle->idle_since_ <= since;
        });
    if (found == idle_.end()) return false;
    lane = std::move(*found);
    idle_.erase(found);
    --stats_.idle;
    ++stats_.draining;
  }
  lane->DropArena();
  {
    MutexLock lock(&mu_);
    --stats_.draining;
    ++stats_.idle;
    const auto place = std::upper_bound(
        idle_.begin(), idle_.end(), lane->idle_since_,
        [](Nanos idle_since, const std::unique_ptr<Lane>& idle) {
          return idle_since < idle->idle_since_;
        });
    idle_.insert(place, std::move(lane));
    changed_.NotifyAll();
    ArmTrimTimer();
  }
  Serve();  // whoever found no lane meanwhile
  return true;
}

void StreamPool::State::ArmTrimTimer() {
  if (trim_armed_ || stopping_ || idle_.empty()) return;
  // The first that will go, or whose arena will.
  const bool goes = Removable() > 0;
  const auto first = std::find_if(idle_.begin(), idle_.end(),
                                  [goes](const std::unique_ptr<Lane>& lane) {
                                    return goes || lane->arena_bytes() > 0;
                                  });
  if (first == idle_.end()) return;
  const Nanos since = (*first)->idle_since_;
  if (idle_ttl_ >= kNoDeadline - since) return;
  trim_armed_ = true;
  trim_timer_ = timers_->Add(since + idle_ttl_, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    if (self->options_.run_slow == nullptr) {
      self->TrimExpired();
      return;
    }
    self->options_.run_slow([weak] {
      if (auto self = weak.lock()) self->TrimExpired();
    });
  });
}

// One lane after the other: the rest is there for whoever comes meanwhile.
void StreamPool::State::TrimExpired() {
  for (;;) {
    Retired retired;
    {
      MutexLock lock(&mu_);
      retired = TakeOldest(std::min<size_t>(ExpiredBy(NowNanos()), 1));
    }
    if (retired.empty()) break;
    Destroy(std::move(retired));
  }
  // What stays needs no memory.
  while (DropIdleArena(NowNanos() - idle_ttl_)) {
  }
  MutexLock lock(&mu_);
  trim_armed_ = false;
  ArmTrimTimer();
}

size_t StreamPool::State::Trim(size_t keep) {
  Retired retired;
  {
    MutexLock lock(&mu_);
    const size_t surplus = idle_.size() > keep ? idle_.size() - keep : 0;
    retired = TakeOldest(std::min(surplus, Removable()));
  }
  const size_t count = retired.size();
  Destroy(std::move(retired));
  return count;
}

// REQUIRES: the lanes are counted as retired.
void StreamPool::State::Destroy(Retired retired) {
  if (retired.empty()) return;
  const size_t count = retired.size();
  retired.clear();  // slow, outside the lock
  {
    MutexLock lock(&mu_);
    stats_.retired -= count;
    stats_.destroyed_total += count;
    changed_.NotifyAll();
  }
  Serve();  // there is room for new lanes
}

StreamPool::LeaseCallback StreamPool::State::TakeFirstWaiter() {
  auto first = waiters_.extract(waiters_.begin());
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
          ++stats_.expired_total;
          due.push_back({TakeFirstWaiter(),
                         absl::DeadlineExceededError("no stream became free")});
        } else if (auto lease = TakeIdle()) {
          due.push_back({TakeFirstWaiter(), *std::move(lease)});
        } else if (!MayCreate() || !Unusable().ok()) {
          break;
        } else if (options_.run_making != nullptr) {
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
    ++stats_.expired_total;
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
  }
  if (waiter->timer != 0) timers_->Cancel(waiter->timer);
  waiter->callback(absl::CancelledError("the wait for a stream was cancelled"));
}

void StreamPool::State::FailWaiters(const absl::Status& status) {
  std::map<uint64_t, Waiter> waiters;
  {
    MutexLock lock(&mu_);
    waiters.swap(waiters_);
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
  }
  FailWaiters(absl::CancelledError("the stream pool is stopping"));
  MutexLock lock(&mu_);
  while (stats_.leased != 0 || creating_ != 0) changed_.Wait(&mu_);
}

void StreamPool::State::Close() {
  Stop();
  Retired idle;
  TimerQueue::TimerId timer;
  {
    MutexLock lock(&mu_);
    while (stats_.draining != 0 || stats_.retired != 0) changed_.Wait(&mu_);
    idle.swap(idle_);
    stats_.idle = 0;
    stats_.destroyed_total += idle.size();
    timer = trim_armed_ ? trim_timer_ : 0;
  }
  if (timer != 0) timers_->Cancel(timer);
}

StreamPoolStats StreamPool::State::stats() const {
  MutexLock lock(&mu_);
  StreamPoolStats stats = stats_;
  stats.max = options_.max;
  stats.waiting = waiters_.size();
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
    Device* device, TimerQueue* timers, const StreamPoolOptions& options) {
  if (options.max == 0 || options.reserved > options.max) {
    return absl::InvalidArgumentError(
        absl::StrCat("a stream pool needs 1 <= max and reserved <= max, not ",
                     options.reserved, " and ", options.max));
  }
  auto state = std::make_shared<State>(device, timers, options);
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
