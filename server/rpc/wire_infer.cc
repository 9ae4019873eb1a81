#include "server/rpc/wire_infer.h"

#include <bit>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/status_macros.h"
#include "server/rpc/arena_list.h"
#include "server/rpc/wire_fields.h"
#include "server/rpc/wire_reader.h"
#include "server/rpc/wire_writer.h"

namespace weir {
namespace {

void ReadParameterValue(WireReader& reader, InferParameter* parameter) {
  while (reader.NextField()) {
    switch (reader.number()) {
      case 1:
        parameter->value = reader.Bool();
        break;
      case 2:
        parameter->value = reader.Int64();
        break;
      case 3:
        parameter->value =
            reader.String("string_param", kMaxStringParameterBytes);
        break;
      case 4:
        parameter->value = std::bit_cast<double>(reader.Fixed64());
        break;
      case 5:
        parameter->value = reader.Varint();
        break;
      default:
        reader.Skip();
    }
  }
}

// An entry of map<string, InferParameter>.
void ReadParameter(WireReader& reader, size_t limit,
                   ArenaList<InferParameter>* list) {
  InferParameter* parameter = list->Add(limit);
  if (parameter == nullptr) {
    return reader.FailTooMany("parameters", limit);
  }
  reader.Message("parameters", list->size() - 1, [&](WireReader&) {
    while (reader.NextField()) {
      switch (reader.number()) {
        case 1:
          parameter->name = reader.Name("key");
          break;
        case 2:
          reader.Message("value", [&](WireReader&) {
            ReadParameterValue(reader, parameter);
          });
          break;
        default:
          reader.Skip();
      }
    }
  });
}

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

namespace {

// The field of InferTensorContents that holds a type; 0 if none does.
uint32_t ContentsField(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return 1;
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
      return 2;
    case DType::kInt64:
      return 3;
    case DType::kUint8:
    case DType::kUint16:
    case DType::kUint32:
      return 4;
    case DType::kUint64:
      return 5;
    case DType::kFloat:
      return 6;
    case DType::kDouble:
      return 7;
    case DType::kString:
      return 8;
    default:
      return 0;
  }
}

// Its name.
const char* ContentsName(uint32_t field) {
  constexpr const char* kNames[] = {
      "bool_contents",   "int_contents",  "int64_contents", "uint_contents",
      "uint64_contents", "fp32_contents", "fp64_contents",  "bytes_contents"};
  return kNames[field - 1];
}

// Writes elements one after the other and knows when there are too many.
class ContentsSink {
 public:
  ContentsSink(WireReader* reader, std::byte* out, size_t count)
      : reader_(reader), out_(out), count_(count) {}

  template <typename T>
  void Add(T value) {
    if (written_ == count_) {
      Refuse("there are more elements than the shape has");
      return;
    }
    std::memcpy(out_ + written_ * sizeof(T), &value, sizeof(T));
    ++written_;
  }

  template <typename T, typename Wire>
  void AddChecked(Wire value) {
    if (value < static_cast<Wire>(std::numeric_limits<T>::min()) ||
        value > static_cast<Wire>(std::numeric_limits<T>::max())) {
      Refuse("an element is out of the range of its type");
      return;
    }
    Add(static_cast<T>(value));
  }

  // The message is whole, but not what the tensor takes. Ends the reading.
  void Refuse(std::string flaw) {
    if (!reader_->ok()) return;
    flaw_ = std::move(flaw);
    reader_->Fail("elements that the tensor does not take");
  }

  size_t written() const { return written_; }
  const std::string& flaw() const { return flaw_; }  // empty: none

