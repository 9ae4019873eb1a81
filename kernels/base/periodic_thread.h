// A thread of its own that does something again and again until the object is
// destroyed: looking at files, asking others whether they still move. Owned and
// destroyed by one thread.
#pragma once

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "kernels/base/export.h"
#include "kernels/base/mutex.h"
#include "kernels/base/thread.h"

namespace weir {

class WEIR_EXPORT PeriodicThread {
 public:
  // `name` is the thread's, at most 15 bytes. `run` is called for the first
  // time after one interval.
  PeriodicThread(const char* name, absl::Duration interval,
                 absl::AnyInvocable<void()> run);
  // Waits for a call of `run`; none begins afterwards.
  ~PeriodicThread();
  PeriodicThread(const PeriodicThread&) = delete;
  PeriodicThread& operator=(const PeriodicThread&) = delete;

 private:
  // False when it is time to end.
  bool Pause();

  const absl::Duration interval_;
  absl::AnyInvocable<void()> run_;
  Mutex mu_;
  CondVar stop_;
  bool stopping_ WEIR_GUARDED_BY(mu_) = false;
  Thread thread_;
};

}  // namespace weir
