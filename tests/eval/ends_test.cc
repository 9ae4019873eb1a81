// What a work leaves behind when it ends: outcomes of its points and signals,
// readers of what it reads, memory, and what its context remembers.
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/base/event.h"
#include "tests/base/eventually.h"
#include "tests/eval/eval_fixture.h"

namespace weir {
namespace {

using testing::Eventually;

class Ends : public EvalTest {
 protected:
  void SetUp() override {
    EvalTest::SetUp();
    if (engine_ != nullptr) program_ = Compile("Neg", 1);
  }

  void Prepare(WatchedWork& watched) {
    watched.request().program = program_;
    watched.request().inputs = {Floats(values_)};
    watched.request().outputs = {OutputWish::kKeep};
  }

  std::shared_ptr<const Program> program_;
  const std::vector<float> values_ = {1, 2, 3};
};
WEIR_EVAL_ON_EVERY_DEVICE(Ends);

TEST_P(Ends, AFailureFailsItsPointItsSignalsAndWhatComesAfter) {
  auto gate = std::make_shared<Timeline>("gate");
  auto told = std::make_shared<Timeline>("told");
  Activation a = Enter(NewContext());
  Activation b = Enter(NewContext());
  WatchedWork failing, after, good;
  Prepare(failing);
  Prepare(after);
  Prepare(good);
  failing.request().after = {Point{gate, 1}};
  failing.request().signal = {{told, 1}};
  a.Submit(failing.work.get(), &failing.waiter);
  const Point point = failing.work->point();
  a.Submit(good.work.get(), &good.waiter);
  after.request().after = {point};
  b.Submit(after.work.get(), &after.waiter);
  ASSERT_TRUE(gate->Advance(1, absl::DataLossError("broken")).ok());
  EXPECT_EQ(failing.Done().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(after.Done().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(good.Done().ok()) << "it depends on nothing that failed";
  ASSERT_TRUE(point.Outcome().has_value());
  EXPECT_EQ(point.Outcome()->code(), absl::StatusCode::kDataLoss);
  ASSERT_TRUE(told->Outcome(1).has_value());
  EXPECT_EQ(told->Outcome(1)->code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(good.work->point().Outcome(), absl::OkStatus());
}

TEST_P(Ends, EverySignalIsMovedAndEveryWaiterTold) {
  for (const absl::Status& outcome :
       {absl::OkStatus(), absl::DataLossError("broken")}) {
    SCOPED_TRACE(outcome.ToString());
    auto gate = std::make_shared<Timeline>("gate");
    Activation activation = Enter(NewContext());
    WatchedWork signals;
    Prepare(signals);
    signals.request().after = {Point{gate, 1}};
    std::deque<WatchedWork> waiters(3);
    std::deque<Activation> others;
    std::vector<Point> told;
    for (WatchedWork& waiter : waiters) {
      const auto timeline = std::make_shared<Timeline>("told");
      told.push_back({timeline, told.size() + 1});
      signals.request().signal.push_back({timeline, told.back().value});
      Prepare(waiter);
      waiter.request().after = {told.back()};
      waiter.request().deadline = NowNanos() + Nanos{20} * 1'000'000'000;
    }
    activation.Submit(signals.work.get(), &signals.waiter);
    for (WatchedWork& waiter : waiters) {
      others.push_back(Enter(NewContext()));
      others.back().Submit(waiter.work.get(), &waiter.waiter);
    }
    ASSERT_TRUE(gate->Advance(1, outcome).ok());
    EXPECT_EQ(signals.Done().code(), outcome.code());
    for (size_t i = 0; i < waiters.size(); ++i) {
      EXPECT_EQ(waiters[i].Done().code(), outcome.code()) << i;
      const auto known = told[i].Outcome().value_or(absl::UnknownError(""));
      EXPECT_EQ(known.code(), outcome.code()) << i;
    }
  }
}

TEST_P(Ends, AFailureOfADeferredWorkFailsThePointItHadBefore) {
  auto gate = std::make_shared<Timeline>("gate");
  Activation activation = Enter(NewContext());
  WatchedWork failing;
  Prepare(failing);
  failing.request().mode = EvalMode::kDeferred;
  failing.request().after = {Point{gate, 1}};
  activation.Defer(failing.work, &failing.waiter);
  const Point point = failing.work->point();
  activation.Flush();
  EXPECT_EQ(point.Outcome(), std::nullopt);
  ASSERT_TRUE(gate->Advance(1, absl::DataLossError("broken")).ok());
  EXPECT_EQ(failing.Done().code(), absl::StatusCode::kDataLoss);
  ASSERT_TRUE(point.Outcome().has_value());
  EXPECT_EQ(point.Outcome()->code(), absl::StatusCode::kDataLoss);
}

// Whoever reads the failed one in another context is not held up by what is in
// front of it.
TEST_P(Ends, AnErrorBehindAWaitIsKnownAtOnce) {
  auto gate = std::make_shared<Timeline>("gate");
  Activation a = Enter(NewContext());
  Activation b = Enter(NewContext());
  WatchedWork parked, dropped, reader;
  Prepare(parked);
  Prepare(dropped);
  Prepare(reader);
  parked.request().after = {Point{gate, 1}};
  a.Submit(parked.work.get(), &parked.waiter);
  a.Submit(dropped.work.get(), &dropped.waiter);
  reader.request().inputs = {InputSource()};
  reader.request().inputs[0].producer = dropped.work;
  b.Submit(reader.work.get(), &reader.waiter);
  dropped.work->Cancel();
  EXPECT_EQ(reader.Done().code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(parked.work->done());
  ASSERT_TRUE(gate->Advance(1).ok());
  EXPECT_TRUE(parked.Done().ok());
}

TEST_P(Ends, AReaderIsNotedWithTheTensor) {
  Activation activation = Enter(NewContext());
  WatchedWork made, reader;
  Prepare(made);
  activation.Submit(made.work.get(), &made.waiter);
  ASSERT_TRUE(made.Done().ok());
  const Tensor tensor = made.work->OutputTensor(0);
  const size_t before = tensor.storage().Uses().size();
  Activation other = Enter(NewContext());
  Prepare(reader);
  reader.request().inputs = {InputSource()};
  reader.request().inputs[0].tensor = tensor;
  // On another stream than the writer's, so that it is a use of its own.
  std::vector<StreamLease> taken;
  const Timeline* const writer = tensor.storage().writer().timeline.get();
  ASSERT_TRUE(Eventually([&] {
    auto lease = engine_->streams().TryAcquire();
    if (lease.ok()) taken.push_back(*std::move(lease));
    return !taken.empty() && taken.back().stream().timeline().get() == writer;
  }));
  // One of the others is left, or one is made.
  if (taken.size() > 1) taken.erase(taken.begin());
  other.Submit(reader.work.get(), &reader.waiter);
  ASSERT_TRUE(reader.Done().ok()) << reader.work->status();
  bool noted = false;
  for (const Point& use : tensor.storage().Uses()) {
    noted = noted ||
            (use.timeline->owner().number == reader.work->report().stream_id &&
             use.value == reader.work->report().sequence);
  }
  EXPECT_TRUE(noted) << before << " uses before";
}

TEST_P(Ends, AReportTellsOfACompletionOnlyIfItWasSeen) {
  auto gate = std::make_shared<Timeline>("gate");
  Activation activation = Enter(NewContext());
  WatchedWork parked, unfit, failing;
  Prepare(failing);
  failing.request().program = Compile("Fault", 1, {}, "weir");
  activation.Submit(failing.work.get(), &failing.waiter);
  EXPECT_FALSE(failing.Done().ok());
  EXPECT_GE(failing.work->report().completed_at,
            failing.work->report().launched_at);
  Prepare(unfit);
  unfit.request().inputs.clear();
  activation.Submit(unfit.work.get(), &unfit.waiter);
  EXPECT_FALSE(unfit.Done().ok());
  Prepare(parked);
  parked.request().after = {Point{gate, 1}};
  activation.Submit(parked.work.get(), &parked.waiter);
  parked.work->Cancel();
  EXPECT_EQ(parked.Done().code(), absl::StatusCode::kCancelled);
  for (const WatchedWork* never : {&unfit, &parked}) {
    EXPECT_EQ(never->work->report().launched_at, 0);
    EXPECT_EQ(never->work->report().completed_at, 0);
    EXPECT_EQ(never->work->report().state, WorkState::kError);
  }
}

TEST_P(Ends, WhatNobodyReadsKeepsNoMemory) {
  Activation activation = Enter(NewContext());
  std::deque<WatchedWork> works(20);
  const auto failing = Compile("Fault", 1, {}, "weir");
  for (size_t i = 0; i < works.size(); ++i) {
    Prepare(works[i]);
    if (i % 2 == 1) {
      works[i].request().program = failing;
      works[i].request().outputs = {OutputWish::kInline};
    }
    activation.Submit(works[i].work.get(), &works[i].waiter);
    EXPECT_EQ(works[i].Done().ok(), i % 2 == 0);
  }
  EXPECT_EQ(engine_->pinned().stats().leased_bytes, 0u);
}

TEST_P(Ends, AnUnalignedInputIsCopiedAndAnAlignedOneOnTheHostIsNot) {
  std::vector<float> room(4);
  const bool addressable = engine_->device().host_addressable();
  for (const bool aligned : {true, false}) {
    Activation activation = Enter(NewContext());
    WatchedWork watched;
    Prepare(watched);
    watched.request().outputs = {OutputWish::kInline};
    char* const at = reinterpret_cast<char*>(room.data()) + (aligned ? 0 : 1);
    std::memmove(at, values_.data(), 3 * sizeof(float));
    watched.request().inputs[0].pieces = {
        std::string_view(at, 3 * sizeof(float))};
    activation.Submit(watched.work.get(), &watched.waiter);
    ASSERT_TRUE(watched.Done().ok()) << watched.work->status();
    EXPECT_EQ(Result(*watched.work), std::vector<float>({-1, -2, -3}));
    EXPECT_EQ(watched.work->report().bytes_in,
              aligned && addressable ? 0u : 3 * sizeof(float));
  }
}

TEST_P(Ends, AContextRemembersFailuresOfWorksThatHadReturnedAndNotAllOfThem) {
  Activation activation = Enter(NewContext());
  WatchedWork refused;
  Prepare(refused);
  refused.request().inputs.clear();
  activation.Submit(refused.work.get(), &refused.waiter);
  EXPECT_FALSE(refused.Done().ok());
  EXPECT_EQ(activation.Flush().failed_total, 0u) << "its caller was told";
  const auto failing = Compile("Fault", 1, {}, "weir");
  constexpr size_t kWorks = FlushResult::kMaxFailedKept + 6;
  std::deque<WatchedWork> works(kWorks);
  for (WatchedWork& watched : works) {
    Prepare(watched);
    watched.request().program = failing;
    activation.Submit(watched.work.get(), &watched.waiter);
    ASSERT_FALSE(watched.Done().ok());
  }
  const FlushResult result = activation.Flush();
  EXPECT_EQ(result.failed_total, kWorks);
  ASSERT_EQ(result.failed.size(), FlushResult::kMaxFailedKept);
  EXPECT_EQ(result.failed.back().number, works.back().work->number());
  EXPECT_EQ(activation.Flush().failed_total, 0u) << "told once";
}

TEST_P(Ends, ARefusedWorkKeepsNoContext) {
  auto gate = std::make_shared<Timeline>("gate");
  WatchedWork parked, refused;
  std::weak_ptr<EvalContext> weak;
  {
    const auto context = NewContext({.max_pending = 1});
    weak = context;
    Activation activation = Enter(context);
    Prepare(parked);
    Prepare(refused);
    parked.request().after = {Point{gate, 1}};
    activation.Submit(parked.work.get(), &parked.waiter);
    activation.Submit(refused.work.get(), &refused.waiter);
    EXPECT_EQ(Reason(refused.Done()), "CONTEXT_FULL");
    ASSERT_TRUE(gate->Advance(1).ok());
    ASSERT_TRUE(parked.Done().ok());
  }
  EXPECT_TRUE(Eventually([&] { return weak.expired(); }));
}

// Of an engine whose waits are short.
TEST_P(Ends, AWaitWithoutADeadlineEndsAfterTheLongest) {
  auto device = MakeDevice(GetParam(), {.cpu_threads = 2}, *registry_);
  ASSERT_TRUE(device.ok()) << device.status();
  EngineOptions options = SmallEngine();
  options.max_wait = absl::Milliseconds(20);
  auto engine = Engine::Create(*std::move(device), registry_.get(), options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  auto gate = std::make_shared<Timeline>("gate");
  const auto program =
      Program::Compile(MakeGraph("Neg", 1), (*engine)->device(), *registry_);
  ASSERT_TRUE(program.ok()) << program.status();
  {
    auto activation =
        EvalContext::Create(engine->get(), {})->Enter(NewHandlerId());
    ASSERT_TRUE(activation.ok());
    WatchedWork watched;
    Prepare(watched);
    watched.request().program = *program;
    watched.request().after = {Point{gate, 1}};
    activation->Submit(watched.work.get(), &watched.waiter);
    EXPECT_EQ(watched.Done().code(), absl::StatusCode::kDeadlineExceeded);
  }
  ASSERT_TRUE(gate->Advance(1).ok());
}

// Refuses every plan.
class Refuser final : public WorkObserver {
 public:
  absl::Status OnPlanned(Work&) override {
    return absl::ResourceExhaustedError("it would be too large");
  }
  void OnReturn(Work&) override {}
  void OnLaunch(Work&) override { launched = true; }
  void OnDone(Work&) override { done.Set(); }

  std::atomic<bool> launched = false;
  Event done;
};

TEST_P(Ends, WhatItsObserverRefusesIsNotLaunched) {
  Activation activation = Enter(NewContext());
  Refuser refuser;
  const auto work = std::make_shared<Work>();
  work->request.program = program_;
  work->request.inputs = {Floats(values_)};
  activation.Submit(work.get(), &refuser);
  refuser.done.Wait();
  EXPECT_EQ(work->status(),
            absl::ResourceExhaustedError("it would be too large"));
  EXPECT_FALSE(refuser.launched);
}

TEST_P(Ends, InputsThatAreNotWhatTheProgramTakesAreRefused) {
  Activation activation = Enter(NewContext());
  const auto refused = [&](std::shared_ptr<const Program> program,
                           std::vector<InputSource> inputs) {
    WatchedWork watched;
    watched.request().program = std::move(program);
    watched.request().inputs.assign(inputs.begin(), inputs.end());
    activation.Submit(watched.work.get(), &watched.waiter);
    return watched.Done();
  };
  const auto sum = Compile("Add", 2);
  const absl::Status few = refused(sum, {Floats(values_)});
  EXPECT_EQ(few.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(few.message()).find("2 inputs; 1 were given"),
            std::string::npos)
      << few;
  EXPECT_EQ(
      refused(sum, {Floats(values_), Floats(values_), Floats(values_)}).code(),
      absl::StatusCode::kInvalidArgument);
  for (const size_t bytes : {size_t{8}, size_t{16}}) {
    const std::vector<float> four(4);
    InputSource source = Floats(values_);
    source.pieces = {
        std::string_view(reinterpret_cast<const char*>(four.data()), bytes)};
    const absl::Status status = refused(program_, {source});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bytes;
    EXPECT_NE(std::string(status.message()).find("its type and shape need 12"),
              std::string::npos)
        << status;
  }
}

TEST_P(Ends, AValueThatCannotBeSignalledFailsItsWork) {
  auto gate = std::make_shared<Timeline>("gate");
  auto told = std::make_shared<Timeline>("told");
  Activation activation = Enter(NewContext());
  WatchedWork watched;
  Prepare(watched);
  watched.request().after = {Point{gate, 1}};
  watched.request().signal = {{told, 1}};
  activation.Submit(watched.work.get(), &watched.waiter);
  ASSERT_TRUE(told->Advance(2).ok());
  ASSERT_TRUE(gate->Advance(1).ok());
  const absl::Status status = watched.Done();
  EXPECT_FALSE(status.ok());
  EXPECT_NE(std::string(status.message()).find("the signal after the work"),
            std::string::npos)
      << status;
}

TEST_P(Ends, ACancelledWorkIsUsedAgain) {
  auto gate = std::make_shared<Timeline>("gate");
  Activation activation = Enter(NewContext());
  WatchedWork watched;
  Prepare(watched);
  watched.request().after = {Point{gate, 1}};
  activation.Submit(watched.work.get(), &watched.waiter);
  watched.work->Cancel();
  EXPECT_TRUE(absl::IsCancelled(watched.Done()));
  ASSERT_TRUE(gate->Advance(1).ok());
  watched.waiter.Reset();
  activation.Submit(watched.work.get(), &watched.waiter);
  EXPECT_EQ(watched.Done(), absl::OkStatus());
}

}  // namespace
}  // namespace weir
