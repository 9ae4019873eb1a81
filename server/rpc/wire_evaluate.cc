#include "server/rpc/wire_evaluate.h"

#include "server/rpc/arena_list.h"
#include "server/rpc/server_call.h"
#include "server/rpc/wire_fields.h"
#include "server/rpc/wire_reader.h"
#include "server/rpc/wire_writer.h"

namespace weir {
namespace {

// Samples of one ragged batch.
constexpr size_t kMaxSamples = 65536;

void ReadRegion(WireReader& reader, CallArena* arena, WireRegion* region) {
  ArenaList<int64_t> strides(arena);
  while (reader.NextField()) {
    switch (reader.number()) {
      case 1:
        region->region = reader.Name("region");
        break;
      case 2:
        region->offset = reader.Varint();
        break;
      case 3:
        region->byte_size = reader.Varint();
        break;
      case 4:
        ReadExtents(reader, "strides", &strides);
        break;
      default:
        reader.Skip();
    }
  }
  region->strides = strides.span();
}

void ReadSampleShape(WireReader& reader, CallArena* arena,
                     std::span<const int64_t>* shape) {
  ArenaList<int64_t> extents(arena);
  while (reader.NextField()) {
    if (reader.number() == 1) {
      ReadExtents(reader, "dims", &extents);
    } else {
      reader.Skip();
    }
  }
  *shape = extents.span();
}

void ReadSpec(WireReader& reader, CallArena* arena, WireTensorSpec* spec) {
  ArenaList<int64_t> shape(arena);
  ArenaList<std::span<const int64_t>> samples(arena);
  while (reader.NextField()) {
    switch (reader.number()) {
      case 1:
        spec->dtype = reader.Int32();
        break;
      case 2:
        ReadExtents(reader, "shape", &shape);
        break;
      case 3:
        spec->layout = reader.Name("layout");
        break;
      case 4:
        if (auto* sample = samples.Add(kMaxSamples)) {
          reader.Message("sample_shapes", samples.size() - 1, [&](WireReader&) {
            ReadSampleShape(reader, arena, sample);
          });
        } else {
          reader.FailTooMany("sample_shapes", kMaxSamples);
        }
        break;
      default:
        reader.Skip();
    }
  }
  spec->shape = shape.span();
  spec->sample_shapes = samples.span();
}

void ReadValue(WireReader& reader, CallArena* arena, WireTensor* tensor) {
  bool has_spec = false;
  while (reader.NextField()) {
    switch (reader.number()) {
      case 1:
        if (has_spec) return reader.Fail("a tensor has two specs");
        has_spec = true;
        reader.Message("spec", [&](WireReader&) {
          ReadSpec(reader, arena, &tensor->spec);
        });
        break;
      case 2:
        tensor->source = reader.Bytes();
        break;
      case 3:
        tensor->source = WireTensorNumber{reader.Varint()};
        break;
      case 4: {
        if (std::holds_alternative<WireRegion>(tensor->source)) {
          return reader.Fail("a tensor has two regions");
        }
        WireRegion region;
        reader.Message(
            "region", [&](WireReader&) { ReadRegion(reader, arena, &region); });
        tensor->source = region;
        break;
      }
      default:
        reader.Skip();
    }
  }
}

void ReadNamedTensor(WireReader& reader, CallArena* arena, WireTensor* tensor) {
  bool has_value = false;
  while (reader.NextField()) {
    switch (reader.number()) {
      case 1:
        tensor->name = reader.Name("name");
        break;
      case 2:
        if (has_value) return reader.Fail("a named tensor has two values");
        has_value = true;
        reader.Message("value",
                       [&](WireReader&) { ReadValue(reader, arena, tensor); });
        break;
      default:
        reader.Skip();
    }
  }
}

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
      default:
        reader.Skip();
    }
  }
}

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

// Reads the current field into a new entry of `list`.
template <typename T, typename Read>
void ReadEntry(WireReader& reader, const char* field, ArenaList<T>* list,
               Read&& read) {
  T* entry = list->Add(kMaxWireTensors);
  if (entry == nullptr) return reader.FailTooMany(field, kMaxWireTensors);
  reader.Message(field, list->size() - 1, [&](WireReader&) { read(entry); });
}

void ReadOnlyGraph(WireReader& reader, WireGraph* graph) {
  if (graph->index() != 0) return reader.Fail("the request has two graphs");
  reader.Message("graph", [&](WireReader&) { ReadGraph(reader, graph); });
}

// A NamedTensorSpec.
void ReadNamedSpec(WireReader& reader, CallArena* arena, WireTensor* tensor) {
  bool has_spec = false;
  while (reader.NextField()) {
    switch (reader.number()) {
      case 1:
        tensor->name = reader.Name("name");
        break;
      case 2:
        if (has_spec) return reader.Fail("a tensor has two specs");
        has_spec = true;
        reader.Message("spec", [&](WireReader&) {
          ReadSpec(reader, arena, &tensor->spec);
        });
        break;
      default:
        reader.Skip();
    }
  }
}

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
      return ReadEntry(reader, "after", &lists->after,
                       [&](WirePoint* point) { ReadPoint(reader, point); });
    case 9:
      return ReadEntry(reader, "signal", &lists->signal,
                       [&](WirePoint* point) { ReadPoint(reader, point); });
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

