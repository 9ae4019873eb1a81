#include "kernels/ops/cuda/codegen.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/device/cuda/cuda_status.h"

namespace weir::cuda {

std::string_view StorageType(DType dtype) {
  switch (dtype) {
    case DType::kFloat:
      return "float";
    case DType::kUint8:
      return "uint8_t";
    case DType::kInt8:
      return "int8_t";
    case DType::kUint16:
      return "uint16_t";
    case DType::kInt16:
      return "int16_t";
    case DType::kInt32:
      return "int32_t";
    case DType::kInt64:
      return "int64_t";
    case DType::kBool:
      return "Bool";
    case DType::kFloat16:
      return "Float16";
    case DType::kDouble:
      return "double";
    case DType::kUint32:
      return "uint32_t";
    case DType::kUint64:
      return "uint64_t";
    case DType::kBfloat16:
      return "Bfloat16";
    case DType::kInvalid:
    case DType::kString:
      return "";
  }
  return "";
}

std::string_view ComputeType(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
    case DType::kBfloat16:
      return "float";
    case DType::kBool:
      return "bool";
    default:
      return StorageType(dtype);
  }
}

std::string_view WordType(size_t bytes) {
  switch (bytes) {
    case 1:
      return "uint8_t";
    case 2:
      return "uint16_t";
    case 4:
      return "uint32_t";
    case 8:
      return "uint64_t";
    default:
      return "";
  }
}

std::string Define(std::string_view name, std::string_view value) {
  return absl::StrCat("#define ", absl::string_view(name.data(), name.size()),
                      " ", absl::string_view(value.data(), value.size()), "\n");
}

// Granlund and Montgomery's round-up method with a 33-bit multiplier, whose top
// bit is the "+ n" in Divide.
FastDivisor::FastDivisor(uint64_t d) : divisor(d) {
  shift = d <= 1 ? 0 : static_cast<uint64_t>(std::bit_width(d - 1));
  multiplier = (((uint64_t{1} << 32) * ((uint64_t{1} << shift) - d)) / d) + 1;
}

Words& Words::Add(double value) { return Add(std::bit_cast<uint64_t>(value)); }

Words& Words::AddArray(absl::Span<const int64_t> values, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    Add(i < values.size() ? values[i] : int64_t{0});
  }
  return *this;
}

absl::StatusOr<GeneratedKernel> GeneratedKernel::Make(
    CudaDevice* device, const std::string& source) {
  GeneratedKernel kernel;
  kernel.device_ = device;
  WEIR_ASSIGN_OR_RETURN(kernel.function_, device->kernels().Get(source));
  return kernel;
}

absl::Status GeneratedKernel::Launch(Stream& stream, const Grid& grid,
                                     Words& words) const {
  if (grid.x > 0x7fffffffu) {
    return absl::InvalidArgumentError("the tensor is too large for one kernel");
  }
  void* params[] = {words.data()};
  return CudaStatus(
      device_->driver().launch_kernel(
          function_->get(), static_cast<unsigned>(grid.x), grid.y, grid.z,
          grid.block, 1, 1, grid.shared_bytes,
          static_cast<CUstream>(stream.native_handle()), params, nullptr),
      "cuLaunchKernel");
}

}  // namespace weir::cuda
