#include "kernels/device/point.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"

namespace weir {
namespace {

constexpr size_t kMaxFailedValues = 1024;
constexpr size_t kMaxFailedBytes = size_t{1} << 20;

size_t TextBytes(const absl::Status& status) {
  size_t bytes = status.message().size();
  status.ForEachPayload([&](absl::string_view, const absl::Cord& payload) {
    bytes += payload.size();
  });
  return bytes;
}

}  // namespace

Timeline::Timeline(std::string name, const Device* device, TimelineOwner owner)
    : name_(std::move(name)), device_(device), owner_(owner) {}

Timeline::~Timeline() {
  WaiterMap reach;
  WaiterMap launch;
  {
    MutexLock lock(&mu_);
    reach.swap(reach_waiters_);
    launch.swap(launch_waiters_);
    wait_keys_.clear();
  }
  const absl::Status cancelled =
      absl::CancelledError(absl::StrCat("timeline ", name_, " was deleted"));
  for (WaiterMap* waiters : {&reach, &launch}) {
    for (auto& [key, waiter] : *waiters) waiter.continuation(cancelled);
  }
}

absl::Status Timeline::NotIncreasing(uint64_t value) const {
  return WithReason(absl::FailedPreconditionError(absl::StrCat(
                        "timeline ", name_, " is at ", value_.load(),
                        " and cannot go to ", value)),
                    "TIMELINE_NOT_INCREASING");
}

absl::Status Timeline::Forgotten(uint64_t value) const {
  return absl::DataLossError(absl::StrCat("the outcome of value ", value,
                                          " on timeline ", name_,
                                          " was forgotten"));
}

absl::Status Timeline::FailureOf(uint64_t value) const {
  MutexLock lock(&mu_);
  return value > failed_after_ ? failure_ : absl::OkStatus();
}

absl::Status Timeline::Advance(uint64_t value, absl::Status status) {
  if (!status.ok()) return AdvanceFailed(value, std::move(status));
  if (closed_.load()) return FailureOf(kMaxValue);
  uint64_t current = value_.load();
  do {
    if (value <= current) return NotIncreasing(value);
  } while (!value_.compare_exchange_weak(current, value));
  // Fail may have come between; then it says which values it took.
  absl::Status result = closed_.load() ? FailureOf(value) : absl::OkStatus();
  // The last continuation may delete this timeline.
  if (has_waiters_.load()) RunDueWaiters();
  return result;
}

absl::Status Timeline::AdvanceFailed(uint64_t value, absl::Status status) {
  {
    MutexLock lock(&mu_);
    if (!failure_.ok()) return failure_;
    uint64_t current = value_.load();
    if (value <= current) return NotIncreasing(value);
    // Known before it is reached: whoever sees the value sees its failure.
    NoteFailure(value);
    failed_ahead_.erase(value);
    const size_t bytes = TextBytes(status);
    failed_values_.insert_or_assign(value, std::move(status));
    while (!value_.compare_exchange_weak(current, value)) {
      if (value <= current) {
        failed_values_.erase(value);
        return NotIncreasing(value);
      }
    }
    failed_bytes_ += bytes;
    while (failed_values_.size() > kMaxFailedValues ||
           (failed_bytes_ > kMaxFailedBytes && failed_values_.size() > 1)) {
      ForgetOldestFailure();
    }
  }
  if (has_waiters_.load()) RunDueWaiters();
  return absl::OkStatus();
}

void Timeline::FailAhead(uint64_t value, absl::Status status) {
  std::vector<Continuation> waiting;
  {
    MutexLock lock(&mu_);
    if (!failure_.ok() || value <= value_.load()) return;
    NoteFailure(value);
    failed_ahead_.insert_or_assign(value, status);
    TakeWaiters(value, nullptr, reach_waiters_, waiting);
    TakeWaiters(value, nullptr, launch_waiters_, waiting);
  }
  for (Continuation& continuation : waiting) continuation(status);
}

void Timeline::NoteFailure(uint64_t value) {
  if (last_failure_.load() < value) last_failure_.store(value);
}

void Timeline::ForgetOldestFailure() {
  const auto oldest = failed_values_.begin();
  forgotten_failure_ = oldest->first;
  failed_bytes_ -= TextBytes(oldest->second);
  const auto held = held_.find(oldest->first);
  if (held != held_.end()) held->second.failure = std::move(oldest->second);
  failed_values_.erase(oldest);
}

void Timeline::Hold(uint64_t value) {
  MutexLock lock(&mu_);
  Held& held = held_[value];
  if (held.holders++ == 0 && value <= forgotten_failure_) {
    held.failure = Forgotten(value);
  }
}

void Timeline::Release(uint64_t value) {
  MutexLock lock(&mu_);
  const auto held = held_.find(value);
  if (--held->second.holders == 0) held_.erase(held);
}

void Timeline::SetLaunched(uint64_t value) {
  uint64_t current = launched_.load();
  do {
    if (value <= current) return;
  } while (!launched_.compare_exchange_weak(current, value));
  if (has_launch_waiters_.load()) RunDueWaiters();
}

void Timeline::Fail(absl::Status status) {
  if (status.ok()) status = absl::InternalError("failed without a status");
  std::vector<Backed> backed;  // goes without the lock
  {
    MutexLock lock(&mu_);
    if (!failure_.ok()) return;
    failure_ = std::move(status);
    NoteFailure(kMaxValue);
    // From here on whoever reads or grows value_ asks under the lock, too, so
    // that all agree on where it ended.
    closed_.store(true);
    failed_after_ = value_.load();
    backed.swap(backed_);
  }
  if (has_waiters_.load()) RunDueWaiters();
}

std::optional<absl::Status> Timeline::Outcome(uint64_t value) const {
  const bool reached = value_.load() >= value;
  if (value == 0 || value > last_failure_.load()) {
    if (reached) return absl::OkStatus();
    return std::nullopt;
  }
  MutexLock lock(&mu_);
  return OutcomeLocked(value);
}

std::optional<absl::Status> Timeline::OutcomeLocked(uint64_t value) const {
  if (value == 0) return absl::OkStatus();
  if (value > failed_after_) return failure_;
  if (value_.load() < value) {
    const auto ahead = failed_ahead_.find(value);
    if (ahead == failed_ahead_.end()) return std::nullopt;
    return ahead->second;
  }
  if (value <= forgotten_failure_) {
    const auto held = held_.find(value);
    return held != held_.end() ? held->second.failure : Forgotten(value);
  }
  const auto failed = failed_values_.find(value);
  if (failed != failed_values_.end()) return failed->second;
  return absl::OkStatus();
}

std::optional<absl::Status> Timeline::LaunchOutcomeLocked(
    uint64_t value) const {
  std::optional<absl::Status> outcome = OutcomeLocked(value);
  if (!outcome.has_value() && launched_.load() >= value) {
    return absl::OkStatus();
  }
  return outcome;
}

const Timeline::Backed* Timeline::FindBacking(uint64_t value,
                                              const Device* device) const {
  const auto found = std::lower_bound(
      backed_.begin(), backed_.end(), value,
      [](const Backed& backed, uint64_t v) { return backed.value < v; });
  if (found == backed_.end() || found->value != value ||
      found->at.timeline->device() != device) {
    return nullptr;
  }
  return &*found;
}

void Timeline::Back(uint64_t value, const Point& at) {
  std::vector<Continuation> waiting;
  {
    MutexLock lock(&mu_);
    const uint64_t reached = value_.load();
    if (value <= reached || !failure_.ok()) return;
    const auto less = [](const Backed& backed, uint64_t v) {
      return backed.value < v;
    };
    backed_.erase(
        backed_.begin(),
        std::lower_bound(backed_.begin(), backed_.end(), reached + 1, less));
    const auto place =
        std::lower_bound(backed_.begin(), backed_.end(), value, less);
    // What others wait for already stays.
    if (place != backed_.end() && place->value == value) return;
    backed_.insert(place, Backed{value, at});
    TakeWaiters(value, at.timeline->device(), launch_waiters_, waiting);
  }
  for (Continuation& continuation : waiting) {
    at.timeline->OnLaunched(at.value, at.timeline->device(),
                            std::move(continuation));
  }
}

Point Timeline::Backing(uint64_t value, const Device* device) const {
  if (value_.load() >= value) return {};
  MutexLock lock(&mu_);
  const Backed* backing = FindBacking(value, device);
  if (backing == nullptr ||
      backing->at.timeline->launched() < backing->at.value) {
    return {};
  }
  return backing->at;
}

Point Point::OnDevice(const Device* device) const {
  if (is_null() || device == nullptr) return {};
  if (timeline->device() == nullptr) return timeline->Backing(value, device);
  const bool launched =
      timeline->value() < value && timeline->launched() >= value;
  return timeline->device() == device && launched ? *this : Point();
}

Timeline::WaitId Timeline::OnReached(uint64_t value,
                                     Continuation continuation) {
  WaitId wait = 0;
  Wanted wanted;
  std::optional<absl::Status> outcome = Outcome(value);
  if (!outcome.has_value()) {
    MutexLock lock(&mu_);
    has_waiters_.store(true);
    // Looked at again now that the flag is up. A flag left up for nothing costs
    // the next Advance a lock.
    outcome = OutcomeLocked(value);
    if (!outcome.has_value()) {
      wanted = TakeWanted(value);
      wait = AddWaiter(value, {std::move(continuation)}, reach_waiters_);
    }
  }
  if (outcome.has_value()) {
    continuation(*std::move(outcome));
  } else if (wanted != nullptr) {
    wanted();
  }
  return wait;
}

Timeline::WaitId Timeline::OnLaunched(uint64_t value, const Device* device,
                                      Continuation continuation) {
  // Nothing of another device's timeline is launched for this one.
  if (device == nullptr || (device_ != nullptr && device_ != device)) {
    return OnReached(value, std::move(continuation));
  }
  WaitId wait = 0;
  Wanted wanted;
  std::optional<absl::Status> outcome;
  Point at;
  {
    MutexLock lock(&mu_);
    has_waiters_.store(true);
    has_launch_waiters_.store(true);
    outcome = LaunchOutcomeLocked(value);
    if (!outcome.has_value()) {
      if (const Backed* backing = FindBacking(value, device)) {
        at = backing->at;
      } else {
        wanted = TakeWanted(value);
        wait = AddWaiter(value, {std::move(continuation), device},
                         launch_waiters_);
      }
    }
  }
  if (outcome.has_value()) {
    continuation(*std::move(outcome));
  } else if (wait == 0) {
    at.timeline->OnLaunched(at.value, device, std::move(continuation));
  } else if (wanted != nullptr) {
    wanted();
  }
  return wait;
}

void Timeline::OnWanted(uint64_t value, absl::AnyInvocable<void()> wanted) {
  {
    MutexLock lock(&mu_);
    // Whatever reaches the value from here on lets go of it.
    has_waiters_.store(true);
    if (OutcomeLocked(value).has_value()) return;
    const auto waits = [value](const WaiterMap& waiters) {
      return !waiters.empty() && waiters.begin()->first.first <= value;
    };
    if (!waits(reach_waiters_) && !waits(launch_waiters_)) {
      wanted_.emplace(value, std::move(wanted));
      return;
    }
    wanted_.emplace(value, nullptr);
  }
  wanted();
}

void Timeline::Want(uint64_t value) {
  Wanted wanted;
  {
    MutexLock lock(&mu_);
    wanted = TakeWanted(value);
  }
  if (wanted != nullptr) wanted();
}

Timeline::Wanted Timeline::TakeWanted(uint64_t value) {
  const auto found = wanted_.lower_bound(value);
  if (found == wanted_.end()) return nullptr;
  return std::exchange(found->second, nullptr);
}

Timeline::WaitId Timeline::AddWaiter(uint64_t value, Waiter waiter,
                                     WaiterMap& waiters) {
  const WaitId id = next_wait_++;
  waiters.emplace(Key{value, id}, std::move(waiter));
  wait_keys_.emplace(id, value);
  return id;
}

void Timeline::TakeWaiters(uint64_t value, const Device* device,
                           WaiterMap& waiters,
                           std::vector<Continuation>& taken) {
  auto waiter = waiters.lower_bound(Key{value, 0});
  while (waiter != waiters.end() && waiter->first.first == value) {
    if (device != nullptr && waiter->second.device != device) {
      ++waiter;
      continue;
    }
    taken.push_back(std::move(waiter->second.continuation));
    wait_keys_.erase(waiter->first.second);
    waiter = waiters.erase(waiter);
  }
}

bool Timeline::CancelWait(WaitId id) {
  Continuation dropped;  // destroyed outside the lock
  MutexLock lock(&mu_);
  const auto found = wait_keys_.find(id);
  if (found == wait_keys_.end()) return false;
  const Key key{found->second, id};
  wait_keys_.erase(found);
  if (const auto waiter = reach_waiters_.find(key);
      waiter != reach_waiters_.end()) {
    dropped = std::move(waiter->second.continuation);
    reach_waiters_.erase(waiter);
  } else {
    const auto launch = launch_waiters_.find(key);
    dropped = std::move(launch->second.continuation);
    launch_waiters_.erase(launch);
  }
  return true;
}

size_t Timeline::waits() const {
  MutexLock lock(&mu_);
  return wait_keys_.size();
}

size_t Timeline::failures() const {
  MutexLock lock(&mu_);
  return failed_values_.size() + failed_ahead_.size();
}

void Timeline::RunDueWaiters() {
  std::vector<std::pair<Continuation, absl::Status>> due;
  std::vector<Wanted> reached;  // go without the lock
  {
    MutexLock lock(&mu_);
    const uint64_t value = failure_.ok() ? value_.load() : kMaxValue;
    while (!wanted_.empty() && wanted_.begin()->first <= value) {
      reached.push_back(std::move(wanted_.begin()->second));
      wanted_.erase(wanted_.begin());
    }
    // Values are in order and outcomes are known up to some value, so the
    // first pending one ends the search.
    while (!launch_waiters_.empty()) {
      const auto first = launch_waiters_.begin();
      auto outcome = LaunchOutcomeLocked(first->first.first);
      if (!outcome.has_value()) break;
      due.emplace_back(std::move(first->second.continuation),
                       *std::move(outcome));
      wait_keys_.erase(first->first.second);
      launch_waiters_.erase(first);
    }
    while (!reach_waiters_.empty()) {
      const auto first = reach_waiters_.begin();
      auto outcome = OutcomeLocked(first->first.first);
      if (!outcome.has_value()) break;
      due.emplace_back(std::move(first->second.continuation),
                       *std::move(outcome));
      wait_keys_.erase(first->first.second);
      reach_waiters_.erase(first);
    }
    has_launch_waiters_.store(!launch_waiters_.empty());
    has_waiters_.store(!launch_waiters_.empty() || !reach_waiters_.empty() ||
                       !wanted_.empty());
  }
  for (auto& [continuation, status] : due) continuation(std::move(status));
}

absl::Status DependsOnFailed(const std::string& timeline, uint64_t value,
                             const absl::Status& status) {
  return Inherited(status, absl::StrCat("it depends on timeline ", timeline,
                                        " at ", value, ", which failed: "));
}

HeldPoint::HeldPoint(Point point) : point_(std::move(point)) {
  if (!point_.is_null()) point_.timeline->Hold(point_.value);
}

HeldPoint::~HeldPoint() {
  if (!point_.is_null()) point_.timeline->Release(point_.value);
}

}  // namespace weir
