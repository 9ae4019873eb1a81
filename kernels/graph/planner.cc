#include "kernels/graph/planner.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/alignment.h"
#include "kernels/base/error_info.h"
#include "kernels/base/saturating.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/stop_token.h"
#include "kernels/graph/arena_layout.h"
#include "kernels/graph/input_fit.h"
#include "kernels/graph/node_inference.h"
#include "kernels/graph/outline_steps.h"

namespace weir {
namespace {

// A node that nothing forces onto the host is evaluated there only if it is
// small; and no plan may buy more than this of host work.
constexpr size_t kSmallBytes = size_t{64} << 10;
constexpr size_t kHostBudgetBytes = size_t{64} << 20;
constexpr int64_t kHostBudgetOperations = int64_t{1} << 31;
// What kernels may hold in one plan: tables, libraries' objects, loaded code.
constexpr size_t kMaxHeldBytes = size_t{256} << 20;

// A launch is a few microseconds, and memory moves by hundreds of gigabytes a
// second: a device that takes longer than this is busy with something else.
constexpr int64_t kStepNanos = 1'000'000;
constexpr int64_t kBytesPerNano = 1;

// No kernel computes less than this in a second, however it reads its
// operands; nor does one thread of it, which makes an element all by itself.
constexpr int64_t kOperationsPerMicro = 10'000;
constexpr int64_t kOperationsPerMicroOfThread = 100;
// Guesses are added up: a thousand of them must not overflow.
constexpr int64_t kLongestGuessNanos = 1'000'000'000'000'000;

int64_t ComputingNanos(int64_t operations, int64_t outputs) {
  const int64_t longest = operations / std::max<int64_t>(outputs, 1);
  const int64_t micros = SaturatingAdd(operations / kOperationsPerMicro,
                                       longest / kOperationsPerMicroOfThread);
  return SaturatingMul(micros, 1000);
}

int64_t GuessDuration(const Plan& plan, size_t constant_bytes,
                      int64_t computing_ns) {
  const size_t bytes = plan.input_bytes() + plan.output_bytes() +
                       plan.arena_bytes() + constant_bytes;
  return std::min(
      kLongestGuessNanos,
      SaturatingAdd(static_cast<int64_t>(plan.steps()) * kStepNanos +
                        static_cast<int64_t>(bytes) / kBytesPerNano,
                    computing_ns));
}

// Of a value that was computed on the host, with what says where it lies.
size_t HeldBytes(const TensorMeta& meta) {
  return AlignUp(meta.bytes) + sizeof(Constant);
}

}  // namespace

Planner::Planner(std::shared_ptr<const ProgramCore> core, StopToken stop)
    : core_(std::move(core)),
      stop_(std::move(stop)),
      plan_(new Plan),
      values_(core_->graph.values.size()),
      uploaded_(core_->graph.values.size(), nullptr),
      host_budget_(kHostBudgetBytes, kHostBudgetOperations),
      size_(core_->limits) {}

absl::StatusOr<std::shared_ptr<const Plan>> Planner::Make(
    absl::Span<const HostTensor> inputs) {
  plan_->core_ = core_;
  for (size_t id = 0; id < values_.size(); ++id) {
    const auto& constant = graph().values[id].constant;
    if (constant == nullptr) continue;
    values_[id].meta = MakeMeta(constant->tensor.dtype, constant->tensor.dims);
    values_[id].meta.layout = graph().values[id].layout;
    // Without data the host has no use for it (see FreeHostCopies).
    if (constant->tensor.data != nullptr || values_[id].meta.bytes == 0) {
      values_[id].host = constant;
    }
  }
  WEIR_RETURN_IF_ERROR(TakeInputs(inputs));
  for (size_t p = 0; p < graph().nodes.size(); ++p) {
    if (!core_->nodes[p].wanted) continue;
    WEIR_RETURN_IF_ERROR(CheckStop());
    WEIR_RETURN_IF_ERROR(PlanNode(p));
  }
  WEIR_RETURN_IF_ERROR(PlaceOutputs());
  // First as shapes tell, then as the kernels ask.
  WEIR_RETURN_IF_ERROR(PlaceValues());
  WEIR_RETURN_IF_ERROR(PlanKernels());
  WEIR_RETURN_IF_ERROR(PlaceValues());
  WEIR_RETURN_IF_ERROR(UploadHostValues());
  Emit();
  plan_->guessed_ns_ =
      GuessDuration(*plan_, core_->constants.bytes, computing_ns_);
  plan_->charge_ = ByteCharge(core_->plans, plan_->held_bytes_);
  return ReclaimQueue::Share<const Plan>(std::move(plan_),
                                         core_->room->reclaim());
}

absl::Status Planner::CheckStop() const {
  return stop_.stop_requested()
             ? absl::CancelledError("nobody wants the plan any more")
             : absl::OkStatus();
}

absl::Status Planner::CheckInput(size_t i, const HostTensor& input) const {
  const ValueDecl& decl = core_->inputs[i];
  if (input.dtype != decl.dtype) {
    const std::string_view given = DTypeName(input.dtype);
    const std::string_view wanted = DTypeName(decl.dtype);
    return absl::InvalidArgumentError(
        absl::StrCat("is ", std::string(given), " where ", std::string(wanted),
                     " is declared"));
  }
  WEIR_RETURN_IF_ERROR(ByteSize(input.dtype, input.dims).status());
  return CheckInputFit(decl, core_->symbols, ToSymbolic(input.dims));
}

absl::Status Planner::TakeInputs(absl::Span<const HostTensor> inputs) {
  if (inputs.size() != core_->inputs.size()) {
    return InvalidField(
        "inputs", absl::StrCat("there are ", inputs.size(), " inputs where ",
                               core_->inputs.size(), " are declared"));
  }
  given_ = inputs;
  plan_->inputs_.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const absl::Status fits = CheckInput(i, inputs[i]);
    if (!fits.ok()) return InputError(*core_, i, fits);
    Value& v = value(graph().inputs[i]);
    v.meta = MakeMeta(inputs[i].dtype, inputs[i].dims);
    const InputUse& use = core_->input_uses[i];
    if (use.elements) {
      if (v.meta.elements > static_cast<int64_t>(kMaxHostInts)) {
        return InputError(
            *core_, i,
            absl::UnimplementedError(absl::StrCat(
                "has ", v.meta.elements,
                " elements; an input that shapes depend on has at most ",
                kMaxHostInts)));
      }
      std::byte* data = nullptr;
      auto copy = MakeHostConstant(v.meta, &data);
      if (!copy.ok()) return InputError(*core_, i, copy.status());
      v.host = *std::move(copy);
      if (v.meta.bytes > 0) {
        std::memcpy(data, inputs[i].data, v.meta.bytes);
      }
    }
    Plan::Value& planned = plan_->inputs_[i];
    planned.meta = v.meta;
    plan_->time_varies_ |= v.meta.dtype == DType::kString;
    // No device reads text but where the host may too.
    planned.on_host = use.on_host() || v.meta.dtype == DType::kString;
    if (!planned.on_host) {
      planned.offset = plan_->input_bytes_;
      plan_->input_bytes_ += AlignUp(v.meta.bytes);
    }
  }
  return absl::OkStatus();
}

