// Builds weir's graph from the one-node models of the operator cases, so that
// the operators are tested without the server's ONNX importer.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "kernels/graph/graph.h"

namespace weir {

// `model` is a serialized onnx.ModelProto without subgraphs or external data.
absl::StatusOr<Graph> GraphOfCase(const std::string& model);

}  // namespace weir
