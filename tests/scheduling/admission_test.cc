#include "server/scheduling/admission.h"

#include <gmock/gmock.h>

#include <thread>
#include <utility>
#include <vector>

#include "kernels/base/error_info.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

constexpr Nanos kNow = 1000;
constexpr auto kStream = Admission::Kind::kStream;

TEST(AdmissionTest, RefusesWhatIsTooLate) {
  Admission admission(10, 1000);
  EXPECT_EQ(admission.Admit(1, kNow, kNow).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(admission.Admit(1, kNow - 1, kNow).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(admission.Admit(1, kNow + 1, kNow).ok());
  EXPECT_EQ(admission.requests(), 0);
}

TEST(AdmissionTest, HoldsAtMostItsNumberOfRequests) {
  Admission admission(2, 1000);
  auto one = admission.Admit(1, kNoDeadline, kNow);
  auto two = admission.Admit(1, kNoDeadline, kNow);
  ASSERT_TRUE(one.ok() && two.ok());
  const absl::Status refused = admission.Admit(1, kNoDeadline, kNow).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Reason(refused), "QUEUE_FULL");
  // The number is what several flags make.
  EXPECT_EQ(refused.message(),
            "the server holds its limit of 2 requests in flight "
            "(--queue-length, plus --streams for each device)");
  EXPECT_TRUE(RetryAfter(refused).has_value());
  EXPECT_EQ(admission.requests(), 2);
  one->Reset();
  EXPECT_TRUE(admission.Admit(1, kNoDeadline, kNow).ok());
}

TEST(AdmissionTest, HoldsAtMostItsBytesButAlwaysOneRequest) {
  Admission admission(10, 100);
  {
    const auto large = admission.Admit(500, kNoDeadline, kNow);
    ASSERT_TRUE(large.ok());
    const absl::Status refused = admission.Admit(1, kNoDeadline, kNow).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(Reason(refused), "QUEUE_BYTES_FULL");
    EXPECT_TRUE(RetryAfter(refused).has_value());
  }
  EXPECT_EQ(admission.bytes(), 0);
  const auto half = admission.Admit(50, kNoDeadline, kNow);
  EXPECT_TRUE(admission.Admit(50, kNoDeadline, kNow).ok());
  EXPECT_FALSE(admission.Admit(51, kNoDeadline, kNow).ok());
}

TEST(AdmissionTest, WhatIsRefundedIsFreeForOthers) {
  Admission admission(10, 100);
  auto one = admission.Admit(50, kNoDeadline, kNow);
  ASSERT_TRUE(one.ok());
  ASSERT_TRUE(one->Charge(40).ok());
  EXPECT_FALSE(admission.Admit(20, kNoDeadline, kNow).ok());
  one->Refund(40);
  EXPECT_EQ(one->bytes(), 50);
  EXPECT_TRUE(admission.Admit(20, kNoDeadline, kNow).ok());
  one->Reset();
  EXPECT_EQ(admission.bytes(), 0);
  Admission::Ticket().Refund(1);  // of nobody
}

TEST(AdmissionTest, TicketsMoveAndReturnOnce) {
  Admission admission(10, 100);
  Admission::Ticket kept;
  {
    auto ticket = admission.Admit(7, kNoDeadline, kNow);
    ASSERT_TRUE(ticket.ok());
    kept = *std::move(ticket);
  }
  EXPECT_EQ(admission.requests(), 1);
  EXPECT_EQ(admission.bytes(), 7);
  EXPECT_GT(kept.bytes(), 0);
  kept.Reset();
  kept.Reset();
  EXPECT_EQ(kept.bytes(), 0);
  EXPECT_EQ(admission.requests(), 0);
  EXPECT_EQ(admission.bytes(), 0);
}

TEST(AdmissionTest, KnowsWhatWaitsAndSinceWhen) {
  Admission admission(10, 100);
  EXPECT_EQ(admission.waiting(), 0);
  EXPECT_EQ(admission.oldest_waiting(), 0);
  auto first = admission.Admit(1, kNoDeadline, kNow);
  auto second = admission.Admit(1, kNoDeadline, kNow + 1);
  auto third = admission.Admit(1, kNoDeadline, kNow + 2);
  EXPECT_EQ(admission.waiting(), 3);
  EXPECT_EQ(admission.oldest_waiting(), kNow);
  // From the middle, then the oldest, by launch and by refusal.
  second->Launched();
  second->Launched();
  EXPECT_EQ(admission.waiting(), 2);
  EXPECT_EQ(admission.oldest_waiting(), kNow);
  Admission::Ticket moved = *std::move(first);
  moved.Reset();
  EXPECT_EQ(admission.waiting(), 1);
  EXPECT_EQ(admission.oldest_waiting(), kNow + 2);
  auto fourth = admission.Admit(1, kNoDeadline, kNow + 3);
  third->Launched();
  EXPECT_EQ(admission.oldest_waiting(), kNow + 3);
  fourth->Launched();
  EXPECT_EQ(admission.waiting(), 0);
  EXPECT_EQ(admission.oldest_waiting(), 0);
  // Launched and not answered: in flight.
  EXPECT_EQ(admission.requests(), 3);
}

// What is made of a message counts as the message does.
TEST(AdmissionTest, ARequestGrowsWithinTheBytesOfAll) {
  Admission admission(10, 100);
  auto other = admission.Admit(40, kNoDeadline, kNow);
  auto grows = admission.Admit(10, kNoDeadline, kNow);
  EXPECT_TRUE(grows->Charge(50).ok());
  EXPECT_EQ(admission.bytes(), 100);
  const absl::Status refused = grows->Charge(1);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Reason(refused), "QUEUE_BYTES_FULL");
  EXPECT_TRUE(RetryAfter(refused).has_value());
  EXPECT_EQ(admission.bytes(), 100);
  grows->Reset();
  EXPECT_EQ(admission.bytes(), 40);
}

