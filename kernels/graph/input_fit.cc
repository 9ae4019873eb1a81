#include "kernels/graph/input_fit.h"

#include "absl/strings/str_cat.h"

namespace weir {
namespace {

// With the caller's names; -1, as models and messages have it, for what has
// none.
std::string Named(absl::Span<const Dim> dims,
                  const std::vector<std::string>& symbols) {
  std::string text = "[";
  for (Dim dim : dims) {
    if (text.size() > 1) text += ",";
    if (dim.known()) {
      absl::StrAppend(&text, dim.value());
    } else if (dim.symbolic() &&
               static_cast<size_t>(dim.symbol()) < symbols.size()) {
      text += symbols[static_cast<size_t>(dim.symbol())];
    } else {
      text += "-1";
    }
  }
  return text + "]";
}

}  // namespace

absl::Status CheckInputFit(const ValueDecl& decl,
                           const std::vector<std::string>& symbols,
                           absl::Span<const Dim> given) {
  if (!decl.shape.has_value()) return absl::OkStatus();
  bool fits = decl.shape->size() == given.size();
  for (size_t d = 0; fits && d < given.size(); ++d) {
    fits = !(*decl.shape)[d].SurelyDiffers(given[d]);
  }
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("has shape ", Named(given, symbols), " where ",
                   Named(*decl.shape, symbols), " is declared"));
}

SymbolicShape CompleteShape(const SymbolicShape& declared,
                            const SymbolicShape& given) {
  if (!declared.has_value() || !given.has_value()) {
    return declared.has_value() ? declared : given;
  }
  SymbolicShape shape = declared;
  for (size_t d = 0; d < shape->size(); ++d) {
    const Dim wanted = (*given)[d];
    if (wanted.known() || wanted.invalid()) (*shape)[d] = wanted;
  }
  return shape;
}

}  // namespace weir
