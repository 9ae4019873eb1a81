// Which deferred works run as one graph, and that joining them changes neither
// results nor errors.
#include <gmock/gmock.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/base/event.h"
#include "tests/base/eventually.h"
#include "tests/device/fault_injecting_device.h"
#include "tests/eval/deferred_fixture.h"
#include "tests/graph/copy_operator.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using testing::Eventually;

class Joined : public DeferredTest {
 protected:
  // Of one input: its negative and its size.
  Source MakePair() {
    Graph graph = MakeGraph("Neg", 1);
    GraphNode size = graph.nodes[0];
    size.name = "the_other_node";
    size.op = "Abs";
    size.outputs = {"size"};
    graph.nodes.push_back(std::move(size));
    graph.outputs.push_back("size");
    return MakeSource(std::move(graph));
  }

  // What needs nothing is done before `reader`, of {2, -3}, may go on.
  void ExpectToWaitAlone(Deferred& reader, const std::function<void()>& go_on) {
    const std::vector<float> values = {-2, 3};
    Activation here = Enter(NewContext());
    Deferred free(this, "Neg", 1);
    free.Read(0, values);
    Defer(here, free);
    Defer(here, reader);
    here.Flush();
    EXPECT_TRUE(Eventually([&] { return free.work->done(); }));
    EXPECT_FALSE(reader.work->done());
    go_on();
    for (Deferred* work : {&free, &reader}) {
      ASSERT_EQ(work->Done(), absl::OkStatus());
      EXPECT_EQ(work->work->report().joined_works, 0u);
    }
    EXPECT_THAT(Kept(here, reader), ElementsAre(2, 3));
  }

  // A work that needs nothing and `reader`, of {2, -3}, run as one.
  void ExpectToJoin(Activation& activation, Deferred& reader,
                    const std::function<void()>& go_on) {
    const std::vector<float> values = {-2, 3};
    Deferred free(this, "Neg", 1);
    free.Read(0, values);
    Defer(activation, free);
    Defer(activation, reader);
    activation.Flush();
    go_on();
    for (Deferred* work : {&free, &reader}) {
      ASSERT_EQ(work->Done(), absl::OkStatus());
      EXPECT_EQ(work->work->report().joined_works, 2u);
    }
    EXPECT_THAT(Kept(activation, reader), ElementsAre(2, 3));
  }

  uint64_t compiled() const { return engine_->programs().stats().misses; }
};
WEIR_EVAL_ON_EVERY_DEVICE(Joined);

// Whose queue is full: alone they need none.
TEST_P(Joined, TheirGraphIsCompiledForTheirOwner) {
  Event compiling, gate, told;
  size_t asked = 0;
  const auto ask = [&](std::string key) {
    ++asked;
    engine_->programs().GetOrCompile(
        std::move(key),
        [&]() -> absl::StatusOr<Graph> {
          compiling.Set();
          gate.Wait();
          return absl::CancelledError("it was only in the way");
        },
        kNoDeadline, [&](const ProgramCache::ProgramOr&) { told.Set(); },
        "owner");
  };
  ask("runs");
  compiling.Wait();
  while (told.count() == 0) ask(absl::StrCat("waits ", asked));
  const size_t queued = engine_->programs().stats().queued;
  const std::vector<float> values = {-2, 3};
  Activation here = Enter(NewContext());
  Deferred first(this, "Neg", 1), second(this, "Abs", 1);
  for (Deferred* work : {&first, &second}) {
    work->request().owner = "owner";
    work->Read(0, values);
    Defer(here, *work);
  }
  here.Flush();
  EXPECT_TRUE(Eventually([&] {
    return (first.work->done() && second.work->done()) ||
           engine_->programs().stats().queued != queued;
  }));
  EXPECT_EQ(engine_->programs().stats().queued, queued);
  gate.Set();
  for (Deferred* work : {&first, &second}) {
    EXPECT_EQ(work->Done(), absl::OkStatus());
    EXPECT_EQ(work->work->report().joined_works, 0u);
  }
  told.Wait(asked);
}

