// Where a caller's program made the nodes of a weir.v1.GraphDefinition
// (Node.call_site): read apart from the graph, which has the same program
// whatever line of a program made it. Pure functions, any thread.
#pragma once

#include <optional>
#include <span>

#include "kernels/graph/call_sites.h"
#include "server/bytes/byte_view.h"
#include "server/bytes/call_arena.h"

namespace weir {

// Of the nodes that have one. Empty, too, for a definition that is malformed,
// or has more fields than are read here.
CallSites ReadCallSites(const ByteView& definition, CallArena* arena);

// The definition without them, whole, in `arena`; empty if there are none to be
// read, or if the arena refuses.
std::optional<std::span<char>> WithoutCallSites(const ByteView& definition,
                                                CallArena* arena);

}  // namespace weir
