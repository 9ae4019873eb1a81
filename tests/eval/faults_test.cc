// A device whose calls fail or hang: what reaches the works, and that nothing
// is lost. Every work ends exactly once with the right status, and the next one
// runs.
#include <gmock/gmock.h>

#include <cstring>
#include <iterator>
#include <thread>
#include <utility>

#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "tests/base/event.h"
#include "tests/base/eventually.h"
#include "tests/device/fault_injecting_device.h"
#include "tests/eval/eval_fixture.h"

namespace weir {
namespace {

class Faults : public ::testing::Test {
 protected:
  explicit Faults(absl::Duration max_wait = absl::Seconds(60))
      : registry_(MakeOpRegistry()) {
    auto device = std::make_unique<FaultInjectingDevice>(
        MakeCpuDevice({.cpu_threads = 2}));
    device_ = device.get();
    EngineOptions options;
    options.streams.reserved = 0;
    options.streams.max = 2;
    options.pinned_bytes = size_t{1} << 20;
    options.tensor_bytes = size_t{1} << 20;
    options.max_wait = max_wait;
    options.pinned_ttl = absl::Hours(1);
    auto engine = Engine::Create(std::move(device), registry_.get(), options);
    EXPECT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    graph_ = std::make_shared<const Graph>(MakeGraph("Neg", 1));
    auto program = Program::Compile(*graph_, engine_->device(), *registry_);
    EXPECT_TRUE(program.ok()) << program.status();
    program_ = *std::move(program);
    auto activation = EvalContext::Create(engine_.get(), {})->Enter(1);
    EXPECT_TRUE(activation.ok());
    activation_ = *std::move(activation);
  }

  absl::Status RunOne(WatchedWork& watched, size_t elements = 4) {
    values_.assign(elements, 1.0f);
    watched.waiter.Reset();
    watched.request().program = program_;
    InputSource source;
    source.dtype = DType::kFloat;
    source.dims = {static_cast<int64_t>(elements)};
    source.pieces = {std::string_view(
        reinterpret_cast<const char*>(values_.data()), elements * 4)};
    watched.request().inputs = {source};
    activation_.Submit(watched.work.get(), &watched.waiter);
    return watched.Done();
  }

  // In a context of its own, of more than any memory at hand.
  void SubmitLarge(WatchedWork& watched) {
    watched.request().program = program_;
    watched.request().inputs = {Floats(large_)};
    others_.push_back(
        *EvalContext::Create(engine_.get(), {})->Enter(NewHandlerId()));
    others_.back().Submit(watched.work.get(), &watched.waiter);
  }