// One engine may join the same programs in many ways.
TEST_P(Joined, GraphsAreToldApart) {
  const Source neg = MakeSource("Neg", 1), abs = MakeSource("Abs", 1);
  const Source pair = MakePair();
  struct Link {
    size_t member;
    size_t output;
  };
  struct Member {
    Source source;
    std::optional<Link> reads;                 // else the caller's values
    std::vector<std::vector<float>> expected;  // none: nobody holds it
  };
  const std::vector<float> values = {-2, 3};
  const std::vector<float> negative = {2, -3}, size = {2, 3};
  const std::vector<float> negative_size = {-2, -3};
  const std::vector<std::vector<Member>> joined = {
      {{neg, {}, {negative}}, {abs, Link{0, 0}, {size}}},
      {{neg, {}, {}}, {abs, Link{0, 0}, {size}}},
      {{neg, {}, {negative}}, {abs, {}, {size}}},
      {{abs, {}, {size}}, {neg, Link{0, 0}, {negative_size}}},
      {{neg, {}, {negative}}, {abs, {}, {size}}, {neg, Link{0, 0}, {values}}},
      {{neg, {}, {negative}},
       {abs, {}, {size}},
       {neg, Link{1, 0}, {negative_size}}},
      {{pair, {}, {negative, size}}, {neg, Link{0, 0}, {values}}},
      {{pair, {}, {negative, size}}, {neg, Link{0, 1}, {negative_size}}},
  };
  Activation activation = Enter(NewContext());
  for (const bool known : {false, true}) {
    for (size_t i = 0; i < joined.size(); ++i) {
      SCOPED_TRACE(i);
      std::deque<Deferred> works;
      for (const Member& member : joined[i]) {
        Deferred& work = works.emplace_back(member.source);
        if (member.reads.has_value()) {
          work.Read(0, works[member.reads->member], member.reads->output);
        } else {
          work.Read(0, values);
        }
        Defer(activation, work);
      }
      for (size_t m = 0; m < works.size(); ++m) {
        if (joined[i][m].expected.empty()) works[m].work = nullptr;
      }
      activation.Flush();
      for (size_t m = 0; m < works.size(); ++m) {
        const auto& expected = joined[i][m].expected;
        if (expected.empty()) continue;
        ASSERT_EQ(works[m].Done(), absl::OkStatus());
        EXPECT_EQ(works[m].work->report().joined_works, works.size());
        for (size_t output = 0; output < expected.size(); ++output) {
          EXPECT_EQ(Kept(activation, works[m], output), expected[output]);
        }
      }
      EXPECT_EQ(compiled(), known ? joined.size() : i + 1);
    }
  }
}

// Alone each would be refused, and the other one would not.
TEST_P(Joined, WrongCountsAreErrorsOfTheirOwnWork) {
  const std::vector<float> values = {-2, 3};
  for (const std::string field : {"inputs", "outputs"}) {
    SCOPED_TRACE(field);
    Activation activation = Enter(NewContext());
    Deferred good(this, "Neg", 1), bad(this, "Add", 2);
    good.Read(0, values);
    bad.Read(0, values);
    if (field == "outputs") {
      bad.Read(1, values);
      bad.request().outputs.push_back(OutputWish::kDrop);
    }
    Defer(activation, good);
    Defer(activation, bad);
    activation.Flush();
    EXPECT_EQ(good.Done(), absl::OkStatus());
    EXPECT_THAT(Kept(activation, good), ElementsAre(2, -3));
    EXPECT_TRUE(absl::IsInvalidArgument(bad.Done())) << bad.Done();
    EXPECT_EQ(Field(bad.Done()), field);
    EXPECT_EQ(compiled(), 0u) << "for both";
  }
}

