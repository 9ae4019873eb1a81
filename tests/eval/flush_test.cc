// What Flush does with deferred works: joined into one graph where they brought
// their graphs, each with results, errors and a report of its own.
#include <gmock/gmock.h>

#include <thread>
#include <utility>

#include "kernels/base/error_info.h"
#include "tests/eval/eval_fixture.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

class Flush : public EvalTest {
 protected:
  // A deferred work of one operator that keeps its result.
  struct Deferred : WatchedWork {
    explicit Deferred(Flush* test, const std::string& op, size_t inputs,
                      Attributes attributes = {}, std::string domain = "") {
      auto graph = std::make_shared<const Graph>(
          MakeGraph(op, inputs, std::move(attributes), std::move(domain)));
      request().program = test->Compile(*graph);
      request().graph = std::move(graph);
      request().outputs = {OutputWish::kKeep};
      request().mode = EvalMode::kDeferred;
    }

    void Read(size_t input, const WatchedWork& from) {
      request().inputs.resize(std::max(request().inputs.size(), input + 1));
      request().inputs[input].producer = from.work;
    }
    void Read(size_t input, const std::vector<float>& values) {
      request().inputs.resize(std::max(request().inputs.size(), input + 1));
      request().inputs[input] = Floats(values);
    }
  };

  void Defer(Activation& activation, Deferred& deferred) {
    activation.Defer(deferred.work, &deferred.waiter);
    ASSERT_TRUE(deferred.Returned().ok()) << deferred.work->status();
  }

  // The elements of what a finished work kept.
  std::vector<float> Kept(Activation& activation, const WatchedWork& from) {
    WatchedWork reader;
    reader.request().program = Compile("Identity", 1);
    reader.request().inputs.resize(1);
    reader.request().inputs[0].tensor = from.work->OutputTensor(0);
    activation.Submit(reader.work.get(), &reader.waiter);
    EXPECT_TRUE(reader.Done().ok()) << reader.work->status();
    return Result(*reader.work);
  }
};
WEIR_EVAL_ON_EVERY_DEVICE(Flush);

TEST_P(Flush, JoinsAChainIntoOneRun) {
  auto context = NewContext();
  Activation activation = Enter(context);
  const std::vector<float> a = {1, -2}, b = {10, 20};
  Deferred sum(this, "Add", 2), negative(this, "Neg", 1), size(this, "Abs", 1);
  sum.Read(0, a);
  sum.Read(1, b);
  Defer(activation, sum);
  negative.Read(0, sum);
  Defer(activation, negative);
  size.Read(0, negative);
  Defer(activation, size);

  const FlushResult result = activation.Flush();
  EXPECT_THAT(result.executed, ElementsAre(1, 2, 3));
  for (Deferred* work : {&sum, &negative, &size}) {
    ASSERT_TRUE(work->Done().ok()) << work->work->status();
    EXPECT_EQ(work->work->report().joined_works, 3u);
    EXPECT_EQ(work->work->report().sequence, sum.work->report().sequence)
        << "one place on one stream";
  }
  EXPECT_THAT(Kept(activation, sum), ElementsAre(11, 18));
  EXPECT_THAT(Kept(activation, negative), ElementsAre(-11, -18));
  EXPECT_THAT(Kept(activation, size), ElementsAre(11, 18));
  EXPECT_EQ(engine_->programs().stats().programs, 1u);
}

TEST_P(Flush, CompilesTheSameChainOnce) {
  auto context = NewContext();
  Activation activation = Enter(context);
  Deferred first(this, "Neg", 1), second(this, "Abs", 1);
  for (int round = 0; round < 3; ++round) {
    const std::vector<float> values = {static_cast<float>(round + 1)};
    first.Read(0, values);
    Defer(activation, first);
    second.Read(0, first);
    Defer(activation, second);
    activation.Flush();
    ASSERT_TRUE(second.Done().ok());
    EXPECT_THAT(Kept(activation, second), ElementsAre(round + 1));
    EXPECT_THAT(Kept(activation, first), ElementsAre(-round - 1));
    for (Deferred* work : {&first, &second}) {
      ASSERT_TRUE(work->Done().ok());
      work->waiter.Reset();
      work->request().inputs.clear();
    }
  }
  EXPECT_EQ(engine_->programs().stats().misses, 1u);
}

