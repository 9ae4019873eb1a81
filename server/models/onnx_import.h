// onnx.ModelProto -> Graph. Models are not trusted: what the message can get
// wrong by itself is checked here, the graph, its types and its shapes by
// Program::Compile. Pure but for external data; any thread.
//
// An initializer that is also a graph input is a constant. Constant nodes
// become constants. Domain "ai.onnx" is "".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/stop_token.h"
#include "kernels/graph/graph.h"

namespace weir {

struct OnnxImportOptions {
  // Where external data may lie; empty: nowhere.
  std::string folder;
  // Requested, it ends the reading of external data with CANCELLED.
  StopToken stop;
};

// INVALID_ARGUMENT says what is wrong with the bytes; UNIMPLEMENTED names what
// weir lacks: functions, subgraphs, sparse tensors, training information,
// sequences, other domains and element types. RESOURCE_EXHAUSTED, before the
// message is parsed, if that would take too much memory (parsed_size.h).
absl::StatusOr<Graph> ImportOnnx(std::string_view model,
                                 const OnnxImportOptions& options = {});

// The model in a file, with external data beside it. Errors name the file.
// Nothing of it is needed afterwards, and whoever changes it while it is read
// gets an error at worst.
struct OnnxFile {
  Graph graph;
  uint64_t fingerprint = 0;  // of the file, not of external data
};
absl::StatusOr<OnnxFile> ImportOnnxFile(const std::string& path,
                                        StopToken stop = {});

}  // namespace weir
