#include "server/spaces/spaces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/base/error_info.h"
#include "tests/spaces/space_fixture.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

SpaceUse Open(Spaces& spaces, std::string identity = "CN=me") {
  auto use = spaces.Open(WishOf(std::move(identity)), NowNanos(), 17);
  EXPECT_TRUE(use.ok()) << use.status();
  return *std::move(use);
}

std::string TokenOf(const SpaceUse& use) {
  return std::string(use->token().bytes());
}

TEST(SpacesTest, WhoAsksForNothingGetsTheMost) {
  Spaces spaces(TestSpaces());
  const SpaceUse use = Open(spaces);
  EXPECT_EQ(use->id(), 1u);
  EXPECT_EQ(use->label(), "a label");
  EXPECT_EQ(use->identity(), "CN=me");
  EXPECT_EQ(use->lease(), kTestLease);
  EXPECT_EQ(use->opened_unix_ns(), 17);
  EXPECT_EQ(use->token().origin(), kTestOrigin);
  EXPECT_EQ(use->account().limits()[Holding::kTensors], 1000u);
  EXPECT_EQ(Open(spaces)->id(), 2u);
}

TEST(SpacesTest, WhoAsksForLessGetsThat) {
  Spaces spaces(TestSpaces());
  Amounts quota;
  quota[Holding::kTensors] = 2;
  auto use = spaces.Open(WishOf("CN=me", 5, quota), NowNanos(), 0);
  ASSERT_TRUE(use.ok()) << use.status();
  EXPECT_EQ((*use)->lease(), 5);
  EXPECT_EQ((*use)->account().limits()[Holding::kTensors], 2u);
  EXPECT_EQ((*use)->account().limits()[Holding::kContexts], 1000u);
  const auto both = (*use)->account().Take(Holding::kTensors, 2);
  EXPECT_THAT(
      std::string((*use)->account().Take(Holding::kTensors).status().message()),
      HasSubstr("the space has 2 of at most 2 tensors"));
}

TEST(SpacesTest, WhoAsksForMoreIsToldWhichFieldIsAtFault) {
  Spaces spaces(TestSpaces());
  const auto refused = [&](const Spaces::Wish& wish) {
    const absl::Status status = spaces.Open(wish, NowNanos(), 0).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return Field(status);
  };
  EXPECT_EQ(refused(WishOf("CN=me", -1)), "lease_ns");
  EXPECT_EQ(refused(WishOf("CN=me", kTestLease + 1)), "lease_ns");
  const std::pair<Holding, const char*> fields[] = {
      {Holding::kTensorBytes, "quota.tensor_bytes"},
      {Holding::kTensors, "quota.tensors"},
      {Holding::kContexts, "quota.contexts"},
      {Holding::kTimelines, "quota.timelines"},
      {Holding::kWorks, "quota.works"},
      {Holding::kInputBytes, "quota.input_bytes"},
      {Holding::kProgramBytes, "quota.program_bytes"},
      {Holding::kWaits, "quota.waits"},
      {Holding::kSessions, "quota.sessions"}};
  for (const auto& [what, field] : fields) {
    Amounts quota;
    quota[what] = 1001;
    EXPECT_EQ(refused(WishOf("CN=me", 0, quota)), field);
    quota[what] = 1000;
    EXPECT_TRUE(spaces.Open(WishOf("CN=me", 0, quota), NowNanos(), 0).ok())
        << field;
  }
}

TEST(SpacesTest, ASpaceIsFoundByItsTokenAndItsIdentity) {
  Spaces spaces(TestSpaces());
  const SpaceUse use = Open(spaces);
  const auto found = spaces.Find(TokenOf(use), "CN=me", NowNanos());
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->shared(), use.shared());
  const absl::Status foreign =
      spaces.Find(TokenOf(use), "CN=you", NowNanos()).status();
  EXPECT_EQ(foreign.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Reason(foreign), "SPACE_NOT_FOUND");
  std::string other = TokenOf(use);
  other.back() = static_cast<char>(other.back() ^ 1);
  const absl::Status unknown = spaces.Find(other, "CN=me", NowNanos()).status();
  EXPECT_EQ(unknown, foreign) << "nobody learns that a space is another's";
}

