// For tests of queues of programs and plans: a door that keeps their threads
// busy, callers that collect what they are told, and a graph to compile.
#pragma once

#include <deque>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "kernels/base/mutex.h"
#include "kernels/graph/graph.h"
#include "tests/graph/test_operators.h"

namespace weir::testing {

// A door that a factory waits at.
class Gate {
 public:
  void Open() {
    MutexLock lock(&mu_);
    open_ = true;
    changed_.NotifyAll();
  }
  void Pass() {
    MutexLock lock(&mu_);
    ++arrived_;
    changed_.NotifyAll();
    while (!open_) changed_.Wait(&mu_);
  }
  void AwaitArrival(int times = 1) {
    MutexLock lock(&mu_);
    while (arrived_ < times) changed_.Wait(&mu_);
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool open_ WEIR_GUARDED_BY(mu_) = false;
  int arrived_ WEIR_GUARDED_BY(mu_) = 0;
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
inline auto Behind(Gate& gate) {
  return [&gate] {
    gate.Pass();
    return NegGraph();
  };
}

}  // namespace weir::testing
