// How a call counts by when it ended: who left at a deadline, and for how long
// nobody was answered. (The lines are call_log_test's.)
#include "server/observe/call_recorder.h"

#include <gtest/gtest.h>

#include <iostream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/observe/stream_sink.h"

namespace weir {
namespace {

constexpr Nanos kMillisecond = 1'000'000;

// One that arrived at 1 s.
class EndedCall final : public ServerCall {
 public:
  // `given` and `after`: how long it had, and when it was answered.
  EndedCall(Nanos given, Nanos after, bool whole = true) {
    received_ = 1'000 * kMillisecond;
    if (given != kNoDeadline) deadline_ = received_ + given;
    answered_at_ = received_ + after;
    whole_ = whole;
  }
  void Resume(ResumeFn, void*) override {}
  std::string Connection() const override { return "ipv4:127.0.0.1:1"; }
  std::optional<std::string_view> Header(std::string_view) const override {
    return std::nullopt;
  }
  void Reply(ReplyBuffer) override {}
  void Fail(const absl::Status&) override {}
  void Write(ReplyBuffer, ResumeFn, void*) override {}
};

class CallRecorderTest : public ::testing::Test {
 protected:
  CallRecorderTest() {
    metrics_.SetMethods({"Evaluate"});
    method_.name = "Evaluate";
  }

  void End(const ServerCall& call, const absl::Status& status,
           Delivery delivery = Delivery::kCallerGone) {
    recorder_.OnEnded(call, method_, status, delivery);
  }

  // What follows a series' name and its RPC.
  void Expect(const std::string& name, const std::string& rest) const {
    const std::string line =
        absl::StrCat("\n", name, "{method=\"Evaluate\"", rest, "\n");
    EXPECT_TRUE(absl::StrContains(metrics_.Text(), line)) << line;
  }

  void ExpectCodes(int cancelled, int late) const {
    Expect("weir_requests_total",
           absl::StrCat(",code=\"CANCELLED\"} ", cancelled));
    Expect("weir_requests_total",
           absl::StrCat(",code=\"DEADLINE_EXCEEDED\"} ", late));
    Expect("weir_requests_refused_total",
           absl::StrCat(",reason=\"DEADLINE_PASSED\"} ", late));
  }

  TimerQueue timers_;
  testing::StreamSink sink_{std::cerr};
  Logger logger_{LogFormat::kText, LogLevel::kError, sink_};
  Metrics metrics_;
  CallRecorder recorder_{&metrics_, &logger_, &timers_, "test"};
  Method method_;
  const absl::Status gone_ = absl::CancelledError("the caller has gone");
};

TEST_F(CallRecorderTest, WhoLeavesAtItsDeadlineIsLate) {
  // Clients leave a moment before it has come by the server's clock.
  for (const Nanos after : {295, 300, 1'500}) {
    End(EndedCall(300 * kMillisecond, after * kMillisecond), gone_);
  }
  // A deadline of minutes is sent rounded up.
  End(EndedCall(100'000 * kMillisecond, 99'000 * kMillisecond), gone_);
  ExpectCodes(0, 4);
}

TEST_F(CallRecorderTest, WhoLeavesBeforeItHasCanceled) {
  // As a hedge does whose other call was answered; and one without a deadline.
  End(EndedCall(300 * kMillisecond, 20 * kMillisecond), gone_);
  End(EndedCall(300 * kMillisecond, 280 * kMillisecond), gone_);
  End(EndedCall(8 * kMillisecond, 6 * kMillisecond), gone_);
  End(EndedCall(kNoDeadline, 5'000 * kMillisecond), gone_);
  // Nor is one late that would not read its answer.
  End(EndedCall(300 * kMillisecond, 300 * kMillisecond), gone_, Delivery::kCut);
  ExpectCodes(5, 0);
}

TEST_F(CallRecorderTest, OtherEndsAreWhatTheyAre) {
  const EndedCall late(300 * kMillisecond, 400 * kMillisecond);
  End(late, absl::OkStatus(), Delivery::kSent);
  End(late, absl::InternalError("broken"), Delivery::kSent);
  ExpectCodes(0, 0);
  Expect("weir_requests_total", ",code=\"INTERNAL\"} 1");
  Expect("weir_requests_total", ",code=\"OK\"} 1");
}

// An upload that takes its client minutes is not the server's time.
TEST_F(CallRecorderTest, TheTimeOfAnUploadIsTheCallers) {
  End(EndedCall(kNoDeadline, 60'000 * kMillisecond, /*whole=*/false), gone_);
  End(EndedCall(kNoDeadline, 60'000 * kMillisecond), gone_);
  Expect("weir_request_given_up_seconds_bucket", ",le=\"0.01\"} 1");
  Expect("weir_request_given_up_seconds_bucket", ",le=\"10\"} 1");
  Expect("weir_request_given_up_seconds_count", "} 2");
}

}  // namespace
}  // namespace weir
