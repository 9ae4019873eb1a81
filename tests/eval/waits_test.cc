// Nothing waits for a device, a driver or a library on a thread that may not: a
// load of all kinds over a device where whatever takes, frees, makes or asks
// may wait, submitted and continued as by I/O threads.
#include <atomic>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/thread_role.h"
#include "tests/base/event.h"
#include "tests/base/eventually.h"
#include "tests/device/fault_injecting_device.h"
#include "tests/eval/eval_fixture.h"

namespace weir {
namespace {

using testing::Eventually;

class Waits : public ::testing::Test {
 protected:
  Waits() : registry_(MakeOpRegistry({.test_operators = true})) {
    auto device = std::make_unique<FaultInjectingDevice>(
        MakeCpuDevice({.cpu_threads = 2}));
    device_ = device.get();
    device_->set_allocation_waits();
    device_->set_takes_copies();
    EngineOptions options;
    options.streams.reserved = 1;
    options.streams.max = 4;
    // Lanes and buffers come and go.
    options.streams.idle_ttl = absl::Milliseconds(1);
    options.pinned_bytes = size_t{1} << 20;
    options.pinned_ttl = absl::Milliseconds(1);
    options.kept_pinned_bytes = 0;
    options.programs.max_programs = 4;
    auto engine = Engine::Create(std::move(device), registry_.get(), options);
    EXPECT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }

  ~Waits() override {
    engine_ = nullptr;
    const MisplacedWaits misplaced = CountMisplacedWaits();
    EXPECT_EQ(misplaced.count, 0u) << misplaced.first;
  }

  // What one call does, on the thread that took it.
  struct Call final : WorkObserver {
    void OnReturn(Work&) override {}
    void OnDone(Work& done) override {
      code = done.status().code();
      io->Post([this] {
        work = nullptr;
        activation = Activation();
        left->fetch_sub(1);  // the last that it does
      });
    }
    ThreadExecutor* io = nullptr;
    std::shared_ptr<Work> work = std::make_shared<Work>();
    Activation activation;
    absl::StatusCode code = absl::StatusCode::kUnknown;
    std::atomic<int>* left = nullptr;
    bool keeps = false;  // the result, on the device
  };

  // On an I/O thread, as a service does it: looks the program up, has it
  // compiled if need be, and evaluates it.
  void Begin(Call* call, std::string key, Graph graph, size_t elements,
             Nanos deadline = kNoDeadline) {
    engine_->programs().GetOrCompile(
        std::move(key), [graph] { return absl::StatusOr<Graph>(graph); },
        kNoDeadline,
        [=, this](ProgramCache::ProgramOr program) {
          ASSERT_TRUE(program.ok()) << program.status();
          io_.Post([=, this, program = *std::move(program)] {
            Evaluate(call, program, elements, deadline);
          });
        });
  }

  void Evaluate(Call* call, std::shared_ptr<const Program> program,
                size_t elements, Nanos deadline) {
    ContextOptions options;
    options.executor = &io_;
    auto activation =
        EvalContext::Create(engine_.get(), options)->Enter(NewHandlerId());
    ASSERT_TRUE(activation.ok());
    call->activation = *std::move(activation);
    WorkRequest& request = call->work->request;
    request.program = std::move(program);
    request.inputs = {FloatsAt(values_.data(), elements)};
    request.deadline = deadline;
    if (call->keeps) request.outputs = {OutputWish::kKeep};
    call->activation.Submit(call->work.get(), call);
  }

