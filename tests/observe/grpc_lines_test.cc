// gRPC's own lines in our log: cut, escaped, and few.
#include "server/observe/grpc_lines.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/observe/log_capture.h"
#include "tests/observe/stream_sink.h"

namespace weir {
namespace {

class GrpcLinesTest : public ::testing::Test {
 protected:
  testing::LogCapture out_;
  testing::StreamSink sink_{out_.stream()};
  Logger logger_{LogFormat::kJson, LogLevel::kWarning, sink_};
  GrpcLines lines_{&logger_};
};

// Some of them quote what a stranger sent.
TEST_F(GrpcLinesTest, ALongLineIsCut) {
  const std::string kept = "\"quoted\"\n" + std::string(503, 'x');
  lines_.Write(/*error=*/true, "a.cc:1", kept, 0);
  lines_.Write(/*error=*/true, "a.cc:1", kept + std::string(1 << 20, 'y'), 0);
  const auto events = out_.Events("gRPC");
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(out_.Lines().size(), 2u);
  for (const auto& event : events) {
    EXPECT_EQ(event["text"], kept);
    EXPECT_EQ(event["source"], "a.cc:1");
    EXPECT_EQ(event["level"], "warning");
  }
}

TEST_F(GrpcLinesTest, OnlyItsErrorsAreWarnings) {
  lines_.Write(/*error=*/false, "a.cc:1", "chatter", 0);
  EXPECT_TRUE(out_.Lines().empty());
}

TEST_F(GrpcLinesTest, MoreLinesThanThereMayBeAreCounted) {
  constexpr int kLines = 1000;
  for (int i = 0; i < kLines; ++i) lines_.Write(true, "a.cc:1", "again", 0);
  const auto written = static_cast<int>(out_.Events("gRPC").size());
  EXPECT_GE(written, 1);
  EXPECT_LT(written, 100);
  lines_.ReportSuppressed();
  const auto reports = out_.Events("lines of gRPC were left out");
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0]["count"], kLines - written);
  EXPECT_EQ(lines_.suppressed_total(), static_cast<uint64_t>(kLines - written));
}

// Whether they are written or not.
TEST_F(GrpcLinesTest, CountsHandshakesThatFailed) {
  constexpr int kLines = 1000;
  for (int i = 0; i < kLines; ++i) {
    lines_.Write(true, "ssl_transport_security.cc:1501",
                 "Handshake failed with fatal error SSL_ERROR_SSL: error:"
                 "0A000086:SSL routines::certificate verify failed.",
                 0);
  }
  lines_.Write(true, "ssl_transport_security.cc:300", "Invalid key.", 0);
  lines_.Write(true, "a.cc:1", "Handshake failed", 0);
  EXPECT_EQ(lines_.handshake_failures(), uint64_t{kLines});
}

}  // namespace
}  // namespace weir
