#include "server/models/parsed_size.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/message.h>
#include <google/protobuf/wire_format_lite.h>

#include <limits>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"

namespace weir {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;

// A pointer to it, twice over while lists grow.
constexpr int64_t kEntry = 2 * sizeof(void*);
// An element of a list of numbers, or an unknown one, while lists grow.
constexpr int64_t kNumber = 2 * sizeof(uint64_t);
constexpr int64_t kUnknown = 2 * 16;
constexpr int64_t kString = kEntry + static_cast<int64_t>(sizeof(std::string));
// Allocations are rounded up.
constexpr int64_t kRounding = 16;
// Protobuf's own; the parser refuses what is deeper.
constexpr int kMaxDepth = 100;

class Counter {
 public:
  Counter(std::string_view bytes, int64_t enough)
      : in_(reinterpret_cast<const uint8_t*>(bytes.data()),
            static_cast<int>(bytes.size())),
        enough_(enough) {}

  // Until the end of the message; false if there is no use in going on.
  bool Walk(const Descriptor& type, int depth) {
    if (depth > kMaxDepth) return false;
    while (const uint32_t tag = in_.ReadTag()) {
      const FieldDescriptor* field =
          type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
      if (!Field(tag, field, depth) || total_ >= enough_) return false;
    }
    return true;
  }

  int64_t total() const { return total_; }

 private:
  bool Field(uint32_t tag, const FieldDescriptor* field, int depth) {
    const int64_t number = field == nullptr       ? kUnknown
                           : field->is_repeated() ? kNumber
                                                  : 0;
    uint64_t ignored = 0;
    switch (WireFormatLite::GetTagWireType(tag)) {
      case WireFormatLite::WIRETYPE_VARINT:
        total_ += number;
        return in_.ReadVarint64(&ignored);
      case WireFormatLite::WIRETYPE_FIXED64:
        total_ += number;
        return in_.Skip(8);
      case WireFormatLite::WIRETYPE_FIXED32:
        total_ += number;
        return in_.Skip(4);
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED:
        return Sized(field, depth);
      // Groups are unknown fields, one in another.
      case WireFormatLite::WIRETYPE_START_GROUP:
        total_ += 2 * kUnknown;
        return true;
      case WireFormatLite::WIRETYPE_END_GROUP:
        return true;
    }
    return false;
  }

  bool Sized(const FieldDescriptor* field, int depth) {
    uint32_t size = 0;
    if (!in_.ReadVarint32(&size) ||
        size > static_cast<uint32_t>(std::numeric_limits<int>::max())) {
      return false;
    }
    if (field == nullptr) {
      total_ += kUnknown + kString + kRounding;
      return in_.Skip(static_cast<int>(size));
    }
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      total_ += kEntry + kRounding + SizeOf(*field->message_type());
      const auto limit = in_.PushLimit(static_cast<int>(size));
      const bool whole =
          Walk(*field->message_type(), depth + 1) && in_.BytesUntilLimit() == 0;
      in_.PopLimit(limit);
      return whole;
    }
    if (field->is_packable()) {
      // A byte may be a number, or take as much room as it came in.
      const bool fixed = field->type() == FieldDescriptor::TYPE_FLOAT ||
                         field->type() == FieldDescriptor::TYPE_DOUBLE;
      total_ += fixed ? 0 : int64_t{size} * kNumber;
    } else {
      total_ += kString + kRounding;
    }
    return in_.Skip(static_cast<int>(size));
  }

  // Of an empty message.
  int64_t SizeOf(const Descriptor& type) {
    const auto [it, added] = sizes_.try_emplace(&type, 0);
    if (added) {
      it->second = static_cast<int64_t>(
          google::protobuf::MessageFactory::generated_factory()
              ->GetPrototype(&type)
              ->SpaceUsedLong());
    }
    return it->second;
  }

  google::protobuf::io::CodedInputStream in_;
  const int64_t enough_;
  int64_t total_ = 0;
  std::map<const Descriptor*, int64_t> sizes_;
};

}  // namespace

int64_t ParsedBytes(const Descriptor& type, std::string_view bytes,
                    int64_t enough) {
  if (bytes.size() > static_cast<size_t>(std::numeric_limits<int>::max())) {
    return enough;
  }
  Counter counter(bytes, enough);
  counter.Walk(type, 0);
  return counter.total();
}

absl::Status CheckParsedSize(const Descriptor& type, std::string_view bytes) {
  if (ParsedBytes(type, bytes, kMaxParsedBytes) < kMaxParsedBytes) {
    return absl::OkStatus();
  }
  return WithReason(
      absl::ResourceExhaustedError(absl::StrCat(
          "the message of ", bytes.size(), " bytes has so many parts that ",
          kMaxParsedBytes,
          " bytes of memory would not hold them; leave out what is empty")),
      "GRAPH_TOO_LARGE");
}

}  // namespace weir
