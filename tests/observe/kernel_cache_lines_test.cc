// What the log says of compiled kernels that cannot be kept.
#include "server/observe/kernel_cache_lines.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/observe/log_capture.h"
#include "tests/observe/stream_sink.h"

namespace weir {
namespace {

class KernelCacheLinesTest : public ::testing::Test {
 protected:
  void Write(const std::string& device, uint64_t failures) {
    KernelCacheStats stats;
    stats.write_failures_total = failures;
    stats.write_failure = "cannot write to /cache: No space left on device";
    lines_.Write(device, stats);
  }
  auto Events() const {
    return out_.Events("compiled kernels could not be kept");
  }

  testing::LogCapture out_;
  testing::StreamSink sink_{out_.stream()};
  Logger logger_{LogFormat::kJson, LogLevel::kWarning, sink_};
  KernelCacheLines lines_{&logger_};
};

TEST_F(KernelCacheLinesTest, SaysWhereWhyAndWhatToDo) {
  Write("cuda:0", 0);
  EXPECT_TRUE(out_.Lines().empty());
  Write("cuda:0", 3);
  ASSERT_EQ(Events().size(), 1u);
  const auto event = Events()[0];
  EXPECT_EQ(event["device"], "cuda:0");
  EXPECT_EQ(event["count"], 3);
  EXPECT_EQ(event["error"], "cannot write to /cache: No space left on device");
  EXPECT_NE(std::string(event["remedy"]).find("--cache-dir"),
            std::string::npos);
}

// Callers' graphs bring new kernels as often as they like.
TEST_F(KernelCacheLinesTest, IsQuietForAWhileAndThenCountsWhatCame) {
  Write("cuda:0", 1);
  for (int i = 0; i < KernelCacheLines::kQuietCalls; ++i) Write("cuda:0", 5);
  EXPECT_EQ(Events().size(), 1u);
  Write("cuda:0", 9);
  ASSERT_EQ(Events().size(), 2u);
  EXPECT_EQ(Events()[1]["count"], 8);
  // And nothing of what was said.
  for (int i = 0; i <= KernelCacheLines::kQuietCalls; ++i) Write("cuda:0", 9);
  EXPECT_EQ(Events().size(), 2u);
}

TEST_F(KernelCacheLinesTest, OneDeviceDoesNotSilenceAnother) {
  Write("cuda:0", 1);
  Write("cuda:1", 1);
  ASSERT_EQ(Events().size(), 2u);
  EXPECT_EQ(Events()[1]["device"], "cuda:1");
}

}  // namespace
}  // namespace weir
