// A few threads that work for many peers in turn: however much one peer has
// them do, another waits for no more than what is running. Made by Server,
// outlives the calls that post here. Thread-safe; bounds nothing itself: a call
// that was admitted has one task here at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "kernels/base/clock.h"
#include "kernels/base/longest_wait.h"
#include "kernels/base/mutex.h"
#include "kernels/base/thread.h"
#include "kernels/base/timer_queue.h"
#include "kernels/base/turn_queue.h"

namespace weir {

class FairThreads {
 public:
  using Task = absl::AnyInvocable<void()>;
  using TaskId = uint64_t;

  // Two at least. See DefaultThreads.
  explicit FairThreads(size_t threads, Nanos longest_wait = kLongestWait);
  // Runs what was posted, and what that posts, then stops.
  ~FairThreads();
  FairThreads(const FairThreads&) = delete;
  FairThreads& operator=(const FairThreads&) = delete;

  // For a process that may use so many CPUs.
  static size_t DefaultThreads(int cpus);

  // Runs `task` once. Tasks of one peer begin in the order in which they were
  // posted. A free thread takes one of the peer that has the fewest running;
  // among such peers they go in turn. One peer runs on all threads but one, so
  // that there is one for whoever comes next.
  void Post(const std::string& peer, Task task);
  // The same for what somebody waits for. If it has not begun by `deadline`, or
  // the longest wait after this, it does not begin: `late` runs once instead,
  // on a thread of timers, and must be short.
  TaskId Post(const std::string& peer, Nanos deadline, Task task, Task late);
  // For what gives memory back: before the peer's other tasks.
  void PostFirst(const std::string& peer, Task task);

  // Nobody wants the task any more. True: neither it nor what was to run
  // instead will run.
  bool Remove(TaskId task);

  // Tasks that have not begun.
  size_t waiting() const;
  // Peers with tasks that wait or run.
  size_t peers() const;

 private:
  struct Posted {
    TaskId id = 0;
    Task run = nullptr;
    Task late = nullptr;
    TimerQueue::TimerId timer = 0;
  };
  using Turns = TurnQueue<Posted>;

  void Run();
  void RunLate(TaskId id);
  Posted TakeOut(TaskId id);  // of no task if it is not there

  const size_t count_;
  const Nanos longest_wait_;
  mutable Mutex mu_;
  CondVar posted_;
  bool stopping_ WEIR_GUARDED_BY(mu_) = false;
  TaskId next_ WEIR_GUARDED_BY(mu_) = 1;
  Turns turns_ WEIR_GUARDED_BY(mu_);
  std::unordered_map<TaskId, Turns::Place> places_ WEIR_GUARDED_BY(mu_);
  std::vector<Thread> threads_;
  TimerQueue timers_;  // last: its callbacks find the rest
};

}  // namespace weir
