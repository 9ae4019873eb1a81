// The set by itself: works that no context has accepted, on an executor that
// the test drives.
#include "kernels/eval/deferred_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "kernels/base/clock.h"
#include "tests/eval/eval_fixture.h"
#include "tests/eval/hand_executor.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using enum absl::StatusCode;

constexpr Nanos kHour = Nanos{3600} * 1'000'000'000;

class DeferredSetTest : public ::testing::Test {
 protected:
  using Works = DeferredSet::Works;

  static std::shared_ptr<Work> NewWork(Nanos deadline = kNoDeadline) {
    auto work = std::make_shared<Work>();
    work->request.deadline = deadline;
    return work;
  }
  std::shared_ptr<Work> Add(Nanos deadline = kNoDeadline) {
    std::shared_ptr<Work> work = NewWork(deadline);
    set_->Add(work);
    return work;
  }
  void CancelAndSweep(const std::shared_ptr<Work>& work) {
    work->Cancel();
    set_->Sweep();
  }
  static std::vector<uint64_t> Numbers(const Works& works) {
    std::vector<uint64_t> numbers;
    for (const auto& work : works) {
      numbers.push_back(DeferredSet::Number(*work));
    }
    return numbers;
  }

  HandExecutor executor_;
  TimerQueue timers_;
  std::vector<std::pair<const Work*, absl::StatusCode>> given_up_;
  const std::shared_ptr<DeferredSet> set_ = DeferredSet::Create(
      &executor_, &timers_, [this](Work& work, const absl::Status& why) {
        given_up_.emplace_back(&work, why.code());
      });
};

TEST_F(DeferredSetTest, GivesWorksInTheOrderThatTheyCame) {
  const auto a = Add(), b = Add();
  EXPECT_EQ(set_->size(), 2u);
  EXPECT_THAT(set_->TakeAll(), ElementsAre(a, b));
  EXPECT_EQ(set_->size(), 0u);
  EXPECT_THAT(set_->TakeAll(), IsEmpty());
  EXPECT_EQ(executor_.RunAll(), 0u);
}

TEST_F(DeferredSetTest, OneThatIsUnwantedWhenItComesIsGivenUpOnTheExecutor) {
  const auto stays = Add(), cancelled = NewWork();
  cancelled->Cancel();
  set_->Add(cancelled);
  const auto late = Add(NowNanos());
  EXPECT_EQ(timers_.pending(), 0u);
  EXPECT_THAT(given_up_, IsEmpty());
  EXPECT_EQ(executor_.RunAll(), 1u);
  EXPECT_THAT(given_up_, ElementsAre(Pair(cancelled.get(), kCancelled),
                                     Pair(late.get(), kDeadlineExceeded)));
  EXPECT_THAT(set_->TakeAll(), ElementsAre(stays));
}

TEST_F(DeferredSetTest, OneThatIsCancelledIsGivenUpAndTheOthersStay) {
  const auto a = Add(), b = Add(), c = Add();
  b->Cancel();
  EXPECT_EQ(executor_.RunAll(), 0u) << "the set is told of it";
  set_->Sweep();
  set_->Sweep();
  EXPECT_EQ(executor_.RunAll(), 1u);
  EXPECT_THAT(given_up_, ElementsAre(Pair(b.get(), kCancelled)));
  CancelAndSweep(a);
  EXPECT_EQ(executor_.RunAll(), 1u);
  EXPECT_THAT(given_up_, ElementsAre(Pair(b.get(), kCancelled),
                                     Pair(a.get(), kCancelled)));
  EXPECT_THAT(set_->TakeAll(), ElementsAre(c));
  set_->Sweep();
  EXPECT_EQ(executor_.RunAll(), 0u) << "there is nothing to look at";
}

TEST_F(DeferredSetTest, WhatIsTakenOutIsNotGivenUp) {
  const auto work = Add();
  CancelAndSweep(work);
  EXPECT_THAT(set_->TakeAll(), ElementsAre(work));
  EXPECT_EQ(executor_.RunAll(), 1u);
  EXPECT_THAT(given_up_, IsEmpty());
}

// As an executor may once no work is left.
TEST_F(DeferredSetTest, WhatTheExecutorDroppedKeepsNothingFromBeingGivenUp) {
  const auto taken = Add();
  CancelAndSweep(taken);
  EXPECT_THAT(set_->TakeAll(), ElementsAre(taken));
  executor_.DropAll();
  const auto cancelled = Add(), stays = Add();
  CancelAndSweep(cancelled);
  const auto late = Add(NowNanos());
  EXPECT_EQ(executor_.RunAll(), 1u);
  EXPECT_THAT(given_up_, ElementsAre(Pair(cancelled.get(), kCancelled),
                                     Pair(late.get(), kDeadlineExceeded)));
  EXPECT_THAT(set_->TakeAll(), ElementsAre(stays));
}

