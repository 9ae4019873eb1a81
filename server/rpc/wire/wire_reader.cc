#include "server/rpc/wire/wire_reader.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"
#include "kernels/base/utf8.h"

namespace weir {
namespace {

// Tags and lengths may be padded with zeros, but not beyond this, as protobuf
// has it.
constexpr uint64_t kMaxVarint32Bytes = 5;

// Replaced by which message has them.
constexpr char kTooManyFields[] = "too many fields";
// Replaced by why the arena was refused.
constexpr char kNoRoom[] = "no room for what is read";
// Replaced by what is wrong with the field.
constexpr char kFieldError[] = "a field is at fault";

absl::Status TooManyFields(std::string_view message) {
  return WithReason(
      absl::ResourceExhaustedError(absl::StrCat(
          AbslView(message), " has more than ", WireReader::kMaxFields,
          " fields, those of messages "
          "in it among them; send none that mean nothing")),
      "TOO_MANY_FIELDS", {{"limit", absl::StrCat(WireReader::kMaxFields)}});
}

}  // namespace

WireReader::WireReader(const ByteView& bytes, CallArena* arena,
                       uint64_t elements)
    : pieces_(bytes.pieces()),
      end_(bytes.size()),
      fields_left_(kMaxFields + elements),
      arena_(arena) {
  if (!pieces_.empty()) {
    cursor_ = pieces_[0].data();
    piece_end_ = cursor_ + pieces_[0].size();
  }
}

void WireReader::Fail(const char* error) {
  if (error_ != nullptr) return;
  error_ = error;
  error_position_ = position_;
  position_ = end_;
}

void WireReader::FailField(const char* field, std::string_view what) {
  if (!ok()) return;
  std::string path;
  for (size_t i = 0; i < std::min(depth_, kMaxSteps); ++i) {
    const Step& step = steps_[i];
    absl::StrAppend(&path, step.field);
    if (step.index != kNoList) absl::StrAppend(&path, "[", step.index, "]");
    path += '.';
  }
  path += field;
  field_error_ = InvalidField(path, absl::StrCat(path, " ", AbslView(what)));
  Fail(kFieldError);
}

void WireReader::FailTooMany(const char* field, size_t limit) {
  if (arena_->refused()) return Fail(kNoRoom);
  FailField(field, absl::StrCat("has more than ", limit, " entries"));
}

absl::Status WireReader::status(std::string_view message) const {
  if (ok()) return absl::OkStatus();
  if (arena_->refused()) {
    return Annotate(arena_->refusal(),
                    absl::StrCat("reading ", AbslView(message), " at byte ",
                                 error_position_, ": "));
  }
  if (!field_error_.ok()) return field_error_;
  if (error_ == kTooManyFields) return TooManyFields(message);
  return absl::InvalidArgumentError(
      absl::StrCat("malformed ", AbslView(message), " at byte ",
                   error_position_, ": ", error_));
}

// REQUIRES: count <= end_ - position_.
void WireReader::Advance(uint64_t count) {
  position_ += count;
  while (count > 0) {
    const auto here = static_cast<uint64_t>(piece_end_ - cursor_);
    if (count < here) {
      cursor_ += count;
      return;
    }
    count -= here;
    cursor_ = piece_end_;
    if (count == 0 && position_ == end_) return;
    if (piece_ + 1 >= pieces_.size()) return;
    ++piece_;
    cursor_ = pieces_[piece_].data();
    piece_end_ = cursor_ + pieces_[piece_].size();
  }
}

void WireReader::CopyRaw(std::byte* out, size_t count) {
  while (count > 0) {
    const size_t here =
        std::min(count, static_cast<size_t>(piece_end_ - cursor_));
    if (here > 0) std::memcpy(out, cursor_, here);
    out += here;
    count -= here;
    Advance(here);
    if (count > 0 && cursor_ == piece_end_) {
      if (piece_ + 1 >= pieces_.size()) return;
      ++piece_;
      cursor_ = pieces_[piece_].data();
      piece_end_ = cursor_ + pieces_[piece_].size();
    }
  }
}

uint64_t WireReader::RawVarint() {
  // One byte is the common case.
  if (cursor_ < piece_end_ && position_ < end_) {
    const auto first = static_cast<uint8_t>(*cursor_);
    if (first < 0x80) {
      ++cursor_;
      ++position_;
      return first;
    }
  }
  return SlowVarint();
}

uint64_t WireReader::SlowVarint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (position_ >= end_) {
      Fail("a number is cut off");
      return 0;
    }
    std::byte byte{};
    CopyRaw(&byte, 1);
    const auto bits = static_cast<uint64_t>(byte);
    value |= (bits & 0x7F) << shift;
    if (bits < 0x80) return value;
  }
  Fail("a number is longer than 10 bytes");
  return 0;
}

bool WireReader::NextField() {
  if (!ok() || position_ >= end_) return false;
  if (arena_->refused()) {
    Fail(kNoRoom);
    return false;
  }
  if (fields_left_ == 0) {
    Fail(kTooManyFields);
    return false;
  }
  --fields_left_;
  const uint64_t start = position_;
  const uint64_t tag = RawVarint();
  if (!ok()) return false;
  number_ = static_cast<uint32_t>(tag >> 3);
  type_ = static_cast<WireType>(tag & 7);
  if (tag > UINT32_MAX || number_ == 0 || (tag & 7) > 5 ||
      position_ - start > kMaxVarint32Bytes) {
    Fail("a field's tag is invalid");
    return false;
  }
  return true;
}

