#include "server/models/onnx_tensor.h"

#include <google/protobuf/repeated_field.h>
#include <onnx/onnx_pb.h>

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"
#include "kernels/ops/constant.h"
#include "server/models/aligned_bytes.h"

namespace weir {
namespace {

// Smaller raw data is copied, so that it keeps nothing else alive.
constexpr size_t kTakeBytes = 4096;

absl::StatusOr<AlignedBytes> MakeBytes(size_t size) {
  AlignedBytes bytes = TryMakeBytes(size);
  if (bytes == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", size, " bytes"));
  }
  return bytes;
}

std::shared_ptr<const Constant> Own(HostTensor tensor, AlignedBytes bytes) {
  auto constant = std::make_shared<Constant>();
  constant->tensor = std::move(tensor);
  constant->tensor.data = bytes.get();
  constant->owner = std::shared_ptr<const std::byte[]>(std::move(bytes));
  return constant;
}

absl::StatusOr<std::shared_ptr<const Constant>> Copy(HostTensor tensor,
                                                     const void* from,
                                                     size_t bytes) {
  WEIR_ASSIGN_OR_RETURN(AlignedBytes copy, MakeBytes(bytes));
  if (bytes > 0) std::memcpy(copy.get(), from, bytes);
  if (tensor.dtype == DType::kBool) {
    for (size_t i = 0; i < bytes; ++i) {
      copy[i] = std::byte{copy[i] != std::byte{0}};
    }
  }
  return Own(std::move(tensor), std::move(copy));
}

absl::Status WrongCount(int64_t found, int64_t expected) {
  return absl::InvalidArgumentError(absl::StrCat(
      "has ", found, " elements where its shape needs ", expected));
}

template <typename T, typename Field>
absl::StatusOr<std::shared_ptr<const Constant>> FromField(HostTensor tensor,
                                                          int64_t count,
                                                          const Field& field) {
  if (field.size() != count) return WrongCount(field.size(), count);
  WEIR_ASSIGN_OR_RETURN(AlignedBytes bytes,
                        MakeBytes(static_cast<size_t>(count) * sizeof(T)));
  T* to = reinterpret_cast<T*>(bytes.get());
  for (const auto value : field) *to++ = static_cast<T>(value);
  return Own(std::move(tensor), std::move(bytes));
}

absl::StatusOr<std::shared_ptr<const Constant>> FromStrings(
    HostTensor tensor, int64_t count, onnx::TensorProto& from) {
  if (from.string_data_size() != count) {
    return WrongCount(from.string_data_size(), count);
  }
  auto constant = std::make_shared<const Constant>(
      TextConstant(std::move(tensor.dims), from.string_data()));
  // Their memory too.
  google::protobuf::RepeatedPtrField<std::string>().Swap(
      from.mutable_string_data());
  return constant;
}

absl::StatusOr<std::shared_ptr<const Constant>> FromTypedFields(
    HostTensor tensor, int64_t count, onnx::TensorProto& from) {
  switch (tensor.dtype) {
    case DType::kFloat:
      return FromField<float>(std::move(tensor), count, from.float_data());
    case DType::kDouble:
      return FromField<double>(std::move(tensor), count, from.double_data());
    case DType::kInt64:
      return FromField<int64_t>(std::move(tensor), count, from.int64_data());
    case DType::kUint64:
      return FromField<uint64_t>(std::move(tensor), count, from.uint64_data());
    case DType::kUint32:
      return FromField<uint32_t>(std::move(tensor), count, from.uint64_data());
    case DType::kInt32:
      return FromField<int32_t>(std::move(tensor), count, from.int32_data());
    case DType::kInt16:
      return FromField<int16_t>(std::move(tensor), count, from.int32_data());
    case DType::kInt8:
      return FromField<int8_t>(std::move(tensor), count, from.int32_data());
    case DType::kUint16:
    case DType::kFloat16:
    case DType::kBfloat16:
      return FromField<uint16_t>(std::move(tensor), count, from.int32_data());
    case DType::kUint8:
      return FromField<uint8_t>(std::move(tensor), count, from.int32_data());
    case DType::kBool:
      return FromField<bool>(std::move(tensor), count, from.int32_data());
    case DType::kString:
      return FromStrings(std::move(tensor), count, from);
    case DType::kInvalid:
      break;
  }
  return absl::InternalError("no element type");
}

absl::StatusOr<uint64_t> Number(const onnx::StringStringEntryProto& entry) {
  uint64_t number = 0;
  if (!absl::SimpleAtoi(entry.value(), &number)) {
    return absl::InvalidArgumentError(
        absl::StrCat("external data: ", entry.key(), " ",
                     QuoteStart(entry.value()), " is no number"));
  }
  return number;
}

absl::StatusOr<ExternalPlace> PlaceOf(const onnx::TensorProto& from,
                                      size_t bytes) {
  ExternalPlace place;
  place.length = bytes;
  for (const onnx::StringStringEntryProto& entry : from.external_data()) {
    if (entry.key() == "location") place.location = entry.value();
    if (entry.key() == "offset") {
      WEIR_ASSIGN_OR_RETURN(place.offset, Number(entry));
    }
    if (entry.key() == "length") {
      WEIR_ASSIGN_OR_RETURN(place.length, Number(entry));
    }
  }
  if (place.length != bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("external data: ", place.length,
                     " bytes where type and shape need ", bytes));
  }
  return place;
}

absl::StatusOr<std::shared_ptr<const Constant>> FromExternal(
    HostTensor tensor, size_t bytes, const onnx::TensorProto& from,
    ExternalData& external) {
  if (tensor.dtype == DType::kString) {
    return absl::InvalidArgumentError("strings cannot be external data");
  }
  WEIR_ASSIGN_OR_RETURN(const ExternalPlace place, PlaceOf(from, bytes));
  WEIR_ASSIGN_OR_RETURN(ExternalData::Bytes read, external.Read(place));
  const bool aligned =
      reinterpret_cast<uintptr_t>(read.data) % SizeOf(tensor.dtype) == 0;
  if (bytes == 0 || !aligned || tensor.dtype == DType::kBool) {
    return Copy(std::move(tensor), read.data, bytes);
  }
  auto constant = std::make_shared<Constant>();
  constant->tensor = std::move(tensor);
  constant->tensor.data = read.data;
  constant->owner = std::move(read.owner);
  return std::shared_ptr<const Constant>(std::move(constant));
}

struct Extent {
  HostTensor tensor;
  int64_t count = 0;
  size_t bytes = 0;
};

absl::StatusOr<Extent> ExtentOf(const onnx::TensorProto& from) {
  const auto dtype = DTypeFromOnnx(from.data_type());
  if (from.data_type() == onnx::TensorProto::UNDEFINED) {
    return absl::InvalidArgumentError("its element type is undefined");
  }
  if (!dtype.has_value()) {
    return absl::UnimplementedError(
        absl::StrCat("element type ", from.data_type(), " is not supported"));
  }
  if (from.has_segment()) {
    return absl::UnimplementedError("tensors in segments are not supported");
  }
  Extent extent;
  extent.tensor.dtype = *dtype;
  extent.tensor.dims.assign(from.dims().begin(), from.dims().end());
  WEIR_ASSIGN_OR_RETURN(extent.count, NumElements(extent.tensor.dims));
  WEIR_ASSIGN_OR_RETURN(const int64_t size,
                        ByteSize(*dtype, extent.tensor.dims));
  extent.bytes = static_cast<size_t>(size);
  return extent;
}

}  // namespace

