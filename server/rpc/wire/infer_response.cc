#include "server/rpc/wire/infer_response.h"

#include "server/rpc/wire/wire_fields.h"
#include "server/rpc/wire/wire_writer.h"

namespace weir {
namespace {

size_t OutputSize(const InferOutput& output) {
  return BytesFieldSize(1, output.name.size()) +
         BytesFieldSize(2, output.datatype.size()) +
         PackedFieldSize(3, output.shape);
}

void WriteOutput(const InferOutput& output, WireWriter* writer) {
  writer->BeginBytes(5, OutputSize(output));
  writer->BytesField(1, output.name);
  writer->BytesField(2, output.datatype);
  WritePacked(3, output.shape, writer);
}

// Everything but raw_output_contents.
size_t HeaderSize(const InferReply& reply) {
  size_t size = 0;
  const std::string_view strings[] = {reply.model_name, reply.model_version,
                                      reply.id};
  for (uint32_t i = 0; i < 3; ++i) {
    if (!strings[i].empty()) size += BytesFieldSize(i + 1, strings[i].size());
  }
  for (const InferParameter& parameter : reply.parameters) {
    size += BytesFieldSize(4, ParameterSize(parameter));
  }
  for (const InferOutput& output : reply.outputs) {
    size += BytesFieldSize(5, OutputSize(output));
  }
  return size;
}

void WriteHeader(const InferReply& reply, WireWriter* writer) {
  const std::string_view strings[] = {reply.model_name, reply.model_version,
                                      reply.id};
  for (uint32_t i = 0; i < 3; ++i) {
    if (!strings[i].empty()) writer->BytesField(i + 1, strings[i]);
  }
  for (const InferParameter& parameter : reply.parameters) {
    WriteParameter(parameter, 4, writer);
  }
  for (const InferOutput& output : reply.outputs) WriteOutput(output, writer);
}

constexpr uint32_t kRawField = 6;  // raw_output_contents

// What a raw output adds to the copied part of the reply.
size_t CopiedSize(const ForeignBytes& raw) {
  const size_t prefix = TagSize(kRawField) + VarintSize(raw.size);
  return raw.size <= kCopiedReplyBytes ? prefix + raw.size : prefix;
}

}  // namespace

size_t CopiedBytes(const InferReply& reply) {
  size_t bytes = HeaderSize(reply);
  for (const InferOutput& output : reply.outputs) {
    if (output.raw.has_value()) bytes += CopiedSize(*output.raw);
  }
  return bytes;
}

ReplyBuffer BuildInferReply(const InferReply& reply) {
  ReplyBuffer buffer;
  // Each run of copied bytes, from one foreign slice to the next, is one slice.
  size_t next = 0;
  bool header = true;
  do {
    size_t size = header ? HeaderSize(reply) : 0;
    size_t end = next;
    while (end < reply.outputs.size()) {
      const std::optional<ForeignBytes>& raw = reply.outputs[end++].raw;
      if (!raw.has_value()) continue;
      size += CopiedSize(*raw);
      if (raw->size > kCopiedReplyBytes) break;
    }
    WireWriter writer(size > 0 ? buffer.AppendUninitialized(size) : nullptr);
    if (header) WriteHeader(reply, &writer);
    header = false;
    for (; next < end; ++next) {
      const std::optional<ForeignBytes>& raw = reply.outputs[next].raw;
      if (!raw.has_value()) continue;
      writer.BeginBytes(kRawField, raw->size);
      if (raw->size > kCopiedReplyBytes) {
        buffer.AppendForeign(raw->data, raw->size, raw->release, raw->arg,
                             raw->beside);
      } else {
        writer.Raw({static_cast<const char*>(raw->data), raw->size});
        raw->release(raw->arg);
      }
    }
  } while (next < reply.outputs.size());
  return buffer;
}

}  // namespace weir
