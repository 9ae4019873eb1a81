// Deferred works that somebody else needs than the handler who is in their
// context: they run, once, and nobody enters for that.
#include <gmock/gmock.h>

#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/base/error_info.h"
#include "tests/base/event.h"
#include "tests/base/eventually.h"
#include "tests/eval/await_point.h"
#include "tests/eval/deferred_fixture.h"
#include "tests/eval/hand_executor.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using testing::Eventually;
using ::testing::IsEmpty;

class WantedWorks : public DeferredTest {
 protected:
  absl::Status Await(const Point& point) {
    return testing::AwaitPoint(*engine_, point);
  }

  const std::vector<float> five_ = {5};
};
WEIR_EVAL_ON_EVERY_DEVICE(WantedWorks);

TEST_P(WantedWorks, RunOnceTheirPointIsWaitedForWhoeverIsInside) {
  Activation inside = Enter(NewContext());
  Deferred first(this, "Neg", 1), wanted(this, "Neg", 1), other(this, "Abs", 1);
  first.Read(0, five_);
  wanted.Read(0, first);
  other.Read(0, five_);
  for (Deferred* work : {&first, &wanted, &other}) Defer(inside, *work);
  EXPECT_EQ(Await(wanted.work->point()), absl::OkStatus());
  EXPECT_EQ(first.Done(), absl::OkStatus());
  EXPECT_EQ(wanted.Done(), absl::OkStatus());
  EXPECT_EQ(wanted.work->report().joined_works, 2u) << "as Flush would";
  EXPECT_EQ(other.work->state(), WorkState::kNotEnqueued);
  EXPECT_THAT(Kept(inside, wanted), ElementsAre(5));
  EXPECT_THAT(Positions(inside.Flush().executed), ElementsAre(3));
  EXPECT_EQ(other.Done(), absl::OkStatus());
}

TEST_P(WantedWorks, RunForAReaderInAnotherContext) {
  Activation here = Enter(NewContext());
  Activation there = Enter(NewContext());
  Deferred wanted(this, "Neg", 1), reader(this, "Neg", 1);
  wanted.Read(0, five_);
  Defer(here, wanted);
  reader.Read(0, wanted);
  reader.request().mode = EvalMode::kSyncFull;
  there.Submit(reader.work.get(), &reader.waiter);
  EXPECT_EQ(reader.Done(), absl::OkStatus());
  EXPECT_EQ(wanted.Done(), absl::OkStatus());
  EXPECT_THAT(here.Flush().executed, IsEmpty());
}

// Each needs the one before it, in the other's context.
TEST_P(WantedWorks, RunThoughTheyNeedOneAnotherAcrossContexts) {
  Activation a = Enter(NewContext());
  Activation b = Enter(NewContext());
  std::vector<std::unique_ptr<Deferred>> chain;
  for (int i = 0; i < 6; ++i) {
    chain.push_back(std::make_unique<Deferred>(this, "Neg", 1));
    if (i == 0) {
      chain[0]->Read(0, five_);
    } else {
      chain.back()->Read(0, *chain[chain.size() - 2]);
    }
    Defer(i % 2 == 0 ? a : b, *chain.back());
  }
  EXPECT_EQ(Await(chain.back()->work->point()), absl::OkStatus());
  for (const auto& work : chain) EXPECT_EQ(work->Done(), absl::OkStatus());
  EXPECT_THAT(Kept(b, *chain.back()), ElementsAre(5));
}

TEST_P(WantedWorks, RunForWhoWaitsForWhatTheySignal) {
  Activation inside = Enter(NewContext());
  auto told = std::make_shared<Timeline>("told");
  Deferred five(this, "Neg", 1), nine(this, "Neg", 1);
  five.request().signal = {{told, 5}};
  nine.request().signal = {{told, 9}};
  for (Deferred* work : {&five, &nine}) {
    work->Read(0, five_);
    Defer(inside, *work);
  }
  EXPECT_EQ(Await({told, 3}), absl::OkStatus()) << "a greater value is enough";
  EXPECT_EQ(five.Done(), absl::OkStatus());
  EXPECT_EQ(nine.work->state(), WorkState::kNotEnqueued);
  EXPECT_EQ(Await({told, 9}), absl::OkStatus());
  EXPECT_EQ(nine.Done(), absl::OkStatus());
}

