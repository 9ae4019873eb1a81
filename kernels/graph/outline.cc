#include "kernels/graph/outline.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/graph/input_fit.h"
#include "kernels/graph/node_inference.h"
#include "kernels/graph/outline_steps.h"

namespace weir {
namespace {

constexpr char kCopy[] = "copy";

// Made of each operand of a node while its outputs are inferred: a shape, what
// the host knows of it, and what its cost is told of it.
constexpr size_t kOperandBytes = 256;

std::string KernelName(const ProgramCore& core, const std::string& name) {
  return absl::StrCat(AbslView(KernelsName(core.device->info())), "/", name);
}

// In the planner's way: a step for each kernel, then copies of what no step
// writes straight into the outputs. Calls on_node(position) and
// on_copy(output).
template <typename OnNode, typename OnCopy>
void ForEachStep(const ProgramCore& core, const OnNode& on_node,
                 const OnCopy& on_copy) {
  std::vector<bool> writable(core.graph.values.size(), false);
  for (size_t p = 0; p < core.graph.nodes.size(); ++p) {
    if (core.nodes[p].kernel == nullptr) continue;
    on_node(p);
    for (int id : core.graph.nodes[p].outputs) {
      writable[static_cast<size_t>(id)] = true;
    }
  }
  for (size_t i = 0; i < core.outputs.size(); ++i) {
    const size_t id = static_cast<size_t>(core.graph.outputs[i]);
    const size_t root = static_cast<size_t>(core.roots[id]);
    if (writable[root]) {
      writable[root] = false;
    } else {
      on_copy(i);
    }
  }
}

// What they have beside themselves.
size_t HeapBytes(const std::string& text) {
  return text.size() <= std::string().capacity() ? 0 : text.size() + 1;
}

size_t HeapBytes(const SymbolicShape& shape) {
  return !shape.has_value() || shape->size() <= SymbolicDims().capacity()
             ? 0
             : shape->size() * sizeof(Dim);
}

size_t StepBytes(const StepOutline& step) {
  size_t bytes = sizeof(StepOutline) + HeapBytes(step.kernel);
  for (const std::string& node : step.nodes) {
    bytes += sizeof(std::string) + HeapBytes(node);
  }
  for (const ValueDecl& output : step.outputs) {
    bytes += DeclBytes(output.name, output.shape);
  }
  return bytes;
}

}  // namespace

size_t DeclBytes(const std::string& name, const SymbolicShape& shape) {
  return sizeof(ValueDecl) + HeapBytes(name) + HeapBytes(shape);
}

size_t OutlineBytes(const ProgramCore& core) {
  size_t bytes = 0;
  for (const ValueDecl& input : core.inputs) {
    bytes += DeclBytes(input.name, input.shape);
  }
  for (const ValueDecl& output : core.outputs) {
    bytes += DeclBytes(output.name, output.shape);
  }
  ForEachStep(
      core,
      [&](size_t p) {
        const LoweredNode& node = core.graph.nodes[p];
        bytes += StepBytes(NodeStep(core, node));
        for (int id : node.outputs) {
          const LoweredValue& value =
              core.graph.values[static_cast<size_t>(id)];
          bytes += DeclBytes(value.name, value.shape);
        }
      },
      [&](size_t i) { bytes += StepBytes(CopyStep(core, i)); });
  for (const LoweredValue& value : core.graph.values) {
    bytes += sizeof(SymbolicShape) + HeapBytes(value.shape);
  }
  return bytes;
}

size_t OutlineWork(const ProgramCore& core) {
  size_t operands = 0;
  for (size_t p = 0; p < core.graph.nodes.size(); ++p) {
    if (core.nodes[p].wanted) operands += core.graph.nodes[p].inputs.size();
  }
  return OutlineBytes(core) + operands * kOperandBytes;
}

StepOutline NodeStep(const ProgramCore& core, const LoweredNode& node) {
  StepOutline step;
  step.nodes = {node.info.name};
  for (const auto& joined : node.joined) step.nodes.push_back(joined.name);
  const std::string& domain = node.info.domain;
  step.kernel = KernelName(
      core, absl::StrCat(domain, domain.empty() ? "" : ".", node.info.op));
  return step;
}

StepOutline CopyStep(const ProgramCore& core, size_t output) {
  StepOutline step;
  step.kernel = KernelName(core, kCopy);
  // Under another shape the same bytes: the copy is what is left of the node.
  // Those before it are not named: there may be as many as the graph has nodes,
  // before every output.
  const int id = core.graph.outputs[output];
  if (id != core.roots[static_cast<size_t>(id)]) {
    step.nodes = {ProducerOf(core, output)->info.name};
  }
  step.outputs = {core.outputs[output]};
  return step;
}

const LoweredNode* ProducerOf(const ProgramCore& core, size_t output) {
  const int id = core.graph.outputs[output];
  const int producer = core.graph.values[static_cast<size_t>(id)].producer;
  return producer < 0 ? nullptr
                      : &core.graph.nodes[static_cast<size_t>(producer)];
}

Outliner::Outliner(const ProgramCore& core)
    : core_(core), size_(core.limits), shapes_(core.graph.values.size()) {
  for (size_t id = 0; id < shapes_.size(); ++id) {
    const auto& constant = core.graph.values[id].constant;
    if (constant != nullptr) shapes_[id] = ToSymbolic(constant->tensor.dims);
  }
}

absl::StatusOr<ProgramOutline> Outliner::Run(
    absl::Span<const SymbolicShape> given) {
  WEIR_RETURN_IF_ERROR(Check(given, [] { return absl::OkStatus(); }));
  ProgramOutline outline;
  outline.inputs = core_.inputs;
  for (size_t i = 0; i < core_.inputs.size(); ++i) {
    outline.inputs[i].shape = shape(core_.graph.inputs[i]);
  }
  outline.outputs = core_.outputs;
  for (size_t i = 0; i < core_.outputs.size(); ++i) {
    outline.outputs[i].shape = shape(core_.graph.outputs[i]);
  }
  AddSteps(&outline);
  return outline;
}

absl::Status Outliner::Check(absl::Span<const SymbolicShape> given,
                             absl::FunctionRef<absl::Status()> go_on) {
  WEIR_RETURN_IF_ERROR(TakeInputs(given));
  for (size_t p = 0; p < core_.graph.nodes.size(); ++p) {
    if (!core_.nodes[p].wanted) continue;
    WEIR_RETURN_IF_ERROR(go_on());
    WEIR_RETURN_IF_ERROR(Infer(p));
  }
  for (size_t i = 0; i < core_.outputs.size(); ++i) {
    WEIR_RETURN_IF_ERROR(CountOutput(i));
  }
  return absl::OkStatus();
}

absl::Status Outliner::TakeInputs(absl::Span<const SymbolicShape> given) {
  for (size_t i = 0; i < core_.inputs.size(); ++i) {
    if (!given[i].has_value()) continue;
    const absl::Status fits =
        CheckInputFit(core_.inputs[i], core_.symbols, *given[i]);
    if (!fits.ok()) return InputError(core_, i, fits);
  }
  for (size_t i = 0; i < core_.inputs.size(); ++i) {
    SymbolicShape complete = CompleteShape(
        core_.graph.values[static_cast<size_t>(core_.graph.inputs[i])].shape,
        given[i]);
    Dims known;
    for (Dim dim : complete.value_or(SymbolicDims())) {
      known.push_back(dim.known() ? dim.value() : dim.invalid() ? -1 : 1);
    }
    const auto bytes = ByteSize(core_.inputs[i].dtype, known);
    if (!bytes.ok()) return InputError(core_, i, bytes.status());
    shape(core_.graph.inputs[i]) = std::move(complete);
  }
  return absl::OkStatus();
}

absl::Status Outliner::Infer(size_t position) {
  const LoweredNode& node = core_.graph.nodes[position];
  std::vector<SymbolicShape> shapes(node.inputs.size());
  std::vector<std::optional<std::vector<int64_t>>> host_ints(
      node.inputs.size());
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == kNoValue) continue;
    const size_t id = static_cast<size_t>(node.inputs[i]);
    shapes[i] = shapes_[id];
    const auto& constant = core_.graph.values[id].constant;
    if (!node.IsHostInput(i) || constant == nullptr) continue;
    WEIR_ASSIGN_OR_RETURN(host_ints[i], core_.graph.digests.Get(
                                            node, i, constant, digest_budget_));
  }
  WEIR_ASSIGN_OR_RETURN(const std::vector<TypedShape> outputs,
                        InferNode(node, {shapes, host_ints}));
  for (size_t i = 0; i < outputs.size(); ++i) {
    shape(node.outputs[i]) = outputs[i].shape;
  }
  if (core_.nodes[position].alias) return absl::OkStatus();
  return size_.AddIfKnown(node, core_.device->info().pace, {shapes, host_ints},
                          outputs);
}

