#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"
#include "kernels/base/philox.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/stop_token.h"
#include "kernels/graph/input_fit.h"
#include "kernels/graph/node_error.h"
#include "kernels/graph/node_inference.h"
#include "kernels/graph/opsets.h"
#include "kernels/graph/outline_steps.h"
#include "kernels/graph/passes/fuse.h"
#include "kernels/graph/passes/layout.h"
#include "kernels/graph/program_core.h"
#include "kernels/graph/symbolic_pass.h"

namespace weir {
namespace {

// Constants above these stay steps: folding must not blow a small model up, and
// a stranger's graph must not buy more than about a second of folding.
constexpr size_t kMaxFoldedBytes = size_t{1} << 20;
constexpr size_t kFoldBudgetBytes = size_t{256} << 20;
constexpr int64_t kFoldBudgetOperations = int64_t{1} << 33;

// What plans may keep of constants in other forms: some times their bytes, and
// a little for small ones, whose padding is most of them.
constexpr size_t kPackedTimes = 4;
constexpr size_t kSparePackedBytes = size_t{16} << 20;

class Folder {
 public:
  Folder(const OpRegistry& registry, const HostEvaluator& host,
         const StopToken& stop)
      : registry_(registry), host_(host), stop_(stop) {}

  absl::StatusOr<std::vector<std::shared_ptr<const Constant>>> Fold(
      const LoweredNode& node,
      const std::vector<std::shared_ptr<const Constant>>& inputs,
      const std::vector<TensorMeta>& outputs, ConstantDigests& digests) {
    std::vector<TensorMeta> metas;
    size_t bytes = 0;
    for (const auto& input : inputs) {
      metas.push_back(input == nullptr
                          ? TensorMeta()
                          : MakeMeta(input->tensor.dtype, input->tensor.dims));
      bytes += metas.back().bytes;
    }
    for (const TensorMeta& output : outputs) {
      if (output.bytes > kMaxFoldedBytes) return Leave();
      bytes += output.bytes;
    }
    if (!registry_.HasKernel(host_.device().info(), node.info.domain,
                             node.info.op)) {
      return Leave();
    }
    auto kernel = registry_.CreateKernel(node.info, host_.device());
    if (absl::IsUnimplemented(kernel.status())) return Leave();
    if (!kernel.ok()) return WithNodeIndex(kernel.status(), node.index);
    std::vector<std::vector<int64_t>> host_ints(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] == nullptr || !node.IsHostInput(i)) continue;
      auto ints = digests.Take(node, i, inputs[i]);
      if (!ints.ok()) return NodeError(ints.status(), node);
      host_ints[i] = *std::move(ints);
    }
    const NodeCost cost =
        HostEvaluator::CostOf(node, metas, outputs, host_ints);
    if (cost.scratch_bytes > int64_t{HostEvaluator::kMaxScratchBytes} ||
        !budget_.Take(bytes, cost)) {
      return Leave();
    }
    auto results =
        host_.Run(node, **kernel, metas, inputs, host_ints, outputs, stop_);
    if (absl::IsResourceExhausted(results.status())) return Leave();
    return results;
  }

 private:
  static std::vector<std::shared_ptr<const Constant>> Leave() { return {}; }

  const OpRegistry& registry_;
  const HostEvaluator& host_;
  const StopToken& stop_;
  HostBudget budget_{kFoldBudgetBytes, kFoldBudgetOperations};
};

// A node's place in the caller's graph tells its random numbers from others'.
static_assert(GraphLimits{}.max_nodes < (uint64_t{1} << (64 - kPhiloxRowBits)));

class Compiler {
 public:
  Compiler(Device& device, const OpRegistry& registry,
           const ProgramOptions& options)
      : registry_(registry),
        stop_(options.stop),
        core_(std::make_shared<ProgramCore>(options.room)) {
    core_->device = &device;
    core_->limits = Resolve(options.evaluation, device.info());
  }