TEST_P(WantedWorks, RunAtOnceForWhoWaitsAlready) {
  Activation here = Enter(NewContext());
  Activation there = Enter(NewContext());
  auto told = std::make_shared<Timeline>("told");
  WatchedWork after;
  after.request().program = Compile("Neg", 1);
  after.request().inputs = {Floats(five_)};
  after.request().after = {Point{told, 2}};
  there.Submit(after.work.get(), &after.waiter);
  ASSERT_TRUE(Eventually([&] { return told->waits() == 1; }));
  Deferred signals(this, "Neg", 1);
  signals.Read(0, five_);
  signals.request().signal = {{told, 2}};
  Defer(here, signals);
  EXPECT_EQ(after.Done(), absl::OkStatus());
  EXPECT_EQ(signals.Done(), absl::OkStatus());
}

TEST_P(WantedWorks, RunOnceForManyWhoWait) {
  constexpr int kWaiters = 32;
  Activation inside = Enter(NewContext());
  Deferred wanted(this, "Neg", 1);
  wanted.Read(0, five_);
  Defer(inside, wanted);
  const Point point = wanted.work->point();
  std::vector<absl::Status> told(kWaiters, absl::UnknownError("not told"));
  std::vector<std::thread> waiters;
  for (absl::Status& status : told) {
    waiters.emplace_back([&] { status = Await(point); });
  }
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_THAT(told, ::testing::Each(absl::OkStatus()));
  // The observer ends the process if it is told twice.
  EXPECT_EQ(wanted.Done(), absl::OkStatus());
  EXPECT_EQ(inside.context().timeline()->value(), 1u) << "one place, one run";
}

// Whoever flushes, submits and defers in the context, and whoever needs what is
// deferred there, may do so at once.
TEST_P(WantedWorks, RunWhileTheirContextIsInUse) {
  constexpr int kRounds = 50;
  Activation inside = Enter(NewContext());
  for (int round = 0; round < kRounds; ++round) {
    Deferred first(this, "Neg", 1), second(this, "Neg", 1);
    Deferred third(this, "Neg", 1), use(this, "Neg", 1);
    first.Read(0, five_);
    second.Read(0, first);
    third.Read(0, second);
    use.Read(0, third);
    use.request().mode = EvalMode::kEager;
    Defer(inside, first);
    Defer(inside, second);
    const Point point = second.work->point();
    std::thread outside([&] { EXPECT_EQ(Await(point), absl::OkStatus()); });
    Defer(inside, third);
    if (round % 2 == 0) {
      inside.Flush();
    }
    inside.Submit(use.work.get(), &use.waiter);
    EXPECT_EQ(use.Done(), absl::OkStatus());
    outside.join();
    for (Deferred* work : {&first, &second, &third}) {
      EXPECT_EQ(work->Done(), absl::OkStatus());
    }
    EXPECT_THAT(Kept(inside, use), ElementsAre(5));
  }
}

TEST_P(WantedWorks, EndWithTheirContextAndSoDoesWhoWaits) {
  Deferred wanted(this, "Neg", 1);
  wanted.Read(0, five_);
  std::optional<Activation> inside = Enter(NewContext());
  Defer(*inside, wanted);
  const Point point = wanted.work->point();
  std::thread outside([&] {
    const absl::Status status = Await(point);
    EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
  });
  inside.reset();
  outside.join();
  const absl::Status done = wanted.Done();
  EXPECT_TRUE(done.ok() || absl::IsCancelled(done)) << done;
}

// A pointer with counts of its own is all that says who wants it.
TEST_P(WantedWorks, AreHeldByThePointerThatWasDeferred) {
  Activation inside = Enter(NewContext());
  Deferred unread(this, "Neg", 1);
  unread.Read(0, five_);
  const std::shared_ptr<Work> stays = unread.work;
  inside.Defer({stays.get(), [stays](Work*) {}}, &unread.waiter);
  EXPECT_EQ(inside.Flush().dropped.size(), 1u);
  EXPECT_TRUE(absl::IsCancelled(unread.Done()));
}