 private:
  std::string flaw_;
  WireReader* const reader_;
  std::byte* const out_;
  const size_t count_;
  size_t written_ = 0;
};

void AddVarint(DType dtype, uint64_t bits, ContentsSink* sink) {
  switch (dtype) {
    case DType::kBool:
      return sink->Add(static_cast<uint8_t>(bits != 0));
    case DType::kInt8:
      return sink->AddChecked<int8_t>(static_cast<int32_t>(bits));
    case DType::kInt16:
      return sink->AddChecked<int16_t>(static_cast<int32_t>(bits));
    case DType::kInt32:
      return sink->Add(static_cast<int32_t>(bits));
    case DType::kInt64:
      return sink->Add(static_cast<int64_t>(bits));
    case DType::kUint8:
      return sink->AddChecked<uint8_t>(static_cast<uint32_t>(bits));
    case DType::kUint16:
      return sink->AddChecked<uint16_t>(static_cast<uint32_t>(bits));
    case DType::kUint32:
      return sink->Add(static_cast<uint32_t>(bits));
    default:
      return sink->Add(bits);
  }
}

// The view's bytes in one piece, copied only if they are not.
absl::StatusOr<StringRef> Contiguous(const ByteView& view, CallArena* arena) {
  StringRef text{nullptr, view.size()};
  if (!view.contiguous()) {
    WEIR_ASSIGN_OR_RETURN(const std::span<std::byte> copy,
                          arena->TryAllocateSpan<std::byte>(view.size()));
    view.CopyTo(copy.data());
    text.data = reinterpret_cast<const char*>(copy.data());
  } else if (!view.empty()) {
    text.data = reinterpret_cast<const char*>(view.pieces()[0].data());
  }
  return text;
}

void ReadElements(WireReader& reader, DType dtype, ContentsSink* sink,
                  CallArena* arena) {
  if (dtype == DType::kString) {
    const absl::StatusOr<StringRef> text = Contiguous(reader.Bytes(), arena);
    // A refusal ends the reading with the next field.
    if (reader.ok() && text.ok()) sink->Add(*text);
  } else if (dtype == DType::kFloat) {
    reader.RepeatedFixed32([&](uint32_t bits) { sink->Add(bits); });
  } else if (dtype == DType::kDouble) {
    reader.RepeatedFixed64([&](uint64_t bits) { sink->Add(bits); });
  } else {
    reader.RepeatedVarint([&](uint64_t bits) { AddVarint(dtype, bits, sink); });
  }
}

}  // namespace

absl::Status DecodeContents(const ByteView& contents, DType dtype, size_t count,
                            CallArena* arena, std::byte* out) {
  const uint32_t field = ContentsField(dtype);
  if (field == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(AbslView(KServeName(dtype)),
                     " has no typed contents: send it in raw_input_contents"));
  }
  WireReader reader(contents, arena, count);
  ContentsSink sink(&reader, out, count);
  while (reader.NextField()) {
    if (reader.number() == field) {
      ReadElements(reader, dtype, &sink, arena);
    } else if (reader.number() >= 1 && reader.number() <= 8) {
      sink.Refuse(absl::StrCat(AbslView(KServeName(dtype)),
                               " elements belong in contents.",
                               ContentsName(field)));
    } else {
      reader.Skip();
    }
  }
  if (arena->refused()) return arena->refusal();
  if (!sink.flaw().empty()) return absl::InvalidArgumentError(sink.flaw());
  if (reader.ok() && sink.written() < count) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the contents have ", sink.written(), " elements, the shape ", count));
  }
  return reader.status("InferTensorContents");
}

absl::Status SplitStrings(const ByteView& raw, CallArena* arena,
                          std::span<StringRef> out) {
  WireReader reader(raw, arena);
  for (size_t i = 0; i < out.size(); ++i) {
    const uint32_t size = reader.RawFixed32();
    const ByteView text = reader.RawBytes(size);
    if (arena->refused()) return arena->refusal();
    WEIR_ASSIGN_OR_RETURN(out[i], Contiguous(text, arena));
    if (!reader.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "BYTES element ", i, " of ", out.size(),
          " runs past the end of the tensor's ", raw.size(), " bytes"));
    }
  }
  if (reader.left() > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(reader.left(), " bytes follow the last of ", out.size(),
                     " BYTES elements"));
  }
  return absl::OkStatus();
}

namespace {

size_t ParameterValueSize(const InferParameter& parameter) {
  switch (parameter.value.index()) {
    case 1:
      return 2;
    case 2:
      return VarintFieldSize(
          2, static_cast<uint64_t>(std::get<int64_t>(parameter.value)));
    case 3:
      return BytesFieldSize(3,
                            std::get<std::string_view>(parameter.value).size());
    case 4:
      return TagSize(4) + sizeof(double);
    case 5:
      return VarintFieldSize(5, std::get<uint64_t>(parameter.value));
    default:
      return 0;
  }
}

size_t ParameterSize(const InferParameter& parameter) {
  return BytesFieldSize(1, parameter.name.size()) +
         BytesFieldSize(2, ParameterValueSize(parameter));
}

void WriteParameter(const InferParameter& parameter, uint32_t number,
                    WireWriter* writer) {
  writer->BeginBytes(number, ParameterSize(parameter));
  writer->BytesField(1, parameter.name);
  writer->BeginBytes(2, ParameterValueSize(parameter));
  switch (parameter.value.index()) {
    case 1:
      return writer->VarintField(1, std::get<bool>(parameter.value));
    case 2:
      return writer->VarintField(
          2, static_cast<uint64_t>(std::get<int64_t>(parameter.value)));
    case 3:
      return writer->BytesField(3, std::get<std::string_view>(parameter.value));
    case 4:
      return writer->DoubleField(4, std::get<double>(parameter.value));
    case 5:
      return writer->VarintField(5, std::get<uint64_t>(parameter.value));
    default:
      return;
  }
}

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
