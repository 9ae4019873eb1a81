#include "kernels/tensor/shape.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status_macros.h"

namespace weir {
namespace {

// Of a list that is too long for a shape, in errors.
constexpr size_t kShownDims = 2 * kMaxRank;

std::string DimString(Dim dim) {
  if (dim.known()) return absl::StrCat(dim.value());
  if (dim.symbolic()) return absl::StrCat("s", dim.symbol());
  return dim.invalid() ? "!" : "?";
}

std::string SpanString(absl::Span<const Dim> dims) {
  return absl::StrCat(
      "[",
      absl::StrJoin(dims.subspan(0, kShownDims), ",",
                    [](std::string* out, Dim dim) { *out += DimString(dim); }),
      dims.size() > kShownDims ? ",...]" : "]");
}

Dim InvalidDim() { return Dim(-2); }

}  // namespace

absl::StatusOr<int64_t> NumElements(absl::Span<const int64_t> dims) {
  if (dims.size() > static_cast<size_t>(kMaxRank)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", dims.size(), " is more than ", kMaxRank, " dimensions"));
  }
  int64_t product = 1;
  bool overflow = false;
  bool empty = false;
  for (int64_t dim : dims) {
    if (dim < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("negative dimension in shape ", DimsString(dims)));
    }
    if (dim == 0) empty = true;
    if (__builtin_mul_overflow(product, dim, &product)) overflow = true;
  }
  if (empty) return 0;
  if (overflow) {
    return absl::InvalidArgumentError(absl::StrCat(
        "shape ", DimsString(dims), " has more elements than 63 bits count"));
  }
  return product;
}

absl::StatusOr<int64_t> ByteSize(DType dtype, absl::Span<const int64_t> dims) {
  WEIR_ASSIGN_OR_RETURN(const int64_t elements, NumElements(dims));
  int64_t bytes = 0;
  if (__builtin_mul_overflow(elements, static_cast<int64_t>(SizeOf(dtype)),
                             &bytes) ||
      bytes > kMaxTensorBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("shape ", DimsString(dims), " is larger than a tensor's ",
                     kMaxTensorBytes, " bytes"));
  }
  return bytes;
}

std::string DimsString(absl::Span<const int64_t> dims) {
  return absl::StrCat("[", absl::StrJoin(dims.subspan(0, kShownDims), ","),
                      dims.size() > kShownDims ? ",...]" : "]");
}

Dim operator+(Dim a, Dim b) {
  if (a.invalid() || b.invalid()) return InvalidDim();
  if (b == Dim(0)) return a;
  if (a == Dim(0)) return b;
  int64_t sum = 0;
  if (!a.known() || !b.known()) return Dim();
  return __builtin_add_overflow(a.value(), b.value(), &sum) ? InvalidDim()
                                                            : Dim(sum);
}

Dim operator-(Dim a, Dim b) {
  if (a.invalid() || b.invalid()) return InvalidDim();
  if (b == Dim(0)) return a;
  if (a.SurelyEquals(b)) return Dim(0);
  if (!a.known() || !b.known()) return Dim();
  return a.value() < b.value() ? InvalidDim() : Dim(a.value() - b.value());
}

Dim operator*(Dim a, Dim b) {
  if (a.invalid() || b.invalid()) return InvalidDim();
  if (b == Dim(1)) return a;
  if (a == Dim(1)) return b;
  if (a == Dim(0) || b == Dim(0)) return Dim(0);
  int64_t product = 0;
  if (!a.known() || !b.known()) return Dim();
  return __builtin_mul_overflow(a.value(), b.value(), &product) ? InvalidDim()
                                                                : Dim(product);
}

Dim operator/(Dim a, Dim b) {
  if (a.invalid() || !b.known() || b.value() == 0) return InvalidDim();
  if (b == Dim(1)) return a;
  return a.known() ? Dim(a.value() / b.value()) : Dim();
}

bool SurelyEqual(const SymbolicShape& a, const SymbolicShape& b) {
  return a.has_value() && b.has_value() &&
         std::equal(a->begin(), a->end(), b->begin(), b->end(),
                    [](Dim x, Dim y) { return x.SurelyEquals(y); });
}

SymbolicDims ToSymbolic(absl::Span<const int64_t> dims) {
  return SymbolicDims(dims.begin(), dims.end());
}

Dim Product(absl::Span<const Dim> dims) {
  // Empty, however large the others are.
  for (Dim dim : dims) {
    if (dim.known() && dim.value() == 0) return dim;
  }
  Dim product(1);
  for (Dim dim : dims) product = product * dim;
  return product;
}

std::optional<Dims> ToConcrete(const SymbolicShape& shape) {
  if (!shape.has_value()) return std::nullopt;
  Dims dims;
  for (Dim dim : *shape) {
    if (!dim.known()) return std::nullopt;
    dims.push_back(dim.value());
  }
  return dims;
}

std::string ShapeString(const SymbolicShape& shape) {
  return shape.has_value() ? SpanString(*shape) : "[...]";
}

absl::StatusOr<SymbolicDims> BroadcastShapes(absl::Span<const Dim> a,
                                             absl::Span<const Dim> b) {
  const size_t rank = std::max(a.size(), b.size());
  SymbolicDims result(rank);
  for (size_t i = 0; i < rank; ++i) {
    const size_t from_right = rank - i;
    const Dim x = from_right <= a.size() ? a[a.size() - from_right] : Dim(1);
    const Dim y = from_right <= b.size() ? b[b.size() - from_right] : Dim(1);
    const bool one = x == Dim(1) || y == Dim(1);
    const bool same = x.SurelyEquals(y);
    if (!one && !same && (x.SurelyDiffers(y) || x.invalid() || y.invalid())) {
      return absl::InvalidArgumentError(absl::StrCat("shapes ", SpanString(a),
                                                     " and ", SpanString(b),
                                                     " do not broadcast"));
    }
    // What is known and not 1 is the extent: the other is the same, or 1.
    if (same || y == Dim(1) || (x.known() && x != Dim(1))) {
      result[i] = x;
    } else if (x == Dim(1) || y.known()) {
      result[i] = y;
    }
  }
  return result;
}

absl::StatusOr<int> NormalizeAxis(int64_t axis, int rank) {
  if (axis < -rank || axis >= rank) {
    return absl::InvalidArgumentError(
        absl::StrCat("axis ", axis, " is out of range for rank ", rank));
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

Dims DenseStrides(absl::Span<const int64_t> dims) {
  Dims strides(dims.size());
  // In a tensor without elements the product of some extents may overflow.
  uint64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    strides[i] = static_cast<int64_t>(stride);
    stride *= static_cast<uint64_t>(dims[i]);
  }
  return strides;
}

}  // namespace weir