// What is to run them may come after a flush.
TEST_P(WantedWorks, AreNotDroppedOnceSomebodyHasAskedForThem) {
  HandExecutor executor;
  {
    Activation inside = Enter(NewContext({.executor = &executor}));
    Deferred wanted(this, "Neg", 1);
    wanted.Read(0, five_);
    const std::shared_ptr<Work> stays = wanted.work;
    inside.Defer({stays.get(), [stays](Work*) {}}, &wanted.waiter);
    stays->point().timeline->Want(1);
    const FlushResult result = inside.Flush();
    EXPECT_THAT(result.dropped, IsEmpty());
    EXPECT_EQ(result.executed.size(), 1u);
    EXPECT_TRUE(Eventually([&] {
      executor.RunAll();
      return stays->done();
    }));
    EXPECT_EQ(wanted.Done(), absl::OkStatus());
  }
  executor.RunAll();
}

TEST_P(WantedWorks, AreNamedByWhoFlushes) {
  Activation inside = Enter(NewContext());
  Deferred kept(this, "Neg", 1), unread(this, "Neg", 1);
  uint64_t tag = 70;
  for (Deferred* work : {&kept, &unread}) {
    work->Read(0, five_);
    work->request().tag = ++tag;
    work->request().label = tag == 71 ? "kept" : "unread";
    Defer(inside, *work);
  }
  unread.work = nullptr;
  const FlushResult result = inside.Flush();
  ASSERT_EQ(result.executed.size(), 1u);
  EXPECT_EQ(result.executed[0].tag, 71u);
  EXPECT_EQ(result.executed[0].label, "kept");
  EXPECT_EQ(result.executed[0].position, 1u);
  EXPECT_EQ(result.executed[0].number, 1u);
  ASSERT_EQ(result.dropped.size(), 1u);
  EXPECT_EQ(result.dropped[0].tag, 72u);
  EXPECT_EQ(result.dropped[0].label, "unread");
  EXPECT_EQ(result.dropped[0].number, 0u);
  EXPECT_EQ(kept.Done(), absl::OkStatus());
}

// Each member is told what of its results is kept outside.
TEST_P(WantedWorks, AreToldWhatIsKeptOfAJoinedRun) {
  struct Told final : WorkObserver {
    void OnReturn(Work&) override {}
    absl::Status OnPlanned(Work&) override {
      ++planned;
      return absl::OkStatus();
    }
    absl::Status OnJoined(Work&,
                          absl::Span<const TensorMeta* const> kept) override {
      bytes.assign(1, kept[0] == nullptr ? 0 : kept[0]->bytes);
      return answer;
    }
    void OnDone(Work& work) override {
      status = work.status();
      joined_works = work.report().joined_works;
      done.Set();
    }
    int planned = 0;
    std::vector<size_t> bytes;
    absl::Status answer, status;
    size_t joined_works = 0;
    Event done;
  };
  for (const bool refused : {false, true}) {
    SCOPED_TRACE(refused);
    Activation inside = Enter(NewContext());
    Deferred inner(this, "Neg", 1), outer(this, "Neg", 1);
    Told of_inner, of_outer;
    if (refused) of_outer.answer = absl::ResourceExhaustedError("too much");
    inner.Read(0, five_);
    outer.Read(0, inner);
    inside.Defer(std::exchange(inner.work, nullptr), &of_inner);
    inside.Defer(outer.work, &of_outer);
    inside.Flush();
    of_inner.done.Wait();
    of_outer.done.Wait();
    EXPECT_THAT(of_inner.bytes, ElementsAre(0));
    EXPECT_THAT(of_outer.bytes, ElementsAre(sizeof(float)));
    EXPECT_EQ(of_outer.status, absl::OkStatus());
    EXPECT_EQ(of_outer.joined_works, refused ? 0u : 2u);
    EXPECT_EQ(of_outer.planned, refused ? 1 : 0) << "it runs alone then";
  }
}

}  // namespace
}  // namespace weir
