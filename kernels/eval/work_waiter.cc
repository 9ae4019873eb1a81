#include "kernels/eval/work_waiter.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace weir {

void WorkWaiter::Reset() {
  MutexLock lock(&mu_);
  planned_ = launched_ = returned_ = done_ = false;
}

void WorkWaiter::Note(bool* happened, const char* what) {
  const char* const flaw = std::exchange(*happened, true) ? "twice"
                           : done_ && happened != &done_  ? "after it was done"
                                                          : nullptr;
  if (flaw == nullptr) return;
  std::fprintf(stderr, "a work %s %s\n", what, flaw);
  std::abort();
}

void WorkWaiter::OnReturn(Work& work) {
  MutexLock lock(&mu_);
  Note(&returned_, "returned");
  at_return_ = work.status();
  changed_.NotifyAll();
}

absl::Status WorkWaiter::OnPlanned(Work&) {
  MutexLock lock(&mu_);
  Note(&planned_, "was planned");
  return absl::OkStatus();
}

void WorkWaiter::OnLaunch(Work&) {
  MutexLock lock(&mu_);
  Note(&launched_, "was launched");
}

void WorkWaiter::OnDone(Work&) {
  MutexLock lock(&mu_);
  Note(&done_, "was done");
  changed_.NotifyAll();
}

absl::Status WorkWaiter::WaitReturned(Work&, Nanos deadline) {
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

absl::Status WorkWaiter::WaitDone(Work& work, Nanos deadline) {
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
