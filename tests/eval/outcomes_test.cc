// What becomes of works whose producers fail, at any distance, in one context
// and across contexts, and of those that have nothing to do with them.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "tests/conformance/hold_operator.h"
#include "tests/eval/eval_fixture.h"

namespace weir {
namespace {

constexpr size_t kChain = 6;

class Outcomes : public EvalTest {
 protected:
  void SetUp() override {
    EvalTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_TRUE(hold_.Register(*registry_).ok());
    negate_ = Compile("Neg", 1);
    identity_ = Compile("Identity", 1);
    fault_ = Compile(HoldAndFault());
  }
  void TearDown() override {
    hold_.Open();
    EvalTest::TearDown();
  }

  // Fails when it is let go.
  static Graph HoldAndFault() {
    Graph graph = MakeGraph("Hold", 1, {}, "weir");
    GraphNode fault = graph.nodes[0];
    fault.name = "the_fault";
    fault.op = "Fault";
    fault.inputs = {"out"};
    fault.outputs = {"faulty"};
    graph.nodes.push_back(fault);
    graph.outputs = {"faulty"};
    return graph;
  }

  void Prepare(WatchedWork& watched, std::shared_ptr<const Program> program) {
    watched.request().program = std::move(program);
    watched.request().inputs.resize(1);
    watched.request().outputs = {OutputWish::kKeep};
  }

  absl::Status Read(Tensor tensor) {
    Activation activation = Enter(NewContext());
    WatchedWork reader;
    reader.request().program = identity_;
    reader.request().inputs.resize(1);
    reader.request().inputs[0].tensor = std::move(tensor);
    activation.Submit(reader.work.get(), &reader.waiter);
    return reader.Done();
  }