// One that is being ended may ask the set.
TEST_F(DeferredSetTest, GivesUpUnderNoLock) {
  std::vector<size_t> sizes;
  std::shared_ptr<DeferredSet> set;
  set = DeferredSet::Create(
      &executor_, &timers_,
      [&](Work&, const absl::Status&) { sizes.push_back(set->size()); });
  const auto stays = NewWork(), goes = NewWork();
  set->Add(stays);
  set->Add(goes);
  goes->Cancel();
  set->Sweep();
  executor_.RunAll();
  EXPECT_THAT(sizes, ElementsAre(1u));
}

TEST_F(DeferredSetTest, ATimerIsSetWhileAWorkWithADeadlineIsThere) {
  const Nanos in_an_hour = NowNanos() + kHour;
  Add();
  EXPECT_EQ(timers_.pending(), 0u);
  Add(in_an_hour);
  Add(in_an_hour + kHour);
  EXPECT_EQ(timers_.pending(), 1u);
  set_->TakeAll();
  EXPECT_EQ(timers_.pending(), 0u);
  const auto cancelled = Add(in_an_hour);
  EXPECT_EQ(timers_.pending(), 1u);
  CancelAndSweep(cancelled);
  executor_.RunAll();
  EXPECT_EQ(timers_.pending(), 0u);
}

TEST_F(DeferredSetTest, OneWhoseDeadlinePassesIsGivenUp) {
  const auto later = Add(NowNanos() + kHour);
  const auto soon = Add(NowNanos() + 1'000'000);
  executor_.posted.Wait();
  EXPECT_EQ(executor_.RunAll(), 1u);
  EXPECT_THAT(given_up_, ElementsAre(Pair(soon.get(), kDeadlineExceeded)));
  EXPECT_EQ(timers_.pending(), 1u) << "for the later one";
  EXPECT_THAT(set_->TakeAll(), ElementsAre(later));
  EXPECT_EQ(timers_.pending(), 0u);
}

// -- Those that somebody waits for ------------------------------------------

class Wanted : public DeferredSetTest {
 protected:
  void Want(uint64_t number) {
    set_->Want(number, [this] { runs_.push_back(set_->TakeWanted()); });
  }

  std::vector<Works> runs_;
};

TEST_F(Wanted, IsTakenOnTheExecutorWithAllThatCameBeforeIt) {
  const auto a = Add(), b = Add(), c = Add();
  Want(2);
  EXPECT_THAT(runs_, IsEmpty());
  EXPECT_EQ(executor_.RunAll(), 1u);
  EXPECT_THAT(runs_, ElementsAre(ElementsAre(a, b)));
  EXPECT_THAT(set_->TakeAll(), ElementsAre(c));
}

TEST_F(Wanted, SeveralAreTakenAtOnce) {
  const auto a = Add(), b = Add(), c = Add();
  Want(1);
  Want(3);
  Want(2);
  EXPECT_EQ(executor_.RunAll(), 1u);
  EXPECT_THAT(runs_, ElementsAre(ElementsAre(a, b, c)));
}

TEST_F(Wanted, OneThatWasTakenIsWantedNoMore) {
  const auto a = Add(), b = Add();
  Want(1);
  set_->TakeAll();
  Want(2);
  const auto c = Add();
  EXPECT_EQ(executor_.RunAll(), 1u);
  EXPECT_THAT(runs_, ElementsAre(IsEmpty()));
  Want(3);
  EXPECT_EQ(executor_.RunAll(), 1u);
  EXPECT_THAT(runs_.back(), ElementsAre(c));
}

TEST_F(Wanted, OneThatIsGivenUpKeepsNoOtherFromBeingTaken) {
  const auto a = Add(), b = Add(), c = Add();
  Want(2);
  CancelAndSweep(b);
  EXPECT_EQ(executor_.RunAll(), 2u);
  EXPECT_THAT(runs_, ElementsAre(ElementsAre(a, b)));
  Want(3);
  EXPECT_EQ(executor_.RunAll(), 1u);
  EXPECT_THAT(runs_.back(), ElementsAre(c));
}

// -- Those that nobody reads --------------------------------------------------

class Unread : public DeferredSetTest {
 protected:
  // Held by the set alone.
  const Work* AddAlone() {
    std::shared_ptr<Work> work = NewWork();
    const Work* const raw = work.get();
    set_->Add(std::move(work));
    return raw;
  }
};

