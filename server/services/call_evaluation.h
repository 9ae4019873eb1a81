// One evaluation on behalf of one call: a work and the context of its own that
// a stateless request gets. Objects are kept per I/O thread and used again, so
// that a request in steady state allocates nothing here.
//
// Lives on the I/O thread of its call; completions reach it from other threads
// only through ServerCall::Resume.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <thread>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kernels/base/mutex.h"
#include "kernels/eval/engine.h"
#include "kernels/eval/eval_context.h"
#include "kernels/eval/executor.h"
#include "kernels/eval/work.h"
#include "server/observe/metrics.h"
#include "server/rpc/reply_buffer.h"
#include "server/rpc/server_call.h"

namespace weir {

class CallEvaluation final : public WorkObserver, private Executor {
 public:
  // Answers the call from the finished work (Reply or Fail, exactly once), at
  // once or later, and then calls Release. Runs on the call's I/O thread.
  using FinishFn = void (*)(CallEvaluation& evaluation, void* arg);

  // On the call's I/O thread, as Release: one that is free there, or a new one.
  static CallEvaluation* Acquire(Engine& engine, Metrics& metrics);
  // The evaluation must have finished, or never have been started.
  static void Release(CallEvaluation* evaluation);
  ~CallEvaluation() override;

  // Filled in by the service. The inputs' pieces point into the request's
  // slices and the call's arena.
  WorkRequest& request() { return work_.request; }

  // Submits the work for `call`. `finish` runs exactly once, possibly inside.
  void Start(ServerCall& call, FinishFn finish, void* arg);

  Work& work() { return work_; }
  ServerCall& call() { return *call_; }
  Engine& engine() { return *engine_; }

  // RESOURCE_EXHAUSTED, naming the largest output, if the inline outputs are
  // more than a reply may have; `bytes_of` says how many output i takes in it.
  absl::Status CheckOutputs(absl::FunctionRef<size_t(size_t i)> bytes_of) const;

  // The pinned memory that all inline outputs of the done work lie in, wanted
  // or not, and that a reply which references one of them holds. A call that
  // has replied has none.
  size_t result_bytes();
  // Hands the work's results to a reply that references them `count` times;
  // each reference ends with release(arg).
  struct Results {
    ReplyBuffer::ReleaseFn release = nullptr;
    void* arg = nullptr;
  };
  Results ShareResults(int count);

 private:
  explicit CallEvaluation(Engine& engine);

  void OnReturn(Work&) override {}
  absl::Status OnPlanned(Work& work) override;
  void OnLaunch(Work&) override { call_->Launched(); }
  void OnDone(Work& work) override;
  void Post(Task task) override;

  void WakeLocked() WEIR_REQUIRES(mu_);
  void OnWake();
  bool TryFinish();
  void RecordStages();

  Engine* const engine_;
  Metrics* metrics_ = nullptr;
  std::shared_ptr<EvalContext> context_;
  Work work_;
  PinnedBuffer results_;  // of the work, once somebody asked
  ServerCall* call_ = nullptr;
  FinishFn finish_ = nullptr;
  void* finish_arg_ = nullptr;
  std::thread::id io_thread_;

  Mutex mu_;
  std::deque<Task> tasks_ WEIR_GUARDED_BY(mu_);
  bool active_ WEIR_GUARDED_BY(mu_) = false;  // from Start to the answer
  bool busy_ WEIR_GUARDED_BY(mu_) = false;    // the I/O thread is in here
  bool woken_ WEIR_GUARDED_BY(mu_) = false;   // a Resume is on its way
  bool done_ WEIR_GUARDED_BY(mu_) = false;
};

}  // namespace weir
