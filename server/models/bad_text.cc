#include "server/models/bad_text.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <cstdint>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/utf8.h"

namespace weir {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// Protobuf's own; the parser refuses what is deeper.
constexpr int kMaxDepth = 100;

std::optional<BadText> Find(const Descriptor& type, CodedInputStream* in,
                            int depth) {
  std::map<int, size_t> entries;  // of repeated fields, so far
  while (const uint32_t tag = in->ReadTag()) {
    const FieldDescriptor* field =
        type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
    const bool text =
        field != nullptr && field->type() == FieldDescriptor::TYPE_STRING;
    const bool message =
        field != nullptr && field->type() == FieldDescriptor::TYPE_MESSAGE;
    if ((!text && !message) || WireFormatLite::GetTagWireType(tag) !=
                                   WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      if (!WireFormatLite::SkipField(in, tag)) return std::nullopt;
      continue;
    }
    std::string path = field->name();
    if (field->is_repeated()) {
      absl::StrAppend(&path, "[", entries[field->number()]++, "]");
    }
    int size = 0;
    if (!in->ReadVarintSizeAsInt(&size)) return std::nullopt;
    if (text) {
      BadText found{std::move(path), ""};
      if (!in->ReadString(&found.text, size)) return std::nullopt;
      if (!IsUtf8(found.text)) return found;
      continue;
    }
    if (depth == 0) return std::nullopt;
    const CodedInputStream::Limit limit = in->PushLimit(size);
    std::optional<BadText> found = Find(*field->message_type(), in, depth - 1);
    if (found.has_value()) {
      found->path = absl::StrCat(path, ".", found->path);
      return found;
    }
    if (!in->ConsumedEntireMessage()) return std::nullopt;
    in->PopLimit(limit);
  }
  return std::nullopt;
}

}  // namespace

std::optional<BadText> FindBadText(const Descriptor& type,
                                   std::string_view bytes) {
  if (bytes.size() > static_cast<size_t>(std::numeric_limits<int>::max())) {
    return std::nullopt;
  }
  CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                      static_cast<int>(bytes.size()));
  return Find(type, &in, kMaxDepth);
}

}  // namespace weir