TEST_F(Unread, AreTakenFromTheLastOn) {
  const Work* const first = AddAlone();
  const auto held = Add();
  const Work* const last = AddAlone();
  EXPECT_EQ(set_->TakeUnread(UINT64_MAX).get(), last);
  EXPECT_EQ(set_->TakeUnread(3).get(), first);
  EXPECT_EQ(set_->TakeUnread(1), nullptr);
  EXPECT_THAT(set_->TakeAll(), ElementsAre(held));
  EXPECT_EQ(set_->TakeUnread(UINT64_MAX), nullptr);
}

TEST_F(Unread, OnlyThoseBelowAreLookedAt) {
  AddAlone();
  AddAlone();
  EXPECT_EQ(DeferredSet::Number(*set_->TakeUnread(2)), 1u);
  EXPECT_EQ(set_->size(), 1u);
}

TEST_F(Unread, OneThatIsWaitedForIsNot) {
  AddAlone();
  AddAlone();
  AddAlone();
  set_->Want(2, [] {});
  set_->Want(1, [] {});
  EXPECT_EQ(DeferredSet::Number(*set_->TakeUnread(UINT64_MAX)), 3u);
  EXPECT_EQ(set_->TakeUnread(UINT64_MAX), nullptr);
  EXPECT_THAT(Numbers(set_->TakeAll()), ElementsAre(1, 2));
}

TEST_F(Unread, OneThatSignalsIsNot) {
  auto signals = NewWork();
  signals->request.signal = {{std::make_shared<Timeline>("told"), 1}};
  set_->Add(std::move(signals));
  EXPECT_EQ(set_->TakeUnread(UINT64_MAX), nullptr);
}

TEST_F(Unread, TheTimerGoesWithTheLastWork) {
  set_->Add(NewWork(NowNanos() + kHour));
  EXPECT_EQ(timers_.pending(), 1u);
  EXPECT_NE(set_->TakeUnread(UINT64_MAX), nullptr);
  EXPECT_EQ(timers_.pending(), 0u);
}

// What a use takes depends on the context that it is of.
class TakeBefore : public DeferredSetTest {
 protected:
  void SetUp() override {
    auto device = MakeDevice("cpu", {.cpu_threads = 1}, *registry_);
    ASSERT_TRUE(device.ok()) << device.status();
    auto engine = Engine::Create(*std::move(device), registry_.get(), {});
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    here_ = EvalContext::Create(engine_.get(), {});
  }

  // A work that is done once `gate_` is opened.
  void SubmitBehindGate(Activation& activation, WatchedWork& watched) {
    auto program =
        Program::Compile(MakeGraph("Neg", 1), engine_->device(), *registry_);
    ASSERT_TRUE(program.ok()) << program.status();
    watched.request().program = *program;
    watched.request().inputs = {Floats(one_)};
    watched.request().after = {Point{gate_, 1}};
    activation.Submit(watched.work.get(), &watched.waiter);
  }
  static void Read(Work& work, std::shared_ptr<Work> producer) {
    work.request.inputs.emplace_back().producer = std::move(producer);
  }
  static std::shared_ptr<Timeline> NewTimeline() {
    return std::make_shared<Timeline>("a timeline");
  }
  Works Take(const Work& use) { return set_->TakeBefore(use, *here_); }

  const std::vector<float> one_ = {1};  // lies until the work has run
  const std::unique_ptr<OpRegistry> registry_ =
      MakeOpRegistry({.test_operators = true});
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<EvalContext> here_;
  const std::shared_ptr<Timeline> gate_ = NewTimeline();
};

TEST_F(TakeBefore, TakesNothingForWhatNeedsNothing) {
  Add();
  Work use;
  EXPECT_THAT(Take(use), IsEmpty());
  EXPECT_EQ(set_->size(), 1u);
}

TEST_F(TakeBefore, TakesWhatIsReadAndAllThatCameBeforeIt) {
  const auto a = Add(), read = Add(), behind = Add();
  Work use;
  Read(use, read);
  EXPECT_THAT(Take(use), ElementsAre(a, read));
  EXPECT_THAT(set_->TakeAll(), ElementsAre(behind));
}

TEST_F(TakeBefore, TakesWhatSignalsThePointThatTheUseComesAfter) {
  const auto told = NewTimeline();
  for (const uint64_t wanted : {1u, 2u, 3u}) {
    SCOPED_TRACE(wanted);
    const auto signals = NewWork();
    signals->request.signal = {{told, 2}};
    set_->Add(signals);
    const auto behind = Add();
    Work use;
    use.request.after = {Point{told, wanted}};
    if (wanted <= 2) {
      EXPECT_THAT(Take(use), ElementsAre(signals));
      EXPECT_THAT(set_->TakeAll(), ElementsAre(behind));
    } else {
      EXPECT_THAT(Take(use), ElementsAre(signals, behind))
          << "somebody else may signal that, after one of these";
    }
  }
}

