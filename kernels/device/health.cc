#include "kernels/device/health.h"

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/thread.h"

namespace weir {
namespace {

constexpr char kDevicePoisoned[] = "DEVICE_POISONED";

}  // namespace

struct DeviceHealth::Watch::Watchers {
  Mutex mu;
  CondVar changed;
  absl::Status cause WEIR_GUARDED_BY(mu);
  uint64_t next WEIR_GUARDED_BY(mu) = 1;
  std::map<uint64_t, Watcher> waiting WEIR_GUARDED_BY(mu);
  // The one that is being called, and the thread that calls it.
  uint64_t called WEIR_GUARDED_BY(mu) = 0;
  ThreadId caller WEIR_GUARDED_BY(mu);

  // Takes the next watcher, as called by this thread; null if there is none.
  Watcher Take() {
    MutexLock lock(&mu);
    if (waiting.empty()) return nullptr;
    auto first = waiting.extract(waiting.begin());
    called = first.key();
    caller = ThisThread();
    return std::move(first.mapped());
  }

  // The first after `*id`, for one call: it is to be put back.
  Watcher Borrow(uint64_t* id) {
    MutexLock lock(&mu);
    const auto found = waiting.upper_bound(*id);
    if (found == waiting.end()) return nullptr;
    called = *id = found->first;
    caller = ThisThread();
    return std::move(found->second);
  }

  // One that was removed meanwhile goes before whoever removed it is told.
  void PutBack(Watcher watcher) {
    {
      MutexLock lock(&mu);
      const auto found = waiting.find(called);
      if (found != waiting.end()) found->second = std::move(watcher);
    }
    watcher = nullptr;
    Called();
  }

  Watch Add(const std::shared_ptr<Watchers>& self, Watcher watcher)
      WEIR_REQUIRES(mu) {
    const uint64_t id = next++;
    waiting.emplace(id, std::move(watcher));
    return Watch(self, id);
  }

  void Called() {
    MutexLock lock(&mu);
    called = 0;
    changed.NotifyAll();
  }

  void Remove(uint64_t id) {
    Watcher removed;  // destroyed without the lock
    MutexLock lock(&mu);
    if (auto found = waiting.extract(id); !found.empty()) {
      removed = std::move(found.mapped());
    }
    while (called == id && caller != ThisThread()) {
      changed.Wait(&mu);
    }
  }
};

DeviceHealth::Watch::Watch(Watch&& other) noexcept
    : watchers_(std::move(other.watchers_)), id_(other.id_) {}

DeviceHealth::Watch& DeviceHealth::Watch::operator=(Watch&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  watchers_ = std::move(other.watchers_);
  id_ = other.id_;
  return *this;
}

void DeviceHealth::Watch::Reset() {
  if (const auto watchers = std::exchange(watchers_, nullptr)) {
    watchers->Remove(id_);
  }
}

DeviceHealth::DeviceHealth()
    : watchers_(std::make_shared<Watch::Watchers>()),
      stall_watchers_(std::make_shared<Watch::Watchers>()) {}

absl::Status DeviceHealth::status() const {
  if (!poisoned()) return absl::OkStatus();
  absl::Status cause;
  {
    MutexLock lock(&watchers_->mu);
    cause = watchers_->cause;
  }
  ReasonMetadata metadata = Metadata(cause);  // the driver's code and name
  metadata.emplace_back("cause_code", absl::StatusCodeToString(cause.code()));
  metadata.emplace_back("cause", std::string(cause.message()));
  return WithReason(absl::UnavailableError(
                        absl::StrCat("the device is lost: ", cause.message())),
                    kDevicePoisoned, std::move(metadata));
}

void DeviceHealth::Poison(const absl::Status& cause) {
  const absl::Status root =
      cause.ok() ? absl::UnknownError("unknown cause") : cause;
  // A watcher may drop the last reference to what it watches.
  const std::shared_ptr<Watch::Watchers> watchers = watchers_;
  {
    MutexLock lock(&watchers->mu);
    if (poisoned_.load(std::memory_order_relaxed)) return;
    watchers->cause = root;
    poisoned_.store(true, std::memory_order_release);
  }
  while (Watcher watcher = watchers->Take()) {
    watcher(root);
    watcher = nullptr;
    watchers->Called();
  }
}

bool IsDeviceLoss(const absl::Status& status) {
  return absl::IsUnavailable(status) && Reason(status) == kDevicePoisoned;
}

void DeviceHealth::NameSuspects(std::vector<std::string> suspects) {
  MutexLock lock(&mu_);
  suspects_ = std::move(suspects);
}

std::vector<std::string> DeviceHealth::suspects() const {
  MutexLock lock(&mu_);
  return suspects_;
}

absl::Status DeviceHealth::stall() const {
  MutexLock lock(&mu_);
  return stall_;
}

void DeviceHealth::SetStalled(const absl::Status& why) {
  absl::Status stall =
      why.ok()
          ? why
          : WithReason(absl::UnavailableError(why.message()), "DEVICE_STALLED");
  {
    MutexLock lock(&mu_);
    if (stall_.ok() && !stall.ok()) {
      stalls_total_.fetch_add(1, std::memory_order_relaxed);
    }
    stall_ = stall;
  }
  const std::shared_ptr<Watch::Watchers> watchers = stall_watchers_;
  for (uint64_t id = 0;;) {
    Watcher watcher = watchers->Borrow(&id);
    if (watcher == nullptr) break;
    watcher(stall);
    watchers->PutBack(std::move(watcher));
  }
}

DeviceHealth::Watch DeviceHealth::OnStall(Watcher watcher) {
  MutexLock lock(&stall_watchers_->mu);
  return stall_watchers_->Add(stall_watchers_, std::move(watcher));
}

DeviceHealth::Watch DeviceHealth::OnPoisoned(Watcher watcher) {
  absl::Status cause;
  {
    MutexLock lock(&watchers_->mu);
    if (!poisoned_.load(std::memory_order_relaxed)) {
      return watchers_->Add(watchers_, std::move(watcher));
    }
    cause = watchers_->cause;
  }
  watcher(cause);
  return Watch();
}

}  // namespace weir
