// Writes protobuf's wire format into memory whose size was computed first. Used
// with the *Size functions, which say how many bytes each Write* takes.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "server/rpc/wire/wire_reader.h"

namespace weir {

constexpr size_t VarintSize(uint64_t value) {
  return static_cast<size_t>((std::bit_width(value | 1) + 6) / 7);
}

constexpr size_t TagSize(uint32_t number) {
  return VarintSize(static_cast<uint64_t>(number) << 3);
}

// Tag, length and the bytes.
constexpr size_t BytesFieldSize(uint32_t number, size_t size) {
  return TagSize(number) + VarintSize(size) + size;
}

constexpr size_t VarintFieldSize(uint32_t number, uint64_t value) {
  return TagSize(number) + VarintSize(value);
}

class WireWriter {
 public:
  explicit WireWriter(char* out) : out_(out) {}

  // Who writes has asked for room: `out` is null only where nothing is written.
  // NOLINTBEGIN(clang-analyzer-core.NullDereference)
  void Varint(uint64_t value) {
    while (value >= 0x80) {
      *out_++ = static_cast<char>(value | 0x80);
      value >>= 7;
    }
    *out_++ = static_cast<char>(value);
  }
  // NOLINTEND(clang-analyzer-core.NullDereference)

  void Tag(uint32_t number, WireType type) {
    Varint(static_cast<uint64_t>(number) << 3 | static_cast<uint64_t>(type));
  }

  void VarintField(uint32_t number, uint64_t value) {
    Tag(number, WireType::kVarint);
    Varint(value);
  }

  void DoubleField(uint32_t number, double value) {
    Tag(number, WireType::kFixed64);
    std::memcpy(out_, &value, sizeof(value));
    out_ += sizeof(value);
  }

  // `size` bytes of the field's value must follow.
  void BeginBytes(uint32_t number, size_t size) {
    Tag(number, WireType::kBytes);
    Varint(size);
  }

  void BytesField(uint32_t number, std::string_view bytes) {
    BeginBytes(number, bytes.size());
    Raw(bytes);
  }

  void Raw(std::string_view bytes) {
    if (bytes.empty()) return;
    std::memcpy(out_, bytes.data(), bytes.size());
    out_ += bytes.size();
  }

  char* position() const { return out_; }

 private:
  char* out_;
};

}  // namespace weir
