// Elementwise operators on the CPU: one driver for broadcasting, threads and
// half types, and inner loops that are instantiated per scalar functor and
// compute type. An operator writes its scalar code once, with WEIR_UNARY or
// WEIR_BINARY; the same text is the expression from which CUDA kernels are
// made.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device/stream.h"
#include "kernels/ops/op.h"
#include "kernels/ops/scalar_functions.h"
#include "kernels/ops/type_dispatch.h"

namespace weir {

// Computes out[i] for i in [0, n) from in[k][i * step[k]]; a step is 0 or 1.
using ElementLoop = FaultCode (*)(const void* const* in, const int64_t* step,
                                  void* out, int64_t n);

inline constexpr int kMaxOperands = 3;

struct ElementwiseCode {
  ElementLoop loop = nullptr;
  // Which inputs of the node the loop takes, and as which types.
  std::vector<size_t> operands;
  std::array<DType, kMaxOperands> types = {};
  DType result = DType::kInvalid;
  // A binary loop that is applied to all inputs from left to right.
  bool fold = false;
  // Elements worth a thread: smaller for costly functions.
  int64_t grain = 32768;
};

// Moves the elements of input 0 as they are.
ElementwiseCode SameElements(DType type);

// UNIMPLEMENTED if `code.loop` is null.
absl::StatusOr<std::unique_ptr<const Kernel>> MakeElementwiseKernel(
    ElementwiseCode code);

// -- Scalar code --------------------------------------------------------------

// WEIR_UNARY(AbsCode, Abs(x0)) defines a functor and its text, kCode.
#define WEIR_UNARY(Name, ...)                                      \
  struct Name {                                                    \
    [[maybe_unused]] static constexpr char kCode[] = #__VA_ARGS__; \
    template <typename T>                                          \
    auto operator()(T x0, FaultCode& fault) const {                \
      using namespace scalar;                                      \
      (void)fault;                                                 \
      return __VA_ARGS__;                                          \
    }                                                              \
  };

#define WEIR_BINARY(Name, ...)                                     \
  struct Name {                                                    \
    [[maybe_unused]] static constexpr char kCode[] = #__VA_ARGS__; \
    template <typename T, typename U>                              \
    auto operator()(T x0, U x1, FaultCode& fault) const {          \
      using namespace scalar;                                      \
      (void)fault;                                                 \
      return __VA_ARGS__;                                          \
    }                                                              \
  };

// What FAULT means inside them: notes the code and yields T(0).
#define FAULT(code) (fault = (code), T(0))

template <typename Functor>
absl::StatusOr<ScalarExpression> CodeOf(const NodeInfo&) {
  return ScalarExpression{Functor::kCode};
}

// -- Inner loops --------------------------------------------------------------

template <typename Functor, typename R, typename A>
FaultCode UnaryLoop(const void* const* in, const int64_t*, void* out,
                    int64_t n) {
  const A* __restrict a = static_cast<const A*>(in[0]);
  R* __restrict r = static_cast<R*>(out);
  FaultCode fault = FaultCode::kNone;
  for (int64_t i = 0; i < n; ++i) {
    r[i] = static_cast<R>(Functor()(a[i], fault));
  }
  return fault;
}

template <typename Functor, typename R, typename A, typename B>
FaultCode BinaryLoop(const void* const* in, const int64_t* step, void* out,
                     int64_t n) {
  const A* __restrict a = static_cast<const A*>(in[0]);
  const B* __restrict b = static_cast<const B*>(in[1]);
  R* __restrict r = static_cast<R*>(out);
  FaultCode fault = FaultCode::kNone;
  if (step[0] != 0 && step[1] != 0) {
    for (int64_t i = 0; i < n; ++i) {
      r[i] = static_cast<R>(Functor()(a[i], b[i], fault));
    }
  } else if (step[0] != 0) {
    const B y = *b;
    for (int64_t i = 0; i < n; ++i) {
      r[i] = static_cast<R>(Functor()(a[i], y, fault));
    }
  } else {
    const A x = *a;
    for (int64_t i = 0; i < n; ++i) {
      r[i] = static_cast<R>(Functor()(x, b[i * step[1]], fault));
    }
  }
  return fault;
}

// One instance per combination of steps: each vectorizes.
template <typename Functor, bool kA, bool kB, bool kC, typename R, typename A,
          typename B, typename C>
void TernarySteps(const A* __restrict a, const B* __restrict b,
                  const C* __restrict c, R* __restrict r, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    r[i] = Functor()(a[kA ? i : 0], b[kB ? i : 0], c[kC ? i : 0]);
  }
}

template <typename Functor, typename R, typename A, typename B, typename C>
FaultCode TernaryLoop(const void* const* in, const int64_t* step, void* out,
                      int64_t n) {
  using Steps = void (*)(const A*, const B*, const C*, R*, int64_t);
  static constexpr Steps kSteps[] = {
      TernarySteps<Functor, false, false, false, R, A, B, C>,
      TernarySteps<Functor, false, false, true, R, A, B, C>,
      TernarySteps<Functor, false, true, false, R, A, B, C>,
      TernarySteps<Functor, false, true, true, R, A, B, C>,
      TernarySteps<Functor, true, false, false, R, A, B, C>,
      TernarySteps<Functor, true, false, true, R, A, B, C>,
      TernarySteps<Functor, true, true, false, R, A, B, C>,
      TernarySteps<Functor, true, true, true, R, A, B, C>};
  kSteps[step[0] * 4 + step[1] * 2 + step[2]](
      static_cast<const A*>(in[0]), static_cast<const B*>(in[1]),
      static_cast<const C*>(in[2]), static_cast<R*>(out), n);
  return FaultCode::kNone;
}

// The loop for a compute type; null if the list lacks it. R void: the same
// type.
template <typename Functor, typename R = void, typename List>
ElementLoop UnaryLoopFor(List list, DType type) {
  ElementLoop loop = nullptr;
  DispatchType(list, type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    loop = UnaryLoop<Functor, std::conditional_t<std::is_void_v<R>, T, R>, T>;
  });
  return loop;
}

template <typename Functor, typename R = void, typename List>
ElementLoop BinaryLoopFor(List list, DType type) {
  ElementLoop loop = nullptr;
  DispatchType(list, type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    loop =
        BinaryLoop<Functor, std::conditional_t<std::is_void_v<R>, T, R>, T, T>;
  });
  return loop;
}

// -- Kernel factories ---------------------------------------------------------

// Output of the input's type.
template <typename Functor, typename List, int64_t kGrain = 32768>
absl::StatusOr<std::unique_ptr<const Kernel>> UnaryKernel(const NodeInfo& node,
                                                          Device&) {
  const DType type = ComputeType(node.input_types[0]);
  return MakeElementwiseKernel({.loop = UnaryLoopFor<Functor>(List(), type),
                                .operands = {0},
                                .types = {type},
                                .result = type,
                                .grain = kGrain});
}

// Two inputs of one type; the output of that type, or R.
template <typename Functor, typename List, typename R = void>
absl::StatusOr<std::unique_ptr<const Kernel>> BinaryKernel(const NodeInfo& node,
                                                           Device&) {
  const DType type = ComputeType(node.input_types[0]);
  return MakeElementwiseKernel(
      {.loop = BinaryLoopFor<Functor, R>(List(), type),
       .operands = {0, 1},
       .types = {type, type},
       .result = std::is_void_v<R> ? type : DType::kBool});
}

}  // namespace weir
