// How sessions end, and go on: streams that break, others that resume them,
// spaces that are closed, servers that end, and how many there may be.
#include <gmock/gmock.h>
#include <poll.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "proto/weir/v1/evaluator.pb.h"
#include "tests/server/server_fixture.h"
#include "tests/services/session/session_client.h"
#include "tests/services/space_call_fixture.h"

namespace weir::testing {
namespace {

using grpc::StatusCode;
using ::testing::HasSubstr;

class SessionEndsTest : public SpaceCallTest {
 protected:
  explicit SessionEndsTest(absl::Duration linger = absl::Minutes(10))
      : SpaceCallTest([=](ServerOptions& options) {
          options.space_sessions = 2;
          options.linger = linger;
          // A drain waits for calls, not for idle connections.
          options.max_connection_age = absl::InfiniteDuration();
        }) {}

  bool Holds(uint64_t sessions) {
    return Eventually([&] { return Describe().held().sessions() == sessions; });
  }
  double Sessions(const std::string& state) const {
    return server_.Metric("weir_sessions{state=\"" + state + "\"}");
  }
};

class NoLingerTest : public SessionEndsTest {
 protected:
  NoLingerTest() : SessionEndsTest(absl::ZeroDuration()) {}
};

TEST_F(SessionEndsTest, ABrokenStreamIsResumed) {
  CreateTimeline(1);
  CreateTimeline(2);
  SessionClient broken(server_, token_);
  ASSERT_TRUE(broken.Open(1));
  EXPECT_FALSE(broken.Run(SignalCommand(1, 1)).has_error());
  EXPECT_FALSE(broken.Run(SignalCommand(1, 2)).has_error());
  broken.Send(WaitCommand(2, 1));
  EXPECT_FALSE(broken.Run(SignalCommand(1, 3)).has_error());
  broken.Break();
  EXPECT_FALSE(broken.Finish().ok());
  EXPECT_TRUE(Eventually([&] { return Sessions("detached") == 1; }));

  SessionClient session(server_, token_);
  ASSERT_TRUE(session.Resume(1, /*acknowledged=*/1));
  EXPECT_EQ(session.opened().accepted(), 4u);
  // What was not acknowledged comes again, once; what runs goes on.
  EXPECT_FALSE(session.Result(2).has_error());
  EXPECT_FALSE(session.Result(4).has_error());
  EXPECT_FALSE(session.answered(1));
  EXPECT_FALSE(session.answered(3));
  // Sent again, as by one who does not know how far it came.
  session.SendAgain(3, WaitCommand(2, 77));
  session.set_last(4);
  EXPECT_FALSE(session.Run(SignalCommand(2, 1)).has_error());
  EXPECT_FALSE(session.Result(3).has_error());
}

// Whoever closes a space does so on another thread than the one that takes its
// commands: between any two steps of that.
TEST_F(SessionEndsTest, ASpaceMayBeClosedWhileItsCommandsAreTaken) {
  const auto other = v1::Spaces::NewStub(server_.Connect());
  for (int round = 0; round < 60; ++round) {
    const std::string token = Open();
    SessionClient session(server_, token);
    ASSERT_TRUE(session.Open(1));
    v1::SessionRequest request;
    request.set_first_sequence(1);
    for (int i = 0; i < 200; ++i) {
      // Some that no handler knows.
      v1::Command* const command = request.add_commands();
      if (i % 3 != 0) command->mutable_query()->set_work(1);
    }
    std::thread sender([&] { session.Send(request); });
    grpc::ClientContext context;
    Enter(&context, token);
    v1::CloseSpaceResponse response;
    EXPECT_TRUE(other->Close(&context, {}, &response).ok());
    sender.join();
    EXPECT_EQ(session.Finish().error_code(), StatusCode::NOT_FOUND);
  }
  EXPECT_TRUE(ServesOn(server_));
}

// An answer that is too large to be kept was sent, and may be lost with its
// stream: whoever resumes is told so.
TEST_F(SessionEndsTest, WhoResumesIsToldOfAnswersThatAreNotKept) {
  ASSERT_FALSE(Put(1, std::vector<float>(size_t{1} << 19, 2)).has_error());
  SessionClient broken(server_, token_);
  ASSERT_TRUE(broken.Open(1));
  EXPECT_FALSE(broken.Run(GetCommand(1)).has_error());
  broken.Break();
  EXPECT_FALSE(broken.Finish().ok());
  EXPECT_TRUE(Eventually([&] { return Sessions("detached") == 1; }));
  SessionClient session(server_, token_);
  ASSERT_TRUE(session.Resume(1));
  EXPECT_EQ(session.Result(1).error().reason(), "ANSWER_FORGOTTEN");
}

// Many times, while commands come and go: each is done once, and answered.
TEST_F(SessionEndsTest, StreamsMayBreakAtAnyTime) {
  CreateTimeline(1);
  constexpr uint64_t kCommands = 3000;
  uint64_t got = 0;
  auto session = std::make_unique<SessionClient>(server_, token_);
  ASSERT_TRUE(session->Open(1));
  uint64_t sent = 0;
  for (int round = 0; got < kCommands; ++round) {
    // So few that no answer is forgotten before it is acknowledged.
    for (int batch = 0; batch < 3 && sent - got < 500; ++batch) {
      if (sent == kCommands) break;
      v1::SessionRequest request;
      request.set_first_sequence(sent + 1);
      request.set_acknowledged(got);
      for (int i = 0; i < 50 && sent < kCommands; ++i) {
        *request.add_commands() = SignalCommand(1, ++sent);
      }
      session->Send(request);
    }
    // Some of the answers, in some rounds.
    for (int i = 0; i < 40 * (round % 4) && got < sent; ++i) {
      ASSERT_FALSE(session->Result(got + 1).has_error());
      ++got;
    }
    if (sent == kCommands) {
      for (; got < kCommands; ++got) {
        ASSERT_FALSE(session->Result(got + 1).has_error());
      }
      break;
    }
    session->Break();
    session = std::make_unique<SessionClient>(server_, token_);
    ASSERT_TRUE(session->Resume(1, got)) << session->Finish().error_message();
    sent = session->opened().accepted();
  }
  v1::Command end;
  end.mutable_timeline_delete()->set_timeline(1);
  session->set_last(kCommands);
  EXPECT_EQ(session->Run(end).timeline_delete().value(), kCommands);
}

// A connection may be half open for long: whoever has the token goes on.
TEST_F(SessionEndsTest, TheNewStreamDisplacesTheOld) {
  CreateTimeline(1);
  SessionClient old_stream(server_, token_);
  ASSERT_TRUE(old_stream.Open(1));
  const uint64_t wait = old_stream.Send(WaitCommand(1, 1));
  ASSERT_FALSE(old_stream.Run(SignalCommand(1, 0)).error().message().empty());
  SessionClient session(server_, token_);
  ASSERT_TRUE(session.Resume(1));
  const grpc::Status status = old_stream.Finish();
  EXPECT_EQ(status.error_code(), StatusCode::ABORTED);
  EXPECT_THAT(status.error_details(), HasSubstr("SESSION_RESUMED"));
  session.set_last(2);
  EXPECT_FALSE(session.Run(SignalCommand(1, 1)).has_error());
  EXPECT_FALSE(session.Result(wait).has_error());
}

TEST_F(SessionEndsTest, ANumberIsOneSession) {
  SessionClient first(server_, token_);
  ASSERT_TRUE(first.Open(1));
  {
    SessionClient same(server_, token_);
    EXPECT_FALSE(same.Open(1));
    const grpc::Status status = same.Finish();
    EXPECT_EQ(status.error_code(), StatusCode::ALREADY_EXISTS);
    EXPECT_THAT(status.error_details(), HasSubstr("NUMBER_IN_USE"));
  }
  {
    SessionClient none(server_, token_);
    EXPECT_FALSE(none.Resume(7));
    const grpc::Status status = none.Finish();
    EXPECT_EQ(status.error_code(), StatusCode::NOT_FOUND);
    EXPECT_THAT(status.error_details(), HasSubstr("SESSION_NOT_FOUND"));
  }
  SessionClient second(server_, token_);
  ASSERT_TRUE(second.Open(2));
  EXPECT_TRUE(Holds(2));
  EXPECT_EQ(Sessions("attached"), 2);
  {
    SessionClient third(server_, token_);
    EXPECT_FALSE(third.Open(3));
    const grpc::Status status = third.Finish();
    EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(status.error_details(), HasSubstr("SPACE_QUOTA"));
  }
  first.EndSending();
  EXPECT_TRUE(first.Finish().ok());
  EXPECT_TRUE(Holds(1));
  SessionClient third(server_, token_);
  EXPECT_TRUE(third.Open(3));
}

// Nobody resumes it: what waits is called off, and what was accepted goes on.
TEST_F(NoLingerTest, ASessionThatNobodyResumesIsOver) {
  CreateTimeline(1);
  ASSERT_FALSE(Put(1, {1}).has_error());
  auto session = std::make_unique<SessionClient>(server_, token_);
  ASSERT_TRUE(session->Open(1));
  session->Send(WaitCommand(1, 9));
  v1::EvaluateRequest request = Double(1, 2);
  request.set_work(5);
  request.add_after()->set_timeline(1);
  request.mutable_after(0)->set_value(1);
  EXPECT_FALSE(session->Run(EvaluateCommand(request)).has_error());
  session->Break();
  EXPECT_TRUE(Holds(0));
  SessionClient late(server_, token_);
  EXPECT_FALSE(late.Resume(1));
  EXPECT_EQ(late.Finish().error_code(), StatusCode::NOT_FOUND);
  EXPECT_LT(Query(5).state(), v1::WORK_STATE_COMPLETED);
  ASSERT_FALSE(Signal(1, 1).has_error());
  EXPECT_EQ(Read(2), (std::vector<float>{2}));
}

// While a stream has the session its space is in use, however short the lease.
TEST_F(SessionEndsTest, TheEndOfItsSpaceEndsIt) {
  CreateTimeline(1);
  SessionClient session(server_, token_);
  ASSERT_TRUE(session.Open(1));
  session.Send(WaitCommand(1, 9));
  Close();
  const grpc::Status status = session.Finish();
  EXPECT_EQ(status.error_code(), StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_details(), HasSubstr("SPACE_NOT_FOUND"));
  EXPECT_TRUE(Eventually(
      [&] { return Sessions("attached") == 0 && Sessions("detached") == 0; }));
}

TEST_F(SessionEndsTest, TheEndOfTheServerIsTold) {
  CreateTimeline(1);
  SessionClient session(server_, token_);
  ASSERT_TRUE(session.Open(1));
  const uint64_t wait = session.Send(WaitCommand(1, 1));
  SessionClient idle(server_, token_);
  ASSERT_TRUE(idle.Open(2));
  SessionClient unopened(server_, token_);
  grpc::ClientContext signaling;
  Enter(&signaling);
  std::thread drain([&] {
    server_.server().Drain([](absl::Duration timeout) {
      poll(nullptr, 0, static_cast<int>(absl::ToInt64Milliseconds(timeout)));
      return false;
    });
  });
  EXPECT_EQ(idle.Finish().error_code(), StatusCode::UNAVAILABLE);
  EXPECT_TRUE(idle.going_away().has_value());
  EXPECT_FALSE(unopened.Finish().ok());
  // It has taken the wait, and answers it.
  while (!session.going_away().has_value() && session.Receive()) {
  }
  ASSERT_TRUE(session.going_away().has_value());
  EXPECT_GT(session.going_away()->deadline_unix_ns(), 0);
  EXPECT_FALSE(session.answered(wait));
  ASSERT_FALSE(Signal(1, 1).has_error());
  EXPECT_FALSE(session.Result(wait).has_error());
  const grpc::Status status = session.Finish();
  EXPECT_EQ(status.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_details(), HasSubstr("SERVER_ENDS"));
  drain.join();
}

// Nothing waits for commands that wait.
TEST_F(SessionEndsTest, AServerEndsWithWhateverSessionsThereAre) {
  CreateTimeline(1);
  SessionClient attached(server_, token_);
  ASSERT_TRUE(attached.Open(1));
  attached.Send(WaitCommand(1, 1));
  SessionClient detached(server_, token_);
  ASSERT_TRUE(detached.Open(2));
  detached.Send(WaitCommand(1, 1));
  EXPECT_TRUE(detached.Run(SignalCommand(2, 1)).has_error());
  detached.Break();
  EXPECT_TRUE(Eventually([&] { return Sessions("detached") == 1; }));
}

}  // namespace
}  // namespace weir::testing