  const std::vector<float> large_ = std::vector<float>(20'000, 1.0f);
  std::unique_ptr<OpRegistry> registry_;
  FaultInjectingDevice* device_ = nullptr;
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<const Graph> graph_;
  std::shared_ptr<const Program> program_;  // of graph_
  std::vector<float> values_;
  Activation activation_;
  std::vector<Activation> others_;
};

TEST_F(Faults, AStreamThatCannotBeMadeFailsOneWork) {
  device_->Fail(DeviceCall::kCreateStream,
                absl::ResourceExhaustedError("no more streams"));
  WatchedWork watched;
  EXPECT_EQ(RunOne(watched).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(RunOne(watched).ok());
  EXPECT_EQ(engine_->streams().stats().leased, 0u);
}

// A work may be kept for its next use, and so may a hundred of them.
TEST_F(Faults, FailedWorksHoldNoMemory) {
  WatchedWork failed[3];
  for (WatchedWork& watched : failed) {
    device_->Fail(DeviceCall::kLaunch, absl::InternalError("launch failed"));
    EXPECT_FALSE(RunOne(watched, 20'000).ok());
  }
  EXPECT_EQ(engine_->pinned().stats().leased_bytes, 0u);
}

// The driver may wait for running work when it gives memory.
TEST_F(Faults, MemoryThatTakesLongHoldsUpNobodyElse) {
  device_->set_allocation_waits();
  WatchedWork watched;
  ASSERT_TRUE(RunOne(watched).ok());  // leaves its memory to the next
  const std::vector<float> values(20'000, 1.0f);
  WatchedWork slow;
  slow.request().program = program_;
  slow.request().inputs = watched.request().inputs;
  slow.request().inputs[0].dims = {20'000};
  slow.request().inputs[0].pieces = {
      std::string_view(reinterpret_cast<const char*>(values.data()), 80'000)};
  auto& hold = device_->HoldCall(DeviceCall::kAllocatePinned);
  auto other = EvalContext::Create(engine_.get(), {})->Enter(2);
  ASSERT_TRUE(other.ok());
  other->Submit(slow.work.get(), &slow.waiter);
  hold.WaitUntilHeld();
  // This thread is free, and so is whoever runs continuations.
  ASSERT_TRUE(RunOne(watched).ok());
  slow.work->Cancel();
  EXPECT_FALSE(slow.work->done());
  hold.Release();
  EXPECT_EQ(slow.Done().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(testing::Eventually(
      [&] { return engine_->pinned().stats().leased_bytes == 4096; }));
  EXPECT_EQ(engine_->streams().stats().leased, 0u);
}

// Whoever waits for the allocator holds a lane, and has not begun.
TEST_F(Faults, AWorkThatStandsInLineForMemoryEndsWhenNobodyWantsIt) {
  device_->set_allocation_waits();
  WatchedWork busy, cancelled;
  auto& hold = device_->HoldCall(DeviceCall::kAllocatePinned);
  SubmitLarge(busy);
  hold.WaitUntilHeld();
  SubmitLarge(cancelled);
  ASSERT_TRUE(testing::Eventually(
      [&] { return engine_->streams().stats().leased == 2; }));
  cancelled.work->Cancel();
  EXPECT_TRUE(testing::Eventually([&] { return cancelled.work->done(); }));
  EXPECT_TRUE(testing::Eventually(
      [&] { return engine_->streams().stats().leased == 1; }));
  // One whose deadline passes before it stands there says nothing.
  bool stood = false;
  for (Nanos patience = 20'000'000; !stood; patience *= 2) {
    WatchedWork late;
    late.request().deadline = NowNanos() + patience;
    SubmitLarge(late);
    EXPECT_TRUE(testing::Eventually([&] {
      stood |= engine_->streams().stats().leased == 2;
      return late.work->done();
    }));
    EXPECT_EQ(late.Done().code(), absl::StatusCode::kDeadlineExceeded);
  }
  EXPECT_FALSE(busy.work->done());
  hold.Release();
  EXPECT_EQ(cancelled.Done().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(busy.Done(), absl::OkStatus());
  EXPECT_TRUE(testing::Eventually(
      [&] { return engine_->streams().stats().leased == 0; }));
}

// The next one takes its lane, and stands there in its place.
TEST_F(Faults, WorksThatNobodyWantsLeaveNothingInTheLineForMemory) {
  device_->set_allocation_waits();
  WatchedWork busy;
  auto& hold = device_->HoldCall(DeviceCall::kAllocatePinned);
  SubmitLarge(busy);
  hold.WaitUntilHeld();
  const ThreadExecutor& line = engine_->allocator();
  for (int i = 0; i < 20 && !HasFailure(); ++i) {
    WatchedWork cancelled;
    SubmitLarge(cancelled);
    EXPECT_TRUE(testing::Eventually([&] { return line.waiting() == 1; })) << i;
    cancelled.work->Cancel();
    EXPECT_EQ(cancelled.Done().code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(line.waiting(), 0u) << i;
  }
  WatchedWork late;
  late.request().deadline = NowNanos() + 20'000'000;
  SubmitLarge(late);
  EXPECT_EQ(late.Done().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(line.waiting(), 0u);
  EXPECT_FALSE(busy.work->done());
  hold.Release();
  EXPECT_EQ(busy.Done(), absl::OkStatus());
}

// A work whose data fail it leaves a lane that is checked before the next one
// has it; what has the allocator may have it for long.
TEST_F(Faults, LanesOfFailedWorksAreNotKeptByMemoryThatTakesLong) {
  device_->set_allocation_waits();
  WatchedWork busy, watched;
  ASSERT_TRUE(RunOne(watched).ok());  // leaves its memory to the next
  auto& hold = device_->HoldCall(DeviceCall::kAllocatePinned);
  SubmitLarge(busy);
  hold.WaitUntilHeld();
  device_->Fail(DeviceCall::kLaunch, absl::InternalError("launch failed"));
  EXPECT_EQ(RunOne(watched).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(RunOne(watched), absl::OkStatus());
  EXPECT_GE(device_->calls(DeviceCall::kCheck), 1u);
  EXPECT_EQ(engine_->streams().stats().created_total, 2u);
  EXPECT_FALSE(busy.work->done());
  hold.Release();
  EXPECT_EQ(busy.Done(), absl::OkStatus());
}

class ShortWaits : public Faults {
 protected:
  ShortWaits() : Faults(absl::Milliseconds(500)) {}
};

// As every wait does, if the caller has no deadline.
TEST_F(ShortWaits, AWorkStandsInLineForMemoryOnlySoLong) {
  device_->set_allocation_waits();
  WatchedWork busy, waits;
  auto& hold = device_->HoldCall(DeviceCall::kAllocatePinned);
  SubmitLarge(busy);
  hold.WaitUntilHeld();
  SubmitLarge(waits);
  EXPECT_TRUE(testing::Eventually([&] { return waits.work->done(); }));
  EXPECT_FALSE(busy.work->done());
  EXPECT_TRUE(testing::Eventually(
      [&] { return engine_->streams().stats().leased == 1; }));
  hold.Release();
  EXPECT_EQ(waits.Done().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Reason(waits.Done()), "MEMORY_WAIT_TOO_LONG") << waits.Done();
  EXPECT_EQ(busy.Done(), absl::OkStatus());
}

// Memory that takes long to free is freed by no thread that submits works or
// that continues them, on a device that reads the host's memory either.
class LargeMemory : public ::testing::Test {
 protected:
  static constexpr int64_t kMebi = int64_t{1} << 20;

  LargeMemory() : registry_(MakeOpRegistry()) {
    auto device = std::make_unique<FaultInjectingDevice>(
        MakeCpuDevice({.cpu_threads = 1}));
    device_ = device.get();
    EngineOptions options;
    options.streams.max = 2;
    options.streams.max_arena_bytes = 160 * kMebi;
    options.pinned_bytes = 160 * kMebi;
    options.pinned_ttl = absl::Hours(1);
    auto engine = Engine::Create(std::move(device), registry_.get(), options);
    EXPECT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    ContextOptions context;
    context.executor = &executor_;
    auto activation = EvalContext::Create(engine_.get(), context)->Enter(1);
    EXPECT_TRUE(activation.ok());
    activation_ = *std::move(activation);
  }

  // The expansion of one number to so many bytes, or its sum alone: then the
  // expansion lies in the lane's arena.
  absl::Status Expand(int64_t bytes, bool sum) {
    Graph graph;
    graph.opsets = {{"", 17}};
    graph.inputs = {{"x", DType::kFloat, SymbolicDims{Dim(1)}},
                    {"shape", DType::kInt64, SymbolicDims{Dim(1)}}};
    GraphNode node;
    node.op = "Expand";
    node.inputs = {"x", "shape"};
    node.outputs = {"expanded"};
    graph.nodes = {node};
    graph.outputs = {"expanded"};
    if (sum) {
      node.op = "ReduceSum";
      node.inputs = {"expanded"};
      node.outputs = {"sum"};
      graph.nodes.push_back(node);
      graph.outputs = {"sum"};
    }
    auto program =
        Program::Compile(std::move(graph), engine_->device(), *registry_);
    WEIR_RETURN_IF_ERROR(program.status());
    const float x = 1;
    const int64_t shape = bytes / 4;
    WatchedWork watched;
    watched.request().program = *std::move(program);
    watched.request().inputs.resize(2);
    InputSource& number = watched.request().inputs[0];
    number.dtype = DType::kFloat;
    number.dims = {1};
    number.pieces = {
        std::string_view(reinterpret_cast<const char*>(&x), sizeof(x))};
    InputSource& dims = watched.request().inputs[1];
    dims.dtype = DType::kInt64;
    dims.dims = {1};
    dims.pieces = {
        std::string_view(reinterpret_cast<const char*>(&shape), sizeof(shape))};
    activation_.Submit(watched.work.get(), &watched.waiter);
    return watched.Done();
  }

  // By the threads that may not wait.
  size_t FreedInLine() {
    std::thread::id continues;
    Event told;
    executor_.Post([&] {
      continues = std::this_thread::get_id();
      told.Set();
    });
    told.Wait();
    return device_->freed_by(std::this_thread::get_id()) +
           device_->freed_by(continues);
  }

  std::unique_ptr<OpRegistry> registry_;
  FaultInjectingDevice* device_ = nullptr;
  std::unique_ptr<Engine> engine_;
  ThreadExecutor executor_{"test", ThreadRole::kOther};
  Activation activation_;
};

TEST_F(LargeMemory, AnArenaThatGrowsIsFreedElsewhere) {
  ASSERT_TRUE(Expand(32 * kMebi, /*sum=*/true).ok());
  ASSERT_GE(engine_->streams().stats().arena_bytes, size_t{32 * kMebi});
  ASSERT_TRUE(Expand(48 * kMebi, /*sum=*/true).ok());
  ASSERT_GE(engine_->streams().stats().arena_bytes, size_t{48 * kMebi});
  EXPECT_LT(engine_->streams().stats().arena_bytes, size_t{80 * kMebi});
  EXPECT_EQ(FreedInLine(), 0u);
}

TEST_F(LargeMemory, SoIsAnArenaThatMakesRoomForAnother) {
  auto large = engine_->streams().TryAcquire();
  auto next = engine_->streams().TryAcquire();
  ASSERT_TRUE(large.ok() && next.ok());
  ASSERT_TRUE(large->lane()->Arena(128 * kMebi).ok());
  large->Reset();
  next->Reset();  // the lane returned last is taken first
  ASSERT_TRUE(Expand(48 * kMebi, /*sum=*/true).ok());
  EXPECT_LT(engine_->streams().stats().arena_bytes, size_t{128 * kMebi});
  EXPECT_EQ(FreedInLine(), 0u);
}

TEST_F(LargeMemory, SoAreBuffersThatMakeRoomForAnother) {
  ASSERT_TRUE(Expand(64 * kMebi, /*sum=*/false).ok());
  ASSERT_TRUE(Expand(128 * kMebi, /*sum=*/false).ok());
  EXPECT_LT(engine_->pinned().stats().cached_bytes, size_t{160 * kMebi});
  EXPECT_EQ(FreedInLine(), 0u);
}

TEST_F(Faults, MemoryThatIsRefusedWhileItIsMadeFailsItsWorkAlone) {
  device_->set_allocation_waits();
  device_->Fail(DeviceCall::kAllocatePinned,
                absl::ResourceExhaustedError("none"), 1, 2);
  WatchedWork watched;
  EXPECT_EQ(Reason(RunOne(watched)), "HOST_MEMORY_EXHAUSTED");
  EXPECT_TRUE(RunOne(watched).ok());
}

// A tensor that was made for a work that then found no memory for the next one
// waits for nobody.
TEST_F(Faults, MemoryOfAWorkThatWasNotLaunchedIsFreeAtOnce) {
  Graph two = *graph_;
  two.nodes.push_back(two.nodes[0]);
  two.nodes[1].outputs = {"z"};
  two.outputs.push_back("z");
  auto both = Program::Compile(std::move(two), engine_->device(), *registry_);
  ASSERT_TRUE(both.ok()) << both.status();
  const std::shared_ptr<const Program> one =
      std::exchange(program_, *std::move(both));
  // Blocks of 256 and 512 KiB, of the one MiB that there is.
  constexpr size_t kSmall = 50 * 1024, kLarge = 100 * 1024;
  WatchedWork kept, next;
  kept.request().outputs = {OutputWish::kKeep, OutputWish::kDrop};
  ASSERT_EQ(RunOne(kept, kSmall), absl::OkStatus());
  // Kept for its next use, it holds nothing of this one.
  WatchedWork refused;
  refused.request().outputs = {OutputWish::kKeep, OutputWish::kKeep};
  refused.request().mode = EvalMode::kSyncFull;  // reads where its input lies
  EXPECT_EQ(Reason(RunOne(refused, kLarge)), "DEVICE_MEMORY_EXHAUSTED");
  program_ = one;
  next.request().outputs = {OutputWish::kKeep};
  EXPECT_EQ(RunOne(next, kLarge), absl::OkStatus());
}

TEST_F(Faults, AFailedLaunchFailsItsWorkAlone) {
  WatchedWork watched;
  ASSERT_TRUE(RunOne(watched).ok());
  device_->Fail(DeviceCall::kLaunch, absl::InternalError("launch failed"));
  const absl::Status status = RunOne(watched);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_EQ(watched.work->report().state, WorkState::kError);
  EXPECT_EQ(watched.work->report().device_errors.size(), 1u);
  EXPECT_TRUE(RunOne(watched).ok()) << "the stream goes on";
}

TEST_F(Faults, ADeviceErrorHasTheBackendsCodeAndName) {
  device_->Fail(DeviceCall::kLaunch,
                WithReason(absl::InternalError("launch failed"), "CUDA_ERROR",
                           {{"code", "719"}, {"name", "cudaErrorOfATest"}}));
  WatchedWork watched;
  EXPECT_FALSE(RunOne(watched).ok());
  ASSERT_EQ(watched.work->report().device_errors.size(), 1u);
  const DeviceError& error = watched.work->report().device_errors[0];
  EXPECT_EQ(error.code, 719);
  EXPECT_EQ(error.name, "cudaErrorOfATest");
  EXPECT_NE(error.text.find("launch failed"), std::string::npos);
  EXPECT_FALSE(error.sticky);
}

TEST_F(Faults, AStreamIsToldHowLongAWorkMayRunAndWhatItIs) {
  WatchedWork watched;
  watched.request().label = "of this test";
  ASSERT_TRUE(RunOne(watched).ok());
  const Plan& plan = *watched.work->plan();
  EXPECT_GE(device_->last_launched().expected, 1'000'000)
      << "a guess, as it never ran";
  const std::string what = device_->last_launched().description;
  for (const char* part : {"work 1 of context ", "\"of this test\"", "Neg"}) {
    EXPECT_NE(what.find(part), std::string::npos) << what;
  }
  plan.RecordDuration(3'000'000'000, 2'000'000'000);
  const Nanos longest = plan.longest_ns();
  const Nanos longest_device = plan.longest_device_ns();
  ASSERT_TRUE(RunOne(watched).ok());
  EXPECT_EQ(device_->last_launched().expected, longest);
  EXPECT_EQ(device_->last_launched().expected_device_time, longest_device);
  EXPECT_LT(plan.longest_ns(), longest) << "each run is measured";
}

TEST_F(Faults, MemoryThatIsNotThereIsAPreciseStatus) {
  WatchedWork watched;
  const absl::Status status = RunOne(watched, size_t{1} << 20);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(Reason(status), "HOST_MEMORY_EXHAUSTED");
  EXPECT_FALSE(RetryAfter(status).has_value()) << "it can never fit";
  EXPECT_TRUE(RunOne(watched).ok());
}

TEST_F(Faults, AWorkBehindAHeldOneIsCancelledWhileTheHeldOneDrains) {
  WatchedWork warm;
  ASSERT_TRUE(RunOne(warm).ok());
  FaultInjectingDevice::Hold& hold = device_->HoldCall(DeviceCall::kLaunch);
  WatchedWork held, behind;
  auto gate = std::make_shared<Timeline>("gate");
  for (WatchedWork* watched : {&held, &behind}) {
    watched->request().program = program_;
    watched->request().inputs = warm.request().inputs;
    watched->request().outputs = {OutputWish::kKeep};
  }
  behind.request().after = {Point{gate, 1}};
  activation_.Submit(held.work.get(), &held.waiter);
  hold.WaitUntilHeld();
  activation_.Submit(behind.work.get(), &behind.waiter);
  behind.work->Cancel();
  EXPECT_EQ(behind.Done().code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(held.work->done());
  EXPECT_EQ(activation_.context().timeline()->value(), 1u)
      << "the timeline moves in order";
  hold.Release();
  EXPECT_TRUE(held.Done().ok());
  EXPECT_EQ(activation_.context().timeline()->value(), 3u);
}

// Two groups of joined works, of which the second reads what the first makes.
TEST_F(Faults, AGroupThatIsSplitStillComesAfterTheOneThatRuns) {
  constexpr size_t kJoined = 64;  // at most in one group
  values_ = {5};
  WatchedWork chain[kJoined + 3];
  for (size_t i = 0; i < std::size(chain); ++i) {
    WorkRequest& request = chain[i].request();
    request.program = program_;
    request.graph = graph_;
    request.outputs = {OutputWish::kKeep};
    request.mode = EvalMode::kDeferred;
    InputSource source;
    if (i == 0) {
      source.dtype = DType::kFloat;
      source.dims = {1};
      source.pieces = {std::string_view(
          reinterpret_cast<const char*>(values_.data()), sizeof(float))};
    } else {
      source.producer = chain[i - 1].work;
    }
    request.inputs = {source};
    activation_.Defer(chain[i].work, &chain[i].waiter);
  }
  FaultInjectingDevice::Hold& hold = device_->HoldCall(DeviceCall::kLaunch);
  activation_.Flush();
  hold.WaitUntilHeld();
  WatchedWork& next = chain[kJoined];
  for (size_t i : {kJoined + 2, kJoined + 1}) {
    chain[i].work->Cancel();
    EXPECT_EQ(chain[i].Done().code(), absl::StatusCode::kCancelled);
  }
  EXPECT_FALSE(next.work->done()) << next.work->status();
  EXPECT_FALSE(chain[0].work->done());
  hold.Release();
  ASSERT_TRUE(next.Done().ok()) << next.work->status();
  EXPECT_EQ(chain[0].work->report().joined_works, kJoined);
  WatchedWork reader;
  reader.request().program = program_;
  reader.request().inputs.resize(1);
  reader.request().inputs[0].tensor = next.work->OutputTensor(0);
  activation_.Submit(reader.work.get(), &reader.waiter);
  ASSERT_TRUE(reader.Done().ok()) << reader.work->status();
  float result = 0;
  std::memcpy(&result, reader.work->OutputBytes(0).data(), sizeof(result));
  EXPECT_EQ(result, 5);
}

TEST_F(Faults, ALostDeviceFailsEverythingWithItsRootCause) {
  WatchedWork watched;
  ASSERT_TRUE(RunOne(watched).ok());
  device_->health().Poison(absl::InternalError("an illegal address"));
  const absl::Status status = RunOne(watched);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Reason(status), "DEVICE_POISONED");
  EXPECT_NE(std::string(status.message()).find("an illegal address"),
            std::string::npos);
  // It came too late to be launched, and its report says why all the same.
  ASSERT_EQ(watched.work->report().device_errors.size(), 1u);
  const DeviceError& error = watched.work->report().device_errors[0];
  EXPECT_TRUE(error.sticky);
  EXPECT_EQ(error.name, "DEVICE_POISONED");
  EXPECT_NE(error.text.find("an illegal address"), std::string::npos);
}

// The same before a real device of each kind.
class FaultsOfADevice : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    registry_ = MakeOpRegistry();
    auto real = MakeDevice(GetParam(), {.cpu_threads = 2}, *registry_);
    if (Reason(real.status()) == "NO_CUDA_DEVICE") {
      GTEST_SKIP() << real.status().message();
    }
    ASSERT_TRUE(real.ok()) << real.status();
    auto device = std::make_unique<FaultInjectingDevice>(*std::move(real));
    device_ = device.get();
    EngineOptions options;
    options.streams.reserved = 0;
    options.streams.max = 2;
    auto engine = Engine::Create(std::move(device), registry_.get(), options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    auto program =
        Program::Compile(MakeGraph("Neg", 1), engine_->device(), *registry_);
    ASSERT_TRUE(program.ok()) << program.status();
    program_ = *std::move(program);
    auto activation = EvalContext::Create(engine_.get(), {})->Enter(1);
    ASSERT_TRUE(activation.ok()) << activation.status();
    activation_ = *std::move(activation);
  }

  void Submit(WatchedWork& watched, const std::vector<float>& values) {
    watched.request().program = program_;
    watched.request().inputs = {Floats(values)};
    activation_.Submit(watched.work.get(), &watched.waiter);
  }

  // The outcome of so many ones with their signs turned; wrong numbers are
  // DATA_LOSS.
  absl::Status RunOne(size_t elements) {
    const std::vector<float> values(elements, 1.0f);
    WatchedWork watched;
    Submit(watched, values);
    WEIR_RETURN_IF_ERROR(watched.Done());
    return Result(*watched.work) == std::vector<float>(elements, -1.0f)
               ? absl::OkStatus()
               : absl::DataLossError("wrong numbers");
  }

  std::unique_ptr<OpRegistry> registry_;
  FaultInjectingDevice* device_ = nullptr;
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<const Program> program_;
  Activation activation_;
};

TEST_P(FaultsOfADevice, WhicheverCallFailsItsWorkFailsAlone) {
  const bool copies = !device_->host_addressable();
  size_t elements = 1000;
  for (const auto& [call, is_made] : {
           std::pair{DeviceCall::kCreateStream, true},
           std::pair{DeviceCall::kLaunch, true},
           std::pair{DeviceCall::kCopy, copies},
           std::pair{DeviceCall::kAllocatePinned, true},
           std::pair{DeviceCall::kAllocate, copies},
       }) {
    SCOPED_TRACE(static_cast<int>(call));
    elements *= 4;  // more than any memory at hand
    device_->Fail(call, absl::InternalError("refused by a test"));
    const absl::Status status = RunOne(elements);
    if (is_made) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
      EXPECT_THAT(std::string(status.message()),
                  ::testing::HasSubstr("refused by a test"));
    } else {
      EXPECT_EQ(status, absl::OkStatus());
    }
    EXPECT_EQ(RunOne(elements), absl::OkStatus());
    EXPECT_EQ(engine_->pinned().stats().leased_bytes, 0u);
    EXPECT_EQ(engine_->streams().stats().leased, 0u);
  }
}

TEST_P(FaultsOfADevice, WhatIsHeldHoldsUpWhatIsBehindItAndNothingIsLost) {
  const std::vector<float> values(1000, 1.0f);
  WatchedWork held, behind, cancelled;
  ASSERT_EQ(RunOne(values.size()), absl::OkStatus());
  FaultInjectingDevice::Hold& hold = device_->HoldCall(DeviceCall::kLaunch);
  // Where whoever submits launches, it is who is held.
  std::thread submits([&] { Submit(held, values); });
  hold.WaitUntilHeld();
  std::thread next([&] {
    Submit(behind, values);
    Submit(cancelled, values);
    cancelled.work->Cancel();
  });
  EXPECT_FALSE(held.work->done());
  hold.Release();
  submits.join();
  next.join();
  EXPECT_EQ(held.Done(), absl::OkStatus());
  EXPECT_EQ(behind.Done(), absl::OkStatus());
  const absl::Status status = cancelled.Done();
  EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
  EXPECT_EQ(Result(*behind.work), std::vector<float>(values.size(), -1.0f));
  EXPECT_TRUE(testing::Eventually(
      [&] { return engine_->streams().stats().leased == 0; }));
}

TEST_P(FaultsOfADevice, ItsLossFailsWhatFollowsWithItsCause) {
  ASSERT_EQ(RunOne(1000), absl::OkStatus());
  device_->health().Poison(absl::InternalError("an illegal address"));
  const absl::Status status = RunOne(1000);
  EXPECT_EQ(Reason(status), "DEVICE_POISONED") << status;
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr("an illegal address"));
  EXPECT_EQ(engine_->streams().stats().leased, 0u);
}

WEIR_EVAL_ON_EVERY_DEVICE(FaultsOfADevice);

}  // namespace
}  // namespace weir
