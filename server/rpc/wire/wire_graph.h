// weir.v1.Graph without a protobuf object: the graph's own bytes, constants
// among them, stay in the received slices. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>

#include "server/bytes/byte_view.h"
#include "server/rpc/wire/wire_reader.h"

namespace weir {

struct WireModelReference {
  std::string_view name;
  int64_t version = 0;
  std::string_view version_label;  // if not empty, instead of the number
};

struct WireGraphDefinition {
  ByteView bytes;  // a weir.v1.GraphDefinition
};

struct WireOnnxModel {
  ByteView bytes;  // an onnx.ModelProto
};

using WireGraph = std::variant<std::monostate, WireGraphDefinition,
                               WireOnnxModel, WireModelReference>;

// The current field of a request is its graph, the only one.
void ReadOnlyGraph(WireReader& reader, WireGraph* graph);

}  // namespace weir
