// What waits for what: works of other contexts, their points and their signals,
// without the host where both ends are on the device; deadlines behind waits;
// and who else is told of a work.
#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/base/event.h"
#include "tests/base/eventually.h"
#include "tests/eval/eval_fixture.h"
#include "tests/graph/copy_operator.h"

namespace weir {
namespace {

class Dependencies : public EvalTest {
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
  // Reads what `producer` makes.
  void PrepareReader(WatchedWork& watched, const WatchedWork& producer) {
    watched.request().program = program_;
    watched.request().inputs.resize(1);
    watched.request().inputs[0].producer = producer.work;
  }

  std::shared_ptr<const Program> program_;
  const std::vector<float> values_ = {1, 2, 3};
};
WEIR_EVAL_ON_EVERY_DEVICE(Dependencies);

TEST_P(Dependencies, AReaderInAnotherContextWaitsForItsProducer) {
  auto gate = std::make_shared<Timeline>("gate");
  Activation a = Enter(NewContext());
  Activation b = Enter(NewContext());
  WatchedWork producer, reader;
  Prepare(producer);
  producer.request().after = {Point{gate, 1}};
  PrepareReader(reader, producer);
  a.Submit(producer.work.get(), &producer.waiter);
  b.Submit(reader.work.get(), &reader.waiter);
  EXPECT_FALSE(reader.work->done());
  ASSERT_TRUE(gate->Advance(1).ok());
  ASSERT_TRUE(reader.Done().ok()) << reader.work->status();
  EXPECT_EQ(Result(*reader.work), values_);
  EXPECT_TRUE(producer.Done().ok());
}

// Its block was another context's, and is written whole, not zeroed.
TEST_P(Dependencies, AKeptTensorShowsNothingOfWhoHadItsMemory) {
  const std::vector<float> theirs(999, 7), ours(999, 3);
  const std::byte* block = nullptr;
  for (const std::vector<float>* values : {&theirs, &ours}) {
    Activation activation = Enter(NewContext());
    WatchedWork producer, reader;
    Prepare(producer);
    producer.request().inputs = {Floats(*values)};
    PrepareReader(reader, producer);
    activation.Submit(producer.work.get(), &producer.waiter);
    activation.Submit(reader.work.get(), &reader.waiter);
    ASSERT_TRUE(reader.Done().ok()) << reader.work->status();
    EXPECT_EQ(Result(*reader.work), *values);
    const Tensor kept = producer.work->OutputTensor(0);
    if (block != nullptr) {
      EXPECT_EQ(kept.data(), block) << "it has memory of its own";
    }
    block = kept.data();
  }
}

// Freed by one context while two others are to read it, on streams of their
// own: whoever makes tensors meanwhile gets other memory.
TEST_P(Dependencies, FreedMemoryIsNotUsedAgainBeforeItsReadersAreDone) {
  Activation makes = Enter(NewContext());
  const auto make = [&](const std::vector<float>& values) {
    WatchedWork maker;
    Prepare(maker);
    maker.request().inputs = {Floats(values)};
    makes.Submit(maker.work.get(), &maker.waiter);
    EXPECT_TRUE(maker.Done().ok()) << maker.work->status();
    return maker.work->OutputTensor(0);
  };
  const std::vector<float> theirs(999, 7), others(999, 3);
  std::optional<Tensor> kept = make(theirs);
  const std::byte* const block = kept->data();
  auto gate = std::make_shared<Timeline>("gate");
  WatchedWork readers[2];
  std::vector<Activation> inside;
  for (uint64_t i = 0; i < 2; ++i) {
    readers[i].request().program = program_;
    readers[i].request().inputs.resize(1);
    readers[i].request().inputs[0].tensor = *kept;
    readers[i].request().after = {Point{gate, i + 1}};
    inside.push_back(Enter(NewContext()));
    inside[i].Submit(readers[i].work.get(), &readers[i].waiter);
  }
  kept.reset();
  std::vector<Tensor> made;
  for (uint64_t i = 0; i < 2; ++i) {
    made.push_back(make(others));
    EXPECT_NE(made.back().data(), block);
    ASSERT_TRUE(gate->Advance(i + 1).ok());
    ASSERT_TRUE(readers[i].Done().ok()) << readers[i].work->status();
    EXPECT_EQ(Result(*readers[i].work), theirs);
  }
  for (WatchedWork& reader : readers) reader.request().inputs.clear();
  EXPECT_TRUE(testing::Eventually([&] {
    made.push_back(make(others));
    return made.back().data() == block;
  })) << "it is free then";
}

TEST_P(Dependencies, AReaderInAnotherContextFailsWithItsProducer) {
  auto gate = std::make_shared<Timeline>("gate");
  Activation a = Enter(NewContext());
  Activation b = Enter(NewContext());
  WatchedWork producer, reader;
  Prepare(producer);
  producer.request().after = {Point{gate, 1}};
  PrepareReader(reader, producer);
  a.Submit(producer.work.get(), &producer.waiter);
  b.Submit(reader.work.get(), &reader.waiter);
  ASSERT_TRUE(gate->Advance(1, absl::DataLossError("broken")).ok());
  EXPECT_EQ(reader.Done().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(producer.Done().code(), absl::StatusCode::kDataLoss);
}

TEST_P(Dependencies, AReaderHasAProducerRunThatAnotherContextDefers) {
  Activation a = Enter(NewContext());
  Activation b = Enter(NewContext());
  WatchedWork producer, reader;
  Prepare(producer);
  producer.request().mode = EvalMode::kDeferred;
  PrepareReader(reader, producer);
  a.Defer(producer.work, &producer.waiter);
  b.Submit(reader.work.get(), &reader.waiter);
  ASSERT_TRUE(reader.Done().ok()) << reader.work->status();
  EXPECT_TRUE(producer.Done().ok());
  EXPECT_EQ(Result(*reader.work), values_);
}

TEST_P(Dependencies, ADeadlineActsBehindAnotherWorksWait) {
  auto gate = std::make_shared<Timeline>("gate");
  Activation activation = Enter(NewContext());
  WatchedWork parked, late, behind;
  Prepare(parked);
  Prepare(late);
  Prepare(behind);
  parked.request().after = {Point{gate, 1}};
  late.request().deadline = NowNanos() + 5'000'000;
  activation.Submit(parked.work.get(), &parked.waiter);
  activation.Submit(late.work.get(), &late.waiter);
  activation.Submit(behind.work.get(), &behind.waiter);
  EXPECT_EQ(late.Done().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(parked.work->done());
  EXPECT_FALSE(behind.work->done());
  ASSERT_TRUE(gate->Advance(1).ok());
  EXPECT_TRUE(parked.Done().ok());
  EXPECT_TRUE(behind.Done().ok());
}

TEST_P(Dependencies, WorksOfDifferentDeadlinesAreJoined) {
  const auto graph = std::make_shared<const Graph>(MakeGraph("Neg", 1));
  Activation activation = Enter(NewContext());
  const Nanos hour = NowNanos() + absl::ToInt64Nanoseconds(absl::Hours(1));
  std::deque<WatchedWork> works(3);
  for (size_t i = 0; i < works.size(); ++i) {
    Prepare(works[i]);
    works[i].request().graph = graph;
    works[i].request().mode = EvalMode::kDeferred;
    works[i].request().deadline = hour + static_cast<Nanos>(i);
    activation.Defer(works[i].work, &works[i].waiter);
  }
  activation.Flush();
  for (WatchedWork& watched : works) {
    ASSERT_TRUE(watched.Done().ok()) << watched.work->status();
    EXPECT_EQ(watched.work->report().joined_works, 3u);
  }
}

TEST_P(Dependencies, OneThatIsLateLeavesTheOthersOfAJoinedWork) {
  const auto graph = std::make_shared<const Graph>(MakeGraph("Neg", 1));
  auto gate = std::make_shared<Timeline>("gate");
  Activation activation = Enter(NewContext());
  WatchedWork parked;
  Prepare(parked);
  parked.request().after = {Point{gate, 1}};
  activation.Submit(parked.work.get(), &parked.waiter);
  std::deque<WatchedWork> works(3);
  for (WatchedWork& watched : works) {
    Prepare(watched);
    watched.request().graph = graph;
    watched.request().mode = EvalMode::kDeferred;
  }
  works[1].request().deadline = NowNanos() + 50'000'000;
  for (WatchedWork& watched : works) {
    activation.Defer(watched.work, &watched.waiter);
  }
  activation.Flush();
  EXPECT_EQ(works[1].Done().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(works[0].work->done());
  ASSERT_TRUE(gate->Advance(1).ok());
  EXPECT_TRUE(parked.Done().ok());
  EXPECT_TRUE(works[0].Done().ok()) << works[0].work->status();
  EXPECT_TRUE(works[2].Done().ok()) << works[2].work->status();
}

TEST_P(Dependencies, ARefusedRandomWorkDrawsNoSeed) {
  auto gate = std::make_shared<Timeline>("gate");
  Attributes shape;
  shape.Set("shape", std::vector<int64_t>{4});
  const auto random = Compile("RandomUniform", 0, shape, "weir");
  const auto draw = [&](bool refused_before) {
    Activation activation = Enter(NewContext({.rng = {7}, .max_pending = 1}));
    if (refused_before) {
      WatchedWork parked, refused;
      Prepare(parked);
      parked.request().after = {Point{gate, gate->value() + 1}};
      activation.Submit(parked.work.get(), &parked.waiter);
      refused.request().program = random;
      activation.Submit(refused.work.get(), &refused.waiter);
      EXPECT_EQ(Reason(refused.Done()), "CONTEXT_FULL");
      EXPECT_TRUE(gate->Advance(gate->value() + 1).ok());
      EXPECT_TRUE(parked.Done().ok());
    }
    WatchedWork drawn;
    drawn.request().program = random;
    // Its place may still be taken by the one before.
    while (true) {
      drawn.waiter.Reset();
      activation.Submit(drawn.work.get(), &drawn.waiter);
      if (Reason(drawn.Done()) != "CONTEXT_FULL") break;
    }
    EXPECT_TRUE(drawn.Done().ok()) << drawn.work->status();
    return drawn.work->seed();
  };
  EXPECT_EQ(draw(true), draw(false));
}

// Two engines, as a process has that serves several devices.
TEST_P(Dependencies, ProgramsAndTensorsOfAnotherDeviceAreRefusedByName) {
  auto device = MakeDevice("cpu", {.cpu_threads = 1}, *registry_);
  ASSERT_TRUE(device.ok()) << device.status();
  auto other = Engine::Create(*std::move(device), registry_.get(), {});
  ASSERT_TRUE(other.ok()) << other.status();
  const auto there =
      Program::Compile(MakeGraph("Neg", 1), (*other)->device(), *registry_);
  ASSERT_TRUE(there.ok()) << there.status();
  {
    Activation a = Enter(NewContext());
    WatchedWork foreign;
    Prepare(foreign);
    foreign.request().program = *there;
    a.Submit(foreign.work.get(), &foreign.waiter);
    EXPECT_EQ(Reason(foreign.Done()), "WRONG_DEVICE");
    EXPECT_EQ(foreign.Done().code(), absl::StatusCode::kFailedPrecondition);

    // Nor is a graph joined of them.
    WatchedWork deferred[2];
    for (WatchedWork& work : deferred) {
      Prepare(work);
      work.request().program = *there;
      work.request().graph = std::make_shared<const Graph>(MakeGraph("Neg", 1));
      work.request().mode = EvalMode::kDeferred;
      work.request().outputs = {OutputWish::kKeep};
      a.Defer(work.work, &work.waiter);
    }
    a.Flush();
    for (WatchedWork& work : deferred) {
      EXPECT_EQ(Reason(work.Done()), "WRONG_DEVICE");
    }

    Activation b = Enter(EvalContext::Create(other->get(), {}));
    WatchedWork producer, tensor, reader;
    Prepare(producer);
    producer.request().program = *there;
    b.Submit(producer.work.get(), &producer.waiter);
    ASSERT_TRUE(producer.Done().ok()) << producer.work->status();
    Prepare(tensor);
    tensor.request().inputs = {InputSource()};
    tensor.request().inputs[0].tensor = producer.work->OutputTensor(0);
    a.Submit(tensor.work.get(), &tensor.waiter);
    EXPECT_EQ(Reason(tensor.Done()), "WRONG_DEVICE");
    PrepareReader(reader, producer);
    a.Submit(reader.work.get(), &reader.waiter);
    EXPECT_EQ(Reason(reader.Done()), "WRONG_DEVICE");
  }
}

TEST_P(Dependencies, WatchersAreToldEachStateInOrder) {
  auto gate = std::make_shared<Timeline>("gate");
  Activation activation = Enter(NewContext());
  WatchedWork watched;
  Prepare(watched);
  watched.request().after = {Point{gate, 1}};
  activation.Submit(watched.work.get(), &watched.waiter);
  std::vector<WorkState> first, second;
  const uint64_t one =
      watched.work->Watch([&](WorkState state) { first.push_back(state); });
  const uint64_t two =
      watched.work->Watch([&](WorkState state) { second.push_back(state); });
  ASSERT_NE(one, 0u);
  ASSERT_NE(two, one);
  watched.work->Unwatch(two);
  ASSERT_TRUE(gate->Advance(1).ok());
  ASSERT_TRUE(watched.Done().ok());
  ASSERT_FALSE(first.empty());
  EXPECT_TRUE(std::is_sorted(first.begin(), first.end()));
  EXPECT_EQ(std::adjacent_find(first.begin(), first.end()), first.end());
  EXPECT_LT(first.front(), WorkState::kScheduled);
  EXPECT_EQ(first.back(), WorkState::kCompleted);
  ASSERT_EQ(second.size(), 1u) << "what it was in when the watch began";
  EXPECT_LT(second.front(), WorkState::kScheduled);
  EXPECT_EQ(watched.work->Watch([](WorkState) { FAIL(); }), 0u);
}

TEST_P(Dependencies, AWatcherMayHoldTheWork) {
  std::weak_ptr<Work> weak;
  Event ended;
  {
    Activation activation = Enter(NewContext());
    auto gate = std::make_shared<Timeline>("gate");
    WatchedWork watched;
    weak = watched.work;
    Prepare(watched);
    watched.request().after = {Point{gate, 1}};
    activation.Submit(watched.work.get(), &watched.waiter);
    watched.work->Watch([&ended, held = watched.work](WorkState state) {
      if (state == WorkState::kCompleted) ended.Set();
    });
    ASSERT_TRUE(gate->Advance(1).ok());
    ended.Wait();
    ASSERT_TRUE(watched.Done().ok());
  }
  EXPECT_TRUE(testing::Eventually([&] { return weak.expired(); }));
}

// -- On the device ------------------------------------------------------------

// Shut, what runs waits there.
struct Gate {
  Event begun;
  std::atomic<Event*> open = nullptr;  // null: it stands open
};

class GatePlan final : public KernelPlan {
 public:
  GatePlan(Gate* gate, size_t bytes) : gate_(gate), bytes_(bytes) {}
  absl::Status Run(const RunArgs& run) const override {
    gate_->begun.Set();
    if (Event* const open = gate_->open) open->Wait();
    return run.stream.CopyOnDevice(run.outputs[0], run.inputs[0], bytes_);
  }

 private:
  Gate* const gate_;
  const size_t bytes_;
};

class GateKernel final : public Kernel {
 public:
  explicit GateKernel(Gate* gate) : gate_(gate) {}
  absl::StatusOr<std::unique_ptr<const KernelPlan>> Plan(
      const PlanArgs& args) const override {
    return std::make_unique<const GatePlan>(gate_, args.outputs[0].bytes);
  }

 private:
  Gate* const gate_;
};

// A producer is on the device for as long as the test wants.
class OnDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(registry_
                    ->Register(testing::CopyDef("Gate"),
                               [this](const NodeInfo&, Device&) {
                                 return std::make_unique<GateKernel>(&gate_);
                               })
                    .ok());
    EngineOptions options;
    options.inline_below = absl::Hours(1);
    auto engine =
        Engine::Create(MakeCpuDevice({.cpu_threads = 4, .streams_wait = true}),
                       registry_.get(), options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    gated_ = Compile("Gate", "weir");
    identity_ = Compile("Identity", "");
    // With their plans made they are launched within Submit.
    for (const auto& program : {gated_, identity_}) {
      for (int i = 0; i < 3; ++i) {
        WatchedWork first;
        Prepare(first, program);
        Activation activation = Enter();
        activation.Submit(first.work.get(), &first.waiter);
        ASSERT_TRUE(first.Done().ok()) << first.work->status();
      }
    }
    gate_.open = &open_;
    Prepare(producer_, gated_);
    producer_.request().outputs = {OutputWish::kKeep};
    producer_.request().signal = {Signal{signal_, 5}, Signal{other_signal_, 2}};
    in_ = Enter();
    in_.Submit(producer_.work.get(), &producer_.waiter);
  }
  void TearDown() override {
    open_.Set();
    if (!in_) return;
    EXPECT_TRUE(producer_.Done().ok()) << producer_.work->status();
  }

  Activation Enter() {
    return *EvalContext::Create(engine_.get(), {})->Enter(NewHandlerId());
  }

  std::shared_ptr<const Program> Compile(std::string op, std::string domain) {
    auto program =
        Program::Compile(MakeGraph(std::move(op), 1, {}, std::move(domain)),
                         engine_->device(), *registry_);
    EXPECT_TRUE(program.ok()) << program.status();
    return *std::move(program);
  }

  void Prepare(WatchedWork& watched, std::shared_ptr<const Program> program) {
    watched.request().program = std::move(program);
    watched.request().inputs = {Floats(values_)};
  }

  class Observer final : public WorkObserver {
   public:
    void OnReturn(Work&) override {}
    void OnLaunch(Work&) override { launched.Set(); }
    void OnDone(Work&) override { done.Set(); }
    Event launched, done;
  };

  // Launched while the producer runs, and done after it.
  void ExpectDeviceSideWait(WatchedWork& reader) {
    Observer observer;
    Activation activation = Enter();
    activation.Submit(reader.work.get(), &observer);
    EXPECT_TRUE(
        testing::Eventually([&] { return observer.launched.count() > 0; }));
    EXPECT_FALSE(reader.work->done());
    open_.Set();
    observer.done.Wait();
    EXPECT_TRUE(reader.work->status().ok()) << reader.work->status();
    const SyncReport& report = reader.work->report();
    ASSERT_EQ(report.waits.size(), 1u);
    EXPECT_EQ(report.waits[0].kind, InsertedWait::Kind::kDevice);
  }

  Gate gate_;
  Event open_;
  const std::vector<float> values_ = {1, 2, 3};
  const std::unique_ptr<OpRegistry> registry_ = MakeOpRegistry();
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<const Program> gated_, identity_;
  const std::shared_ptr<Timeline> signal_ =
      std::make_shared<Timeline>("signal");
  const std::shared_ptr<Timeline> other_signal_ =
      std::make_shared<Timeline>("other signal");
  WatchedWork producer_;
  Activation in_;
};

TEST_F(OnDevice, APointOfAnotherContextIsWaitedForThere) {
  WatchedWork reader;
  Prepare(reader, identity_);
  reader.request().after = {producer_.work->point()};
  ExpectDeviceSideWait(reader);
}

TEST_F(OnDevice, ASignalIsWaitedForThere) {
  WatchedWork reader;
  Prepare(reader, identity_);
  reader.request().after = {Point{signal_, 5}};
  ExpectDeviceSideWait(reader);
}

TEST_F(OnDevice, ASecondSignalIsWaitedForThere) {
  WatchedWork reader;
  Prepare(reader, identity_);
  reader.request().after = {Point{other_signal_, 2}};
  ExpectDeviceSideWait(reader);
}

TEST_F(OnDevice, AProducerOfAnotherContextIsWaitedForThere) {
  WatchedWork reader;
  Prepare(reader, identity_);
  reader.request().inputs[0] = InputSource();
  reader.request().inputs[0].producer = producer_.work;
  ExpectDeviceSideWait(reader);
}

TEST_F(OnDevice, APointThatADeferredWorkHadBeforeIsWaitedForThere) {
  open_.Set();
  ASSERT_TRUE(producer_.Done().ok());
  Event open;
  gate_.open = &open;
  WatchedWork deferred, reader;
  Prepare(deferred, gated_);
  deferred.request().outputs = {OutputWish::kKeep};
  deferred.request().mode = EvalMode::kDeferred;
  in_.Defer(deferred.work, &deferred.waiter);
  const Point point = deferred.work->point();
  in_.Flush();
  EXPECT_FALSE(point.OnDevice(&engine_->device()).is_null());
  open.Set();
  EXPECT_TRUE(deferred.Done().ok()) << deferred.work->status();
}

// A value that nobody announced has an outcome of its own.
TEST_F(OnDevice, AValueBelowASignalWaitsForTheHost) {
  WatchedWork reader;
  Prepare(reader, identity_);
  reader.request().after = {Point{signal_, 4}};
  Activation activation = Enter();
  activation.Submit(reader.work.get(), &reader.waiter);
  open_.Set();
  ASSERT_TRUE(reader.Done().ok()) << reader.work->status();
  EXPECT_EQ(reader.work->report().waits[0].kind, InsertedWait::Kind::kHost);
}

TEST_F(OnDevice, AWaitIsNoTimeThatTheProgramTook) {
  WatchedWork alone, reader;
  Prepare(alone, identity_);
  Activation activation = Enter();
  activation.Submit(alone.work.get(), &alone.waiter);
  ASSERT_TRUE(alone.Done().ok()) << alone.work->status();
  const int64_t measured = alone.work->plan()->measured_ns();
  Prepare(reader, identity_);
  reader.request().after = {producer_.work->point()};
  ExpectDeviceSideWait(reader);
  EXPECT_EQ(reader.work->plan()->measured_ns(), measured);
}

// Its thread would wait for the producer.
TEST_F(OnDevice, AWorkThatWaitsThereDoesNotRunInTheCallersThread) {
  WatchedWork reader;
  Prepare(reader, identity_);
  reader.request().after = {producer_.work->point()};
  Activation activation = Enter();
  std::atomic<bool> returned = false;
  std::thread caller([&] {
    activation.Submit(reader.work.get(), &reader.waiter);
    returned = true;
  });
  EXPECT_TRUE(testing::Eventually([&] { return returned.load(); }));
  EXPECT_FALSE(reader.work->done());
  open_.Set();
  caller.join();
  EXPECT_TRUE(reader.Done().ok()) << reader.work->status();
}

}  // namespace
}  // namespace weir
