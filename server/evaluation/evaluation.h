// One evaluation, from a bound request to its results: the work, the context of
// its own that it runs in, and the memory of its results until replies have
// them. It knows neither call nor service: its client (a call, a batch of
// calls) lends it the thread on which it goes on, is told there what becomes of
// it, and stays until it was told the last thing. Its destructor frees all that
// it holds.
//
// Everything here belongs to the client's thread; completions reach it from
// others only through EvaluationClient::Wake.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kernels/base/mutex.h"
#include "kernels/base/thread.h"
#include "kernels/eval/engine.h"
#include "kernels/eval/eval_context.h"
#include "kernels/eval/executor.h"
#include "kernels/eval/work.h"
#include "server/evaluation/work_results.h"

namespace weir {

class Evaluation;

// For whom an evaluation runs. Told each thing at most once, inside Start or
// GoOn.
class EvaluationClient {
 public:
  // Has evaluation.GoOn() called once, soon, on the client's thread; not in
  // here, where locks are held that it takes. Called from any thread, and again
  // only when that GoOn has begun.
  virtual void Wake(Evaluation& evaluation) = 0;

  // The sizes of the outputs are known: an error ends the evaluation before
  // anything is taken for it.
  virtual absl::Status Planned(const Work&) { return absl::OkStatus(); }
  // It waits no more: it goes to the device.
  virtual void Launched() {}
  // It was submitted, whatever became of it: from here on Cancel() ends it.
  virtual void Submitted() {}
  // It is done. Exactly once and last: the evaluation may end, or start anew,
  // inside.
  virtual void Done() = 0;

 protected:
  ~EvaluationClient() = default;
};

class Evaluation final : private WorkObserver, private Executor {
 public:
  explicit Evaluation(Engine& engine);
  ~Evaluation() override;  // REQUIRES: not started, or done

  // To be filled before Start. Pieces of inputs stay until it is done.
  WorkRequest& request() { return work_.request; }

  // Submits the work in the evaluation's own context. `client` stays until its
  // Done().
  void Start(EvaluationClient& client);
  // For EvaluationClient::Wake alone.
  void GoOn();
  // Queued work is dropped, what runs drains; Done() comes as ever.
  void Cancel() { work_.Cancel(); }

  // Once it is done.
  const Work& work() const { return work_; }
  Engine& engine() const { return *engine_; }

  WorkResults& results() { return results_; }

  // Ready for another Start: forgets the request and frees its results, keeps
  // the context and the memory of lists. REQUIRES: as for the destructor.
  void Clear();

 private:
  void OnReturn(Work&) override {}
  absl::Status OnPlanned(Work& work) override { return client_->Planned(work); }
  void OnLaunch(Work&) override { client_->Launched(); }
  void OnDone(Work& work) override;
  // As the executor of its own context, which has this one work: what is left
  // of it once that is done has nothing to move on, and is dropped.
  void Post(Task task) override;

  void WakeLocked() WEIR_REQUIRES(mu_);
  void TellIfDone();

  Engine* const engine_;
  std::shared_ptr<EvalContext> context_;
  Work work_;
  WorkResults results_;
  EvaluationClient* client_ = nullptr;
  std::vector<Task> running_;  // of GoOn

  Mutex mu_;
  std::vector<Task> tasks_ WEIR_GUARDED_BY(mu_);
  bool active_ WEIR_GUARDED_BY(mu_) = false;  // from Start to Done
  bool busy_ WEIR_GUARDED_BY(mu_) = false;    // a thread is in Start or GoOn
  ThreadId inside_ WEIR_GUARDED_BY(mu_);      // this one
  bool woken_ WEIR_GUARDED_BY(mu_) = false;   // GoOn is on its way
  bool done_ WEIR_GUARDED_BY(mu_) = false;
};

}  // namespace weir
