// Reads protobuf's wire format out of a message that lies in slices, without
// copying bytes fields. It never reads past the message or the sub-message it
// is in, and stops at the first error. What it returns points into the slices
// or into the arena. Used by one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "server/bytes/byte_view.h"
#include "server/bytes/call_arena.h"

namespace weir {

enum class WireType : uint8_t {
  kVarint = 0,
  kFixed64 = 1,
  kBytes = 2,
  kStartGroup = 3,
  kEndGroup = 4,
  kFixed32 = 5,
};

class WireReader {
 public:
  // Fields of one message, those of messages in it among them. A request has a
  // few for each tensor; what is far beyond that would be read for its own
  // sake, at two bytes a field.
  static constexpr uint64_t kMaxFields = uint64_t{1} << 20;

  // `elements` more fields may come, of a list whose elements are fields.
  WireReader(const ByteView& bytes, CallArena* arena, uint64_t elements = 0);

  // Reads the next field's tag within the current message. False at its end, or
  // on an error.
  bool NextField();
  uint32_t number() const { return number_; }
  WireType type() const { return type_; }

  // The value of the current field. A wrong wire type is an error.
  uint64_t Varint();
  int64_t Int64() { return static_cast<int64_t>(Varint()); }
  int32_t Int32() { return static_cast<int32_t>(Varint()); }
  bool Bool() { return Varint() != 0; }
  uint32_t Fixed32();
  uint64_t Fixed64();
  ByteView Bytes();
  // Must be UTF-8, of at most `max_bytes`. Copied to the arena only if it lies
  // in several slices. `field` is its name, for errors; it lives forever, as
  // all of them.
  std::string_view String(const char* field, uint64_t max_bytes);
  // A String as long as what names anything may be: a longer one would be
  // quoted where it names nothing.
  static constexpr uint64_t kMaxNameBytes = 1024;
  std::string_view Name(const char* field) {
    return String(field, kMaxNameBytes);
  }

  // Passes over the current field.
  void Skip();

  // The current field is a message, or packed numbers: reads them by calling
  // `read(reader)` with the end set to theirs.
  template <typename Read>
  void Nested(Read&& read) {
    const uint64_t end = EnterNested();
    read(*this);
    LeaveNested(end);
  }

  // Nested, of the message in `field`; of its entry `index` if that is a list.
  // Errors about what is in it begin with this.
  static constexpr size_t kNoList = SIZE_MAX;
  template <typename Read>
  void Message(const char* field, size_t index, Read&& read) {
    if (depth_ < kMaxSteps) steps_[depth_] = {field, index};
    ++depth_;
    Nested(std::forward<Read>(read));
    --depth_;
  }
  template <typename Read>
  void Message(const char* field, Read&& read) {
    Message(field, kNoList, std::forward<Read>(read));
  }

  // A repeated number, packed or not: calls append(value) for each.
  template <typename Append>
  void RepeatedVarint(Append&& append) {
    if (type_ != WireType::kBytes) {
      append(Varint());
      return;
    }
    Nested([&](WireReader&) {
      while (ok() && position_ < end_) append(RawVarint());
    });
  }

  template <typename Append>
  void RepeatedFixed32(Append&& append) {
    if (type_ != WireType::kBytes) {
      append(Fixed32());
      return;
    }
    Nested([&](WireReader&) {
      type_ = WireType::kFixed32;
      while (ok() && position_ < end_) append(Fixed32());
    });
  }

  template <typename Append>
  void RepeatedFixed64(Append&& append) {
    if (type_ != WireType::kBytes) {
      append(Fixed64());
      return;
    }
    Nested([&](WireReader&) {
      type_ = WireType::kFixed64;
      while (ok() && position_ < end_) append(Fixed64());
    });
  }

  // Bytes up to the end of the current message.
  uint64_t left() const { return end_ - position_; }

  // The next `count` bytes, which have neither tag nor length; fewer than that
  // is an error.
  ByteView RawBytes(uint64_t count);
  uint32_t RawFixed32();

  bool ok() const { return error_ == nullptr; }
  // The first error wins. `error` lives forever.
  void Fail(const char* error);
  // The same for what is wrong with a field of the current message: "PATH what
  // it is", with the field's path as InvalidField has it.
  void FailField(const char* field, std::string_view what);
  // There are more entries in `field` than `limit`.
  void FailTooMany(const char* field, size_t limit);
  // INVALID_ARGUMENT: of a field, or "malformed MESSAGE at byte N: why". Why
  // the arena was refused, if reading ended for that. RESOURCE_EXHAUSTED if it
  // did for kMaxFields.
  absl::Status status(std::string_view message) const;

 private:
  static constexpr int kMaxGroupDepth = 32;

  // Where reading is: a message within the one that holds it.
  struct Step {
    const char* field;
    size_t index;
  };
  static constexpr size_t kMaxSteps = 6;  // deeper ones go unnamed

  uint64_t RawVarint();
  uint64_t SlowVarint();
  uint64_t Length();
  uint64_t EnterNested();
  void LeaveNested(uint64_t end);
  bool Expect(WireType type);
  void Advance(uint64_t count);
  void CopyRaw(std::byte* out, size_t count);
  void SkipGroup(uint32_t number, int depth);

  std::span<const BytePiece> pieces_;
  size_t piece_ = 0;                      // the current one
  const std::byte* cursor_ = nullptr;     // within the current piece
  const std::byte* piece_end_ = nullptr;  // of the current piece
  uint64_t position_ = 0;                 // from the start of the message
  uint64_t end_ = 0;                      // of the current (sub-)message
  uint64_t fields_left_;
  CallArena* const arena_;
  uint32_t number_ = 0;
  WireType type_ = WireType::kVarint;
  const char* error_ = nullptr;
  uint64_t error_position_ = 0;
  absl::Status field_error_;  // if a field is at fault
  std::array<Step, kMaxSteps> steps_;
  size_t depth_ = 0;
};

// What is said of a field whose `text` is not well-formed UTF-8: that, and how
// it begins.
std::string NotUtf8(std::string_view text);

}  // namespace weir
