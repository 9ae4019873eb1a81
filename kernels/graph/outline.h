// What a program would do, for those who ask before they have data: plain data,
// told by Program::Outline without sizes and by Plan::Step with all of them.
#pragma once

#include <string>
#include <vector>

#include "kernels/graph/graph.h"

namespace weir {

// One thing that is enqueued on the stream.
struct StepOutline {
  // The nodes that it computes, by name ("#3" without one). A copy to an output
  // has the node whose output that is, if that only gave a value another shape;
  // none where an input, a constant or a value twice is copied. A step that
  // moves a value into another layout has the node that makes it, or the first
  // that reads it.
  std::vector<std::string> nodes;
  // Kind of the device and operator whose kernel it is, "cpu/Gemm"; a copy to
  // an output is "cpu/copy".
  std::string kernel;
  // Of a plan's step: whose code it runs (KernelPlan::implementation).
  std::string implementation;
  // What it writes. The name of an output that nobody wants is empty.
  std::vector<ValueDecl> outputs;
};

// Dims that depend on the elements of an input are unknown, and what depends on
// them: a plan may find that some of the steps are done on the host instead.
struct ProgramOutline {
  std::vector<ValueDecl> inputs;
  std::vector<ValueDecl> outputs;
  std::vector<StepOutline> steps;
};

}  // namespace weir
