// What one HTTP/2 connection makes its receiver hold beside the bytes that it
// counts: a piece of memory for each part that a message comes in, and header
// blocks, which nobody judges before they are whole. Fed with the connection's
// bytes as they come; judges them by their frames alone. Pure; used by one
// thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/container/btree_map.h"

namespace weir {

class FrameMeter {
 public:
  // A message may come in so many pieces, and in one more for each so many of
  // its bytes. A piece is what one frame and one read have in common.
  static constexpr size_t kFreePieces = 1024;
  static constexpr size_t kBytesPerPiece = 256;
  // Pieces of a header block: what has come is gone through again with each.
  static constexpr size_t kHeaderPieces = 256;

  enum class Verdict : uint8_t { kFine, kTooManyPieces, kHeadersTooLarge };

  // `header_bytes`: of a header block, as it is sent.
  explicit FrameMeter(size_t header_bytes) : header_bytes_(header_bytes) {}

  // The next bytes, which were read at once into one place. What is not fine
  // stays so.
  Verdict Take(const void* bytes, size_t size);

 private:
  static constexpr size_t kHeadBytes = 9;
  // Messages that are known apart. The client says which have begun: of those
  // that the server has ended it need not say more.
  static constexpr size_t kMaxMessages = 2048;

  enum class Next : uint8_t { kPreface, kHead, kPayload, kNothing };
  struct Frame {
    size_t size = 0;
    uint8_t type = 0;
    uint8_t flags = 0;
    uint32_t stream = 0;
  };
  struct Message {
    uint64_t pieces = 0;
    uint64_t bytes = 0;
  };

  // Each takes what it needs of the `size` bytes and returns how many.
  size_t TakePreface(const uint8_t* bytes, size_t size);
  size_t TakeHead(const uint8_t* bytes, size_t size);
  size_t TakePayload(size_t size);
  void BeginFrame();
  void TakePiece(size_t size);
  void CountPiece(size_t size);
  Message& MessageOf(uint32_t stream);

  const size_t header_bytes_;
  Verdict verdict_ = Verdict::kFine;
  Next next_ = Next::kPreface;
  size_t taken_ = 0;  // of the preface, the head, or the payload
  std::array<uint8_t, kHeadBytes> head_ = {};
  Frame frame_;
  size_t block_bytes_ = 0;  // of the header block
  size_t block_pieces_ = 0;
  absl::btree_map<uint32_t, Message> messages_;  // that are not whole
  // Streams up to this one that are not among them share a message.
  uint32_t forgotten_ = 0;
  Message others_;
};

}  // namespace weir
