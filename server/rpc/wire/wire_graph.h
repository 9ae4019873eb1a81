// weir.v1.Graph without a protobuf object: the graph's own bytes, constants
// among them, stay in the received slices. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>

#include "server/bytes/byte_view.h"
#include "server/bytes/call_arena.h"
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

// Calls found(name, declared) for each input of a weir.v1.GraphDefinition, in
// its order: whether the graph declares its type and rank, or leaves that to
// the request. `name` lives as long as `arena`. False: the definition is
// malformed, or has more fields or deeper groups than are read here, and what
// was found means nothing.
template <typename Found>
bool ReadGraphInputs(const ByteView& definition, CallArena* arena,
                     Found&& found) {
  WireReader reader(definition, arena);
  while (reader.NextField()) {
    if (reader.number() != 2) {
      reader.Skip();
      continue;
    }
    std::string_view name;
    bool declared = false;
    reader.Message("inputs", [&](WireReader&) {
      while (reader.NextField()) {
        if (reader.number() == 1) {
          name = reader.Name("name");
        } else {
          // Protobuf passes over a spec that is none.
          declared = declared || (reader.number() == 2 &&
                                  reader.type() == WireType::kBytes);
          reader.Skip();
        }
      }
    });
    if (reader.ok()) found(name, declared);
  }
  return reader.ok();
}

}  // namespace weir
