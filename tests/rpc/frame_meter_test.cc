// Frames that make their receiver hold more than their bytes, and the frames of
// honest clients, however many.
#include "server/rpc/frame_meter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace weir {
namespace {

using Verdict = FrameMeter::Verdict;

constexpr size_t kHeaderBytes = 32'000;
constexpr size_t kFrame = size_t{16} << 10;
constexpr uint8_t kData = 0, kHeaders = 1, kReset = 3, kSettings = 4, kPing = 6,
                  kWindowUpdate = 8, kContinuation = 9;
constexpr uint8_t kEndStream = 1, kEndHeaders = 4;

std::string Preface() { return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"; }

std::string Head(size_t size, uint8_t type, uint8_t flags, uint32_t stream) {
  std::string head;
  for (const int shift : {16, 8, 0}) head += static_cast<char>(size >> shift);
  head += static_cast<char>(type);
  head += static_cast<char>(flags);
  for (const int shift : {24, 16, 8, 0}) {
    head += static_cast<char>(stream >> shift);
  }
  return head;
}

// A connection whose preface has come.
class Connection {
 public:
  Connection() { Take(Preface()); }

  // As one read.
  Verdict Take(std::string bytes) {
    const Verdict verdict = meter_.Take(bytes.data(), bytes.size());
    taken_ = std::move(bytes);
    return verdict;
  }
  // What gRPC gets of that.
  const std::string& taken() const { return taken_; }
  // Whether the frame that was taken last ends its stream.
  bool Ends() const {
    return (static_cast<uint8_t>(taken_[4]) & FrameMeter::kEndingFlag) != 0;
  }
  const FrameMeter& meter() const { return meter_; }
  Verdict Frame(uint8_t type, uint8_t flags, uint32_t stream, size_t size) {
    return Take(Head(size, type, flags, stream) + std::string(size, 'x'));
  }
  Verdict Data(uint32_t stream, size_t size, bool last = false) {
    return Frame(kData, last ? kEndStream : uint8_t{0}, stream, size);
  }
  Verdict Begin(uint32_t stream) {
    return Frame(kHeaders, kEndHeaders, stream, 100);
  }
  // So many frames of one byte; the last verdict.
  Verdict Bytes(uint32_t stream, size_t count) {
    Verdict verdict = Verdict::kFine;
    for (size_t i = 0; i < count; ++i) verdict = Data(stream, 1);
    return verdict;
  }

 private:
  FrameMeter meter_{kHeaderBytes};
  std::string taken_;
};

// Of pieces of one byte there may be a few more than are free, for their bytes.
constexpr size_t OfOneByte(size_t pieces) {
  return pieces * FrameMeter::kBytesPerPiece / (FrameMeter::kBytesPerPiece - 1);
}
constexpr size_t kMostOfOneByte = OfOneByte(FrameMeter::kFreePieces);

TEST(FrameMeterTest, AMessageMayNotComeInFramesOfOneByte) {
  Connection connection;
  connection.Begin(1);
  connection.Begin(3);
  connection.Bytes(1, kMostOfOneByte);
  EXPECT_FALSE(connection.Ends());
  connection.Data(1, 1);  // one too many
  EXPECT_FALSE(connection.Ends());
  EXPECT_EQ(connection.Data(1, 1), Verdict::kFine);
  EXPECT_EQ(connection.taken(),
            Head(1, kData, FrameMeter::kEndingFlag, 1) + "x");
  EXPECT_EQ(connection.meter().ended_streams(), 1u);
  // Nothing of it counts any more; others go on.
  EXPECT_EQ(connection.Bytes(1, 100'000), Verdict::kFine);
  EXPECT_FALSE(connection.Ends());
  EXPECT_EQ(connection.Bytes(3, kMostOfOneByte), Verdict::kFine);
  EXPECT_FALSE(connection.Ends());
  EXPECT_EQ(connection.meter().ended_streams(), 1u);
}

TEST(FrameMeterTest, NothingElseIsTouched) {
  Connection connection;
  connection.Begin(1);
  connection.Begin(3);
  std::string read;
  for (int i = 0; i < 1000; ++i) {
    read += Head(1, kData, 0, 1) + "x" + Head(8, kPing, 0, 0) + "12345678";
  }
  read += Head(3, kData, kEndStream, 3) + "abc";
  EXPECT_EQ(connection.Take(read), Verdict::kFine);
  size_t changed = 0;
  for (size_t i = 0; i < read.size(); ++i) {
    if (read[i] != connection.taken()[i]) ++changed;
  }
  EXPECT_EQ(changed, 1u);
}

TEST(FrameMeterTest, EmptyFramesArePiecesToo) {
  Connection connection;
  connection.Begin(1);
  for (size_t i = 0; i <= FrameMeter::kFreePieces; ++i) {
    ASSERT_EQ(connection.Data(1, 0), Verdict::kFine);
    ASSERT_FALSE(connection.Ends());
  }
  EXPECT_EQ(connection.Data(1, 0), Verdict::kFine);
  EXPECT_TRUE(connection.Ends());
}

// Where gRPC has read the flags before, the next frame has to do.
TEST(FrameMeterTest, AFrameWhoseFlagsAreReadEndsNothing) {
  Connection connection;
  connection.Begin(1);
  connection.Bytes(1, kMostOfOneByte + 1);
  const std::string head = Head(1, kData, 0, 1);
  connection.Take(head.substr(0, 5));
  connection.Take(head.substr(5) + "x");
  EXPECT_EQ(connection.taken(), head.substr(5) + "x");
  EXPECT_EQ(connection.meter().ended_streams(), 0u);
  connection.Take(head.substr(0, 4));
  connection.Take(head.substr(4) + "x");
  EXPECT_EQ(static_cast<uint8_t>(connection.taken()[0]),
            FrameMeter::kEndingFlag);
  EXPECT_EQ(connection.meter().ended_streams(), 1u);
}

TEST(FrameMeterTest, WhoSplitsEveryFrameInItsHeadLosesTheConnection) {
  Connection connection;
  connection.Begin(1);
  const std::string head = Head(1, kData, 0, 1);
  for (size_t i = 0; i < OfOneByte(FrameMeter::kMostPieces); ++i) {
    connection.Take(head.substr(0, 5));
    ASSERT_EQ(connection.Take(head.substr(5) + "x"), Verdict::kFine);
  }
  connection.Take(head.substr(0, 5));
  EXPECT_EQ(connection.Take(head.substr(5) + "x"), Verdict::kTooManyPieces);
  EXPECT_EQ(connection.meter().ended_streams(), 0u);
}

// A piece of a frame that is read alone is held alone. Of the last frame too,
// until it is whole.
TEST(FrameMeterTest, AFrameMayNotComeByteByByte) {
  for (const uint8_t flags : {uint8_t{0}, kEndStream}) {
    Connection connection;
    connection.Begin(1);
    EXPECT_EQ(connection.Take(Head(kFrame, kData, flags, 1)), Verdict::kFine);
    for (size_t i = 0; i < OfOneByte(FrameMeter::kMostPieces); ++i) {
      ASSERT_EQ(connection.Take("x"), Verdict::kFine);
    }
    EXPECT_EQ(connection.Take("x"), Verdict::kTooManyPieces);
    // And that is that.
    EXPECT_EQ(connection.Frame(kPing, 0, 0, 8), Verdict::kTooManyPieces);
  }
}

// The frame that ends its stream is kept too: it may not come byte by byte.
TEST(FrameMeterTest, AFrameThatEndsItsStreamMayComeAsNetworksCutIt) {
  for (const size_t segment : {size_t{1}, size_t{536}, size_t{1448}, kFrame}) {
    Connection connection;
    connection.Begin(1);
    connection.Bytes(1, kMostOfOneByte + 1);
    connection.Take(Head(kFrame, kData, 0, 1));
    EXPECT_TRUE(connection.Ends());
    size_t pieces = 0;
    Verdict verdict = Verdict::kFine;
    for (size_t at = 0; at < kFrame && verdict == Verdict::kFine; ++pieces) {
      const size_t part = std::min(segment, kFrame - at);
      verdict = connection.Take(std::string(part, 'x'));
      at += part;
    }
    if (segment == 1) {
      EXPECT_EQ(verdict, Verdict::kTooManyPieces);
      EXPECT_LE(pieces, FrameMeter::kMostPieces);
    } else {
      EXPECT_EQ(verdict, Verdict::kFine);
      // What comes after it is passed over.
      EXPECT_EQ(connection.Bytes(1, 10'000), Verdict::kFine);
      EXPECT_FALSE(connection.Ends());
    }
    EXPECT_EQ(connection.meter().ended_streams(), 1u);
  }
}

TEST(FrameMeterTest, WhatItsClientEndsIsLeftToIt) {
  Connection connection;
  connection.Begin(1);
  connection.Bytes(1, kMostOfOneByte + 1);
  EXPECT_EQ(connection.Data(1, 1, /*last=*/true), Verdict::kFine);
  EXPECT_EQ(connection.taken(), Head(1, kData, kEndStream, 1) + "x");
  EXPECT_EQ(connection.meter().ended_streams(), 0u);
}

TEST(FrameMeterTest, TheLargestMessageMayComeAsNetworksCutIt) {
  constexpr size_t kMessage = size_t{256} << 20;
  for (const size_t segment : {size_t{536}, size_t{1448}, size_t{1} << 20}) {
    Connection connection;
    uint32_t small = 3;
    connection.Begin(1);
    const std::string payload(kFrame, 'x');
    for (size_t sent = 0; sent < kMessage; sent += kFrame) {
      ASSERT_EQ(connection.Take(Head(kFrame, kData, 0, 1)), Verdict::kFine);
      for (size_t at = 0; at < kFrame; at += segment) {
        ASSERT_EQ(connection.Take(payload.substr(at, segment)), Verdict::kFine);
      }
      // Beside small calls, whose ends are frames of their own.
      connection.Begin(small);
      connection.Data(small, 69);
      ASSERT_EQ(connection.Data(small, 0, /*last=*/true), Verdict::kFine);
      small += 2;
    }
    EXPECT_EQ(connection.Data(1, 0, /*last=*/true), Verdict::kFine);
  }
}

TEST(FrameMeterTest, WhoOnlyReadsIsNeverWrong) {
  Connection connection;
  connection.Begin(1);
  connection.Data(1, 69, /*last=*/true);
  for (int i = 0; i < 1'000'000; ++i) {
    connection.Frame(kWindowUpdate, 0, 0, 4);
    connection.Frame(kWindowUpdate, 0, 1, 4);
    connection.Frame(kPing, 0, 0, 8);
    ASSERT_EQ(connection.Frame(kSettings, 1, 0, 0), Verdict::kFine);
  }
}

TEST(FrameMeterTest, MessagesThatEndedCountNoMore) {
  Connection connection;
  for (uint32_t stream = 1; stream < 2000; stream += 2) {
    connection.Begin(stream);
    connection.Bytes(stream, kMostOfOneByte);
    switch (stream % 3) {
      case 0:
        connection.Data(stream, 1, /*last=*/true);
        break;
      case 1:
        connection.Frame(kReset, 0, stream, 4);
        break;
      default:
        connection.Frame(kHeaders, kEndHeaders | kEndStream, stream, 10);
    }
    ASSERT_EQ(connection.Bytes(stream, 1000), Verdict::kFine);
  }
  EXPECT_EQ(connection.meter().ended_streams(), 0u);
}

TEST(FrameMeterTest, MessagesAreJudgedEachAlone) {
  Connection connection;
  for (uint32_t stream = 1; stream < 100; stream += 2) connection.Begin(stream);
  for (size_t i = 0; i < kMostOfOneByte; ++i) {
    for (uint32_t stream = 1; stream < 100; stream += 2) {
      ASSERT_EQ(connection.Data(stream, 1), Verdict::kFine);
    }
  }
  EXPECT_EQ(connection.meter().ended_streams(), 0u);
}

// gRPC passes over what is of none: streams begin with odd numbers, in order.
TEST(FrameMeterTest, DataOfNoStreamIsNoFault) {
  Connection connection;
  connection.Begin(11);
  connection.Begin(9);
  connection.Begin(14);
  for (const uint32_t stream : {0u, 2u, 9u, 13u, 14u, 0x7FFFFFFFu}) {
    ASSERT_EQ(connection.Bytes(stream, 10'000), Verdict::kFine);
    connection.Take(Head(10'000, kData, 0, stream));
    for (size_t i = 0; i < 10'000; ++i) {
      ASSERT_EQ(connection.Take("x"), Verdict::kFine);
    }
  }
  EXPECT_EQ(connection.meter().ended_streams(), 0u);
}

// Whoever is refused in the middle of its message need not end it.
TEST(FrameMeterTest, MessagesThatNeverEndAreNoFault) {
  Connection connection;
  for (uint32_t stream = 1; stream < 400'000; stream += 2) {
    connection.Begin(stream);
    ASSERT_EQ(connection.Data(stream, 69), Verdict::kFine);
    ASSERT_FALSE(connection.Ends());
  }
}

// What is forgotten for others begins anew once, and all such together.
TEST(FrameMeterTest, ForgottenMessagesShareWhatTheyMay) {
  Connection connection;
  for (const uint32_t stream : {1u, 3u}) {
    connection.Begin(stream);
    connection.Bytes(stream, kMostOfOneByte);
  }
  for (uint32_t i = 0; i < FrameMeter::kMaxStreams; ++i) {
    connection.Begin(5 + 2 * i);
  }
  connection.Bytes(1, kMostOfOneByte / 2);
  connection.Bytes(3, kMostOfOneByte / 2 + 2);
  EXPECT_EQ(connection.meter().ended_streams(), 0u);
  EXPECT_EQ(connection.Data(1, 1), Verdict::kFine);
  EXPECT_TRUE(connection.Ends());
  EXPECT_EQ(connection.Data(3, 1), Verdict::kFine);
  EXPECT_TRUE(connection.Ends());
  EXPECT_EQ(connection.meter().ended_streams(), 1u);
}

// A small call is one piece, which its reader lets go at once.
TEST(FrameMeterTest, ForgottenMessagesThatAreWholeOweNothing) {
  constexpr uint32_t kSmall = 2 * FrameMeter::kMostPieces;
  Connection connection;
  for (uint32_t i = 0; i < FrameMeter::kMaxStreams + kSmall + 1; ++i) {
    connection.Begin(1 + 2 * i);
  }
  for (uint32_t i = 0; i < kSmall; ++i) {
    ASSERT_EQ(connection.Data(1 + 2 * i, 1, /*last=*/true), Verdict::kFine);
  }
  EXPECT_EQ(connection.Data(1 + 2 * kSmall, 1), Verdict::kFine);
  EXPECT_FALSE(connection.Ends());
  EXPECT_EQ(connection.meter().ended_streams(), 0u);
}

// The bytes of one are let go long before the pieces of another come.
TEST(FrameMeterTest, BytesOfForgottenMessagesBuyNoPieces) {
  Connection connection;
  connection.Begin(1);
  connection.Begin(3);
  for (uint32_t i = 0; i < FrameMeter::kMaxStreams; ++i) {
    connection.Begin(5 + 2 * i);
  }
  for (int i = 0; i < 1000; ++i) connection.Data(3, kFrame);
  connection.Bytes(1, kMostOfOneByte + 1);
  EXPECT_FALSE(connection.Ends());
  EXPECT_EQ(connection.Data(1, 1), Verdict::kFine);
  EXPECT_TRUE(connection.Ends());
}

// A stream may go on when its first message was read and let go.
TEST(FrameMeterTest, AMessageSavesUpNoMoreThanAreFree) {
  constexpr size_t kMessage = size_t{17} << 20;
  Connection connection;
  connection.Begin(1);
  for (size_t sent = 0; sent < kMessage; sent += kFrame) {
    ASSERT_EQ(connection.Data(1, kFrame), Verdict::kFine);
  }
  connection.Bytes(1, OfOneByte(2 * FrameMeter::kFreePieces) + 1);
  EXPECT_FALSE(connection.Ends());
  EXPECT_EQ(connection.Data(1, 1), Verdict::kFine);
  EXPECT_TRUE(connection.Ends());
}

// Whoever has sent much goes on in what the server grants, little at a time.
TEST(FrameMeterTest, ALargeMessageMayEndInSmallFrames) {
  std::mt19937 random(1);
  Connection connection;
  connection.Begin(1);
  for (int i = 0; i < 4096; ++i) {
    // Of 64 KiB: three whole frames, and one in two parts.
    for (int frame = 0; frame < 3; ++frame) connection.Data(1, kFrame);
    const size_t part = random() % kFrame;
    connection.Data(1, part);
    ASSERT_EQ(connection.Data(1, kFrame - part), Verdict::kFine);
    ASSERT_FALSE(connection.Ends());
  }
  for (size_t i = 0; i < 2 * FrameMeter::kFreePieces; ++i) {
    ASSERT_EQ(connection.Data(1, 5), Verdict::kFine);
    ASSERT_FALSE(connection.Ends());
  }
  EXPECT_EQ(connection.Data(1, 0, /*last=*/true), Verdict::kFine);
  EXPECT_EQ(connection.meter().ended_streams(), 0u);
}

// A message of so many bytes, as gRPC frames it.
std::string Message(size_t size) {
  std::string message(1, '\0');
  for (const int shift : {24, 16, 8, 0}) {
    message += static_cast<char>(size >> shift);
  }
  return message + std::string(size, 'x');
}

// A stream of messages goes on for ever, however small they are.
TEST(FrameMeterTest, MessagesThatAreWholeOweNothing) {
  Connection connection;
  connection.Begin(1);
  for (const size_t size : {size_t{3}, size_t{60}, size_t{1000}}) {
    const std::string message = Message(size);
    for (size_t i = 0; i < 4 * FrameMeter::kMostPieces; ++i) {
      ASSERT_EQ(connection.Take(Head(message.size(), kData, 0, 1) + message),
                Verdict::kFine);
      ASSERT_FALSE(connection.Ends());
    }
  }
  // Where one ends in the frame in which the next begins, too.
  std::string messages;
  for (int i = 0; i < 4000; ++i) messages += Message(20);
  for (size_t at = 0; at < messages.size(); at += 30) {
    const std::string part = messages.substr(at, 30);
    ASSERT_EQ(connection.Take(Head(part.size(), kData, 0, 1) + part),
              Verdict::kFine);
    ASSERT_FALSE(connection.Ends());
  }
  EXPECT_EQ(connection.meter().ended_streams(), 0u);
}

// They take memory until they are read, and nobody has to.
TEST(FrameMeterTest, EmptyMessagesOweSomething) {
  Connection connection;
  connection.Begin(1);
  const std::string empty = Message(0);
  for (int i = 0; connection.meter().ended_streams() == 0; ++i) {
    ASSERT_LT(i, 4 * FrameMeter::kMostPieces);
    connection.Take(Head(empty.size(), kData, 0, 1) + empty);
  }
}

// What looks like messages within a message is none.
TEST(FrameMeterTest, PiecesOfAMessageAreNoMessages) {
  Connection connection;
  connection.Begin(1);
  const std::string inner = Message(3);
  const std::string head = Message(1 << 20).substr(0, 5);
  connection.Take(Head(head.size(), kData, 0, 1) + head);
  size_t pieces = 0;
  while (connection.meter().ended_streams() == 0) {
    ASSERT_LT(++pieces, FrameMeter::kMostPieces);
    connection.Take(Head(inner.size(), kData, 0, 1) + inner);
  }
}

// Nor is there one behind what can be no head, or behind padding.
TEST(FrameMeterTest, WhatIsNoMessageGivesNothingBack) {
  constexpr uint8_t kPadded = 8;
  const std::string message = Message(20);
  const auto pieces = [&](uint8_t flags, const std::string& first) {
    Connection connection;
    connection.Begin(1);
    connection.Take(Head(first.size(), kData, flags, 1) + first);
    size_t count = 0;
    while (connection.meter().ended_streams() == 0 && count < 10'000) {
      connection.Take(Head(message.size(), kData, 0, 1) + message);
      ++count;
    }
    return count;
  };
  EXPECT_EQ(pieces(0, message), 10'000u);
  EXPECT_LT(pieces(0, std::string(5, '\2')), FrameMeter::kMostPieces);
  EXPECT_LT(pieces(kPadded, std::string(1, '\0') + message),
            FrameMeter::kMostPieces);
}

// Whatever its client says has begun.
TEST(FrameMeterTest, ItsOwnMemoryHasABound) {
  constexpr size_t kMost = (size_t{32} << 10) + 512;
  std::vector<uint32_t> ids;
  for (uint32_t id = 1; id < 40'000; id += 2) ids.push_back(id);
  const std::vector<uint32_t> descending(ids.rbegin(), ids.rend());
  std::vector<uint32_t> shuffled = ids;
  std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937(1));
  for (const auto& order : {ids, descending, shuffled}) {
    Connection opened;
    Connection unopened;
    const size_t before = opened.meter().bytes();
    EXPECT_LT(before, 512u);
    for (const uint32_t id : order) {
      opened.Begin(id);
      opened.Data(id, 1);
      unopened.Data(id, 1);
      ASSERT_LE(opened.meter().bytes(), kMost);
    }
    EXPECT_EQ(unopened.meter().bytes(), before);
    for (const uint32_t id : order) opened.Frame(kReset, 0, id, 4);
    // Room for a few may stay.
    EXPECT_LE(opened.meter().bytes(), before + 512);
  }
}

TEST(FrameMeterTest, AHeaderBlockHasABound) {
  Connection connection;
  // Each begins anew.
  for (uint32_t stream = 1; stream < 100; stream += 2) {
    EXPECT_EQ(connection.Frame(kHeaders, 0, stream, 16'000), Verdict::kFine);
    EXPECT_EQ(connection.Frame(kContinuation, kEndHeaders, stream, 16'000),
              Verdict::kFine);
  }
  connection.Frame(kHeaders, 0, 101, 16'000);
  connection.Frame(kContinuation, 0, 101, 16'000);
  // As soon as it is announced.
  EXPECT_EQ(connection.Take(Head(1, kContinuation, 0, 101)),
            Verdict::kHeadersTooLarge);
}

TEST(FrameMeterTest, AHeaderBlockMayNotComeByteByByte) {
  Connection frames;
  frames.Frame(kHeaders, 0, 1, 1);
  for (size_t i = 1; i < FrameMeter::kHeaderPieces; ++i) {
    ASSERT_EQ(frames.Frame(kContinuation, 0, 1, i % 2), Verdict::kFine);
  }
  EXPECT_EQ(frames.Frame(kContinuation, 0, 1, 0), Verdict::kHeadersTooLarge);

  Connection segments;
  segments.Take(Head(1000, kHeaders, kEndHeaders, 1));
  for (size_t i = 0; i < FrameMeter::kHeaderPieces; ++i) {
    ASSERT_EQ(segments.Take("x"), Verdict::kFine);
  }
  EXPECT_EQ(segments.Take("x"), Verdict::kHeadersTooLarge);
}

TEST(FrameMeterTest, ReadsMayEndAnywhere) {
  std::string bytes = Preface() + Head(6, kSettings, 0, 0) + "settin";
  for (int i = 0; i < 20; ++i) {
    bytes += Head(100, kHeaders, kEndHeaders, 1) + std::string(100, 'h');
    bytes += Head(100, kData, kEndStream, 1) + std::string(100, 'd');
  }
  FrameMeter meter(kHeaderBytes);
  for (char byte : bytes) {
    ASSERT_EQ(meter.Take(&byte, 1), Verdict::kFine);
  }
  // It knows where it is.
  std::string head = Head(kHeaderBytes + 1, kHeaders, 0, 3);
  for (size_t i = 0; i + 1 < head.size(); ++i) {
    ASSERT_EQ(meter.Take(&head[i], 1), Verdict::kFine);
  }
  EXPECT_EQ(meter.Take(&head.back(), 1), Verdict::kHeadersTooLarge);
}

TEST(FrameMeterTest, WhatIsNoHttp2IsLeftToItsReader) {
  FrameMeter meter(kHeaderBytes);
  std::string bytes = "PRI * HTTP/1.1\r\n\r\nSM\r\n\r\n";
  ASSERT_EQ(bytes.size(), Preface().size());
  for (int i = 0; i < 1000; ++i) bytes += Head(0xFFFFFF, kHeaders, 0, 1);
  EXPECT_EQ(meter.Take(bytes.data(), bytes.size()), Verdict::kFine);
}

}  // namespace
}  // namespace weir
