#include "tests/ops/reference/onnx_case.h"

#include <onnx/onnx_pb.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status_macros.h"

namespace weir {
namespace {

absl::StatusOr<CaseTensor> ReadTensor(const onnx::TensorProto& proto) {
  CaseTensor tensor;
  tensor.name = proto.name();
  tensor.dtype = DTypeFromOnnx(proto.data_type()).value_or(DType::kInvalid);
  tensor.dims.assign(proto.dims().begin(), proto.dims().end());
  tensor.bytes = proto.raw_data();
  int64_t elements = 1;
  for (const int64_t dim : tensor.dims) elements *= dim;
  const auto size = static_cast<int64_t>(SizeOf(tensor.dtype));
  if (size == 0 ||
      elements * size != static_cast<int64_t>(tensor.bytes.size())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor '", tensor.name, "' of ONNX type ", proto.data_type(), " has ",
        tensor.bytes.size(), " bytes of raw data for ", elements, " elements"));
  }
  return tensor;
}

absl::StatusOr<OnnxCase> ReadCase(const onnx::NodeProto& node) {
  OnnxCase result;
  result.name = node.name();
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    const std::string& key = attribute.name();
    if (key == "model") {
      result.model = attribute.s();
    } else if (key == "ulps") {
      result.ulps = attribute.i();
    } else if (key == "floor") {
      result.floor = attribute.f();
    } else if (key == "inputs" || key == "outputs") {
      auto& list = key == "inputs" ? result.inputs : result.outputs;
      for (const onnx::TensorProto& proto : attribute.tensors()) {
        WEIR_ASSIGN_OR_RETURN(CaseTensor tensor, ReadTensor(proto));
        list.push_back(std::move(tensor));
      }
    }
  }
  if (result.model.empty() || result.outputs.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("case '", result.name, "' has no model or no outputs"));
  }
  return result;
}

template <typename T>
T Load(const std::string& bytes, int64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + static_cast<size_t>(index) * sizeof(T),
              sizeof(T));
  return value;
}

double FloatingElement(const CaseTensor& tensor, int64_t index) {
  switch (tensor.dtype) {
    case DType::kDouble:
      return Load<double>(tensor.bytes, index);
    case DType::kFloat16:
      return Load<Float16>(tensor.bytes, index);
    case DType::kBfloat16:
      return Load<Bfloat16>(tensor.bytes, index);
    default:
      return Load<float>(tensor.bytes, index);
  }
}

// The distance from 1 to the next larger number.
double Epsilon(DType dtype) {
  switch (dtype) {
    case DType::kDouble:
      return 0x1p-52;
    case DType::kFloat16:
      return 0x1p-10;
    case DType::kBfloat16:
      return 0x1p-7;
    default:
      return 0x1p-23;
  }
}

// The smallest number above 0: nothing can be closer than that.
double SmallestStep(DType dtype) {
  switch (dtype) {
    case DType::kDouble:
      return 0x1p-1074;
    case DType::kFloat16:
      return 0x1p-24;
    case DType::kBfloat16:
      return 0x1p-133;
    default:
      return 0x1p-149;
  }
}

bool WithinBound(double expected, double actual, DType dtype, int64_t ulps,
                 double floor) {
  if (std::isnan(expected) || std::isnan(actual)) {
    return std::isnan(expected) && std::isnan(actual);
  }
  if (expected == actual) return true;
  if (std::isinf(expected) || std::isinf(actual)) return false;
  const double unit =
      std::max(Epsilon(dtype) * std::max(std::abs(expected), floor),
               SmallestStep(dtype));
  return std::abs(expected - actual) <= static_cast<double>(ulps) * unit;
}

}  // namespace

absl::StatusOr<std::vector<OnnxCase>> ReadOnnxCases(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  onnx::GraphProto file;
  if (!in || !file.ParseFromIstream(&in)) {
    return absl::NotFoundError(absl::StrCat("cannot read cases from ", path));
  }
  std::vector<OnnxCase> cases;
  for (const onnx::NodeProto& node : file.node()) {
    WEIR_ASSIGN_OR_RETURN(OnnxCase one, ReadCase(node));
    cases.push_back(std::move(one));
  }
  return cases;
}

absl::Status CompareWithAnswer(const CaseTensor& expected,
                               const CaseTensor& actual, int64_t ulps,
                               double floor) {
  if (actual.dtype != expected.dtype || actual.dims != expected.dims ||
      actual.bytes.size() != expected.bytes.size()) {
    return absl::InternalError(absl::StrCat(
        "'", expected.name, "' is ONNX type ", static_cast<int>(actual.dtype),
        " [", absl::StrJoin(actual.dims, ", "), "], expected type ",
        static_cast<int>(expected.dtype), " [",
        absl::StrJoin(expected.dims, ", "), "]"));
  }
  const auto size = static_cast<int64_t>(SizeOf(expected.dtype));
  const auto elements = static_cast<int64_t>(expected.bytes.size()) / size;
  for (int64_t i = 0; i < elements; ++i) {
    if (IsFloating(expected.dtype)) {
      const double want = FloatingElement(expected, i);
      const double got = FloatingElement(actual, i);
      if (WithinBound(want, got, expected.dtype, ulps, floor)) continue;
      return absl::InternalError(absl::StrCat(
          "'", expected.name, "'[", i, "] is ", got, ", expected ", want,
          " within ", ulps, " ulps of max(|", want, "|, ", floor, ")"));
    }
    const auto offset = static_cast<size_t>(i * size);
    if (std::memcmp(expected.bytes.data() + offset,
                    actual.bytes.data() + offset,
                    static_cast<size_t>(size)) != 0) {
      return absl::InternalError(
          absl::StrCat("'", expected.name, "'[", i, "] differs"));
    }
  }
  return absl::OkStatus();
}

}  // namespace weir