// It was admitted because it is alone; what reading it takes comes with it. It
// must not become a thousand times as large for that.
TEST(AdmissionTest, ARequestAloneGrowsByItsMessageAgain) {
  constexpr size_t kMessage = size_t{10} << 20;
  Admission admission(10, 100);
  auto alone = admission.Admit(kMessage, kNoDeadline, kNow);
  EXPECT_TRUE(alone->Charge(kMessage).ok());
  // No other time is better: it has the server to itself.
  const absl::Status refused = alone->Charge(kMessage);
  EXPECT_EQ(Reason(refused), "QUEUE_BYTES_FULL");
  EXPECT_FALSE(RetryAfter(refused).has_value());
  EXPECT_THAT(refused.message(), HasSubstr("--queue-bytes"));
  EXPECT_THAT(refused.message(), HasSubstr("31457280"));
  EXPECT_EQ(admission.bytes(), 2 * static_cast<int64_t>(kMessage));
}

// With others beside it too it is told whether waiting helps.
TEST(AdmissionTest, WhatCanNeverFitHasNoRetryHint) {
  Admission admission(10, size_t{8} << 20);
  auto other = admission.Admit(1, kNoDeadline, kNow);
  auto grows = admission.Admit(1000, kNoDeadline, kNow);
  const absl::Status never = grows->Charge(size_t{8} << 20);
  EXPECT_EQ(Reason(never), "QUEUE_BYTES_FULL");
  EXPECT_FALSE(RetryAfter(never).has_value());
  const absl::Status later = grows->Charge((size_t{8} << 20) - 1000);
  EXPECT_EQ(Reason(later), "QUEUE_BYTES_FULL");
  EXPECT_TRUE(RetryAfter(later).has_value());
}

// Streams last for long, and do not wait; their bytes are as others'.
TEST(AdmissionTest, AStreamTakesNoPlace) {
  Admission admission(1, 100);
  auto stream = admission.Admit(10, kNoDeadline, kNow, kStream);
  auto other = admission.Admit(10, kNoDeadline, kNow, kStream);
  EXPECT_TRUE(stream.ok() && other.ok());
  EXPECT_EQ(admission.requests(), 0);
  EXPECT_EQ(admission.waiting(), 0);
  EXPECT_EQ(admission.bytes(), 20);
  EXPECT_TRUE(admission.Admit(10, kNoDeadline, kNow).ok());
  EXPECT_EQ(Reason(admission.Admit(81, kNoDeadline, kNow, kStream).status()),
            "QUEUE_BYTES_FULL");
  EXPECT_EQ(Reason(stream->Charge(size_t{2} << 20)), "QUEUE_BYTES_FULL");
  std::thread([&] { other->Reset(); }).join();
  stream->Reset();
  EXPECT_EQ(admission.bytes(), 0);
}

TEST(AdmissionTest, AReplyHoldsItsBytesAndNoPlace) {
  Admission admission(1, 100);
  auto ticket = admission.Admit(60, kNoDeadline, kNow);
  EXPECT_TRUE(ticket->Charge(30).ok());
  ticket->Answered(95);
  EXPECT_EQ(admission.requests(), 0);
  EXPECT_EQ(admission.waiting(), 0);
  EXPECT_EQ(admission.bytes(), 95);
  EXPECT_EQ(Reason(admission.Admit(6, kNoDeadline, kNow).status()),
            "QUEUE_BYTES_FULL");
  EXPECT_TRUE(admission.Admit(5, kNoDeadline, kNow).ok());
  ticket->Reset();
  EXPECT_EQ(admission.requests(), 0);
  EXPECT_EQ(admission.bytes(), 0);
}

