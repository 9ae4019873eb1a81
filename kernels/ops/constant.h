// The value of a Constant node, for the graph layer (which makes a constant of
// it) and for the kernel; and constants of text. Pure.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/export.h"
#include "kernels/ops/op.h"

namespace weir {

// INVALID_ARGUMENT unless exactly one value attribute is there.
WEIR_EXPORT absl::StatusOr<Constant> ConstantValue(const NodeInfo& node);

// Owns a copy of the strings, all in one block: what programs count of text is
// its references and characters.
template <typename Strings>
Constant TextConstant(Dims dims, const Strings& strings) {
  struct Owner {
    std::string characters;
    std::vector<StringRef> refs;
  };
  auto owner = std::make_shared<Owner>();
  size_t bytes = 0, count = 0;
  for (const std::string& text : strings) {
    bytes += text.size();
    ++count;
  }
  owner->characters.reserve(bytes);
  owner->refs.reserve(count);
  for (const std::string& text : strings) {
    owner->refs.push_back(
        {owner->characters.data() + owner->characters.size(), text.size()});
    owner->characters += text;
  }
  Constant constant;
  constant.tensor = {DType::kString, std::move(dims), owner->refs.data()};
  constant.owner = std::move(owner);
  return constant;
}

}  // namespace weir
