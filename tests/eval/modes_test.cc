// The four evaluation modes: when a call returns, and what it may then say.
#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

#include "kernels/base/error_info.h"
#include "tests/base/eventually.h"
#include "tests/conformance/hold_operator.h"
#include "tests/eval/eval_fixture.h"

namespace weir {
namespace {

class Modes : public EvalTest {};
WEIR_EVAL_ON_EVERY_DEVICE(Modes);

TEST_P(Modes, ReadingAnOutputInlineWaitsForItInEveryMode) {
  auto program = Compile("Add", 2);
  auto context = NewContext();
  Activation activation = Enter(context);
  const std::vector<float> a = {1, 2, 3}, b = {10, 20, 30};
  for (EvalMode mode : {EvalMode::kDeferred, EvalMode::kEager,
                        EvalMode::kSyncCpu, EvalMode::kSyncFull}) {
    WatchedWork watched;
    watched.request().program = program;
    watched.request().inputs = {Floats(a), Floats(b)};
    watched.request().mode = mode;
    activation.Defer(watched.work, &watched.waiter);
    ASSERT_TRUE(watched.Returned().ok());
    ASSERT_TRUE(watched.Done().ok());
    EXPECT_EQ(watched.work->state(), WorkState::kCompleted);
    EXPECT_EQ(Result(*watched.work), std::vector<float>({11, 22, 33}));
    EXPECT_EQ(watched.work->report().wait, WaitKind::kRecord);
    EXPECT_GT(watched.work->report().sequence, 0u);
  }
}

TEST_P(Modes, EagerReturnsBeforeAParkedWorkRuns) {
  auto program = Compile("Neg", 1);
  auto context = NewContext();
  Activation activation = Enter(context);
  const TimelineOwner caller{TimelineOwner::Kind::kCaller, 7};
  auto gate = std::make_shared<Timeline>("gate", nullptr, caller);
  const std::vector<float> a = {1, 2};
  WatchedWork watched;
  watched.request().program = program;
  watched.request().inputs = {Floats(a)};
  watched.request().outputs = {OutputWish::kKeep};
  watched.request().after = {Point{gate, 1}};
  activation.Submit(watched.work.get(), &watched.waiter);
  ASSERT_TRUE(watched.Returned().ok());
  EXPECT_EQ(watched.work->state(), WorkState::kCommitted);
  EXPECT_EQ(engine_->streams().stats().leased, 0u)
      << "a parked work holds no lane";
  // It returns before it is parked; only then its wait is one of the host.
  ASSERT_TRUE(
      testing::Eventually([&] { return engine_->dispatcher().parked() == 1; }));
  ASSERT_TRUE(gate->Advance(1).ok());
  ASSERT_TRUE(watched.Done().ok());
  const SyncReport& report = watched.work->report();
  EXPECT_EQ(report.state, WorkState::kCompleted);
  EXPECT_EQ(report.wait, WaitKind::kNone) << "nobody waited for it";
  ASSERT_EQ(report.waits.size(), 1u);
  EXPECT_EQ(report.waits[0].kind, InsertedWait::Kind::kHost);
  EXPECT_EQ(report.waits[0].from, caller);
  EXPECT_EQ(report.waits[0].from_value, 1u);
}

// However the work was used before: while somebody waits for it, they stay.
TEST_P(Modes, EagerReadsItsInputAsItWasWhenItReturned) {
  auto program = Compile("Neg", 1);
  Activation activation = Enter(NewContext());
  auto gate = std::make_shared<Timeline>(
      "gate", nullptr, TimelineOwner{TimelineOwner::Kind::kCaller, 7});
  std::vector<float> values = {1, 2};
  WatchedWork watched;
  watched.request().program = program;
  watched.request().inputs = {Floats(values)};
  watched.request().outputs = {OutputWish::kInline};
  activation.Submit(watched.work.get(), &watched.waiter);
  ASSERT_TRUE(watched.Done().ok());
  watched.waiter.Reset();
  watched.request().inputs = {Floats(values)};
  watched.request().outputs = {OutputWish::kKeep};
  watched.request().mode = EvalMode::kEager;
  watched.request().after = {Point{gate, 1}};
  activation.Submit(watched.work.get(), &watched.waiter);
  ASSERT_TRUE(watched.Returned().ok());
  values = {7, 8};
  ASSERT_TRUE(gate->Advance(1).ok());
  ASSERT_TRUE(watched.Done().ok());
  WatchedWork reader;
  reader.request().program = program;
  reader.request().inputs.resize(1);
  reader.request().inputs[0].tensor = watched.work->OutputTensor(0);
  activation.Submit(reader.work.get(), &reader.waiter);
  ASSERT_TRUE(reader.Done().ok());
  EXPECT_EQ(Result(*reader.work), std::vector<float>({1, 2}));
}

TEST_P(Modes, EagerFindsABadShapeAtOnceAndSyncModesTheSame) {
  auto program = Compile("Add", 2);
  auto context = NewContext();
  Activation activation = Enter(context);
  const std::vector<float> a = {1, 2, 3}, b = {1, 2};
  for (EvalMode mode :
       {EvalMode::kEager, EvalMode::kSyncCpu, EvalMode::kSyncFull}) {
    WatchedWork watched;
    watched.request().program = program;
    watched.request().inputs = {Floats(a), Floats(b)};
    watched.request().outputs = {OutputWish::kKeep};
    watched.request().mode = mode;
    activation.Submit(watched.work.get(), &watched.waiter);
    const absl::Status status = watched.Returned();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(std::string(status.message()).find("the_node"), std::string::npos)
        << status;
    EXPECT_EQ(watched.Done(), status);
  }
}

// Its characters lie in the work's input, which ends with it.
TEST_P(Modes, TextIsNotKept) {
  if (GetParam() != std::string("cpu")) {
    GTEST_SKIP() << "programs of text run on the CPU";
  }
  Graph graph = MakeGraph("Identity", 1);
  graph.inputs[0].dtype = DType::kString;
  auto program = Compile(std::move(graph));
  auto context = NewContext();
  Activation activation = Enter(context);
  const StringRef text = {"some text", 9};
  for (const OutputWish wish : {OutputWish::kKeep, OutputWish::kInline}) {
    WatchedWork watched;
    watched.request().program = program;
    InputSource& input = watched.request().inputs.emplace_back();
    input.dtype = DType::kString;
    input.dims = {1};
    input.pieces = {
        std::string_view(reinterpret_cast<const char*>(&text), sizeof(text))};
    watched.request().outputs = {wish};
    activation.Submit(watched.work.get(), &watched.waiter);
    const absl::Status status = watched.Done();
    EXPECT_EQ(absl::IsUnimplemented(status), wish == OutputWish::kKeep)
        << status;
  }
}

// Notes how far a work has come when its call returns.
class AtReturn final : public WorkObserver {
 public:
  void OnReturn(Work& work) override {
    state = work.state();
    waiter.OnReturn(work);
  }
  void OnDone(Work& work) override { waiter.OnDone(work); }

