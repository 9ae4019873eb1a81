// A few threads that work for many peers in turn: however much one peer has
// them do, another waits for no more than what is running. Made by Server,
// outlives the calls that post here. Thread-safe; bounds nothing itself: a call
// that was admitted has one task here at a time.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "kernels/base/mutex.h"

namespace weir {

class FairThreads {
 public:
  using Task = absl::AnyInvocable<void()>;

  // Two at least. See DefaultThreads.
  explicit FairThreads(size_t threads);
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
  void Post(std::string peer, Task task);

  // Tasks that have not begun.
  size_t waiting() const;

 private:
  struct Peer {
    std::deque<Task> tasks;  // not begun
    size_t running = 0;
  };
  using Peers = std::unordered_map<std::string, Peer>;

  void Run();
  // Whose turn it is, taken out of turns_; null if nobody may begin.
  Peers::value_type* Next() WEIR_REQUIRES(mu_);

  const size_t count_;
  mutable Mutex mu_;
  CondVar posted_;
  bool stopping_ WEIR_GUARDED_BY(mu_) = false;
  Peers peers_ WEIR_GUARDED_BY(mu_);  // who waits or has a task running
  std::deque<Peers::value_type*> turns_ WEIR_GUARDED_BY(mu_);  // who waits
  size_t waiting_ WEIR_GUARDED_BY(mu_) = 0;
  std::vector<std::thread> threads_;
};

}  // namespace weir