  absl::StatusOr<std::shared_ptr<const ProgramCore>> Run(
      Graph graph, const std::vector<size_t>& order) {
    core_->graph = Lower(graph, order, registry_);
    Folder folder(registry_, core_->host, stop_);
    WEIR_RETURN_IF_ERROR(InferAndFold(
        core_->graph, registry_,
        [&](const LoweredNode& node, const auto& inputs, const auto& outputs)
            -> absl::StatusOr<std::vector<std::shared_ptr<const Constant>>> {
          return folder.Fold(node, inputs, outputs, core_->graph.digests);
        },
        [this] { return CheckStop(); }));
    const DeviceInfo& device = core_->device->info();
    FuseNodes(core_->graph, registry_, device);
    ChooseLayouts(core_->graph, registry_, device, core_->host_info());
    Declare(graph);
    WEIR_RETURN_IF_ERROR(CheckDeclaredOutputs(graph));
    FindRoots();
    core_->nodes.resize(nodes().size());
    core_->input_uses.resize(core_->inputs.size());
    MarkWanted();
    WEIR_RETURN_IF_ERROR(CheckSize());
    WEIR_RETURN_IF_ERROR(MarkHostValues());
    MarkDeviceValues();
    WEIR_RETURN_IF_ERROR(CheckHostInputsStayThere());
    WEIR_RETURN_IF_ERROR(MakeKernels());
    WEIR_RETURN_IF_ERROR(PlaceConstants());
    return std::shared_ptr<const ProgramCore>(std::move(core_));
  }

 private:
  absl::Status CheckStop() const {
    return stop_.stop_requested()
               ? absl::CancelledError("nobody wants the program any more")
               : absl::OkStatus();
  }

  std::vector<LoweredNode>& nodes() { return core_->graph.nodes; }
  LoweredValue& value(int id) {
    return core_->graph.values[static_cast<size_t>(id)];
  }
  CompiledNode& compiled(size_t position) { return core_->nodes[position]; }
  int root(int id) const { return core_->roots[static_cast<size_t>(id)]; }

  void Declare(Graph& graph) {
    core_->inputs = std::move(graph.inputs);
    core_->symbols = std::move(graph.symbols);
    for (size_t i = 0; i < graph.outputs.size(); ++i) {
      const LoweredValue& from = value(core_->graph.outputs[i]);
      ValueDecl& output = core_->outputs.emplace_back();
      output = {graph.outputs[i], from.dtype, from.shape};
      if (!output.shape.has_value()) continue;
      for (Dim& dim : *output.shape) {
        if (!dim.symbolic()) continue;
        dim = core_->graph.symbols[static_cast<size_t>(dim.symbol())];
      }
    }
    core_->position_of_node.assign(graph.nodes.size(), -1);
    for (size_t p = 0; p < nodes().size(); ++p) {
      if (nodes()[p].inserted) continue;
      core_->position_of_node[nodes()[p].index] = static_cast<int>(p);
      for (const LoweredNode::Joined& joined : nodes()[p].joined) {
        core_->position_of_node[joined.index] = static_cast<int>(p);
      }
    }
  }

  // The same rule as for inputs, with what inference found as the given.
  absl::Status CheckDeclaredOutputs(const Graph& graph) const {
    for (size_t i = 0; i < graph.declared_outputs.size(); ++i) {
      const ValueDecl& declared = graph.declared_outputs[i];
      const ValueDecl& found = core_->outputs[i];
      const auto refuse = [&](const absl::Status& status) {
        return WithField(
            Annotate(status, absl::StrCat("output \"", found.name, "\" ")),
            absl::StrCat("outputs[", i, "]"));
      };
      if (declared.dtype != DType::kInvalid && declared.dtype != found.dtype) {
        return refuse(absl::InvalidArgumentError(
            absl::StrCat("is ", AbslView(DTypeName(found.dtype)), " where ",
                         AbslView(DTypeName(declared.dtype)), " is declared")));
      }
      if (!found.shape.has_value()) continue;
      const absl::Status fits =
          CheckInputFit(declared, core_->symbols, *found.shape);
      if (!fits.ok()) return refuse(fits);
    }
    return absl::OkStatus();
  }

  // Folded nodes are constants from here on.
  bool Folded(const LoweredNode& node) {
    return std::all_of(node.outputs.begin(), node.outputs.end(),
                       [&](int id) { return value(id).constant != nullptr; });
  }

  void FindRoots() {
    core_->roots.resize(core_->graph.values.size());
    for (size_t i = 0; i < core_->roots.size(); ++i) {
      core_->roots[i] = static_cast<int>(i);
    }
    for (const LoweredNode& node : nodes()) {
      if (!node.def->aliases_input || Folded(node)) continue;
      core_->roots[static_cast<size_t>(node.outputs[0])] = root(node.inputs[0]);
    }
  }

