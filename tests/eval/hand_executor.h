// An executor for tests of machines that post to one. Thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>

#include "kernels/base/mutex.h"
#include "kernels/eval/executor.h"
#include "tests/base/event.h"

namespace weir {

// Runs what is posted when the test says so.
class HandExecutor final : public Executor {
 public:
  void Post(Task task) override {
    MutexLock lock(&mu_);
    tasks_.push_back(std::move(task));
    posted.Set();
  }
  size_t RunAll() {
    for (size_t count = 0;; ++count) {
      Task task;
      {
        MutexLock lock(&mu_);
        if (tasks_.empty()) return count;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }
  // Without running it.
  void DropAll() {
    std::deque<Task> dropped;  // goes without the lock
    MutexLock lock(&mu_);
    dropped.swap(tasks_);
  }
  Event posted;

 private:
  Mutex mu_;
  std::deque<Task> tasks_ WEIR_GUARDED_BY(mu_);
};

}  // namespace weir
