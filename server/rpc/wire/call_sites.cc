#include "server/rpc/wire/call_sites.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/container/inlined_vector.h"
#include "kernels/base/utf8.h"
#include "server/rpc/wire/wire_reader.h"

namespace weir {
namespace {

// Fields of the messages.
constexpr uint32_t kNodes = 1;
constexpr uint32_t kCallSite = 7;
constexpr char kNodesTag = kNodes << 3 | static_cast<char>(WireType::kBytes);

// A node has one; of more, the last counts.
constexpr size_t kMaxSites = 16;

struct Range {
  uint64_t begin = 0, end = 0;
};

// A node of a definition, by places in that.
struct NodePlace {
  uint64_t field = 0;  // where its field begins
  Range body;
  struct Site {
    Range field;
    ByteView text;
  };
  absl::InlinedVector<Site, 1> sites;
};

// Calls found(place) for each node, in their order. False: it cannot be read.
template <typename Found>
bool ReadNodes(const ByteView& definition, CallArena* arena, Found&& found) {
  WireReader reader(definition, arena);
  const auto place = [&] { return definition.size() - reader.left(); };
  for (uint64_t field = place(); reader.NextField(); field = place()) {
    if (reader.number() != kNodes || reader.type() != WireType::kBytes) {
      reader.Skip();
      continue;
    }
    NodePlace node;
    node.field = field;
    uint64_t size = 0;
    bool too_many = false;
    reader.Nested([&](WireReader&) {
      size = reader.left();
      uint64_t begin = 0;
      while (reader.NextField()) {
        if (reader.number() == kCallSite && reader.type() == WireType::kBytes) {
          const ByteView text = reader.Bytes();
          too_many |= node.sites.size() == kMaxSites;
          if (too_many) return;
          node.sites.push_back({{begin, size - reader.left()}, text});
        } else {
          reader.Skip();
        }
        begin = size - reader.left();
      }
    });
    if (!reader.ok() || too_many) return false;
    node.body = {place() - size, place()};
    found(node);
  }
  return reader.ok();
}

// Copies one range after the other, each behind the last.
class RangeCopier {
 public:
  explicit RangeCopier(const ByteView& from) : pieces_(from.pieces()) {}

  char* Copy(Range range, char* out) {
    while (range.begin < range.end) {
      const BytePiece& piece = pieces_.front();
      if (range.begin >= start_ + piece.size()) {
        start_ += piece.size();
        pieces_ = pieces_.subspan(1);
        continue;
      }
      const uint64_t offset = range.begin - start_;
      const uint64_t count =
          std::min<uint64_t>(range.end - range.begin, piece.size() - offset);
      std::memcpy(out, piece.data() + offset, count);
      out += count;
      range.begin += count;
    }
    return out;
  }

 private:
  std::span<const BytePiece> pieces_;
  uint64_t start_ = 0;  // of the first piece
};

char* PutVarint(uint64_t value, char* out) {
  for (; value >= 0x80; value >>= 7) {
    *out++ = static_cast<char>(value | 0x80);
  }
  *out++ = static_cast<char>(value);
  return out;
}

// As much of it as is kept, and so much more that what is cut there is no
// character of that.
std::string Text(const ByteView& text) {
  constexpr size_t kMost = CallSites::kMaxSiteBytes + 4;
  std::string bytes;
  for (const BytePiece& piece : text.pieces()) {
    const size_t count = std::min(piece.size(), kMost - bytes.size());
    bytes.append(reinterpret_cast<const char*>(piece.data()), count);
  }
  return EscapeNonUtf8(bytes);
}

}  // namespace

CallSites ReadCallSites(const ByteView& definition, CallArena* arena) {
  CallSites sites;
  size_t index = 0;
  const bool whole = ReadNodes(definition, arena, [&](const NodePlace& node) {
    if (!node.sites.empty()) sites.Add(index, Text(node.sites.back().text));
    ++index;
  });
  return whole ? std::move(sites) : CallSites();
}

std::optional<std::span<char>> WithoutCallSites(const ByteView& definition,
                                                CallArena* arena) {
  bool any = false;
  if (!ReadNodes(definition, arena,
                 [&](const NodePlace& node) { any |= !node.sites.empty(); }) ||
      !any) {
    return std::nullopt;
  }
  // A length may have been written in more bytes than it needs, not in fewer
  // than a shorter one does.
  auto room = arena->TryAllocateSpan<char>(definition.size());
  if (!room.ok()) return std::nullopt;
  RangeCopier from(definition);
  char* out = room->data();
  uint64_t copied = 0;
  ReadNodes(definition, arena, [&](const NodePlace& node) {
    if (node.sites.empty()) return;
    uint64_t left = node.body.end - node.body.begin;
    for (const NodePlace::Site& site : node.sites) {
      left -= site.field.end - site.field.begin;
    }
    out = from.Copy({copied, node.field}, out);
    *out++ = kNodesTag;
    out = PutVarint(left, out);
    copied = node.body.begin;
    for (const NodePlace::Site& site : node.sites) {
      out = from.Copy({copied, node.body.begin + site.field.begin}, out);
      copied = node.body.begin + site.field.end;
    }
    out = from.Copy({copied, node.body.end}, out);
    copied = node.body.end;
  });
  out = from.Copy({copied, definition.size()}, out);
  return room->first(static_cast<size_t>(out - room->data()));
}

}  // namespace weir
