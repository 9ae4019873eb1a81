#include "server/rpc/wire/infer_request.h"

#include "server/bytes/arena_list.h"
#include "server/rpc/wire/wire_fields.h"
#include "server/rpc/wire/wire_reader.h"

namespace weir {
namespace {

void ReadInput(WireReader& reader, CallArena* arena, InferInput* input) {
  ArenaList<int64_t> shape(arena);
  ArenaList<InferParameter> parameters(arena);
  while (reader.NextField()) {
    switch (reader.number()) {
      case 1:
        input->name = reader.Name("name");
        break;
      case 2:
        input->datatype = reader.Name("datatype");
        break;
      case 3:
        ReadExtents(reader, "shape", &shape);
        break;
      case 4:
        ReadParameter(reader, kMaxTensorParameters, &parameters);
        break;
      case 5:
        if (input->contents.has_value()) {
          reader.Fail("an input has contents twice");
        } else {
          input->contents = reader.Bytes();
        }
        break;
      default:
        reader.Skip();
    }
  }
  input->shape = shape.span();
  input->parameters = parameters.span();
}

void ReadOutput(WireReader& reader, CallArena* arena,
                InferRequestedOutput* output) {
  ArenaList<InferParameter> parameters(arena);
  while (reader.NextField()) {
    switch (reader.number()) {
      case 1:
        output->name = reader.Name("name");
        break;
      case 2:
        ReadParameter(reader, kMaxTensorParameters, &parameters);
        break;
      default:
        reader.Skip();
    }
  }
  output->parameters = parameters.span();
}

}  // namespace

absl::Status ParseInferRequest(const ByteView& bytes, CallArena* arena,
                               InferRequest* request) {
  WireReader reader(bytes, arena);
  ArenaList<InferParameter> parameters(arena);
  ArenaList<InferInput> inputs(arena);
  ArenaList<InferRequestedOutput> outputs(arena);
  ArenaList<ByteView> raw_contents(arena);
  while (reader.NextField()) {
    switch (reader.number()) {
      case 1:
        request->model_name = reader.Name("model_name");
        break;
      case 2:
        request->model_version = reader.Name("model_version");
        break;
      case 3:
        request->id = reader.Name("id");
        break;
      case 4:
        ReadParameter(reader, kMaxWireParameters, &parameters);
        break;
      case 5:
        if (auto* input = inputs.Add(kMaxWireTensors)) {
          reader.Message("inputs", inputs.size() - 1,
                         [&](WireReader&) { ReadInput(reader, arena, input); });
        } else {
          reader.FailTooMany("inputs", kMaxWireTensors);
        }
        break;
      case 6:
        if (auto* output = outputs.Add(kMaxWireTensors)) {
          reader.Message("outputs", outputs.size() - 1, [&](WireReader&) {
            ReadOutput(reader, arena, output);
          });
        } else {
          reader.FailTooMany("outputs", kMaxWireTensors);
        }
        break;
      case 7:
        if (auto* raw = raw_contents.Add(kMaxWireTensors)) {
          *raw = reader.Bytes();
        } else {
          reader.FailTooMany("raw_input_contents", kMaxWireTensors);
        }
        break;
      default:
        reader.Skip();
    }
  }
  request->parameters = parameters.span();
  request->inputs = inputs.span();
  request->outputs = outputs.span();
  request->raw_contents = raw_contents.span();
  return reader.status("ModelInferRequest");
}

}  // namespace weir
