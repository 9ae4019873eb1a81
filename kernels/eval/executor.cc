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
  TaskId unused = 0;
  Post(std::move(task), &unused);
}

void ThreadExecutor::Post(Task task, TaskId* id) {
  MutexLock lock(&mu_);
  *id = ++last_;
  tasks_.emplace_hint(tasks_.end(), last_, std::move(task));
  posted_.NotifyOne();
}

bool ThreadExecutor::Remove(TaskId id) {
  std::map<TaskId, Task>::node_type removed;  // goes without the lock
  MutexLock lock(&mu_);
  removed = tasks_.extract(id);
  return !removed.empty();
}

size_t ThreadExecutor::waiting() const {
  MutexLock lock(&mu_);
  return tasks_.size();
}

void ThreadExecutor::Run(ThreadRole role) {
  const ScopedThreadRole scoped(role);
  mu_.Lock();
  while (!stopping_ || !tasks_.empty()) {
    if (tasks_.empty()) {
      posted_.Wait(&mu_);
      continue;
    }
    auto first = tasks_.extract(tasks_.begin());
    mu_.Unlock();
    first.mapped()();
    first = {};
    mu_.Lock();
  }
  mu_.Unlock();
}

}  // namespace weir