// Fills host_ints_ for the host inputs of `node`.
absl::Status Planner::ReadHostInputs(const LoweredNode& node) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == kNoValue || !node.IsHostInput(i)) continue;
    const int id = node.inputs[i];
    const int input = graph().values[static_cast<size_t>(id)].input;
    const auto& constant = graph().values[static_cast<size_t>(id)].constant;
    if (constant != nullptr) {
      WEIR_ASSIGN_OR_RETURN(
          host_ints_[i],
          graph().digests.Get(node, i, constant, digest_budget_));
      continue;
    }
    const bool digested = node.def->digest != nullptr;
    const auto known =
        digested ? digests_.find({id, node.def}) : digests_.end();
    if (known != digests_.end()) {
      host_ints_[i] = known->second;
      continue;
    }
    HostTensor tensor;
    if (value(id).host != nullptr) {
      tensor = value(id).host->tensor;
    } else if (input >= 0 &&
               core_->input_uses[static_cast<size_t>(input)].on_host()) {
      tensor = given_[static_cast<size_t>(input)];
    } else {
      return absl::UnimplementedError(
          absl::StrCat("input ", i, " depends on data computed on the device"));
    }
    WEIR_ASSIGN_OR_RETURN(host_ints_[i],
                          HostIntsOf(node, i, tensor, digest_budget_));
    if (digested) digests_[{id, node.def}] = *host_ints_[i];
  }
  return absl::OkStatus();
}

