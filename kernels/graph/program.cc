#include "kernels/graph/program.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_format.h"
#include "kernels/base/atomic.h"
#include "kernels/base/fingerprint.h"
#include "kernels/base/holders.h"
#include "kernels/base/status_macros.h"
#include "kernels/graph/outline_steps.h"
#include "kernels/graph/plan_cache.h"
#include "kernels/graph/planner.h"
#include "kernels/graph/program_core.h"

namespace weir {
namespace {

bool IsText(const std::shared_ptr<const Constant>& constant) {
  return constant != nullptr && constant->tensor.dtype == DType::kString;
}

bool IsText(const AttributeValue& value) {
  if (const auto* tensor =
          std::get_if<std::shared_ptr<const Constant>>(&value)) {
    return IsText(*tensor);
  }
  return std::holds_alternative<std::vector<std::string>>(value);
}

// Whether any tensor of the graph may be text: it comes in, is there, or is
// made of a node's attributes. One string alone is an option's name, but for
// Constant's.
bool HasText(const Graph& graph) {
  const auto any = [](const auto& range, const auto& is_text) {
    return std::any_of(range.begin(), range.end(), is_text);
  };
  return any(graph.inputs,
             [](const ValueDecl& v) { return v.dtype == DType::kString; }) ||
         any(graph.constants, [](const auto& c) { return IsText(c.second); }) ||
         any(graph.nodes, [&](const GraphNode& node) {
           return any(node.attributes.all(), [](const auto& a) {
             return IsText(a.second) || a.first == "value_string";
           });
         });
}

// About what a node and its kernels take, beside its operands, names and
// attributes.
constexpr size_t kBytesPerNode = 1024;
constexpr size_t kBytesPerOperand = 16;

size_t HeldBytes(const HostEvaluator& host, const Constant& constant) {
  if (constant.owner == nullptr || constant.tensor.data == nullptr) return 0;
  return host.OwnBytes(constant);
}

size_t HeldBytes(const HostEvaluator& host, const AttributeValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return text->size();
  if (const auto* ints = std::get_if<std::vector<int64_t>>(&value)) {
    return ints->size() * sizeof(int64_t);
  }
  if (const auto* floats = std::get_if<std::vector<float>>(&value)) {
    return floats->size() * sizeof(float);
  }
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) {
    size_t bytes = texts->size() * sizeof(std::string);
    for (const std::string& text : *texts) bytes += text.size();
    return bytes;
  }
  const auto* tensor = std::get_if<std::shared_ptr<const Constant>>(&value);
  return tensor == nullptr || *tensor == nullptr ? 0
                                                 : HeldBytes(host, **tensor);
}

// Without what lies on the device.
size_t HeldBytes(const HostEvaluator& host, const LoweredGraph& graph) {
  size_t bytes = 0;
  for (const LoweredNode& node : graph.nodes) {
    bytes += kBytesPerNode + node.label.size();
    // A kernel has a copy.
    bytes += 2 * (node.info.name.size() + node.info.domain.size() +
                  node.info.op.size());
    bytes += (node.inputs.size() + node.outputs.size()) * kBytesPerOperand;
    for (const LoweredNode::Joined& joined : node.joined) {
      bytes += sizeof(joined) + joined.name.size();
    }
    for (const auto& [name, value] : node.info.attributes.all()) {
      // A kernel has a copy of most of them.
      const bool tensor =
          std::holds_alternative<std::shared_ptr<const Constant>>(value);
      bytes += sizeof(value) + name.size() +
               HeldBytes(host, value) * (tensor ? 1 : 2);
    }
  }
  for (const LoweredValue& value : graph.values) {
    bytes += sizeof(value) + value.name.size();
    if (value.constant != nullptr) bytes += HeldBytes(host, *value.constant);
  }
  return bytes + graph.digests.bytes();
}

size_t HeldBytes(absl::Span<const ValueDecl> values) {
  size_t bytes = 0;
  for (const ValueDecl& value : values) {
    bytes += DeclBytes(value.name, value.shape);
  }
  return bytes;
}

// With the constants on the device.
size_t HeldBytes(const ProgramCore& core) {
  size_t bytes = HeldBytes(core.host, core.graph) + core.constants.bytes;
  bytes += core.host.kept_bytes();
  // Text lies where it lay, also where its references were copied.
  for (const auto& constant : core.constants.in_place) {
    if (IsText(constant)) bytes += core.host.OwnBytes(*constant);
  }
  bytes += HeldBytes(core.inputs) + HeldBytes(core.outputs);
  for (const std::string& symbol : core.symbols) {
    bytes += sizeof(std::string) + symbol.size();
  }
  for (const InputUse& use : core.input_uses) {
    bytes += sizeof(use) + use.digests.size() * sizeof(InputUse::Digest);
  }
  bytes += core.roots.size() * sizeof(int);
  bytes += core.on_device.size() * sizeof(const void*);
  return bytes + core.position_of_node.size() * sizeof(int);
}

}  // namespace