absl::Status Outliner::CountOutput(size_t i) {
  const ValueDecl& output = core_.outputs[i];
  const std::optional<Dims> dims = ToConcrete(shape(core_.graph.outputs[i]));
  if (!dims.has_value()) return absl::OkStatus();
  WEIR_ASSIGN_OR_RETURN(const int64_t bytes, ByteSize(output.dtype, *dims));
  return size_.AddOutput(output.name, ProducerOf(core_, i),
                         static_cast<size_t>(bytes));
}

void Outliner::AddSteps(ProgramOutline* outline) {
  size_t steps = 0;
  const auto count = [&](size_t) { ++steps; };
  ForEachStep(core_, count, count);
  outline->steps.reserve(steps);
  ForEachStep(
      core_,
      [&](size_t p) {
        const LoweredNode& node = core_.graph.nodes[p];
        StepOutline& step = outline->steps.emplace_back(NodeStep(core_, node));
        step.outputs.reserve(node.outputs.size());
        for (int id : node.outputs) {
          const LoweredValue& value =
              core_.graph.values[static_cast<size_t>(id)];
          step.outputs.push_back({value.name, value.dtype, shape(id)});
        }
      },
      [&](size_t i) {
        StepOutline& step = outline->steps.emplace_back(CopyStep(core_, i));
        step.outputs[0].shape = shape(core_.graph.outputs[i]);
      });
}

absl::Status InputError(const ProgramCore& core, size_t i,
                        const absl::Status& status) {
  return WithField(
      Annotate(status, absl::StrCat("input \"", core.inputs[i].name, "\" ")),
      absl::StrCat("inputs[", i, "]"));
}

}  // namespace weir