// One that its producer does not keep, or does not have, is an error of the
// reader alone.
TEST_P(Joined, AnOutputThatIsDroppedIsNotRead) {
  const std::vector<float> values = {-2, 3};
  for (const size_t output : {size_t{1}, size_t{2}}) {
    SCOPED_TRACE(output);
    Activation activation = Enter(NewContext());
    Deferred producer(MakePair()), reader(this, "Neg", 1);
    Deferred other(this, "Abs", 1);
    producer.request().outputs = {OutputWish::kKeep, OutputWish::kDrop};
    producer.Read(0, values);
    reader.Read(0, producer, output);
    other.Read(0, producer, 0);
    for (Deferred* work : {&producer, &reader, &other}) {
      Defer(activation, *work);
    }
    activation.Flush();
    EXPECT_EQ(producer.Done(), absl::OkStatus());
    EXPECT_THAT(Kept(activation, producer), ElementsAre(2, -3));
    EXPECT_TRUE(absl::IsFailedPrecondition(reader.Done())) << reader.Done();
    EXPECT_EQ(Field(reader.Done()), "inputs[0]");
    EXPECT_EQ(other.Done(), absl::OkStatus());
    EXPECT_THAT(Kept(activation, other), ElementsAre(2, 3));
  }
}

// A plan is made before the producer runs: alone the reader would be refused.
TEST_P(Joined, WhatAPlanNeedsIsReadFromNoOtherWork) {
  const auto make_ints = [] {
    Graph graph = MakeGraph("Identity", 1);
    graph.inputs[0].dtype = DType::kInt64;
    return graph;
  };
  const auto make_sum = [] {
    Graph graph = MakeGraph("ReduceSum", 2);
    graph.inputs[1].dtype = DType::kInt64;
    return graph;
  };
  const std::vector<float> values = {-2};
  const std::vector<int64_t> first = {0};
  Activation activation = Enter(NewContext());
  Deferred axes(MakeSource(make_ints())), sum(MakeSource(make_sum()));
  Deferred other(this, "Neg", 1);
  axes.Input(0).dtype = DType::kInt64;
  axes.Input(0).dims = {1};
  axes.Input(0).pieces = {std::string_view(
      reinterpret_cast<const char*>(first.data()), sizeof(int64_t))};
  sum.Read(0, values);
  sum.Read(1, axes);
  other.Read(0, values);
  for (Deferred* work : {&axes, &sum, &other}) Defer(activation, *work);
  activation.Flush();
  EXPECT_EQ(axes.Done(), absl::OkStatus());
  EXPECT_TRUE(absl::IsInvalidArgument(sum.Done())) << sum.Done();
  EXPECT_EQ(Field(sum.Done()), "inputs[1]");
  EXPECT_EQ(other.Done(), absl::OkStatus());
  EXPECT_EQ(compiled(), 0u) << "joined";
}

// A joined program would have them once more.
TEST_P(Joined, WhatHasLargeConstantsStaysApart) {
  constexpr size_t kMost = (size_t{1} << 20) / sizeof(float);
  const auto make_graph = [](size_t elements) {
    auto constant = std::make_shared<Constant>();
    auto data = std::make_shared<const std::vector<float>>(elements, 1.0f);
    constant->tensor.dtype = DType::kFloat;
    constant->tensor.dims = {static_cast<int64_t>(elements)};
    constant->tensor.data = data->data();
    constant->owner = std::move(data);
    Graph graph = MakeGraph("Add", 1);
    graph.nodes[0].inputs.push_back("ones");
    graph.constants["ones"] = std::move(constant);
    return graph;
  };
  const std::vector<float> values = {-2};
  for (const bool large : {false, true}) {
    SCOPED_TRACE(large);
    Activation activation = Enter(NewContext());
    Deferred first(this, "Neg", 1), second(this, "Abs", 1);
    Deferred adds(MakeSource(make_graph(large ? kMost + 1 : kMost)));
    for (Deferred* work : {&first, &second, &adds}) {
      work->Read(0, values);
      Defer(activation, *work);
    }
    activation.Flush();
    for (Deferred* work : {&first, &second, &adds}) {
      ASSERT_EQ(work->Done(), absl::OkStatus());
    }
    EXPECT_EQ(first.work->report().joined_works, large ? 2u : 3u);
    EXPECT_EQ(second.work->report().joined_works, large ? 2u : 3u);
    EXPECT_EQ(adds.work->report().joined_works, large ? 0u : 3u);
    EXPECT_THAT(Kept(activation, adds), ::testing::Each(-1));
  }
}

