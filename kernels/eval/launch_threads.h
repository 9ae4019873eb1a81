// Threads for what keeps a thread on the way to a stream: launches of works
// with so many that they wait for room in the driver's queue, and of those that
// decode pictures on the host; copies of large inputs. A thread is made when
// none is free, up to one for each lane, so that what has its lane has its
// thread too. Owned by the engine; thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "kernels/base/export.h"
#include "kernels/base/mutex.h"
#include "kernels/base/thread.h"
#include "kernels/eval/executor.h"

namespace weir {

class WEIR_EXPORT LaunchThreads {
 public:
  explicit LaunchThreads(size_t max) : max_(max) {}
  ~LaunchThreads();  // runs what was posted, then stops
  LaunchThreads(const LaunchThreads&) = delete;
  LaunchThreads& operator=(const LaunchThreads&) = delete;

  // Once they stop, a task that posts another runs that itself, in here.
  void Post(Executor::Task task);

  size_t threads() const;

 private:
  void Run();

  const size_t max_;
  mutable Mutex mu_;
  CondVar posted_;
  bool stopping_ WEIR_GUARDED_BY(mu_) = false;
  size_t idle_ WEIR_GUARDED_BY(mu_) = 0;  // or woken and not yet at work
  std::deque<Executor::Task> tasks_ WEIR_GUARDED_BY(mu_);
  std::vector<Thread> threads_ WEIR_GUARDED_BY(mu_);
};

}  // namespace weir
