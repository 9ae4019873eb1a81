#include "server/rpc/message_inflater.h"

#include <grpc/slice.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"

namespace weir {
namespace {

// Of zlib's own window, and what marks gzip's header.
constexpr int kWindowBits = 15;
constexpr int kGzip = 16;

absl::Status Corrupt(const char* what) {
  return absl::InvalidArgumentError(
      absl::StrCat("the compressed message ", what));
}

}  // namespace

absl::StatusOr<std::unique_ptr<MessageInflater>> MessageInflater::Create(
    grpc_compression_algorithm algorithm, const grpc_slice_buffer* from,
    size_t max_bytes, const char* bound) {
  if (algorithm != GRPC_COMPRESS_DEFLATE && algorithm != GRPC_COMPRESS_GZIP) {
    return absl::UnimplementedError(
        "messages may be compressed by gzip or deflate");
  }
  const int bits = kWindowBits | (algorithm == GRPC_COMPRESS_GZIP ? kGzip : 0);
  return std::unique_ptr<MessageInflater>(
      new MessageInflater(bits, from, max_bytes, bound));
}

MessageInflater::~MessageInflater() { inflateEnd(&zlib_); }

absl::Status MessageInflater::Begin(ChargeFn charge) {
  WEIR_RETURN_IF_ERROR(charge(kStateBytes));
  if (inflateInit2(&zlib_, window_bits_) == Z_OK) return absl::OkStatus();
  return absl::ResourceExhaustedError("no memory to decompress the message");
}

absl::Status MessageInflater::TakeBlock(ChargeFn charge) {
  // One byte more than allowed, so that what is too large shows.
  const size_t size = std::min(kStepBytes - 1, max_bytes_ - size_) + 1;
  WEIR_RETURN_IF_ERROR(charge(size));
  blocks_.push_back({std::unique_ptr<std::byte[]>(new std::byte[size]), size});
  zlib_.next_out = reinterpret_cast<Bytef*>(blocks_.back().bytes.get());
  zlib_.avail_out = static_cast<uInt>(size);
  return absl::OkStatus();
}

size_t MessageInflater::Feed(size_t bytes) {
  while (slice_offset_ == GRPC_SLICE_LENGTH(from_->slices[slice_])) {
    ++slice_;
    slice_offset_ = 0;
  }
  const grpc_slice& slice = from_->slices[slice_];
  bytes = std::min(bytes, GRPC_SLICE_LENGTH(slice) - slice_offset_);
  zlib_.next_in =
      const_cast<Bytef*>(GRPC_SLICE_START_PTR(slice)) + slice_offset_;
  zlib_.avail_in = static_cast<uInt>(bytes);
  slice_offset_ += bytes;
  unread_ -= bytes;
  return bytes;
}

absl::StatusOr<bool> MessageInflater::Step(ChargeFn charge) {
  if (zlib_.state == nullptr) WEIR_RETURN_IF_ERROR(Begin(charge));
  if (zlib_.avail_out == 0) WEIR_RETURN_IF_ERROR(TakeBlock(charge));
  size_t may_read = kStepInputBytes;
  bool ended = false;
  while (zlib_.avail_out > 0 && !ended) {
    if (zlib_.avail_in == 0 && unread_ > 0) {
      if (may_read == 0) return false;
      may_read -= Feed(may_read);
    }
    const int result = inflate(&zlib_, Z_NO_FLUSH);
    if (result == Z_BUF_ERROR) return Corrupt("is cut off");
    if (result != Z_OK && result != Z_STREAM_END) {
      return Corrupt("is malformed");
    }
    ended = result == Z_STREAM_END;
  }
  if (ended && (zlib_.avail_in > 0 || unread_ > 0)) {
    return Corrupt("goes on after its end");
  }
  blocks_.back().size -= zlib_.avail_out;
  size_ += blocks_.back().size;
  if (ended) inflateEnd(&zlib_);
  if (size_ <= max_bytes_) return ended;
  return WithReason(
      absl::ResourceExhaustedError(absl::StrCat(
          "the message is larger than ", max_bytes_,
          " bytes when it is decompressed, which is the most ", bound_)),
      "MESSAGE_TOO_LARGE", {{"limit", absl::StrCat(max_bytes_)}});
}

std::vector<BytePiece> MessageInflater::pieces() const {
  std::vector<BytePiece> pieces;
  for (const Block& block : blocks_) {
    if (block.size > 0) pieces.emplace_back(block.bytes.get(), block.size);
  }
  return pieces;
}

}  // namespace weir