TEST_P(Joined, ReadersOfWhatIsWrittenJoin) {
  const std::vector<float> values = {-2, 3};
  Activation activation = Enter(NewContext());
  Deferred producer(this, "Neg", 1), reader(this, "Abs", 1);
  producer.request().mode = EvalMode::kSyncFull;
  producer.Read(0, values);
  activation.Submit(producer.work.get(), &producer.waiter);
  ASSERT_EQ(producer.Done(), absl::OkStatus());
  reader.Input(0).tensor = producer.work->OutputTensor(0);
  ExpectToJoin(activation, reader, [] {});
}

// It is before them in any case.
TEST_P(Joined, ReadersOfAnEarlierWorkOfTheirContextJoin) {
  auto gate = std::make_shared<Timeline>("gate");
  const std::vector<float> values = {-2, 3};
  Activation activation = Enter(NewContext());
  Deferred producer(this, "Neg", 1), reader(this, "Abs", 1);
  producer.request().mode = EvalMode::kEager;
  producer.request().after = {Point{gate, 1}};
  producer.Read(0, values);
  activation.Submit(producer.work.get(), &producer.waiter);
  reader.Read(0, producer);
  ExpectToJoin(activation, reader, [&] { ASSERT_TRUE(gate->Advance(1).ok()); });
  EXPECT_EQ(producer.Done(), absl::OkStatus());
}

TEST_P(Joined, ADeadlineEndsItsOwnWorkAlone) {
  auto gate = std::make_shared<Timeline>("gate");
  const std::vector<float> values = {-2, 3};
  Activation activation = Enter(NewContext());
  Deferred held(this, "Neg", 1), late(this, "Neg", 1), other(this, "Abs", 1);
  for (Deferred* work : {&held, &late, &other}) work->Read(0, values);
  held.request().mode = EvalMode::kEager;
  held.request().after = {Point{gate, 1}};
  activation.Submit(held.work.get(), &held.waiter);
  late.request().deadline = NowNanos() + 100'000'000;
  Defer(activation, late);
  Defer(activation, other);
  activation.Flush();
  EXPECT_TRUE(absl::IsDeadlineExceeded(late.Done())) << late.Done();
  EXPECT_FALSE(held.work->done());
  EXPECT_FALSE(other.work->done());
  ASSERT_TRUE(gate->Advance(1).ok());
  EXPECT_EQ(held.Done(), absl::OkStatus());
  ASSERT_EQ(other.Done(), absl::OkStatus());
  EXPECT_THAT(Kept(activation, other), ElementsAre(2, 3));
}

// Each draws numbers of its own.
TEST_P(Joined, RandomWorksRunOneByOne) {
  Attributes shape;
  shape.Set("shape", std::vector<int64_t>{8});
  const Source random =
      MakeSource(MakeGraph("RandomUniform", 0, shape, "weir"));
  Activation activation = Enter(NewContext());
  Deferred first(random), second(random);
  for (Deferred* work : {&first, &second}) Defer(activation, *work);
  activation.Flush();
  for (Deferred* work : {&first, &second}) {
    ASSERT_EQ(work->Done(), absl::OkStatus());
    EXPECT_EQ(work->work->report().joined_works, 0u);
  }
  EXPECT_NE(Kept(activation, first), Kept(activation, second));
}

