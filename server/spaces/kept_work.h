// What a work's number stands for: a work while it runs, and afterwards what
// became of it, without what it held. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "kernels/base/mutex.h"
#include "kernels/device/device.h"
#include "kernels/device/point.h"
#include "kernels/eval/sync_report.h"
#include "kernels/eval/work.h"

namespace weir {

class KeptWork {
 public:
  // Of the device that `work` runs on, which outlives it. The work was accepted
  // or is about to be; `ended` is reached after Ended.
  KeptWork(const Device* device, std::shared_ptr<Work> work, Point ended)
      : device_(device), work_(std::move(work)), ended_(std::move(ended)) {}

  const Device& device() const { return *device_; }

  // Once, inside its OnDone.
  void Ended(const Work& work);
  // Once after that, when all that it held is given back.
  void TellEnded();

  // How far it has come.
  WorkState state() const;
  // Reached when it is done, or with its failure: then end() tells. Null once
  // it is done. Who waits for it wants it: a deferred work is run.
  Point ended() const;
  // `told` runs once, when it is done, at once if it is; nothing is run for it.
  // On any thread, under no lock: it only notes and posts.
  void OnEnded(absl::AnyInvocable<void()> told);
  // Queued work is dropped, what runs drains; nothing happens if it is done.
  void Cancel();

  // `watcher` runs each time that state() or end() may have changed, on any
  // thread and under locks: it notes and posts. Returns a number for Unwatch;
  // 0 if the work is done: nothing changes any more.
  using Watcher = std::function<void()>;
  uint64_t Watch(const Watcher& watcher);
  // The watcher does not run any more once this returns.
  void Unwatch(uint64_t watch);

  // How it ended; empty before.
  struct End {
    absl::Status status;
    SyncReport report;
  };
  std::optional<End> end() const;

 private:
  const Device* const device_;
  mutable Mutex mu_;
  // Until it is done.
  std::shared_ptr<Work> work_ WEIR_GUARDED_BY(mu_);
  Point ended_ WEIR_GUARDED_BY(mu_);
  std::optional<End> end_ WEIR_GUARDED_BY(mu_);
  bool told_ WEIR_GUARDED_BY(mu_) = false;  // that it ended
  std::vector<absl::AnyInvocable<void()>> followers_ WEIR_GUARDED_BY(mu_);

  struct Watching {
    uint64_t number = 0;
    uint64_t of_work = 0;  // the work's own
    Watcher watcher;
  };
  uint64_t last_watch_ WEIR_GUARDED_BY(mu_) = 0;
  std::vector<Watching> watchers_ WEIR_GUARDED_BY(mu_);  // until it is done
};

}  // namespace weir
