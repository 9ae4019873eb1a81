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
#include "kernels/device/device.h"
#include "kernels/graph/lowered_graph.h"
#include "kernels/ops/op.h"

namespace weir {

// Zeroed memory for `meta`, aligned as device memory is. `keep_alive` holds
// what its StringRefs point to.
std::shared_ptr<const Constant> MakeHostConstant(
    const TensorMeta& meta, std::byte** data,
    std::vector<std::shared_ptr<const Constant>> keep_alive = {});

// The meta of dims that are known to fit. REQUIRES: ByteSize(...) is OK.
TensorMeta MakeMeta(DType dtype, Dims dims);

class HostEvaluator {
 public:
  HostEvaluator();
  ~HostEvaluator();

  // For CPU kernels that this evaluator runs; outlives them.
  Device& device() const;

  // `values` are null where an input is missing or only its shape is read.
  // Errors name the node.
  absl::StatusOr<std::vector<std::shared_ptr<const Constant>>> Run(
      const LoweredNode& node, const Kernel& kernel,
      absl::Span<const TensorMeta> inputs,
      absl::Span<const std::shared_ptr<const Constant>> values,
      absl::Span<const std::vector<int64_t>> host_ints,
      absl::Span<const TensorMeta> outputs) const;

 private:
  class HostDevice;
  class HostStream;

  const std::unique_ptr<HostDevice> device_;
  const std::unique_ptr<HostStream> stream_;
};

}  // namespace weir
