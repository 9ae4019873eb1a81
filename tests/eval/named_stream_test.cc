// Works on streams that somebody has for longer than a work, and on the
// server's default one: whose turn it is, what holds whom back, and when the
// lane goes back.
#include "kernels/eval/named_stream.h"

#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/base/eventually.h"
#include "tests/conformance/hold_operator.h"
#include "tests/eval/deferred_fixture.h"

namespace weir {
namespace {

using testing::Eventually;
using ::testing::HasSubstr;

class NamedStreams : public DeferredTest {
 protected:
  void SetUp() override {
    DeferredTest::SetUp();
    if (engine_ == nullptr) return;
    ASSERT_TRUE(hold_.Register(*registry_).ok());
    negate_ = Compile("Neg", 1);
    held_ = Compile("Hold", 1, {}, "weir");
  }

  void TearDown() override {
    hold_.Open();
    DeferredTest::TearDown();
  }

  std::shared_ptr<NamedStream> NewStream(NamedStreamOptions options = {}) {
    auto lease = engine_->streams().TryAcquire();
    EXPECT_TRUE(lease.ok()) << lease.status();
    return NamedStream::Create(engine_.get(), *std::move(lease), options);
  }

  // y = -x, or what holds its stream, kept.
  void Prepare(WatchedWork& watched,
               const std::shared_ptr<const Program>& program) {
    watched.request().program = program;
    watched.request().inputs = {Floats(values_)};
    watched.request().outputs = {OutputWish::kKeep};
  }
  void Prepare(WatchedWork& watched) { Prepare(watched, negate_); }
  static void On(WatchedWork& watched,
                 const std::shared_ptr<NamedStream>& stream) {
    watched.request().stream.kind = StreamPolicy::Kind::kNamed;
    watched.request().stream.stream = stream;
  }
  static void Submit(Activation& activation, WatchedWork& watched) {
    activation.Submit(watched.work.get(), &watched.waiter);
  }

  // It stands where it waits for what is before it: on its stream, where that
  // waits without the host.
  void AwaitHeldBack(const WatchedWork& watched) {
    EXPECT_TRUE(Eventually([&] {
      return engine_->device().streams_wait()
                 ? watched.work->state() == WorkState::kScheduled
                 : engine_->dispatcher().parked() > 0;
    }));
    EXPECT_FALSE(watched.work->done());
  }
  // Where a stream waits without the host it may have been handed there.
  void ExpectNotRun(const WatchedWork& watched) {
    EXPECT_FALSE(watched.work->done());
    if (!engine_->device().streams_wait()) {
      EXPECT_LT(watched.work->state(), WorkState::kScheduled);
    }
  }

  size_t leased() const { return engine_->streams().stats().leased; }

