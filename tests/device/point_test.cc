#include "kernels/device/point.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/base/error_info.h"
#include "tests/base/event.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(TimelineTest, AdvanceReachesEverythingUpToTheValue) {
  Timeline timeline("t");
  EXPECT_EQ(timeline.Outcome(0), absl::OkStatus());
  EXPECT_EQ(timeline.Outcome(1), std::nullopt);
  EXPECT_TRUE(timeline.Advance(5).ok());
  EXPECT_EQ(timeline.value(), 5u);
  EXPECT_EQ(timeline.Outcome(3), absl::OkStatus());
  EXPECT_EQ(timeline.Outcome(5), absl::OkStatus());
  EXPECT_EQ(timeline.Outcome(6), std::nullopt);
}

TEST(TimelineTest, AValueThatDoesNotGrowIsRefused) {
  Timeline timeline("orders");
  EXPECT_TRUE(timeline.Advance(2).ok());
  for (const uint64_t value : {2u, 1u, 0u}) {
    for (const absl::Status& with :
         {absl::OkStatus(), absl::InternalError("")}) {
      const absl::Status status = timeline.Advance(value, with);
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_EQ(Reason(status), "TIMELINE_NOT_INCREASING");
      EXPECT_THAT(std::string(status.message()), HasSubstr("orders"));
    }
  }
  EXPECT_EQ(timeline.Outcome(2), absl::OkStatus());
}

TEST(TimelineTest, AFailedValueLeavesTheOthersAlone) {
  Timeline timeline("t");
  EXPECT_TRUE(timeline.Advance(1).ok());
  EXPECT_TRUE(timeline.Advance(2, absl::InternalError("broken")).ok());
  EXPECT_TRUE(timeline.Advance(3).ok());
  EXPECT_EQ(timeline.Outcome(1), absl::OkStatus());
  EXPECT_EQ(timeline.Outcome(2), absl::InternalError("broken"));
  EXPECT_EQ(timeline.Outcome(3), absl::OkStatus());
  EXPECT_EQ(timeline.Outcome(4), std::nullopt);
}

