// Log lines, as text and as JSON; trace contexts; the bound on lines.
#include "server/observe/logger.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>

#include "server/observe/line_limiter.h"
#include "server/observe/trace_context.h"
#include "tests/observe/stream_sink.h"

namespace weir {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr std::string_view kTrace = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr std::string_view kParent = "00f067aa0ba902b7";

TEST(LoggerTest, WritesAPlainLine) {
  std::ostringstream out;
  testing::StreamSink sink(out);
  Logger logger(LogFormat::kText, LogLevel::kInfo, sink);
  logger.Log(LogLevel::kWarning, "it happened",
             {{"method", "ModelInfer"},
              {"count", int64_t{3}},
              {"seconds", 0.5},
              {"error", "no \"x\" = 1"},
              {"name", "x=1"}});
  EXPECT_TRUE(std::regex_match(
      out.str(),
      std::regex("\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{6}Z warning "
                 "it happened method=ModelInfer count=3 seconds=0\\.5 "
                 "error=\"no \\\\\"x\\\\\" = 1\" name=\"x=1\"\n")))
      << out.str();
}

TEST(LoggerTest, WritesJson) {
  std::ostringstream out;
  testing::StreamSink sink(out);
  Logger logger(LogFormat::kJson, LogLevel::kInfo, sink);
  logger.Log(LogLevel::kInfo, "it \"happened\"",
             {{"method", "ModelInfer"}, {"count", int64_t{-3}}, {"x", 0.5}});
  const auto line = nlohmann::json::parse(out.str());
  EXPECT_TRUE(std::regex_match(line["time"].get<std::string>(),
                               std::regex("\\d{4}-.*T.*\\.\\d{6}Z")));
  EXPECT_EQ(line["level"], "info");
  EXPECT_EQ(line["message"], "it \"happened\"");
  EXPECT_EQ(line["method"], "ModelInfer");
  EXPECT_EQ(line["count"], -3);
  EXPECT_EQ(line["x"], 0.5);
  EXPECT_EQ(line.size(), 6u);
}

// Whatever bytes a caller sends, an event is one line.
TEST(LoggerTest, HostileBytesStayInTheirField) {
  const std::string hostile =
      "a\n2026-01-01T00:00:00Z error forged\r\x1b[2J\x7f\xff\xc3 {}%";
  std::ostringstream text, json;
  testing::StreamSink text_sink(text), json_sink(json);
  Logger(LogFormat::kText, LogLevel::kInfo, text_sink)
      .Log(LogLevel::kInfo, hostile, {{"id", hostile}});
  EXPECT_EQ(text.str().find('\n'), text.str().size() - 1);
  EXPECT_EQ(text.str().find('\x1b'), std::string::npos);
  Logger(LogFormat::kJson, LogLevel::kInfo, json_sink)
      .Log(LogLevel::kInfo, hostile, {{"id", hostile}});
  EXPECT_EQ(json.str().find('\n'), json.str().size() - 1);
  const auto line = nlohmann::json::parse(json.str());
  EXPECT_THAT(line["id"].get<std::string>(), HasSubstr("error forged"));
  EXPECT_THAT(line["id"].get<std::string>(), EndsWith(" {}%"));
}

TEST(LoggerTest, TheLevelDecides) {
  std::ostringstream out;
  testing::StreamSink sink(out);
  Logger logger(LogFormat::kText, LogLevel::kWarning, sink);
  EXPECT_FALSE(logger.enabled(LogLevel::kInfo));
  EXPECT_TRUE(logger.enabled(LogLevel::kWarning));
  logger.Log(LogLevel::kInfo, "quiet");
  EXPECT_EQ(out.str(), "");
  for (LogLevel level : {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning,
                         LogLevel::kError}) {
    logger.set_level(level);
    EXPECT_EQ(logger.level(), level);
    EXPECT_EQ(LogLevelFromName(LogLevelName(level)), level);
  }
  EXPECT_EQ(LogLevelFromName("loud"), std::nullopt);
}

std::string Traceparent(const std::string& version, const std::string& flags) {
  return version + "-" + std::string(kTrace) + "-" + std::string(kParent) +
         "-" + flags;
}

TEST(TraceContextTest, TakesWhatTheStandardAllows) {
  const std::string sampled = Traceparent("00", "01");
  const auto trace = ParseTraceparent(sampled);
  ASSERT_TRUE(trace.has_value());
  EXPECT_EQ(trace->trace_id, kTrace);
  EXPECT_EQ(trace->parent_id, kParent);
  EXPECT_TRUE(trace->sampled);
  EXPECT_FALSE(ParseTraceparent(Traceparent("00", "00"))->sampled);
  // Versions to come: the same beginning, perhaps more behind it.
  EXPECT_TRUE(ParseTraceparent(Traceparent("cc", "09")).has_value());
  EXPECT_TRUE(ParseTraceparent(Traceparent("cc", "09-more")).has_value());
}

TEST(TraceContextTest, RefusesEverythingElse) {
  const std::string good = Traceparent("00", "01");
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(ParseTraceparent(good.substr(0, size)).has_value()) << size;
  }
  for (size_t at = 0; at < good.size(); ++at) {
    for (char c : {'g', 'A', ' ', '\0', '_'}) {
      std::string bad = good;
      bad[at] = c;
      EXPECT_FALSE(ParseTraceparent(bad).has_value()) << bad;
    }
  }
  EXPECT_FALSE(ParseTraceparent(good + "-").has_value());
  EXPECT_FALSE(ParseTraceparent(good + " ").has_value());
  EXPECT_FALSE(ParseTraceparent(Traceparent("ff", "01")).has_value());
  EXPECT_FALSE(ParseTraceparent(Traceparent("cc", "01x")).has_value());
  EXPECT_FALSE(ParseTraceparent("00-" + std::string(32, '0') + "-" +
                                std::string(kParent) + "-01")
                   .has_value());
  EXPECT_FALSE(ParseTraceparent("00-" + std::string(kTrace) + "-" +
                                std::string(16, '0') + "-01")
                   .has_value());
}

TEST(LineLimiterTest, AllowsABurstAndThenSomeAndCountsTheRest) {
  constexpr Nanos kInterval = 10;
  LineLimiter limiter(3, kInterval);
  constexpr Nanos kStart = 1000;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(limiter.Allow(kStart));
  EXPECT_FALSE(limiter.Allow(kStart));
  EXPECT_FALSE(limiter.Allow(kStart + kInterval - 1));
  EXPECT_TRUE(limiter.Allow(kStart + kInterval));
  EXPECT_FALSE(limiter.Allow(kStart + kInterval));
  EXPECT_EQ(limiter.TakeSuppressed(), 3u);
  EXPECT_EQ(limiter.TakeSuppressed(), 0u);
  EXPECT_EQ(limiter.suppressed_total(), 3u);
  // After a pause the burst is there again, and no more than that.
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(limiter.Allow(kStart + 1000));
  EXPECT_FALSE(limiter.Allow(kStart + 1000));
}

}  // namespace
}  // namespace weir
