#include "kernels/graph/opsets.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/status_macros.h"

namespace weir {

absl::Status CheckOnnxOpset(int64_t opset) {
  if (opset >= kOldestOnnxOpset && opset <= kNewestOnnxOpset) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(
      absl::StrCat("opset ", opset, ": this server knows ", kOldestOnnxOpset,
                   " to ", kNewestOnnxOpset,
                   "; export the model with one of these, or convert it with "
                   "onnx.version_converter"));
}

absl::Status CheckOpset(const OpDef& def, int opset) {
  if (!def.domain.empty()) {
    if (opset == kWeirOpset) return absl::OkStatus();
    return absl::UnimplementedError(
        absl::StrCat("opset ", opset, " of domain ", AbslView(def.domain),
                     ": this server has ", kWeirOpset));
  }
  WEIR_RETURN_IF_ERROR(CheckOnnxOpset(opset));
  if (opset < def.meanings.front()) {
    return absl::UnimplementedError(absl::StrCat(
        AbslView(def.name), " of opset ", opset,
        ": this server knows it from opset ", def.meanings.front(), " on"));
  }
  if (def.unknown_from > 0 && opset >= def.unknown_from) {
    return absl::UnimplementedError(
        absl::StrCat(AbslView(def.name), " of opset ", opset,
                     ": its meaning changed in opset ", def.unknown_from,
                     "; this server knows it up to ", def.unknown_from - 1));
  }
  return absl::OkStatus();
}

std::vector<OpsetRange> OpsetsOf(const OpDef& def) {
  if (!def.domain.empty()) return {{kWeirOpset, kWeirOpset}};
  int end = kNewestOnnxOpset + 1;
  if (def.unknown_from > 0) end = std::min(end, def.unknown_from);
  std::vector<OpsetRange> ranges;
  for (size_t i = 0; i < def.meanings.size(); ++i) {
    const int next = i + 1 < def.meanings.size() ? def.meanings[i + 1] : end;
    const OpsetRange range = {std::max(kOldestOnnxOpset, def.meanings[i]),
                              std::min(next, end) - 1};
    if (range.first <= range.last) ranges.push_back(range);
  }
  return ranges;
}

}  // namespace weir