  std::unique_ptr<OpRegistry> registry_;
  FaultInjectingDevice* device_ = nullptr;
  std::unique_ptr<Engine> engine_;
  const std::vector<float> values_ = std::vector<float>(1 << 16, 1.0f);
  ThreadExecutor io_{"test-io", ThreadRole::kIo};
};

// Without memory at hand for the device they are copied all the same.
TEST_F(Waits, AnEagerCallersBytesAreItsOwnAgain) {
  std::vector<float> values(1 << 16, 3);
  const auto program =
      Program::Compile(MakeGraph("Identity", 1), engine_->device(), *registry_);
  ASSERT_TRUE(program.ok()) << program.status();
  const auto piece = [&](size_t from, size_t count) {
    return std::string_view(reinterpret_cast<const char*>(&values[from]),
                            count * sizeof(float));
  };
  auto context = EvalContext::Create(engine_.get(), {});
  Activation activation = *context->Enter(NewHandlerId());
  WatchedWork work;
  work.request().program = *program;
  work.request().outputs = {OutputWish::kKeep};
  InputSource source = Floats(values);
  source.pieces = {piece(0, 1000), piece(1000, values.size() - 1000)};
  work.request().inputs = {source};
  // Its stream waits, so that the launch comes after the change.
  auto gate = std::make_shared<Timeline>("gate");
  work.request().after = {Point{gate, 1}};
  activation.Submit(work.work.get(), &work.waiter);
  ASSERT_TRUE(work.Returned().ok()) << work.work->status();
  values.assign(values.size(), 7);
  ASSERT_TRUE(gate->Advance(1).ok());
  ASSERT_TRUE(work.Done().ok()) << work.work->status();
  const auto* kept =
      reinterpret_cast<const float*>(work.work->OutputTensor(0).data());
  EXPECT_EQ(kept[0], 3);
  EXPECT_EQ(kept[values.size() - 1], 3);
}

// What of it fills its stream's queue waits for room, elsewhere.
TEST_F(Waits, AWorkOfManyLaunchesIsMadeElsewhere) {
  constexpr size_t kLaunches = 1000;
  Graph graph = MakeGraph("Neg", 1);
  for (size_t i = 1; i < kLaunches; ++i) {
    GraphNode node = graph.nodes[0];
    node.inputs = graph.nodes.back().outputs;
    node.outputs = {absl::StrCat("more", i)};
    graph.nodes.push_back(std::move(node));
  }
  graph.outputs = graph.nodes.back().outputs;
  std::atomic<int> left{1};
  Call call;
  call.io = &io_;
  call.left = &left;
  io_.Post([&] { Begin(&call, "many", graph, 16); });
  ASSERT_TRUE(Eventually([&] { return left == 0; }));
  EXPECT_EQ(call.code, absl::StatusCode::kOk);
  EXPECT_GT(device_->calls(DeviceCall::kWaitForRoom), 1u);
}

// Growing and shrinking works, failing ones, ones whose lane is ill, ones that
// nobody waits for any more; more at a time than there are lanes.
TEST_F(Waits, AreNowhereOutOfPlaceUnderLoadsOfAllKinds) {
  constexpr int kRounds = 30;
  constexpr int kCalls = 12;
  int failed = 0;
  int late = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::unique_ptr<Call>> calls;
    std::atomic<int> left{kCalls};
    if (round % 5 == 1) {
      device_->Fail(DeviceCall::kCheck, absl::InternalError("ill"));
    }
    for (int i = 0; i < kCalls; ++i) {
      calls.push_back(std::make_unique<Call>());
      Call* const call = calls.back().get();
      call->io = &io_;
      call->left = &left;
      call->keeps = i % 4 == 3;
      // The larger ones want a new arena and new buffers.
      const size_t elements = size_t{1} << ((i + round) % 16);
      io_.Post([=, this] {
        if (i % 6 == 0) {
          Begin(call, "fault", MakeGraph("Fault", 1, {}, "weir"), elements);
        } else if (i % 6 == 1) {
          Begin(call, "late", MakeGraph("Neg", 1), elements, NowNanos());
        } else {
          // More programs than the cache keeps.
          const char* const op = i % 2 == 0 ? "Neg" : "Abs";
          Begin(call, absl::StrCat(op, (round + i) % 8), MakeGraph(op, 1),
                elements);
        }
      });
    }
    ASSERT_TRUE(Eventually([&] { return left == 0; }));
    for (const auto& call : calls) {
      failed += call->code == absl::StatusCode::kInternal;
      late += call->code == absl::StatusCode::kDeadlineExceeded;
    }
    // The lanes and buffers of this round go, the next one makes its own.
    if (round % 4 == 0) {
      EXPECT_TRUE(Eventually([&] {
        return engine_->streams().stats().created() == 1 &&
               engine_->pinned().stats().cached_bytes == 0;
      }));
    }
  }
  EXPECT_GT(late, 0);
  EXPECT_GE(failed, kRounds);
  // All that was to be met was met.
  for (const DeviceCall call :
       {DeviceCall::kCreateStream, DeviceCall::kAllocate,
        DeviceCall::kAllocatePinned, DeviceCall::kFree, DeviceCall::kCheck}) {
    EXPECT_GT(device_->calls(call), 1u) << static_cast<size_t>(call);
  }
  EXPECT_GT(engine_->streams().stats().waited_total, 0u);
  EXPECT_GT(engine_->streams().stats().destroyed_total, 0u);
  EXPECT_GT(engine_->programs().stats().evicted, 0u);
}

}  // namespace
}  // namespace weir
