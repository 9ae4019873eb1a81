// Which element types an operator's outputs have: asked of its inference, with
// every type that its inputs may have, so that nothing is said twice. Pure.
#pragma once

#include <string_view>
#include <vector>

#include "kernels/base/export.h"
#include "kernels/ops/op.h"

namespace weir {

struct OutputTypes {
  int like_input = -1;            // has the type of that input
  std::vector<DType> types = {};  // if -1: has one of these
  // Says another type, or the type if there is nothing else; empty: none does.
  std::string_view attribute = {};
};

// One for each of OpDef::outputs. Where inference takes no node without
// knowing more of it, all is empty.
WEIR_EXPORT std::vector<OutputTypes> OutputTypesOf(const OpDef& def);

}  // namespace weir
