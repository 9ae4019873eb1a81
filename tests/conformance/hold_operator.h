// weir.Hold, an operator for tests: y = x for floats, and its work holds its
// stream until it is let go, on the CPU and on CUDA. Thread-safe.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "kernels/ops/registry.h"

namespace weir {

class HoldOperator {
 public:
  HoldOperator();
  ~HoldOperator();
  HoldOperator(const HoldOperator&) = delete;
  HoldOperator& operator=(const HoldOperator&) = delete;

  // Does nothing where it is registered. The registry may outlive this object.
  absl::Status Register(OpRegistry& registry);

  // Returns once one of its works has begun, which can no longer be dropped.
  void WaitUntilHeld();

  // Lets its works go, those to come as well. Before a device ends.
  void Open();

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace weir
