#include "server/rpc/wire/infer_contents.h"

#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "server/bytes/bytes_elements.h"
#include "server/rpc/wire/wire_reader.h"

namespace weir {
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

void ReadElements(WireReader& reader, DType dtype, ContentsSink* sink,
                  CallArena* arena) {
  if (dtype == DType::kString) {
    const absl::StatusOr<StringRef> text = InOnePiece(reader.Bytes(), arena);
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

}  // namespace weir
