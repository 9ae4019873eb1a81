// When a call in a space returns, in each mode, of a work whose stream is held:
// the table of modes, on the device of the suite.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>

#include "kernels/base/error_info.h"
#include "proto/weir/v1/evaluator.pb.h"
#include "tests/base/eventually.h"
#include "tests/server/server_fixture.h"
#include "tests/services/held_space_fixture.h"
#include "tests/services/space_call_fixture.h"

namespace weir::testing {
namespace {

class EvalModesTest : public HeldSpaceTest {
 protected:
  void SetUp() override {
    HeldSpaceTest::SetUp();
    CreateContext(1);
  }

  // Its tensor is kept, and its work held until the test lets it go.
  v1::EvaluateRequest Held(v1::EvalMode mode) {
    v1::EvaluateRequest request = hold().Request();
    request.set_context(1);
    request.set_mode(mode);
    request.set_work(10);
    request.add_outputs()->set_name("y");
    request.mutable_outputs(0)->set_tensor(2);
    return request;
  }
  bool IsThere() {
    v1::Command describe;
    describe.mutable_tensor_describe()->set_tensor(2);
    return RunOne(describe).tensor_describe().ready();
  }
  // What `request` is answered, and whether its work was let go before that.
  struct Answer {
    EvaluateAnswer answer;
    bool was_let_go = false;
  };
  Answer EvaluateUntilLetGo(const v1::EvaluateRequest& request) {
    std::atomic<bool> open = false;
    Answer answer;
    std::thread call([&] {
      answer.answer = Evaluate(request);
      answer.was_let_go = open.load();
    });
    hold().WaitUntilHeld();
    // As much as a call may take that does not wait for it.
    for (int i = 0; i < 20; ++i) {
      EXPECT_LT(Query(10).state(), v1::WORK_STATE_COMPLETED);
    }
    EXPECT_FALSE(IsThere());
    open.store(true);
    hold().Open();
    call.join();
    return answer;
  }
};

TEST_F(EvalModesTest, EagerReturnsBeforeTheDeviceIsDone) {
  const EvaluateAnswer answer = Evaluate(Held(v1::EVAL_MODE_EAGER));
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_GE(answer.response.report().state(), v1::WORK_STATE_ENQUEUED);
  EXPECT_LE(answer.response.report().state(), v1::WORK_STATE_SCHEDULED);
  EXPECT_EQ(answer.response.report().wait(), v1::WAIT_PERFORMED_NONE);
  hold().WaitUntilHeld();
  EXPECT_LT(Query(10).state(), v1::WORK_STATE_COMPLETED);
  EXPECT_FALSE(IsThere());
  hold().Open();
  EXPECT_EQ(Read(2), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_TRUE(Eventually(
      [&] { return Query(10).state() == v1::WORK_STATE_COMPLETED; }));
}

// The host's work and the launches: on a GPU that is less than the device's, on
// a CPU it is all of it.
TEST_F(EvalModesTest, SyncCpuReturnsWhenItIsLaunched) {
  if (TestDevice() == "cpu") {
    const Answer answer = EvaluateUntilLetGo(Held(v1::EVAL_MODE_SYNC_CPU));
    ASSERT_TRUE(answer.answer.status.ok());
    EXPECT_TRUE(answer.was_let_go);
    EXPECT_GE(answer.answer.response.report().state(),
              v1::WORK_STATE_SCHEDULED);
    return;
  }
  const EvaluateAnswer answer = Evaluate(Held(v1::EVAL_MODE_SYNC_CPU));
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.response.report().state(), v1::WORK_STATE_SCHEDULED);
  hold().WaitUntilHeld();
  EXPECT_EQ(Query(10).state(), v1::WORK_STATE_SCHEDULED);
  EXPECT_FALSE(IsThere());
}

TEST_F(EvalModesTest, SyncFullReturnsWhenItsCompletionWasSeen) {
  const Answer answer = EvaluateUntilLetGo(Held(v1::EVAL_MODE_SYNC_FULL));
  ASSERT_TRUE(answer.answer.status.ok());
  EXPECT_TRUE(answer.was_let_go);
  const v1::SyncReport& report = answer.answer.response.report();
  EXPECT_EQ(report.state(), v1::WORK_STATE_COMPLETED);
  EXPECT_EQ(report.wait(), v1::WAIT_PERFORMED_RECORD);
  EXPECT_TRUE(IsThere());
}

// In every mode: an output that is wanted inline is read.
TEST_F(EvalModesTest, ReadingWaitsInEveryMode) {
  v1::EvaluateRequest request = Held(v1::EVAL_MODE_EAGER);
  request.clear_outputs();
  request.add_outputs()->set_name("y");
  std::atomic<bool> open = false;
  std::thread call([&] {
    const EvaluateAnswer answer = Evaluate(request);
    EXPECT_TRUE(open.load());
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.response.report().inline_reads(), 1u);
    EXPECT_EQ(answer.response.report().state(), v1::WORK_STATE_COMPLETED);
  });
  hold().WaitUntilHeld();
  EXPECT_LT(Query(10).state(), v1::WORK_STATE_COMPLETED);
  open.store(true);
  hold().Open();
  call.join();
}

// Nothing of it begins: what is on the device later is held all the same.
TEST_F(EvalModesTest, DeferredReturnsBeforeAnythingIsDone) {
  const EvaluateAnswer answer = Evaluate(Held(v1::EVAL_MODE_DEFERRED));
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.response.report().state(), v1::WORK_STATE_NOT_ENQUEUED);
  EXPECT_EQ(answer.response.report().stream_id(), 0u);
  EXPECT_EQ(Query(10).state(), v1::WORK_STATE_NOT_ENQUEUED);
  EXPECT_FALSE(IsThere());
  std::atomic<bool> open = false;
  std::thread reads([&] {
    EXPECT_EQ(Read(2), (std::vector<float>{1, 2, 3, 4}));
    EXPECT_TRUE(open.load());
  });
  hold().WaitUntilHeld();
  open.store(true);
  hold().Open();
  reads.join();
}

