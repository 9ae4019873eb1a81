// Operator test cases with answers from the onnx package, as
// make_onnx_cases.py writes them: a file per operator, read here, and the
// comparison of a result with its answer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/tensor/dtype.h"

namespace weir {

struct CaseTensor {
  std::string name;
  DType dtype = DType::kInvalid;
  std::vector<int64_t> dims;
  std::string bytes;  // dense, row-major, little-endian
};

struct OnnxCase {
  std::string name;
  std::string model;  // a serialized onnx.ModelProto
  std::vector<CaseTensor> inputs;
  std::vector<CaseTensor> outputs;
  // A floating-point element may be off by this many units in the last place
  // of max(|expected|, floor).
  int64_t ulps = 0;
  double floor = 0;
};

absl::StatusOr<std::vector<OnnxCase>> ReadOnnxCases(const std::string& path);

// OK if `actual` has the expected type and shape and every element is within
// the case's bound; else what is wrong with the first that is not. NaN equals
// NaN; everything but floating point must be exact.
absl::Status CompareWithAnswer(const CaseTensor& expected,
                               const CaseTensor& actual, int64_t ulps,
                               double floor);

}  // namespace weir
