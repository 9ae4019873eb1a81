// Where continuations run. Completion threads only post here: launching,
// copying into staging and writing replies happen on the thread behind the
// executor (the I/O thread of a call in the server, one plain thread
// otherwise).
#pragma once

#include <deque>

#include "absl/functional/any_invocable.h"
#include "kernels/base/export.h"
#include "kernels/base/mutex.h"
#include "kernels/base/thread.h"
#include "kernels/base/thread_role.h"

namespace weir {

// Thread-safe. Tasks of one executor run in order, one at a time; Post runs
// none itself: whoever posts may hold locks that a task takes.
class WEIR_EXPORT Executor {
 public:
  using Task = absl::AnyInvocable<void()>;
  virtual ~Executor() = default;
  virtual void Post(Task task) = 0;
};

// One thread of its own.
class WEIR_EXPORT ThreadExecutor final : public Executor {
 public:
  // `name` as Thread has it.
  explicit ThreadExecutor(const char* name = "weir-executor",
                          ThreadRole role = ThreadRole::kOther);
  ~ThreadExecutor() override;  // runs what was posted, then stops
  void Post(Task task) override;

 private:
  void Run(ThreadRole role);

  Mutex mu_;
  CondVar posted_;
  bool stopping_ WEIR_GUARDED_BY(mu_) = false;
  std::deque<Task> tasks_ WEIR_GUARDED_BY(mu_);
  Thread thread_;
};

}  // namespace weir
