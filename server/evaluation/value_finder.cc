#include "server/evaluation/value_finder.h"

#include "kernels/base/absl_view.h"

namespace weir {
namespace {

// Fewer names are found sooner than a table is made.
constexpr size_t kFew = 16;

bool AreFew(size_t declared, size_t lookups) {
  return lookups <= kFew || declared <= kFew;
}

}  // namespace

// The table has room for a power of two of them, an eighth of it unused.
size_t ValueFinder::Bytes(size_t declared, size_t lookups) {
  if (AreFew(declared, lookups)) return 0;
  return declared * (sizeof(Positions::value_type) + 1) * 16 / 7;
}

ValueFinder::ValueFinder(const std::vector<ValueDecl>& declared, size_t lookups)
    : declared_(declared) {
  if (AreFew(declared.size(), lookups)) return;
  positions_.reserve(declared.size());
  for (size_t i = 0; i < declared.size(); ++i) {
    positions_.emplace(declared[i].name, static_cast<int>(i));
  }
}

int ValueFinder::Find(std::string_view name) const {
  if (!positions_.empty()) {
    const auto found = positions_.find(AbslView(name));
    return found == positions_.end() ? -1 : found->second;
  }
  for (size_t i = 0; i < declared_.size(); ++i) {
    if (declared_[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace weir