bool WireReader::Expect(WireType type) {
  if (!ok()) return false;
  if (type_ == type) return true;
  Fail("a field has the wrong wire type");
  return false;
}

uint64_t WireReader::Varint() {
  return Expect(WireType::kVarint) ? RawVarint() : 0;
}

uint32_t WireReader::Fixed32() {
  return Expect(WireType::kFixed32) ? RawFixed32() : 0;
}

uint32_t WireReader::RawFixed32() {
  uint32_t value = 0;
  if (end_ - position_ < sizeof(value)) {
    Fail("a number is cut off");
    return 0;
  }
  CopyRaw(reinterpret_cast<std::byte*>(&value), sizeof(value));
  return value;
}

uint64_t WireReader::Fixed64() {
  uint64_t value = 0;
  if (!Expect(WireType::kFixed64)) return 0;
  if (end_ - position_ < sizeof(value)) {
    Fail("a number is cut off");
    return 0;
  }
  CopyRaw(reinterpret_cast<std::byte*>(&value), sizeof(value));
  return value;
}

uint64_t WireReader::Length() {
  const uint64_t start = position_;
  const uint64_t length = RawVarint();
  if (!ok()) return 0;
  if (length > end_ - position_ || position_ - start > kMaxVarint32Bytes) {
    Fail("a field is longer than the message");
    return 0;
  }
  return length;
}

ByteView WireReader::Bytes() {
  return Expect(WireType::kBytes) ? RawBytes(Length()) : ByteView();
}

ByteView WireReader::RawBytes(uint64_t length) {
  if (length > end_ - position_) Fail("bytes are cut off");
  if (!ok() || length == 0) return {};
  // Which pieces does it touch?
  size_t last = piece_;
  auto covered = static_cast<uint64_t>(piece_end_ - cursor_);
  while (covered < length) covered += pieces_[++last].size();
  const absl::StatusOr<std::span<BytePiece>> room =
      arena_->TryAllocateSpan<BytePiece>(last - piece_ + 1);
  if (!room.ok()) {
    Fail(kNoRoom);
    return {};
  }
  const std::span<BytePiece> out = *room;
  uint64_t left = length;
  size_t count = 0;
  const std::byte* from = cursor_;
  const std::byte* to = piece_end_;
  for (size_t i = piece_;;
       from = pieces_[i].data(), to = from + pieces_[i].size()) {
    const uint64_t here = std::min(left, static_cast<uint64_t>(to - from));
    if (here > 0) out[count++] = BytePiece(from, here);
    left -= here;
    if (left == 0) break;
    ++i;
  }
  Advance(length);
  return ByteView(out.first(count), length);
}

std::string_view WireReader::String(const char* field, uint64_t max_bytes) {
  if (!Expect(WireType::kBytes)) return {};
  const uint64_t length = Length();
  if (!ok() || length == 0) return {};
  if (length > max_bytes) {
    FailField(field,
              absl::StrCat("has ", length, " bytes; it may have ", max_bytes));
    return {};
  }
  std::string_view text;
  if (length <= static_cast<uint64_t>(piece_end_ - cursor_)) {
    text = {reinterpret_cast<const char*>(cursor_), length};
    Advance(length);
  } else {
    const absl::StatusOr<std::span<std::byte>> copy =
        arena_->TryAllocateSpan<std::byte>(length);
    if (!copy.ok()) {
      Fail(kNoRoom);
      return {};
    }
    CopyRaw(copy->data(), length);
    text = {reinterpret_cast<const char*>(copy->data()), length};
  }
  if (!IsUtf8(text)) FailField(field, NotUtf8(text));
  return text;
}

void WireReader::Skip() {
  if (!ok()) return;
  switch (type_) {
    case WireType::kVarint:
      RawVarint();
      return;
    case WireType::kFixed64:
      Fixed64();
      return;
    case WireType::kFixed32:
      Fixed32();
      return;
    case WireType::kBytes:
      Advance(Length());
      return;
    case WireType::kStartGroup:
      SkipGroup(number_, 0);
      return;
    case WireType::kEndGroup:
      Fail("a group ends that did not begin");
      return;
  }
}

void WireReader::SkipGroup(uint32_t number, int depth) {
  if (depth >= kMaxGroupDepth) return Fail("groups are nested too deeply");
  while (NextField()) {
    if (type_ == WireType::kEndGroup) {
      if (number_ != number) Fail("a group ends that did not begin");
      return;
    }
    if (type_ == WireType::kStartGroup) {
      SkipGroup(number_, depth + 1);
    } else {
      Skip();
    }
  }
  Fail("a group is cut off");
}

uint64_t WireReader::EnterNested() {
  const uint64_t outer = end_;
  if (!Expect(WireType::kBytes)) return outer;
  const uint64_t length = Length();
  if (ok()) end_ = position_ + length;
  return outer;
}

void WireReader::LeaveNested(uint64_t end) {
  if (ok() && position_ != end_) Fail("a nested message was not read whole");
  end_ = end;
  if (!ok()) position_ = end_;
}

std::string NotUtf8(std::string_view text) {
  return "is not UTF-8: " + QuoteStart(text);
}

}  // namespace weir
