// How much memory a graph takes, about: for whoever counts what he keeps of
// callers. Pure function, any thread.
#pragma once

#include <cstddef>

#include "kernels/base/export.h"
#include "kernels/graph/graph.h"

namespace weir {

// With its constants, which it may share.
WEIR_EXPORT size_t GraphBytes(const Graph& graph);

}  // namespace weir
