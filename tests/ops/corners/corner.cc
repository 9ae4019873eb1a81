#include "tests/ops/corners/corner.h"

#include <algorithm>
#include <limits>
#include <type_traits>

namespace weir::corners {
namespace {

template <typename T>
inline constexpr bool kIsHalf =
    std::is_same_v<T, Float16> || std::is_same_v<T, Bfloat16>;

struct FloatEnds {
  Real denormal, normal, largest;
};

FloatEnds EndsOf(DType dtype) {
  switch (dtype) {
    case DType::kDouble:
      return {0x1p-1074L, 0x1p-1022L,
              static_cast<Real>(std::numeric_limits<double>::max())};
    case DType::kFloat16:
      return {0x1p-24L, 0x1p-14L, 65504};
    case DType::kBfloat16:
      return {0x1p-133L, 0x1p-126L, 0x1.FEp127L};
    default:
      return {0x1p-149L, 0x1p-126L,
              static_cast<Real>(std::numeric_limits<float>::max())};
  }
}

}  // namespace

Array Read(const Value& value) {
  Array array{value.dtype, value.dims, {}};
  DispatchType(FixedTypeList(), value.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    for (size_t i = 0; i < value.bytes.size() / sizeof(T); ++i) {
      T element;
      std::memcpy(&element, value.bytes.data() + i * sizeof(T), sizeof(T));
      if constexpr (kIsHalf<T>) {
        array.v.push_back(static_cast<Real>(static_cast<float>(element)));
      } else {
        array.v.push_back(static_cast<Real>(element));
      }
    }
  });
  return array;
}

Value Make(DType dtype, Dims dims, const Reals& values) {
  Value value;
  value.dtype = dtype;
  value.dims = std::move(dims);
  DispatchType(FixedTypeList(), dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    value.bytes.resize(values.size() * sizeof(T));
    for (size_t i = 0; i < values.size(); ++i) {
      T element;
      if constexpr (kIsHalf<T>) {
        element = T(static_cast<float>(values[i]));
      } else if constexpr (std::is_same_v<T, bool>) {
        element = values[i] != 0;
      } else {
        element = static_cast<T>(values[i]);
      }
      std::memcpy(value.bytes.data() + i * sizeof(T), &element, sizeof(T));
    }
  });
  return value;
}

Reals Specials(DType dtype, Ends ends) {
  constexpr Real kInfinity = std::numeric_limits<Real>::infinity();
  if (dtype == DType::kBool) return {0, 1, 1, 0, 1};
  Reals values;
  if (IsFloating(dtype)) {
    const FloatEnds e = EndsOf(dtype);
    values = {0,          -0.0L,
              1,          -1,
              0.5L,       -2.5L,
              3,          kInfinity,
              -kInfinity, std::numeric_limits<Real>::quiet_NaN(),
              e.denormal, -e.denormal,
              e.normal};
    if (ends == Ends::kAll) {
      values.push_back(e.largest);
      values.push_back(-e.largest);
    }
    return values;
  }
  DispatchType(IntTypeList(), dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    constexpr T kMax = std::numeric_limits<T>::max();
    constexpr T kMin = std::numeric_limits<T>::min();
    values = {0,
              1,
              2,
              7,
              static_cast<Real>(kMax),
              static_cast<Real>(kMin),
              static_cast<Real>(kMax) - 1,
              static_cast<Real>(kMin) + 1};
    if (std::is_signed_v<T>) values.push_back(-1);
  });
  return values;
}

int64_t Elements(const Dims& dims) { return NumElements(dims).value(); }

Value Filled(DType dtype, const Dims& dims, const Reals& values, size_t shift) {
  Reals all(static_cast<size_t>(Elements(dims)));
  for (size_t i = 0; i < all.size(); ++i) {
    all[i] = values[(i + shift) % values.size()];
  }
  return Make(dtype, dims, all);
}

Dims Unflatten(const Dims& dims, int64_t i) {
  Dims index(dims.size());
  for (size_t d = dims.size(); d-- > 0; i /= dims[d]) index[d] = i % dims[d];
  return index;
}

int64_t Flatten(const Dims& dims, const Dims& index) {
  int64_t i = 0;
  for (size_t d = 0; d < dims.size(); ++d) i = i * dims[d] + index[d];
  return i;
}

int64_t Broadcast(const Dims& out, const Dims& dims, int64_t i) {
  const Dims index = Unflatten(out, i);
  Dims from(dims.size());
  for (size_t d = 0; d < dims.size(); ++d) {
    from[d] = dims[d] == 1 ? 0 : index[out.size() - dims.size() + d];
  }
  return Flatten(dims, from);
}

}  // namespace weir::corners
