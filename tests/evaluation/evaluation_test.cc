// One evaluation for whoever lends it a thread and wants to be told: a session
// has many for one of its own, a batch one for many.
#include "server/evaluation/evaluation.h"

#include <gmock/gmock.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/evaluation/evaluation_pool.h"
#include "server/evaluation/result_bytes.h"
#include "tests/base/event.h"
#include "tests/eval/eval_fixture.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

class Client final : public EvaluationClient {
 public:
  explicit Client(Executor& executor) : executor_(executor) {}

  void Wake(Evaluation& evaluation) override {
    EXPECT_FALSE(woken_.exchange(true)) << "it is on its way already";
    executor_.Post([this, &evaluation] {
      woken_ = false;
      evaluation.GoOn();
    });
  }
  absl::Status Planned(const Work&) override {
    told_.push_back("planned");
    return refusal;
  }
  void Launched() override { told_.push_back("launched"); }
  void Submitted() override { submitted_ = true; }
  void Done() override {
    told_.push_back("done");
    thread_ = std::this_thread::get_id();
    if (on_done) std::exchange(on_done, nullptr)();
    done_.Set();
  }

  void WaitDone(size_t times = 1) { done_.Wait(times); }
  size_t times_done() const { return done_.count(); }
  // Once it is done.
  const std::vector<std::string>& told() const { return told_; }
  bool submitted() const { return submitted_; }
  std::thread::id thread() const { return thread_; }

  absl::Status refusal;
  std::function<void()> on_done;

 private:
  Executor& executor_;
  std::atomic<bool> woken_ = false;
  std::vector<std::string> told_;
  bool submitted_ = false;
  std::thread::id thread_;
  Event done_;
};

class EvaluationTest : public EvalTest {
 protected:
  void SetUp() override {
    EvalTest::SetUp();
    if (engine_ == nullptr) return;
    identity_ = Compile("Identity", 1);
    executor_ = std::make_unique<ThreadExecutor>("test", ThreadRole::kOther);
    RunThere([this] { thread_ = std::this_thread::get_id(); });
  }

  // On the executor, to its end.
  void RunThere(const std::function<void()>& task) {
    Event ran;
    executor_->Post([&] {
      task();
      ran.Set();
    });
    ran.Wait();
  }

  void Fill(Evaluation& evaluation, std::vector<Point> after = {}) const {
    WorkRequest& request = evaluation.request();
    request.program = identity_;
    request.mode = EvalMode::kSyncFull;
    request.inputs = {Floats(values_)};
    for (Point& point : after) request.after.push_back(std::move(point));
  }

  void Start(Evaluation& evaluation, Client& client) {
    RunThere([&] { evaluation.Start(client); });
  }

  size_t leased() const { return engine_->pinned().stats().leased_bytes; }

  const std::vector<float> values_ = std::vector<float>(1000, 3);
  std::shared_ptr<const Program> identity_;
  std::thread::id thread_;  // the executor's
  std::unique_ptr<ThreadExecutor> executor_;
};

TEST_P(EvaluationTest, ItsClientIsToldOnTheExecutor) {
  const auto held = std::make_shared<Timeline>("held", nullptr);
  Evaluation evaluation(*engine_);
  Client client(*executor_);
  Fill(evaluation, {Point{held, 1}});
  Start(evaluation, client);
  EXPECT_EQ(client.times_done(), 0u);
  ASSERT_TRUE(held->Advance(1).ok());
  client.WaitDone();
  EXPECT_EQ(client.thread(), thread_);
  EXPECT_TRUE(client.submitted());
  EXPECT_THAT(client.told(), ElementsAre("planned", "launched", "done"));
  ASSERT_TRUE(evaluation.work().status().ok()) << evaluation.work().status();
  EXPECT_EQ(Result(evaluation.work()), values_);
}

TEST_P(EvaluationTest, MayStartAnewOrEndWhereItIsDone) {
  auto evaluation = std::make_unique<Evaluation>(*engine_);
  Client client(*executor_);
  client.on_done = [&] {
    EXPECT_EQ(Result(evaluation->work()), values_);
    evaluation->Clear();
    EXPECT_EQ(leased(), 0u);
    Fill(*evaluation);
    client.on_done = [&] { evaluation.reset(); };
    evaluation->Start(client);
  };
  Fill(*evaluation);
  Start(*evaluation, client);
  client.WaitDone(2);
  RunThere([] {});  // what ended it has left
  EXPECT_EQ(evaluation, nullptr);
  EXPECT_EQ(leased(), 0u);
}

TEST_P(EvaluationTest, ClearForgetsTheRequestAndItsProgram) {
  Evaluation evaluation(*engine_);
  Client client(*executor_);
  const long users = identity_.use_count();
  Fill(evaluation);
  evaluation.request().seed = 7;
  evaluation.request().deadline = NowNanos() + Nanos{3600} * 1'000'000'000;
  evaluation.request().label = "label";
  Start(evaluation, client);
  client.WaitDone();
  EXPECT_GT(identity_.use_count(), users);
  RunThere([&] { evaluation.Clear(); });
  EXPECT_EQ(identity_.use_count(), users);
  const WorkRequest& request = evaluation.request();
  EXPECT_FALSE(request.seed.has_value());
  EXPECT_FALSE(request.mode.has_value());
  EXPECT_EQ(request.deadline, kNoDeadline);
  EXPECT_EQ(request.label, "");
  EXPECT_TRUE(request.inputs.empty());
}