TEST(AdmissionTest, WhatIsExpectedIsWhatIsAdmitted) {
  using Kind = Admission::Kind;
  Admission admission(1, 100);
  EXPECT_TRUE(admission.Expect(Kind::kQueued, kNoDeadline, kNow).ok());
  EXPECT_EQ(admission.Expect(Kind::kQueued, kNow, kNow).code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(admission.requests(), 0);
  auto full = admission.Admit(1, kNoDeadline, kNow);
  EXPECT_EQ(Reason(admission.Expect(Kind::kQueued, kNoDeadline, kNow)),
            "QUEUE_FULL");
  full->Answered(100);
  EXPECT_EQ(Reason(admission.Expect(Kind::kQueued, kNoDeadline, kNow)),
            "QUEUE_BYTES_FULL");
  full->Reset();
  EXPECT_TRUE(admission.Expect(Kind::kQueued, kNoDeadline, kNow).ok());
}

// Whoever operates the server can ask it when it is full.
TEST(AdmissionTest, SmallCallsHaveRoomOfTheirOwn) {
  using Kind = Admission::Kind;
  constexpr auto kRoom = static_cast<size_t>(Admission::kSmallCallRoom);
  Admission admission(1, 100);
  auto full = admission.Admit(100, kNoDeadline, kNow);
  EXPECT_TRUE(admission.Expect(Kind::kSmall, kNoDeadline, kNow).ok());
  auto small = admission.Admit(kRoom - 10, kNoDeadline, kNow, Kind::kSmall);
  ASSERT_TRUE(small.ok());
  EXPECT_EQ(admission.requests(), 1);
  EXPECT_EQ(admission.waiting(), 1);
  EXPECT_TRUE(small->Charge(10).ok());
  EXPECT_FALSE(small->Charge(1).ok());
  EXPECT_FALSE(admission.Admit(1, kNoDeadline, kNow, Kind::kSmall).ok());
  small->Reset();
  EXPECT_EQ(admission.requests(), 1);
  EXPECT_EQ(admission.bytes(), 100);
}

// What replies take is not refused: it was computed.
TEST(AdmissionTest, RepliesTakeNothingOfTheRoomOfSmallCalls) {
  using Kind = Admission::Kind;
  constexpr auto kRoom = static_cast<size_t>(Admission::kSmallCallRoom);
  Admission admission(10, 100);
  auto large = admission.Admit(1, kNoDeadline, kNow);
  large->Answered(100 + 2 * kRoom);
  EXPECT_TRUE(admission.Expect(Kind::kSmall, kNoDeadline, kNow).ok());
  auto small = admission.Admit(kRoom - 10, kNoDeadline, kNow, Kind::kSmall);
  ASSERT_TRUE(small.ok()) << small.status();
  EXPECT_TRUE(small->Charge(10).ok());
  EXPECT_EQ(Reason(small->Charge(1)), "QUEUE_BYTES_FULL");
  EXPECT_EQ(Reason(admission.Expect(Kind::kSmall, kNoDeadline, kNow)),
            "QUEUE_BYTES_FULL");
  EXPECT_EQ(
      Reason(admission.Admit(1, kNoDeadline, kNow, Kind::kSmall).status()),
      "QUEUE_BYTES_FULL");
  // Their own replies are counted there too, until they are sent.
  small->Answered(kRoom - 1);
  EXPECT_TRUE(admission.Expect(Kind::kSmall, kNoDeadline, kNow).ok());
  small->Answered(kRoom);
  EXPECT_FALSE(admission.Expect(Kind::kSmall, kNoDeadline, kNow).ok());
  small->Reset();
  EXPECT_TRUE(admission.Admit(kRoom, kNoDeadline, kNow, Kind::kSmall).ok());
}

// Where others leave room, they may have that too.
TEST(AdmissionTest, SmallCallsMayHaveWhatOthersLeave) {
  using Kind = Admission::Kind;
  constexpr auto kRoom = static_cast<size_t>(Admission::kSmallCallRoom);
  Admission admission(10, 100);
  auto all = admission.Admit(100 + kRoom, kNoDeadline, kNow, Kind::kSmall);
  ASSERT_TRUE(all.ok());
  EXPECT_FALSE(admission.Admit(1, kNoDeadline, kNow, Kind::kSmall).ok());
}

// Each thread keeps its own queue; what is read covers them all.
TEST(AdmissionTest, TheQueueIsThatOfAllThreads) {
  Admission admission(10, 100);
  auto mine = admission.Admit(1, kNoDeadline, kNow + 5);
  std::thread([&] {
    auto ticket = admission.Admit(1, kNoDeadline, kNow);
    EXPECT_EQ(admission.waiting(), 2);
    EXPECT_EQ(admission.oldest_waiting(), kNow);
  }).join();
  EXPECT_EQ(admission.waiting(), 1);
  EXPECT_EQ(admission.oldest_waiting(), kNow + 5);
}

}  // namespace
}  // namespace weir
