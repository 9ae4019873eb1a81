#include "server/rpc/message_inflater.h"

#include <gmock/gmock.h>
#include <grpc/slice.h>

#include <algorithm>
#include <string>

#include "kernels/base/error_info.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

// What zlib makes of `text`.
std::string Deflated(const std::string& text, bool gzip) {
  z_stream zlib = {};
  EXPECT_EQ(
      deflateInit2(&zlib, 6, Z_DEFLATED, gzip ? 31 : 15, 8, Z_DEFAULT_STRATEGY),
      Z_OK);
  std::string out(deflateBound(&zlib, text.size()), '\0');
  zlib.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  zlib.avail_in = static_cast<uInt>(text.size());
  zlib.next_out = reinterpret_cast<Bytef*>(out.data());
  zlib.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&zlib, Z_FINISH), Z_STREAM_END);
  out.resize(zlib.total_out);
  deflateEnd(&zlib);
  return out;
}

// Bytes in slices of `piece` bytes.
class Slices {
 public:
  Slices(const std::string& bytes, size_t piece) {
    grpc_slice_buffer_init(&buffer_);
    for (size_t at = 0; at < bytes.size(); at += piece) {
      const size_t size = std::min(piece, bytes.size() - at);
      grpc_slice_buffer_add_indexed(
          &buffer_, grpc_slice_from_copied_buffer(bytes.data() + at, size));
    }
  }
  ~Slices() { grpc_slice_buffer_destroy(&buffer_); }
  Slices(const Slices&) = delete;
  Slices& operator=(const Slices&) = delete;
  const grpc_slice_buffer* get() const { return &buffer_; }

 private:
  grpc_slice_buffer buffer_;
};

struct Inflated {
  absl::Status status;
  std::string text;
  size_t charged = 0;
  int steps = 0;
};

Inflated Inflate(const std::string& bytes, size_t piece, size_t max_bytes,
                 grpc_compression_algorithm algorithm = GRPC_COMPRESS_GZIP,
                 size_t room = SIZE_MAX) {
  const Slices slices(bytes, piece);
  Inflated result;
  auto inflater = MessageInflater::Create(algorithm, slices.get(), max_bytes,
                                          "of a test's message");
  EXPECT_TRUE(inflater.ok());
  for (bool whole = false; !whole;) {
    const absl::StatusOr<bool> step =
        (*inflater)->Step([&](size_t more) -> absl::Status {
          result.charged += more;
          if (result.charged <= room) return absl::OkStatus();
          return absl::ResourceExhaustedError("no room");
        });
    ++result.steps;
    result.status = step.status();
    if (!step.ok()) return result;
    whole = *step;
  }
  for (BytePiece part : (*inflater)->pieces()) {
    result.text.append(reinterpret_cast<const char*>(part.data()), part.size());
  }
  EXPECT_EQ(result.text.size(), (*inflater)->size());
  return result;
}

TEST(MessageInflaterTest, UndoesBothForms) {
  constexpr size_t kStep = MessageInflater::kStepBytes;
  for (size_t size : {size_t{0}, size_t{1}, kStep - 1, kStep, kStep + 1,
                      3 * kStep, 3 * kStep + 7}) {
    std::string text(size, '\0');
    for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * i >> 5);
    for (size_t piece : {size_t{1} << 30, size_t{100}}) {
      const Inflated gzip =
          Inflate(Deflated(text, true), piece, size, GRPC_COMPRESS_GZIP);
      EXPECT_TRUE(gzip.status.ok()) << gzip.status << size;
      EXPECT_EQ(gzip.text, text);
      const Inflated deflate =
          Inflate(Deflated(text, false), piece, size, GRPC_COMPRESS_DEFLATE);
      EXPECT_TRUE(deflate.status.ok()) << deflate.status << size;
      EXPECT_EQ(deflate.text, text);
    }
  }
}

