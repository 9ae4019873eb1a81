// Runs single nodes on the host while a program is compiled or a plan is made:
// constant folding, and values that shapes depend on. It calls the operators'
// CPU kernels directly in the calling thread, with a device and a stream of its
// own that only do what such a kernel needs; so it starts no threads, waits for
// nothing, and works the same beside any device. Thread-safe. Internal to this
// layer.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/base/stop_token.h"
#include "kernels/device/device.h"
#include "kernels/graph/lowered_graph.h"
#include "kernels/ops/op.h"

namespace weir {

// Zeroed memory for `meta`, aligned as device memory is. `text` owns what its
// StringRefs point to. RESOURCE_EXHAUSTED as ShortOfHostMemory makes it: a
// model's may be gigabytes.
absl::StatusOr<std::shared_ptr<const Constant>> MakeHostConstant(
    const TensorMeta& meta, std::byte** data,
    std::shared_ptr<const void> text = nullptr);

// What a caller's graph may have the host compute, in all. A node that does not
// fit any more is left to the device, or refused where it must be known.
class HostBudget {
 public:
  HostBudget(size_t bytes, int64_t operations)
      : bytes_(bytes), operations_(operations) {}

  // False, and nothing is taken, if it does not fit. The cost's operations are
  // weighed (CpuOperations).
  bool Take(size_t bytes, const NodeCost& cost);

 private:
  size_t bytes_;  // of operands and scratch memory
  int64_t operations_;
};

class HostEvaluator {
 public:
  HostEvaluator();
  ~HostEvaluator();

  // For CPU kernels that this evaluator runs; outlives them.
  Device& device() const;

  // What Run takes of a HostBudget.
  static NodeCost CostOf(const LoweredNode& node,
                         absl::Span<const TensorMeta> inputs,
                         absl::Span<const TensorMeta> outputs,
                         absl::Span<const std::vector<int64_t>> host_ints);

  using Results = std::vector<std::shared_ptr<const Constant>>;

  // `values` are null where an input is missing or only its shape is read.
  // Empty: the kernel wants more scratch memory than kMaxScratchBytes. Errors
  // name the node; RESOURCE_EXHAUSTED as of MakeHostConstant. The strings of
  // all results lie in the constants that this evaluator was given, each of
  // which it keeps, once, for as long as it or such a result lives. CANCELLED
  // soon after `stop` is requested: between two pieces of what the kernel does.
  absl::StatusOr<Results> Run(
      const LoweredNode& node, const Kernel& kernel,
      absl::Span<const TensorMeta> inputs,
      absl::Span<const std::shared_ptr<const Constant>> values,
      absl::Span<const std::vector<int64_t>> host_ints,
      absl::Span<const TensorMeta> outputs, const StopToken& stop) const;

  static constexpr size_t kMaxScratchBytes = size_t{64} << 20;

  // What it keeps so.
  size_t kept_bytes() const;
  // What the constant, whose data is there, takes beside that: of a result the
  // references to its strings, of a constant that is kept nothing.
  size_t OwnBytes(const Constant& constant) const;

 private:
  class HostDevice;
  class HostStream;
  class TextOwners;

  const std::unique_ptr<HostDevice> device_;
  const std::unique_ptr<HostStream> stream_;
  const std::shared_ptr<TextOwners> text_;
};

}  // namespace weir
