// Shapes. `Dims` are concrete; `Dim` and `SymbolicShape` serve inference before
// all sizes are known. Sizes that overflow are errors, never wrapped. Pure.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/base/export.h"
#include "kernels/tensor/dtype.h"

namespace weir {

using Dims = absl::InlinedVector<int64_t, 6>;

// The largest tensor that a graph may hold, in bytes: 1 TiB.
inline constexpr int64_t kMaxTensorBytes = int64_t{1} << 40;
inline constexpr int kMaxRank = 8;

// Product of `dims`; INVALID_ARGUMENT for a negative dimension, more than
// kMaxRank of them, or an overflow. A rank-0 shape has one element.
WEIR_EXPORT absl::StatusOr<int64_t> NumElements(absl::Span<const int64_t> dims);
// Elements times SizeOf(dtype), at most kMaxTensorBytes.
WEIR_EXPORT absl::StatusOr<int64_t> ByteSize(DType dtype,
                                             absl::Span<const int64_t> dims);

// "[2,3]"; of a list too long for a shape, how it begins: "[1,2,...]".
WEIR_EXPORT std::string DimsString(absl::Span<const int64_t> dims);

// A size that is known, or a symbol. Two dims with the same symbol are equal at
// run time. Arithmetic with a symbol gives a fresh unknown, except where the
// result is plainly the symbol itself (+0, *1, /1).
class WEIR_EXPORT Dim {
 public:
  Dim() = default;  // unknown and unnamed
  // A size is a Dim. -1 is unknown; anything else below 0 is invalid.
  // NOLINTNEXTLINE(google-explicit-constructor)
  Dim(int64_t value) : value_(value < -1 ? kInvalid : value) {}
  static Dim Symbol(int id) {  // id >= 0
    Dim d;
    d.value_ = -2 - id;
    return d;
  }

  bool known() const { return value_ >= 0; }
  int64_t value() const { return value_; }  // REQUIRES: known()
  bool symbolic() const { return value_ <= -2 && value_ != kInvalid; }
  bool invalid() const { return value_ == kInvalid; }
  int symbol() const { return static_cast<int>(-2 - value_); }

  // True only if they are surely the same.
  bool SurelyEquals(Dim other) const {
    return value_ == other.value_ && (known() || symbolic());
  }
  bool SurelyDiffers(Dim other) const {
    return known() && other.known() && value_ != other.value_;
  }

  // Overflow and negative results give an invalid dim, which the end of
  // inference refuses.
  friend WEIR_EXPORT Dim operator+(Dim a, Dim b);
  friend WEIR_EXPORT Dim operator-(Dim a, Dim b);
  friend WEIR_EXPORT Dim operator*(Dim a, Dim b);
  friend WEIR_EXPORT Dim operator/(Dim a, Dim b);  // floor; b known and > 0
  friend bool operator==(Dim a, Dim b) { return a.value_ == b.value_; }

 private:
  static constexpr int64_t kInvalid = std::numeric_limits<int64_t>::min();

  int64_t value_ = -1;
};

// Empty optional: not even the rank is known.
using SymbolicDims = absl::InlinedVector<Dim, 6>;
using SymbolicShape = std::optional<SymbolicDims>;

// True only if both ranks are known and the same, and so surely every dim.
WEIR_EXPORT bool SurelyEqual(const SymbolicShape& a, const SymbolicShape& b);
WEIR_EXPORT SymbolicDims ToSymbolic(absl::Span<const int64_t> dims);
// Product; 1 for no dims, 0 where one of them is.
WEIR_EXPORT Dim Product(absl::Span<const Dim> dims);
// Empty unless every dim is known.
WEIR_EXPORT std::optional<Dims> ToConcrete(const SymbolicShape& shape);
WEIR_EXPORT std::string ShapeString(const SymbolicShape& shape);

// NumPy's rule, right-aligned; equal, 1, or an error that prints both shapes.
WEIR_EXPORT absl::StatusOr<SymbolicDims> BroadcastShapes(
    absl::Span<const Dim> a, absl::Span<const Dim> b);

// Axis in [-rank, rank) to [0, rank); INVALID_ARGUMENT names axis and rank.
WEIR_EXPORT absl::StatusOr<int> NormalizeAxis(int64_t axis, int rank);

// Element strides of a dense row-major tensor.
WEIR_EXPORT Dims DenseStrides(absl::Span<const int64_t> dims);

}  // namespace weir
