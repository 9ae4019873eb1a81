// How outlines are made. Internal to this layer.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/graph/evaluation_size.h"
#include "kernels/graph/outline.h"
#include "kernels/graph/program_core.h"

namespace weir {

// The step of a node's kernel, without its outputs.
StepOutline NodeStep(const ProgramCore& core, const LoweredNode& node);

// The step that copies an input, a constant or a value to graph output
// `output`, with the output's declaration.
StepOutline CopyStep(const ProgramCore& core, size_t output);

// What a declaration takes, with what lies beside it.
size_t DeclBytes(const std::string& name, const SymbolicShape& shape);

// See Program::outline_bytes.
size_t OutlineBytes(const ProgramCore& core);
// See Program::outline_work.
size_t OutlineWork(const ProgramCore& core);

// The node that makes graph output `output`; null for an input or a constant.
const LoweredNode* ProducerOf(const ProgramCore& core, size_t output);

// `status` with the input's name before its message, and its field.
absl::Status InputError(const ProgramCore& core, size_t i,
                        const absl::Status& status);

// Runs inference over the compiled graph with the shapes that are given, to
// check them or to make an outline. Used once, by one thread.
class Outliner {
 public:
  explicit Outliner(const ProgramCore& core);

  // See Program::Outline. One shape per input. What an outline takes grows with
  // the nodes, their operands and the outputs.
  absl::StatusOr<ProgramOutline> Run(absl::Span<const SymbolicShape> given);
  // Whether Run would succeed, without an outline. Asks `go_on` before each
  // node, and ends with its error.
  absl::Status Check(absl::Span<const SymbolicShape> given,
                     absl::FunctionRef<absl::Status()> go_on);

 private:
  SymbolicShape& shape(int id) { return shapes_[static_cast<size_t>(id)]; }

  absl::Status TakeInputs(absl::Span<const SymbolicShape> given);
  absl::Status Infer(size_t position);
  absl::Status CountOutput(size_t i);
  void AddSteps(ProgramOutline* outline);

  const ProgramCore& core_;
  EvaluationSize size_;
  DigestBudget digest_budget_;
  std::vector<SymbolicShape> shapes_;  // by value
};

}  // namespace weir
