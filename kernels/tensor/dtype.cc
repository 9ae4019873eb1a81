#include "kernels/tensor/dtype.h"

namespace weir {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  std::string_view kserve;
  size_t size;
};

constexpr Row kRows[] = {
    {DType::kFloat, "float", "FP32", 4},
    {DType::kUint8, "uint8", "UINT8", 1},
    {DType::kInt8, "int8", "INT8", 1},
    {DType::kUint16, "uint16", "UINT16", 2},
    {DType::kInt16, "int16", "INT16", 2},
    {DType::kInt32, "int32", "INT32", 4},
    {DType::kInt64, "int64", "INT64", 8},
    {DType::kString, "string", "BYTES", sizeof(StringRef)},
    {DType::kBool, "bool", "BOOL", 1},
    {DType::kFloat16, "float16", "FP16", 2},
    {DType::kDouble, "double", "FP64", 8},
    {DType::kUint32, "uint32", "UINT32", 4},
    {DType::kUint64, "uint64", "UINT64", 8},
    {DType::kBfloat16, "bfloat16", "BF16", 2},
};

const Row* Find(DType dtype) {
  for (const Row& row : kRows) {
    if (row.dtype == dtype) return &row;
  }
  return nullptr;
}

}  // namespace

size_t SizeOf(DType dtype) {
  const Row* row = Find(dtype);
  return row == nullptr ? 0 : row->size;
}

std::string_view DTypeName(DType dtype) {
  const Row* row = Find(dtype);
  return row == nullptr ? "invalid" : row->name;
}

std::string_view KServeName(DType dtype) {
  const Row* row = Find(dtype);
  return row == nullptr ? "INVALID" : row->kserve;
}

std::optional<DType> DTypeFromKServe(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.kserve == name) return row.dtype;
  }
  return std::nullopt;
}

std::optional<DType> DTypeFromOnnx(int64_t number) {
  for (const Row& row : kRows) {
    if (static_cast<int64_t>(row.dtype) == number) return row.dtype;
  }
  return std::nullopt;
}

}  // namespace weir
