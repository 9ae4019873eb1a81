#include "server/rpc/wire/evaluate_request.h"

#include "server/bytes/arena_list.h"
#include "server/rpc/server_call.h"
#include "server/rpc/wire/wire_fields.h"
#include "server/rpc/wire/wire_reader.h"

namespace weir {
namespace {

void ReadOutputRequest(WireReader& reader, CallArena* arena,
                       WireOutputRequest* output) {
  while (reader.NextField()) {
    switch (reader.number()) {
      case 1:
        output->name = reader.Name("name");
        break;
      case 2:
        output->destination = WireTensorNumber{reader.Varint()};
        break;
      case 3: {
        if (std::holds_alternative<WireRegion>(output->destination)) {
          return reader.Fail("an output has two regions");
        }
        WireRegion region;
        reader.Message(
            "region", [&](WireReader&) { ReadRegion(reader, arena, &region); });
        output->destination = region;
        break;
      }
      case 4:
        output->destination = WireTensorInto{reader.Varint()};
        break;
      default:
        reader.Skip();
    }
  }
}

void ReadPoint(WireReader& reader, WirePoint* point) {
  while (reader.NextField()) {
    switch (reader.number()) {
      case 1:
        point->timeline = reader.Varint();
        break;
      case 2:
        point->value = reader.Varint();
        break;
      default:
        reader.Skip();
    }
  }
}

void ReadStreamPolicy(WireReader& reader, WireStreamPolicy* policy) {
  while (reader.NextField()) {
    switch (reader.number()) {
      case 1:
        policy->kind = reader.Int32();
        break;
      case 2:
        policy->stream = reader.Varint();
        break;
      case 3:
        policy->priority = reader.Int32();
        break;
      default:
        reader.Skip();
    }
  }
}

// The lists of a request while they grow.
struct Lists {
  explicit Lists(CallArena* arena)
      : inputs(arena), outputs(arena), after(arena), signal(arena) {}

  ArenaList<WireTensor> inputs;
  ArenaList<WireOutputRequest> outputs;
  ArenaList<WirePoint> after;
  ArenaList<WirePoint> signal;
};

void ReadField(WireReader& reader, CallArena* arena, Lists* lists,
               EvaluateRequestView* request) {
  switch (reader.number()) {
    case 1:
      return ReadOnlyGraph(reader, &request->graph);
    case 2:
      return ReadEntry(
          reader, "inputs", &lists->inputs,
          [&](WireTensor* tensor) { ReadNamedTensor(reader, arena, tensor); });
    case 3:
      return ReadEntry(reader, "outputs", &lists->outputs,
                       [&](WireOutputRequest* output) {
                         ReadOutputRequest(reader, arena, output);
                       });
    case 4:
      request->mode = reader.Int32();
      return;
    case 5:
      request->context = reader.Varint();
      return;
    case 6:
      request->device = reader.Name("device");
      return;
    case 7:
      return reader.Nested([&](WireReader&) {
        ReadStreamPolicy(reader, &request->stream_policy);
      });
    case 8:
      return ReadEntry(
          reader, "after", &lists->after,
          [&](WirePoint* point) { ReadPoint(reader, point); }, kMaxWirePoints);
    case 9:
      return ReadEntry(
          reader, "signal", &lists->signal,
          [&](WirePoint* point) { ReadPoint(reader, point); }, kMaxWirePoints);
    case 10:
      request->rng_seed = reader.Varint();
      return;
    case 11:
      request->label = reader.String("label", ServerCall::kMaxLabelBytes);
      return;
    case 12:
      request->precision = reader.Int32();
      return;
    case 13:
      request->report = reader.Int32();
      return;
    case 14:
      request->report_settings = reader.Bool();
      return;
    case 15:
      request->on_conflict = reader.Int32();
      return;
    case 16:
      request->work = reader.Varint();
      return;
    default:
      return reader.Skip();
  }
}

}  // namespace

absl::Status ParseEvaluateRequest(const ByteView& bytes, CallArena* arena,
                                  EvaluateRequestView* request) {
  WireReader reader(bytes, arena);
  Lists lists(arena);
  while (reader.NextField()) ReadField(reader, arena, &lists, request);
  request->inputs = lists.inputs.span();
  request->outputs = lists.outputs.span();
  request->after = lists.after.span();
  request->signal = lists.signal.span();
  return reader.status("EvaluateRequest");
}

}  // namespace weir
