// What nodes of Gemm say, read once for the kernels of both devices. Pure.
#pragma once

#include "kernels/base/export.h"
#include "kernels/ops/op.h"

namespace weir {

struct GemmAttributes {
  float alpha = 1;
  float beta = 1;
  bool transpose_a = false;
  bool transpose_b = false;
};
WEIR_EXPORT GemmAttributes GemmAttributesOf(const NodeInfo& node);

}  // namespace weir
