// The steps of a plan. Internal to this layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/graph/plan.h"
#include "kernels/graph/program_core.h"

namespace weir {

// Where an operand lies: in one of a run's blocks, or at an address that the
// plan or its program owns.
struct Operand {
  enum class Base : uint8_t { kAddress, kInput, kOutputs, kArena };
  Base base = Base::kAddress;
  union {
    const void* address = nullptr;
    size_t offset;  // kOutputs, kArena
    size_t input;   // kInput: which one
  };
};

// Runs a kernel, or copies its one input to its one output.
struct PlanStep {
  const KernelPlan* kernel = nullptr;  // null: a copy
  uint32_t node = 0;                   // index in the caller's graph
  uint32_t position = 0;               // in the compiled graph
  uint32_t first_operand = 0;          // inputs, then outputs
  uint32_t inputs = 0;
  uint32_t outputs = 0;
  size_t scratch = 0;  // offset in the arena
  bool has_scratch = false;
  size_t copy_bytes = 0;
  // For Plan::Step: Body::written from here on, or, of a copy, which output.
  size_t first_written = 0;
};

struct Plan::Body {
  std::vector<PlanStep> steps;
  std::vector<Operand> operands;
  std::vector<std::unique_ptr<const KernelPlan>> kernels;
  // What the steps with kernels write: value and dims.
  std::vector<std::pair<int, Dims>> written;
  // Values computed on the host that steps read.
  std::vector<std::shared_ptr<const Constant>> host_values;
  ConstantBlock device_values;
};

}  // namespace weir
