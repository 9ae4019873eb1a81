// Where continuations run. Completion threads only post here: launching,
// copying into staging and writing replies happen on the thread behind the
// executor (the I/O thread of a call in the server, else whichever thread of
// the engine's is free); large launches and copies on Engine::launcher.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "kernels/base/export.h"
#include "kernels/base/mutex.h"
#include "kernels/base/thread.h"
#include "kernels/base/thread_role.h"

namespace weir {

// Thread-safe. Tasks of one executor run in order, one at a time; Post runs
// none itself: whoever posts may hold locks that a task takes. An executor of
// contexts may drop what it has been given while none of their works is
// unfinished, or deferred: such a task has nothing to move on.
class WEIR_EXPORT Executor {
 public:
  using Task = absl::AnyInvocable<void()>;
  virtual ~Executor() = default;
  virtual void Post(Task task) = 0;
};

// Runs what it is given on whichever of its threads is free, side by side.
// Thread-safe.
class WEIR_EXPORT TaskRunner {
 public:
  virtual ~TaskRunner() = default;
  // Runs nothing itself, while the runner is not about to stop.
  virtual void Post(Executor::Task task) = 0;
};

// An executor without a thread of its own: its tasks run in turns on the
// threads of a runner, which outlives it. It stays until they have run.
class WEIR_EXPORT Strand final : public Executor,
                                 public std::enable_shared_from_this<Strand> {
 public:
  static std::shared_ptr<Strand> Create(TaskRunner* runner);
  void Post(Task task) override;

 private:
  explicit Strand(TaskRunner* runner) : runner_(runner) {}
  void Run();

  TaskRunner* const runner_;
  Mutex mu_;
  bool running_ WEIR_GUARDED_BY(mu_) = false;  // some thread has the strand
  std::deque<Task> tasks_ WEIR_GUARDED_BY(mu_);
};

// One thread of its own.
class WEIR_EXPORT ThreadExecutor final : public Executor {
 public:
  using TaskId = uint64_t;  // 0 is never a task

  // `name` as Thread has it.
  ThreadExecutor(const char* name, ThreadRole role);
  ~ThreadExecutor() override;  // runs what was posted, then stops
  void Post(Task task) override;
  // The same of a task that Remove may call off. `*id` is written before it
  // may begin.
  void Post(Task task, TaskId* id);

  // Nobody wants the task any more. True: it will not run, and what it held is
  // gone. False if it has begun, or there is no such task.
  bool Remove(TaskId id);

  // Tasks that have not begun.
  size_t waiting() const;

 private:
  void Run(ThreadRole role);

  mutable Mutex mu_;
  CondVar posted_;
  bool stopping_ WEIR_GUARDED_BY(mu_) = false;
  TaskId last_ WEIR_GUARDED_BY(mu_) = 0;
  std::map<TaskId, Task> tasks_ WEIR_GUARDED_BY(mu_);  // as they were posted
  Thread thread_;
};

}  // namespace weir
