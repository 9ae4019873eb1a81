// Which thread launches a work, and how much of a lane's queue it may fill, on
// a device that is apart from the host. Whoever enqueues a work there may be
// held, as in a driver whose queue is full.
#include <atomic>
#include <functional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "tests/base/event.h"
#include "tests/base/eventually.h"
#include "tests/device/fault_injecting_device.h"
#include "tests/eval/eval_fixture.h"
#include "tests/graph/copy_operator.h"

namespace weir {
namespace {

using testing::Eventually;

// Copies, and says that it computes on the host, in parts.
class HostPlan final : public KernelPlan {
 public:
  explicit HostPlan(size_t bytes) : bytes_(bytes) {}
  bool computes_on_host() const override { return true; }
  absl::Status Run(const RunArgs& run) const override {
    for (int part = 1; part < kParts; ++part) {
      if (run.pace != nullptr) WEIR_RETURN_IF_ERROR((*run.pace)());
    }
    return run.stream.CopyOnDevice(run.outputs[0], run.inputs[0], bytes_);
  }

 private:
  static constexpr int kParts = 10;

  const size_t bytes_;
};

class HostKernel final : public Kernel {
 public:
  absl::StatusOr<std::unique_ptr<const KernelPlan>> Plan(
      const PlanArgs& args) const override {
    return std::make_unique<const HostPlan>(args.outputs[0].bytes);
  }
};

// Waits for memory that it never gets.
class WaitingPlan final : public KernelPlan {
 public:
  bool computes_on_host() const override { return true; }
  absl::Status Run(const RunArgs& run) const override {
    const auto go_on = [&run] {
      return run.go_on != nullptr ? (*run.go_on)()
                                  : absl::InternalError("nobody to ask");
    };
    const auto look = [] { return Awaited::kHost; };
    return run.stream.Await(look, go_on);
  }
};

class WaitingKernel final : public Kernel {
 public:
  absl::StatusOr<std::unique_ptr<const KernelPlan>> Plan(
      const PlanArgs&) const override {
    return std::make_unique<const WaitingPlan>();
  }
};

class Launch : public ::testing::Test {
 protected:
  explicit Launch(bool far = true) : registry_(MakeOpRegistry()) {
    EXPECT_TRUE(registry_
                    ->Register(testing::CopyDef("OnHost"),
                               [](const NodeInfo&, Device&) {
                                 return std::make_unique<const HostKernel>();
                               })
                    .ok());
    EXPECT_TRUE(registry_
                    ->Register(testing::CopyDef("Waits"),
                               [](const NodeInfo&, Device&) {
                                 return std::make_unique<const WaitingKernel>();
                               })
                    .ok());
    auto device = std::make_unique<FaultInjectingDevice>(
        MakeCpuDevice({.cpu_threads = 2}));
    device_ = device.get();
    if (far) device_->set_takes_copies();
    EngineOptions options;
    options.streams.max = 4;
    options.inline_below = absl::ZeroDuration();
    auto engine = Engine::Create(std::move(device), registry_.get(), options);
    EXPECT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    a_ = Enter();
    b_ = Enter();
  }

  Activation Enter() {
    return *EvalContext::Create(engine_.get(), {})->Enter(NewHandlerId());
  }

  // y = op(op(...(x))), `nodes` of them, each a launch.
  std::shared_ptr<const Program> Compile(int nodes, const std::string& op,
                                         const std::string& domain = "") {
    Graph graph;
    graph.opsets = {{"", 17}, {"weir", 1}};
    graph.inputs = {{"v0", DType::kFloat, SymbolicDims{Dim()}}};
    for (int i = 0; i < nodes; ++i) {
      GraphNode node;
      node.op = op;
      node.domain = domain;
      node.inputs = {absl::StrCat("v", i)};
      node.outputs = {absl::StrCat("v", i + 1)};
      graph.nodes.push_back(std::move(node));
    }
    graph.outputs = {absl::StrCat("v", nodes)};
    auto program =
        Program::Compile(std::move(graph), engine_->device(), *registry_);
    EXPECT_TRUE(program.ok()) << program.status();
    return *std::move(program);
  }

