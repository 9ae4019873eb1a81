// From a DType at run time to a C++ type: calls a generic function with the
// matching type, for a list of types that is as short as the operator needs.
// Operators that only move bytes dispatch on the element's size instead.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/tensor/dtype.h"

namespace weir {

template <typename T>
struct TypeTag {
  using Type = T;
};

template <typename... Ts>
struct TypeList {};

template <typename T>
inline constexpr DType kDTypeOf = DType::kInvalid;
template <>
inline constexpr DType kDTypeOf<float> = DType::kFloat;
template <>
inline constexpr DType kDTypeOf<double> = DType::kDouble;
template <>
inline constexpr DType kDTypeOf<Float16> = DType::kFloat16;
template <>
inline constexpr DType kDTypeOf<Bfloat16> = DType::kBfloat16;
template <>
inline constexpr DType kDTypeOf<bool> = DType::kBool;
template <>
inline constexpr DType kDTypeOf<int8_t> = DType::kInt8;
template <>
inline constexpr DType kDTypeOf<int16_t> = DType::kInt16;
template <>
inline constexpr DType kDTypeOf<int32_t> = DType::kInt32;
template <>
inline constexpr DType kDTypeOf<int64_t> = DType::kInt64;
template <>
inline constexpr DType kDTypeOf<uint8_t> = DType::kUint8;
template <>
inline constexpr DType kDTypeOf<uint16_t> = DType::kUint16;
template <>
inline constexpr DType kDTypeOf<uint32_t> = DType::kUint32;
template <>
inline constexpr DType kDTypeOf<uint64_t> = DType::kUint64;
template <>
inline constexpr DType kDTypeOf<StringRef> = DType::kString;

using FloatTypeList = TypeList<float, double>;
using HalfTypeList = TypeList<Float16, Bfloat16>;
using SignedTypeList = TypeList<int8_t, int16_t, int32_t, int64_t>;
using UnsignedTypeList = TypeList<uint8_t, uint16_t, uint32_t, uint64_t>;

template <typename... Lists>
struct JoinTypes;
template <typename... As>
struct JoinTypes<TypeList<As...>> {
  using Type = TypeList<As...>;
};
template <typename... As, typename... Bs, typename... Rest>
struct JoinTypes<TypeList<As...>, TypeList<Bs...>, Rest...> {
  using Type = typename JoinTypes<TypeList<As..., Bs...>, Rest...>::Type;
};
template <typename... Lists>
using Join = typename JoinTypes<Lists...>::Type;

using IntTypeList = Join<SignedTypeList, UnsignedTypeList>;
// What elementwise arithmetic is computed in: half types are computed in float.
using ComputeTypeList = Join<FloatTypeList, IntTypeList>;
using NumericTypeList = Join<ComputeTypeList, HalfTypeList>;
using FixedTypeList = Join<NumericTypeList, TypeList<bool>>;

// float for the half types, else the type itself.
constexpr DType ComputeType(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBfloat16 ? DType::kFloat
                                                               : dtype;
}

// Calls fn(TypeTag<T>()) for the T of `dtype` in the list. False if it is not
// there.
template <typename... Ts, typename Fn>
bool DispatchType(TypeList<Ts...>, DType dtype, Fn&& fn) {
  return ((dtype == kDTypeOf<Ts> ? (fn(TypeTag<Ts>()), true) : false) || ...);
}

// An element of 16 bytes (StringRef) that is moved and never looked at.
struct Bytes16 {
  uint64_t word[2];
};

// Calls fn(TypeTag<T>()) with an unsigned integer, or Bytes16, of `size` bytes.
template <typename Fn>
void DispatchSize(size_t size, Fn&& fn) {
  switch (size) {
    case 1:
      return fn(TypeTag<uint8_t>());
    case 2:
      return fn(TypeTag<uint16_t>());
    case 4:
      return fn(TypeTag<uint32_t>());
    case 8:
      return fn(TypeTag<uint64_t>());
    default:
      return fn(TypeTag<Bytes16>());
  }
}

}  // namespace weir
