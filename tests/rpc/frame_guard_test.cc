// What a reader of a watched socket gets, read by read, as gRPC would.
#include "server/rpc/frame_guard.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "server/rpc/frame_meter.h"
#include "tests/rpc/raw_http2.h"

namespace weir {
namespace {

using testing::RawHttp2;

class FrameGuardTest : public ::testing::Test {
 protected:
  FrameGuardTest() {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends_), 0);
    guard_.WatchPlain(ends_[0]);
  }
  ~FrameGuardTest() override {
    for (const int end : ends_) close(end);
  }

  void Write(const std::string& bytes) {
    ASSERT_EQ(send(ends_[1], bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // Into two places.
  ssize_t Read(std::string* bytes) {
    char first[50];
    bytes->resize(100'000);
    iovec places[2] = {{first, sizeof(first)}, {bytes->data(), bytes->size()}};
    msghdr message = {};
    message.msg_iov = places;
    message.msg_iovlen = 2;
    const ssize_t got = recvmsg(ends_[0], &message, 0);
    bytes->insert(0, first, sizeof(first));
    if (got >= 0) bytes->resize(static_cast<size_t>(got));
    return got;
  }
  // What is written, as it is read.
  std::string Through(const std::string& bytes) {
    std::string read;
    Write(bytes);
    EXPECT_EQ(Read(&read), static_cast<ssize_t>(bytes.size()));
    return read;
  }
  void Begin() {
    const std::string begin =
        RawHttp2::Opening(1 << 16) +
        RawHttp2::EncodeCall(1, "/weir.v1.Evaluator/Evaluate");
    EXPECT_EQ(Through(begin), begin);
  }

  FrameGuard guard_{/*header_bytes=*/1000};
  int ends_[2] = {-1, -1};
};

TEST_F(FrameGuardTest, AStreamIsEndedByOneBitOfWhatIsRead) {
  Begin();
  const std::string pieces =
      RawHttp2::EncodeData(1, std::string(1000, 'x'), /*last=*/false, 1);
  const std::string read = Through(pieces);
  ASSERT_EQ(read.size(), pieces.size());
  size_t changed = 0;
  for (size_t i = 0; i < read.size(); ++i) {
    if (read[i] == pieces[i]) continue;
    ++changed;
    EXPECT_EQ(static_cast<uint8_t>(read[i] ^ pieces[i]),
              FrameMeter::kEndingFlag);
  }
  EXPECT_EQ(changed, 1u);
  EXPECT_EQ(Through(pieces), pieces);
  const FrameGuard::Cuts cuts = guard_.cuts();
  EXPECT_EQ(cuts.streams.count, 1u);
  EXPECT_EQ(cuts.streams.peer, "unix:");
  EXPECT_EQ(cuts.pieces.count, 0u);
  EXPECT_FALSE(FrameGuard::WasCut(ends_[0]));
}

// gRPC reads again where it read less than it had room for, and takes no note
// of how that ended.
TEST_F(FrameGuardTest, AConnectionThatWasCutEndsForWhoeverPassesOverIt) {
  constexpr size_t kFrame = 16'000;
  Begin();
  Through(
      RawHttp2::EncodeData(1, std::string(kFrame, 'x'), /*last=*/false, kFrame)
          .substr(0, 9));
  std::string read;
  ssize_t got = 1;
  for (size_t i = 0; got > 0 && i < kFrame; ++i) {
    Write("x");
    errno = 0;
    got = Read(&read);
  }
  EXPECT_EQ(got, -1);
  EXPECT_EQ(errno, ECONNRESET);
  EXPECT_EQ(Read(&read), 0);
  EXPECT_TRUE(FrameGuard::WasCut(ends_[0]));
  const FrameGuard::Cuts cuts = guard_.cuts();
  EXPECT_EQ(cuts.pieces.count, 1u);
  EXPECT_EQ(cuts.pieces.peer, "unix:");
  EXPECT_EQ(cuts.streams.count, 0u);
  // Its client is told too.
  char byte;
  EXPECT_EQ(recv(ends_[1], &byte, 1, 0), 0);
}

TEST_F(FrameGuardTest, EachReasonHasItsPeer) {
  Write(RawHttp2::Opening(1 << 16) +
        RawHttp2::Encode(RawHttp2::kHeaders, 0, 1, std::string(1001, 'h')));
  std::string read;
  EXPECT_EQ(Read(&read), -1);
  const FrameGuard::Cuts cuts = guard_.cuts();
  EXPECT_EQ(cuts.headers.count, 1u);
  EXPECT_EQ(cuts.headers.peer, "unix:");
  EXPECT_EQ(cuts.pieces.peer, "");
  EXPECT_EQ(cuts.streams.peer, "");
}

}  // namespace
}  // namespace weir
