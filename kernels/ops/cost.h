// What nodes take, told from shapes and attributes before anything is planned
// (kernels/base/saturating.h: counts never wrap). An operator's OpDef::cost is
// one of these functions, or made of them. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/base/export.h"
#include "kernels/device/device.h"

namespace weir {

struct NodeInfo;
struct PlanArgs;
struct TensorMeta;

// Of one node on a device.
struct NodeCost {
  // An element that is read, computed or moved is one operation, and so is a
  // multiplication with its addition. A CPU takes longer for some, which
  // whoever adds costs up weighs: see OpDef::cpu_weight.
  int64_t operations = 0;
  // Memory beside inputs and outputs while a CPU's kernel runs it, at most;
  // what a library asks for when it is planned comes on top. Other kernels say
  // it for themselves (KernelTraits::scratch_bytes).
  int64_t scratch_bytes = 0;
};

// Side by side what makes fewer elements takes as long as so many, and whoever
// adds costs up charges it so.
inline constexpr int64_t kElementsSideBySide = 10'000;

// OpDef::cpu_weight, of a product with its addition (at most 0.1 ns, of a
// matrix; some times that where no library has double and integers), of an
// element that is moved, compared or added (1 ns), and of one that a function
// of the C library or as costly a one is made of (25 ns).
inline constexpr int64_t kProductCpuWeight = 1;
inline constexpr int64_t kOwnProductCpuWeight = 5;
inline constexpr int64_t kElementCpuWeight = 10;
inline constexpr int64_t kFunctionCpuWeight = 250;
inline constexpr int64_t kHalfTypeCpuWeight = 90;

// The cost of what reads its inputs and writes its outputs a few times over,
// whatever its attributes say; no scratch.
WEIR_EXPORT NodeCost LinearCost(const NodeInfo& node, Pace pace,
                                const PlanArgs& args);
// For what writes its outputs alone in full and need not read its inputs.
WEIR_EXPORT NodeCost OutputCost(const NodeInfo& node, Pace pace,
                                const PlanArgs& args);

// For what finds out for each row of its output, axis by axis, where it comes
// from.
WEIR_EXPORT NodeCost RowwiseCost(const NodeInfo& node, Pace pace,
                                 const PlanArgs& args);
// The same for an output that is copied in so many rows.
WEIR_EXPORT NodeCost RowsCost(const NodeInfo& node, Pace pace,
                              const PlanArgs& args, int64_t rows);

// For what computes each element of its output from one of each input.
WEIR_EXPORT NodeCost ElementwiseCost(const NodeInfo& node, Pace pace,
                                     const PlanArgs& args);

// Adds what each of `count` rows, pictures or matrices takes in turn however
// small it is, as so many operations of their own.
WEIR_EXPORT void AddInTurn(Pace pace, const PlanArgs& args, int64_t count,
                           int64_t operations, NodeCost& cost);
// About 20 ns, for most rows.
inline constexpr int64_t kRowOperations = 20;
// A tensor of more bytes is in no cache: a thread waits for each element that
// it reads where it has read no other in the same line, as long as for so many
// elements.
inline constexpr size_t kCachedBytes = size_t{1} << 20;
inline constexpr int64_t kLineBytes = 64;
inline constexpr int64_t kFarReadOperations = 20;
// The same for `elements` of `from` that lie `stride` elements apart.
WEIR_EXPORT void AddStridedInTurn(Pace pace, const PlanArgs& args,
                                  const TensorMeta& from, int64_t elements,
                                  int64_t stride, NodeCost& cost);
// Of a dense tensor, as long as its last axis with more than one element.
WEIR_EXPORT int64_t RowsOf(const TensorMeta& meta);

}  // namespace weir
