// Element types. The numbers are ONNX's TensorProto.DataType, which are also
// the numbers on the wire. Pure functions; any thread.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "kernels/base/export.h"

namespace weir {

enum class DType : uint8_t {
  kInvalid = 0,
  kFloat = 1,
  kUint8 = 2,
  kInt8 = 3,
  kUint16 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kString = 8,
  kBool = 9,
  kFloat16 = 10,
  kDouble = 11,
  kUint32 = 12,
  kUint64 = 13,
  kBfloat16 = 16,
};

// One element of a kString tensor: a view of bytes that something else keeps
// alive for as long as the work runs (a request's slice, a constant).
struct StringRef {
  const char* data;
  uint64_t size;
  operator std::string_view() const {  // NOLINT(google-explicit-constructor)
    return {data, size};
  }
};

// IEEE binary16 and bfloat16 as they lie in memory. Arithmetic is done in
// float; conversions round to nearest even, inline and without branches, so
// that loops over them vectorize.
struct Float16 {
  uint16_t bits = 0;
  Float16() = default;
  explicit Float16(float value) : bits(FromFloat(value)) {}
  operator float() const {  // NOLINT(google-explicit-constructor)
    const uint32_t magnitude = bits & 0x7FFFu;
    // A float has 112 more exponents below 1; twice that makes infinities.
    const uint32_t normal = (magnitude << 13) + (112u << 23) +
                            (magnitude >= 0x7C00u ? 112u << 23 : 0u);
    const float subnormal =
        static_cast<float>(static_cast<int>(magnitude)) * 0x1p-24f;
    const uint32_t result =
        magnitude < 0x400u ? std::bit_cast<uint32_t>(subnormal) : normal;
    return std::bit_cast<float>(result | (bits & 0x8000u) << 16);
  }

 private:
  static uint16_t FromFloat(float value) {
    const uint32_t all = std::bit_cast<uint32_t>(value);
    const uint32_t magnitude = all & 0x7FFFFFFFu;
    const uint32_t normal =
        (magnitude - (112u << 23) + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
    // Floats in [0.5, 1) are as far apart as subnormal halves: the addition
    // rounds to one of them.
    const uint32_t subnormal =
        std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) -
        0x3F000000u;
    uint32_t result = magnitude < 0x38800000u ? subnormal : normal;
    result = magnitude >= 0x477FF000u ? 0x7C00u : result;
    result = magnitude > 0x7F800000u ? 0x7E00u : result;
    return static_cast<uint16_t>(result | (all >> 16 & 0x8000u));
  }
};

struct Bfloat16 {
  uint16_t bits = 0;
  Bfloat16() = default;
  explicit Bfloat16(float value) : bits(FromFloat(value)) {}
  operator float() const {  // NOLINT(google-explicit-constructor)
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }

 private:
  static uint16_t FromFloat(float value) {
    const uint32_t all = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (all + 0x7FFFu + (all >> 16 & 1u)) >> 16;
    const bool nan = (all & 0x7FFFFFFFu) > 0x7F800000u;
    return static_cast<uint16_t>(nan ? (all >> 16) | 0x40u : rounded);
  }
};

// Bytes per element; 16 for kString (StringRef), 0 for kInvalid.
WEIR_EXPORT size_t SizeOf(DType dtype);

// ONNX's name in lower case: "float", "int64", "float16".
WEIR_EXPORT std::string_view DTypeName(DType dtype);
// KServe's name: "FP32", "INT64", "BYTES".
WEIR_EXPORT std::string_view KServeName(DType dtype);
WEIR_EXPORT std::optional<DType> DTypeFromKServe(std::string_view name);
// Empty for numbers that weir does not know.
WEIR_EXPORT std::optional<DType> DTypeFromOnnx(int64_t number);

constexpr bool IsFloating(DType t) {
  return t == DType::kFloat || t == DType::kDouble || t == DType::kFloat16 ||
         t == DType::kBfloat16;
}
constexpr bool IsInteger(DType t) {
  return t == DType::kInt8 || t == DType::kInt16 || t == DType::kInt32 ||
         t == DType::kInt64 || t == DType::kUint8 || t == DType::kUint16 ||
         t == DType::kUint32 || t == DType::kUint64;
}

// A set of element types, for operator signatures.
class TypeSet {
 public:
  constexpr TypeSet() = default;
  constexpr TypeSet(std::initializer_list<DType> types) {
    for (DType t : types) bits_ |= 1u << static_cast<unsigned>(t);
  }
  constexpr bool Has(DType t) const {
    return (bits_ >> static_cast<unsigned>(t)) & 1u;
  }
  constexpr TypeSet operator|(TypeSet other) const {
    TypeSet result;
    result.bits_ = bits_ | other.bits_;
    return result;
  }

 private:
  uint32_t bits_ = 0;
};

inline constexpr TypeSet kFloatTypes = {DType::kFloat, DType::kDouble,
                                        DType::kFloat16, DType::kBfloat16};
inline constexpr TypeSet kSignedIntTypes = {DType::kInt8, DType::kInt16,
                                            DType::kInt32, DType::kInt64};
inline constexpr TypeSet kUnsignedIntTypes = {DType::kUint8, DType::kUint16,
                                              DType::kUint32, DType::kUint64};
inline constexpr TypeSet kIntTypes = kSignedIntTypes | kUnsignedIntTypes;
inline constexpr TypeSet kNumericTypes = kFloatTypes | kIntTypes;
inline constexpr TypeSet kFixedTypes = kNumericTypes | TypeSet{DType::kBool};
inline constexpr TypeSet kAllTypes = kFixedTypes | TypeSet{DType::kString};

}  // namespace weir
