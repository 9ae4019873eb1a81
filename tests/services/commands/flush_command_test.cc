// What a flush has run, what it skips, and what it tells, over the wire; and
// the same of a context that is closed.
#include <gmock/gmock.h>

#include <string>
#include <utility>
#include <vector>

#include "proto/weir/v1/evaluator.pb.h"
#include "tests/server/server_fixture.h"
#include "tests/services/space_call_fixture.h"

namespace weir::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FlushCommandTest : public SpaceCallTest {
 protected:
  void SetUp() override {
    SpaceCallTest::SetUp();
    CreateContext(1, v1::EVAL_MODE_DEFERRED);
    ASSERT_FALSE(Put(1, {1}).has_error());
  }

  // tensor `to` = 2 * tensor `from`, in context 1.
  void DeferDouble(uint64_t from, uint64_t to, uint64_t work,
                   const std::string& label = "") {
    v1::EvaluateRequest request = Double(from, to);
    request.set_context(1);
    request.set_work(work);
    request.set_label(label);
    const EvaluateAnswer answer = Evaluate(request);
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  }
  void Free(uint64_t tensor) {
    v1::Command free;
    free.mutable_tensor_free()->set_tensor(tensor);
    EXPECT_FALSE(RunOne(free).has_error());
  }
  v1::CommandResult Flush(uint64_t context = 1) {
    v1::Command flush;
    flush.mutable_context_flush()->set_context(context);
    return RunOne(flush);
  }
  static std::vector<uint64_t> Works(
      const google::protobuf::RepeatedPtrField<v1::FlushedWork>& works) {
    std::vector<uint64_t> numbers;
    for (const v1::FlushedWork& work : works) numbers.push_back(work.work());
    return numbers;
  }
  void Await(uint64_t work) {
    v1::Command wait;
    wait.mutable_wait()->add_works(work);
    RunOne(wait);
  }
};

TEST_F(FlushCommandTest, RunsWhatIsWantedAndSkipsTheRest) {
  DeferDouble(1, 2, 12);
  DeferDouble(2, 3, 13, "freed");
  DeferDouble(3, 4, 0, "freed, too");
  DeferDouble(1, 5, 0, "kept");
  Free(3);
  Free(4);
  const v1::CommandResult result = Flush();
  ASSERT_FALSE(result.has_error()) << result.error().message();
  const v1::ContextFlushed& flushed = result.context_flush();
  EXPECT_THAT(Works(flushed.executed()), ElementsAre(12, 0));
  EXPECT_EQ(flushed.executed(1).label(), "kept");
  EXPECT_EQ(flushed.executed(1).position(), 4u);
  EXPECT_THAT(Works(flushed.skipped()), ElementsAre(13, 0));
  EXPECT_EQ(flushed.skipped(0).label(), "freed");
  EXPECT_EQ(flushed.skipped(1).label(), "freed, too");
  EXPECT_EQ(flushed.skipped(1).position(), 3u);
  EXPECT_EQ(flushed.failed_total(), 0u);
  // They do not come twice.
  EXPECT_EQ(Flush().context_flush().ByteSizeLong(), 0u);
  EXPECT_EQ(Query(13).state(), v1::WORK_STATE_ERROR);
  EXPECT_EQ(Query(13).failure().code(), static_cast<int>(grpc::CANCELLED));
  EXPECT_EQ(Read(2), (std::vector<float>{2}));
  EXPECT_EQ(Read(5), (std::vector<float>{2}));
}

// One that is freed is wanted as long as one that is wanted reads it.
TEST_F(FlushCommandTest, RunsWhatIsReadThoughItIsFreed) {
  DeferDouble(1, 2, 12);
  DeferDouble(2, 3, 13);
  Free(2);
  const v1::ContextFlushed flushed = Flush().context_flush();
  EXPECT_THAT(Works(flushed.executed()), ElementsAre(12, 13));
  EXPECT_THAT(Works(flushed.skipped()), IsEmpty());
  EXPECT_EQ(Read(3), (std::vector<float>{4}));
}

TEST_F(FlushCommandTest, RunsWhatSignals) {
  CreateTimeline(1);
  v1::EvaluateRequest request = Double(1, 2);
  request.set_context(1);
  request.set_work(12);
  request.add_signal()->set_timeline(1);
  request.mutable_signal(0)->set_value(3);
  ASSERT_TRUE(Evaluate(request).status.ok());
  Free(2);
  EXPECT_THAT(Works(Flush().context_flush().executed()), ElementsAre(12));
  Await(12);
  EXPECT_EQ(Query(12).state(), v1::WORK_STATE_COMPLETED);
}

TEST_F(FlushCommandTest, TellsWhatFailedSinceTheLast) {
  v1::EvaluateRequest fails = Program(R"(
      inputs { name: "x" }
      nodes { name: "bad" domain: "weir" op: "Fault" inputs: "x" outputs: "y"
              attributes { name: "mode" s: "report" } call_site: "a.py:7" }
      outputs: "y")");
  fails.add_inputs()->set_name("x");
  fails.mutable_inputs(0)->mutable_value()->set_tensor(1);
  fails.add_outputs()->set_name("y");
  fails.mutable_outputs(0)->set_tensor(2);
  fails.set_context(1);
  fails.set_label("doomed");
  fails.set_work(12);
  ASSERT_TRUE(Evaluate(fails).status.ok());
  DeferDouble(2, 3, 13);
  EXPECT_THAT(Works(Flush().context_flush().executed()), ElementsAre(12, 13));
  Await(12);
  Await(13);
  const v1::ContextFlushed flushed = Flush().context_flush();
  EXPECT_EQ(flushed.failed_total(), 2u);
  ASSERT_EQ(flushed.failed_size(), 2);
  EXPECT_EQ(flushed.failed(0).work(), 12u);
  EXPECT_EQ(flushed.failed(0).label(), "doomed");
  EXPECT_EQ(ReasonOf(flushed.failed(0).failure()), "INJECTED_FAULT");
  EXPECT_THAT(flushed.failed(0).failure().message(),
              HasSubstr("a.py:7: node \"bad\" (weir.Fault)"));
  EXPECT_EQ(flushed.failed(1).work(), 13u);
  EXPECT_EQ(Flush().context_flush().failed_total(), 0u) << "told once";
}

TEST_F(FlushCommandTest, AContextThatIsClosedIsFlushed) {
  DeferDouble(1, 2, 12);
  DeferDouble(1, 3, 13);
  Free(3);
  v1::Command close;
  close.mutable_context_close()->set_context(1);
  const v1::CommandResult result = RunOne(close);
  ASSERT_FALSE(result.has_error()) << result.error().message();
  const v1::ContextFlushed& flushed = result.context_close().flushed();
  EXPECT_THAT(Works(flushed.executed()), ElementsAre(12));
  EXPECT_THAT(Works(flushed.skipped()), ElementsAre(13));
  EXPECT_EQ(Read(2), (std::vector<float>{2}));
}

TEST_F(FlushCommandTest, NeedsAContext) {
  EXPECT_EQ(ReasonOf(Flush(9).error()), "CONTEXT_NOT_FOUND");
  EXPECT_FALSE(Flush().has_error()) << "there is nothing to do";
}

}  // namespace
}  // namespace weir::testing
