#include "server/rpc/frame_meter.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace weir {
namespace {

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// RFC 9113, section 6.
constexpr uint8_t kData = 0;
constexpr uint8_t kHeaders = 1;
constexpr uint8_t kReset = 3;
constexpr uint8_t kContinuation = 9;
constexpr uint8_t kEndStream = FrameMeter::kEndingFlag;
constexpr uint8_t kPadded = 8;

// gRPC's head of a message: whether it is compressed, and its size.
constexpr uint8_t kMessageHeadBytes = 5;

}  // namespace

FrameMeter::Verdict FrameMeter::Take(void* bytes, size_t size) {
  auto* at = static_cast<uint8_t*>(bytes);
  while (size > 0 && verdict_ == Verdict::kFine && next_ != Next::kNothing) {
    const size_t taken = next_ == Next::kPreface ? TakePreface(at, size)
                         : next_ == Next::kHead  ? TakeHead(at, size)
                                                 : TakePayload(at, size);
    at += taken;
    size -= taken;
  }
  return verdict_;
}

// What does not begin with it is no HTTP/2, and ends as soon as it is read.
size_t FrameMeter::TakePreface(const uint8_t* bytes, size_t size) {
  const size_t count = std::min(size, kPreface.size() - taken_);
  if (std::memcmp(bytes, kPreface.data() + taken_, count) != 0) {
    next_ = Next::kNothing;
    return count;
  }
  taken_ += count;
  if (taken_ == kPreface.size()) {
    next_ = Next::kHead;
    taken_ = 0;
  }
  return count;
}

size_t FrameMeter::TakeHead(uint8_t* bytes, size_t size) {
  const size_t had = taken_;
  const size_t count = std::min(size, kHeadBytes - taken_);
  std::memcpy(head_.data() + taken_, bytes, count);
  taken_ += count;
  if (taken_ < kHeadBytes) return count;
  taken_ = 0;
  frame_.size = size_t{head_[0]} << 16 | size_t{head_[1]} << 8 | head_[2];
  frame_.type = head_[3];
  frame_.flags = head_[kFlagsAt];
  frame_.stream = (uint32_t{head_[5]} << 24 | uint32_t{head_[6]} << 16 |
                   uint32_t{head_[7]} << 8 | uint32_t{head_[8]}) &
                  0x7FFFFFFF;
  BeginFrame(had <= kFlagsAt ? bytes + (kFlagsAt - had) : nullptr);
  if (frame_.size == 0) {
    TakePiece(bytes, 0);
  } else {
    next_ = Next::kPayload;
  }
  return count;
}

size_t FrameMeter::TakePayload(const uint8_t* bytes, size_t size) {
  const size_t count = std::min(size, frame_.size - taken_);
  taken_ += count;
  TakePiece(bytes, count);
  if (taken_ == frame_.size) {
    next_ = Next::kHead;
    taken_ = 0;
  }
  return count;
}

void FrameMeter::BeginFrame(uint8_t* flags) {
  switch (frame_.type) {
    case kData:
      return BeginData(flags);
    case kReset:
      return Close(frame_.stream);
    case kHeaders:
      block_bytes_ = block_pieces_ = 0;
      if ((frame_.flags & kEndStream) != 0) {
        Close(frame_.stream);
      } else {
        Open(frame_.stream);
      }
      break;
    case kContinuation:
      break;
    default:
      return;
  }
  block_bytes_ += frame_.size;
  if (block_bytes_ > header_bytes_) verdict_ = Verdict::kHeadersTooLarge;
}

void FrameMeter::BeginData(uint8_t* flags) {
  constexpr auto kFree = int32_t{kFreePieces * kBytesPerPiece};
  const auto known = Find(frame_.stream);
  const bool gone = frame_.stream % 2 != 0 && frame_.stream <= forgotten_;
  owed_ = known != streams_.end() ? &known->owed
          : gone                  ? &others_owed_
                                  : nullptr;
  stream_ = known != streams_.end() ? &*known : nullptr;
  // Nobody pads who has nothing to hide.
  if (stream_ != nullptr && (frame_.flags & kPadded) != 0) stream_->lost = true;
  if (owed_ == nullptr || *owed_ <= kFree || flags == nullptr) return;
  if ((frame_.flags & kEndingFlag) != 0) return;  // the client's own end
  *flags |= kEndingFlag;
  frame_.flags |= kEndingFlag;
  if (known != streams_.end()) {
    ++ended_streams_;
  } else if (!others_ended_) {
    others_ended_ = true;
    ++ended_streams_;
  }
}

