#include "server/rpc/wire/explain_request.h"

#include "server/bytes/arena_list.h"
#include "server/rpc/wire/wire_fields.h"
#include "server/rpc/wire/wire_reader.h"

namespace weir {

absl::Status ParseExplainRequest(const ByteView& bytes, CallArena* arena,
                                 ExplainRequestView* request) {
  WireReader reader(bytes, arena);
  ArenaList<WireTensor> inputs(arena);
  while (reader.NextField()) {
    switch (reader.number()) {
      case 1:
        ReadOnlyGraph(reader, &request->graph);
        break;
      case 2:
        ReadEntry(reader, "inputs", &inputs, [&](WireTensor* tensor) {
          ReadNamedSpec(reader, arena, tensor);
        });
        break;
      case 3:
        request->device = reader.Name("device");
        break;
      case 4:
        request->precision = reader.Int32();
        break;
      case 5:
        request->page_size = reader.Int32();
        break;
      case 6:
        request->page_token = reader.String("page_token", kMaxPageTokenBytes);
        break;
      default:
        reader.Skip();
    }
  }
  request->inputs = inputs.span();
  return reader.status("ExplainRequest");
}

}  // namespace weir
