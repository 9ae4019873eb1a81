#include "server/models/parsed_size.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"

namespace weir {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;

// Lists double; while they grow, the old one stays beside the new one.
constexpr int64_t kGrowth = 3;
constexpr int64_t kEntry = kGrowth * sizeof(void*);
// Allocations are rounded up.
constexpr int64_t kRounding = 16;
constexpr int64_t kString = static_cast<int64_t>(sizeof(std::string)) +
                            2 * kRounding;  // its own and its bytes'
// Of what a message does not know, a list of its own, for each of its fields an
// entry.
constexpr int64_t kUnknown = kGrowth * sizeof(google::protobuf::UnknownField);
constexpr int64_t kUnknownList =
    sizeof(void*) + sizeof(google::protobuf::UnknownFieldSet) + 2 * kRounding;
// Protobuf's own; the parser refuses what is deeper.
constexpr int kMaxDepth = 100;

// How the field would have to come, if it is one number.
WireFormatLite::WireType WireTypeOf(const FieldDescriptor& field) {
  return WireFormatLite::WireTypeForFieldType(
      static_cast<WireFormatLite::FieldType>(field.type()));
}

// While a list of them grows.
int64_t BytesOfNumber(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64:
    case FieldDescriptor::CPPTYPE_UINT64:
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return kGrowth * sizeof(uint64_t);
    case FieldDescriptor::CPPTYPE_BOOL:
      return kGrowth * sizeof(bool);
    default:
      return kGrowth * sizeof(uint32_t);
  }
}

class Counter {
 public:
  Counter(std::string_view bytes, int64_t enough)
      : in_(reinterpret_cast<const uint8_t*>(bytes.data()),
            static_cast<int>(bytes.size())),
        enough_(enough) {}

  // Until the end of the message; false if there is no use in going on.
  bool Walk(const Descriptor& type, int depth) {
    if (depth > kMaxDepth) return false;
    bool keeps_unknown = false;
    while (const uint32_t tag = in_.ReadTag()) {
      const FieldDescriptor* field =
          type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
      if (field != nullptr && !Fits(tag, *field)) field = nullptr;
      bool known = field != nullptr;
      if (!(known ? Known(tag, *field, depth, &known) : Unknown(tag, depth))) {
        return false;
      }
      if (!known && !std::exchange(keeps_unknown, true)) {
        total_ += kUnknownList;
      }
      if (total_ >= enough_) return false;
    }
    return true;
  }

  int64_t total() const { return total_; }

 private:
  // What comes in another form than the declared ones is kept as unknown.
  static bool Fits(uint32_t tag, const FieldDescriptor& field) {
    const auto type = WireFormatLite::GetTagWireType(tag);
    return type == WireTypeOf(field) ||
           (field.is_packable() &&
            type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  }

  // Clears `*known` for a value that its enum does not have. No message of ours
  // declares groups.
  bool Known(uint32_t tag, const FieldDescriptor& field, int depth,
             bool* known) {
    const auto type = WireFormatLite::GetTagWireType(tag);
    if (type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      return Sized(field, depth);
    }
    if (field.is_repeated()) total_ += BytesOfNumber(field);
    if (type != WireFormatLite::WIRETYPE_VARINT) return Number(type);
    uint64_t value = 0;
    if (!in_.ReadVarint64(&value)) return false;
    if (field.type() == FieldDescriptor::TYPE_ENUM &&
        field.enum_type()->FindValueByNumber(static_cast<int>(value)) ==
            nullptr) {
      *known = false;
      total_ += kUnknown;
    }
    return true;
  }

  bool Unknown(uint32_t tag, int depth) {
    total_ += kUnknown;
    const auto type = WireFormatLite::GetTagWireType(tag);
    if (type == WireFormatLite::WIRETYPE_START_GROUP) {
      return Group(WireFormatLite::GetTagFieldNumber(tag), depth + 1);
    }
    if (type != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) return Number(type);
    total_ += kString;
    int size = 0;
    return ReadSize(&size) && in_.Skip(size);
  }

  // Nothing in a group is known.
  bool Group(int number, int depth) {
    if (depth > kMaxDepth) return false;
    total_ += kUnknownList;
    while (const uint32_t tag = in_.ReadTag()) {
      if (WireFormatLite::GetTagWireType(tag) ==
          WireFormatLite::WIRETYPE_END_GROUP) {
        return WireFormatLite::GetTagFieldNumber(tag) == number;
      }
      if (!Unknown(tag, depth) || total_ >= enough_) return false;
    }
    return false;
  }

  // False for what is none.
  bool Number(WireFormatLite::WireType type) {
    uint64_t ignored = 0;
    switch (type) {
      case WireFormatLite::WIRETYPE_VARINT:
        return in_.ReadVarint64(&ignored);
      case WireFormatLite::WIRETYPE_FIXED64:
        return in_.Skip(8);
      case WireFormatLite::WIRETYPE_FIXED32:
        return in_.Skip(4);
      default:
        return false;
    }
  }

  bool Sized(const FieldDescriptor& field, int depth) {
    int size = 0;
    if (!ReadSize(&size)) return false;
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      total_ += kEntry + kRounding + SizeOf(*field.message_type());
      const auto limit = in_.PushLimit(size);
      const bool whole =
          Walk(*field.message_type(), depth + 1) && in_.BytesUntilLimit() == 0;
      in_.PopLimit(limit);
      return whole;
    }
    if (!field.is_packable()) {
      total_ += kEntry + kString;
    } else if (WireTypeOf(field) == WireFormatLite::WIRETYPE_VARINT) {
      int64_t numbers = 0;
      if (!CountVarints(size, &numbers)) return false;
      total_ += numbers * BytesOfNumber(field);
      if (field.type() == FieldDescriptor::TYPE_ENUM) {
        total_ += kUnknownList + numbers * kUnknown;
      }
      return true;
    }
    // Packed numbers of one size take as much room as they came in.
    return in_.Skip(size);
  }

  // Skips `size` bytes of them. False if there are not so many bytes.
  bool CountVarints(int size, int64_t* count) {
    while (size > 0) {
      const void* data = nullptr;
      int there = 0;
      if (!in_.GetDirectBufferPointer(&data, &there)) return false;
      there = std::min(there, size);
      const auto* bytes = static_cast<const uint8_t*>(data);
      *count += std::count_if(bytes, bytes + there,
                              [](uint8_t byte) { return byte < 0x80; });
      if (!in_.Skip(there)) return false;
      size -= there;
    }
    return true;
  }

  bool ReadSize(int* size) {
    uint32_t read = 0;
    if (!in_.ReadVarint32(&read) ||
        read > static_cast<uint32_t>(std::numeric_limits<int>::max())) {
      return false;
    }
    *size = static_cast<int>(read);
    return true;
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
