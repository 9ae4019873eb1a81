// Order, points, limits and cancellation of works in their contexts.
#include <atomic>
#include <chrono>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/base/error_info.h"
#include "kernels/base/mutex.h"
#include "tests/base/event.h"
#include "tests/base/eventually.h"
#include "tests/eval/eval_fixture.h"

namespace weir {
namespace {

using testing::Eventually;

class Order : public EvalTest {
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
WEIR_EVAL_ON_EVERY_DEVICE(Order);

TEST_P(Order, AWaitHoldsBackOnlyItsOwnContext) {
  auto gate = std::make_shared<Timeline>("gate");
  Activation held = Enter(NewContext());
  Activation free = Enter(NewContext());
  WatchedWork first, second, other;
  for (WatchedWork* watched : {&first, &second, &other}) Prepare(*watched);
  first.request().after = {Point{gate, 5}};
  held.Submit(first.work.get(), &first.waiter);
  held.Submit(second.work.get(), &second.waiter);
  free.Submit(other.work.get(), &other.waiter);
  ASSERT_TRUE(other.Done().ok());
  EXPECT_FALSE(first.work->done());
  EXPECT_FALSE(second.work->done()) << "works of a context run in order";
  ASSERT_TRUE(gate->Advance(5).ok());
  ASSERT_TRUE(second.Done().ok());
  ASSERT_TRUE(first.Done().ok());
  EXPECT_EQ(held.context().timeline()->value(), 2u);
}

TEST_P(Order, AFailedTimelineFailsItsDependantsAlone) {
  auto gate = std::make_shared<Timeline>("gate");
  Activation activation = Enter(NewContext());
  WatchedWork first, second;
  Prepare(first);
  Prepare(second);
  first.request().after = {Point{gate, 1}};
  activation.Submit(first.work.get(), &first.waiter);
  activation.Submit(second.work.get(), &second.waiter);
  gate->Fail(absl::DataLossError("the producer died"));
  const absl::Status status = first.Done();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_TRUE(second.Done().ok()) << "the context goes on";
}

TEST_P(Order, AWorkSignalsATimelineForAnotherContext) {
  auto chain = std::make_shared<Timeline>("chain");
  Activation a = Enter(NewContext());
  Activation b = Enter(NewContext());
  WatchedWork producer, consumer;
  Prepare(producer);
  Prepare(consumer);
  consumer.request().after = {Point{chain, 3}};
  b.Submit(consumer.work.get(), &consumer.waiter);
  producer.request().signal = {Signal{chain, 3}};
  a.Submit(producer.work.get(), &producer.waiter);
  ASSERT_TRUE(consumer.Done().ok());
  // The signal comes before the producer is done, and so may the consumer be.
  ASSERT_TRUE(producer.Done().ok());
  EXPECT_GE(consumer.work->report().completed_at,
            producer.work->report().completed_at);
}

TEST_P(Order, AWaitForAWorkNamesItsContext) {
  auto context = NewContext();
  Activation a = Enter(context);
  Activation b = Enter(NewContext());
  WatchedWork producer, consumer;
  Prepare(producer);
  Prepare(consumer);
  a.Submit(producer.work.get(), &producer.waiter);
  const Point point = producer.work->point();
  consumer.request().after = {point};
  b.Submit(consumer.work.get(), &consumer.waiter);
  ASSERT_TRUE(consumer.Done().ok());
  ASSERT_TRUE(producer.Done().ok());
  ASSERT_EQ(consumer.work->report().waits.size(), 1u);
  const InsertedWait& wait = consumer.work->report().waits[0];
  EXPECT_EQ(wait.from,
            (TimelineOwner{TimelineOwner::Kind::kContext, context->id()}));
  EXPECT_EQ(wait.from_device, nullptr);
  EXPECT_EQ(wait.from_value, point.value);
}

TEST_P(Order, ATensorOrdersItsReaderAfterItsWriter) {
  Activation a = Enter(NewContext());
  Activation b = Enter(NewContext());
  WatchedWork producer;
  Prepare(producer);
  producer.request().mode = EvalMode::kSyncCpu;
  a.Submit(producer.work.get(), &producer.waiter);
  ASSERT_TRUE(producer.Returned().ok());
  WatchedWork consumer;
  consumer.request().program = program_;
  consumer.request().inputs.resize(1);
  consumer.request().inputs[0].tensor = producer.work->OutputTensor(0);
  b.Submit(consumer.work.get(), &consumer.waiter);
  ASSERT_TRUE(consumer.Done().ok());
  EXPECT_EQ(Result(*consumer.work), values_);
  ASSERT_EQ(consumer.work->report().waits.size(), 1u);
  ASSERT_TRUE(producer.Done().ok());
  // It names the producer's stream and place there.
  const SyncReport& made = producer.work->report();
  const InsertedWait& wait = consumer.work->report().waits[0];
  EXPECT_EQ(wait.from,
            (TimelineOwner{TimelineOwner::Kind::kStream, made.stream_id}));
  EXPECT_EQ(wait.from_device, &engine_->device());
  EXPECT_EQ(wait.from_value, made.sequence);
}

TEST_P(Order, CancellationDropsQueuedWorkAtOnce) {
  auto gate = std::make_shared<Timeline>("gate");
  Activation activation = Enter(NewContext());
  WatchedWork first, parked, behind;
  Prepare(first);
  Prepare(parked);
  Prepare(behind);
  parked.request().after = {Point{gate, 1}};
  activation.Submit(first.work.get(), &first.waiter);
  ASSERT_TRUE(first.Done().ok()) << "there is a plan for the others";
  activation.Submit(parked.work.get(), &parked.waiter);
  activation.Submit(behind.work.get(), &behind.waiter);
  EXPECT_TRUE(Eventually([&] { return engine_->dispatcher().parked() == 1u; }));
  parked.work->Cancel();
  EXPECT_EQ(parked.Done().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(engine_->dispatcher().parked(), 0u);
  EXPECT_TRUE(behind.Done().ok());
  ASSERT_TRUE(gate->Advance(1).ok());
}

TEST_P(Order, ADeadlineEndsAParkedWorkUnlaunched) {
  auto gate = std::make_shared<Timeline>("gate");
  Activation activation = Enter(NewContext());
  WatchedWork watched;
  Prepare(watched);
  watched.request().after = {Point{gate, 1}};
  watched.request().deadline = NowNanos() + 2'000'000;
  activation.Submit(watched.work.get(), &watched.waiter);
  EXPECT_EQ(watched.Done().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(watched.work->report().sequence, 0u) << "it was never launched";
  WatchedWork late;
  Prepare(late);
  late.request().deadline = NowNanos() - 1;
  activation.Submit(late.work.get(), &late.waiter);
  EXPECT_EQ(late.Done().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_P(Order, UnfinishedWorksAreBounded) {
  auto gate = std::make_shared<Timeline>("gate");
  Activation activation = Enter(NewContext({.max_pending = 2}));
  WatchedWork works[3];
  for (WatchedWork& watched : works) {
    Prepare(watched);
    watched.request().after = {Point{gate, 1}};
    activation.Submit(watched.work.get(), &watched.waiter);
  }
  const absl::Status status = works[2].Done();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Reason(status), "CONTEXT_FULL");
  EXPECT_TRUE(RetryAfter(status).has_value());
  ASSERT_TRUE(gate->Advance(1).ok());
  EXPECT_TRUE(works[0].Done().ok());
  EXPECT_TRUE(works[1].Done().ok());
}

// However many wait: a plan is held from then until its work ends.
TEST_P(Order, PlansOfWorksThatWaitAreBounded) {
  ProgramOptions options;
  options.max_used_plan_bytes = 10000;
  const auto program = Program::Compile(MakeGraph("Neg", 1), engine_->device(),
                                        *registry_, options);
  ASSERT_TRUE(program.ok()) << program.status();
  program_ = *program;
  auto gate = std::make_shared<Timeline>("gate");
  WatchedWork works[100];
  std::vector<std::vector<float>> values;
  for (WatchedWork& watched : works) {
    Prepare(watched);
    values.emplace_back(values.size() + 1);
    watched.request().inputs = {Floats(values.back())};
    watched.request().after = {Point{gate, 1}};
    Enter(NewContext()).Submit(watched.work.get(), &watched.waiter);
  }
  // It is told while the others wait.
  const absl::Status status = works[99].Done();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(Reason(status), "PROGRAM_MEMORY_EXHAUSTED");
  ASSERT_TRUE(gate->Advance(1).ok());
  EXPECT_TRUE(works[0].Done().ok());
  for (WatchedWork& watched : works) {
    static_cast<void>(watched.Done());
    watched.work->DropProgram();
  }
  WatchedWork next;
  Prepare(next);
  next.request().inputs = {Floats(values.back())};
  Enter(NewContext()).Submit(next.work.get(), &next.waiter);
  EXPECT_TRUE(next.Done().ok());
}

TEST_P(Order, ALaneIsHeldOnlyWhileWorkIsUnfinished) {
  Activation activation = Enter(NewContext());
  WatchedWork watched;
  Prepare(watched);
  activation.Submit(watched.work.get(), &watched.waiter);
  ASSERT_TRUE(watched.Done().ok());
  const StreamPoolStats stats = engine_->streams().stats();
  EXPECT_EQ(stats.leased, 0u);
  EXPECT_EQ(stats.leases_total, 1u);
}

TEST_P(Order, TheSameWorkObjectIsUsedAgain) {
  Activation activation = Enter(NewContext());
  WatchedWork watched;
  Prepare(watched);
  watched.request().outputs = {OutputWish::kInline};
  for (int i = 0; i < 1000; ++i) {
    watched.waiter.Reset();
    activation.Submit(watched.work.get(), &watched.waiter);
    ASSERT_TRUE(watched.Done().ok());
    ASSERT_EQ(Result(*watched.work), std::vector<float>({-1, -2, -3}));
  }
  EXPECT_EQ(engine_->pinned().stats().leased_bytes, 4096u)
      << "only the last result is still held";
}

TEST_P(Order, ManyContextsShareFewLanesWithoutLoss) {
  constexpr int kContexts = 16, kEach = 200;
  struct One {
    Activation activation;
    std::vector<WatchedWork> works = std::vector<WatchedWork>(kEach);
  };
  std::vector<One> all(kContexts);
  for (One& one : all) {
    one.activation = Enter(NewContext());
    for (WatchedWork& watched : one.works) {
      Prepare(watched);
      one.activation.Submit(watched.work.get(), &watched.waiter);
    }
  }
  for (One& one : all) {
    for (WatchedWork& watched : one.works) {
      const absl::Status status = watched.Done();
      ASSERT_TRUE(status.ok()) << status;
    }
    EXPECT_EQ(one.activation.context().timeline()->value(),
              static_cast<uint64_t>(kEach));
  }
  const StreamPoolStats stats = engine_->streams().stats();
  EXPECT_EQ(stats.leased, 0u);
  EXPECT_LE(stats.created(), stats.max);
}

// Tasks run when the test says so. The thread that calls HoldThisThread stands
// still within Post until it may leave.
class HoldingExecutor final : public Executor {
 public:
  void HoldThisThread() { held_ = std::this_thread::get_id(); }

  void Post(Task task) override {
    if (std::this_thread::get_id() == held_) {
      entered.Set();
      leave.Wait();
    }
    MutexLock lock(&mu_);
    tasks_.push_back(std::move(task));
  }

  void RunAll() {
    for (;;) {
      Task task;
      {
        MutexLock lock(&mu_);
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }

  Event entered, leave;

 private:
  std::atomic<std::thread::id> held_{};
  Mutex mu_;
  std::deque<Task> tasks_ WEIR_GUARDED_BY(mu_);
};

// Its owner may delete the executor as soon as the work is done.
class PostedWork : public Order {
 protected:
  // Ends the wait of a work on a thread, which is held as it posts; cancels the
  // work meanwhile.
  template <typename EndTheWait>
  void CancelWhileItIsPosted(Activation& activation, WatchedWork& watched,
                             EndTheWait end) {
    activation.Submit(watched.work.get(), &watched.waiter);
    ASSERT_FALSE(watched.work->done()) << "it waits";
    std::thread ends([&] {
      executor_.HoldThisThread();
      end();
    });
    executor_.entered.Wait();
    std::thread cancels([&] {
      watched.work->Cancel();
      executor_.RunAll();
    });
    EXPECT_FALSE(
        testing::Eventually([&] { return watched.work->done(); }, kMeanwhile))
        << "it ended with a thread in its executor";
    executor_.leave.Set();
    ends.join();
    cancels.join();
    executor_.RunAll();
    EXPECT_EQ(watched.Done().code(), absl::StatusCode::kCancelled);
  }

  // With its plan made a work gets as far as it can within Submit.
  void MakeThePlan() {
    WatchedWork first;
    Prepare(first);
    Enter(NewContext()).Submit(first.work.get(), &first.waiter);
    ASSERT_TRUE(first.Done().ok());
  }

  // For what must not happen.
  static constexpr auto kMeanwhile = std::chrono::milliseconds(200);

  HoldingExecutor executor_;
};
WEIR_EVAL_ON_EVERY_DEVICE(PostedWork);

TEST_P(PostedWork, IsNotDoneWhileALaneIsAnnounced) {
  MakeThePlan();
  std::vector<StreamLease> leases;
  ASSERT_TRUE(testing::Eventually([&] {
    if (auto lease = engine_->streams().TryAcquire(); lease.ok()) {
      leases.push_back(*std::move(lease));
    }
    return leases.size() == SmallEngine().streams.max;
  }));
  Activation activation = Enter(NewContext({.executor = &executor_}));
  WatchedWork watched;
  Prepare(watched);
  CancelWhileItIsPosted(activation, watched, [&] { leases.pop_back(); });
  leases.clear();
  EXPECT_EQ(engine_->streams().stats().leased, 0u);
}

TEST_P(PostedWork, WaitsForNoLaneOnceItIsCancelled) {
  MakeThePlan();
  std::vector<StreamLease> leases;
  ASSERT_TRUE(testing::Eventually([&] {
    if (auto lease = engine_->streams().TryAcquire(); lease.ok()) {
      leases.push_back(*std::move(lease));
    }
    return leases.size() == SmallEngine().streams.max;
  }));
  Activation activation = Enter(NewContext({.executor = &executor_}));
  WatchedWork watched;
  Prepare(watched);
  activation.Submit(watched.work.get(), &watched.waiter);
  EXPECT_EQ(engine_->streams().stats().waiting, 1u);
  watched.work->Cancel();
  executor_.RunAll();
  EXPECT_EQ(watched.Done().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(engine_->streams().stats().waiting, 0u);
  leases.clear();
  EXPECT_EQ(engine_->streams().stats().leased, 0u);
}

TEST_P(PostedWork, IsNotDoneWhileAPointIsAnnounced) {
  MakeThePlan();
  auto gate = std::make_shared<Timeline>("gate");
  Activation activation = Enter(NewContext({.executor = &executor_}));
  WatchedWork watched;
  Prepare(watched);
  watched.request().after = {Point{gate, 1}};
  CancelWhileItIsPosted(activation, watched,
                        [&] { ASSERT_TRUE(gate->Advance(1).ok()); });
}

// Cancels the work as soon as it hears of it, and lets the context act on that.
class CancelingObserver final : public WorkObserver {
 public:
  explicit CancelingObserver(HoldingExecutor* executor) : executor_(executor) {}

  void OnReturn(Work& work) override {
    work.Cancel();
    executor_->RunAll();
    done_meanwhile = done.count() > 0;
  }
  void OnDone(Work&) override { done.Set(); }

  bool done_meanwhile = false;
  Event done;

 private:
  HoldingExecutor* const executor_;
};

// Whoever submits it still has it in hand, whatever others do to its context.
TEST_P(PostedWork, IsNotDoneWhileItIsSubmitted) {
  MakeThePlan();
  auto gate = std::make_shared<Timeline>("gate");
  Activation activation = Enter(NewContext({.executor = &executor_}));
  WatchedWork producer;
  Prepare(producer);
  producer.request().after = {Point{gate, 1}};
  activation.Submit(producer.work.get(), &producer.waiter);
  CancelingObserver observer(&executor_);
  WatchedWork reader;
  Prepare(reader);
  reader.request().inputs[0] = InputSource();
  reader.request().inputs[0].producer = producer.work;
  activation.Submit(reader.work.get(), &observer);
  EXPECT_FALSE(observer.done_meanwhile);
  executor_.RunAll();
  observer.done.Wait();
  EXPECT_EQ(reader.work->status().code(), absl::StatusCode::kCancelled);
  ASSERT_TRUE(gate->Advance(1).ok());
  ASSERT_TRUE(testing::Eventually([&] {
    executor_.RunAll();
    return producer.work->done();
  }));
  EXPECT_TRUE(producer.Done().ok()) << producer.work->status();
}

}  // namespace
}  // namespace weir
