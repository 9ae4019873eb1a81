#include "kernels/graph/opsets.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"

namespace weir {
namespace {

// `since`: the first opset that has the operator. `changed`: the newest opset
// up to kNewestOnnxOpset that changed it in any way (often only more element
// types). `supported`: the newest such change that weir implements; where it is
// less than `changed`, models of the newer opset are refused.
struct OpsetRow {
  std::string_view op;
  int since;
  int changed;
  int supported;
};

constexpr OpsetRow kRows[] = {
    {"Abs", 1, 13, 13},
    {"Add", 1, 14, 14},
    {"And", 1, 7, 7},
    {"ArgMax", 1, 13, 13},
    {"AveragePool", 1, 22, 22},
    {"BatchNormalization", 1, 15, 15},
    {"Cast", 1, 25, 25},
    {"Clip", 1, 13, 13},
    {"Concat", 1, 13, 13},
    {"Constant", 1, 25, 25},
    {"ConstantOfShape", 9, 25, 25},
    {"Conv", 1, 22, 22},
    {"Div", 1, 14, 14},
    {"Equal", 1, 19, 19},
    {"Erf", 9, 13, 13},
    {"Exp", 1, 13, 13},
    {"Expand", 8, 13, 13},
    {"Flatten", 1, 25, 25},
    {"Gather", 1, 13, 13},
    {"Gelu", 20, 20, 20},
    {"Gemm", 1, 13, 13},
    {"GlobalAveragePool", 1, 22, 22},
    {"Greater", 1, 13, 13},
    {"Identity", 1, 25, 25},
    {"LayerNormalization", 17, 17, 17},
    {"Less", 1, 13, 13},
    {"Log", 1, 13, 13},
    {"MatMul", 1, 13, 13},
    {"Max", 1, 13, 13},
    {"MaxPool", 1, 22, 22},
    {"Min", 1, 13, 13},
    {"Mul", 1, 14, 14},
    {"Neg", 1, 13, 13},
    {"Not", 1, 1, 1},
    {"Or", 1, 7, 7},
    {"Pad", 1, 25, 25},
    {"Pow", 1, 15, 15},
    {"ReduceMax", 1, 20, 20},
    {"ReduceMean", 1, 18, 18},
    {"ReduceMin", 1, 20, 20},
    {"ReduceSum", 1, 13, 13},
    {"Relu", 1, 14, 14},
    {"Reshape", 1, 25, 25},
    {"Shape", 1, 25, 25},
    {"Sigmoid", 1, 13, 13},
    {"Slice", 1, 13, 13},
    {"Softmax", 1, 13, 13},
    {"Split", 1, 18, 18},
    {"Sqrt", 1, 13, 13},
    {"Squeeze", 1, 25, 25},
    {"Sub", 1, 14, 14},
    {"Tanh", 1, 13, 13},
    {"Transpose", 1, 25, 25},
    {"Unsqueeze", 1, 25, 25},
    {"Where", 9, 16, 16},
};

const OpsetRow* FindRow(std::string_view op) {
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows),
                                 [&](const OpsetRow& r) { return r.op == op; });
  return row == std::end(kRows) ? nullptr : row;
}

}  // namespace

absl::Status CheckOpset(std::string_view domain, std::string_view op,
                        int opset) {
  if (domain == "weir") {
    if (opset == kWeirOpset) return absl::OkStatus();
    return absl::UnimplementedError(absl::StrCat(
        "opset ", opset, " of domain weir: this server has ", kWeirOpset));
  }
  if (!domain.empty()) return absl::OkStatus();
  if (opset < kOldestOnnxOpset || opset > kNewestOnnxOpset) {
    return absl::UnimplementedError(
        absl::StrCat("opset ", opset, ": this server knows ", kOldestOnnxOpset,
                     " to ", kNewestOnnxOpset));
  }
  const OpsetRow* const row = FindRow(op);
  if (row == nullptr) return absl::OkStatus();
  if (opset < row->since) {
    return absl::UnimplementedError(
        absl::StrCat(AbslView(op), " of opset ", opset,
                     ": it exists from opset ", row->since, " on"));
  }
  if (row->supported < row->changed && opset >= row->changed) {
    return absl::UnimplementedError(absl::StrCat(
        AbslView(op), " of opset ", opset, ": its meaning changed in opset ",
        row->changed, "; this server knows it up to ", row->changed - 1));
  }
  return absl::OkStatus();
}

bool HasOpsetRow(std::string_view op) { return FindRow(op) != nullptr; }

}  // namespace weir
