// The values of nodes of Constant, for the graph layer (which makes constants
// of them) and the kernels of both devices, and of ConstantOfShape; and
// constants of text. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
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

// The element that ConstantOfShape repeats.
struct Fill {
  DType dtype = DType::kFloat;
  uint64_t pattern = 0;  // its bytes, and then 0
};
// INVALID_ARGUMENT unless "value" is a single element.
WEIR_EXPORT absl::StatusOr<Fill> FillOf(const NodeInfo& node);

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
