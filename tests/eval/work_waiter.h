// Waits for a work on the calling thread. The server never does. One waiter
// observes one work at a time, and ends the process if a work tells it what
// WorkObserver does not promise: to be planned, launched, returned or done
// twice, or anything after it was done.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "kernels/eval/work.h"

namespace weir {

class WorkWaiter final : public WorkObserver {
 public:
  // Both return the work's status (OK while it runs on), or DEADLINE_EXCEEDED
  // with the work going on.
  absl::Status WaitReturned(Work& work, Nanos deadline = kNoDeadline);
  absl::Status WaitDone(Work& work, Nanos deadline = kNoDeadline);

  // Before the work is submitted again.
  void Reset();

  void OnReturn(Work& work) override;
  absl::Status OnPlanned(Work& work) override;
  void OnLaunch(Work& work) override;
  void OnDone(Work& work) override;

 private:
  // Notes what may happen once, and not after the work is done.
  void Note(bool* happened, const char* what) WEIR_REQUIRES(mu_);

  Mutex mu_;
  CondVar changed_;
  bool planned_ WEIR_GUARDED_BY(mu_) = false;
  bool launched_ WEIR_GUARDED_BY(mu_) = false;
  bool returned_ WEIR_GUARDED_BY(mu_) = false;
  bool done_ WEIR_GUARDED_BY(mu_) = false;
  absl::Status at_return_ WEIR_GUARDED_BY(mu_);
};

inline void WorkWaiter::Reset() {
  MutexLock lock(&mu_);
  planned_ = launched_ = returned_ = done_ = false;
}

inline void WorkWaiter::Note(bool* happened, const char* what) {
  const char* const flaw = std::exchange(*happened, true) ? "twice"
                           : done_ && happened != &done_  ? "after it was done"
                                                          : nullptr;
  if (flaw == nullptr) return;
  std::fprintf(stderr, "a work %s %s\n", what, flaw);
  std::abort();
}

inline void WorkWaiter::OnReturn(Work& work) {
  MutexLock lock(&mu_);
  Note(&returned_, "returned");
  at_return_ = work.status();
  changed_.NotifyAll();
}

inline absl::Status WorkWaiter::OnPlanned(Work&) {
  MutexLock lock(&mu_);
  Note(&planned_, "was planned");
  return absl::OkStatus();
}

inline void WorkWaiter::OnLaunch(Work&) {
  MutexLock lock(&mu_);
  Note(&launched_, "was launched");
}

inline void WorkWaiter::OnDone(Work&) {
  MutexLock lock(&mu_);
  Note(&done_, "was done");
  changed_.NotifyAll();
}

inline absl::Status WorkWaiter::WaitReturned(Work&, Nanos deadline) {
  MutexLock lock(&mu_);
  while (!returned_) {
    if (deadline == kNoDeadline) {
      changed_.Wait(&mu_);
    } else if (!changed_.WaitUntil(&mu_, ToTimePoint(deadline)) && !returned_) {
      return absl::DeadlineExceededError("the work has not returned yet");
    }
  }
  return at_return_;
}

inline absl::Status WorkWaiter::WaitDone(Work& work, Nanos deadline) {
  MutexLock lock(&mu_);
  while (!done_) {
    if (deadline == kNoDeadline) {
      changed_.Wait(&mu_);
    } else if (!changed_.WaitUntil(&mu_, ToTimePoint(deadline)) && !done_) {
      return absl::DeadlineExceededError("the work is not done yet");
    }
  }
  return work.status();
}

}  // namespace weir
