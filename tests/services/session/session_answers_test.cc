#include "server/services/session/session_answers.h"

#include <gmock/gmock.h>

#include <string>
#include <utility>
#include <vector>

#include "kernels/base/error_info.h"
#include "proto/weir/v1/session.pb.h"
#include "server/services/session/session_limits.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Numbers = std::vector<uint64_t>;

constexpr uint32_t kEvaluate = v1::Command::kEvaluate;

class SessionAnswersTest : public ::testing::Test {
 protected:
  // Answers with an evaluation's, of about so many bytes.
  void Answer(uint64_t sequence, size_t bytes = 0) {
    v1::EvaluateResponse response;
    response.set_work(sequence);
    response.mutable_settings()->set_device_uuid(std::string(bytes, 'x'));
    ReplyBuffer reply;
    reply.AppendCopy(response.SerializeAsString());
    answers_.Add(sequence,
                 MakeSessionResult(sequence, kEvaluate, absl::OkStatus(),
                                   std::move(reply)),
                 {});
  }

  v1::SessionEvent Take() {
    ReplyBuffer event;
    std::vector<Admission::Ticket> tickets;
    answers_.TakeEvent(&event, &tickets);
    std::string bytes(event.size(), '\0');
    event.CopyTo(bytes.data());
    v1::SessionEvent message;
    EXPECT_TRUE(message.ParseFromString(bytes));
    return message;
  }
  std::vector<uint64_t> TakeNumbers() {
    std::vector<uint64_t> numbers;
    const v1::SessionEvent event = Take();
    for (const v1::SessionResult& result : event.results()) {
      numbers.push_back(result.sequence());
    }
    return numbers;
  }

  SessionAnswers answers_;
};

TEST_F(SessionAnswersTest, ComeAsTheyAreThere) {
  for (const uint64_t sequence : Numbers{1, 2, 3}) answers_.Expect(sequence);
  EXPECT_TRUE(answers_.empty());
  Answer(3);
  Answer(1);
  EXPECT_EQ(answers_.unsent(), 2u);
  const v1::SessionEvent event = Take();
  ASSERT_EQ(event.results_size(), 2);
  EXPECT_EQ(event.results(0).sequence(), 3u);
  EXPECT_EQ(event.results(0).result().evaluate().work(), 3u);
  EXPECT_EQ(event.results(1).sequence(), 1u);
  EXPECT_TRUE(answers_.empty());
  EXPECT_EQ(answers_.unsent_bytes(), 0u);
  EXPECT_THAT(TakeNumbers(), IsEmpty());
}

TEST_F(SessionAnswersTest, AnErrorIsAnAnswer) {
  answers_.Expect(1);
  answers_.Add(
      1,
      MakeSessionResult(1, kEvaluate,
                        WithReason(absl::NotFoundError("gone"), "WHY"), {}),
      {});
  const v1::SessionEvent event = Take();
  ASSERT_EQ(event.results_size(), 1);
  EXPECT_EQ(event.results(0).result().error().message(), "gone");
  EXPECT_EQ(event.results(0).result().error().reason(), "WHY");
}

