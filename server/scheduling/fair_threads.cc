#include "server/scheduling/fair_threads.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/base/thread_role.h"

namespace weir {
namespace {

constexpr size_t kFewest = 2;
constexpr size_t kMost = 8;
// What else runs needs CPUs too.
constexpr size_t kShare = 4;

}  // namespace

size_t FairThreads::DefaultThreads(int cpus) {
  return std::clamp(static_cast<size_t>(cpus) / kShare, kFewest, kMost);
}

FairThreads::FairThreads(size_t threads, Nanos longest_wait)
    : count_(std::max(threads, kFewest)), longest_wait_(longest_wait) {
  while (threads_.size() < count_) {
    threads_.emplace_back("weir-steps", [this] { Run(); });
  }
}

FairThreads::~FairThreads() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    posted_.NotifyAll();
  }
  for (Thread& thread : threads_) thread.Join();
}

void FairThreads::Post(const std::string& peer, Task task) {
  MutexLock lock(&mu_);
  const TaskId id = next_++;
  places_[id] = turns_.Push(peer, {.id = id, .run = std::move(task)});
  posted_.NotifyOne();
}

FairThreads::TaskId FairThreads::Post(const std::string& peer, Nanos deadline,
                                      Task task, Task late) {
  MutexLock lock(&mu_);
  const TaskId id = next_++;
  const TimerQueue::TimerId timer =
      timers_.Add(std::min(deadline, NowNanos() + longest_wait_),
                  [this, id] { RunLate(id); });
  places_[id] =
      turns_.Push(peer, {id, std::move(task), std::move(late), timer});
  posted_.NotifyOne();
  return id;
}

void FairThreads::PostFirst(const std::string& peer, Task task) {
  MutexLock lock(&mu_);
  const TaskId id = next_++;
  places_[id] = turns_.PushFirst(peer, {.id = id, .run = std::move(task)});
  posted_.NotifyOne();
}

FairThreads::Posted FairThreads::TakeOut(TaskId id) {
  MutexLock lock(&mu_);
  const auto found = places_.find(id);
  if (found == places_.end()) return {};
  Posted posted = turns_.Remove(found->second);
  places_.erase(found);
  return posted;
}

bool FairThreads::Remove(TaskId task) {
  const Posted posted = TakeOut(task);
  timers_.Cancel(posted.timer);
  return posted.id != 0;
}

void FairThreads::RunLate(TaskId id) {
  Posted posted = TakeOut(id);
  if (posted.late) posted.late();
}

size_t FairThreads::waiting() const {
  MutexLock lock(&mu_);
  return turns_.size();
}

size_t FairThreads::peers() const {
  MutexLock lock(&mu_);
  return turns_.owners();
}

void FairThreads::Run() {
  const ScopedThreadRole role(ThreadRole::kStep);
  mu_.Lock();
  while (true) {
    // While they stop nobody else comes.
    auto next = turns_.TakeIf({.taken = stopping_ ? SIZE_MAX : count_ - 1});
    if (!next.has_value()) {
      if (stopping_) break;
      posted_.Wait(&mu_);
      continue;
    }
    auto& [posted, peer] = *next;
    places_.erase(posted.id);
    mu_.Unlock();
    timers_.Cancel(posted.timer);
    posted.run();
    posted = {};
    mu_.Lock();
    turns_.Done(peer);
  }
  mu_.Unlock();
}

}  // namespace weir