TEST_P(Flush, KeepsInsideWhatNobodyElseHolds) {
  auto context = NewContext();
  Activation activation = Enter(context);
  const std::vector<float> a = {3};
  Deferred inner(this, "Neg", 1), outer(this, "Neg", 1);
  inner.Read(0, a);
  Defer(activation, inner);
  outer.Read(0, inner);
  Defer(activation, outer);
  inner.work = nullptr;
  const size_t before = engine_->memory().stats().used_bytes;
  activation.Flush();
  ASSERT_TRUE(outer.Done().ok()) << outer.work->status();
  EXPECT_THAT(Kept(activation, outer), ElementsAre(3));
  const size_t one_tensor = engine_->memory().stats().used_bytes - before;
  Deferred alone(this, "Neg", 1);
  alone.Read(0, a);
  Defer(activation, alone);
  activation.Flush();
  ASSERT_TRUE(alone.Done().ok());
  EXPECT_EQ(engine_->memory().stats().used_bytes - before, 2 * one_tensor)
      << "the inner result took no memory of its own";
}

TEST_P(Flush, AnErrorBelongsToOneWorkAndItsReaders) {
  Attributes report;
  report.Set("mode", std::string("report"));
  auto context = NewContext();
  Activation activation = Enter(context);
  const std::vector<float> a = {1, 2};
  Deferred good(this, "Neg", 1), bad(this, "Fault", 1, report, "weir"),
      reader(this, "Abs", 1), other(this, "Abs", 1);
  good.Read(0, a);
  bad.Read(0, good);
  bad.request().label = "the bad one";
  reader.Read(0, bad);
  other.Read(0, good);
  for (Deferred* work : {&good, &bad, &reader, &other}) {
    Defer(activation, *work);
  }
  activation.Flush();
  EXPECT_TRUE(good.Done().ok()) << good.work->status();
  EXPECT_EQ(Reason(bad.Done()), "INJECTED_FAULT");
  EXPECT_EQ(Reason(reader.Done()), "INJECTED_FAULT");
  EXPECT_TRUE(other.Done().ok()) << other.work->status();
  EXPECT_THAT(Kept(activation, other), ElementsAre(1, 2));
  EXPECT_EQ(activation.Flush().failed.size(), 2u);
}

