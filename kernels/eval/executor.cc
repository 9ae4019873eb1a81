#include "kernels/eval/executor.h"

#include <utility>

namespace weir {

ThreadExecutor::ThreadExecutor(const char* name, ThreadRole role)
    : thread_(name, [this, role] { Run(role); }) {}

ThreadExecutor::~ThreadExecutor() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    posted_.NotifyOne();
  }
  thread_.Join();
}

void ThreadExecutor::Post(Task task) {
  MutexLock lock(&mu_);
  tasks_.push_back(std::move(task));
  posted_.NotifyOne();
}

void ThreadExecutor::Run(ThreadRole role) {
  const ScopedThreadRole scoped(role);
  mu_.Lock();
  while (!stopping_ || !tasks_.empty()) {
    if (tasks_.empty()) {
      posted_.Wait(&mu_);
      continue;
    }
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    mu_.Unlock();
    task();
    task = nullptr;
    mu_.Lock();
  }
  mu_.Unlock();
}

}  // namespace weir
