#include "server/rpc/wire/evaluate_response.h"

#include "server/rpc/wire/wire_writer.h"

namespace weir {
namespace {

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
