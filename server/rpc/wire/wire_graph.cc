#include "server/rpc/wire/wire_graph.h"

namespace weir {
namespace {

void ReadModelReference(WireReader& reader, WireModelReference* model) {
  while (reader.NextField()) {
    switch (reader.number()) {
      case 1:
        model->name = reader.Name("name");
        break;
      case 2:
        model->version = reader.Int64();
        model->version_label = {};
        break;
      case 3:
        model->version_label = reader.Name("version_label");
        model->version = 0;
        break;
      default:
        reader.Skip();
    }
  }
}

void ReadGraph(WireReader& reader, WireGraph* graph) {
  while (reader.NextField()) {
    if (reader.number() < 1 || reader.number() > 3) {
      reader.Skip();
      continue;
    }
    if (graph->index() != 0) {
      return reader.Fail("a graph has more than one source");
    }
    if (reader.number() == 1) {
      *graph = WireGraphDefinition{reader.Bytes()};
    } else if (reader.number() == 2) {
      *graph = WireOnnxModel{reader.Bytes()};
    } else {
      WireModelReference model;
      reader.Message("model",
                     [&](WireReader&) { ReadModelReference(reader, &model); });
      *graph = model;
    }
  }
}

}  // namespace

void ReadOnlyGraph(WireReader& reader, WireGraph* graph) {
  if (graph->index() != 0) return reader.Fail("the request has two graphs");
  reader.Message("graph", [&](WireReader&) { ReadGraph(reader, graph); });
}

}  // namespace weir