TEST_P(Joined, AWorkThatComesAfterAnotherWaitsAlone) {
  auto gate = std::make_shared<Timeline>("gate");
  const std::vector<float> values = {2, -3};
  Deferred later(this, "Abs", 1);
  later.Read(0, values);
  later.request().after = {Point{gate, 1}};
  ExpectToWaitAlone(later, [&] { ASSERT_TRUE(gate->Advance(1).ok()); });
}

// Somebody in another context writes it, once more.
TEST_P(Joined, AReaderOfATensorThatIsNotWrittenYetWaitsAlone) {
  auto gate = std::make_shared<Timeline>("gate");
  const std::vector<float> values = {-2, 3};
  Activation elsewhere = Enter(NewContext());
  Deferred producer(this, "Neg", 1), reader(this, "Abs", 1);
  producer.request().mode = EvalMode::kSyncFull;
  producer.Read(0, values);
  elsewhere.Submit(producer.work.get(), &producer.waiter);
  ASSERT_EQ(producer.Done(), absl::OkStatus());
  const Tensor tensor = producer.work->OutputTensor(0);
  tensor.storage().SetWriter({gate, 1});
  reader.Input(0).tensor = tensor;
  ExpectToWaitAlone(reader, [&] { ASSERT_TRUE(gate->Advance(1).ok()); });
}

