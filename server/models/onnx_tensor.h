// onnx.TensorProto -> Constant: raw bytes, typed fields and external data, for
// every element type that weir has.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/ops/op.h"
#include "server/models/mapped_file.h"

namespace onnx {
class TensorProto;
}  // namespace onnx

namespace weir {

// Files with external data, each mapped once per model. Not thread-safe.
class ExternalData {
 public:
  // Empty: no external data is allowed.
  explicit ExternalData(std::string folder) : folder_(std::move(folder)) {}

  absl::StatusOr<std::shared_ptr<const MappedFile>> Open(
      std::string_view location);

 private:
  const std::string folder_;
  std::map<std::string, std::shared_ptr<const MappedFile>, std::less<>> files_;
};

// Takes large raw data out of `tensor` instead of copying it. The elements are
// aligned for their type. INVALID_ARGUMENT (sizes, fields, paths) or
// UNIMPLEMENTED (element types); the caller adds the tensor's name.
absl::StatusOr<std::shared_ptr<const Constant>> ImportTensor(
    onnx::TensorProto& tensor, ExternalData& external);

}  // namespace weir
