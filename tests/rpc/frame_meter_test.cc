// Frames that make their receiver hold more than their bytes, and the frames of
// honest clients, however many.
#include "server/rpc/frame_meter.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

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

  Verdict Take(const std::string& bytes) {
    return meter_.Take(bytes.data(), bytes.size());
  }
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
};

// Of frames of one byte there may be a few more than are free, for their bytes.
constexpr size_t kMostOfOneByte =
    FrameMeter::kFreePieces +
    FrameMeter::kFreePieces / (FrameMeter::kBytesPerPiece - 1);

TEST(FrameMeterTest, AMessageMayNotComeInFramesOfOneByte) {
  Connection connection;
  connection.Begin(1);
  EXPECT_EQ(connection.Bytes(1, kMostOfOneByte), Verdict::kFine);
  EXPECT_EQ(connection.Data(1, 1), Verdict::kTooManyPieces);
  // And that is that.
  EXPECT_EQ(connection.Data(1, 1, /*last=*/true), Verdict::kTooManyPieces);
  EXPECT_EQ(connection.Frame(kPing, 0, 0, 8), Verdict::kTooManyPieces);
}

TEST(FrameMeterTest, EmptyFramesArePiecesToo) {
  Connection connection;
  connection.Begin(1);
  for (size_t i = 0; i < FrameMeter::kFreePieces; ++i) {
    ASSERT_EQ(connection.Data(1, 0), Verdict::kFine);
  }
  EXPECT_EQ(connection.Data(1, 0), Verdict::kTooManyPieces);
}

// A piece of a frame that is read alone is held alone. Of the last frame too,
// until it is whole.
TEST(FrameMeterTest, AFrameMayNotComeByteByByte) {
  for (const uint8_t flags : {uint8_t{0}, kEndStream}) {
    Connection connection;
    connection.Begin(1);
    EXPECT_EQ(connection.Take(Head(kFrame, kData, flags, 1)), Verdict::kFine);
    for (size_t i = 0; i < kMostOfOneByte; ++i) {
      ASSERT_EQ(connection.Take("x"), Verdict::kFine);
    }
    EXPECT_EQ(connection.Take("x"), Verdict::kTooManyPieces);
  }
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
    ASSERT_EQ(connection.Bytes(stream, 1000), Verdict::kFine);
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
}

TEST(FrameMeterTest, MessagesAreJudgedEachAlone) {
  Connection connection;
  for (size_t i = 0; i < 1000; ++i) {
    for (uint32_t stream = 1; stream < 100; stream += 2) {
      ASSERT_EQ(connection.Data(stream, 1), Verdict::kFine);
    }
  }
}

// Whoever is refused in the middle of its message need not end it.
TEST(FrameMeterTest, MessagesThatNeverEndAreNoFault) {
  Connection connection;
  for (uint32_t stream = 1; stream < 400'000; stream += 2) {
    connection.Begin(stream);
    ASSERT_EQ(connection.Data(stream, 69), Verdict::kFine);
  }
}

// What is forgotten for others begins anew once, and all such together.
TEST(FrameMeterTest, ForgottenMessagesShareWhatTheyMay) {
  constexpr uint32_t kOthers = 5000;
  Connection connection;
  connection.Bytes(1, 1000);
  connection.Bytes(3, 1000);
  for (uint32_t stream = 5; stream < kOthers; stream += 2) {
    connection.Data(stream, 1);
  }
  EXPECT_EQ(connection.Bytes(1, kMostOfOneByte / 2), Verdict::kFine);
  EXPECT_EQ(connection.Bytes(3, kMostOfOneByte / 2), Verdict::kFine);
  EXPECT_EQ(connection.Bytes(1, 1), Verdict::kTooManyPieces);
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
  for (const char byte : bytes) {
    ASSERT_EQ(meter.Take(&byte, 1), Verdict::kFine);
  }
  // It knows where it is.
  const std::string head = Head(kHeaderBytes + 1, kHeaders, 0, 3);
  for (size_t i = 0; i + 1 < head.size(); ++i) {
    ASSERT_EQ(meter.Take(&head[i], 1), Verdict::kFine);
  }
  EXPECT_EQ(meter.Take(&head.back(), 1), Verdict::kHeadersTooLarge);
}

TEST(FrameMeterTest, WhatIsNoHttp2IsLeftToItsReader) {
  FrameMeter meter(kHeaderBytes);
  std::string bytes = "PRI * HTTP/1.1\r\n";
  for (int i = 0; i < 1000; ++i) bytes += Head(0xFFFFFF, kHeaders, 0, 1);
  EXPECT_EQ(meter.Take(bytes.data(), bytes.size()), Verdict::kFine);
}

}  // namespace
}  // namespace weir
