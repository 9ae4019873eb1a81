// Positions of declared inputs or outputs by name, for the names of one
// request: their numbers come from strangers, and so does the graph. Used by
// one thread at a time, while `declared` lives.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "kernels/graph/graph.h"

namespace weir {

class ValueFinder {
 public:
  // `lookups` is how many names will be looked for, about: few are compared one
  // by one.
  ValueFinder(const std::vector<ValueDecl>& declared, size_t lookups);

  // What it takes of memory, at most; 0 where few are looked for.
  static size_t Bytes(size_t declared, size_t lookups);

  // Of the first that has this name, or -1.
  int Find(std::string_view name) const;

 private:
  using Positions = absl::flat_hash_map<absl::string_view, int>;

  const std::vector<ValueDecl>& declared_;
  Positions positions_;  // empty where few are looked for
};

}  // namespace weir
