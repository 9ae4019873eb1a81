// From the graph of a request to its program: the key under which the program
// is cached, and the import that makes it. Pure; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/graph/program_cache.h"
#include "server/rpc/call_arena.h"
#include "server/rpc/wire_evaluate.h"

namespace weir {

// For a definition or an ONNX model: kind, the inputs' types and ranks (an
// input may take its declaration from its value) and the graph's bytes, in the
// arena.
std::string_view ProgramKey(const WireGraph& graph,
                            std::span<const WireTensor> inputs,
                            CallArena* arena);

// Imports what the key describes; runs on a compile thread.
absl::StatusOr<Graph> ImportKey(std::string_view key);

}  // namespace weir
