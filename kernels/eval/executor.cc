#include "kernels/eval/executor.h"

#include <cstddef>
#include <utility>

namespace weir {
namespace {

// Tasks of one strand in a row: then it is the others' turn.
constexpr size_t kTurn = 16;

}  // namespace

std::shared_ptr<Strand> Strand::Create(TaskRunner* runner) {
  return std::shared_ptr<Strand>(new Strand(runner));
}

void Strand::Post(Task task) {
  {
    MutexLock lock(&mu_);
    tasks_.push_back(std::move(task));
    if (running_) return;
    running_ = true;
  }
  runner_->Post([self = shared_from_this()] { self->Run(); });
}

void Strand::Run() {
  for (size_t i = 0; i < kTurn; ++i) {
    Task task;
    {
      MutexLock lock(&mu_);
      if (tasks_.empty()) {
        running_ = false;
        return;
      }
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
  runner_->Post([self = shared_from_this()] { self->Run(); });
}

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
