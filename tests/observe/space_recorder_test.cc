// What the log says of spaces, and what is counted.
#include "server/observe/space_recorder.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "tests/observe/log_capture.h"
#include "tests/observe/stream_sink.h"

namespace weir {
namespace {

constexpr Nanos kNow = 1'000'000'000;

class SpaceRecorderTest : public ::testing::Test {
 protected:
  static std::unique_ptr<Space> NewSpace() {
    Space::Options options;
    options.id = 7;
    options.label = "a label";
    options.identity = "CN=me";
    options.lease = 2'500'000'000;
    options.account = Account::Create("the space", {}, nullptr);
    return std::make_unique<Space>(std::move(options));
  }

  testing::LogCapture out_;
  testing::StreamSink sink_{out_.stream()};
  Logger logger_{LogFormat::kJson, LogLevel::kInfo, sink_};
  SpaceRecorder recorder_{&logger_};
  const std::unique_ptr<Space> space_ = NewSpace();
};

TEST_F(SpaceRecorderTest, SaysWhoseSpaceItWasAndWhatItHeld) {
  recorder_.Opened(*space_, kNow);
  ASSERT_EQ(out_.Events("space opened").size(), 1u);
  const auto opened = out_.Events("space opened")[0];
  EXPECT_EQ(opened["space"], 7);
  EXPECT_EQ(opened["label"], "a label");
  EXPECT_EQ(opened["identity"], "CN=me");
  EXPECT_EQ(opened["lease_s"], 2.5);
  Amounts held;
  held[Holding::kTensorBytes] = 1;
  held[Holding::kTensors] = 2;
  held[Holding::kContexts] = 3;
  held[Holding::kTimelines] = 4;
  held[Holding::kWorks] = 5;
  recorder_.Closed(*space_, SpaceRecorder::End::kLease, held, kNow);
  ASSERT_EQ(out_.Events("space closed").size(), 1u);
  const auto closed = out_.Events("space closed")[0];
  EXPECT_EQ(closed["why"], "lease");
  EXPECT_EQ(closed["tensor_bytes"], 1);
  EXPECT_EQ(closed["tensors"], 2);
  EXPECT_EQ(closed["contexts"], 3);
  EXPECT_EQ(closed["timelines"], 4);
  EXPECT_EQ(closed["works"], 5);
  EXPECT_EQ(recorder_.opened_total(), 1u);
  EXPECT_EQ(recorder_.closed_total(SpaceRecorder::End::kLease), 1u);
  EXPECT_EQ(recorder_.closed_total(SpaceRecorder::End::kClosed), 0u);
}

TEST_F(SpaceRecorderTest, SaysWhichContextNobodyUsed) {
  recorder_.ContextExpired(*space_, {.number = 9, .ttl = 1'500'000'000}, kNow);
  ASSERT_EQ(out_.Events("context closed").size(), 1u);
  const auto closed = out_.Events("context closed")[0];
  EXPECT_EQ(closed["space"], 7);
  EXPECT_EQ(closed["label"], "a label");
  EXPECT_EQ(closed["identity"], "CN=me");
  EXPECT_EQ(closed["context"], "9");
  EXPECT_EQ(closed["ttl_s"], 1.5);
}

// Whoever opens and closes spaces in a loop.
TEST_F(SpaceRecorderTest, OfMoreThanItMayItSaysHowManyThereWere) {
  for (int i = 0; i < 150; ++i) recorder_.Opened(*space_, kNow);
  EXPECT_EQ(recorder_.opened_total(), 150u);
  EXPECT_EQ(out_.Events("space opened").size(), 100u);
  EXPECT_EQ(recorder_.suppressed_total(), 50u);
  recorder_.ReportSuppressed();
  recorder_.ReportSuppressed();
  const auto left_out = out_.Events("lines of spaces were left out");
  ASSERT_EQ(left_out.size(), 1u);
  EXPECT_EQ(left_out[0]["count"], 50);
}

}  // namespace
}  // namespace weir