void FrameMeter::TakePiece(const uint8_t* bytes, size_t size) {
  if (frame_.type == kHeaders || frame_.type == kContinuation) {
    if (++block_pieces_ > kHeaderPieces) verdict_ = Verdict::kHeadersTooLarge;
  } else if (frame_.type == kData) {
    const bool last = (frame_.flags & kEndStream) != 0;
    const bool whole = size == frame_.size;
    if (!last || !whole) CountPiece(bytes, size);
    // A whole message is its reader's to judge.
    if (last && (whole || taken_ == frame_.size)) Close(frame_.stream);
  }
}

void FrameMeter::CountPiece(const uint8_t* bytes, size_t size) {
  constexpr auto kMost = int32_t{kMostPieces * kBytesPerPiece};
  constexpr auto kSaved = int32_t{kFreePieces * kBytesPerPiece};
  if (owed_ == nullptr) return;
  const int32_t least = owed_ == &others_owed_ ? 0 : -kSaved;
  *owed_ += static_cast<int32_t>(kBytesPerPiece) - static_cast<int32_t>(size);
  if (stream_ != nullptr) {
    *owed_ -= std::min(stream_->Follow(bytes, size), kMost);
  }
  *owed_ = std::max(*owed_, least);
  if (*owed_ > kMost) verdict_ = Verdict::kTooManyPieces;
}

int32_t FrameMeter::Stream::Follow(const uint8_t* bytes, size_t size) {
  int32_t back = 0;
  while (size > 0 && !lost) {
    if (head < kMessageHeadBytes) {
      lost = head == 0 && *bytes > 1;
      left = head == 0 ? 0 : left << 8 | *bytes;
      ++bytes;
      --size;
      if (++head < kMessageHeadBytes) continue;
      gives_back = static_cast<uint16_t>(std::min<uint64_t>(
          kBytesPerPiece, kBytesBackPerByte * (uint64_t{left} + head)));
    }
    const auto taken = static_cast<uint32_t>(std::min<size_t>(left, size));
    left -= taken;
    bytes += taken;
    size -= taken;
    if (left > 0) break;
    back += gives_back;
    head = 0;
  }
  return back;
}

// Streams begin in the order of their odd numbers; gRPC takes no other.
void FrameMeter::Open(uint32_t stream) {
  if (stream <= newest_ || stream % 2 == 0) return;
  newest_ = stream;
  if (streams_.size() == kMaxStreams) {
    forgotten_ = streams_.front().id;
    streams_.erase(streams_.begin());
  }
  streams_.push_back({.id = stream});
}

void FrameMeter::Close(uint32_t stream) {
  constexpr size_t kKept = 64;  // however few there are
  const auto known = Find(stream);
  if (known == streams_.end()) return;
  streams_.erase(known);
  if (streams_.capacity() > kKept &&
      streams_.size() * 4 <= streams_.capacity()) {
    streams_.shrink_to_fit();
  }
}

FrameMeter::Streams::iterator FrameMeter::Find(uint32_t stream) {
  if (!streams_.empty() && streams_.back().id == stream) {
    return streams_.end() - 1;
  }
  const auto found =
      std::lower_bound(streams_.begin(), streams_.end(), stream,
                       [](const Stream& s, uint32_t id) { return s.id < id; });
  return found != streams_.end() && found->id == stream ? found
                                                        : streams_.end();
}

size_t FrameMeter::bytes() const {
  const size_t room = streams_.capacity();
  return sizeof(*this) + (room > kInlineStreams ? room * sizeof(Stream) : 0);
}

}  // namespace weir