TEST_P(EvaluationTest, CancelledWorkIsDone) {
  const auto held = std::make_shared<Timeline>("held", nullptr);
  Evaluation evaluation(*engine_);
  Client client(*executor_);
  Fill(evaluation, {Point{held, 1}});
  Start(evaluation, client);
  RunThere([&] { evaluation.Cancel(); });
  client.WaitDone();
  EXPECT_EQ(evaluation.work().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(client.thread(), thread_);
  held->Fail(absl::InternalError("of the first use"));
  // And the next use of it is not.
  RunThere([&] { evaluation.Clear(); });
  Fill(evaluation);
  Start(evaluation, client);
  client.WaitDone(2);
  EXPECT_TRUE(evaluation.work().status().ok()) << evaluation.work().status();
}

TEST_P(EvaluationTest, SizesThatItsClientRefusesEndIt) {
  Evaluation evaluation(*engine_);
  Client client(*executor_);
  client.refusal = absl::ResourceExhaustedError("too large for me");
  Fill(evaluation);
  Start(evaluation, client);
  client.WaitDone();
  EXPECT_EQ(evaluation.work().status().message(), "too large for me");
  EXPECT_THAT(client.told(), ElementsAre("planned", "done"));
  EXPECT_EQ(leased(), 0u);
}

// As a session has them.
TEST_P(EvaluationTest, ManyShareAnExecutor) {
  constexpr size_t kMany = 50;
  const auto held = std::make_shared<Timeline>("held", nullptr);
  std::vector<std::unique_ptr<Evaluation>> evaluations;
  std::vector<std::unique_ptr<Client>> clients;
  for (size_t i = 0; i < kMany; ++i) {
    evaluations.push_back(std::make_unique<Evaluation>(*engine_));
    clients.push_back(std::make_unique<Client>(*executor_));
    Fill(*evaluations.back(), {Point{held, 1}});
    Start(*evaluations.back(), *clients.back());
  }
  ASSERT_TRUE(held->Advance(1).ok());
  for (size_t i = 0; i < kMany; ++i) {
    clients[i]->WaitDone();
    EXPECT_EQ(clients[i]->thread(), thread_);
    EXPECT_EQ(Result(evaluations[i]->work()), values_);
  }
}

TEST_P(EvaluationTest, ResultsOutliveItUntilEachIsReleased) {
  auto evaluation = std::make_unique<Evaluation>(*engine_);
  Client client(*executor_);
  Fill(*evaluation);
  Start(*evaluation, client);
  client.WaitDone();
  const auto bytes = evaluation->work().OutputBytes(0);
  const WorkResults::Shared results = evaluation->results().Share(2);
  evaluation.reset();
  EXPECT_GT(leased(), 0u);
  results.release(results.arg);
  EXPECT_GT(leased(), 0u);
  EXPECT_EQ(reinterpret_cast<const float*>(bytes.data())[999], 3);
  results.release(results.arg);
  EXPECT_EQ(leased(), 0u);
}

struct EndlessRoom final : ReplyRoom {
  absl::Status CheckReply(size_t) const override { return absl::OkStatus(); }
  absl::Status ChargeReply(size_t bytes) override {
    charged = bytes;
    return absl::OkStatus();
  }
  size_t charged = 0;
};

// What a reply copies is not lent to it.
TEST_P(EvaluationTest, OnlyLargeOutputsAreLent) {
  for (const size_t elements : {kCopiedReplyBytes / sizeof(float),
                                kCopiedReplyBytes / sizeof(float) + 1}) {
    SCOPED_TRACE(elements);
    const bool large = elements * sizeof(float) > kCopiedReplyBytes;
    const std::vector<float> values(elements, 5);
    Evaluation evaluation(*engine_);
    Client client(*executor_);
    Fill(evaluation);
    evaluation.request().inputs = {Floats(values)};
    Start(evaluation, client);
    client.WaitDone();
    const size_t wanted[] = {0};
    ResultBytes bytes(evaluation.results(), wanted);
    EndlessRoom room;
    ASSERT_TRUE(bytes.Prepare(7, room).ok());
    EXPECT_EQ(room.charged, 7 + (large ? 0 : elements * sizeof(float)));
    const ForeignBytes taken = bytes.Take(0);
    EXPECT_EQ(taken.size, elements * sizeof(float));
    EXPECT_EQ(static_cast<const float*>(taken.data)[0], 5);
    EXPECT_EQ(taken.beside > 0, large);
    RunThere([&] { evaluation.Clear(); });
    EXPECT_EQ(leased() > 0, large);
    taken.release(taken.arg);
    EXPECT_EQ(leased(), 0u);
  }
}

// A context remembers its failures; the pool keeps none.
TEST_P(EvaluationTest, ThePoolKeepsWhatDidNotFail) {
  EvaluationPool pool;
  // The number of each work in the context of the evaluation that is lent.
  std::vector<uint64_t> numbers;
  for (const bool good : {true, true, false, true, true}) {
    EvaluationPool::Lease lease;
    Client client(*executor_);
    RunThere([&] {
      lease = pool.Lend(*engine_);
      Fill(*lease);
      if (!good) lease->request().inputs.clear();
      lease->Start(client);
    });
    client.WaitDone();
    EXPECT_EQ(lease->work().status().ok(), good);
    numbers.push_back(lease->work().number());
    RunThere([&] { lease.reset(); });
  }
  EXPECT_THAT(numbers, ElementsAre(1, 2, 3, 1, 2));
}

WEIR_EVAL_ON_EVERY_DEVICE(EvaluationTest);

}  // namespace
}  // namespace weir
