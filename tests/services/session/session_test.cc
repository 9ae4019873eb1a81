// Commands of a session over the wire: in which order they are taken and
// answered, what they may enter, what is told again, and what is refused.
#include <gmock/gmock.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/base/error_info.h"
#include "proto/weir/v1/evaluator.pb.h"
#include "tests/rpc/raw_stream_client.h"
#include "tests/server/server_fixture.h"
#include "tests/services/session/session_client.h"
#include "tests/services/space_call_fixture.h"

namespace weir::testing {
namespace {

using grpc::StatusCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SessionTest : public SpaceCallTest {
 protected:
  // y = x + x in context 1 once timeline 1 is at `value`, inline.
  static v1::EvaluateRequest InlineAt(uint64_t from, uint64_t value) {
    v1::EvaluateRequest request = Double(from, 1000);
    request.mutable_outputs(0)->clear_tensor();
    request.set_context(1);
    v1::Point* const point = request.add_after();
    point->set_timeline(1);
    point->set_value(value);
    return request;
  }
};

// In a Run it would wait for what stands behind it.
TEST_F(SessionTest, AWaitHoldsUpNobody) {
  CreateTimeline(1);
  SessionClient session(server_, token_);
  ASSERT_TRUE(session.Open(1));
  EXPECT_EQ(session.opened().accepted(), 0u);
  EXPECT_GT(session.opened().window().commands(), 0u);
  const uint64_t wait = session.Send(WaitCommand(1, 5));
  const uint64_t signal = session.Send(SignalCommand(1, 5));
  EXPECT_FALSE(session.Result(wait).has_error());
  EXPECT_THAT(session.order(), ElementsAre(signal, wait));
}

TEST_F(SessionTest, AChainIsOneMessage) {
  constexpr uint64_t kLinks = 900;
  ASSERT_FALSE(Put(1, {1}).has_error());
  CreateContext(1);
  SessionClient session(server_, token_);
  ASSERT_TRUE(session.Open(1));
  v1::SessionRequest request;
  request.set_first_sequence(1);
  for (uint64_t link = 1; link <= kLinks; ++link) {
    v1::EvaluateRequest* const evaluate =
        request.add_commands()->mutable_evaluate();
    *evaluate = Program(R"(
        inputs { name: "x" }
        nodes { op: "Neg" inputs: "x" outputs: "y" }
        outputs: "y")");
    evaluate->add_inputs()->set_name("x");
    evaluate->mutable_inputs(0)->mutable_value()->set_tensor(link);
    evaluate->add_outputs()->set_name("y");
    evaluate->mutable_outputs(0)->set_tensor(link + 1);
    evaluate->set_context(1);
  }
  session.Send(request);
  session.set_last(kLinks);
  const v1::CommandResult end = session.Run(GetCommand(kLinks + 1));
  ASSERT_FALSE(end.has_error()) << end.error().message();
  EXPECT_EQ(Values<float>(end.tensor_get().outputs(0).value().raw()),
            (std::vector<float>{1}));
  for (uint64_t link = 1; link <= kLinks; ++link) {
    ASSERT_TRUE(session.answered(link));
    ASSERT_FALSE(session.Result(link).has_error())
        << session.Result(link).error().message();
  }
  EXPECT_LT(session.events(), kLinks / 4);
}

// A command may enter a context in which others of its session still are;
// strangers may not, and may when the last has left it.
TEST_F(SessionTest, ASessionIsOneHandler) {
  CreateContext(1);
  CreateTimeline(1);
  ASSERT_FALSE(Put(1, {1}).has_error());
  SessionClient session(server_, token_);
  ASSERT_TRUE(session.Open(1));
  const uint64_t first = session.Send(EvaluateCommand(InlineAt(1, 1)));
  const uint64_t second = session.Send(EvaluateCommand(InlineAt(1, 2)));
  v1::EvaluateRequest kept = Double(1, 2);
  kept.set_context(1);
  const v1::CommandResult third = session.Run(EvaluateCommand(kept));
  EXPECT_FALSE(third.has_error()) << third.error().message();
  EXPECT_FALSE(session.answered(first));

  v1::EvaluateRequest stranger = Double(1, 3);
  stranger.set_context(1);
  const EvaluateAnswer busy = Evaluate(stranger);
  EXPECT_EQ(busy.status.error_code(), StatusCode::ABORTED);
  SessionClient other(server_, token_);
  ASSERT_TRUE(other.Open(2));
  EXPECT_EQ(other.Run(EvaluateCommand(stranger)).error().reason(),
            "CONTEXT_BUSY");

  session.Send(SignalCommand(1, 1));
  const v1::CommandResult done = session.Result(first);
  ASSERT_FALSE(done.has_error()) << done.error().message();
  EXPECT_EQ(Values<float>(done.evaluate().outputs(0).value().raw()),
            (std::vector<float>{2}));
  // The second is still inside.
  EXPECT_EQ(other.Run(EvaluateCommand(stranger)).error().reason(),
            "CONTEXT_BUSY");
  session.Send(SignalCommand(1, 2));
  EXPECT_FALSE(session.Result(second).has_error());
  const v1::CommandResult entered = other.Run(EvaluateCommand(stranger));
  EXPECT_FALSE(entered.has_error()) << entered.error().message();
}

// What queues for a context holds up what is behind it, as it has no place yet.
TEST_F(SessionTest, ACommandThatQueuesHoldsUpTheNext) {
  CreateContext(1);
  CreateTimeline(1);
  ASSERT_FALSE(Put(1, {1}).has_error());
  SessionClient inside(server_, token_);
  ASSERT_TRUE(inside.Open(1));
  const uint64_t held = inside.Send(EvaluateCommand(InlineAt(1, 1)));
  // It is in when the next one is answered.
  ASSERT_TRUE(inside.Run(GetCommand(99)).has_error());

  SessionClient queued(server_, token_);
  ASSERT_TRUE(queued.Open(2));
  v1::EvaluateRequest request = Double(1, 3);
  request.set_context(1);
  request.set_on_conflict(v1::CONTEXT_CONFLICT_QUEUE);
  const uint64_t in_line = queued.Send(EvaluateCommand(request));
  v1::Command gone;
  gone.mutable_timeline_delete()->set_timeline(1);
  const uint64_t behind = queued.Send(gone);
  // They have come by now, if they come before this: the timeline stays.
  for (int i = 0; i < 200; ++i) Describe();
  EXPECT_FALSE(inside.Run(SignalCommand(1, 1)).has_error());
  EXPECT_FALSE(inside.Result(held).has_error());
  EXPECT_FALSE(queued.Result(in_line).has_error());
  EXPECT_FALSE(queued.Result(behind).has_error());
}

TEST_F(SessionTest, ANumberThatWasTakenIsNotDoneAgain) {
  CreateTimeline(1);
  SessionClient session(server_, token_);
  ASSERT_TRUE(session.Open(1));
  const uint64_t signal = session.Send(SignalCommand(1, 5));
  EXPECT_FALSE(session.Result(signal).has_error());
  // Done again it would fail, for it does not grow.
  session.SendAgain(signal, SignalCommand(1, 5));
  EXPECT_FALSE(session.NextResult(signal).has_error());
  // Whatever it comes with.
  session.SendAgain(signal, SignalCommand(1, 9));
  EXPECT_FALSE(session.NextResult(signal).has_error());
  EXPECT_FALSE(session.Run(SignalCommand(1, 6)).has_error());
  session.Acknowledge(2);
  session.SendAgain(signal, SignalCommand(1, 5));
  EXPECT_EQ(session.NextResult(signal).error().reason(), "ANSWER_FORGOTTEN");
}

TEST_F(SessionTest, EndsOfWorksAreTold) {
  CreateTimeline(1);
  ASSERT_FALSE(Put(1, {1}).has_error());
  SessionClient session(server_, token_);
  ASSERT_TRUE(session.Open(1, /*push_completions=*/true));
  for (const uint64_t work : {uint64_t{7}, uint64_t{8}}) {
    v1::EvaluateRequest request = Double(1, work);
    request.set_work(work);
    request.add_after()->set_timeline(1);
    request.mutable_after(0)->set_value(work);
    EXPECT_FALSE(session.Run(EvaluateCommand(request)).has_error());
  }
  EXPECT_EQ(session.completions(), 0u);
  session.Send(SignalCommand(1, 7));
  EXPECT_EQ(session.Completion(0).work(), 7u);
  EXPECT_EQ(session.Completion(0).status().state(), v1::WORK_STATE_COMPLETED);
  EXPECT_EQ(session.Completion(0).status().report().state(),
            v1::WORK_STATE_COMPLETED);
  v1::Command gone;
  gone.mutable_timeline_delete()->set_timeline(1);
  session.Send(gone);
  EXPECT_EQ(session.Completion(1).work(), 8u);
  EXPECT_EQ(session.Completion(1).status().state(), v1::WORK_STATE_ERROR);
  EXPECT_EQ(session.Completion(1).status().failure().reason(),
            "TIMELINE_DELETED");
}

// Nobody needs it for that: it is told when somebody has.
TEST_F(SessionTest, WhoIsToldOfADeferredWorkDoesNotHaveItRun) {
  CreateContext(1, v1::EVAL_MODE_DEFERRED);
  ASSERT_FALSE(Put(1, {1}).has_error());
  SessionClient session(server_, token_);
  ASSERT_TRUE(session.Open(1, /*push_completions=*/true));
  v1::EvaluateRequest request = Double(1, 2);
  request.set_context(1);
  request.set_work(7);
  EXPECT_FALSE(session.Run(EvaluateCommand(request)).has_error());
  // One that runs in the context comes behind whatever was begun there.
  v1::EvaluateRequest behind = Double(1, 3);
  behind.set_context(1);
  behind.set_mode(v1::EVAL_MODE_SYNC_FULL);
  EXPECT_FALSE(session.Run(EvaluateCommand(behind)).has_error());
  EXPECT_EQ(Query(7).state(), v1::WORK_STATE_NOT_ENQUEUED);
  EXPECT_EQ(session.completions(), 0u);
  const v1::CommandResult flushed = session.Run(FlushCommand(1));
  ASSERT_EQ(flushed.context_flush().executed_size(), 1);
  EXPECT_EQ(flushed.context_flush().executed(0).work(), 7u);
  EXPECT_EQ(session.Completion(0).work(), 7u);
  EXPECT_EQ(session.Completion(0).status().state(), v1::WORK_STATE_COMPLETED);

  request = Double(2, 4);
  request.set_context(1);
  request.set_work(8);
  EXPECT_FALSE(session.Run(EvaluateCommand(request)).has_error());
  EXPECT_EQ(Read(4), (std::vector<float>{4}));
  EXPECT_EQ(session.Completion(1).work(), 8u);
}

// Its own works are no strangers; and what was deferred is told by name.
TEST_F(SessionTest, FlushesAndClosesAContextThatItIsIn) {
  CreateContext(1, v1::EVAL_MODE_DEFERRED);
  CreateTimeline(1);
  ASSERT_FALSE(Put(1, {1}).has_error());
  SessionClient session(server_, token_);
  ASSERT_TRUE(session.Open(1));
  v1::EvaluateRequest fails = Program(R"(
      inputs { name: "x" }
      nodes { domain: "weir" op: "Fault" inputs: "x" outputs: "y"
              attributes { name: "mode" s: "report" } }
      outputs: "y")");
  fails.add_inputs()->set_name("x");
  fails.mutable_inputs(0)->mutable_value()->set_tensor(1);
  fails.add_outputs()->set_name("y");
  fails.mutable_outputs(0)->set_tensor(9);
  const auto send = [&](v1::EvaluateRequest request, uint64_t work) {
    request.set_context(1);
    request.set_work(work);
    const v1::CommandResult result = session.Run(EvaluateCommand(request));
    EXPECT_FALSE(result.has_error()) << result.error().message();
  };
  fails.set_mode(v1::EVAL_MODE_EAGER);
  send(fails, 11);
  v1::Command wait;
  wait.mutable_wait()->add_works(11);
  EXPECT_EQ(session.Run(wait).error().reason(), "INJECTED_FAULT");

  const uint64_t inside = session.Send(EvaluateCommand(InlineAt(1, 1)));
  send(Double(1, 2), 12);
  const v1::CommandResult flushed = session.Run(FlushCommand(1));
  ASSERT_FALSE(flushed.has_error()) << flushed.error().message();
  ASSERT_EQ(flushed.context_flush().executed_size(), 1);
  EXPECT_EQ(flushed.context_flush().executed(0).work(), 12u);
  ASSERT_EQ(flushed.context_flush().failed_size(), 1);
  EXPECT_EQ(flushed.context_flush().failed(0).work(), 11u);
  send(Double(2, 3), 13);
  send(Double(3, 4), 14);
  v1::Command free;
  free.mutable_tensor_free()->set_tensor(4);
  EXPECT_FALSE(session.Run(free).has_error());
  v1::Command close;
  close.mutable_context_close()->set_context(1);
  for (const v1::Command& command : {FlushCommand(1), close}) {
    EXPECT_EQ(RunOne(command).error().reason(), "CONTEXT_BUSY")
        << "of a stranger";
  }
  const v1::CommandResult closed = session.Run(close);
  ASSERT_FALSE(closed.has_error()) << closed.error().message();
  const v1::ContextFlushed& last = closed.context_close().flushed();
  ASSERT_EQ(last.executed_size(), 1);
  EXPECT_EQ(last.executed(0).work(), 13u);
  ASSERT_EQ(last.skipped_size(), 1);
  EXPECT_EQ(last.skipped(0).work(), 14u);
  EXPECT_EQ(last.failed_size(), 0) << "that was told";
  EXPECT_FALSE(session.answered(inside));
  const v1::CommandResult gone = session.Run(FlushCommand(1));
  EXPECT_EQ(gone.error().reason(), "CONTEXT_NOT_FOUND");
  EXPECT_EQ(gone.error().field(), "context");
  EXPECT_FALSE(session.Run(SignalCommand(1, 1)).has_error());
  EXPECT_FALSE(session.Result(inside).has_error());
  EXPECT_EQ(Read(3), (std::vector<float>{4}));
  EXPECT_EQ(Query(14).failure().code(),
            static_cast<int>(StatusCode::CANCELLED));
}

TEST_F(SessionTest, WhoHasSentAllIsAnsweredAllOfIt) {
  CreateTimeline(1);
  SessionClient session(server_, token_);
  ASSERT_TRUE(session.Open(1));
  const uint64_t wait = session.Send(WaitCommand(1, 1));
  session.EndSending();
  ASSERT_FALSE(Signal(1, 1).has_error());
  EXPECT_FALSE(session.Result(wait).has_error());
  const grpc::Status status = session.Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  // It is over: its number is free.
  SessionClient next(server_, token_);
  EXPECT_TRUE(next.Open(1));
}

TEST_F(SessionTest, CommandsThatAreNoneHaveErrors) {
  SessionClient session(server_, token_);
  ASSERT_TRUE(session.Open(1));
  EXPECT_EQ(session.Run(v1::Command()).error().code(),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(session.Run(GetCommand(77)).error().reason(), "TENSOR_NOT_FOUND");
  CreateTimeline(1);
  EXPECT_FALSE(session.Run(SignalCommand(1, 1)).has_error());
}

TEST_F(SessionTest, WhatIsNoRequestEndsTheStream) {
  CreateTimeline(1);
  struct Case {
    const char* what;
    v1::SessionRequest request;
    const char* field;
  };
  std::vector<Case> cases(6);
  cases[0] = {"a gap", {}, "first_sequence"};
  cases[0].request.set_first_sequence(3);
  *cases[0].request.add_commands() = SignalCommand(1, 100);
  cases[1] = {"no number", cases[0].request, "first_sequence"};
  cases[1].request.set_first_sequence(0);
  cases[2] = {"opened twice", {}, "open"};
  cases[2].request.mutable_open()->set_session(2);
  cases[3] = {"not taken", {}, "acknowledged"};
  cases[3].request.set_acknowledged(2);
  cases[4] = {"not answered", {}, "acknowledged"};
  cases[4].request.set_acknowledged(1);
  cases[5] = {"too many", {}, "commands"};
  for (int i = 0; i < 1025; ++i) cases[5].request.add_commands();
  uint64_t number = 0;
  for (const Case& each : cases) {
    SessionClient session(server_, token_);
    ASSERT_TRUE(session.Open(++number));
    session.Send(WaitCommand(1, 99));
    session.Send(each.request);
    const grpc::Status status = session.Finish();
    EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT) << each.what;
    EXPECT_THAT(Field(FromGrpcStatus(status)), HasSubstr(each.field))
        << each.what;
  }
}

TEST_F(SessionTest, TheFirstMessageOpens) {
  {
    SessionClient session(server_, token_);
    session.Send(SignalCommand(1, 1));
    const grpc::Status status = session.Finish();
    EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr("open"));
  }
  {
    SessionClient session(server_, token_);
    session.EndSending();
    EXPECT_EQ(session.Finish().error_code(), StatusCode::INVALID_ARGUMENT);
  }
  {
    SessionClient session(server_, token_);
    EXPECT_FALSE(session.Open(0));
    EXPECT_EQ(session.Finish().error_code(), StatusCode::INVALID_ARGUMENT);
  }
  {
    // It may bring commands, too.
    CreateTimeline(1);
    SessionClient session(server_, token_);
    v1::SessionRequest request;
    request.mutable_open()->set_session(4);
    request.set_first_sequence(1);
    *request.add_commands() = SignalCommand(1, 1);
    ASSERT_TRUE(session.Open(request));
    EXPECT_FALSE(session.Result(1).has_error());
  }
}

TEST_F(SessionTest, NeedsASpace) {
  SessionClient session(server_, std::string(16, 'x'));
  EXPECT_FALSE(session.Open(1));
  EXPECT_EQ(session.Finish().error_code(), StatusCode::NOT_FOUND);
}

// Commands and acknowledgements of which there is no end.
TEST_F(SessionTest, AHundredThousandCommands) {
  constexpr uint64_t kCommands = 100'000;
  constexpr uint64_t kBatch = 100;
  CreateTimeline(1);
  SessionClient session(server_, token_);
  ASSERT_TRUE(session.Open(1));
  std::atomic<uint64_t> received{0};
  std::thread sender([&] {
    for (uint64_t first = 1; first <= kCommands; first += kBatch) {
      v1::SessionRequest request;
      request.set_first_sequence(first);
      request.set_acknowledged(received);
      for (uint64_t i = 0; i < kBatch; ++i) {
        *request.add_commands() = SignalCommand(1, first + i);
      }
      session.Send(request);
    }
    session.EndSending();
  });
  uint64_t failed = 0;
  for (uint64_t sequence = 1; sequence <= kCommands; ++sequence) {
    failed += session.Result(sequence).has_error();
    received = sequence;
  }
  sender.join();
  EXPECT_TRUE(session.Finish().ok());
  EXPECT_EQ(failed, 0u);
  EXPECT_EQ(session.order().size(), kCommands);
  EXPECT_LT(session.events(), kCommands / 4);
}

// The server stops reading a caller who does not read, and holds no more of
// it than it says.
TEST_F(SessionTest, OneWhoDoesNotReadIsNotRead) {
  CreateTimeline(1);
  RawStreamClient client(server_.Connect(), "/weir.v1.Evaluator/Session");
  client.context().AddMetadata(kSpaceHeader, token_);
  client.Start();
  std::atomic<uint64_t> sent{0};
  std::thread sender([&] {
    v1::SessionRequest request;
    request.mutable_open()->set_session(1);
    request.set_first_sequence(1);
    // Their errors are larger than they are.
    for (int i = 0; i < 100; ++i) *request.add_commands() = GetCommand(999);
    while (client.Send(request.SerializeAsString())) {
      ++sent;
      request.clear_open();
      request.set_first_sequence(request.first_sequence() + 100);
    }
  });
  uint64_t before = 0;
  do {
    before = sent;
    for (int i = 0; i < 200; ++i) Describe();
  } while (sent != before || before == 0);
  // 100 commands take 1 KB, and their errors 20 KB; what is on its way in
  // sockets and windows comes on top.
  EXPECT_LT(sent, 2000u);
  EXPECT_LT(server_.Metric("weir_request_bytes_in_flight"), 8 << 20);
  client.context().TryCancel();
  sender.join();
}

}  // namespace
}  // namespace weir::testing
