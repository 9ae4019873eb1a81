// Waits for a work on the calling thread: for tests, benchmarks and programs in
// process. The server never waits. One waiter observes one work at a time, and
// ends the process if a work tells it what WorkObserver does not promise: to be
// planned, launched, returned or done twice, or anything after it was done.
#pragma once

#include "absl/status/status.h"
#include "kernels/base/clock.h"
#include "kernels/base/export.h"
#include "kernels/base/mutex.h"
#include "kernels/eval/work.h"

namespace weir {

class WEIR_EXPORT WorkWaiter final : public WorkObserver {
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

}  // namespace weir