TEST(SpacesTest, WhatIsNoTokenIsAnArgumentsFault) {
  Spaces spaces(TestSpaces());
  for (const std::string bytes : {"", "fifteen bytes..", "seventeen bytes.."}) {
    const absl::Status status =
        spaces.Find(bytes, "CN=me", NowNanos()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("weir-space-bin"));
  }
}

TEST(SpacesTest, TheTokenOfAnEarlierStartIsKnownAsSuch) {
  Spaces spaces(TestSpaces());
  SpaceToken::Origin earlier = kTestOrigin;
  --earlier.start;
  const SpaceToken token = SpaceToken::New(earlier);
  const absl::Status lost =
      spaces.Find(token.bytes(), "CN=me", NowNanos()).status();
  EXPECT_EQ(lost.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Reason(lost), "SPACE_LOST");
}

TEST(SpacesTest, ASpaceThatNobodyUsesEndsWithItsLease) {
  Spaces spaces(TestSpaces());
  std::string token;
  const Nanos opened = NowNanos();
  {
    const SpaceUse use = Open(spaces);
    token = TokenOf(use);
    EXPECT_TRUE(spaces.CloseExpired(NowNanos() + 2 * kTestLease).empty())
        << "it is used";
  }
  EXPECT_TRUE(spaces.CloseExpired(opened + kTestLease).empty());
  EXPECT_TRUE(spaces.Find(token, "CN=me", opened + kTestLease).ok())
      << "and its lease is renewed";
  const Nanos late = NowNanos() + kTestLease + 1;
  EXPECT_EQ(Reason(spaces.Find(token, "CN=me", late).status()),
            "SPACE_NOT_FOUND")
      << "whether it was closed already or not";
  {
    auto kept = spaces.Find(token, "CN=me", NowNanos());
    ASSERT_TRUE(kept.ok()) << kept.status();
    ASSERT_TRUE(
        (*kept)->timelines().Take(1)->Fill(std::make_shared<KeptTimeline>(
            KeptTimeline{std::make_shared<Timeline>("theirs"),
                         *(*kept)->account().Take(Holding::kTimelines)})));
  }
  const auto ended = spaces.CloseExpired(NowNanos() + kTestLease + 1);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].space->label(), "a label");
  EXPECT_EQ(ended[0].held[Holding::kTimelines], 1u) << "until then";
  EXPECT_EQ(ended[0].space->account().held(Holding::kTimelines), 0u);
  EXPECT_FALSE(ended[0].space->BeginUse());
  EXPECT_EQ(Reason(spaces.Find(token, "CN=me", NowNanos()).status()),
            "SPACE_NOT_FOUND");
  EXPECT_TRUE(spaces.CloseExpired(NowNanos() + kTestLease + 1).empty());
}

TEST(SpacesTest, AnIdentityHasABoundOfItsOwn) {
  SpacesOptions options = TestSpaces();
  options.identity[Holding::kSpaces] = 2;
  options.identity[Holding::kTensors] = 5;
  Spaces spaces(options);
  SpaceUse first = Open(spaces);
  const SpaceUse second = Open(spaces);
  const absl::Status full =
      spaces.Open(WishOf("CN=me"), NowNanos(), 0).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Reason(full), "SPACE_QUOTA");
  EXPECT_THAT(std::string(full.message()),
              HasSubstr("identity \"CN=me\" has 2 of at most 2 spaces"));
  EXPECT_TRUE(spaces.Open(WishOf("CN=you"), NowNanos(), 0).ok());
  const auto three = first->account().Take(Holding::kTensors, 3);
  ASSERT_TRUE(three.ok()) << three.status();
  EXPECT_EQ(Reason(second->account().Take(Holding::kTensors, 3).status()),
            "SPACE_QUOTA");
  EXPECT_TRUE(spaces.Close(*first));
  EXPECT_FALSE(spaces.Open(WishOf("CN=me"), NowNanos(), 0).ok())
      << "somebody uses it yet";
  first = SpaceUse();
  EXPECT_TRUE(spaces.Open(WishOf("CN=me"), NowNanos(), 0).ok());
  EXPECT_EQ(spaces.HeldBy("CN=me")[Holding::kTensors], 3u)
      << "what somebody has of it yet counts";
}

