// onnx.TensorProto -> Constant: raw bytes, typed fields and external data, for
// every element type that weir has.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/ops/op.h"
#include "server/models/external_data.h"

namespace onnx {
class TensorProto;
}  // namespace onnx

namespace weir {

// Tells `external` what ImportTensor will read of it.
void ExpectTensor(const onnx::TensorProto& tensor, ExternalData& external);

// Takes large raw data out of `tensor` instead of copying it. The elements are
// aligned for their type. INVALID_ARGUMENT (sizes, fields, paths),
// UNIMPLEMENTED (element types), RESOURCE_EXHAUSTED (no memory for them), or
// what ExternalData says; the caller adds the tensor's name.
absl::StatusOr<std::shared_ptr<const Constant>> ImportTensor(
    onnx::TensorProto& tensor, ExternalData& external);

}  // namespace weir
