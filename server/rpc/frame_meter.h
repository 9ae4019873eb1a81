// What one HTTP/2 connection makes its receiver hold beside the bytes that it
// counts: a piece of memory for each part that a message comes in, and header
// blocks, which nobody judges before they are whole. Fed with the connection's
// bytes as they come, before gRPC has them; judges them by their frames alone,
// and knows a stream from its headers on, as gRPC does. Pure; used by one
// thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"

namespace weir {

class FrameMeter {
 public:
  // A message may come in so many pieces, and in one more for each so many of
  // its bytes. A piece is what one frame and one read have in common. Beyond
  // that, the stream's next frame of data is its last. Its bytes save up as
  // many pieces as are free, no more: it may be let go before they are used.
  static constexpr size_t kFreePieces = 256;
  static constexpr size_t kBytesPerPiece = 256;
  // In place of kFreePieces where there is no such frame, or it cannot be made
  // the last, or is itself one that comes in pieces.
  static constexpr size_t kMostPieces = 512;
  // Of a stream of messages one that is whole gives back what a piece costs, up
  // to so many times its bytes: it is for its reader to take, and what is not
  // taken fits the stream's window.
  static constexpr size_t kBytesBackPerByte = 32;
  // Pieces of a header block: what has come is gone through again with each.
  static constexpr size_t kHeaderPieces = 256;
  // Streams that are known apart. The client says which have begun: of those
  // that the server has ended it need not say more.
  static constexpr size_t kMaxStreams = 2048;

  // Of the connection.
  enum class Verdict : uint8_t { kFine, kTooManyPieces, kHeadersTooLarge };

  // `header_bytes`: of a header block, as it is sent.
  explicit FrameMeter(size_t header_bytes) : header_bytes_(header_bytes) {}

  // The next bytes, which were read at once into one place. What is not fine
  // stays so. In a frame that is to be its stream's last it sets kEndingFlag,
  // as a client would that sends no more: gRPC takes the message for what has
  // come of it, whole or not, and passes over all data that follows. The client
  // learns of the call's end by its answer, or ends it itself; were its stream
  // reset, a call whose message is whole would go on with nobody to end it.
  Verdict Take(void* bytes, size_t size);
  static constexpr uint8_t kEndingFlag = 1;  // END_STREAM

  // Streams that were ended so; those that are not known apart are one.
  uint64_t ended_streams() const { return ended_streams_; }

  // What it takes, itself included.
  size_t bytes() const;

 private:
  static constexpr size_t kHeadBytes = 9;
  static constexpr size_t kFlagsAt = 4;

  enum class Next : uint8_t { kPreface, kHead, kPayload, kNothing };
  struct Frame {
    size_t size = 0;
    uint8_t type = 0;
    uint8_t flags = 0;
    uint32_t stream = 0;
  };
  struct Stream {
    uint32_t id = 0;
    // kBytesPerPiece for each piece, less its bytes.
    int32_t owed = 0;

    // What of the message that is on its way is to come, once its head is
    // there.
    uint32_t left = 0;
    uint16_t gives_back = 0;  // when it is whole
    uint8_t head = 0;         // bytes of its head that are there
    bool lost = false;        // no message was seen where one had to begin

    // The next bytes of its data. Returns what the messages that are whole now
    // give back.
    int32_t Follow(const uint8_t* bytes, size_t size);
  };
  static constexpr size_t kInlineStreams = 8;
  using Streams = absl::InlinedVector<Stream, kInlineStreams>;

  // Each takes what it needs of the `size` bytes and returns how many.
  size_t TakePreface(const uint8_t* bytes, size_t size);
  size_t TakeHead(uint8_t* bytes, size_t size);
  size_t TakePayload(const uint8_t* bytes, size_t size);
  // `flags`: where gRPC will read those of frame_; null: it has.
  void BeginFrame(uint8_t* flags);
  void BeginData(uint8_t* flags);
  void TakePiece(const uint8_t* bytes, size_t size);
  void CountPiece(const uint8_t* bytes, size_t size);
  void Open(uint32_t stream);
  void Close(uint32_t stream);
  // Its place, or streams_.end().
  Streams::iterator Find(uint32_t stream);

  const size_t header_bytes_;
  Verdict verdict_ = Verdict::kFine;
  Next next_ = Next::kPreface;
  bool others_ended_ = false;
  size_t taken_ = 0;  // of the preface, the head, or the payload
  std::array<uint8_t, kHeadBytes> head_ = {};
  Frame frame_;
  int32_t* owed_ = nullptr;   // by the frame's stream; null: it costs nothing
  Stream* stream_ = nullptr;  // the frame's; null: it is not known apart
  size_t block_bytes_ = 0;    // of the header block
  size_t block_pieces_ = 0;
  uint64_t ended_streams_ = 0;
  Streams streams_;  // that are open for the client to send, in their order
  uint32_t newest_ = 0;
  // Streams up to this one that are not among them owe together.
  uint32_t forgotten_ = 0;
  int32_t others_owed_ = 0;
};

}  // namespace weir