// What shows when a call is checked fails it; what shows on the device is told
// by whoever waits for it, or asks.
TEST_F(EvalModesTest, ErrorsAreToldAsEarlyAsTheModeWaits) {
  const std::string fault = R"(
      inputs { name: "x" }
      nodes { name: "bad" domain: "weir" op: "Fault" inputs: "x" outputs: "y"
              attributes { name: "mode" s: "report" } }
      outputs: "y")";
  uint64_t number = 20;
  for (const v1::EvalMode mode :
       {v1::EVAL_MODE_DEFERRED, v1::EVAL_MODE_EAGER, v1::EVAL_MODE_SYNC_FULL}) {
    SCOPED_TRACE(v1::EvalMode_Name(mode));
    v1::EvaluateRequest request = Program(fault);
    AddInput(&request, "x", v1::DATA_TYPE_FLOAT, {1}, Bytes<float>({1}));
    request.set_mode(mode);
    request.set_context(1);
    request.set_work(++number);
    request.add_outputs()->set_name("y");
    request.mutable_outputs(0)->set_tensor(number);
    const EvaluateAnswer answer = Evaluate(request);
    if (mode == v1::EVAL_MODE_SYNC_FULL) {
      EXPECT_EQ(Reason(FromGrpcStatus(answer.status)), "INJECTED_FAULT");
      continue;
    }
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    v1::Command wait;
    wait.mutable_wait()->add_works(number);
    EXPECT_EQ(ReasonOf(RunOne(wait).error()), "INJECTED_FAULT");
    EXPECT_EQ(Query(number).state(), v1::WORK_STATE_ERROR);
  }
}

}  // namespace
}  // namespace weir::testing