  const std::vector<float> values_ = {1, 2, 3};
  HoldOperator hold_;
  std::shared_ptr<const Program> negate_, identity_, fault_;
};
WEIR_EVAL_ON_EVERY_DEVICE(Outcomes);

TEST_P(Outcomes, AnErrorGoesThroughAChainOfOneContext) {
  Activation activation = Enter(NewContext());
  std::array<WatchedWork, kChain> chain;
  for (size_t i = 0; i < kChain; ++i) {
    Prepare(chain[i], i == 0 ? fault_ : negate_);
    if (i == 0) {
      chain[i].request().inputs[0] = Floats(values_);
    } else {
      chain[i].request().inputs[0].producer = chain[i - 1].work;
    }
    activation.Submit(chain[i].work.get(), &chain[i].waiter);
  }
  hold_.Open();
  for (WatchedWork& watched : chain) {
    EXPECT_EQ(Reason(watched.Done()), "INJECTED_FAULT");
    EXPECT_EQ(watched.work->state(), WorkState::kError);
    EXPECT_EQ(NodeAtFault(watched.Done()), "node \"the_fault\" (weir.Fault)");
  }
  // The first reader says what it read, the others no more than that.
  EXPECT_EQ(chain[kChain - 1].Done().message(), chain[1].Done().message());
}

// In what a failed work left behind its reader may find whatever fault.
TEST_P(Outcomes, AReaderIsNotToBlameForWhatItRead) {
  Activation activation = Enter(NewContext());
  Attributes mode;
  mode.Set("mode", std::string("index"));
  WatchedWork first, reader, last;
  Prepare(first, fault_);
  Prepare(reader, Compile("Fault", 1, mode, "weir"));
  Prepare(last, negate_);
  first.request().inputs[0] = Floats(values_);
  reader.request().inputs[0].producer = first.work;
  last.request().inputs[0].producer = reader.work;
  for (WatchedWork* watched : {&first, &reader, &last}) {
    activation.Submit(watched->work.get(), &watched->waiter);
  }
  hold_.Open();
  for (WatchedWork* watched : {&first, &reader, &last}) {
    EXPECT_EQ(Reason(watched->Done()), "INJECTED_FAULT");
  }
  EXPECT_EQ(first.work->report().device_errors.size(), 1u);
  EXPECT_EQ(reader.work->report().device_errors.size(), 0u);
}

// Whether the kernel says it in its status or in the stream's fault slot.
TEST_P(Outcomes, AFaultOfAKernelHasTheNumberThatTheWireSays) {
  hold_.Open();
  Graph pick = MakeGraph("Gather", 2);
  pick.inputs[1].dtype = DType::kInt64;
  Attributes index;
  index.Set("mode", std::string("index"));
  const int64_t beyond = 5;
  InputSource five;
  five.dtype = DType::kInt64;
  five.dims = {1};
  five.pieces = {
      std::string_view(reinterpret_cast<const char*>(&beyond), sizeof(beyond))};
  const struct {
    std::shared_ptr<const Program> program;
    std::vector<InputSource> inputs;
    int32_t code;
    const char* name;
  } cases[] = {
      {Compile(pick), {Floats(values_), five}, 1, "INDEX_OUT_OF_RANGE"},
      {Compile("Fault", 1, index, "weir"),
       {Floats(values_)},
       1,
       "INDEX_OUT_OF_RANGE"},
      {fault_, {Floats(values_)}, 4, "INJECTED_FAULT"},
  };
  for (const auto& c : cases) {
    Activation activation = Enter(NewContext());
    WatchedWork watched;
    watched.request().program = c.program;
    watched.request().inputs.assign(c.inputs.begin(), c.inputs.end());
    watched.request().outputs = {OutputWish::kInline};
    activation.Submit(watched.work.get(), &watched.waiter);
    EXPECT_EQ(Reason(watched.Done()), c.name);
    ASSERT_EQ(watched.work->report().device_errors.size(), 1u);
    const DeviceError& error = watched.work->report().device_errors[0];
    EXPECT_EQ(error.code, c.code);
    EXPECT_EQ(error.name, c.name);
    EXPECT_FALSE(error.sticky);
  }
}

TEST_P(Outcomes, AnErrorGoesFromContextToContext) {
  {
    // A driver may load kernels only when what runs has ended.
    Activation activation = Enter(NewContext());
    WatchedWork first;
    Prepare(first, negate_);
    first.request().inputs[0] = Floats(values_);
    activation.Submit(first.work.get(), &first.waiter);
    ASSERT_TRUE(first.Done().ok()) << first.Done();
  }
  // Each holds a lane.
  const size_t contexts = SmallEngine().streams.max;
  std::vector<WatchedWork> chain(contexts);
  std::vector<Activation> activations(contexts);
  size_t submitted = 0, launched = 0;
  for (size_t i = 0; i < contexts; ++i) {
    activations[i] = Enter(NewContext());
    Prepare(chain[i], i == 0 ? fault_ : negate_);
    if (i == 0) {
      chain[i].request().inputs[0] = Floats(values_);
    } else {
      chain[i].request().inputs[0].tensor = chain[i - 1].work->OutputTensor(0);
    }
    chain[i].request().mode = EvalMode::kSyncCpu;
    activations[i].Submit(chain[i].work.get(), &chain[i].waiter);
    ++submitted;
    // Where streams do not wait for each other, it waits itself, and fails
    // before it is launched.
    if (!engine_->device().streams_wait()) hold_.Open();
    if (!chain[i].Returned().ok()) break;
    launched = i;
  }
  EXPECT_EQ(launched, engine_->device().streams_wait() ? contexts - 1 : 0);
  hold_.Open();
  EXPECT_EQ(Reason(Read(chain[launched].work->OutputTensor(0))),
            "INJECTED_FAULT");
  for (size_t i = 0; i < submitted; ++i) {
    EXPECT_EQ(Reason(chain[i].Done()), "INJECTED_FAULT");
  }
}

TEST_P(Outcomes, AGoodResultStaysGoodHoweverManyOthersFail) {
  // One lane is left for all of them.
  std::vector<StreamLease> taken;
  for (size_t i = 1; i < SmallEngine().streams.max; ++i) {
    auto lease = engine_->streams().TryAcquire();
    ASSERT_TRUE(lease.ok()) << lease.status();
    taken.push_back(*std::move(lease));
  }
  Activation activation = Enter(NewContext());
  WatchedWork good;
  Prepare(good, negate_);
  good.request().inputs[0] = Floats(values_);
  activation.Submit(good.work.get(), &good.waiter);
  ASSERT_TRUE(good.Done().ok()) << good.work->status();
  const Tensor tensor = good.work->OutputTensor(0);
  const Point point = good.work->point();
  WatchedWork bad;
  Prepare(bad, Compile("Fault", 1, {}, "weir"));
  for (int i = 0; i < 1100; ++i) {
    bad.waiter.Reset();
    bad.request().inputs[0] = Floats(values_);
    Activation other = Enter(NewContext());
    other.Submit(bad.work.get(), &bad.waiter);
    ASSERT_EQ(Reason(bad.Done()), "INJECTED_FAULT");
  }
  ASSERT_GE(tensor.storage().writer().timeline->value(), 1100u);
  EXPECT_EQ(Read(tensor), absl::OkStatus());
  EXPECT_EQ(point.Outcome(), absl::OkStatus());
}

}  // namespace
}  // namespace weir
