#include "kernels/ops/registry.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"

namespace weir {

#define OP(domain, Name, family, ...) \
  absl::Status Register_##domain##_##Name(OpRegistry& registry);
#include "kernels/ops/ops.def"
#undef OP

namespace {

std::string OpName(std::string_view domain, std::string_view name) {
  return domain.empty() ? std::string(name)
                        : absl::StrCat(AbslView(domain), ".", AbslView(name));
}

std::string NodePrefix(const NodeInfo& node) {
  return absl::StrCat("node \"", node.name, "\" (",
                      OpName(node.domain, node.op), "): ");
}

std::string TypeList(const NodeInfo& node) {
  return absl::StrJoin(
      node.input_types, ",", [](std::string* out, DType dtype) {
        *out +=
            dtype == DType::kInvalid ? std::string_view("-") : DTypeName(dtype);
      });
}

absl::Status Refuse(const NodeInfo& node, std::string_view message) {
  return absl::InvalidArgumentError(
      absl::StrCat(NodePrefix(node), AbslView(message)));
}

absl::Status CheckInputs(const NodeInfo& node, const OpDef& def) {
  const bool variadic = !def.inputs.empty() && def.inputs.back().variadic;
  const size_t given = node.input_types.size();
  if (given > def.inputs.size() && !variadic) {
    return Refuse(node, absl::StrCat("takes at most ", def.inputs.size(),
                                     " inputs, not ", given));
  }
  DType group_type[32] = {};
  for (size_t i = 0; i < std::max(given, def.inputs.size()); ++i) {
    const InputDef& input = def.inputs[std::min(i, def.inputs.size() - 1)];
    if (!node.HasInput(i)) {
      if (input.optional || i >= def.inputs.size()) continue;
      return Refuse(node, absl::StrCat("input ", i, " (", AbslView(input.name),
                                       ") is missing"));
    }
    const DType dtype = node.input_types[i];
    if (!input.types.Has(dtype)) {
      return absl::UnimplementedError(absl::StrCat(
          NodePrefix(node), "input ", i, " (", AbslView(input.name),
          ") cannot be ", AbslView(DTypeName(dtype)), "; 'weir ops ",
          OpName(node.domain, node.op), "' lists the types"));
    }
    if (input.group < 0) continue;
    DType& expected = group_type[input.group % 32];
    if (expected == DType::kInvalid) expected = dtype;
    if (expected != dtype) {
      return Refuse(
          node, absl::StrCat("input ", i, " (", AbslView(input.name), ") is ",
                             AbslView(DTypeName(dtype)), " where ",
                             AbslView(DTypeName(expected)), " is needed"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOutputs(const NodeInfo& node, const OpDef& def) {
  size_t least = 0;
  for (const OutputDef& output : def.outputs) least += !output.optional;
  const bool variadic = !def.outputs.empty() && def.outputs.back().variadic;
  const int given = node.num_outputs;
  if (given < static_cast<int>(least) ||
      (given > static_cast<int>(def.outputs.size()) && !variadic)) {
    return Refuse(node, absl::StrCat("cannot have ", given, " outputs"));
  }
  return absl::OkStatus();
}

// With the field that holds it, in weir's messages and in ONNX's.
const char* KindName(size_t type) {
  switch (static_cast<AttributeType>(type)) {
    case AttributeType::kInt:
      return "an int (i)";
    case AttributeType::kFloat:
      return "a float (f)";
    case AttributeType::kString:
      return "a string (s)";
    case AttributeType::kInts:
      return "a list of ints (ints)";
    case AttributeType::kFloats:
      return "a list of floats (floats)";
    case AttributeType::kStrings:
      return "a list of strings (strings)";
    case AttributeType::kTensor:
      return "a tensor";
  }
  return "of no known kind";
}

absl::Status CheckAttributes(const NodeInfo& node, const OpDef& def) {
  const auto& all = node.attributes.all();
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string& name = all[i].first;
    const auto known = std::find_if(
        def.attributes.begin(), def.attributes.end(),
        [&](const AttributeDef& attribute) { return attribute.name == name; });
    if (known == def.attributes.end()) {
      // The operator may well have it, in a version or a form that is not here.
      return absl::UnimplementedError(absl::StrCat(
          NodePrefix(node), "this server does not know attribute \"", name,
          "\"; \"weir ops ", AbslView(def.domain),
          def.domain.empty() ? "" : ".", AbslView(def.name),
          "\" lists those that it does"));
    }
    if (all[i].second.index() != static_cast<size_t>(known->type)) {
      return Refuse(
          node, absl::StrCat("attribute \"", name, "\" is ",
                             KindName(all[i].second.index()), "; it must be ",
                             KindName(static_cast<size_t>(known->type))));
    }
    if (node.attributes.Find(name) != &all[i].second) {
      return Refuse(node, absl::StrCat("attribute \"", name, "\" is repeated"));
    }
  }
  for (const AttributeDef& attribute : def.attributes) {
    if (attribute.required && !node.attributes.Has(attribute.name)) {
      return Refuse(node, absl::StrCat("attribute \"", AbslView(attribute.name),
                                       "\" is missing"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status OpRegistry::Register(OpDef def) {
  Key key(def.domain, def.name);
  if (def.infer == nullptr || def.cost == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("operator ", OpName(def.domain, def.name),
                     " does not say what shapes it makes and what it costs"));
  }
  Entry& entry = entries_[key];
  if (entry.def != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat(
        "operator ", OpName(def.domain, def.name), " is registered twice"));
  }
  entry.def = std::make_unique<OpDef>(std::move(def));
  return absl::OkStatus();
}

absl::Status OpRegistry::Register(OpDef def, KernelFactory cpu_kernel,
                                  KernelTraits cpu_traits) {
  const std::string_view domain = def.domain;
  const std::string_view name = def.name;
  WEIR_RETURN_IF_ERROR(Register(std::move(def)));
  return RegisterKernel(DeviceKind::kCpu, domain, name, std::move(cpu_kernel),
                        cpu_traits);
}

absl::Status OpRegistry::RegisterKernel(DeviceKind device,
                                        std::string_view domain,
                                        std::string_view name,
                                        KernelFactory factory,
                                        KernelTraits traits) {
  if (FindAny(domain, name) == nullptr) {
    return absl::NotFoundError(absl::StrCat(
        "a kernel for the unknown operator ", OpName(domain, name)));
  }
  RegisteredKernel& slot =
      entries_[Key(domain, name)].kernels[static_cast<size_t>(device)];
  if (slot.factory != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat(
        "a kernel of ", OpName(domain, name), " is registered twice"));
  }
  slot = {std::move(factory), traits};
  return absl::OkStatus();
}

absl::Status OpRegistry::RegisterKernelsOnce(
    DeviceKind device, absl::Status (*add)(OpRegistry& registry)) {
  bool& added = kernels_added_[static_cast<size_t>(device)];
  if (added) return absl::OkStatus();
  WEIR_RETURN_IF_ERROR(add(*this));
  added = true;
  return absl::OkStatus();
}

const OpDef* OpRegistry::FindAny(std::string_view domain,
                                 std::string_view name) const {
  const auto it = entries_.find(Key(domain, name));
  if (it != entries_.end() && it->second.def != nullptr) {
    return it->second.def.get();
  }
  return parent_ == nullptr ? nullptr : parent_->FindAny(domain, name);
}

const OpRegistry::RegisteredKernel* OpRegistry::FindKernel(
    DeviceKind device, std::string_view domain, std::string_view name) const {
  const auto it = entries_.find(Key(domain, name));
  if (it != entries_.end()) {
    const RegisteredKernel& kernel =
        it->second.kernels[static_cast<size_t>(device)];
    if (kernel.factory != nullptr) return &kernel;
  }
  return parent_ == nullptr ? nullptr
                            : parent_->FindKernel(device, domain, name);
}

const char* OpRegistry::Hidden(const OpDef& def) const {
  if (!def.test_only) return nullptr;
  if (hides_test_operators_ != nullptr) return hides_test_operators_;
  return parent_ == nullptr ? nullptr : parent_->Hidden(def);
}

const OpDef* OpRegistry::FindInternal(std::string_view domain,
                                      std::string_view name) const {
  const OpDef* def = FindAny(domain, name);
  return def == nullptr || Hidden(*def) ? nullptr : def;
}

const OpDef* OpRegistry::Find(std::string_view domain,
                              std::string_view name) const {
  const OpDef* def = FindInternal(domain, name);
  return def == nullptr || def->internal ? nullptr : def;
}

const char* OpRegistry::HiddenBy(std::string_view domain,
                                 std::string_view name) const {
  const OpDef* def = FindAny(domain, name);
  return def == nullptr ? nullptr : Hidden(*def);
}

bool OpRegistry::Takes(const DeviceInfo& device, const NodeInfo& node) const {
  if (!Check(node).ok()) return false;
  const RegisteredKernel* kernel =
      FindKernel(device.kind, node.domain, node.op);
  return kernel != nullptr &&
         (kernel->traits.takes == nullptr || kernel->traits.takes(node));
}

bool OpRegistry::TakesChannelsLast(const DeviceInfo& device,
                                   const NodeInfo& node) const {
  if (!Takes(device, node)) return false;
  const KernelTraits& traits = Traits(device, node);
  return traits.channels_last != nullptr && traits.channels_last(node);
}

bool OpRegistry::TakesWeightsChannelsLast(const DeviceInfo& device,
                                          const NodeInfo& node) const {
  return TakesChannelsLast(device, node) &&
         Traits(device, node).channels_last_weights;
}

const KernelTraits& OpRegistry::Traits(const DeviceInfo& device,
                                       const NodeInfo& node) const {
  static constexpr KernelTraits kNone;
  const RegisteredKernel* kernel =
      FindKernel(device.kind, node.domain, node.op);
  return kernel == nullptr ? kNone : kernel->traits;
}

bool OpRegistry::HasKernel(DeviceKind device, std::string_view domain,
                           std::string_view name) const {
  return FindInternal(domain, name) != nullptr &&
         FindKernel(device, domain, name) != nullptr;
}

absl::Status OpRegistry::Check(const NodeInfo& node) const {
  const OpDef* def = FindInternal(node.domain, node.op);
  if (def == nullptr) {
    return absl::UnimplementedError(absl::StrCat(
        NodePrefix(node), "weir has no operator ", OpName(node.domain, node.op),
        " (opset ", node.opset, ")"));
  }
  WEIR_RETURN_IF_ERROR(CheckInputs(node, *def));
  WEIR_RETURN_IF_ERROR(CheckOutputs(node, *def));
  return CheckAttributes(node, *def);
}

absl::StatusOr<std::unique_ptr<const Kernel>> OpRegistry::CreateKernel(
    const NodeInfo& node, Device& device) const {
  WEIR_RETURN_IF_ERROR(Check(node));
  const auto describe = [&] {
    return absl::StrCat("node \"", node.name, "\" (",
                        OpName(node.domain, node.op), ", opset ", node.opset,
                        ", types ", TypeList(node), ", device ",
                        DeviceName(device.info()), ")");
  };
  const RegisteredKernel* found =
      FindKernel(device.info().kind, node.domain, node.op);
  if (found == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat(describe(), ": no kernel for this device"));
  }
  if (found->traits.takes != nullptr && !found->traits.takes(node)) {
    return absl::UnimplementedError(
        absl::StrCat(describe(), ": the device's kernel does not take it"));
  }
  auto kernel = found->factory(node, device);
  if (!kernel.ok()) return Annotate(kernel.status(), describe() + ": ");
  return kernel;
}

std::vector<const OpDef*> OpRegistry::List() const {
  std::map<Key, const OpDef*> found;
  for (const OpRegistry* r = this; r != nullptr; r = r->parent_) {
    for (const auto& [key, entry] : r->entries_) {
      if (entry.def != nullptr && !entry.def->internal && !Hidden(*entry.def)) {
        found.emplace(key, entry.def.get());
      }
    }
  }
  std::vector<const OpDef*> list;
  list.reserve(found.size());
  for (const auto& [key, def] : found) list.push_back(def);
  return list;
}

std::unique_ptr<OpRegistry> MakeOpRegistry(const RegistryOptions& options) {
  auto registry = std::make_unique<OpRegistry>();
  if (!options.test_operators) {
    registry->hides_test_operators_ = options.test_operators_name;
  }
  // A failure is a bug in an operator's registration, not in any input.
  const auto check = [](const absl::Status& status) {
    if (!status.ok()) std::abort();
  };
  const auto set_meanings = [&](std::string_view domain, std::string_view name,
                                std::vector<int> opsets) {
    const auto entry = registry->entries_.find(
        OpRegistry::Key(domain == "onnx" ? std::string_view() : domain, name));
    // A program may leave an operator out.
    if (entry == registry->entries_.end()) return;
    OpDef& def = *entry->second.def;
    if (opsets.back() < 0) {
      def.unknown_from = -opsets.back();
      opsets.pop_back();
    }
    def.meanings = std::move(opsets);
  };
#define OP(domain, Name, family, ...)           \
  check(Register_##domain##_##Name(*registry)); \
  set_meanings(#domain, #Name, {__VA_ARGS__});
#include "kernels/ops/ops.def"
#undef OP
  return registry;
}

}  // namespace weir