// Small, and so large that they are sent where they are.
TEST_F(SessionAnswersTest, AreWholeWhateverTheirSize) {
  const size_t sizes[] = {0, 100, 5'000, 100, 300'000, 3'000, 10};
  uint64_t sequence = 0;
  for (const size_t size : sizes) {
    answers_.Expect(++sequence);
    Answer(sequence, size);
  }
  sequence = 0;
  while (!answers_.empty()) {
    const v1::SessionEvent event = Take();
    for (const v1::SessionResult& result : event.results()) {
      EXPECT_EQ(result.sequence(), sequence + 1);
      EXPECT_EQ(result.result().evaluate().settings().device_uuid().size(),
                sizes[sequence++]);
    }
  }
  EXPECT_EQ(sequence, std::size(sizes));
}

TEST_F(SessionAnswersTest, AnEventHasABound) {
  constexpr size_t kBytes = kSessionEventBytes / 2 - 1000;
  for (const uint64_t sequence : Numbers{1, 2, 3}) {
    answers_.Expect(sequence);
    Answer(sequence, kBytes);
  }
  answers_.Expect(4);
  Answer(4, 2 * kSessionEventBytes);
  EXPECT_THAT(TakeNumbers(), ElementsAre(1, 2));
  EXPECT_THAT(TakeNumbers(), ElementsAre(3));
  EXPECT_THAT(TakeNumbers(), ElementsAre(4));
}

TEST_F(SessionAnswersTest, ComeAgainUntilTheyAreAcknowledged) {
  for (const uint64_t sequence : Numbers{1, 2, 3}) answers_.Expect(sequence);
  Answer(1);
  Answer(2);
  EXPECT_THAT(TakeNumbers(), ElementsAre(1, 2));
  answers_.Repeat(2);
  answers_.Repeat(3);  // is to come
  EXPECT_THAT(TakeNumbers(), ElementsAre(2));
  Answer(3);
  answers_.Repeat(3);  // is on its way
  EXPECT_THAT(TakeNumbers(), ElementsAre(3));
  ASSERT_TRUE(answers_.Acknowledge(2).ok());
  answers_.SendAll();
  EXPECT_THAT(TakeNumbers(), ElementsAre(3));
  answers_.Repeat(1);
  const v1::SessionEvent event = Take();
  ASSERT_EQ(event.results_size(), 1);
  EXPECT_EQ(event.results(0).sequence(), 1u);
  EXPECT_EQ(event.results(0).result().error().reason(), "ANSWER_FORGOTTEN");
}

TEST_F(SessionAnswersTest, WhatIsNotThereIsNotAcknowledged) {
  answers_.Expect(1);
  answers_.Expect(2);
  Answer(1);
  const absl::Status refused = answers_.Acknowledge(2);
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_EQ(Field(refused), "acknowledged");
  // Nor is what is before it.
  EXPECT_THAT(TakeNumbers(), ElementsAre(1));
  EXPECT_TRUE(answers_.Acknowledge(1).ok());
  EXPECT_TRUE(answers_.Acknowledge(0).ok());
}

TEST_F(SessionAnswersTest, WhatIsAcknowledgedIsNotSent) {
  answers_.Expect(1);
  answers_.Expect(2);
  Answer(1);
  Answer(2);
  ASSERT_TRUE(answers_.Acknowledge(1).ok());
  EXPECT_THAT(TakeNumbers(), ElementsAre(2));
  EXPECT_EQ(answers_.unsent_bytes(), 0u);
}

TEST_F(SessionAnswersTest, TheNewestAreKept) {
  for (uint64_t sequence = 1; sequence <= kSessionKeptAnswers + 2; ++sequence) {
    answers_.Expect(sequence);
    Answer(sequence);
    TakeNumbers();
  }
  for (const uint64_t sequence : Numbers{1, 2, 3}) answers_.Repeat(sequence);
  const v1::SessionEvent event = Take();
  ASSERT_EQ(event.results_size(), 3);
  EXPECT_TRUE(event.results(0).result().has_error());
  EXPECT_TRUE(event.results(1).result().has_error());
  EXPECT_FALSE(event.results(2).result().has_error());
}

TEST_F(SessionAnswersTest, WhatIsAcknowledgedTakesNoPlaceAmongThem) {
  constexpr uint64_t kSlow = 900;
  // The first to be sent is not acknowledged for long.
  for (uint64_t i = 1; i <= kSlow + 1; ++i) answers_.Expect(i);
  Answer(kSlow + 1);
  ASSERT_EQ(TakeNumbers().size(), 1u);
  for (uint64_t i = 1; i <= kSlow; ++i) {
    Answer(i);
    ASSERT_EQ(TakeNumbers().size(), 1u);
  }
  ASSERT_TRUE(answers_.Acknowledge(kSlow).ok());
  for (uint64_t i = kSlow + 2; i <= kSlow + kSessionKeptAnswers; ++i) {
    answers_.Expect(i);
    Answer(i);
    ASSERT_EQ(TakeNumbers().size(), 1u);
  }
  answers_.SendAll();
  EXPECT_EQ(answers_.unsent(), kSessionKeptAnswers) << "all of them";
}

TEST_F(SessionAnswersTest, SoManyBytesAreKept) {
  constexpr size_t kBytes = kSessionKeptBytes / 4;
  for (const uint64_t sequence : Numbers{1, 2, 3, 4}) {
    answers_.Expect(sequence);
    Answer(sequence, kBytes);
    TakeNumbers();
  }
  answers_.Expect(5);
  Answer(5, kSessionKeptBytes + 1);
  TakeNumbers();
  for (const uint64_t sequence : Numbers{1, 2, 5}) answers_.Repeat(sequence);
  std::vector<bool> forgotten;
  while (!answers_.empty()) {
    const v1::SessionEvent event = Take();
    for (const v1::SessionResult& result : event.results()) {
      forgotten.push_back(result.result().has_error());
    }
  }
  EXPECT_THAT(forgotten, ElementsAre(true, false, true));
}

}  // namespace
}  // namespace weir