namespace {

size_t SampleShapeSize(std::span<const int64_t> shape) {
  return PackedFieldSize(1, shape);
}

size_t SpecSize(const WireTensorSpec& spec) {
  size_t size = VarintFieldSize(1, static_cast<uint64_t>(spec.dtype)) +
                PackedFieldSize(2, spec.shape);
  if (!spec.layout.empty()) size += BytesFieldSize(3, spec.layout.size());
  for (std::span<const int64_t> shape : spec.sample_shapes) {
    size += BytesFieldSize(4, SampleShapeSize(shape));
  }
  return size;
}

void WriteSpec(const WireTensorSpec& spec, WireWriter* writer) {
  writer->VarintField(1, static_cast<uint64_t>(spec.dtype));
  WritePacked(2, spec.shape, writer);
  if (!spec.layout.empty()) writer->BytesField(3, spec.layout);
  for (std::span<const int64_t> shape : spec.sample_shapes) {
    writer->BeginBytes(4, SampleShapeSize(shape));
    WritePacked(1, shape, writer);
  }
}

const ForeignBytes* Raw(const EvaluateOutput& output) {
  return std::get_if<ForeignBytes>(&output.value);
}

// Whether the output's bytes become a slice of their own.
bool IsForeign(const EvaluateOutput& output) {
  const ForeignBytes* raw = Raw(output);
  return raw != nullptr && raw->size > kCopiedReplyBytes;
}

size_t ValueSize(const EvaluateOutput& output) {
  size_t size = BytesFieldSize(1, SpecSize(output.spec));
  if (const ForeignBytes* raw = Raw(output)) {
    size += BytesFieldSize(2, raw->size);
  } else if (auto* kept = std::get_if<WireTensorNumber>(&output.value)) {
    size += VarintFieldSize(3, kept->number);
  }
  return size;
}

size_t NamedTensorSize(const EvaluateOutput& output) {
  return BytesFieldSize(1, output.name.size()) +
         BytesFieldSize(2, ValueSize(output));
}

// Everything of the output but bytes that are referenced.
size_t CopiedSize(const EvaluateOutput& output) {
  const size_t size = BytesFieldSize(2, NamedTensorSize(output));
  return IsForeign(output) ? size - Raw(output)->size : size;
}

// The raw bytes come last, so that they can be a slice of their own.
void WriteOutput(const EvaluateOutput& output, WireWriter* writer,
                 ReplyBuffer* buffer) {
  writer->BeginBytes(2, NamedTensorSize(output));
  writer->BytesField(1, output.name);
  writer->BeginBytes(2, ValueSize(output));
  writer->BeginBytes(1, SpecSize(output.spec));
  WriteSpec(output.spec, writer);
  if (const ForeignBytes* raw = Raw(output)) {
    writer->BeginBytes(2, raw->size);
    if (IsForeign(output)) {
      buffer->AppendForeign(raw->data, raw->size, raw->release, raw->arg,
                            raw->beside);
    } else {
      writer->Raw({static_cast<const char*>(raw->data), raw->size});
      raw->release(raw->arg);
    }
  } else if (auto* kept = std::get_if<WireTensorNumber>(&output.value)) {
    writer->VarintField(3, kept->number);
  }
}

size_t HeaderSize(const EvaluateReply& reply) {
  size_t size = 0;
  if (reply.work != 0) size += VarintFieldSize(1, reply.work);
  if (!reply.settings.empty()) size += BytesFieldSize(3, reply.settings.size());
  if (!reply.report.empty()) size += BytesFieldSize(4, reply.report.size());
  return size;
}

void WriteHeader(const EvaluateReply& reply, WireWriter* writer) {
  if (reply.work != 0) writer->VarintField(1, reply.work);
  if (!reply.settings.empty()) writer->BytesField(3, reply.settings);
  if (!reply.report.empty()) writer->BytesField(4, reply.report);
}

}  // namespace

size_t CopiedBytes(const EvaluateReply& reply) {
  size_t bytes = HeaderSize(reply);
  for (const EvaluateOutput& output : reply.outputs) {
    bytes += CopiedSize(output);
  }
  return bytes;
}

ReplyBuffer BuildEvaluateReply(const EvaluateReply& reply) {
  ReplyBuffer buffer;
  // Each run of copied bytes, from one foreign slice to the next, is one slice.
  size_t next = 0;
  bool header = true;
  do {
    size_t size = header ? HeaderSize(reply) : 0;
    size_t end = next;
    while (end < reply.outputs.size()) {
      size += CopiedSize(reply.outputs[end]);
      if (IsForeign(reply.outputs[end++])) break;
    }
    WireWriter writer(size > 0 ? buffer.AppendUninitialized(size) : nullptr);
    if (header) WriteHeader(reply, &writer);
    header = false;
    for (; next < end; ++next) {
      WriteOutput(reply.outputs[next], &writer, &buffer);
    }
  } while (next < reply.outputs.size());
  return buffer;
}

}  // namespace weir