absl::Status Planner::PlanNode(size_t position) {
  const LoweredNode& node = graph().nodes[position];
  const CompiledNode& compiled = core_->nodes[position];
  host_ints_.assign(node.inputs.size(), std::nullopt);
  input_metas_.assign(node.inputs.size(), TensorMeta());
  std::vector<SymbolicShape> shapes(node.inputs.size());
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == kNoValue) continue;
    input_metas_[i] = value(node.inputs[i]).meta;
    shapes[i] = ToSymbolic(input_metas_[i].dims);
  }
  const absl::Status known = ReadHostInputs(node);
  if (!known.ok()) return NodeError(known, node);
  WEIR_ASSIGN_OR_RETURN(const std::vector<TypedShape> outputs,
                        InferNode(node, {shapes, host_ints_}));
  for (size_t i = 0; i < outputs.size(); ++i) {
    const DType expected =
        graph().values[static_cast<size_t>(node.outputs[i])].dtype;
    std::optional<Dims> dims = ToConcrete(outputs[i].shape);
    if (!dims.has_value() || outputs[i].dtype != expected) {
      return NodeError(absl::UnimplementedError(absl::StrCat(
                           "the shape of output ", i, " depends on the data")),
                       node);
    }
    Value& made = value(node.outputs[i]);
    made.meta = MakeMeta(expected, *std::move(dims));
    made.meta.layout =
        graph().values[static_cast<size_t>(node.outputs[i])].layout;
  }
  if (compiled.alias) return ShareInput(node);
  std::vector<TensorMeta> metas;
  for (int id : node.outputs) metas.push_back(value(id).meta);
  const Pace pace = core_->device->info().pace;
  const NodeCost cost = CostOf(node, pace, input_metas_, metas, host_ints_);
  WEIR_RETURN_IF_ERROR(size_.AddNode(node, pace, cost, metas));
  WEIR_ASSIGN_OR_RETURN(const bool done, EvaluateOnHost(position));
  if (done) return absl::OkStatus();
  if (compiled.must_be_on_host) {
    return NodeError(
        absl::UnimplementedError(
            "a shape depends on its result, which the host cannot compute"),
        node);
  }
  if (!compiled.on_device) return absl::OkStatus();
  return AddStep(position, cost, metas);
}

absl::Status Planner::ShareInput(const LoweredNode& node) {
  const Value& from = value(node.inputs[0]);
  Value& to = value(node.outputs[0]);
  if (from.meta.bytes != to.meta.bytes) {
    return NodeError(absl::InternalError(absl::StrCat(
                         "its output should share the ", from.meta.bytes,
                         " bytes of its input, but has ", to.meta.bytes)),
                     node);
  }
  if (from.host != nullptr) {
    auto same = std::make_shared<Constant>();
    same->tensor = {to.meta.dtype, to.meta.dims, from.host->tensor.data};
    // Not the value itself: owners would form a chain as long as the graph.
    same->owner = from.host->owner;
    if (same->owner == nullptr) same->owner = from.host;
    to.host = std::move(same);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Planner::EvaluateOnHost(size_t position) {
  const LoweredNode& node = graph().nodes[position];
  const CompiledNode& compiled = core_->nodes[position];
  const Kernel* kernel = compiled.host_kernel.get();
  if (kernel == nullptr && core_->host_shares_kernels()) {
    kernel = compiled.kernel.get();
  }
  if (kernel == nullptr || node.def->random || node.def->test_only) {
    return false;
  }
  std::vector<std::shared_ptr<const Constant>> sources(node.inputs.size());
  size_t bytes = 0;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == kNoValue || node.def->shape_only) continue;
    sources[i] = value(node.inputs[i]).host;
    if (sources[i] == nullptr) return false;
    bytes += input_metas_[i].bytes;
  }
  std::vector<TensorMeta> outputs;
  for (int id : node.outputs) {
    outputs.push_back(value(id).meta);
    bytes += outputs.back().bytes;
  }
  const bool forced = compiled.must_be_on_host || node.def->shape_only;
  if (!forced && bytes > kSmallBytes) return false;
  std::vector<std::vector<int64_t>> host_ints(node.inputs.size());
  for (size_t i = 0; i < host_ints.size(); ++i) {
    if (host_ints_[i].has_value()) host_ints[i] = *host_ints_[i];
  }
  const NodeCost cost =
      HostEvaluator::CostOf(node, input_metas_, outputs, host_ints);
  const auto too_much = [&]() -> absl::StatusOr<bool> {
    if (!forced) return false;
    return NodeError(absl::ResourceExhaustedError(absl::StrCat(
                         "shapes depend on more than the host would compute: ",
                         kHostBudgetBytes, " bytes, ", kHostBudgetOperations,
                         " operations")),
                     node);
  };
  if (!host_budget_.Take(bytes, cost)) return too_much();
  auto results = core_->host.Run(node, *kernel, input_metas_, sources,
                                 host_ints, outputs, stop_);
  if (!forced && absl::IsResourceExhausted(results.status())) return false;
  if (!results.ok()) return results.status();
  if (results->empty()) return too_much();
  for (size_t i = 0; i < results->size(); ++i) {
    value(node.outputs[i]).host = std::move((*results)[i]);
  }
  return true;
}

