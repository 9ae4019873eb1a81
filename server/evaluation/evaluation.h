// One evaluation, from a bound request to its results: the work, the context of
// its own that it runs in, and the memory of its results until replies have
// them. It knows neither call nor service: whoever wants it (a call, a batch of
// calls) gives an executor on which it goes on and is told, and stays until it
// was told the last thing. Its destructor frees all that it holds.
//
// Everything here belongs to that executor; completions reach it from other
// threads only through a task that is posted there.
#pragma once

#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "kernels/base/mutex.h"
#include "kernels/eval/engine.h"
#include "kernels/eval/eval_context.h"
#include "kernels/eval/executor.h"
#include "kernels/eval/work.h"
#include "server/bytes/foreign_bytes.h"

namespace weir {

// For whom an evaluation runs. Told each thing at most once, inside Start or on
// the executor.
class EvaluationClient {
 public:
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

  // Submits the work in the evaluation's own context. `executor` and `client`
  // stay until client.Done(). At most one task is in the executor at a time.
  void Start(Executor& executor, EvaluationClient& client);
  // Queued work is dropped, what runs drains; Done() comes as ever.
  void Cancel() { work_.Cancel(); }

  // Once it is done.
  const Work& work() const { return work_; }
  Engine& engine() const { return *engine_; }

  // The pinned memory that all inline outputs of the done work lie in, wanted
  // or not, and that a reply which references one of them holds.
  size_t result_bytes();
  // Hands the results to a reply that references them `count` times; each
  // reference ends with release(arg). Once, if it is done.
  struct Results {
    ForeignBytes::ReleaseFn release = nullptr;
    void* arg = nullptr;
  };
  Results ShareResults(int count);

  // Ready for another Start: forgets the request and frees its results, keeps
  // the context and the memory of lists. REQUIRES: as for the destructor.
  void Clear();

 private:
  void OnReturn(Work&) override {}
  absl::Status OnPlanned(Work& work) override { return client_->Planned(work); }
  void OnLaunch(Work&) override { client_->Launched(); }
  void OnDone(Work& work) override;
  // As the executor of its own context.
  void Post(Task task) override;

  void WakeLocked() WEIR_REQUIRES(mu_);
  void OnWake();
  void TellIfDone();

  Engine* const engine_;
  std::shared_ptr<EvalContext> context_;
  Work work_;
  PinnedBuffer results_;  // of the work, once somebody asked
  Executor* executor_ = nullptr;
  EvaluationClient* client_ = nullptr;
  std::vector<Task> running_;  // of OnWake

  Mutex mu_;
  std::vector<Task> tasks_ WEIR_GUARDED_BY(mu_);
  bool active_ WEIR_GUARDED_BY(mu_) = false;  // from Start to Done
  bool busy_ WEIR_GUARDED_BY(mu_) = false;    // a thread is in Start or OnWake
  std::thread::id inside_ WEIR_GUARDED_BY(mu_);  // this one
  bool woken_ WEIR_GUARDED_BY(mu_) = false;      // a task is in the executor
  bool done_ WEIR_GUARDED_BY(mu_) = false;
};

}  // namespace weir
