#include "kernels/eval/work_waiter.h"

namespace weir {

void WorkWaiter::Reset() {
  MutexLock lock(&mu_);
  returned_ = done_ = false;
}

void WorkWaiter::OnReturn(Work& work) {
  MutexLock lock(&mu_);
  returned_ = true;
  at_return_ = work.status();
  changed_.NotifyAll();
}

void WorkWaiter::OnDone(Work&) {
  MutexLock lock(&mu_);
  done_ = true;
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