absl::Status Planner::AddStep(size_t position, const NodeCost& cost,
                              absl::Span<const TensorMeta> outputs) {
  const LoweredNode& node = graph().nodes[position];
  const int step = static_cast<int>(drafts_.size());
  int64_t elements = 0;
  for (int id : node.outputs) {
    elements += value(id).meta.elements;
    value(id).step = step;
    value(id).last_step = static_cast<size_t>(step);
  }
  Draft& draft = drafts_.emplace_back();
  draft.node = static_cast<int>(position);
  draft.outputs = node.outputs;
  // Nothing to compute; the outputs keep a place of no bytes.
  if (elements == 0 && !node.def->test_only) return absl::OkStatus();
  draft.host_ints.resize(node.inputs.size());
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (host_ints_[i].has_value()) {
      draft.host_ints[i] = *std::move(host_ints_[i]);
    }
  }
  draft.computes = true;
  computing_ns_ =
      SaturatingAdd(computing_ns_, ComputingNanos(cost.operations, elements));
  draft.inputs = node.inputs;
  const auto scratch_bytes = core_->nodes[position].scratch_bytes;
  draft.scratch_bytes =
      scratch_bytes == nullptr
          ? cost.scratch_bytes
          : scratch_bytes(node.info, {input_metas_, outputs, draft.host_ints});
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == kNoValue || node.IsHostInput(i)) continue;
    Value& source = value(root(node.inputs[i]));
    source.last_step = static_cast<size_t>(step);
  }
  return absl::OkStatus();
}

// The CPU's steps run in one thread, one after the other: it has no launches.
absl::Status Planner::CheckLaunches(int64_t most,
                                    const LoweredNode* node) const {
  if (core_->device->host_addressable()) return absl::OkStatus();
  return size_.CheckLaunches(static_cast<int64_t>(plan_->launches_), most,
                             node);
}

absl::Status Planner::PlanKernels() {
  size_t held = 0;
  std::set<const void*> shared;
  int64_t most_launches = -1;
  const LoweredNode* longest = nullptr;
  for (Draft& draft : drafts_) {
    if (draft.node < 0) {  // a copy
      ++plan_->launches_;
      WEIR_RETURN_IF_ERROR(CheckLaunches(most_launches, longest));
    }
    if (!draft.computes) continue;
    WEIR_RETURN_IF_ERROR(CheckStop());  // a kernel may take a compilation
    const size_t position = static_cast<size_t>(draft.node);
    const LoweredNode& node = graph().nodes[position];
    std::vector<TensorMeta> inputs, outputs;
    for (int id : draft.inputs) {
      inputs.push_back(id == kNoValue ? TensorMeta() : value(id).meta);
    }
    for (int id : draft.outputs) outputs.push_back(value(id).meta);
    std::vector<const void*> constants(inputs.size(), nullptr);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (draft.inputs[i] == kNoValue || node.IsHostInput(i)) continue;
      constants[i] =
          core_->on_device[static_cast<size_t>(root(draft.inputs[i]))];
    }
    auto kernel = core_->nodes[position].kernel->Plan(
        {inputs, outputs, draft.host_ints, constants, &core_->packed});
    if (!kernel.ok()) return NodeError(kernel.status(), node);
    draft.kernel = *std::move(kernel);
    draft.scratch_bytes = static_cast<int64_t>(draft.kernel->scratch_bytes());
    const auto launches = static_cast<int64_t>(draft.kernel->launches());
    plan_->launches_ += draft.kernel->launches();
    plan_->computes_on_host_ |= draft.kernel->computes_on_host();
    plan_->time_varies_ |= draft.kernel->time_varies();
    if (launches > most_launches) {
      most_launches = launches;
      longest = &node;
    }
    WEIR_RETURN_IF_ERROR(CheckLaunches(most_launches, longest));
    held += draft.kernel->held_bytes();
    for (const SharedHold& hold : draft.kernel->shared_holds()) {
      if (!shared.insert(hold.object).second) held -= hold.bytes;
    }
    if (held > kMaxHeldBytes) {
      return NodeError(
          WithReason(
              absl::ResourceExhaustedError(absl::StrCat(
                  "the kernels of one evaluation would hold more than ",
                  kMaxHeldBytes,
                  " bytes of tables, loaded code and libraries' objects; "
                  "evaluate the graph in parts, of which this node begins "
                  "one")),
              "EVALUATION_TOO_LARGE", {{"limit", absl::StrCat(kMaxHeldBytes)}}),
          node);
    }
  }
  plan_->held_bytes_ += held;
  return absl::OkStatus();
}

