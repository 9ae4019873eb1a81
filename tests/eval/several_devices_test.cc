// Two engines with one registry, as a process has that serves several devices:
// each evaluates with the other one beside it, refuses by name what is the
// other's, and waits on the host for points of the other.
#include <gmock/gmock.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "tests/base/eventually.h"
#include "tests/device/test_task.h"
#include "tests/eval/eval_fixture.h"

namespace weir {
namespace {

struct Pair {
  const char* name;
  const char* first;
  const char* second;         // "cpu:1": another CPU device
  bool streams_wait = false;  // of CPUs
};

class SeveralDevices : public ::testing::TestWithParam<Pair> {
 protected:
  void SetUp() override {
    registry_ = MakeOpRegistry({.test_operators = true});
    Open(GetParam().first, &first_);
    if (IsSkipped() || HasFatalFailure()) return;
    Open(GetParam().second, &second_);
  }

  void TearDown() override {
    const MisplacedWaits misplaced = CountMisplacedWaits();
    EXPECT_EQ(misplaced.count, 0u) << misplaced.first;
  }

  struct Side {
    std::string name;  // of the device
    std::unique_ptr<Engine> engine;
    std::shared_ptr<const Program> program;  // -x
  };

  void Open(const std::string& which, Side* side) {
    const bool another = which == "cpu:1";
    auto device = MakeDevice(another ? "cpu" : which,
                             {.cpu_threads = 2,
                              .streams_wait = GetParam().streams_wait,
                              .cpu_ordinal = another ? 1 : 0},
                             *registry_);
    if (Reason(device.status()) == "NO_CUDA_DEVICE") {
      GTEST_SKIP() << device.status().message();
    }
    if (which == "cuda:1" && absl::IsInvalidArgument(device.status())) {
      GTEST_SKIP() << "needs two GPUs: " << device.status().message();
    }
    ASSERT_TRUE(device.ok()) << device.status();
    side->name = DeviceName((*device)->info());
    EXPECT_EQ(side->name, which);
    EngineOptions options;
    options.streams.max = 4;
    options.pinned_bytes = size_t{64} << 20;
    options.tensor_bytes = size_t{64} << 20;
    auto engine = Engine::Create(*std::move(device), registry_.get(), options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    side->engine = *std::move(engine);
    side->program = Compile(*side->engine, "Neg");
    ASSERT_NE(side->program, nullptr);
  }

  std::shared_ptr<const Program> Compile(Engine& engine, const char* op,
                                         const char* domain = "") {
    auto program = Program::Compile(MakeGraph(op, 1, {}, domain),
                                    engine.device(), *registry_);
    EXPECT_TRUE(program.ok()) << program.status();
    return program.ok() ? *std::move(program) : nullptr;
  }

  static Activation Enter(const Side& side) {
    auto activation =
        EvalContext::Create(side.engine.get(), {})->Enter(NewHandlerId());
    EXPECT_TRUE(activation.ok()) << activation.status();
    return *std::move(activation);
  }

  void Prepare(WatchedWork& watched, std::shared_ptr<const Program> program) {
    watched.request().program = std::move(program);
    watched.request().inputs = {Floats(values_)};
    watched.request().outputs = {OutputWish::kInline};
  }

  void ExpectNegated(const Work& work) {
    const auto bytes = work.OutputBytes(0);
    ASSERT_EQ(bytes.size(), values_.size() * sizeof(float));
    const auto* y = reinterpret_cast<const float*>(bytes.data());
    for (size_t i = 0; i < values_.size(); ++i) EXPECT_EQ(y[i], -values_[i]);
  }

  // "WRONG_DEVICE", with the names of both.
  static void ExpectWrongDevice(const absl::Status& status,
                                const std::string& what, const Side& of,
                                const Side& here) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(Reason(status), "WRONG_DEVICE");
    const std::string message(status.message());
    EXPECT_NE(message.find(what), std::string::npos) << message;
    EXPECT_NE(
        message.find(absl::StrCat("is of ", of.name,
                                  " and the evaluation runs on ", here.name)),
        std::string::npos)
        << message;
  }