  std::atomic<WorkState> state{WorkState::kNotEnqueued};
  WorkWaiter waiter;
};

// Which on the CPU is what it computes as well; on a GPU it is held there.
TEST_P(Modes, SyncCpuReturnsOnceLaunched) {
  HoldOperator hold;
  ASSERT_TRUE(hold.Register(*registry_).ok());
  auto program = Compile("Hold", 1, {}, "weir");
  if (engine_->device().host_addressable()) hold.Open();
  auto context = NewContext();
  Activation activation = Enter(context);
  const std::vector<float> a = {4};
  Work work;
  work.request.program = program;
  work.request.inputs = {Floats(a)};
  work.request.outputs = {OutputWish::kKeep};
  work.request.mode = EvalMode::kSyncCpu;
  AtReturn watched;
  activation.Submit(&work, &watched);
  EXPECT_EQ(watched.waiter.WaitReturned(work), absl::OkStatus());
  EXPECT_EQ(watched.state, WorkState::kScheduled);
  hold.Open();
  ASSERT_EQ(watched.waiter.WaitDone(work), absl::OkStatus());
}

TEST_P(Modes, DeferredRunsAtFlushAndDropsWhatNobodyHolds) {
  auto program = Compile("Neg", 1);
  auto context = NewContext();
  Activation activation = Enter(context);
  const std::vector<float> a = {4};
  WatchedWork kept, unread;
  for (WatchedWork* watched : {&kept, &unread}) {
    watched->request().program = program;
    watched->request().inputs = {Floats(a)};
    watched->request().outputs = {OutputWish::kKeep};
    watched->request().mode = EvalMode::kDeferred;
    activation.Defer(watched->work, &watched->waiter);
    ASSERT_TRUE(watched->Returned().ok());
    EXPECT_EQ(watched->work->state(), WorkState::kNotEnqueued);
  }
  EXPECT_EQ(context->unfinished(), 0u) << "nothing was launched";
  unread.work = nullptr;
  const FlushResult result = activation.Flush();
  EXPECT_EQ(result.executed.size(), 1u);
  ASSERT_EQ(result.dropped.size(), 1u);
  EXPECT_EQ(result.dropped[0].position, 2u);
  ASSERT_TRUE(kept.Done().ok());
}

TEST_P(Modes, DeferredProducerRunsWhenItsResultIsUsed) {
  auto program = Compile("Neg", 1);
  auto context = NewContext();
  Activation activation = Enter(context);
  const std::vector<float> a = {4, -1};
  WatchedWork producer, consumer;
  producer.request().program = program;
  producer.request().inputs = {Floats(a)};
  producer.request().outputs = {OutputWish::kKeep};
  producer.request().mode = EvalMode::kDeferred;
  activation.Defer(producer.work, &producer.waiter);
  consumer.request().program = program;
  consumer.request().inputs.resize(1);
  consumer.request().inputs[0].producer = producer.work;
  consumer.request().mode = EvalMode::kSyncFull;
  activation.Submit(consumer.work.get(), &consumer.waiter);
  ASSERT_TRUE(consumer.Done().ok());
  EXPECT_EQ(Result(*consumer.work), a);
  EXPECT_EQ(producer.work->state(), WorkState::kCompleted);
}

TEST_P(Modes, ADeferredWorkRunsOnceHoweverManyReadIt) {
  constexpr int kReaders = 32;
  Attributes attributes;
  attributes.Set("shape", std::vector<int64_t>{16});
  WatchedWork producer;
  // Run twice, it would draw other numbers.
  producer.request().program = Compile("RandomUniform", 0, attributes, "weir");
  producer.request().outputs = {OutputWish::kKeep};
  producer.request().mode = EvalMode::kDeferred;
  Activation activation = Enter(NewContext());
  activation.Defer(producer.work, &producer.waiter);
  auto program = Compile("Neg", 1);
  std::barrier<> all(kReaders + 1);
  std::vector<float> found[kReaders];
  std::vector<std::thread> readers;
  for (std::vector<float>& read : found) {
    readers.emplace_back([&] {
      WatchedWork reader;
      reader.request().program = program;
      reader.request().inputs.resize(1);
      reader.request().inputs[0].producer = producer.work;
      Activation own = Enter(NewContext());
      all.arrive_and_wait();
      own.Submit(reader.work.get(), &reader.waiter);
      EXPECT_EQ(reader.Done(), absl::OkStatus());
      read = Result(*reader.work);
    });
  }
  all.arrive_and_wait();
  activation.Flush();
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(producer.Done(), absl::OkStatus());
  EXPECT_EQ(found[0].size(), 16u);
  for (const std::vector<float>& read : found) EXPECT_EQ(read, found[0]);
}

TEST_P(Modes, FailuresThatNobodyWaitedForAreListedByFlush) {
  Attributes report;
  report.Set("mode", std::string("report"));
  auto program = Compile("Fault", 1, report, "weir");
  auto context = NewContext();
  Activation activation = Enter(context);
  const std::vector<float> a = {1};
  WatchedWork watched;
  watched.request().program = program;
  watched.request().inputs = {Floats(a)};
  watched.request().outputs = {OutputWish::kKeep};
  watched.request().label = "doomed";
  activation.Submit(watched.work.get(), &watched.waiter);
  EXPECT_TRUE(watched.Returned().ok());
  EXPECT_FALSE(watched.Done().ok());
  const FlushResult result = activation.Flush();
  ASSERT_EQ(result.failed.size(), 1u);
  EXPECT_EQ(result.failed[0].label, "doomed");
  EXPECT_EQ(result.failed[0].status.code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(activation.Flush().failed.empty()) << "told once";
}

TEST_P(Modes, TheSameSeedGivesTheSameNumbersAndContextsDiffer) {
  Attributes attributes;
  attributes.Set("shape", std::vector<int64_t>{16});
  auto program = Compile("RandomUniform", 0, attributes, "weir");
  auto draw = [&](Activation& activation, std::optional<uint64_t> seed) {
    WatchedWork watched;
    watched.request().program = program;
    watched.request().seed = seed;
    activation.Submit(watched.work.get(), &watched.waiter);
    EXPECT_TRUE(watched.Done().ok()) << watched.work->status();
    return Result(*watched.work);
  };
  Activation a = Enter(NewContext({.rng = {.seed = 7}}));
  Activation b = Enter(NewContext({.rng = {.seed = 7}}));
  const auto a1 = draw(a, std::nullopt), a2 = draw(a, std::nullopt);
  EXPECT_NE(a1, a2) << "the position moves on";
  EXPECT_EQ(draw(b, std::nullopt), a1);
  EXPECT_EQ(draw(a, 99), draw(b, 99));
  EXPECT_EQ(draw(b, std::nullopt), a2) << "a given seed moves nothing";
  EXPECT_EQ(b.context().rng().position, 2u);
  b.set_rng({.seed = 7, .position = 1});
  EXPECT_EQ(draw(b, std::nullopt), a2) << "it goes on from anywhere";
  b.set_rng(a.context().rng());
  EXPECT_EQ(draw(b, std::nullopt), draw(a, std::nullopt));
}

TEST_P(Modes, SyncFullReturnsOnceCompletedThoughNothingIsRead) {
  const std::vector<float> values = {1, 2, 3};
  Activation activation = Enter(NewContext());
  WatchedWork watched;
  watched.request().program = Compile("Neg", 1);
  watched.request().inputs = {Floats(values)};
  watched.request().outputs = {OutputWish::kKeep};
  watched.request().mode = EvalMode::kSyncFull;
  activation.Submit(watched.work.get(), &watched.waiter);
  ASSERT_TRUE(watched.Done().ok());
  EXPECT_EQ(watched.work->report().wait, WaitKind::kRecord);
}

}  // namespace
}  // namespace weir