// The step that makes a value writes it straight into the outputs block; what
// no step makes (an input, a constant, a value twice) is copied there.
absl::Status Planner::PlaceOutputs() {
  plan_->outputs_.resize(graph().outputs.size());
  for (size_t i = 0; i < graph().outputs.size(); ++i) {
    const int id = graph().outputs[i];
    Plan::Value& output = plan_->outputs_[i];
    output.meta = value(id).meta;
    WEIR_RETURN_IF_ERROR(size_.AddOutput(
        core_->outputs[i].name, ProducerOf(*core_, i), output.meta.bytes));
    output.offset = plan_->output_bytes_;
    plan_->output_bytes_ += AlignUp(output.meta.bytes);
    Value& made = value(root(id));
    if (made.step >= 0 && !made.in_outputs) {
      made.in_outputs = true;
      made.offset = output.offset;
      continue;
    }
    if (output.meta.bytes == 0) continue;
    Draft& draft = drafts_.emplace_back();
    draft.node = -1;
    draft.output = i;
    draft.inputs = {id};
    made.last_step = drafts_.size() - 1;
  }
  return absl::OkStatus();
}

absl::Status Planner::PlaceValues() {
  std::vector<ArenaBlock> blocks;
  std::vector<Value*> owners;
  int64_t largest = -1;
  const LoweredNode* asks = nullptr;
  const auto note = [&](int64_t bytes, size_t step) {
    if (bytes <= largest) return;
    largest = bytes;
    asks = &graph().nodes[static_cast<size_t>(drafts_[step].node)];
  };
  for (Value& v : values_) {
    if (v.step < 0 || v.in_outputs || v.meta.bytes == 0) continue;
    blocks.push_back({v.meta.bytes, static_cast<size_t>(v.step), v.last_step});
    owners.push_back(&v);
    note(static_cast<int64_t>(v.meta.bytes), static_cast<size_t>(v.step));
  }
  const size_t values = blocks.size();
  std::vector<size_t> scratch_of;
  for (size_t s = 0; s < drafts_.size(); ++s) {
    const int64_t bytes = drafts_[s].scratch_bytes;
    if (bytes == 0) continue;
    note(bytes, s);
    // Nothing of this size can be laid out, or added up.
    if (bytes > kMaxTensorBytes) return size_.CheckScratch(bytes, bytes, *asks);
    blocks.push_back({static_cast<size_t>(bytes), s, s});
    scratch_of.push_back(s);
  }
  plan_->arena_bytes_ = LayOutArena(blocks);
  if (asks != nullptr) {
    WEIR_RETURN_IF_ERROR(size_.CheckScratch(
        static_cast<int64_t>(plan_->arena_bytes_), largest, *asks));
  }
  for (size_t i = 0; i < values; ++i) owners[i]->offset = blocks[i].offset;
  scratch_.assign(drafts_.size(), 0);
  for (size_t i = 0; i < scratch_of.size(); ++i) {
    scratch_[scratch_of[i]] = blocks[values + i].offset;
  }
  return absl::OkStatus();
}

