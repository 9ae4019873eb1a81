// For tests of queues of programs and plans: a door that keeps their threads
// busy, callers that collect what they are told, and a graph to compile.
#pragma once

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "kernels/base/mutex.h"
#include "kernels/graph/graph.h"
#include "tests/graph/test_operators.h"

namespace weir::testing {

// A door that a factory waits at. Copies are the same door: a lambda that waits
// on another thread holds its own, since a thread that is let through may still
// be inside when the test that let it through has ended.
class Gate {
 public:
  void Open() const {
    MutexLock lock(&door_->mu);
    door_->open = true;
    door_->changed.NotifyAll();
  }
  void Pass() const {
    MutexLock lock(&door_->mu);
    ++door_->arrived;
    door_->changed.NotifyAll();
    while (!door_->open) door_->changed.Wait(&door_->mu);
  }
  void AwaitArrival(int times = 1) const {
    MutexLock lock(&door_->mu);
    while (door_->arrived < times) door_->changed.Wait(&door_->mu);
  }

 private:
  struct Door {
    Mutex mu;
    CondVar changed;
    bool open WEIR_GUARDED_BY(mu) = false;
    int arrived WEIR_GUARDED_BY(mu) = 0;
  };
  const std::shared_ptr<Door> door_ = std::make_shared<Door>();
};

// Collects what `done` was told.
template <typename T>
class Answers {
 public:
  absl::AnyInvocable<void(T)> Sink() {
    return [this](T answer) {
      MutexLock lock(&mu_);
      answers_.push_back(std::move(answer));
      changed_.NotifyAll();
    };
  }
  T Next() {
    MutexLock lock(&mu_);
    while (answers_.empty()) changed_.Wait(&mu_);
    T answer = std::move(answers_.front());
    answers_.pop_front();
    return answer;
  }
  size_t size() {
    MutexLock lock(&mu_);
    return answers_.size();
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::deque<T> answers_ WEIR_GUARDED_BY(mu_);
};

inline absl::StatusOr<Graph> NegGraph() {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim()})};
  graph.constants["c"] = Floats({25}, std::vector<float>(25, 1));
  graph.nodes = {Node("Neg", {"x"}, {"y"})};
  graph.outputs = {"y", "c"};
  return graph;
}

// A factory whose compilation stands still before the gate.
inline auto Behind(const Gate& gate) {
  return [gate] {
    gate.Pass();
    return NegGraph();
  };
}

}  // namespace weir::testing
