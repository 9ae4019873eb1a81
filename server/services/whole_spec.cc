#include "server/services/whole_spec.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/tensor/dtype.h"
#include "kernels/tensor/shape.h"

namespace weir {

absl::StatusOr<TensorSpec> ReadWholeSpec(const v1::TensorSpec& spec) {
  const std::optional<DType> dtype = DTypeFromOnnx(spec.dtype());
  if (!dtype.has_value()) {
    return InvalidField("spec.dtype",
                        absl::StrCat(spec.dtype(), " is no element type"));
  }
  if (*dtype == DType::kString) {
    return WithField(
        absl::UnimplementedError("text cannot be kept on the server"),
        "spec.dtype");
  }
  if (spec.sample_shapes_size() > 0) {
    return WithField(absl::UnimplementedError(
                         "ragged batches are not offered by this server; leave "
                         "sample_shapes unset"),
                     "spec.sample_shapes");
  }
  TensorSpec whole;
  whole.dtype = *dtype;
  whole.dims = Dims(spec.shape().begin(), spec.shape().end());
  const absl::Status fits = ByteSize(*dtype, whole.dims).status();
  if (!fits.ok()) return WithField(fits, "spec.shape");
  return whole;
}

}  // namespace weir