// A GPU's streams wait for each other: there such works may be joined.
class JoinedOnCpu : public Joined {
 protected:
  void SetUp() override {
    registry_ = MakeOpRegistry();
    auto device = std::make_unique<FaultInjectingDevice>(
        MakeCpuDevice({.cpu_threads = 2}));
    FaultInjectingDevice* const made = device.get();
    Open(std::move(device), SmallEngine());
    device_ = made;
  }
  void Open(std::unique_ptr<Device> device, const EngineOptions& options) {
    auto engine = Engine::Create(std::move(device), registry_.get(), options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    device_ = nullptr;  // it may be any
  }

  FaultInjectingDevice* device_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(Devices, JoinedOnCpu, ::testing::Values("cpu"),
                         [](const auto&) { return "cpu"; });

// The producer is on its stream for as long as the test wants.
TEST_P(JoinedOnCpu, AReaderOfAWorkThatRunsWaitsAlone) {
  const std::vector<float> values = {-2, 3};
  auto& hold = device_->HoldCall(DeviceCall::kLaunch);
  Activation elsewhere = Enter(NewContext());
  Deferred producer(this, "Neg", 1), reader(this, "Abs", 1);
  producer.request().mode = EvalMode::kEager;
  producer.Read(0, values);
  elsewhere.Submit(producer.work.get(), &producer.waiter);
  hold.WaitUntilHeld();
  reader.Read(0, producer);
  ExpectToWaitAlone(reader, [&] { hold.Release(); });
  EXPECT_EQ(producer.Done(), absl::OkStatus());
}

// Its writer is on another stream.
TEST_P(JoinedOnCpu, ReadersOfWhatIsBeingWrittenJoinWhereStreamsWait) {
  Open(MakeCpuDevice({.cpu_threads = 2, .streams_wait = true}), SmallEngine());
  auto stream = std::make_shared<Timeline>("a stream", &engine_->device());
  stream->SetLaunched(1);
  const std::vector<float> values = {-2, 3};
  Activation activation = Enter(NewContext());
  Deferred producer(this, "Neg", 1), reader(this, "Abs", 1);
  producer.request().mode = EvalMode::kSyncFull;
  producer.Read(0, values);
  activation.Submit(producer.work.get(), &producer.waiter);
  ASSERT_EQ(producer.Done(), absl::OkStatus());
  const Tensor tensor = producer.work->OutputTensor(0);
  tensor.storage().SetWriter({stream, 1});
  reader.Input(0).tensor = tensor;
  ExpectToJoin(activation, reader,
               [&] { ASSERT_TRUE(stream->Advance(1).ok()); });
}

// Each by itself would wait as long again.
TEST_P(JoinedOnCpu, AWaitForALaneThatTookTooLongIsTheWaitOfAll) {
  EngineOptions options = SmallEngine();
  options.streams.max = 1;
  options.max_wait = absl::Seconds(1);
  Open(MakeCpuDevice({.cpu_threads = 2}), options);
  const std::vector<float> values = {-2, 3};
  const Source neg = MakeSource("Neg", 1), abs = MakeSource("Abs", 1);
  StreamLease taken;
  for (const bool free : {true, false}) {  // at first it is compiled
    SCOPED_TRACE(free);
    const uint64_t waited = engine_->streams().stats().waited_total;
    Activation activation = Enter(NewContext());
    Deferred first(neg), second(abs);
    for (Deferred* work : {&first, &second}) {
      work->Read(0, values);
      Defer(activation, *work);
    }
    activation.Flush();
    for (Deferred* work : {&first, &second}) {
      EXPECT_EQ(work->Done().code(), free
                                         ? absl::StatusCode::kOk
                                         : absl::StatusCode::kDeadlineExceeded);
      EXPECT_EQ(work->work->report().joined_works, 2u);
    }
    EXPECT_EQ(engine_->streams().stats().waited_total - waited, free ? 0u : 1u);
    if (!free) break;
    ASSERT_TRUE(Eventually([&] {
      auto lease = engine_->streams().TryAcquire();
      if (lease.ok()) taken = *std::move(lease);
      return lease.ok();
    }));
  }
}

// What is joined is compiled as one.
TEST_P(JoinedOnCpu, SoManyNodesRunAtOnceAndNoMore) {
  constexpr int kNodes = 1500, kMost = 4096;
  Graph chain;
  chain.opsets = {{"", 17}};
  chain.inputs = {{"v0", DType::kFloat, SymbolicDims{Dim()}}};
  for (int i = 0; i < kNodes; ++i) {
    GraphNode node;
    node.op = "Neg";
    node.inputs = {"v" + std::to_string(i)};
    node.outputs = {"v" + std::to_string(i + 1)};
    chain.nodes.push_back(std::move(node));
  }
  chain.outputs = {"v" + std::to_string(kNodes)};
  const Source source = MakeSource(std::move(chain));
  const std::vector<float> values = {2, -3};
  std::deque<Deferred> works;
  Activation activation = Enter(NewContext());
  for (int nodes = 0; nodes <= kMost; nodes += kNodes) {
    works.emplace_back(source).Read(0, values);
    Defer(activation, works.back());
  }
  activation.Flush();
  for (Deferred& work : works) {
    ASSERT_EQ(work.Done(), absl::OkStatus());
    EXPECT_EQ(work.work->report().joined_works,
              &work == &works.back() ? 0u : works.size() - 1);
    EXPECT_THAT(Kept(activation, work), ElementsAre(2, -3));
  }
}

// weir.Copy, which is compiled for as long as the test wants.
struct CompileGate {
  std::atomic<bool> shut = false;
  Event arrived;
  Event open;
};

// It is the registry's as well.
std::shared_ptr<CompileGate> RegisterCopy(OpRegistry& registry) {
  auto gate = std::make_shared<CompileGate>();
  EXPECT_TRUE(registry
                  .Register(testing::CopyDef("Copy"),
                            [gate](const NodeInfo&, Device&) {
                              if (gate->shut) {
                                gate->arrived.Set();
                                gate->open.Wait();
                              }
                              return std::make_unique<testing::CopyKernel>();
                            })
                  .ok());
  return gate;
}

TEST_P(JoinedOnCpu, ACancelledMemberWaitsForNoCompilation) {
  const std::shared_ptr<CompileGate> gate = RegisterCopy(*registry_);
  Open(MakeCpuDevice({.cpu_threads = 2}), SmallEngine());
  const std::vector<float> values = {-2, 3};
  const Source copy = MakeSource(MakeGraph("Copy", 1, {}, "weir"));
  Activation activation = Enter(NewContext());
  Deferred first(copy), second(MakeSource("Neg", 1));
  for (Deferred* work : {&first, &second}) {
    work->Read(0, values);
    Defer(activation, *work);
  }
  gate->shut = true;
  activation.Flush();
  gate->arrived.Wait();
  first.work->Cancel();
  EXPECT_TRUE(testing::Eventually(
      [&] { return first.work->done() && second.work->done(); }));
  gate->open.Set();
  EXPECT_EQ(first.Done().code(), absl::StatusCode::kCancelled);
  ASSERT_EQ(second.Done(), absl::OkStatus());
  EXPECT_EQ(second.work->report().joined_works, 0u);
  EXPECT_THAT(Kept(activation, second), ElementsAre(2, -3));
}

TEST_P(JoinedOnCpu, AnotherWorkThatIsCancelledLeavesThemToTheirCompilation) {
  const std::shared_ptr<CompileGate> gate = RegisterCopy(*registry_);
  Open(MakeCpuDevice({.cpu_threads = 2}), SmallEngine());
  const std::vector<float> values = {-2, 3};
  const Source copy = MakeSource(MakeGraph("Copy", 1, {}, "weir"));
  Activation activation = Enter(NewContext());
  Deferred first(copy), second(MakeSource("Neg", 1)), other(this, "Abs", 1);
  for (Deferred* work : {&first, &second, &other}) work->Read(0, values);
  Defer(activation, first);
  Defer(activation, second);
  gate->shut = true;
  activation.Flush();
  gate->arrived.Wait();
  other.request().mode = EvalMode::kEager;
  activation.Submit(other.work.get(), &other.waiter);
  other.work->Cancel();
  EXPECT_EQ(other.Done().code(), absl::StatusCode::kCancelled);
  gate->open.Set();
  for (Deferred* work : {&first, &second}) {
    ASSERT_EQ(work->Done(), absl::OkStatus());
    EXPECT_EQ(work->work->report().joined_works, 2u);
  }
  EXPECT_THAT(Kept(activation, second), ElementsAre(2, -3));
}

TEST_P(JoinedOnCpu, WhatTakesTooLongToCompileRunsOneByOne) {
  const std::shared_ptr<CompileGate> gate = RegisterCopy(*registry_);
  EngineOptions options = SmallEngine();
  options.max_wait = absl::Seconds(1);
  Open(MakeCpuDevice({.cpu_threads = 2}), options);
  const std::vector<float> values = {-2, 3};
  const Source copy = MakeSource(MakeGraph("Copy", 1, {}, "weir"));
  const Source neg = MakeSource("Neg", 1);
  Activation activation = Enter(NewContext());
  for (const Source& source : {copy, neg}) {  // their plans are there
    Deferred alone(source);
    alone.Read(0, values);
    Defer(activation, alone);
    activation.Flush();
    ASSERT_EQ(alone.Done(), absl::OkStatus());
  }
  gate->shut = true;
  Deferred first(copy), second(neg);
  first.Read(0, values);
  second.Read(0, first);
  Defer(activation, first);
  Defer(activation, second);
  activation.Flush();
  for (Deferred* work : {&first, &second}) {
    EXPECT_EQ(work->Done(), absl::OkStatus());
    EXPECT_EQ(work->work->report().joined_works, 0u);
  }
  EXPECT_EQ(compiled(), 1u) << "joined";
  gate->open.Set();
  ASSERT_EQ(second.work->status(), absl::OkStatus());
  EXPECT_THAT(Kept(activation, second), ElementsAre(2, -3));
}

}  // namespace
}  // namespace weir