  // The same, and it has run once, so that its plan is there: what is submitted
  // is launched before Submit returns, if nothing holds it back.
  std::shared_ptr<const Program> Chain(int nodes, const std::string& op,
                                       const std::string& domain = "") {
    std::shared_ptr<const Program> program = Compile(nodes, op, domain);
    WatchedWork first;
    Prepare(first, program);
    Activation activation = Enter();
    activation.Submit(first.work.get(), &first.waiter);
    EXPECT_TRUE(first.Done().ok());
    return program;
  }

  void Prepare(WatchedWork& watched, std::shared_ptr<const Program> program) {
    Prepare(watched, std::move(program), values_);
  }
  static void Prepare(WatchedWork& watched,
                      std::shared_ptr<const Program> program,
                      const std::vector<float>& values) {
    watched.request().program = std::move(program);
    watched.request().inputs = {Floats(values)};
  }

  // Whether `call` returns while `hold` lasts, which ends with this.
  static bool ReturnsMeanwhile(FaultInjectingDevice::Hold& hold,
                               const std::function<void()>& call) {
    std::atomic<bool> returned = false;
    std::thread caller([&] {
      call();
      returned = true;
    });
    const bool meanwhile = Eventually([&] { return returned.load(); });
    hold.Release();
    caller.join();
    return meanwhile;
  }

  // Whoever submits `watched` is held with its launch.
  void ExpectSubmitIsHeld(WatchedWork& watched) {
    ExpectSubmitIsHeld(a_, watched);
  }
  void ExpectSubmitIsHeld(Activation& activation, WatchedWork& watched) {
    auto& hold = device_->HoldCall(DeviceCall::kEnqueue);
    std::thread caller(
        [&] { activation.Submit(watched.work.get(), &watched.waiter); });
    hold.WaitUntilHeld();
    EXPECT_EQ(hold.thread(), caller.get_id()) << "it is in the driver";
    hold.Release();
    caller.join();
  }

  uint64_t enqueued() const { return device_->calls(DeviceCall::kEnqueue); }

