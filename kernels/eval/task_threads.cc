#include "kernels/eval/task_threads.h"

#include <utility>

#include "kernels/base/thread_role.h"

namespace weir {

TaskThreads::~TaskThreads() {
  std::vector<Thread> threads;
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    posted_.NotifyAll();
    threads.swap(threads_);
  }
  for (Thread& thread : threads) thread.Join();
}

void TaskThreads::Post(Executor::Task task) {
  {
    MutexLock lock(&mu_);
    if (!stopping_) {
      tasks_.push_back(std::move(task));
      if (tasks_.size() > idle_ && threads_.size() < max_) {
        threads_.emplace_back(name_, [this] { Run(); });
      } else {
        posted_.NotifyOne();
      }
      return;
    }
  }
  // Nobody would wait for a new thread.
  task();
}

size_t TaskThreads::threads() const {
  MutexLock lock(&mu_);
  return threads_.size();
}

void TaskThreads::Run() {
  const ScopedThreadRole role(role_);
  mu_.Lock();
  while (!stopping_ || !tasks_.empty()) {
    if (tasks_.empty()) {
      ++idle_;
      posted_.Wait(&mu_);
      --idle_;
      continue;
    }
    Executor::Task task = std::move(tasks_.front());
    tasks_.pop_front();
    mu_.Unlock();
    task();
    task = nullptr;
    mu_.Lock();
  }
  mu_.Unlock();
}

}  // namespace weir