TEST(SpacesTest, ASpaceThatIsGoneMakesRoom) {
  SpacesOptions options = TestSpaces();
  options.identity[Holding::kSpaces] = 1;
  Spaces spaces(options);
  for (int i = 0; i < 3; ++i) {
    const SpaceUse use = Open(spaces);
    EXPECT_TRUE(spaces.Close(*use));
    EXPECT_EQ(spaces.HeldBy("CN=me")[Holding::kSpaces], 1u);
  }
  EXPECT_EQ(spaces.HeldBy("CN=me")[Holding::kSpaces], 0u);
  EXPECT_EQ(spaces.held()[Holding::kSpaces], 0u);
}

// All who have no identity of their own are one.
TEST(SpacesTest, AnonymousHasTheServersBoundAlone) {
  SpacesOptions options = TestSpaces();
  options.identity[Holding::kSpaces] = 1;
  options.server[Holding::kSpaces] = 3;
  Spaces spaces(options);
  std::vector<SpaceUse> uses;
  for (int i = 0; i < 3; ++i) {
    uses.push_back(Open(spaces, std::string(kAnonymous)));
  }
  for (const char* identity : {"anonymous", "CN=me"}) {
    const absl::Status full =
        spaces.Open(WishOf(identity), NowNanos(), 0).status();
    EXPECT_EQ(Reason(full), "SPACE_QUOTA");
  }
}

TEST(SpacesTest, ListsThoseOfAnIdentityByTheirIds) {
  Spaces spaces(TestSpaces());
  std::vector<SpaceUse> uses;
  for (const char* identity : {"CN=me", "CN=you", "CN=me", "CN=me"}) {
    uses.push_back(Open(spaces, identity));
  }
  const auto share = uses[2]->account().Take(Holding::kTensors, 7);
  std::vector<uint64_t> ids;
  for (const auto& space : spaces.Of("CN=me")) ids.push_back(space->id());
  EXPECT_THAT(ids, ElementsAre(1, 3, 4));
  EXPECT_TRUE(spaces.Of("CN=nobody").empty());
  EXPECT_EQ(spaces.HeldBy("CN=me")[Holding::kSpaces], 3u);
  EXPECT_EQ(spaces.HeldBy("CN=me")[Holding::kTensors], 7u);
  EXPECT_EQ(spaces.HeldBy("CN=you")[Holding::kTensors], 0u);
  EXPECT_EQ(spaces.HeldBy("CN=nobody")[Holding::kSpaces], 0u);
  EXPECT_EQ(spaces.held()[Holding::kSpaces], 4u);
}

TEST(SpacesTest, ClosedWhileItIsUsedItStaysForWhoUsesIt) {
  Spaces spaces(TestSpaces());
  const SpaceUse use = Open(spaces);
  auto other = spaces.Find(TokenOf(use), "CN=me", NowNanos());
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_TRUE(spaces.Close(*use));
  EXPECT_FALSE(spaces.Close(*use)) << "it was closed before";
  EXPECT_FALSE(spaces.Find(TokenOf(use), "CN=me", NowNanos()).ok());
  EXPECT_TRUE(spaces.Of("CN=me").empty());
  EXPECT_EQ((*other)->label(), "a label");
  EXPECT_EQ(Reason((*other)->tensors().Take(1).status()), "SPACE_NOT_FOUND");
}

class SpacesEngineTest : public SpaceEngineTest {};

// Whoever ends the engine afterwards ends it under no work.
TEST_F(SpacesEngineTest, TheDestructorWaitsForWorksThatRun) {
  auto spaces = std::make_unique<Spaces>(TestSpaces());
  TestCaller caller;
  Event closed;
  {
    const SpaceUse use = Open(*spaces);
    const auto timeline = std::make_shared<Timeline>("theirs");
    ASSERT_TRUE(use->timelines().Take(1)->Fill(
        std::make_shared<KeptTimeline>(KeptTimeline{timeline, {}})));
    timeline->OnReached(1, [&](absl::Status) { closed.Set(); });
    const auto work = NewWork(use, held_);
    work->request().inputs[0] = Floats(values_);
    ASSERT_TRUE(Submit(work, caller).ok());
    hold_.WaitUntilHeld();
  }
  std::thread opener([&] {
    closed.Wait();
    hold_.Open();
  });
  spaces = nullptr;
  EXPECT_EQ(caller.ready.count(), 1u);
  opener.join();
}

}  // namespace
}  // namespace weir
