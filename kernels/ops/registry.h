// The operators of a process: definitions, and kernels per device kind. Filled
// while starting (libweir.so registers definitions and CPU kernels, the CUDA
// backend adds its own for its first device), read-only and thread-safe
// afterwards. Tests nest one: a registry with a parent sees the parent's
// entries.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/export.h"
#include "kernels/ops/op.h"

namespace weir {

// What a device's kernel of an operator takes. Passes over graphs ask. Null
// functions: nothing beyond the operator's own definition.
struct KernelTraits {
  // Of the nodes that fit the definition; null: all.
  bool (*takes)(const NodeInfo& node) = nullptr;
  // With channels last: input 0 (and the residual of a fused operator) and
  // output 0, all of them. Null: never.
  bool (*channels_last)(const NodeInfo& node) = nullptr;
  // Where it has channels last: input 1, the weights, has them last too.
  bool channels_last_weights = false;
  // What a run takes at most beside inputs and outputs; null: what OpDef::cost
  // says, which is what the CPU's kernels take.
  int64_t (*scratch_bytes)(const NodeInfo& node,
                           const PlanArgs& args) = nullptr;
};

class WEIR_EXPORT OpRegistry {
 public:
  explicit OpRegistry(const OpRegistry* parent = nullptr) : parent_(parent) {}
  OpRegistry(const OpRegistry&) = delete;
  OpRegistry& operator=(const OpRegistry&) = delete;

  // ALREADY_EXISTS if the name is taken here, INVALID_ARGUMENT for a definition
  // without shape inference or cost.
  absl::Status Register(OpDef def);
  // The definition together with its CPU kernel.
  absl::Status Register(OpDef def, KernelFactory cpu_kernel,
                        KernelTraits cpu_traits = {});
  // The operator's definition need not be in this registry, but must be known.
  absl::Status RegisterKernel(DeviceKind device, std::string_view domain,
                              std::string_view name, KernelFactory factory,
                              KernelTraits traits = {});
  // Has `add` register the kernels of a kind of device, unless it did so here
  // before: a process may have several devices of a kind.
  absl::Status RegisterKernelsOnce(DeviceKind device,
                                   absl::Status (*add)(OpRegistry& registry));

  // Null if unknown, or internal.
  const OpDef* Find(std::string_view domain, std::string_view name) const;
  bool HasKernel(DeviceKind device, std::string_view domain,
                 std::string_view name) const;
  bool HasKernel(const DeviceInfo& device, std::string_view domain,
                 std::string_view name) const {
    return HasKernel(device.kind, domain, name);
  }

  // What would have Find know it (RegistryOptions::test_operators_name); null
  // if nothing would.
  const char* HiddenBy(std::string_view domain, std::string_view name) const;
  // For passes: internal operators too. Null if unknown.
  const OpDef* FindInternal(std::string_view domain,
                            std::string_view name) const;
  // The device has a kernel that takes this node; and with channels last.
  bool Takes(const DeviceInfo& device, const NodeInfo& node) const;
  bool TakesChannelsLast(const DeviceInfo& device, const NodeInfo& node) const;
  bool TakesWeightsChannelsLast(const DeviceInfo& device,
                                const NodeInfo& node) const;

  // What the device's kernel of this node is like, if it has one; as long as
  // the registry.
  const KernelTraits& Traits(const DeviceInfo& device,
                             const NodeInfo& node) const;

  // Checks arity, attributes and types against the definition, then makes the
  // kernel. Errors name operator, opset, types and device.
  absl::StatusOr<std::unique_ptr<const Kernel>> CreateKernel(
      const NodeInfo& node, Device& device) const;

  // Arity, attribute names and types, element types: INVALID_ARGUMENT, or
  // UNIMPLEMENTED for an operator or a type that weir does not have.
  absl::Status Check(const NodeInfo& node) const;

  // In order of (domain, name).
  std::vector<const OpDef*> List() const;

 private:
  struct RegisteredKernel {
    KernelFactory factory;
    KernelTraits traits;
  };
  struct Entry {
    std::unique_ptr<OpDef> def;  // null where only kernels are added
    std::array<RegisteredKernel, kDeviceKinds> kernels;
  };
  using Key = std::pair<std::string, std::string>;

  friend std::unique_ptr<OpRegistry> MakeOpRegistry(
      const struct RegistryOptions& options);

  // The definition, hidden test operators included.
  const OpDef* FindAny(std::string_view domain, std::string_view name) const;
  const RegisteredKernel* FindKernel(DeviceKind device, std::string_view domain,
                                     std::string_view name) const;
  // OpDef::test_only operators answer as if they were not there. Null, or what
  // has them there.
  const char* Hidden(const OpDef& def) const;

  const OpRegistry* const parent_;
  const char* hides_test_operators_ = nullptr;
  std::array<bool, kDeviceKinds> kernels_added_ = {};
  std::map<Key, Entry, std::less<>> entries_;
};

struct RegistryOptions {
  bool test_operators = false;  // weir.Spin and weir.Fault
  // What errors call that.
  const char* test_operators_name = "RegistryOptions::test_operators";
};

// Every operator of ops.def with its CPU kernels.
WEIR_EXPORT std::unique_ptr<OpRegistry> MakeOpRegistry(
    const RegistryOptions& options = {});

}  // namespace weir