TEST(TimelineTest, OldFailuresAreForgottenNotInvented) {
  Timeline timeline("t");
  for (uint64_t value = 1; value <= 1025; ++value) {
    EXPECT_TRUE(timeline.Advance(value, absl::InternalError("x")).ok());
  }
  EXPECT_EQ(timeline.Outcome(1)->code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(timeline.Outcome(2)->code(), absl::StatusCode::kInternal);
  EXPECT_EQ(timeline.Outcome(1025)->code(), absl::StatusCode::kInternal);
}

// However few they are, they hold no more text than this.
TEST(TimelineTest, FailuresAreForgottenForTheirTextToo) {
  constexpr uint64_t kValues = 100;
  const std::string text(100'000, 'x');
  Timeline timeline("context 1");
  for (uint64_t value = 1; value <= kValues; ++value) {
    ASSERT_TRUE(timeline.Advance(value, absl::InternalError(text)).ok());
  }
  EXPECT_LE(timeline.failures(), (size_t{1} << 20) / text.size());
  EXPECT_GE(timeline.failures(), 9u);
  EXPECT_TRUE(absl::IsInternal(*timeline.Outcome(kValues)));
  EXPECT_TRUE(absl::IsDataLoss(*timeline.Outcome(1)));
  // The newest stays, however long it is.
  const std::string longest(3 << 20, 'y');
  ASSERT_TRUE(timeline.Advance(kValues + 1, absl::InternalError(longest)).ok());
  EXPECT_EQ(timeline.failures(), 1u);
  EXPECT_TRUE(absl::IsInternal(*timeline.Outcome(kValues + 1)));
  ASSERT_TRUE(timeline.Advance(kValues + 2, absl::InternalError("z")).ok());
  EXPECT_EQ(timeline.failures(), 1u);
}

TEST(TimelineTest, WhatIsHeldIsNotForgotten) {
  const auto timeline = std::make_shared<Timeline>("t");
  const auto broken = absl::InternalError("broken");
  ASSERT_TRUE(timeline->Advance(1).ok());
  HeldPoint good(Point{timeline, 1});
  const HeldPoint pending(Point{timeline, 2});
  const HeldPoint bad(Point{timeline, 4});
  ASSERT_TRUE(timeline->Advance(2).ok());
  ASSERT_TRUE(timeline->Advance(3).ok());
  ASSERT_TRUE(timeline->Advance(4, broken).ok());
  for (uint64_t value = 5; value < 5 + 1024; ++value) {
    ASSERT_TRUE(timeline->Advance(value, absl::AbortedError("x")).ok());
  }
  const HeldPoint moved = std::move(good);
  EXPECT_EQ(moved->Outcome(), absl::OkStatus());
  EXPECT_EQ(pending->Outcome(), absl::OkStatus());
  EXPECT_EQ(bad->Outcome(), broken);
  EXPECT_EQ(timeline->Outcome(3)->code(), absl::StatusCode::kDataLoss);
  // To hold it now brings nothing back.
  const HeldPoint late(Point{timeline, 3});
  EXPECT_EQ(late->Outcome()->code(), absl::StatusCode::kDataLoss);
  {
    const HeldPoint again(Point{timeline, 4});
    EXPECT_EQ(again->Outcome(), broken);
  }
  EXPECT_EQ(bad->Outcome(), broken) << "one of two holders left";
}

TEST(TimelineTest, FailTakesAllThatIsNotReached) {
  Timeline timeline("t");
  EXPECT_TRUE(timeline.Advance(2).ok());
  timeline.Fail(absl::UnavailableError("first"));
  timeline.Fail(absl::InternalError("second"));
  EXPECT_EQ(timeline.Outcome(2), absl::OkStatus());
  EXPECT_EQ(timeline.Outcome(3), absl::UnavailableError("first"));
  EXPECT_EQ(timeline.Advance(3), absl::UnavailableError("first"));
  EXPECT_EQ(timeline.Advance(4, absl::InternalError("x")),
            absl::UnavailableError("first"));
  EXPECT_EQ(timeline.Outcome(4), absl::UnavailableError("first"));
  EXPECT_EQ(timeline.value(), 2u);
}

TEST(TimelineTest, ContinuationsRunOnceWithTheirOutcome) {
  Timeline timeline("t");
  std::vector<int> ran;
  auto note = [&ran](int i) {
    return [&ran, i](absl::Status s) { ran.push_back(s.ok() ? i : -i); };
  };
  EXPECT_NE(timeline.OnReached(1, note(1)), 0u);
  EXPECT_NE(timeline.OnReached(2, note(2)), 0u);
  EXPECT_NE(timeline.OnReached(3, note(3)), 0u);
  EXPECT_NE(timeline.OnReached(9, note(9)), 0u);
  EXPECT_TRUE(timeline.Advance(1).ok());
  EXPECT_THAT(ran, ElementsAre(1));
  EXPECT_TRUE(timeline.Advance(3, absl::InternalError("")).ok());
  EXPECT_THAT(ran, ElementsAre(1, 2, -3));
  EXPECT_EQ(timeline.OnReached(3, note(30)), 0u);  // inline
  EXPECT_THAT(ran, ElementsAre(1, 2, -3, -30));
  timeline.Fail(absl::InternalError(""));
  EXPECT_THAT(ran, ElementsAre(1, 2, -3, -30, -9));
}

// Timelines only compare devices.
const Device* const kDevice = reinterpret_cast<const Device*>(&kDevice);
const Device* const kOther = reinterpret_cast<const Device*>(&kOther);

TEST(TimelineTest, LaunchedFiresWhenLaunchedReachedOrFailed) {
  Timeline timeline("t", kDevice);
  std::vector<int> ran;
  auto launched = [&](uint64_t value, int mark) {
    timeline.OnLaunched(value, kDevice, [&ran, mark](absl::Status s) {
      ran.push_back(s.ok() ? mark : -mark);
    });
  };
  launched(1, 1);
  launched(2, 2);
  launched(3, 3);
  timeline.OnReached(1, [&](absl::Status) { ran.push_back(10); });
  timeline.SetLaunched(1);
  EXPECT_THAT(ran, ElementsAre(1));
  timeline.SetLaunched(0);
  EXPECT_EQ(timeline.launched(), 1u);
  EXPECT_TRUE(timeline.Advance(2).ok());
  EXPECT_THAT(ran, ElementsAre(1, 2, 10));
  timeline.Fail(absl::InternalError(""));
  EXPECT_THAT(ran, ElementsAre(1, 2, 10, -3));
}

TEST(TimelineTest, TheBeginningIsReachedWhateverFails) {
  Timeline one("one", kDevice), whole("whole", kDevice);
  EXPECT_TRUE(one.Advance(1, absl::InternalError("x")).ok());
  whole.Fail(absl::InternalError("x"));
  for (Timeline* timeline : {&one, &whole}) {
    EXPECT_EQ(timeline->Outcome(0), absl::OkStatus()) << timeline->name();
    std::vector<absl::Status> told;
    const auto tell = [&](const absl::Status& status) {
      told.push_back(status);
    };
    timeline->OnReached(0, tell);
    timeline->OnLaunched(0, kDevice, tell);
    EXPECT_THAT(told, ElementsAre(absl::OkStatus(), absl::OkStatus()))
        << timeline->name();
  }
}

TEST(TimelineTest, ADeviceWaitsForWhatBacksAValue) {
  auto stream = std::make_shared<Timeline>("stream", kDevice);
  auto context = std::make_shared<Timeline>("context");
  const Point third{context, 3}, at{stream, 7};
  EXPECT_TRUE(third.OnDevice(kDevice).is_null());
  context->Back(3, at);
  EXPECT_TRUE(third.OnDevice(kDevice).is_null());  // not launched yet
  stream->SetLaunched(7);
  EXPECT_EQ(third.OnDevice(kDevice), at);
  EXPECT_EQ(at.OnDevice(kDevice), at);
  EXPECT_TRUE(at.OnDevice(kOther).is_null());
  EXPECT_TRUE(third.OnDevice(kOther).is_null());
  EXPECT_TRUE(third.OnDevice(nullptr).is_null());
  // Exactly that value: another one has an outcome of its own.
  EXPECT_TRUE((Point{context, 2}.OnDevice(kDevice).is_null()));
  ASSERT_TRUE(context->Advance(3).ok());
  EXPECT_TRUE(third.OnDevice(kDevice).is_null());  // nothing to wait for
}

TEST(TimelineTest, WhoWaitsForALaunchIsToldWhenWhatBacksItIsLaunched) {
  auto stream = std::make_shared<Timeline>("stream", kDevice);
  auto context = std::make_shared<Timeline>("context");
  int early = 0, late = 0, other = 0, third = 0;
  const auto count = [](int* times) {
    return [times](absl::Status status) { *times += status.ok() ? 1 : 100; };
  };
  context->OnLaunched(2, kDevice, count(&early));
  const auto elsewhere = context->OnLaunched(2, kOther, count(&other));
  context->OnLaunched(3, kDevice, count(&third));
  context->Back(2, {stream, 1});
  context->OnLaunched(2, kDevice, count(&late));
  EXPECT_EQ(early + late, 0);
  stream->SetLaunched(1);
  EXPECT_EQ(early, 1);
  EXPECT_EQ(late, 1);
  EXPECT_EQ(other + third, 0);
  EXPECT_TRUE(context->CancelWait(elsewhere));
  ASSERT_TRUE(context->Advance(3, absl::InternalError("broken")).ok());
  EXPECT_EQ(third, 100);
  EXPECT_EQ(early + late, 2);
  EXPECT_EQ(other, 0);
}

TEST(TimelineTest, ManyValuesAreBackedAndForgottenWhenReached) {
  auto stream = std::make_shared<Timeline>("stream", kDevice);
  auto context = std::make_shared<Timeline>("context");
  stream->SetLaunched(100);
  for (const uint64_t value : {4u, 2u, 3u, 1u, 4u}) {
    context->Back(value, {stream, value + 10});
  }
  for (const uint64_t value : {1u, 2u, 3u, 4u}) {
    EXPECT_EQ((Point{context, value}.OnDevice(kDevice).value), value + 10);
  }
  ASSERT_TRUE(context->Advance(2).ok());
  context->Back(2, {stream, 50});  // too late
  context->Back(5, {stream, 15});
  EXPECT_TRUE((Point{context, 2}.OnDevice(kDevice).is_null()));
  EXPECT_EQ((Point{context, 3}.OnDevice(kDevice).value), 13u);
  EXPECT_EQ((Point{context, 5}.OnDevice(kDevice).value), 15u);
  const long holders = stream.use_count();
  ASSERT_TRUE(context->Advance(5).ok());
  context->Back(6, {stream, 16});
  EXPECT_LT(stream.use_count(), holders);
}

TEST(TimelineTest, AFailureMayBeKnownAhead) {
  auto timeline = std::make_shared<Timeline>("t");
  std::vector<absl::Status> told;
  const auto note = [&](absl::Status status) { told.push_back(status); };
  timeline->OnReached(5, note);
  timeline->OnLaunched(5, kDevice, note);
  timeline->OnReached(4, note);
  timeline->OnReached(6, note);
  timeline->FailAhead(5, absl::DataLossError("fifth"));
  EXPECT_THAT(told, ElementsAre(absl::DataLossError("fifth"),
                                absl::DataLossError("fifth")));
  EXPECT_EQ(timeline->value(), 0u);
  EXPECT_EQ(timeline->Outcome(5), absl::DataLossError("fifth"));
  EXPECT_EQ(timeline->Outcome(4), std::nullopt);
  ASSERT_TRUE(timeline->Advance(4).ok());
  ASSERT_TRUE(timeline->Advance(5, absl::DataLossError("fifth")).ok());
  ASSERT_TRUE(timeline->Advance(6).ok());
  EXPECT_EQ(told.size(), 4u);
  EXPECT_EQ(timeline->Outcome(4), absl::OkStatus());
  EXPECT_EQ(timeline->Outcome(5), absl::DataLossError("fifth"));
  timeline->FailAhead(6, absl::InternalError("too late"));
  EXPECT_EQ(timeline->Outcome(6), absl::OkStatus());
}

// However many are ahead, what is reached well is good.
TEST(TimelineTest, FailuresAheadDoNotSpoilWhatIsReached) {
  Timeline timeline("t");
  for (uint64_t value = 2; value < 2000; ++value) {
    timeline.FailAhead(value, absl::InternalError("ahead"));
  }
  ASSERT_TRUE(timeline.Advance(1, absl::DataLossError("first")).ok());
  EXPECT_EQ(timeline.Outcome(1), absl::DataLossError("first"));
  EXPECT_EQ(timeline.Outcome(3), absl::InternalError("ahead"));
  EXPECT_EQ(timeline.failures(), 1999u);
  for (uint64_t value = 2; value < 2000; ++value) {
    ASSERT_TRUE(timeline.Advance(value, absl::InternalError("ahead")).ok());
  }
  EXPECT_EQ(timeline.failures(), 1024u) << "no more are kept once reached";
  ASSERT_TRUE(timeline.Advance(2000).ok());
  EXPECT_EQ(timeline.Outcome(1999), absl::InternalError("ahead"));
  EXPECT_EQ(timeline.Outcome(2000), absl::OkStatus());
}

TEST(TimelineTest, NothingBacksAFailedTimeline) {
  auto stream = std::make_shared<Timeline>("stream", kDevice);
  stream->SetLaunched(100);
  Timeline context("context");
  const long holders = stream.use_count();
  context.Back(1, {stream, 1});
  EXPECT_GT(stream.use_count(), holders);
  context.Fail(absl::InternalError("broken"));
  for (uint64_t value = 1; value < 100; ++value) {
    context.Back(value, {stream, value});
  }
  EXPECT_EQ(stream.use_count(), holders);
  EXPECT_TRUE(context.Backing(1, kDevice).is_null());
}

TEST(TimelineTest, CancelledContinuationsNeverRun) {
  Timeline timeline("t");
  const auto id = timeline.OnReached(1, [](absl::Status) { FAIL(); });
  const auto launch =
      timeline.OnLaunched(1, kDevice, [](absl::Status) { FAIL(); });
  EXPECT_TRUE(timeline.CancelWait(id));
  EXPECT_FALSE(timeline.CancelWait(id));
  EXPECT_TRUE(timeline.CancelWait(launch));
  EXPECT_FALSE(timeline.CancelWait(0));
  EXPECT_TRUE(timeline.Advance(1).ok());
}

TEST(TimelineTest, TheEndOfATimelineCancelsItsWaiters) {
  absl::Status reached, launched;
  {
    Timeline timeline("gone");
    timeline.OnReached(1, [&](absl::Status s) { reached = s; });
    timeline.OnLaunched(1, kDevice, [&](absl::Status s) { launched = s; });
  }
  EXPECT_EQ(reached.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(launched.code(), absl::StatusCode::kCancelled);
}

TEST(TimelineTest, AContinuationMayUseOrDropTheTimeline) {
  auto timeline = std::make_shared<Timeline>("t");
  Timeline* const raw = timeline.get();
  bool nested = false;
  raw->OnReached(1, [&](absl::Status) {
    raw->OnReached(1, [&](absl::Status) { nested = true; });
    timeline.reset();
  });
  EXPECT_TRUE(raw->Advance(1).ok());
  EXPECT_TRUE(nested);
  EXPECT_EQ(timeline, nullptr);
}

// -- Who is to be told that somebody waits ------------------------------------

TEST(TimelineWantedTest, ToldOnceByTheFirstWhoWaits) {
  int told = 0, woken = 0;
  Timeline timeline("t");
  const auto wait = [&](uint64_t value) {
    return timeline.OnReached(value, [&](const absl::Status&) { ++woken; });
  };
  timeline.OnWanted(5, [&] { ++told; });
  EXPECT_EQ(timeline.Outcome(5), std::nullopt);
  EXPECT_EQ(told, 0) << "who asks does not wait";
  wait(6);
  EXPECT_EQ(told, 0) << "that is beyond it";
  wait(3);
  EXPECT_EQ(told, 1);
  wait(5);
  timeline.Want(5);
  EXPECT_EQ(told, 1);
  ASSERT_TRUE(timeline.Advance(5).ok());
  EXPECT_EQ(woken, 2);
}

TEST(TimelineWantedTest, TheLeastThatIsEnoughIsTold) {
  Timeline timeline("t");
  std::vector<uint64_t> told;
  for (const uint64_t value : {9u, 4u, 6u}) {
    timeline.OnWanted(value, [&told, value] { told.push_back(value); });
  }
  timeline.Want(5);
  timeline.Want(6);
  EXPECT_EQ(told, std::vector<uint64_t>({6}));
  timeline.OnReached(1, [](const absl::Status&) {});
  timeline.OnReached(2, [](const absl::Status&) {});
  EXPECT_EQ(told, std::vector<uint64_t>({6, 4}));
}

TEST(TimelineWantedTest, ToldAtOnceIfSomebodyWaits) {
  Timeline timeline("t");
  int told = 0;
  const Timeline::WaitId wait =
      timeline.OnReached(2, [](const absl::Status&) {});
  timeline.OnWanted(1, [&] { ++told; });
  EXPECT_EQ(told, 0);
  timeline.OnWanted(2, [&] { ++told; });
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(timeline.CancelWait(wait));
  timeline.OnWanted(3, [&] { ++told; });
  EXPECT_EQ(told, 1);
}

TEST(TimelineWantedTest, ToldByWhoWaitsForALaunch) {
  Timeline timeline("t");
  int told = 0;
  timeline.OnWanted(1, [&] { ++told; });
  timeline.OnLaunched(1, kDevice, [](const absl::Status&) {});
  EXPECT_EQ(told, 1);
}

// It keeps what it holds no longer than until the value is over.
TEST(TimelineWantedTest, GoesUntoldWithItsValue) {
  for (const int how : {0, 1, 2, 3}) {
    SCOPED_TRACE(how);
    std::optional<Timeline> timeline(std::in_place, "t");
    const auto held = std::make_shared<int>();
    timeline->OnWanted(1, [held] { ++*held; });
    EXPECT_EQ(held.use_count(), 2);
    if (how == 0) {
      ASSERT_TRUE(timeline->Advance(1).ok());
    }
    if (how == 1) {
      ASSERT_TRUE(timeline->Advance(1, absl::DataLossError("broken")).ok());
    }
    if (how == 2) timeline->Fail(absl::DataLossError("broken"));
    if (how == 3) timeline.reset();
    EXPECT_EQ(held.use_count(), 1);
    EXPECT_EQ(*held, 0);
    if (how == 3) continue;
    timeline->OnWanted(1, [held] { ++*held; });
    EXPECT_EQ(held.use_count(), 1) << "it is over already";
  }
}

TEST(PointTest, TheNullPointWasAlwaysReached) {
  EXPECT_TRUE(Point().is_null());
  EXPECT_EQ(Point().Outcome(), absl::OkStatus());
  auto timeline = std::make_shared<Timeline>("t");
  const Point point{timeline, 1};
  EXPECT_EQ(point.Outcome(), std::nullopt);
  EXPECT_EQ(point, (Point{timeline, 1}));
  EXPECT_FALSE(point == Point());
}

// Waiters, cancellations and advances race; every continuation that was not
// cancelled runs exactly once, never before its value.
TEST(TimelineStressTest, EveryWaitEndsExactlyOnce) {
  constexpr uint64_t kValues = 20000;
  constexpr int kThreads = 3;
  Timeline timeline("t");
  std::atomic<uint64_t> ran{0}, cancelled{0}, early{0}, waits{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 1; i <= kValues; ++i) {
        const uint64_t value = std::min(kValues, timeline.value() + i % 7);
        ++waits;
        const auto id = timeline.OnReached(value, [&, value](absl::Status s) {
          if (!s.ok() || timeline.value() < value) ++early;
          ++ran;
        });
        if (static_cast<int>(i % 5) == t && timeline.CancelWait(id)) {
          ++cancelled;
        }
      }
    });
  }
  for (uint64_t value = 1; value <= kValues; ++value) {
    EXPECT_TRUE(timeline.Advance(value).ok());
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(early, 0u);
  EXPECT_EQ(ran + cancelled, waits);
}

// An advance that races with Fail is either wholly before or wholly after it.
TEST(TimelineStressTest, FailAndAdvanceAgree) {
  for (int round = 0; round < 4000; ++round) {
    Timeline timeline("t");
    std::atomic<int> ok{0}, failed{0};
    timeline.OnReached(1, [&](absl::Status s) { ++(s.ok() ? ok : failed); });
    absl::Status advanced;
    std::thread other([&] { timeline.Fail(absl::InternalError("x")); });
    advanced = timeline.Advance(1);
    const auto seen = timeline.Outcome(1);
    other.join();
    ASSERT_EQ(ok + failed, 1);
    ASSERT_EQ(timeline.Outcome(1)->ok(), ok == 1);
    ASSERT_EQ(advanced.ok(), ok == 1);
    ASSERT_EQ(seen->ok(), ok == 1);
    ASSERT_FALSE(timeline.Outcome(2)->ok());
  }
}

}  // namespace
}  // namespace weir
