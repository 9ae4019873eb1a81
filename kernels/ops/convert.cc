#include "kernels/ops/convert.h"

#include <cstring>
#include <type_traits>

#include "kernels/ops/scalar_functions.h"
#include "kernels/ops/type_dispatch.h"

namespace weir {
namespace {

template <typename T>
inline constexpr bool kIsHalf =
    std::is_same_v<T, Float16> || std::is_same_v<T, Bfloat16>;

template <typename From, typename To>
To ConvertElement(From value) {
  if constexpr (kIsHalf<From>) {
    return ConvertElement<float, To>(static_cast<float>(value));
  } else if constexpr (kIsHalf<To>) {
    return To(scalar::ToHalfSource(value));
  } else {
    return scalar::Convert<To>(value);
  }
}

template <typename From, typename To>
void Loop(const void* source, void* target, int64_t n) {
  const From* __restrict from = static_cast<const From*>(source);
  To* __restrict to = static_cast<To*>(target);
  for (int64_t i = 0; i < n; ++i) to[i] = ConvertElement<From, To>(from[i]);
}

template <typename T>
void Copy(const void* source, void* target, int64_t n) {
  std::memcpy(target, source, static_cast<size_t>(n) * sizeof(T));
}

}  // namespace

ConvertLoop FindConvertLoop(DType from, DType to) {
  ConvertLoop loop = nullptr;
  DispatchType(FixedTypeList(), from, [&](auto from_tag) {
    using From = typename decltype(from_tag)::Type;
    DispatchType(FixedTypeList(), to, [&](auto to_tag) {
      using To = typename decltype(to_tag)::Type;
      if constexpr (std::is_same_v<From, To>) {
        loop = Copy<From>;
      } else {
        loop = Loop<From, To>;
      }
    });
  });
  return loop;
}

}  // namespace weir
