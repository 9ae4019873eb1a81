// Pieces of wire format that requests and replies of both protocols share.
#pragma once

#include <cstdint>
#include <span>

#include "server/bytes/arena_list.h"
#include "server/rpc/wire/wire_reader.h"
#include "server/rpc/wire/wire_writer.h"

namespace weir {

// What one request may have of each repeated thing; more is INVALID_ARGUMENT.
inline constexpr size_t kMaxWireTensors = 1024;
// Moments that a work waits for, and that it moves: all are gone through for
// each of another's.
inline constexpr size_t kMaxWirePoints = 64;

// Reads a repeated int64, the current `field`: at most kMaxWireRank of them.
inline constexpr size_t kMaxWireRank = 64;
inline void ReadExtents(WireReader& reader, const char* field,
                        ArenaList<int64_t>* extents) {
  reader.RepeatedVarint([&](uint64_t bits) {
    if (int64_t* extent = extents->Add(kMaxWireRank)) {
      *extent = static_cast<int64_t>(bits);
    } else {
      reader.FailTooMany(field, kMaxWireRank);
    }
  });
}

// Reads the current field, a message, into a new entry of `list`, which has at
// most `most`.
template <typename T, typename Read>
void ReadEntry(WireReader& reader, const char* field, ArenaList<T>* list,
               Read&& read, size_t most = kMaxWireTensors) {
  T* entry = list->Add(most);
  if (entry == nullptr) return reader.FailTooMany(field, most);
  reader.Message(field, list->size() - 1, [&](WireReader&) { read(entry); });
}

// The bytes that the packed form of `values` takes, without tag and length.
inline size_t PackedSize(std::span<const int64_t> values) {
  size_t size = 0;
  for (int64_t value : values) size += VarintSize(static_cast<uint64_t>(value));
  return size;
}

inline size_t PackedFieldSize(uint32_t number,
                              std::span<const int64_t> values) {
  return values.empty() ? 0 : BytesFieldSize(number, PackedSize(values));
}

inline void WritePacked(uint32_t number, std::span<const int64_t> values,
                        WireWriter* writer) {
  if (values.empty()) return;
  writer->BeginBytes(number, PackedSize(values));
  for (int64_t value : values) writer->Varint(static_cast<uint64_t>(value));
}

}  // namespace weir
