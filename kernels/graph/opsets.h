// Which opsets of the standard domain weir knows, operator by operator. Pure.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "kernels/base/export.h"

namespace weir {

inline constexpr int kOldestOnnxOpset = 11;
inline constexpr int kNewestOnnxOpset = 25;
inline constexpr int kWeirOpset = 1;

// OK if weir knows what `op` of `domain` means in `opset`: it lies between the
// oldest and the newest, the operator exists in it, and the last change of its
// meaning up to it is one that weir implements. UNIMPLEMENTED says which opsets
// would do. An operator that weir lacks altogether is OK here.
WEIR_EXPORT absl::Status CheckOpset(std::string_view domain,
                                    std::string_view op, int opset);

// Whether the table behind CheckOpset has a row for this ONNX operator.
WEIR_EXPORT bool HasOpsetRow(std::string_view op);

}  // namespace weir
