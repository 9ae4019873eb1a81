#include "kernels/device/dispatcher.h"

#include <unordered_map>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/atomic.h"
#include "kernels/base/error_info.h"
#include "kernels/base/holders.h"
#include "kernels/base/mutex.h"
#include "kernels/device/device.h"

namespace weir {
namespace {

// OK if nothing has to be waited for, empty if something has.
std::optional<absl::Status> KnownOutcome(const Point& point,
                                         const Device* device) {
  std::optional<absl::Status> outcome = point.Outcome();
  if (!outcome.has_value()) {
    if (point.OnDevice(device).is_null()) return std::nullopt;
    return absl::OkStatus();
  }
  if (!outcome->ok()) {
    return DependsOnFailed(point.timeline->name(), point.value, *outcome);
  }
  return outcome;
}

}  // namespace

// One parked call. Whoever takes `ready` out of it under the lock calls it.
// Timelines are held weakly: the end of one that nobody else holds, who parked
// the call included, cancels the wait.
class Dispatcher::Parked : public std::enable_shared_from_this<Parked> {
 public:
  Parked(std::shared_ptr<State> state, size_t points, Ready ready)
      : state_(std::move(state)),
        remaining_(points + 1),  // one is Start's own
        ready_(std::move(ready)) {}
  ~Parked();

  // False if too many are parked.
  bool Register();
  uint64_t id() const { return id_; }
  void Start(absl::Span<const Point> pending, const Device* device,
             Nanos deadline);
  void Finish(absl::Status status);

 private:
  struct Wait {
    std::weak_ptr<Timeline> timeline;
    Timeline::WaitId id;
  };

  void Arrived();
  void AddWait(const std::shared_ptr<Timeline>& timeline, Timeline::WaitId id);
  void SetTimer(TimerQueue::TimerId timer);

  const std::shared_ptr<State> state_;
  uint64_t id_ = 0;  // since Register
  Mutex mu_;
  size_t remaining_ WEIR_GUARDED_BY(mu_);
  Ready ready_ WEIR_GUARDED_BY(mu_);
  bool finished_ WEIR_GUARDED_BY(mu_) = false;
  absl::InlinedVector<Wait, 4> waits_ WEIR_GUARDED_BY(mu_);
  TimerQueue::TimerId timer_ WEIR_GUARDED_BY(mu_) = 0;
};

struct Dispatcher::State {
  State(TimerQueue* timers, size_t max_parked)
      : timers(timers), max_parked(max_parked) {}

  TimerQueue* const timers;
  const size_t max_parked;
  mutable Mutex mu;
  uint64_t next_id WEIR_GUARDED_BY(mu) = 1;
  std::unordered_map<uint64_t, std::shared_ptr<Parked>> parked
      WEIR_GUARDED_BY(mu);
  // Those, and what is over and held by a timeline yet: a wait for a launch
  // that is under way cannot be taken back (Timeline::CancelWait).
  Atomic<size_t> held{0};
};

Dispatcher::Parked::~Parked() {
  if (id_ != 0) state_->held.fetch_sub(1);
}

bool Dispatcher::Parked::Register() {
  MutexLock lock(&state_->mu);
  if (state_->held.load() >= state_->max_parked) return false;
  state_->held.fetch_add(1);
  id_ = state_->next_id++;
  state_->parked.emplace(id_, shared_from_this());
  return true;
}

void Dispatcher::Parked::Start(absl::Span<const Point> pending,
                               const Device* device, Nanos deadline) {
  for (const Point& point : pending) {
    const Timeline::WaitId id = point.timeline->OnLaunched(
        point.value, device,
        [self = shared_from_this(), name = point.timeline->name(),
         value = point.value](absl::Status status) {
          if (status.ok()) {
            self->Arrived();
          } else {
            self->Finish(DependsOnFailed(name, value, status));
          }
        });
    if (id != 0) AddWait(point.timeline, id);
  }
  SetTimer(state_->timers->Add(deadline, [self = shared_from_this()] {
    self->Finish(
        absl::DeadlineExceededError("a point was not reached in time"));
  }));
  Arrived();
}

void Dispatcher::Parked::Arrived() {
  {
    MutexLock lock(&mu_);
    if (--remaining_ != 0) return;
  }
  Finish(absl::OkStatus());
}

void Dispatcher::Parked::AddWait(const std::shared_ptr<Timeline>& timeline,
                                 Timeline::WaitId id) {
  {
    MutexLock lock(&mu_);
    if (!finished_) {
      waits_.push_back({timeline, id});
      return;
    }
  }
  timeline->CancelWait(id);
}

void Dispatcher::Parked::SetTimer(TimerQueue::TimerId timer) {
  {
    MutexLock lock(&mu_);
    if (!finished_) {
      timer_ = timer;
      return;
    }
  }
  state_->timers->Cancel(timer);
}

void Dispatcher::Parked::Finish(absl::Status status) {
  Ready ready;
  absl::InlinedVector<Wait, 4> waits;
  TimerQueue::TimerId timer;
  {
    MutexLock lock(&mu_);
    if (std::exchange(finished_, true)) return;
    ready = std::move(ready_);
    waits.swap(waits_);
    timer = timer_;
  }
  if (timer != 0) state_->timers->Cancel(timer);
  if (!status.ok()) {
    for (const Wait& wait : waits) {
      if (const auto timeline = HoldIfThere(wait.timeline)) {
        timeline->CancelWait(wait.id);
      }
    }
  }
  {
    MutexLock lock(&state_->mu);
    state_->parked.erase(id_);
  }
  ready(std::move(status));
}

Dispatcher::Dispatcher(TimerQueue* timers, size_t max_parked)
    : state_(std::make_shared<State>(timers, max_parked)) {}

Dispatcher::~Dispatcher() = default;

uint64_t Dispatcher::WhenReady(absl::Span<const Point> points,
                               const Device* device, Nanos deadline,
                               Ready ready) {
  absl::InlinedVector<Point, 4> pending;
  absl::Status failure;
  for (const Point& point : points) {
    const std::optional<absl::Status> outcome = KnownOutcome(point, device);
    if (!outcome.has_value()) {
      pending.push_back(point);
    } else if (!outcome->ok()) {
      failure = *outcome;
      break;
    }
  }
  if (pending.empty() || !failure.ok()) {
    ready(std::move(failure));
    return 0;
  }
  const auto parked =
      std::make_shared<Parked>(state_, pending.size(), std::move(ready));
  if (!parked->Register()) {
    parked->Finish(WithRetryAfter(
        WithReason(absl::ResourceExhaustedError(absl::StrCat(
                       state_->max_parked, " works wait for points already")),
                   "TOO_MANY_PARKED"),
        absl::Milliseconds(10)));
    return 0;
  }
  parked->Start(pending, device, deadline);
  return parked->id();
}

void Dispatcher::CancelWait(uint64_t wait) {
  std::shared_ptr<Parked> parked;
  {
    MutexLock lock(&state_->mu);
    const auto found = state_->parked.find(wait);
    if (found == state_->parked.end()) return;
    parked = found->second;
  }
  parked->Finish(absl::CancelledError("the wait was cancelled"));
}

size_t Dispatcher::parked() const {
  MutexLock lock(&state_->mu);
  return state_->parked.size();
}

void Dispatcher::CancelAll() {
  std::unordered_map<uint64_t, std::shared_ptr<Parked>> all;
  {
    MutexLock lock(&state_->mu);
    all = state_->parked;
  }
  for (auto& [id, parked] : all) {
    parked->Finish(absl::CancelledError("the wait was cancelled"));
  }
}

}  // namespace weir