  const std::vector<float> values_ = {1, 2, 3};
  std::unique_ptr<OpRegistry> registry_;
  Side first_, second_;
};

INSTANTIATE_TEST_SUITE_P(
    Devices, SeveralDevices,
    ::testing::Values(Pair{"cpus", "cpu", "cpu:1"},
                      Pair{"waiting_cpus", "cpu", "cpu:1", true},
                      Pair{"cuda_cpu", "cuda:0", "cpu"},
                      Pair{"cpu_cuda", "cpu", "cuda:0"},
                      Pair{"cuda_twice", "cuda:0", "cuda:0"},
                      Pair{"two_cudas", "cuda:0", "cuda:1"}),
    [](const auto& info) { return std::string(info.param.name); });

// By turns from one thread, and from two at once: what a thread was told of one
// device is not taken for the other's.
TEST_P(SeveralDevices, EachEvaluatesBesideTheOther) {
  const auto run = [this](const Side& side) {
    Activation activation = Enter(side);
    WatchedWork watched;
    Prepare(watched, side.program);
    activation.Submit(watched.work.get(), &watched.waiter);
    ASSERT_TRUE(watched.Done().ok()) << side.name << ": " << watched.Done();
    ExpectNegated(*watched.work);
  };
  for (int turn = 0; turn < 8; ++turn) {
    run(first_);
    run(second_);
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int turn = 0; turn < 16; ++turn) {
        run((turn + i) % 2 == 0 ? first_ : second_);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Products and convolutions by libraries that a GPU opens when it first needs
// them, and whose handles are one device's.
TEST_P(SeveralDevices, EachHasLibrariesOfItsOwn) {
  struct Operation {
    const char* op;
    std::vector<Dims> inputs;
  };
  const std::vector<float> ones(64, 1);
  for (const Operation& operation :
       {Operation{"MatMul", {{8, 8}, {8, 8}}},
        Operation{"Conv", {{1, 1, 8, 8}, {1, 1, 3, 3}}},
        Operation{"Softmax", {{8, 8}}}, Operation{"ReduceSum", {{8, 8}}}}) {
    SCOPED_TRACE(operation.op);
    std::vector<std::vector<float>> results;
    std::vector<std::shared_ptr<const Program>> programs;
    for (int turn = 0; turn < 2; ++turn) {
      for (const Side* side : {&first_, &second_}) {
        Graph graph;
        graph.opsets = {{"", 17}};
        GraphNode node;
        node.name = "the_node";
        node.op = operation.op;
        WatchedWork watched;
        for (size_t i = 0; i < operation.inputs.size(); ++i) {
          const std::string name = absl::StrCat("in", i);
          const Dims& dims = operation.inputs[i];
          SymbolicDims declared;
          int64_t elements = 1;
          for (const int64_t extent : dims) {
            declared.push_back(Dim(extent));
            elements *= extent;
          }
          graph.inputs.push_back({name, DType::kFloat, declared});
          node.inputs.push_back(name);
          InputSource source;
          source.dtype = DType::kFloat;
          source.dims = dims;
          source.pieces = {
              std::string_view(reinterpret_cast<const char*>(ones.data()),
                               static_cast<size_t>(elements) * sizeof(float))};
          watched.request().inputs.push_back(source);
        }
        node.outputs = {"y"};
        graph.nodes = {node};
        graph.outputs = {"y"};
        auto program = Program::Compile(std::move(graph),
                                        side->engine->device(), *registry_);
        ASSERT_TRUE(program.ok()) << program.status();
        programs.push_back(*program);
        watched.request().program = *program;
        watched.request().outputs = {OutputWish::kInline};
        Activation activation = Enter(*side);
        activation.Submit(watched.work.get(), &watched.waiter);
        ASSERT_TRUE(watched.Done().ok()) << side->name << watched.Done();
        const auto bytes = watched.work->OutputBytes(0);
        const auto* y = reinterpret_cast<const float*>(bytes.data());
        results.emplace_back(y, y + bytes.size() / sizeof(float));
      }
    }
    for (const std::vector<float>& result : results) {
      EXPECT_EQ(result, results[0]);  // small whole numbers, and powers of two
    }
    // What a device's libraries made goes while the thread has another one.
    while (!programs.empty()) programs.pop_back();
  }
}

// Both are there at once, each written and read by a stream of its device.
TEST_P(SeveralDevices, MemoryOfOneIsNoneOfTheOthers) {
  constexpr size_t kBytes = size_t{1} << 20;
  struct Owned {
    Device* device;
    DeviceMemory memory;
    PinnedMemory pinned;
    std::unique_ptr<Stream> stream;  // ends before what it uses
  };
  for (const bool turned : {false, true}) {
    SCOPED_TRACE(turned);
    std::vector<Owned> all;
    for (Side* side : {&first_, &second_}) {
      Device& device = side->engine->device();
      auto memory = device.Allocate(kBytes);
      auto pinned = device.AllocatePinned(kBytes);
      auto stream = device.CreateStream(0);
      ASSERT_TRUE(memory.ok()) << memory.status();
      ASSERT_TRUE(pinned.ok()) << pinned.status();
      ASSERT_TRUE(stream.ok()) << stream.status();
      all.push_back({&device, *std::move(memory), *std::move(pinned),
                     *std::move(stream)});
    }
    if (turned) std::swap(all[0], all[1]);
    for (size_t i = 0; i < all.size(); ++i) {
      std::memset(all[i].pinned.data(), 0, kBytes);
      TestTask write([&](Stream& stream) {
        return stream.Fill(all[i].memory.data(), static_cast<uint8_t>(i + 1),
                           kBytes);
      });
      all[i].stream->Enqueue(&write);
      EXPECT_EQ(write.Wait().status, absl::OkStatus());
    }
    for (Owned& one : all) {
      TestTask read([&](Stream& stream) {
        return stream.CopyToHost(one.pinned.data(), one.memory.data(), kBytes);
      });
      one.stream->Enqueue(&read);
      EXPECT_EQ(read.Wait().status, absl::OkStatus());
    }
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_THAT(absl::MakeSpan(all[i].pinned.data(), kBytes),
                  ::testing::Each(static_cast<std::byte>(i + 1)));
      EXPECT_EQ(&all[i].stream->device(), all[i].device);
    }
  }
}

TEST_P(SeveralDevices, ProgramsTensorsAndProducersOfTheOtherAreRefused) {
  for (auto [here, there] :
       {std::pair(&first_, &second_), std::pair(&second_, &first_)}) {
    Activation a = Enter(*here);
    WatchedWork program, producer, tensor, reader;
    Prepare(program, there->program);
    a.Submit(program.work.get(), &program.waiter);
    ExpectWrongDevice(program.Done(), "the program", *there, *here);

    Activation b = Enter(*there);
    Prepare(producer, there->program);
    producer.request().outputs = {OutputWish::kKeep};
    b.Submit(producer.work.get(), &producer.waiter);
    ASSERT_TRUE(producer.Done().ok()) << producer.Done();
    Prepare(tensor, here->program);
    tensor.request().inputs = {InputSource()};
    tensor.request().inputs[0].tensor = producer.work->OutputTensor(0);
    a.Submit(tensor.work.get(), &tensor.waiter);
    ExpectWrongDevice(tensor.Done(), "input", *there, *here);

    Prepare(reader, here->program);
    reader.request().inputs = {InputSource()};
    reader.request().inputs[0].producer = producer.work;
    a.Submit(reader.work.get(), &reader.waiter);
    ExpectWrongDevice(reader.Done(), "input", *there, *here);
    // It goes on.
    WatchedWork after;
    Prepare(after, here->program);
    a.Submit(after.work.get(), &after.waiter);
    EXPECT_TRUE(after.Done().ok()) << after.Done();
  }
}

// Here its graph would do as well.
TEST_P(SeveralDevices, AProgramOfTheOtherIsRefusedBesideDeferredWorks) {
  const auto graph = std::make_shared<const Graph>(MakeGraph("Neg", 1));
  for (auto [here, there] :
       {std::pair(&first_, &second_), std::pair(&second_, &first_)}) {
    Activation activation = Enter(*here);
    WatchedWork good, refused;
    for (auto [watched, side] :
         {std::pair(&good, here), std::pair(&refused, there)}) {
      Prepare(*watched, side->program);
      watched->request().graph = graph;
      watched->request().mode = EvalMode::kDeferred;
      watched->request().outputs = {OutputWish::kKeep};
      activation.Defer(watched->work, &watched->waiter);
    }
    activation.Flush();
    EXPECT_EQ(good.Done(), absl::OkStatus());
    ExpectWrongDevice(refused.Done(), "the program", *there, *here);
  }
}

// The work of the other device is not launched yet.
TEST_P(SeveralDevices, APointOfTheOtherIsAWaitOfTheHost) {
  for (auto [here, there] :
       {std::pair(&first_, &second_), std::pair(&second_, &first_)}) {
    auto gate = std::make_shared<Timeline>("gate");
    Activation a = Enter(*here);
    Activation b = Enter(*there);
    WatchedWork held, behind;
    Prepare(held, there->program);
    held.request().after = {Point{gate, 1}};
    b.Submit(held.work.get(), &held.waiter);
    Prepare(behind, here->program);
    const Point end = held.work->point();
    behind.request().after = {end};
    a.Submit(behind.work.get(), &behind.waiter);
    const Dispatcher& dispatcher = here->engine->dispatcher();
    ASSERT_TRUE(testing::Eventually([&] { return dispatcher.parked() == 1; }));
    ASSERT_TRUE(gate->Advance(1).ok());
    ASSERT_TRUE(behind.Done().ok()) << behind.Done();
    ExpectNegated(*behind.work);
    ASSERT_EQ(behind.work->report().waits.size(), 1u);
    EXPECT_EQ(behind.work->report().waits[0].kind, InsertedWait::Kind::kHost);
    EXPECT_TRUE(end.Outcome().has_value()) << "it did not wait";
    EXPECT_TRUE(held.Done().ok()) << held.Done();
  }
}

// A place on a stream of the other device, or what is backed by one.
TEST_P(SeveralDevices, APointThatIsLaunchedThereIsAWaitOfTheHost) {
  for (auto [here, there] :
       {std::pair(&first_, &second_), std::pair(&second_, &first_)}) {
    for (const bool backed : {false, true}) {
      SCOPED_TRACE(here->name + (backed ? ", backed" : ""));
      auto stream = std::make_shared<Timeline>("a stream of the other",
                                               &there->engine->device());
      auto told = std::make_shared<Timeline>("told");
      stream->SetLaunched(1);
      told->Back(1, {stream, 1});
      Activation activation = Enter(*here);
      WatchedWork behind;
      Prepare(behind, here->program);
      behind.request().after = {Point{backed ? told : stream, 1}};
      activation.Submit(behind.work.get(), &behind.waiter);
      const Dispatcher& dispatcher = here->engine->dispatcher();
      EXPECT_TRUE(
          testing::Eventually([&] { return dispatcher.parked() == 1; }));
      EXPECT_LT(behind.work->state(), WorkState::kScheduled);
      EXPECT_TRUE(stream->Advance(1).ok());
      EXPECT_TRUE(told->Advance(1).ok());
      ASSERT_TRUE(behind.Done().ok()) << behind.Done();
      ExpectNegated(*behind.work);
      ASSERT_EQ(behind.work->report().waits.size(), 1u);
      EXPECT_EQ(behind.work->report().waits[0].kind, InsertedWait::Kind::kHost);
    }
  }
}

TEST_P(SeveralDevices, AFaultOfTheOtherIsToldWithItsCauseAndStaysThere) {
  for (auto [here, there] :
       {std::pair(&first_, &second_), std::pair(&second_, &first_)}) {
    const auto fault = Compile(*there->engine, "Fault", "weir");
    ASSERT_NE(fault, nullptr);
    auto gate = std::make_shared<Timeline>("gate");
    Activation a = Enter(*here);
    Activation b = Enter(*there);
    WatchedWork failing, behind, bystander;
    Prepare(failing, fault);
    failing.request().after = {Point{gate, 1}};
    b.Submit(failing.work.get(), &failing.waiter);
    Prepare(behind, here->program);
    behind.request().after = {failing.work->point()};
    a.Submit(behind.work.get(), &behind.waiter);
    ASSERT_TRUE(gate->Advance(1).ok());
    EXPECT_EQ(Reason(behind.Done()), "INJECTED_FAULT") << behind.Done();
    EXPECT_EQ(Reason(failing.Done()), "INJECTED_FAULT");
    EXPECT_TRUE(here->engine->device().health().status().ok());
    EXPECT_TRUE(there->engine->device().health().status().ok());
    Prepare(bystander, here->program);
    a.Submit(bystander.work.get(), &bystander.waiter);
    EXPECT_TRUE(bystander.Done().ok()) << bystander.Done();
  }
}

// One device goes, with all that it made.
TEST_P(SeveralDevices, OneGoesWhileTheOtherEvaluates) {
  std::atomic<size_t> evaluated = 0;
  std::atomic<bool> over = false;
  const auto evaluates_more = [&] {
    const size_t before = evaluated;
    // The first of these may have been there already.
    return testing::Eventually([&] { return evaluated >= before + 2; });
  };
  std::thread evaluates([&] {
    Activation activation = Enter(second_);
    while (!over) {
      WatchedWork watched;
      Prepare(watched, second_.program);
      activation.Submit(watched.work.get(), &watched.waiter);
      EXPECT_EQ(watched.Done(), absl::OkStatus());
      if (!watched.work->status().ok()) return;
      ExpectNegated(*watched.work);
      ++evaluated;
    }
  });
  EXPECT_TRUE(evaluates_more());
  first_.program = nullptr;
  first_.engine = nullptr;
  EXPECT_TRUE(evaluates_more());
  over = true;
  evaluates.join();
}

}  // namespace
}  // namespace weir
