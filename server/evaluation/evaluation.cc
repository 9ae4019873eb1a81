#include "server/evaluation/evaluation.h"

#include <utility>

#include "server/evaluation/fresh_rng.h"

namespace weir {

Evaluation::Evaluation(Engine& engine)
    : engine_(&engine), results_(&work_, &engine.pinned()) {
  ContextOptions options;
  options.executor = this;
  options.rng = FreshRng();
  context_ = EvalContext::Create(engine_, options);
}

Evaluation::~Evaluation() = default;

void Evaluation::Clear() {
  results_.Clear();
  work_.DropProgram();
  WorkRequest& request = work_.request;
  request.graph = nullptr;
  request.inputs.clear();
  request.outputs.clear();
  request.after.clear();
  request.signal.clear();
  request.mode.reset();
  request.seed.reset();
  request.cpu_threads = 0;
  request.deadline = kNoDeadline;
  request.label.clear();
  request.owner = {};
  client_ = nullptr;
}

void Evaluation::Start(EvaluationClient& client) {
  client_ = &client;
  {
    MutexLock lock(&mu_);
    active_ = true;
    busy_ = true;
    inside_ = ThisThread();
    done_ = false;
  }
  {
    // The context is this object's own: nobody else can be in it.
    absl::StatusOr<Activation> activation = context_->Enter(NewHandlerId());
    activation->Submit(&work_, this);
  }
  client.Submitted();
  TellIfDone();
}

// With busy_ set, which it ends.
void Evaluation::TellIfDone() {
  {
    MutexLock lock(&mu_);
    busy_ = false;
    if (!done_) return;
    // A GoOn that is on its way must find this object.
    if (woken_) return;
    active_ = false;
    tasks_.clear();
  }
  client_->Done();
}

void Evaluation::OnDone(Work&) {
  MutexLock lock(&mu_);
  done_ = true;
  if (busy_ && ThisThread() == inside_) return;
  WakeLocked();
}

void Evaluation::Post(Task task) {
  MutexLock lock(&mu_);
  // Once it is done there is no work left that a task could move on.
  if (!active_) return;
  tasks_.push_back(std::move(task));
  WakeLocked();
}

void Evaluation::WakeLocked() {
  if (woken_) return;
  woken_ = true;
  client_->Wake(*this);
}

void Evaluation::GoOn() {
  {
    MutexLock lock(&mu_);
    // Only here: what wakes us from now on has asked for another GoOn, which
    // TellIfDone waits for.
    woken_ = false;
    busy_ = true;
    inside_ = ThisThread();
  }
  while (true) {
    {
      MutexLock lock(&mu_);
      if (tasks_.empty()) break;
      running_.swap(tasks_);
    }
    for (Task& task : running_) task();
    running_.clear();
  }
  TellIfDone();
}

}  // namespace weir
