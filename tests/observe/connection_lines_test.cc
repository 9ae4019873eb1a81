// What the log says of connections that were turned away or cut.
#include "server/observe/connection_lines.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/observe/log_capture.h"
#include "tests/observe/stream_sink.h"

namespace weir {
namespace {

constexpr char kClosed[] = "connections were closed as they came";
constexpr char kCut[] = "connections were cut";

class ConnectionLinesTest : public ::testing::Test {
 protected:
  void Write() { lines_.Write(closed_, cuts_); }

  testing::LogCapture out_;
  testing::StreamSink sink_{out_.stream()};
  Logger logger_{LogFormat::kJson, LogLevel::kWarning, sink_};
  ConnectionLines lines_{&logger_, {.all = 7, .of_peer = 3}};
  Listener::Closed closed_;
  FrameGuard::Cuts cuts_;
};

TEST_F(ConnectionLinesTest, NothingIsSaidOfNothing) {
  Write();
  EXPECT_TRUE(out_.Lines().empty());
}

TEST_F(ConnectionLinesTest, SaysWhyHowManyAndWhatTheBoundIs) {
  closed_ = {.all = 5, .of_peer = 2};
  cuts_.pieces = {4, "ipv4:192.0.2.1:443"};
  cuts_.headers = {1, "ipv4:192.0.2.1:443"};
  cuts_.header_bytes = 1234;
  Write();
  const auto closed = out_.Events(kClosed);
  ASSERT_EQ(closed.size(), 2u);
  EXPECT_EQ(closed[0]["reason"], "TOO_MANY_CONNECTIONS");
  EXPECT_EQ(closed[0]["count"], 5);
  EXPECT_EQ(closed[0]["bound"], "--max-connections=7");
  EXPECT_EQ(closed[1]["reason"], "PEER_CONNECTIONS");
  EXPECT_EQ(closed[1]["count"], 2);
  EXPECT_EQ(closed[1]["bound"], "--max-peer-connections=3");
  const auto cut = out_.Events(kCut);
  ASSERT_EQ(cut.size(), 2u);
  EXPECT_EQ(cut[0]["count"], 4);
  EXPECT_EQ(cut[0]["last_peer"], "ipv4:192.0.2.1:443");
  EXPECT_EQ(cut[1]["bound"], "1234 bytes of a header block, in 256 pieces");
}

// Any stranger can cause them.
TEST_F(ConnectionLinesTest, IsQuietForAWhileAndThenCountsWhatCame) {
  closed_.all = 1;
  Write();
  for (int i = 0; i < ConnectionLines::kQuietCalls; ++i) {
    ++closed_.all;
    ++cuts_.headers.count;
    Write();
  }
  EXPECT_EQ(out_.Lines().size(), 1u);
  Write();
  const auto closed = out_.Events(kClosed);
  ASSERT_EQ(closed.size(), 2u);
  EXPECT_EQ(closed[1]["count"], ConnectionLines::kQuietCalls);
  ASSERT_EQ(out_.Events(kCut).size(), 1u);
  EXPECT_EQ(out_.Events(kCut)[0]["count"], ConnectionLines::kQuietCalls);
}

}  // namespace
}  // namespace weir
