// The worker threads of a CPU device. Each runs one job at a time: a strand's
// next work, or its share of a wide loop. `size` of them run at a time;
// one that waits for other work gives its place to another, so that waits among
// works never use up the pool, and runs beside it when its wait is over. A
// thread that took part in a wide loop looks for the next one for a moment
// before it sleeps: the steps of a program follow each other faster than a
// sleeper wakes. Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "kernels/base/atomic.h"
#include "kernels/base/mutex.h"
#include "kernels/base/thread.h"
#include "kernels/device/cpu_team.h"

namespace weir {

class WorkerPool final : public CpuTeam {
 public:
  static constexpr size_t kLevels = 6;  // of priority; 0 goes first

  class Job {
   public:
    virtual ~Job() = default;
    virtual void Run() = 0;
  };

  explicit WorkerPool(int size);
  ~WorkerPool() override;  // REQUIRES: nothing is scheduled or running

  // `job` stays alive until its Run has begun.
  void Schedule(Job* job, size_t level);

  // Around a wait for other jobs; does nothing but on a thread of `pool`.
  class BlockingScope {
   public:
    explicit BlockingScope(WorkerPool* pool);
    ~BlockingScope();
    BlockingScope(const BlockingScope&) = delete;
    BlockingScope& operator=(const BlockingScope&) = delete;

   private:
    WorkerPool* const pool_;  // null on a thread that is not the pool's
  };

  int size() const override { return static_cast<int>(size_); }
  void Run(int64_t n, int64_t grain,
           absl::FunctionRef<void(int64_t, int64_t)> fn) override;

 private:
  struct WideLoop;

  void Work();
  WideLoop* OpenLoop() WEIR_REQUIRES(mu_);
  Job* NextJob() WEIR_REQUIRES(mu_);
  void WakeOrAdd() WEIR_REQUIRES(mu_);
  // Gives the lock up until there may be something to do, or for a moment.
  void Look() WEIR_REQUIRES(mu_);

  const size_t size_;
  Mutex mu_;
  CondVar work_;
  bool stopping_ WEIR_GUARDED_BY(mu_) = false;
  size_t running_ WEIR_GUARDED_BY(mu_) = 0;  // neither idle nor blocked
  size_t idle_ WEIR_GUARDED_BY(mu_) = 0;
  size_t looking_ WEIR_GUARDED_BY(mu_) = 0;  // awake, without anything to do
  // Changes, under mu_, when there may be something to do.
  Atomic<uint64_t> offers_{0};
  std::array<std::deque<Job*>, kLevels> ready_ WEIR_GUARDED_BY(mu_);
  std::vector<WideLoop*> loops_ WEIR_GUARDED_BY(mu_);
  std::vector<Thread> threads_ WEIR_GUARDED_BY(mu_);
};

}  // namespace weir
