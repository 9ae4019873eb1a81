// One model with inputs and what it must answer, as
// tests/bench/models/make_models.py writes them. Immutable; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/tensor/dtype.h"
#include "kernels/tensor/shape.h"

namespace weir::bench {

struct CaseTensor {
  std::string name;
  std::string datatype;  // KServe's word
  DType dtype = DType::kInvalid;
  Dims dims;
  std::string bytes;
};

struct ModelCase {
  std::vector<CaseTensor> inputs;
  std::vector<CaseTensor>
      references;  // float32, whatever the model computes in

  const CaseTensor* FindInput(std::string_view name) const;
  const CaseTensor* FindReference(std::string_view name) const;
};

absl::StatusOr<ModelCase> ReadModelCase(const std::string& folder);

// The largest deviation of `bytes`, elements of `dtype` (float or float16),
// from the reference, over the reference's standard deviation. Infinity where
// dims differ or an element is not finite.
double RelativeError(const CaseTensor& reference, DType dtype, const Dims& dims,
                     std::string_view bytes);

}  // namespace weir::bench