struct Program::Impl {
  Impl(std::shared_ptr<const ProgramCore> the_core,
       const ProgramOptions& options)
      : core(std::move(the_core)),
        id(absl::StrFormat(
            "%016x", Fingerprint(core->device->info().uuid, options.identity))),
        plans(options.max_plans, options.max_plan_bytes + PlanBytesOfNodes(),
              core->account),
        max_used_plan_bytes(options.max_used_plan_bytes + PlanBytesOfNodes()),
        outline_bytes(OutlineBytes(*core)),
        outline_work(OutlineWork(*core)) {
    core->charge = ByteCharge(core->account, HeldBytes(*core));
  }

  // Of four plans, whatever their kernels hold.
  size_t PlanBytesOfNodes() const {
    return 4 * kPlanBytesPerNode * core->graph.nodes.size();
  }

  // Whether one more plan may be made.
  absl::Status Admit(const StopToken& stop) {
    const size_t all = core->account->bytes();
    const size_t of_plans = core->plans->bytes();
    WEIR_RETURN_IF_ERROR(
        core->room->Admit(all < of_plans ? 0 : all - of_plans, stop));
    while (PlansExceed()) {
      // What waits for its end is used by nobody.
      if (!core->room->Flush(stop)) {
        return absl::CancelledError("nobody wants the plan any more");
      }
      if (!PlansExceed()) break;
      if (!plans.DropIdle()) {
        return TooManyBytesInUse("plans of this program", core->plans->bytes(),
                                 "max_used_plan_bytes", max_used_plan_bytes);
      }
    }
    return absl::OkStatus();
  }
  // Cached or not.
  bool PlansExceed() const {
    return core->plans->bytes() > max_used_plan_bytes;
  }

  void NoteTime(Nanos took, bool made) {
    if (made) {
      last_plan_ns.store(took, std::memory_order_relaxed);
      failed_plan_ns.store(0, std::memory_order_relaxed);
    } else if (took > failed_plan_ns.load(std::memory_order_relaxed)) {
      failed_plan_ns.store(took, std::memory_order_relaxed);
    }
  }

  static uint64_t NextNumber() {
    static Atomic<uint64_t> next{1};
    return next.fetch_add(1, std::memory_order_relaxed);
  }

  const uint64_t number = NextNumber();
  const std::shared_ptr<const ProgramCore> core;
  const std::string id;
  PlanCache plans;
  const size_t max_used_plan_bytes;
  const size_t outline_bytes;
  const size_t outline_work;
  Atomic<Nanos> last_plan_ns{0};
  Atomic<Nanos> failed_plan_ns{0};
};