TEST_P(Flush, AWrongShapeFailsItsOwnWork) {
  auto context = NewContext();
  Activation activation = Enter(context);
  const std::vector<float> two = {1, 2}, three = {1, 2, 3};
  Deferred good(this, "Neg", 1), bad(this, "Add", 2);
  good.Read(0, two);
  bad.Read(0, good);
  bad.Read(1, three);
  Defer(activation, good);
  Defer(activation, bad);
  activation.Flush();
  EXPECT_TRUE(good.Done().ok()) << good.work->status();
  EXPECT_EQ(bad.Done().code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(Flush, ACancelledMemberLeavesTheOthers) {
  auto context = NewContext();
  Activation activation = Enter(context);
  const std::vector<float> a = {5};
  // Holds the context's queue until the test opens the gate.
  auto gate = std::make_shared<Timeline>("gate");
  WatchedWork held;
  held.request().program = Compile("Neg", 1);
  held.request().inputs = {Floats(a)};
  held.request().outputs = {OutputWish::kKeep};
  held.request().after = {Point{gate, 1}};
  activation.Submit(held.work.get(), &held.waiter);

  Deferred one(this, "Neg", 1), two(this, "Abs", 1);
  one.Read(0, a);
  two.Read(0, a);
  Defer(activation, one);
  Defer(activation, two);
  activation.Flush();
  one.work->Cancel();
  EXPECT_EQ(one.Done().code(), absl::StatusCode::kCancelled);
  ASSERT_TRUE(gate->Advance(1).ok());
  ASSERT_TRUE(held.Done().ok());
  EXPECT_TRUE(two.Done().ok()) << two.work->status();
  EXPECT_THAT(Kept(activation, two), ElementsAre(5));
}

TEST_P(Flush, WorksMayBeCancelledWhileTheyAreFlushed) {
  auto context = NewContext();
  Activation activation = Enter(context);
  const std::vector<float> a = {5};
  Deferred one(this, "Neg", 1), two(this, "Abs", 1), alone(this, "Abs", 1);
  alone.request().graph = nullptr;  // it is not joined
  for (Deferred* work : {&one, &two, &alone}) {
    work->Read(0, a);
    Defer(activation, *work);
  }
  std::thread cancels([&] {
    one.work->Cancel();
    alone.work->Cancel();
  });
  activation.Flush();
  cancels.join();
  for (Deferred* work : {&one, &alone}) {
    const absl::Status status = work->Done();
    EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
  }
  EXPECT_TRUE(two.Done().ok()) << two.work->status();
}

TEST_P(Flush, LaterWorksComeAfterTheJoinedOnes) {
  auto context = NewContext();
  Activation activation = Enter(context);
  const std::vector<float> a = {7};
  Deferred one(this, "Neg", 1), two(this, "Neg", 1);
  one.Read(0, a);
  two.Read(0, one);
  Defer(activation, one);
  Defer(activation, two);
  WatchedWork reader;
  reader.request().program = Compile("Neg", 1);
  reader.request().inputs.resize(1);
  reader.request().inputs[0].producer = two.work;
  activation.Submit(reader.work.get(), &reader.waiter);
  ASSERT_TRUE(reader.Done().ok()) << reader.work->status();
  EXPECT_THAT(Result(*reader.work), ElementsAre(-7));
  EXPECT_EQ(one.work->report().joined_works, 2u)
      << "use by another work joins as Flush does";
  EXPECT_TRUE(one.work->point().Outcome().has_value());
}

TEST_P(Flush, DeferredWorksAreBounded) {
  auto context = NewContext({.max_pending = 1});
  Activation activation = Enter(context);
  const std::vector<float> a = {1};
  Deferred first(this, "Neg", 1), second(this, "Neg", 1);
  first.Read(0, a);
  second.Read(0, a);
  Defer(activation, first);
  activation.Defer(second.work, &second.waiter);
  EXPECT_EQ(Reason(second.Done()), "CONTEXT_FULL");
  activation.Flush();
  EXPECT_TRUE(first.Done().ok());
}

// The caller's bytes may change as soon as the call has returned.
TEST_P(Flush, BytesAreConsumedBeforeTheCallReturns) {
  auto context = NewContext();
  Activation activation = Enter(context);
  auto gate = std::make_shared<Timeline>("gate");
  std::vector<float> values = {1, 2, 3};
  WatchedWork eager;
  eager.request().program = Compile("Neg", 1);
  eager.request().inputs = {Floats(values)};
  eager.request().outputs = {OutputWish::kKeep};
  eager.request().after = {Point{gate, 1}};
  activation.Submit(eager.work.get(), &eager.waiter);
  ASSERT_TRUE(eager.Returned().ok());

  WatchedWork reader;  // its shapes are known when `eager` is launched
  reader.request().program = Compile("Add", 2);
  reader.request().inputs.resize(2);
  reader.request().inputs[0].producer = eager.work;
  reader.request().inputs[1] = Floats(values);
  reader.request().outputs = {OutputWish::kKeep};
  activation.Submit(reader.work.get(), &reader.waiter);
  ASSERT_TRUE(reader.Returned().ok());

  Deferred deferred(this, "Neg", 1);
  deferred.Read(0, values);
  Defer(activation, deferred);

  values.assign(3, 99);
  activation.Flush();
  ASSERT_TRUE(gate->Advance(1).ok());
  for (WatchedWork* work :
       {&eager, &reader, static_cast<WatchedWork*>(&deferred)}) {
    ASSERT_TRUE(work->Done().ok()) << work->work->status();
  }
  EXPECT_THAT(Kept(activation, eager), ElementsAre(-1, -2, -3));
  EXPECT_THAT(Kept(activation, reader), ElementsAre(0, 0, 0));
  EXPECT_THAT(Kept(activation, deferred), ElementsAre(-1, -2, -3));
}

}  // namespace
}  // namespace weir