void ExpectTensor(const onnx::TensorProto& tensor, ExternalData& external) {
  if (tensor.data_location() != onnx::TensorProto::EXTERNAL) return;
  const auto extent = ExtentOf(tensor);
  if (!extent.ok() || extent->tensor.dtype == DType::kString) return;
  const auto place = PlaceOf(tensor, extent->bytes);
  if (place.ok()) external.Expect(*place);
}

absl::StatusOr<std::shared_ptr<const Constant>> ImportTensor(
    onnx::TensorProto& from, ExternalData& external) {
  WEIR_ASSIGN_OR_RETURN(Extent extent, ExtentOf(from));
  HostTensor& tensor = extent.tensor;
  const size_t bytes = extent.bytes;
  if (from.data_location() == onnx::TensorProto::EXTERNAL) {
    return FromExternal(std::move(tensor), bytes, from, external);
  }
  if (!from.has_raw_data()) {
    return FromTypedFields(std::move(tensor), extent.count, from);
  }
  if (tensor.dtype == DType::kString) {
    return absl::InvalidArgumentError("strings cannot be raw data");
  }
  if (from.raw_data().size() != bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", from.raw_data().size(),
                     " bytes of raw data where type and shape need ", bytes));
  }
  if (bytes < kTakeBytes || tensor.dtype == DType::kBool) {
    return Copy(std::move(tensor), from.raw_data().data(), bytes);
  }
  auto owner =
      std::make_shared<const std::string>(std::move(*from.mutable_raw_data()));
  auto constant = std::make_shared<Constant>();
  constant->tensor = std::move(tensor);
  constant->tensor.data = owner->data();
  constant->owner = std::move(owner);
  return std::shared_ptr<const Constant>(std::move(constant));
}

}  // namespace weir