  const std::vector<float> values_ = {1, 2, 3};
  HoldOperator hold_;
  std::shared_ptr<const Program> negate_, held_;
};
WEIR_EVAL_ON_EVERY_DEVICE(NamedStreams);

TEST_P(NamedStreams, WorksOfSeveralContextsRunInTheOrderOfAcceptance) {
  auto gate = std::make_shared<Timeline>("gate");
  auto stream = NewStream();
  Activation a = Enter(NewContext());
  Activation b = Enter(NewContext());
  Activation c = Enter(NewContext());
  WatchedWork first, second, pooled;
  for (WatchedWork* watched : {&first, &second, &pooled}) Prepare(*watched);
  On(first, stream);
  On(second, stream);
  first.request().after = {Point{gate, 1}};
  Submit(a, first);
  Submit(b, second);
  Submit(c, pooled);
  ASSERT_TRUE(pooled.Done().ok()) << "others go on";
  EXPECT_LT(second.work->state(), WorkState::kScheduled)
      << "its turn comes when the first was launched";
  ASSERT_TRUE(gate->Advance(1).ok());
  ASSERT_TRUE(first.Done().ok());
  ASSERT_TRUE(second.Done().ok());
  const SyncReport& report = second.work->report();
  EXPECT_EQ(first.work->report().stream_id, stream->stream().id());
  EXPECT_EQ(report.stream_id, stream->stream().id());
  EXPECT_NE(pooled.work->report().stream_id, stream->stream().id());
  EXPECT_EQ(report.sequence, first.work->report().sequence + 1);
  EXPECT_EQ(report.lease_generation, stream->lane().generation());
  ASSERT_NE(report.pool, nullptr);
  EXPECT_THAT(*report.pool, HasSubstr("/priority 0"));
}

TEST_P(NamedStreams, WhatEndsWithoutALaunchHoldsNobodyBack) {
  auto gate = std::make_shared<Timeline>("gate");
  auto stream = NewStream();
  Activation a = Enter(NewContext());
  Activation b = Enter(NewContext());
  Activation c = Enter(NewContext());
  WatchedWork first, second, third;
  for (WatchedWork* watched : {&first, &second, &third}) {
    Prepare(*watched);
    On(*watched, stream);
  }
  first.request().after = {Point{gate, 1}};
  Submit(a, first);
  Submit(b, second);
  Submit(c, third);
  second.work->Cancel();
  EXPECT_EQ(second.Done().code(), absl::StatusCode::kCancelled);
  ExpectNotRun(third);
  first.work->Cancel();
  EXPECT_EQ(first.Done().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(third.Done().ok());
}

TEST_P(NamedStreams, AStreamHasNoErrorOfItsOwn) {
  auto stream = NewStream();
  Activation a = Enter(NewContext());
  Activation b = Enter(NewContext());
  WatchedWork fault, after;
  Prepare(fault, Compile("Fault", 1, {}, "weir"));
  Prepare(after);
  On(fault, stream);
  On(after, stream);
  Submit(a, fault);
  Submit(b, after);
  EXPECT_FALSE(fault.Done().ok());
  EXPECT_TRUE(after.Done().ok());
  EXPECT_EQ(after.work->report().stream_id, stream->stream().id());
}

// Promise 2: the order of a context is its own, wherever its works run.
TEST_P(NamedStreams, AContextKeepsItsOrderFromStreamToStream) {
  auto one = NewStream();
  auto other = NewStream();
  Activation activation = Enter(NewContext());
  WatchedWork held, named, next, pooled;
  Prepare(held, held_);
  for (WatchedWork* watched : {&named, &next, &pooled}) Prepare(*watched);
  On(named, one);
  On(next, other);
  Submit(activation, held);
  hold_.WaitUntilHeld();
  for (WatchedWork* watched : {&named, &next, &pooled}) {
    Submit(activation, *watched);
  }
  AwaitHeldBack(named);
  for (WatchedWork* watched : {&named, &next, &pooled}) ExpectNotRun(*watched);
  hold_.Open();
  for (WatchedWork* watched : {&held, &named, &next, &pooled}) {
    ASSERT_TRUE(watched->Done().ok()) << watched->work->status();
  }
  EXPECT_FALSE(named.work->report().waits.empty());
  EXPECT_EQ(named.work->report().stream_id, one->stream().id());
  EXPECT_EQ(next.work->report().stream_id, other->stream().id());
  EXPECT_LE(named.work->report().completed_at,
            next.work->report().completed_at);
  EXPECT_LE(next.work->report().completed_at,
            pooled.work->report().completed_at);
}

// Of one context a work that failed is none of the others' business.
TEST_P(NamedStreams, AFailedWorkIsOrderAndNoMore) {
  auto stream = NewStream();
  Activation activation = Enter(NewContext());
  WatchedWork held, fault, named;
  Prepare(held, held_);
  Prepare(fault, Compile("Fault", 1, {}, "weir"));
  Prepare(named);
  On(named, stream);
  Submit(activation, held);
  hold_.WaitUntilHeld();
  Submit(activation, fault);
  Submit(activation, named);
  // On a CPU it waits for its turn in the context.
  if (engine_->device().streams_wait()) AwaitHeldBack(named);
  ExpectNotRun(named);
  hold_.Open();
  EXPECT_FALSE(fault.Done().ok());
  EXPECT_TRUE(named.Done().ok()) << named.work->status();
}

TEST_P(NamedStreams, TheLaneGoesBackWhenItsWorksAreDone) {
  auto stream = NewStream();
  EXPECT_EQ(leased(), 1u);
  Activation activation = Enter(NewContext());
  WatchedWork first, held;
  Prepare(first);
  Prepare(held, held_);
  On(first, stream);
  On(held, stream);
  Submit(activation, first);
  ASSERT_TRUE(first.Done().ok());
  EXPECT_EQ(leased(), 1u) << "it is kept between works";
  Submit(activation, held);
  hold_.WaitUntilHeld();
  stream = nullptr;
  EXPECT_EQ(leased(), 1u) << "a work is on it";
  hold_.Open();
  ASSERT_TRUE(held.Done().ok());
  EXPECT_TRUE(Eventually([&] { return leased() == 0; }));
}

TEST_P(NamedStreams, AFullStreamRefusesIfItIsToDoSo) {
  auto stream = NewStream({.max_in_flight = 2, .refuses = true});
  Activation a = Enter(NewContext());
  Activation b = Enter(NewContext());
  WatchedWork held, second, third, later;
  Prepare(held, held_);
  On(held, stream);
  for (WatchedWork* watched : {&second, &third, &later}) {
    Prepare(*watched);
    On(*watched, stream);
  }
  Submit(a, held);
  Submit(b, second);
  Submit(b, third);
  const absl::Status full = third.Done();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
  EXPECT_EQ(Reason(full), "STREAM_FULL");
  EXPECT_TRUE(RetryAfter(full).has_value());
  EXPECT_TRUE(third.work->point().is_null()) << "it was not accepted";
  hold_.Open();
  ASSERT_TRUE(second.Done().ok());
  Submit(b, later);
  EXPECT_TRUE(later.Done().ok());
}

TEST_P(NamedStreams, AFullStreamIsWaitedForInItsOrder) {
  auto stream = NewStream({.max_in_flight = 1});
  Activation a = Enter(NewContext());
  Activation b = Enter(NewContext());
  Activation c = Enter(NewContext());
  WatchedWork held, second, third;
  Prepare(held, held_);
  Prepare(second);
  Prepare(third);
  for (WatchedWork* watched : {&held, &second, &third}) On(*watched, stream);
  Submit(a, held);
  hold_.WaitUntilHeld();
  Submit(b, second);
  Submit(c, third);
  EXPECT_LT(second.work->state(), WorkState::kScheduled);
  EXPECT_LT(third.work->state(), WorkState::kScheduled);
  hold_.Open();
  ASSERT_TRUE(second.Done().ok());
  ASSERT_TRUE(third.Done().ok());
  EXPECT_EQ(third.work->report().sequence, second.work->report().sequence + 1);
}

TEST_P(NamedStreams, APlaceMayBeTakenBeforeItsWorkIsThere) {
  auto stream = NewStream();
  Activation a = Enter(NewContext());
  Activation b = Enter(NewContext());
  absl::StatusOr<StreamPlace> place = stream->Take(/*reserved=*/true);
  ASSERT_TRUE(place.ok()) << place.status();
  absl::StatusOr<StreamPlace> unused = stream->Take(/*reserved=*/true);
  ASSERT_TRUE(unused.ok());
  WatchedWork late, early;
  Prepare(late);
  Prepare(early);
  On(late, stream);
  On(early, stream);
  Submit(a, early);
  ExpectNotRun(early);
  EXPECT_LT(early.work->state(), WorkState::kScheduled);
  late.request().place = *std::move(place);
  Submit(b, late);
  ASSERT_TRUE(late.Done().ok());
  EXPECT_LT(early.work->state(), WorkState::kScheduled);
  unused->End();
  ASSERT_TRUE(early.Done().ok());
  EXPECT_EQ(early.work->report().sequence, late.work->report().sequence + 1);
}

TEST_P(NamedStreams, ReservedPlacesAreBounded) {
  auto stream = NewStream({.max_in_flight = 2});
  std::vector<StreamPlace> places;
  for (int i = 0; i < 2; ++i) {
    auto place = stream->Take(/*reserved=*/true);
    ASSERT_TRUE(place.ok()) << place.status();
    places.push_back(*std::move(place));
  }
  EXPECT_EQ(Reason(stream->Take(/*reserved=*/true).status()), "STREAM_FULL");
  EXPECT_TRUE(stream->Take().ok()) << "a work waits";
  places.clear();
  EXPECT_TRUE(stream->Take(/*reserved=*/true).ok());
}

TEST_P(NamedStreams, AJoinIsOrderAndNoMore) {
  auto source = NewStream();
  auto target = NewStream();
  Activation a = Enter(NewContext());
  Activation b = Enter(NewContext());
  WatchedWork held, fault, before, joined;
  Prepare(held, held_);
  Prepare(fault, Compile("Fault", 1, {}, "weir"));
  Prepare(before);
  Prepare(joined);
  On(held, source);
  On(fault, source);
  On(before, target);
  On(joined, target);
  EXPECT_TRUE(source->Now().is_null());
  target->ComeAfter(source->Now());
  Submit(a, held);
  hold_.WaitUntilHeld();
  Submit(a, fault);
  Submit(b, before);
  ASSERT_TRUE(before.Done().ok()) << "nothing was joined yet";
  target->ComeAfter(source->Now());
  Submit(b, joined);
  AwaitHeldBack(joined);
  ExpectNotRun(joined);
  hold_.Open();
  EXPECT_FALSE(fault.Done().ok());
  ASSERT_TRUE(joined.Done().ok()) << joined.work->status();
  EXPECT_GE(joined.work->report().completed_at,
            fault.work->report().completed_at);
  ASSERT_EQ(joined.work->report().waits.size(), 1u);
  EXPECT_EQ(
      joined.work->report().waits[0].from,
      (TimelineOwner{TimelineOwner::Kind::kStream, source->stream().id()}));
  EXPECT_EQ(joined.work->report().waits[0].kind,
            engine_->device().streams_wait() ? InsertedWait::Kind::kDevice
                                             : InsertedWait::Kind::kHost);
}

// What is reserved and not there yet counts: a join is with all that has a
// place.
TEST_P(NamedStreams, AJoinWaitsForWhatIsNotLaunchedYet) {
  auto source = NewStream();
  auto target = NewStream();
  absl::StatusOr<StreamPlace> place = source->Take(/*reserved=*/true);
  ASSERT_TRUE(place.ok());
  target->ComeAfter(source->Now());
  Activation activation = Enter(NewContext());
  WatchedWork joined;
  Prepare(joined);
  On(joined, target);
  Submit(activation, joined);
  EXPECT_LT(joined.work->state(), WorkState::kScheduled);
  EXPECT_EQ(engine_->streams().stats().waiting, 0u);
  place->End();
  EXPECT_TRUE(joined.Done().ok());
}

TEST_P(NamedStreams, DeferredWorksRunAsOneOnTheirStream) {
  auto stream = NewStream();
  Activation a = Enter(NewContext());
  Activation b = Enter(NewContext());
  Deferred first(this, "Neg", 1), second(this, "Add", 2);
  first.Read(0, values_);
  second.Read(0, first);
  second.Read(1, values_);
  On(first, stream);
  On(second, stream);
  Defer(a, first);
  Defer(a, second);
  EXPECT_EQ(a.Flush().executed.size(), 2u);
  WatchedWork after;
  Prepare(after);
  On(after, stream);
  Submit(b, after);
  ASSERT_TRUE(second.Done().ok()) << second.work->status();
  ASSERT_TRUE(after.Done().ok());
  EXPECT_EQ(second.work->report().joined_works, 2u);
  EXPECT_EQ(second.work->report().stream_id, stream->stream().id());
  EXPECT_EQ(Kept(a, second), (std::vector<float>{0, 0, 0}));
}

// If the joined run fails they run one by one, and keep their places.
TEST_P(NamedStreams, DeferredWorksKeepTheirPlacesOneByOne) {
  auto stream = NewStream();
  Activation a = Enter(NewContext());
  Activation b = Enter(NewContext());
  Deferred first(this, "Neg", 1), fault(this, "Fault", 1, {}, "weir"),
      last(this, "Neg", 1);
  first.Read(0, values_);
  fault.Read(0, first);
  last.Read(0, first);
  for (Deferred* deferred : {&first, &fault, &last}) {
    On(*deferred, stream);
    Defer(a, *deferred);
  }
  a.Flush();
  WatchedWork after;
  Prepare(after);
  On(after, stream);
  Submit(b, after);
  EXPECT_TRUE(first.Done().ok()) << first.work->status();
  EXPECT_FALSE(fault.Done().ok());
  EXPECT_TRUE(last.Done().ok()) << last.work->status();
  ASSERT_TRUE(after.Done().ok());
  EXPECT_GT(after.work->report().sequence, last.work->report().sequence);
}

TEST_P(NamedStreams, AStreamOfAnotherEngineIsRefused) {
  auto device = MakeDevice("cpu", {.cpu_threads = 1}, *registry_);
  ASSERT_TRUE(device.ok());
  auto other =
      Engine::Create(*std::move(device), registry_.get(), SmallEngine());
  ASSERT_TRUE(other.ok());
  {
    auto stream = NamedStream::Create(other->get(),
                                      *(*other)->streams().TryAcquire(), {});
    Activation activation = Enter(NewContext());
    WatchedWork watched;
    Prepare(watched);
    On(watched, stream);
    Submit(activation, watched);
    const absl::Status status = watched.Done();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(Reason(status), "WRONG_DEVICE");
    watched.request().stream = {};
  }
}

TEST_P(NamedStreams, APriorityIsTheDevices) {
  const DeviceInfo& info = engine_->device().info();
  Activation activation = Enter(NewContext());
  WatchedWork urgent, wrong;
  Prepare(urgent);
  Prepare(wrong);
  urgent.request().stream.priority = info.greatest_priority;
  Submit(activation, urgent);
  ASSERT_TRUE(urgent.Done().ok()) << urgent.work->status();
  EXPECT_EQ(urgent.work->report().stream_priority, info.greatest_priority);
  wrong.request().stream.priority = info.least_priority + 1;
  Submit(activation, wrong);
  EXPECT_EQ(wrong.Done().code(), absl::StatusCode::kInvalidArgument);
}

// Each has the default stream for itself, in the order of their arrival.
TEST_P(NamedStreams, TheServersDefaultStreamIsLeasedForEachWork) {
  Activation a = Enter(NewContext());
  Activation b = Enter(NewContext());
  WatchedWork held, of_a, of_b, pooled;
  Prepare(held, held_);
  for (WatchedWork* watched : {&of_a, &of_b, &pooled}) Prepare(*watched);
  for (WatchedWork* watched : {&held, &of_a, &of_b}) {
    watched->request().stream.kind = StreamPolicy::Kind::kServerDefault;
  }
  Submit(a, held);
  hold_.WaitUntilHeld();
  Submit(b, of_b);
  Submit(a, of_a);
  StreamPool* const pool = engine_->pools().ServerDefault()->pool;
  EXPECT_TRUE(Eventually([&] { return pool->stats().waiting == 2; }));
  Activation c = Enter(NewContext());
  Submit(c, pooled);
  ASSERT_TRUE(pooled.Done().ok()) << "others go on";
  hold_.Open();
  ASSERT_TRUE(of_b.Done().ok());
  ASSERT_TRUE(of_a.Done().ok());
  EXPECT_EQ(of_a.work->report().stream_id, of_b.work->report().stream_id);
  EXPECT_EQ(of_b.work->report().sequence, held.work->report().sequence + 1);
  EXPECT_EQ(of_a.work->report().sequence, held.work->report().sequence + 2);
  EXPECT_EQ(of_a.work->report().lease_generation,
            held.work->report().lease_generation + 2);
  EXPECT_THAT(*of_a.work->report().pool, HasSubstr("/default, priority 0"));
}

// Many contexts, few streams, works of all kinds: nothing is lost, and of each
// stream the order is that of acceptance.
TEST_P(NamedStreams, ManyContextsShareFewStreams) {
  constexpr size_t kContexts = 4, kWorks = 100;
  hold_.Open();
  std::vector<std::shared_ptr<NamedStream>> streams = {
      NewStream(), NewStream({.max_in_flight = 2})};
  std::vector<Activation> contexts;
  for (size_t i = 0; i < kContexts; ++i) {
    contexts.push_back(Enter(NewContext()));
  }
  std::vector<std::unique_ptr<WatchedWork>> works;
  std::vector<std::vector<WatchedWork*>> on(streams.size());
  for (size_t i = 0; i < kWorks; ++i) {
    WatchedWork& watched = *works.emplace_back(std::make_unique<WatchedWork>());
    Prepare(watched);
    const size_t where = i % 3;
    if (where < streams.size()) {
      On(watched, streams[where]);
      on[where].push_back(&watched);
    }
    Submit(contexts[i * 7 / 5 % kContexts], watched);
    if (i % 10 == 9) watched.work->Cancel();
  }
  for (const auto& watched : works) {
    const absl::Status status = watched->Done();
    EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
  }
  for (const std::vector<WatchedWork*>& order : on) {
    uint64_t last = 0;
    for (const WatchedWork* watched : order) {
      const uint64_t sequence = watched->work->report().sequence;
      if (sequence == 0) continue;
      EXPECT_GT(sequence, last);
      last = sequence;
    }
  }
}

}  // namespace
}  // namespace weir
