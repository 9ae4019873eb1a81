// Whether the shapes given for a program's inputs are those that it declares.
// The inputs are shown one after the other; a symbol has the size that the
// first of them gives it. Used by one thread. Internal to this layer.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/graph/graph.h"
#include "kernels/tensor/shape.h"

namespace weir {

class InputFit {
 public:
  // `symbols` are the program's and outlive this.
  explicit InputFit(const std::vector<std::string>& symbols)
      : symbols_(symbols), sizes_(symbols.size()) {}

  // INVALID_ARGUMENT continues the input's name: "has shape [2,3] where [N,4]
  // is declared". A dim that is not known fits.
  absl::Status Check(const ValueDecl& decl, absl::Span<const Dim> given);

  // What is known of an input's shape: of each dim the given size, or the
  // declared one, or its symbol's.
  SymbolicShape Complete(const ValueDecl& decl,
                         const SymbolicShape& given) const;

 private:
  std::string Declared(const ValueDecl& decl) const;

  const std::vector<std::string>& symbols_;
  std::vector<Dim> sizes_;  // by symbol
};

}  // namespace weir