TEST_F(TakeBefore, TakesAllForOneThatMayWaitElsewhereForAPoint) {
  const auto a = Add(), b = Add();
  Work use;
  use.request.after = {Point{NewTimeline(), 1}};
  EXPECT_THAT(Take(use), ElementsAre(a, b));
}

TEST_F(TakeBefore, TakesAllForOneThatMayWaitElsewhereForAProducer) {
  const auto a = Add(), b = Add();
  Work use;
  Read(use, NewWork());  // of no context yet: deferred in another one
  EXPECT_THAT(Take(use), ElementsAre(a, b));
}

TEST_F(TakeBefore, LeavesWhatWaitsForTheUseAndWhatComesBehindThat) {
  const auto told = NewTimeline();
  const auto a = Add(), waits = NewWork();
  waits->request.after = {Point{told, 1}};
  set_->Add(waits);
  const auto behind = Add();
  Work use;
  use.request.after = {Point{NewTimeline(), 1}};
  use.request.signal = {{told, 1}};
  EXPECT_THAT(Take(use), ElementsAre(a));
  EXPECT_THAT(set_->TakeAll(), ElementsAre(waits, behind));
}

// It is certain that neither waits for what is deferred here.
TEST_F(TakeBefore, WhatIsUnderWayHereIsNoWaitElsewhere) {
  Add();
  auto activation = here_->Enter(NewHandlerId());
  ASSERT_TRUE(activation.ok());
  WatchedWork held;
  SubmitBehindGate(*activation, held);
  Work after, reads;
  after.request.after = {held.work->point()};
  Read(reads, held.work);
  EXPECT_THAT(Take(after), IsEmpty());
  EXPECT_THAT(Take(reads), IsEmpty());
  ASSERT_TRUE(gate_->Advance(1).ok());
  EXPECT_EQ(held.Done(), absl::OkStatus());
}

TEST_F(TakeBefore, WhatIsOverElsewhereIsNoWait) {
  Add();
  auto elsewhere = EvalContext::Create(engine_.get(), {})->Enter(1);
  ASSERT_TRUE(elsewhere.ok());
  WatchedWork done;
  SubmitBehindGate(*elsewhere, done);
  ASSERT_TRUE(gate_->Advance(1).ok());
  ASSERT_EQ(done.Done(), absl::OkStatus());
  Work use;
  use.request.after = {Point{gate_, 1}, done.work->point()};
  Read(use, done.work);
  EXPECT_THAT(Take(use), IsEmpty());
}

TEST_F(TakeBefore, WhatNeverRanElsewhereIsNoWait) {
  Add();
  auto elsewhere = EvalContext::Create(engine_.get(), {})->Enter(1);
  ASSERT_TRUE(elsewhere.ok());
  WatchedWork cancelled;
  SubmitBehindGate(*elsewhere, cancelled);
  cancelled.work->Cancel();
  ASSERT_EQ(cancelled.Done().code(), kCancelled);
  Work use;
  Read(use, cancelled.work);
  EXPECT_THAT(Take(use), IsEmpty());
}

TEST_F(TakeBefore, TheTimerGoesWithTheLastWork) {
  const auto first = Add(NowNanos() + kHour), last = Add(NowNanos() + kHour);
  Work uses_first, uses_last;
  Read(uses_first, first);
  Read(uses_last, last);
  EXPECT_THAT(Take(uses_first), ElementsAre(first));
  EXPECT_EQ(timers_.pending(), 1u);
  EXPECT_THAT(Take(uses_last), ElementsAre(last));
  EXPECT_EQ(timers_.pending(), 0u);
}

TEST_F(TakeBefore, NumbersCountAllThatWereAdded) {
  const auto used = Add();
  const auto cancelled = Add();
  Work use;
  Read(use, used);
  EXPECT_THAT(Numbers(Take(use)), ElementsAre(1));
  CancelAndSweep(cancelled);
  executor_.RunAll();
  const auto third = Add(), fourth = Add();
  EXPECT_THAT(Numbers(set_->TakeAll()), ElementsAre(3, 4));
  EXPECT_EQ(set_->added(), 4u);
  const auto again = Add();
  EXPECT_THAT(Numbers(set_->TakeAll()), ElementsAre(5));
}

}  // namespace
}  // namespace weir