  const std::vector<float> values_ = {1, 2, 3};
  std::unique_ptr<OpRegistry> registry_;
  FaultInjectingDevice* device_ = nullptr;
  std::unique_ptr<Engine> engine_;
  Activation a_, b_;
};

TEST_F(Launch, AWorkOfManyLaunchesHoldsUpNobodyElse) {
  WatchedWork large, small;
  Prepare(large, Chain(1000, "Neg"));
  Prepare(small, Chain(2, "Neg"));
  auto& hold = device_->HoldCall(DeviceCall::kEnqueue);
  EXPECT_TRUE(ReturnsMeanwhile(hold, [&] {
    a_.Submit(large.work.get(), &large.waiter);
    hold.WaitUntilHeld();
    b_.Submit(small.work.get(), &small.waiter);
    EXPECT_TRUE(small.Done().ok());
    EXPECT_FALSE(large.work->done());
  }));
  ASSERT_TRUE(large.Done().ok());
  EXPECT_EQ(Result(*large.work), values_);
  EXPECT_EQ(Result(*small.work), values_);
}

TEST_F(Launch, NorDoesOneThatComputesOnTheHost) {
  WatchedWork work;
  Prepare(work, Chain(1, "OnHost", "weir"));
  auto& hold = device_->HoldCall(DeviceCall::kEnqueue);
  EXPECT_TRUE(ReturnsMeanwhile(hold, [&] {
    a_.Submit(work.work.get(), &work.waiter);
    hold.WaitUntilHeld();
  }));
  ASSERT_TRUE(work.Done().ok());
  EXPECT_EQ(Result(*work.work), values_);
}

// More than half of what a lane may have: two such works would fill it.
TEST_F(Launch, NorDoesOneThatFillsHalfOfALane) {
  const size_t most = engine_->max_lane_launches();
  WatchedWork work;
  Prepare(work, Chain(static_cast<int>(most / 2) + 1, "Neg"));
  auto& hold = device_->HoldCall(DeviceCall::kEnqueue);
  EXPECT_TRUE(ReturnsMeanwhile(hold, [&] {
    a_.Submit(work.work.get(), &work.waiter);
    hold.WaitUntilHeld();
  }));
  ASSERT_TRUE(work.Done().ok());
  EXPECT_LT(work.work->plan()->launches(), most);
}

// The driver may have to load what it launches.
TEST_F(Launch, NorDoesTheFirstOfAPlan) {
  device_->set_loads_late();
  const std::shared_ptr<const Program> program = Compile(2, "Neg");
  const HostTensor input = {.dtype = DType::kFloat, .dims = {3}};
  Event planned;
  engine_->programs().MakePlan(program, {&input, 1}, kNoDeadline,
                               [&](ProgramCache::PlanOr plan) {
                                 EXPECT_TRUE(plan.ok()) << plan.status();
                                 planned.Set();
                               });
  planned.Wait();
  WatchedWork first, second;
  Prepare(first, program);
  Prepare(second, program);
  auto& hold = device_->HoldCall(DeviceCall::kEnqueue);
  EXPECT_TRUE(ReturnsMeanwhile(hold, [&] {
    a_.Submit(first.work.get(), &first.waiter);
    hold.WaitUntilHeld();
  }));
  ASSERT_TRUE(first.Done().ok());
  // From then on it is there. The launch thread may not have let go of the
  // first one's context yet.
  ExpectSubmitIsHeld(b_, second);
  EXPECT_TRUE(second.Done().ok());
}

// What has few launches pays for none of this.
TEST_F(Launch, FewLaunchesAreMadeByWhoSubmits) {
  WatchedWork work;
  Prepare(work, Chain(200, "Neg"));
  ExpectSubmitIsHeld(work);
  ASSERT_TRUE(work.Done().ok());
  EXPECT_EQ(engine_->launcher().threads(), 0u);
}

TEST_F(Launch, WhatIsBehindAHeldLaunchKeepsItsPlace) {
  WatchedWork large, next;
  Prepare(large, Chain(1000, "Neg"));
  Prepare(next, Chain(1, "Neg"));
  const uint64_t before = enqueued();
  auto& hold = device_->HoldCall(DeviceCall::kEnqueue);
  EXPECT_TRUE(ReturnsMeanwhile(hold, [&] {
    a_.Submit(large.work.get(), &large.waiter);
    hold.WaitUntilHeld();
    a_.Submit(next.work.get(), &next.waiter);
    EXPECT_EQ(enqueued(), before + 1);
  }));
  ASSERT_TRUE(next.Done().ok());
  ASSERT_TRUE(large.Done().ok());
  EXPECT_GE(next.work->report().launched_at, large.work->report().completed_at);
}

TEST_F(Launch, WhatIsBehindAHeldLaunchCanBeCancelled) {
  WatchedWork large, next;
  Prepare(large, Chain(1000, "Neg"));
  Prepare(next, Chain(1, "Neg"));
  auto& hold = device_->HoldCall(DeviceCall::kEnqueue);
  EXPECT_TRUE(ReturnsMeanwhile(hold, [&] {
    a_.Submit(large.work.get(), &large.waiter);
    hold.WaitUntilHeld();
    a_.Submit(next.work.get(), &next.waiter);
    next.work->Cancel();
    EXPECT_EQ(next.Done().code(), absl::StatusCode::kCancelled);
  }));
  EXPECT_TRUE(large.Done().ok());
}

TEST_F(Launch, EachLaneHasAThreadOfItsOwn) {
  WatchedWork first, second;
  const auto program = Chain(1000, "Neg");
  Prepare(first, program);
  Prepare(second, program);
  auto& hold = device_->HoldCall(DeviceCall::kEnqueue);
  EXPECT_TRUE(ReturnsMeanwhile(hold, [&] {
    a_.Submit(first.work.get(), &first.waiter);
    hold.WaitUntilHeld();
    b_.Submit(second.work.get(), &second.waiter);
    EXPECT_TRUE(second.Done().ok());
  }));
  EXPECT_TRUE(first.Done().ok());
  EXPECT_LE(engine_->launcher().threads(), 2u);
}

TEST_F(Launch, ManyLaunchesWaitForRoom) {
  const size_t most = engine_->max_lane_launches();
  ASSERT_EQ(most, 512u);
  WatchedWork large;
  Prepare(large, Chain(1000, "Neg"));
  const uint64_t before = device_->calls(DeviceCall::kWaitForRoom);
  a_.Submit(large.work.get(), &large.waiter);
  ASSERT_TRUE(large.Done().ok());
  // Two paces fit into the queue: before launches 257, 513 and 769.
  EXPECT_EQ(device_->calls(DeviceCall::kWaitForRoom), before + 3);
}

TEST_F(Launch, ManyLaunchesEndWhenNobodyWantsTheRest) {
  WatchedWork large;
  Prepare(large, Chain(1000, "Neg"));
  const uint64_t before = device_->calls(DeviceCall::kWaitForRoom);
  auto& hold = device_->HoldCall(DeviceCall::kWaitForRoom);
  EXPECT_TRUE(ReturnsMeanwhile(hold, [&] {
    a_.Submit(large.work.get(), &large.waiter);
    hold.WaitUntilHeld();
    large.work->Cancel();
  }));
  EXPECT_EQ(large.Done().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(device_->calls(DeviceCall::kWaitForRoom), before + 1);
  EXPECT_TRUE(
      Eventually([&] { return engine_->streams().stats().leased == 0; }));
}

TEST_F(Launch, AStepInPartsEndsWhenNobodyWantsTheRest) {
  WatchedWork large;
  Prepare(large, Chain(1, "OnHost", "weir"));
  const uint64_t before = device_->calls(DeviceCall::kWaitForRoom);
  auto& hold = device_->HoldCall(DeviceCall::kWaitForRoom);
  EXPECT_TRUE(ReturnsMeanwhile(hold, [&] {
    a_.Submit(large.work.get(), &large.waiter);
    hold.WaitUntilHeld();
    large.work->Cancel();
  }));
  EXPECT_EQ(large.Done().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(device_->calls(DeviceCall::kWaitForRoom), before + 1);
}

// For decoders' memory, for example.
TEST_F(Launch, AStepThatWaitsEndsWhenNobodyWantsIt) {
  WatchedWork left;
  Prepare(left, Compile(1, "Waits", "weir"));
  auto& hold = device_->HoldCall(DeviceCall::kLaunch);
  a_.Submit(left.work.get(), &left.waiter);
  hold.WaitUntilHeld();
  left.work->Cancel();
  hold.Release();
  EXPECT_EQ(left.Done().code(), absl::StatusCode::kCancelled);
}

TEST_F(Launch, AndAtItsDeadline) {
  WatchedWork late;
  Prepare(late, Compile(1, "Waits", "weir"));
  late.request().deadline = NowNanos() + 20'000'000;
  a_.Submit(late.work.get(), &late.waiter);
  EXPECT_EQ(late.Done().code(), absl::StatusCode::kDeadlineExceeded);
}

// 200 launches each: a third work would pass the bound.
TEST_F(Launch, ALaneHoldsBackWhatWouldFillTheQueue) {
  const auto program = Chain(200, "Neg");
  WatchedWork works[5];
  const uint64_t before = enqueued();
  auto& hold = device_->HoldCall(DeviceCall::kLaunch);
  EXPECT_TRUE(ReturnsMeanwhile(hold, [&] {
    for (WatchedWork& watched : works) {
      Prepare(watched, program);
      a_.Submit(watched.work.get(), &watched.waiter);
    }
    hold.WaitUntilHeld();
    EXPECT_EQ(enqueued(), before + 2);
  }));
  for (WatchedWork& watched : works) {
    EXPECT_TRUE(watched.Done().ok());
    EXPECT_EQ(Result(*watched.work), values_);
  }
}

// What copies inputs of more than 1 MiB is held.
class LargeInputs : public Launch {
 protected:
  LargeInputs() : program_(Chain(1, "Neg")) {
    // Its plan is there.
    Prepare(work_, program_, large_);
    a_.Submit(work_.work.get(), &work_.waiter);
    EXPECT_TRUE(work_.Done().ok());
    for (size_t i = 0; i < engine_->options().streams.max; ++i) {
      engine_->launcher().Post([held = held_, gate = gate_] {
        held->Set();
        gate->Wait();
      });
    }
    held_->Wait(engine_->options().streams.max);
    before_ = enqueued();
  }
  ~LargeInputs() override { gate_->Set(); }

  const std::vector<float> large_ = std::vector<float>((1 << 18) + 1, 1.5f);
  const std::shared_ptr<const Program> program_;
  WatchedWork work_;
  const std::shared_ptr<Event> held_ = std::make_shared<Event>();
  const std::shared_ptr<Event> gate_ = std::make_shared<Event>();
  uint64_t before_ = 0;
};

TEST_F(LargeInputs, AreNotCopiedByWhoSubmits) {
  WatchedWork large, next, small;
  Prepare(large, program_, large_);
  Prepare(next, program_);
  Prepare(small, program_);
  a_.Submit(large.work.get(), &large.waiter);
  a_.Submit(next.work.get(), &next.waiter);
  b_.Submit(small.work.get(), &small.waiter);
  EXPECT_TRUE(small.Done().ok());
  EXPECT_EQ(enqueued(), before_ + 1);
  gate_->Set();
  ASSERT_TRUE(next.Done().ok());
  ASSERT_TRUE(large.Done().ok());
  EXPECT_EQ(Result(*large.work), Result(*work_.work));
  EXPECT_GE(next.work->report().launched_at, large.work->report().launched_at);
}

TEST_F(LargeInputs, AreNotCopiedForACallerThatHasGone) {
  WatchedWork large, next;
  Prepare(large, program_, large_);
  Prepare(next, program_);
  a_.Submit(large.work.get(), &large.waiter);
  a_.Submit(next.work.get(), &next.waiter);
  large.work->Cancel();
  gate_->Set();
  EXPECT_EQ(large.Done().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(large.work->report().bytes_in, 0u);
  EXPECT_TRUE(next.Done().ok());
  EXPECT_EQ(enqueued(), before_ + 1);
  EXPECT_TRUE(
      Eventually([&] { return engine_->streams().stats().leased == 0; }));
}

TEST_F(LargeInputs, OfOneMebibyteAreCopiedByWhoSubmits) {
  WatchedWork work;
  const std::vector<float> most(large_.begin(), large_.end() - 1);
  Prepare(work, program_, most);
  a_.Submit(work.work.get(), &work.waiter);
  ASSERT_TRUE(work.Done().ok());
}

// Results that do not lie together are copied one by one: in a plan of one
// launch, those of every other piece of its input.
class ManyCopies : public Launch {
 protected:
  // Fills in a work with so many copies of results.
  void Prepare(WatchedWork& watched, size_t copies, OutputWish wish) {
    const size_t pieces = 2 * copies;
    Graph graph;
    graph.opsets = {{"", 17}};
    graph.inputs = {{"x", DType::kFloat, SymbolicDims{Dim()}}};
    GraphNode split;
    split.op = "Split";
    split.inputs = {"x"};
    for (size_t i = 0; i < pieces; ++i) {
      split.outputs.push_back(absl::StrCat("y", i));
    }
    graph.outputs = split.outputs;
    graph.nodes = {std::move(split)};
    auto program =
        Program::Compile(std::move(graph), engine_->device(), *registry_);
    ASSERT_TRUE(program.ok()) << program.status();
    values_.assign(pieces, 0);
    for (size_t i = 0; i < pieces; ++i) values_[i] = static_cast<float>(i);
    Launch::Prepare(watched, *program, values_);
    watched.request().outputs.assign(pieces, OutputWish::kDrop);
    for (size_t i = 0; i < pieces; i += 2) watched.request().outputs[i] = wish;
    WatchedWork first;  // the plan is there afterwards
    Launch::Prepare(first, *program, values_);
    Activation activation = Enter();
    activation.Submit(first.work.get(), &first.waiter);
    ASSERT_TRUE(first.Done().ok());
  }

  void ExpectSubmitReturns(WatchedWork& watched) {
    auto& hold = device_->HoldCall(DeviceCall::kEnqueue);
    EXPECT_TRUE(ReturnsMeanwhile(hold, [&] {
      a_.Submit(watched.work.get(), &watched.waiter);
      hold.WaitUntilHeld();
    }));
    ASSERT_TRUE(watched.Done().ok());
    EXPECT_EQ(watched.work->plan()->launches(), 1u);
  }

  std::vector<float> values_;
};

TEST_F(ManyCopies, AreNotMadeByWhoSubmits) {
  WatchedWork work;
  Prepare(work, 256, OutputWish::kInline);
  ExpectSubmitReturns(work);
  for (size_t i = 0; i < values_.size(); i += 2) {
    EXPECT_EQ(Result(*work.work, i), std::vector<float>{values_[i]});
  }
}

TEST_F(ManyCopies, NorThoseOfResultsThatAreKept) {
  WatchedWork work;
  Prepare(work, 256, OutputWish::kKeep);
  ExpectSubmitReturns(work);
}

// One of the input, one launch, and these.
TEST_F(ManyCopies, OfHalfALaneAreMadeByWhoSubmits) {
  WatchedWork work;
  Prepare(work, 254, OutputWish::kInline);
  ExpectSubmitIsHeld(work);
  EXPECT_TRUE(work.Done().ok());
}

TEST_F(ManyCopies, WaitForRoom) {
  WatchedWork work;
  Prepare(work, 600, OutputWish::kInline);
  const uint64_t before = device_->calls(DeviceCall::kWaitForRoom);
  a_.Submit(work.work.get(), &work.waiter);
  ASSERT_TRUE(work.Done().ok());
  // Before copies 2, 258 and 514.
  EXPECT_EQ(device_->calls(DeviceCall::kWaitForRoom), before + 3);
}

// What the work was before may have had more launches than whoever submits it
// now may wait for.
TEST_F(ManyCopies, OfAWorkThatIsUsedAgainAreItsOwn) {
  WatchedWork work;
  Launch::Prepare(work, Chain(1000, "Neg"));
  a_.Submit(work.work.get(), &work.waiter);
  ASSERT_TRUE(work.Done().ok());
  work.waiter.Reset();
  work.request().outputs.clear();
  Prepare(work, 2, OutputWish::kInline);
  const uint64_t before = device_->calls(DeviceCall::kWaitForRoom);
  ExpectSubmitIsHeld(b_, work);
  ASSERT_TRUE(work.Done().ok());
  EXPECT_EQ(device_->calls(DeviceCall::kWaitForRoom), before);
  EXPECT_EQ(Result(*work.work, 2), std::vector<float>{values_[2]});
}

TEST_F(ManyCopies, AreOneOfWhatLiesTogether) {
  WatchedWork work;
  Prepare(work, 300, OutputWish::kInline);
  work.request().outputs.assign(values_.size(), OutputWish::kInline);
  work.request().outputs[1] = OutputWish::kDrop;
  const uint64_t before = device_->calls(DeviceCall::kCopy);
  ExpectSubmitIsHeld(work);
  ASSERT_TRUE(work.Done().ok());
  // The input, what is before the piece, and what is behind it.
  EXPECT_EQ(device_->calls(DeviceCall::kCopy), before + 3);
  for (size_t i = 0; i < values_.size(); ++i) {
    if (i == 1) continue;
    EXPECT_EQ(Result(*work.work, i), std::vector<float>{values_[i]});
  }
}

TEST_F(ManyCopies, FillTheQueueAsLaunchesDo) {
  WatchedWork works[3];
  for (WatchedWork& watched : works) {
    Prepare(watched, 200, OutputWish::kInline);
  }
  const uint64_t before = enqueued();
  auto& hold = device_->HoldCall(DeviceCall::kLaunch);
  EXPECT_TRUE(ReturnsMeanwhile(hold, [&] {
    for (WatchedWork& watched : works) {
      a_.Submit(watched.work.get(), &watched.waiter);
    }
    hold.WaitUntilHeld();
    EXPECT_EQ(enqueued(), before + 2);
  }));
  for (WatchedWork& watched : works) EXPECT_TRUE(watched.Done().ok());
}

// As many works as a stream takes are launched; the next waits without a thread
// that runs in circles.
class NearLaunch : public Launch {
 protected:
  NearLaunch() : Launch(/*far=*/false) {}
};

TEST_F(NearLaunch, AFullStreamKeepsNobodyBusy) {
  const auto program = Chain(1, "Neg");
  std::vector<WatchedWork> works(Stream::kMaxUnfinished + 9);
  const uint64_t before = enqueued();
  auto& hold = device_->HoldCall(DeviceCall::kLaunch);
  EXPECT_TRUE(ReturnsMeanwhile(hold, [&] {
    for (WatchedWork& watched : works) {
      Prepare(watched, program);
      a_.Submit(watched.work.get(), &watched.waiter);
    }
    EXPECT_EQ(enqueued(), before + Stream::kMaxUnfinished);
  }));
  for (WatchedWork& watched : works) EXPECT_TRUE(watched.Done().ok());
}

}  // namespace
}  // namespace weir
