// Threads that run what they are given in the order of its arrival, side by
// side. A thread is made when none is free, up to a bound. Thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "kernels/base/export.h"
#include "kernels/base/mutex.h"
#include "kernels/base/thread.h"
#include "kernels/base/thread_role.h"
#include "kernels/eval/executor.h"

namespace weir {

class WEIR_EXPORT TaskThreads final : public TaskRunner {
 public:
  // `name` as Thread has it.
  TaskThreads(const char* name, size_t max, ThreadRole role)
      : name_(name), max_(max), role_(role) {}
  ~TaskThreads() override;  // runs what was posted, then stops
  TaskThreads(const TaskThreads&) = delete;
  TaskThreads& operator=(const TaskThreads&) = delete;

  // Once they stop, a task that posts another runs that itself, in here.
  void Post(Executor::Task task) override;

  size_t threads() const;

 private:
  void Run();

  const char* const name_;
  const size_t max_;
  const ThreadRole role_;
  mutable Mutex mu_;
  CondVar posted_;
  bool stopping_ WEIR_GUARDED_BY(mu_) = false;
  size_t idle_ WEIR_GUARDED_BY(mu_) = 0;  // or woken and not yet at work
  std::deque<Executor::Task> tasks_ WEIR_GUARDED_BY(mu_);
  std::vector<Thread> threads_ WEIR_GUARDED_BY(mu_);
};

}  // namespace weir