TEST(MessageInflaterTest, StopsAtItsBoundAndHasTakenNoMore) {
  const std::string bomb = Deflated(std::string(100 << 20, '\0'), true);
  const Inflated result = Inflate(bomb, 1 << 20, 1'000'000);
  EXPECT_EQ(Reason(result.status), "MESSAGE_TOO_LARGE");
  EXPECT_THAT(result.status.message(), HasSubstr("of a test's message"));
  EXPECT_LE(result.charged, 1'000'000 + MessageInflater::kStepBytes +
                                MessageInflater::kStateBytes);
  EXPECT_GT(result.steps, 3);  // others had their turns
  // One byte too many is too many.
  const std::string text(5000, 'x');
  EXPECT_TRUE(Inflate(Deflated(text, true), 100, 5000).status.ok());
  EXPECT_FALSE(Inflate(Deflated(text, true), 100, 4999).status.ok());
}

// Blocks that make nothing: all work and no output.
TEST(MessageInflaterTest, OneStepReadsLittleWhereNothingIsMade) {
  constexpr size_t kBlocks = 200'000;
  std::string bytes("\x78\x9c", 2);
  for (size_t i = 0; i < kBlocks; ++i) {
    bytes.append("\x00\x00\x00\xff\xff", 5);  // stored, of no length
  }
  bytes.append("\x01\x00\x00\xff\xff", 5);  // the last one
  bytes.append("\x00\x00\x00\x01", 4);      // the checksum
  for (size_t piece : {size_t{1} << 30, size_t{10'000}}) {
    const Inflated result =
        Inflate(bytes, piece, 1 << 20, GRPC_COMPRESS_DEFLATE);
    EXPECT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.text, "");
    EXPECT_GE(static_cast<size_t>(result.steps),
              bytes.size() / MessageInflater::kStepInputBytes);
    // Memory is taken for what is made, not for each step.
    EXPECT_LE(result.charged,
              MessageInflater::kStepBytes + MessageInflater::kStateBytes);
  }
}

TEST(MessageInflaterTest, StopsWhereThereIsNoRoom) {
  const std::string bomb = Deflated(std::string(10 << 20, '\0'), true);
  const Inflated result =
      Inflate(bomb, 1 << 20, 100 << 20, GRPC_COMPRESS_GZIP, 1 << 20);
  EXPECT_EQ(result.status.message(), "no room");
}

// A message of a few bytes costs much before anything has become of it.
TEST(MessageInflaterTest, WhatZlibHasIsChargedToo) {
  constexpr size_t kState = MessageInflater::kStateBytes;
  const std::string small = Deflated("x", true);
  EXPECT_GE(Inflate(small, 100, 1).charged, kState + 1);
  const Inflated refused =
      Inflate(small, 100, 1, GRPC_COMPRESS_GZIP, kState - 1);
  EXPECT_EQ(refused.status.message(), "no room");
  EXPECT_EQ(refused.charged, kState);
}

TEST(MessageInflaterTest, RefusesWhatIsNoCompressedMessage) {
  const std::string good = Deflated(std::string(100'000, 'x'), true);
  const auto error = [](const std::string& bytes) {
    return std::string(Inflate(bytes, 64, 1 << 20).status.message());
  };
  EXPECT_THAT(error(""), HasSubstr("cut off"));
  EXPECT_THAT(error(good.substr(0, good.size() - 1)), HasSubstr("cut off"));
  EXPECT_THAT(error(good + "x"), HasSubstr("goes on"));
  EXPECT_THAT(error("this is not compressed"), HasSubstr("malformed"));
  std::string flipped = good;
  flipped[flipped.size() - 6] ^= 1;  // the checksum
  EXPECT_THAT(error(flipped), HasSubstr("malformed"));
}

TEST(MessageInflaterTest, KnowsTwoAlgorithms) {
  const Slices slices("x", 1);
  EXPECT_EQ(MessageInflater::Create(GRPC_COMPRESS_NONE, slices.get(), 1, "")
                .status()
                .code(),
            absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace weir