  // Backward from the outputs: whatever inference or computation needs.
  void MarkWanted() {
    std::vector<bool> wanted(core_->graph.values.size(), false);
    for (int id : core_->graph.outputs) wanted[static_cast<size_t>(id)] = true;
    for (size_t p = nodes().size(); p-- > 0;) {
      const LoweredNode& node = nodes()[p];
      if (Folded(node)) {
        nodes()[p].info.attributes = Attributes();  // may hold large tensors
        continue;
      }
      compiled(p).alias = node.def->aliases_input;
      for (int id : node.outputs) {
        if (wanted[static_cast<size_t>(id)]) compiled(p).wanted = true;
      }
      if (!compiled(p).wanted) continue;
      core_->random = core_->random || node.def->random;
      for (int id : node.inputs) {
        if (id != kNoValue) wanted[static_cast<size_t>(id)] = true;
      }
    }
  }

  // What is too large whatever the inputs are is refused before kernels are
  // made.
  absl::Status CheckSize() {
    return Outliner(*core_).Check(
        std::vector<SymbolicShape>(core_->inputs.size()),
        [this] { return CheckStop(); });
  }

  // Backward from host inputs: what has to be computed on the host so that
  // shapes can be told.
  absl::Status MarkHostValues() {
    // By value: the node and input that need it.
    std::vector<std::pair<int, size_t>> needed(core_->graph.values.size(),
                                               {-1, 0});
    for (size_t p = nodes().size(); p-- > 0;) {
      const LoweredNode& node = nodes()[p];
      if (!compiled(p).wanted) continue;
      for (int id : node.outputs) {
        const auto [by, input] = needed[static_cast<size_t>(id)];
        if (by < 0) continue;
        WEIR_RETURN_IF_ERROR(RequireOnHost(p, by, input));
        for (int from : node.inputs) {
          if (from == kNoValue || node.def->shape_only) continue;
          needed[static_cast<size_t>(from)] = {by, input};
        }
      }
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] == kNoValue || !node.IsHostInput(i)) continue;
        const LoweredValue& source = value(node.inputs[i]);
        if (node.def->digest != nullptr && source.input >= 0) {
          AddDigest(core_->input_uses[static_cast<size_t>(source.input)], p, i);
          continue;
        }
        needed[static_cast<size_t>(node.inputs[i])] = {static_cast<int>(p), i};
      }
    }
    for (size_t k = 0; k < core_->inputs.size(); ++k) {
      const int id = core_->graph.inputs[k];
      const auto [by, input] = needed[static_cast<size_t>(id)];
      if (by < 0) continue;
      if (value(id).dtype == DType::kString || TooManyElements(value(id))) {
        return DependsOnDevice(by, input);
      }
      core_->input_uses[k].elements = true;
    }
    return absl::OkStatus();
  }

  // One for all nodes of an operator.
  void AddDigest(InputUse& use, size_t position, size_t input) {
    for (const InputUse::Digest& digest : use.digests) {
      if (nodes()[static_cast<size_t>(digest.node)].def ==
          nodes()[position].def) {
        return;
      }
    }
    use.digests.push_back({static_cast<int>(position), input});
  }

  absl::Status RequireOnHost(size_t position, int by, size_t input) {
    const LoweredNode& node = nodes()[position];
    const bool possible =
        !node.def->random && !node.def->test_only &&
        (compiled(position).alias ||
         registry_.HasKernel(core_->host_info(), node.info.domain,
                             node.info.op)) &&
        std::none_of(node.outputs.begin(), node.outputs.end(),
                     [&](int id) { return TooManyElements(value(id)); });
    if (!possible) return DependsOnDevice(by, input);
    compiled(position).must_be_on_host = true;
    return absl::OkStatus();
  }

  static bool TooManyElements(const LoweredValue& v) {
    if (!v.shape.has_value()) return false;
    Dim known(1);
    for (Dim dim : *v.shape) {
      if (dim.known() && dim.value() > 0) known = known * dim;
    }
    return !known.known() || known.value() > static_cast<int64_t>(kMaxHostInts);
  }

  absl::Status DependsOnDevice(int position, size_t input) {
    return NodeError(absl::UnimplementedError(absl::StrCat(
                         "input ", input, " (",
                         std::string(InputName(
                             nodes()[static_cast<size_t>(position)], input)),
                         ") depends on data computed on the device")),
                     nodes()[static_cast<size_t>(position)]);
  }

  static std::string_view InputName(const LoweredNode& node, size_t i) {
    const auto& inputs = node.def->inputs;
    return inputs.empty() ? "" : inputs[std::min(i, inputs.size() - 1)].name;
  }

  // Backward from the outputs: whose elements are read on the device.
  void MarkDeviceValues() {
    read_on_device_.assign(core_->graph.values.size(), false);
    for (int id : core_->graph.outputs) {
      read_on_device_[static_cast<size_t>(id)] = true;
    }
    for (size_t p = nodes().size(); p-- > 0;) {
      const LoweredNode& node = nodes()[p];
      CompiledNode& to = compiled(p);
      if (!to.wanted) continue;
      for (int id : node.outputs) {
        if (read_on_device_[static_cast<size_t>(id)]) to.on_device = true;
      }
      if (!to.on_device || to.must_be_on_host || node.def->shape_only) continue;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] == kNoValue) continue;
        if (node.IsHostInput(i) || (to.alias && i > 0)) continue;
        read_on_device_[static_cast<size_t>(node.inputs[i])] = true;
      }
    }
  }

  // An input that operators want on the host (pictures to decode) cannot also
  // be read on a device that does not see host memory.
  absl::Status CheckHostInputsStayThere() {
    if (core_->device->host_addressable()) return absl::OkStatus();
    for (size_t id = 0; id < read_on_device_.size(); ++id) {
      if (!read_on_device_[id]) continue;
      const LoweredValue& source = value(root(static_cast<int>(id)));
      const bool text = source.dtype == DType::kString;
      const InputUse* use =
          source.input < 0
              ? nullptr
              : &core_->input_uses[static_cast<size_t>(source.input)];
      const bool digested =
          use != nullptr && !use->elements && !use->digests.empty();
      if (!text && !digested) continue;
      return absl::UnimplementedError(absl::StrCat(
          "value \"", source.name, "\" ",
          text ? "is text" : "is read on the host by ",
          text ? "" : nodes()[static_cast<size_t>(use->digests[0].node)].label,
          " and cannot be read on ", DeviceName(core_->device->info())));
    }
    return absl::OkStatus();
  }

  absl::Status MakeKernels() {
    const bool shared = core_->host_shares_kernels();
    std::vector<bool> on_host(core_->graph.values.size(), false);
    for (size_t id = 0; id < on_host.size(); ++id) {
      const LoweredValue& v = core_->graph.values[id];
      on_host[id] = v.constant != nullptr ||
                    (v.input >= 0 &&
                     core_->input_uses[static_cast<size_t>(v.input)].elements);
    }
    for (size_t p = 0; p < nodes().size(); ++p) {
      const LoweredNode& node = nodes()[p];
      CompiledNode& to = compiled(p);
      if (!to.wanted) continue;
      WEIR_RETURN_IF_ERROR(CheckStop());
      const bool computable =
          !node.def->random && !node.def->test_only &&
          (node.def->shape_only ||
           std::all_of(node.inputs.begin(), node.inputs.end(), [&](int id) {
             return id == kNoValue || on_host[static_cast<size_t>(id)];
           }));
      if (to.alias) {
        on_host[static_cast<size_t>(node.outputs[0])] = computable;
        continue;
      }
      if (to.on_device && !to.must_be_on_host && !node.def->shape_only) {
        auto kernel = registry_.CreateKernel(node.info, *core_->device);
        if (!kernel.ok()) return WithNodeIndex(kernel.status(), node.index);
        to.kernel = *std::move(kernel);
        to.scratch_bytes =
            registry_.Traits(core_->device->info(), node.info).scratch_bytes;
      }
      if (!computable) continue;
      const bool has_kernel = registry_.HasKernel(
          core_->host_info(), node.info.domain, node.info.op);
      if (has_kernel && !(shared && to.kernel != nullptr)) {
        auto kernel = registry_.CreateKernel(node.info, core_->host.device());
        if (kernel.ok()) {
          to.host_kernel = *std::move(kernel);
        } else if (to.must_be_on_host || node.def->shape_only ||
                   !absl::IsUnimplemented(kernel.status())) {
          return WithNodeIndex(kernel.status(), node.index);
        }
      }
      if (to.host_kernel == nullptr && (!shared || to.kernel == nullptr)) {
        if (!node.def->shape_only) continue;
        return NodeError(
            absl::UnimplementedError("it has no kernel for the host"), node);
      }
      for (int id : node.outputs) on_host[static_cast<size_t>(id)] = true;
    }
    return absl::OkStatus();
  }

  // Uploads what the device reads, and lets go of what the host does not.
  absl::Status PlaceConstants() {
    std::vector<bool> upload(core_->graph.values.size(), false);
    std::vector<bool> keep(core_->graph.values.size(), false);
    for (size_t id = 0; id < upload.size(); ++id) {
      if (read_on_device_[id]) {
        upload[static_cast<size_t>(root(static_cast<int>(id)))] = true;
      }
    }
    for (size_t p = 0; p < nodes().size(); ++p) {
      const LoweredNode& node = nodes()[p];
      const bool host_evaluates = compiled(p).host_kernel != nullptr ||
                                  compiled(p).alias ||
                                  core_->host_shares_kernels();
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] == kNoValue || !compiled(p).wanted) continue;
        if (node.IsHostInput(i) || (host_evaluates && !node.def->shape_only)) {
          keep[static_cast<size_t>(node.inputs[i])] = true;
        }
      }
    }
    std::vector<std::shared_ptr<const Constant>> constants;
    std::vector<size_t> ids;
    for (size_t id = 0; id < upload.size(); ++id) {
      const LoweredValue& v = core_->graph.values[id];
      if (v.constant == nullptr || !upload[id]) continue;
      constants.push_back(v.constant);
      ids.push_back(id);
    }
    WEIR_ASSIGN_OR_RETURN(core_->constants,
                          UploadConstants(*core_->device, constants));
    core_->packed.Limit(kPackedTimes * core_->constants.bytes +
                        kSparePackedBytes);
    core_->on_device.assign(upload.size(), nullptr);
    for (size_t i = 0; i < ids.size(); ++i) {
      core_->on_device[ids[i]] = core_->constants.addresses[i];
    }
    FreeHostCopies(keep);
    return absl::OkStatus();
  }

  // A constant's shape is needed for good; its bytes only where the host reads
  // them, and on a device that shares them the device's copy will do.
  void FreeHostCopies(const std::vector<bool>& keep) {
    ConstantDigests::Replacements constants;
    for (size_t id = 0; id < keep.size(); ++id) {
      LoweredValue& v = core_->graph.values[id];
      if (v.constant == nullptr) continue;
      constants.emplace_back(v.constant, v.constant);
      const bool shared =
          core_->device->host_addressable() && core_->on_device[id] != nullptr;
      if (keep[id] && !shared) continue;
      auto shell = std::make_shared<Constant>();
      shell->tensor = v.constant->tensor;
      shell->tensor.data = shared ? core_->on_device[id] : nullptr;
      v.constant = std::move(shell);
      constants.back().second = v.constant;
    }
    core_->graph.digests.Replace(constants);
  }

  const OpRegistry& registry_;
  const StopToken stop_;
  std::shared_ptr<ProgramCore> core_;
  std::vector<bool> read_on_device_;
};

// Of the whole graph: neither the device nor a node is at fault.
absl::Status CheckGraphOpset(const Graph& graph) {
  const bool uses_onnx =
      std::any_of(graph.nodes.begin(), graph.nodes.end(),
                  [](const GraphNode& node) { return node.domain.empty(); });
  return uses_onnx ? CheckOnnxOpset(OpsetOf(graph, "")) : absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ProgramCore>> CompileCore(
    Graph graph, Device& device, const OpRegistry& registry,
    const ProgramOptions& options) {
  WEIR_RETURN_IF_ERROR(CheckGraphOpset(graph));
  auto order = Validate(graph, registry, options.limits);
  if (absl::IsUnimplemented(order.status())) {
    return Annotate(order.status(),
                    absl::StrCat("device ", DeviceName(device.info()), ": "));
  }
  if (!order.ok()) return order.status();
  return Compiler(device, registry, options).Run(std::move(graph), *order);
}

}  // namespace weir
