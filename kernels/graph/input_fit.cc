#include "kernels/graph/input_fit.h"

#include "absl/strings/str_cat.h"

namespace weir {

std::string InputFit::Declared(const ValueDecl& decl) const {
  if (!decl.shape.has_value()) return "[...]";
  std::string text = "[";
  for (Dim dim : *decl.shape) {
    if (text.size() > 1) text += ",";
    if (dim.known()) {
      absl::StrAppend(&text, dim.value());
    } else if (dim.symbolic()) {
      text += symbols_[static_cast<size_t>(dim.symbol())];
    } else {
      text += "?";
    }
  }
  return text + "]";
}

absl::Status InputFit::Check(const ValueDecl& decl,
                             absl::Span<const Dim> given) {
  if (!decl.shape.has_value()) return absl::OkStatus();
  const auto text = [&] {
    return ShapeString(SymbolicDims(given.begin(), given.end()));
  };
  bool fits = decl.shape->size() == given.size();
  for (size_t d = 0; fits && d < given.size(); ++d) {
    const Dim dim = (*decl.shape)[d];
    if (!dim.symbolic()) {
      fits = !dim.SurelyDiffers(given[d]);
      continue;
    }
    Dim& size = sizes_[static_cast<size_t>(dim.symbol())];
    if (!size.known()) size = given[d];
    if (size.SurelyDiffers(given[d])) {
      return absl::InvalidArgumentError(
          absl::StrCat("has shape ", text(), ", but ",
                       symbols_[static_cast<size_t>(dim.symbol())], " is ",
                       size.value(), " in an input before it"));
    }
  }
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "has shape ", text(), " where ", Declared(decl), " is declared"));
}

SymbolicShape InputFit::Complete(const ValueDecl& decl,
                                 const SymbolicShape& given) const {
  SymbolicShape shape = decl.shape.has_value() ? decl.shape : given;
  if (!shape.has_value()) return shape;
  for (size_t d = 0; d < shape->size(); ++d) {
    Dim& dim = (*shape)[d];
    const Dim wanted = given.has_value() ? (*given)[d] : Dim();
    if (wanted.known() || wanted.invalid()) {
      dim = wanted;
    } else if (dim.symbolic()) {
      const Dim size = sizes_[static_cast<size_t>(dim.symbol())];
      if (size.known()) dim = size;
    }
  }
  return shape;
}

}  // namespace weir