// Gives an address to each host value that a step reads on the device.
absl::Status Planner::UploadHostValues() {
  std::vector<int> ids;
  std::vector<std::shared_ptr<const Constant>> constants;
  std::vector<bool> seen(values_.size(), false);
  for (const Draft& draft : drafts_) {
    for (size_t i = 0; i < draft.inputs.size(); ++i) {
      const int id = draft.inputs[i];
      if (id == kNoValue || value(id).host == nullptr) continue;
      const LoweredNode* node =
          draft.node < 0 ? nullptr
                         : &graph().nodes[static_cast<size_t>(draft.node)];
      if (node != nullptr && node->IsHostInput(i)) {
        plan_->body_->host_values.push_back(value(id).host);
        if (graph().values[static_cast<size_t>(id)].constant == nullptr) {
          plan_->held_bytes_ += HeldBytes(value(id).meta);
        }
        continue;
      }
      if (core_->on_device[static_cast<size_t>(root(id))] != nullptr ||
          seen[static_cast<size_t>(id)]) {
        continue;
      }
      seen[static_cast<size_t>(id)] = true;
      ids.push_back(id);
      constants.push_back(value(id).host);
    }
  }
  if (ids.empty()) return absl::OkStatus();
  WEIR_ASSIGN_OR_RETURN(plan_->body_->device_values,
                        UploadConstants(*core_->device, constants));
  // On a device of its own these are copies; the host's go with the planner.
  for (int id : ids) plan_->held_bytes_ += HeldBytes(value(id).meta);
  for (size_t i = 0; i < ids.size(); ++i) {
    uploaded_[static_cast<size_t>(ids[i])] =
        plan_->body_->device_values.addresses[i];
  }
  return absl::OkStatus();
}

Operand Planner::Locate(int id, bool on_host) const {
  Operand operand;
  if (id == kNoValue) return operand;
  const Value& v = values_[static_cast<size_t>(id)];
  const int source = root(id);
  const Value& made = values_[static_cast<size_t>(source)];
  const int input = graph().values[static_cast<size_t>(source)].input;
  if (on_host && v.host != nullptr) {
    operand.address = v.host->tensor.data;
  } else if (made.step >= 0) {
    operand.base =
        made.in_outputs ? Operand::Base::kOutputs : Operand::Base::kArena;
    operand.offset = made.offset;
  } else if (uploaded_[static_cast<size_t>(id)] != nullptr) {
    operand.address = uploaded_[static_cast<size_t>(id)];
  } else if (input >= 0) {
    operand.base = Operand::Base::kInput;
    operand.input = static_cast<size_t>(input);
  } else {
    operand.address = core_->on_device[static_cast<size_t>(source)];
  }
  return operand;
}

void Planner::Emit() {
  Plan::Body& body = *plan_->body_;
  for (size_t s = 0; s < drafts_.size(); ++s) {
    Draft& draft = drafts_[s];
    PlanStep step;
    step.first_operand = static_cast<uint32_t>(body.operands.size());
    if (draft.node < 0) {
      const Plan::Value& output = plan_->outputs_[draft.output];
      body.operands.push_back(Locate(draft.inputs[0], false));
      Operand target;
      target.base = Operand::Base::kOutputs;
      target.offset = output.offset;
      body.operands.push_back(target);
      step.inputs = step.outputs = 1;
      step.copy_bytes = output.meta.bytes;
      step.first_written = draft.output;
      body.steps.push_back(step);
      continue;
    }
    if (draft.kernel == nullptr) continue;
    const LoweredNode& node = graph().nodes[static_cast<size_t>(draft.node)];
    for (size_t i = 0; i < draft.inputs.size(); ++i) {
      body.operands.push_back(Locate(draft.inputs[i], node.IsHostInput(i)));
    }
    step.first_written = body.written.size();
    for (int id : draft.outputs) {
      body.operands.push_back(Locate(id, false));
      body.written.emplace_back(id, value(id).meta.dims);
    }
    step.node = static_cast<uint32_t>(node.index);
    step.position = static_cast<uint32_t>(draft.node);
    step.inputs = static_cast<uint32_t>(draft.inputs.size());
    step.outputs = static_cast<uint32_t>(draft.outputs.size());
    step.kernel = draft.kernel.get();
    step.has_scratch = draft.kernel->scratch_bytes() > 0;
    step.scratch = scratch_[s];
    body.kernels.push_back(std::move(draft.kernel));
    body.steps.push_back(step);
  }
  plan_->held_bytes_ +=
      body.steps.size() * kPlanBytesPerNode +
      body.operands.size() * kPlanBytesPerOperand +
      (plan_->inputs_.size() + plan_->outputs_.size()) * sizeof(Plan::Value);
}

}  // namespace weir
