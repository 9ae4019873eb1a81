// The internal operator weir.FusedMatMul, which kernels/graph/passes/fuse.h
// makes and a device's kernel may take:
//
//   Y = MatMul(A, B) + C
//
// with B of two axes and C a row of B's width. Rounded in the end, and at most
// once before, as two nodes would.
#pragma once

#include <cstddef>

namespace weir {

inline constexpr char kFusedMatMulDomain[] = "weir";
inline constexpr char kFusedMatMulName[] = "FusedMatMul";
inline constexpr size_t kFusedMatMulRow = 2;

}  // namespace weir
