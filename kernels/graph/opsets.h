// Which opsets of a domain weir knows, operator by operator. Pure.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "kernels/base/export.h"
#include "kernels/ops/op.h"

namespace weir {

inline constexpr int kOldestOnnxOpset = 11;
inline constexpr int kNewestOnnxOpset = 25;
inline constexpr int kWeirOpset = 1;

// OK for an opset of ONNX's domain that weir knows, whatever the operator.
// UNIMPLEMENTED says which would do, and how to come to one.
WEIR_EXPORT absl::Status CheckOnnxOpset(int64_t opset);

// OK if weir knows what the operator means in this opset of its domain: it lies
// between the oldest and the newest, and OpDef::meanings has one for it.
// UNIMPLEMENTED says which opsets would do.
WEIR_EXPORT absl::Status CheckOpset(const OpDef& def, int opset);

struct OpsetRange {
  int first = 0;
  int last = 0;
};
// The opsets that CheckOpset takes, one range for each meaning, ascending.
WEIR_EXPORT std::vector<OpsetRange> OpsetsOf(const OpDef& def);

}  // namespace weir
