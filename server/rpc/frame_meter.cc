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
constexpr uint8_t kEndStream = 1;

}  // namespace

FrameMeter::Verdict FrameMeter::Take(const void* bytes, size_t size) {
  const auto* at = static_cast<const uint8_t*>(bytes);
  while (size > 0 && verdict_ == Verdict::kFine && next_ != Next::kNothing) {
    const size_t taken = next_ == Next::kPreface ? TakePreface(at, size)
                         : next_ == Next::kHead  ? TakeHead(at, size)
                                                 : TakePayload(size);
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

size_t FrameMeter::TakeHead(const uint8_t* bytes, size_t size) {
  const size_t count = std::min(size, kHeadBytes - taken_);
  std::memcpy(head_.data() + taken_, bytes, count);
  taken_ += count;
  if (taken_ < kHeadBytes) return count;
  taken_ = 0;
  frame_.size = size_t{head_[0]} << 16 | size_t{head_[1]} << 8 | head_[2];
  frame_.type = head_[3];
  frame_.flags = head_[4];
  frame_.stream = (uint32_t{head_[5]} << 24 | uint32_t{head_[6]} << 16 |
                   uint32_t{head_[7]} << 8 | uint32_t{head_[8]}) &
                  0x7FFFFFFF;
  BeginFrame();
  if (frame_.size == 0) {
    TakePiece(0);
  } else {
    next_ = Next::kPayload;
  }
  return count;
}

size_t FrameMeter::TakePayload(size_t size) {
  const size_t count = std::min(size, frame_.size - taken_);
  taken_ += count;
  TakePiece(count);
  if (taken_ == frame_.size) {
    next_ = Next::kHead;
    taken_ = 0;
  }
  return count;
}

void FrameMeter::BeginFrame() {
  if (frame_.type == kHeaders) block_bytes_ = block_pieces_ = 0;
  if (frame_.type == kHeaders || frame_.type == kContinuation) {
    block_bytes_ += frame_.size;
    if (block_bytes_ > header_bytes_) verdict_ = Verdict::kHeadersTooLarge;
  }
  const bool ends = frame_.type == kReset || (frame_.type == kHeaders &&
                                              (frame_.flags & kEndStream) != 0);
  if (ends && !messages_.empty()) messages_.erase(frame_.stream);
}

void FrameMeter::TakePiece(size_t size) {
  if (frame_.type == kHeaders || frame_.type == kContinuation) {
    if (++block_pieces_ > kHeaderPieces) verdict_ = Verdict::kHeadersTooLarge;
  } else if (frame_.type == kData) {
    const bool last = (frame_.flags & kEndStream) != 0;
    const bool whole = size == frame_.size;
    if (!last || !whole) CountPiece(size);
    // A whole message is its reader's to judge.
    if (last && (whole || taken_ == frame_.size) && !messages_.empty()) {
      messages_.erase(frame_.stream);
    }
  }
}

void FrameMeter::CountPiece(size_t size) {
  Message& message = MessageOf(frame_.stream);
  ++message.pieces;
  message.bytes += size;
  if (message.pieces > kFreePieces + message.bytes / kBytesPerPiece) {
    verdict_ = Verdict::kTooManyPieces;
  }
}

FrameMeter::Message& FrameMeter::MessageOf(uint32_t stream) {
  const auto found = messages_.find(stream);
  if (found != messages_.end()) return found->second;
  if (stream <= forgotten_) return others_;
  if (messages_.size() == kMaxMessages) {
    const auto oldest = messages_.begin();
    if (stream < oldest->first) return others_;
    forgotten_ = oldest->first;
    messages_.erase(oldest);
  }
  return messages_[stream];
}

}  // namespace weir
