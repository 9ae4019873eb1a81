// What a program and its plans share: the graph after folding, its kernels and
// its constants on the device. Immutable. Plans hold it, it knows no plans.
// Internal to this layer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/byte_account.h"
#include "kernels/device/device.h"
#include "kernels/graph/constant_block.h"
#include "kernels/graph/evaluation_limits.h"
#include "kernels/graph/graph.h"
#include "kernels/graph/host_evaluator.h"
#include "kernels/graph/lowered_graph.h"
#include "kernels/graph/program.h"
#include "kernels/graph/program_room.h"
#include "kernels/ops/packed_constants.h"

namespace weir {

// What is done with a node when a plan is made.
struct CompiledNode {
  // Its shape or its values matter to something that is wanted.
  bool wanted = false;
  // Its elements are needed on the device (unless they come out on the host).
  bool on_device = false;
  // Its elements must be known on the host: a shape depends on them.
  bool must_be_on_host = false;
  // Output 0 is input 0 under another shape: no step.
  bool alias = false;
  std::unique_ptr<const Kernel> kernel;  // of the program's device
  // That one's KernelTraits::scratch_bytes.
  int64_t (*scratch_bytes)(const NodeInfo& node,
                           const PlanArgs& args) = nullptr;
  std::unique_ptr<const Kernel> host_kernel;  // of the CPU, if it may be needed
};

// What the host reads of a graph input when a plan is made.
struct InputUse {
  // Its elements, at most kMaxHostInts of them.
  bool elements = false;
  // Its digest for this input of this node (position, input), the last of all
  // nodes of that operator which read it.
  struct Digest {
    int node;
    size_t input;
  };
  std::vector<Digest> digests;

  bool on_host() const { return elements || !digests.empty(); }
};

struct ProgramCore {
  // As ProgramOptions::room.
  explicit ProgramCore(std::shared_ptr<ProgramRoom> its_room)
      : room(its_room != nullptr ? std::move(its_room)
                                 : std::make_shared<ProgramRoom>()),
        account(std::make_shared<ByteAccount>(room->account())),
        plans(std::make_shared<ByteAccount>(account)),
        packed(account) {}
  ProgramCore(const ProgramCore&) = delete;
  ProgramCore& operator=(const ProgramCore&) = delete;

  // Where the program, its plans and, with the last of them, this object end.
  const std::shared_ptr<ProgramRoom> room;
  // Of the program, its plans and packed constants; part of the room's.
  const std::shared_ptr<ByteAccount> account;
  // Of the plans that live, cached or not; part of that.
  const std::shared_ptr<ByteAccount> plans;
  // For all but plans and packed constants. Before the rest, and so after it to
  // go: what it counts is given back by then.
  mutable ByteCharge charge;

  // Whose kernels the host runs.
  const DeviceInfo& host_info() const { return host.device().info(); }
  // The device's kernels are those: they serve the host too.
  bool host_shares_kernels() const {
    return ShareKernels(device->info(), host_info());
  }

  Device* device = nullptr;
  std::vector<ValueDecl> inputs;
  std::vector<ValueDecl> outputs;
  std::vector<std::string> symbols;
  EvaluationLimits limits;  // resolved
  bool random = false;

  // Declared before the kernels, which may refer to its device.
  HostEvaluator host;
  LoweredGraph graph;                  // constants: those the host may read
  std::vector<CompiledNode> nodes;     // as graph.nodes
  std::vector<InputUse> input_uses;    // as inputs
  std::vector<int> roots;              // by value: whose bytes it has
  std::vector<const void*> on_device;  // by value: address of a constant
  std::vector<int> position_of_node;   // by index in the caller's graph
  ConstantBlock constants;
  // Filled by plans, which hold what they use of it.
  mutable PackedConstants packed;
};

// The steps of Program::Compile.
absl::StatusOr<std::shared_ptr<const ProgramCore>> CompileCore(
    Graph graph, Device& device, const OpRegistry& registry,
    const ProgramOptions& options);

}  // namespace weir