absl::StatusOr<std::shared_ptr<const Program>> Program::Compile(
    Graph graph, Device& device, const OpRegistry& registry,
    const ProgramOptions& options) {
  // Only a compilation can tell: a device may well take text that just the host
  // reads, as pictures to decode are.
  const bool elsewhere = options.text_device != nullptr &&
                         options.text_device != &device && HasText(graph);
  Graph again;
  if (elsewhere) again = graph;
  absl::StatusOr<std::shared_ptr<const ProgramCore>> core =
      CompileCore(std::move(graph), device, registry, options);
  if (elsewhere && absl::IsUnimplemented(core.status())) {
    core =
        CompileCore(std::move(again), *options.text_device, registry, options);
  }
  if (!core.ok()) return core.status();
  const std::shared_ptr<ReclaimQueue> reclaim = (*core)->room->reclaim();
  auto impl = std::make_unique<Impl>(*std::move(core), options);
  return ReclaimQueue::Share(
      std::unique_ptr<const Program>(new Program(std::move(impl))), reclaim);
}

Program::Program(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Program::~Program() = default;

uint64_t Program::number() const { return impl_->number; }

Device& Program::device() const { return *impl_->core->device; }

const std::string& Program::id() const { return impl_->id; }

const std::vector<ValueDecl>& Program::inputs() const {
  return impl_->core->inputs;
}

const std::vector<ValueDecl>& Program::outputs() const {
  return impl_->core->outputs;
}

const std::vector<std::string>& Program::symbols() const {
  return impl_->core->symbols;
}

bool Program::InputOnHost(size_t i) const {
  return impl_->core->input_uses[i].on_host();
}

bool Program::random() const { return impl_->core->random; }

size_t Program::nodes() const { return impl_->core->graph.nodes.size(); }

size_t Program::constant_bytes() const {
  return impl_->core->constants.bytes + impl_->core->packed.bytes();
}

size_t Program::held_bytes() const { return impl_->core->account->bytes(); }

// Every plan holds the core, also one that is being made.
bool Program::has_plans_in_use() const {
  const PlanCache::Use cached = impl_->plans.use();
  return cached.held ||
         HeldByOthers(impl_->core, static_cast<int>(1 + cached.plans));
}

size_t Program::packed_constants() const { return impl_->core->packed.made(); }

Nanos Program::last_plan_ns() const {
  return impl_->last_plan_ns.load(std::memory_order_relaxed);
}

Nanos Program::failed_plan_ns() const {
  return impl_->failed_plan_ns.load(std::memory_order_relaxed);
}

absl::StatusOr<ProgramOutline> Program::Outline(
    absl::Span<const SymbolicShape> inputs) const {
  return Outliner(*impl_->core).Run(inputs);
}

size_t Program::outline_bytes() const { return impl_->outline_bytes; }

size_t Program::outline_work() const { return impl_->outline_work; }

bool Program::DropIdlePlan() const { return impl_->plans.DropIdle(); }

std::shared_ptr<const Plan> Program::FindPlan(
    absl::Span<const HostTensor> inputs) const {
  PlanKey key;
  if (!MakePlanKey(*impl_->core, inputs,
                   {DigestBudget(kQuickDigestParts), kQuickKeyWords}, &key)) {
    return nullptr;
  }
  return impl_->plans.Find(key);
}

absl::StatusOr<std::shared_ptr<const Plan>> Program::MakePlan(
    absl::Span<const HostTensor> inputs, const StopToken& stop) const {
  PlanKey key;
  if (MakePlanKey(*impl_->core, inputs, PlanKeyBudget(), &key)) {
    // Another thread may have made it meanwhile.
    if (auto plan = impl_->plans.Find(key)) return plan;
  } else {
    key.clear();
  }
  WEIR_RETURN_IF_ERROR(impl_->Admit(stop));
  const Nanos start = NowNanos();
  auto made = Planner(impl_->core, stop).Make(inputs);
  impl_->NoteTime(std::max<Nanos>(NowNanos() - start, 1), made.ok());
  if (!made.ok()) return made.status();
  std::shared_ptr<const Plan> plan = *std::move(made);
  const bool cached = !key.empty() || inputs.empty();
  if (cached) plan = impl_->plans.Insert(key, std::move(plan));
  impl_->core->room->Trim();
  return plan;
}

}  // namespace weir
