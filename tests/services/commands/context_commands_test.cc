// What contexts are asked to be, changed to, and taken elsewhere as, over the
// wire.
#include <gmock/gmock.h>

#include <cstdint>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "kernels/base/error_info.h"
#include "proto/weir/v1/evaluator.pb.h"
#include "tests/server/server_fixture.h"
#include "tests/services/space_call_fixture.h"

namespace weir::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kInvalid = static_cast<int>(grpc::INVALID_ARGUMENT);

class ContextCommandsTest : public SpaceCallTest {
 protected:
  static v1::Command Create(uint64_t context, uint64_t seed) {
    v1::Command command;
    command.mutable_context_create()->set_context(context);
    command.mutable_context_create()->set_rng_seed(seed);
    return command;
  }
  static v1::Command Update(uint64_t context) {
    v1::Command command;
    command.mutable_context_update()->set_context(context);
    return command;
  }
  static v1::Command Export(uint64_t context) {
    v1::Command command;
    command.mutable_context_export()->set_context(context);
    return command;
  }
  static v1::Command Import(uint64_t context, const std::string& state) {
    v1::Command command;
    command.mutable_context_import()->set_context(context);
    command.mutable_context_import()->set_state(state);
    return command;
  }
  v1::ContextSettings Settings(uint64_t context) {
    return Succeed(Update(context)).context_update().settings();
  }
  static v1::Command Free(uint64_t tensor) {
    v1::Command command;
    command.mutable_tensor_free()->set_tensor(tensor);
    return command;
  }

  // Random numbers of a context, to be kept.
  static v1::EvaluateRequest Draw(uint64_t context, uint64_t tensor) {
    v1::EvaluateRequest request = Program(R"(
        nodes { domain: "weir" op: "RandomUniform" outputs: "y"
                attributes { name: "shape" ints { values: 4 } } }
        outputs: "y")");
    request.set_context(context);
    request.add_outputs()->set_name("y");
    request.mutable_outputs(0)->set_tensor(tensor);
    request.set_report_settings(true);
    return request;
  }
  std::vector<float> Drawn(uint64_t context) {
    const EvaluateAnswer answer = Evaluate(Draw(context, kScratch));
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    std::vector<float> values = Read(kScratch);
    Succeed(Free(kScratch));
    return values;
  }

  // A call that is in context 1 until timeline 1, which it makes, is at 1.
  std::thread Occupy(EvaluateAnswer* answer) {
    CreateTimeline(1);
    v1::EvaluateRequest holds = Draw(1, 1);
    holds.mutable_outputs(0)->clear_tensor();  // inline: it waits for its end
    holds.set_work(9);
    After(1, 1, &holds);
    std::thread call([this, holds, answer] { *answer = Evaluate(holds); });
    EXPECT_TRUE(Eventually([&] {
      v1::Command query;
      query.mutable_query()->set_work(9);
      return !RunOne(query).has_error();
    }));
    return call;
  }

  static constexpr uint64_t kScratch = 999;
};

TEST_F(ContextCommandsTest, AContextTellsItsSettings) {
  v1::Command create = Create(1, 7);
  create.mutable_context_create()->set_mode(v1::EVAL_MODE_SYNC_CPU);
  create.mutable_context_create()->set_on_conflict(v1::CONTEXT_CONFLICT_QUEUE);
  create.mutable_context_create()->set_ttl_ns(60'000'000'000);
  create.mutable_context_create()->set_rng_position(3);
  const v1::ContextSettings made = Succeed(create).context_create().settings();
  EXPECT_EQ(made.mode(), v1::EVAL_MODE_SYNC_CPU);
  EXPECT_EQ(made.on_conflict(), v1::CONTEXT_CONFLICT_QUEUE);
  EXPECT_EQ(made.ttl_ns(), 60'000'000'000);
  EXPECT_EQ(made.rng_seed(), 7u);
  EXPECT_EQ(made.rng_position(), 3u);
  EXPECT_EQ(made.cpu_threads(), 0u);
  EXPECT_EQ(Settings(1).SerializeAsString(), made.SerializeAsString());

  // What is not set stays.
  v1::Command update = Update(1);
  update.mutable_context_update()->set_mode(v1::EVAL_MODE_SYNC_FULL);
  v1::ContextSettings now = Succeed(update).context_update().settings();
  EXPECT_EQ(now.mode(), v1::EVAL_MODE_SYNC_FULL);
  now.set_mode(v1::EVAL_MODE_SYNC_CPU);
  EXPECT_EQ(now.SerializeAsString(), made.SerializeAsString());

  // Zero says something of these.
  update.mutable_context_update()->set_ttl_ns(0);
  update.mutable_context_update()->set_on_conflict(v1::CONTEXT_CONFLICT_REFUSE);
  now = Succeed(update).context_update().settings();
  EXPECT_EQ(now.ttl_ns(), 0);
  EXPECT_EQ(now.on_conflict(), v1::CONTEXT_CONFLICT_REFUSE);
}

TEST_F(ContextCommandsTest, BadSettingsAreRefusedByName) {
  const auto field = [this](const v1::Command& command) {
    const v1::Failure failure = Failing(command);
    EXPECT_EQ(failure.code(), kInvalid) << failure.message();
    return failure.field();
  };
  Succeed(Create(1, 7));
  v1::Command update = Update(1);
  update.mutable_context_update()->set_mode(static_cast<v1::EvalMode>(99));
  EXPECT_EQ(field(update), "mode");
  update = Update(1);
  update.mutable_context_update()->set_on_conflict(
      static_cast<v1::ContextConflict>(99));
  EXPECT_EQ(field(update), "on_conflict");
  update = Update(1);
  update.mutable_context_update()->set_if_busy(
      static_cast<v1::ContextConflict>(99));
  EXPECT_EQ(field(update), "if_busy");
  update = Update(1);
  update.mutable_context_update()->set_ttl_ns(-1);
  EXPECT_EQ(field(update), "ttl_ns");
  update = Update(1);
  update.mutable_context_update()->set_rng_seed(1);
  update.mutable_context_update()->set_rng_of(1);
  EXPECT_EQ(field(update), "rng_of");
  v1::Command create;
  create.mutable_context_create()->set_context(2);
  create.mutable_context_create()->set_rng_position(1);
  EXPECT_EQ(field(create), "rng_position");
  create.mutable_context_create()->set_rng_of(3);
  EXPECT_EQ(ReasonOf(Failing(create)), "CONTEXT_NOT_FOUND");
  EXPECT_EQ(Failing(create).field(), "rng_of");
  EXPECT_EQ(ReasonOf(Failing(Update(2))), "CONTEXT_NOT_FOUND");
  EXPECT_EQ(Failing(Update(2)).field(), "context");
  EXPECT_EQ(ReasonOf(Failing(Create(1, 7))), "NUMBER_IN_USE");
  // Nothing of these has changed it.
  EXPECT_EQ(Settings(1).rng_seed(), 7u);
}

// A device has so many threads, or none for operators.
TEST_F(ContextCommandsTest, CpuThreadsAreThoseOfTheDevice) {
  v1::Command create = Create(1, 7);
  create.mutable_context_create()->set_cpu_threads(1);
  if (TestDevice() != "cpu") {
    const v1::Failure failure = Failing(create);
    EXPECT_EQ(ReasonOf(failure), "WRONG_DEVICE");
    EXPECT_EQ(failure.field(), "cpu_threads");
    create.mutable_context_create()->set_device("cpu");
  }
  EXPECT_EQ(Succeed(create).context_create().settings().cpu_threads(), 1u);
  EXPECT_EQ(Drawn(1).size(), 4u);
  v1::Command update = Update(1);
  update.mutable_context_update()->set_cpu_threads(100'000);
  const v1::Failure failure = Failing(update);
  EXPECT_EQ(failure.code(), kInvalid);
  EXPECT_EQ(failure.field(), "cpu_threads");
  EXPECT_THAT(failure.message(), HasSubstr("--cpu-threads"));
  update.mutable_context_update()->set_cpu_threads(0);
  EXPECT_EQ(Succeed(update).context_update().settings().cpu_threads(), 0u);
}

// A work is run with the settings that it was accepted with.
TEST_F(ContextCommandsTest, AWorkThatWaitsKeepsTheSettingsOfItsTime) {
  Succeed(Create(1, 7));
  Succeed(Create(2, 7));
  const std::vector<float> first = Drawn(2);
  CreateTimeline(1);
  v1::EvaluateRequest parked = Draw(1, 10);
  After(1, 1, &parked);
  const EvaluateAnswer accepted = Evaluate(parked);
  ASSERT_TRUE(accepted.status.ok()) << accepted.status.error_message();
  EXPECT_EQ(accepted.response.settings().mode(), v1::EVAL_MODE_EAGER);
  EXPECT_EQ(accepted.response.settings().drawn_from().seed(), 7u);
  EXPECT_EQ(accepted.response.settings().drawn_from().position(), 0u);
  v1::Command update = Update(1);
  update.mutable_context_update()->set_rng_seed(8);
  update.mutable_context_update()->set_mode(v1::EVAL_MODE_SYNC_FULL);
  Succeed(update);
  ASSERT_FALSE(Signal(1, 1).has_error());
  EXPECT_EQ(Read(10), first);
  // Later ones have the new ones.
  const EvaluateAnswer later = Evaluate(Draw(1, 11));
  ASSERT_TRUE(later.status.ok()) << later.status.error_message();
  EXPECT_EQ(later.response.settings().mode(), v1::EVAL_MODE_SYNC_FULL);
  EXPECT_EQ(later.response.settings().drawn_from().seed(), 8u);
  EXPECT_EQ(later.response.report().state(), v1::WORK_STATE_COMPLETED);
  EXPECT_NE(Read(11), first);
}

// Whoever asks, on whichever thread, and whatever else runs.
TEST_F(ContextCommandsTest, TheSameSeedGivesTheSameNumbersOnAnyThread) {
  constexpr int kContexts = 4;
  constexpr int kDraws = 8;
  for (uint64_t i = 1; i <= kContexts; ++i) Succeed(Create(i, 7));
  std::vector<std::thread> callers;
  for (uint64_t i = 1; i <= kContexts; ++i) {
    callers.emplace_back([this, i] {
      for (uint64_t draw = 0; draw < kDraws; ++draw) {
        const EvaluateAnswer answer = Evaluate(Draw(i, i * 100 + draw));
        EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
        EXPECT_EQ(answer.response.settings().drawn_from().position(), draw);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  std::vector<std::vector<float>> numbers;
  for (uint64_t draw = 0; draw < kDraws; ++draw) {
    numbers.push_back(Read(100 + draw));
    for (uint64_t i = 2; i <= kContexts; ++i) {
      EXPECT_EQ(Read(i * 100 + draw), numbers.back()) << i << " " << draw;
    }
  }
  EXPECT_NE(numbers[0], numbers[1]);
  EXPECT_EQ(Settings(1).rng_position(), 8u);
}

TEST_F(ContextCommandsTest, ACloneGoesOnOrBeginsAgain) {
  Succeed(Create(1, 7));
  const std::vector<float> first = Drawn(1);
  v1::Command clone;
  clone.mutable_context_create()->set_context(2);
  clone.mutable_context_create()->set_rng_of(1);
  EXPECT_EQ(Succeed(clone).context_create().settings().rng_position(), 1u);
  clone.mutable_context_create()->set_context(3);
  clone.mutable_context_create()->set_rng_position(0);
  Succeed(clone);
  EXPECT_EQ(Drawn(3), first);
  const std::vector<float> second = Drawn(1);
  EXPECT_EQ(Drawn(2), second);
  // One that is there may become one, or go back.
  v1::Command back = Update(1);
  back.mutable_context_update()->set_rng_position(0);
  Succeed(back);
  EXPECT_EQ(Drawn(1), first);
  back = Update(2);
  back.mutable_context_update()->set_rng_of(1);
  Succeed(back);
  EXPECT_EQ(Drawn(2), second);
}

// It is refused, or waits for its turn, as an evaluation is.
TEST_F(ContextCommandsTest, AnUpdateOccupiesItsContext) {
  Succeed(Create(1, 7));
  EvaluateAnswer held;
  std::thread call = Occupy(&held);
  v1::Command update = Update(1);
  update.mutable_context_update()->set_rng_seed(8);
  EXPECT_EQ(ReasonOf(Failing(update)), "CONTEXT_BUSY");
  EXPECT_EQ(ReasonOf(Failing(Export(1))), "CONTEXT_BUSY");
  update.mutable_context_update()->set_if_busy(v1::CONTEXT_CONFLICT_QUEUE);
  v1::CommandResult queued;
  std::thread waits([&] { queued = RunOne(update); });
  ASSERT_FALSE(Signal(1, 1).has_error());
  call.join();
  waits.join();
  EXPECT_TRUE(held.status.ok()) << held.status.error_message();
  EXPECT_FALSE(queued.has_error()) << queued.error().message();
  EXPECT_EQ(Settings(1).rng_seed(), 8u);
}

// Who waits for a context leaves the line when its caller does.
TEST_F(ContextCommandsTest, ACallerThatLeavesIsInNoLine) {
  Succeed(Create(1, 7));
  EvaluateAnswer held;
  std::thread call = Occupy(&held);
  v1::RunRequest run;
  *run.add_commands() = Update(1);
  run.mutable_commands(0)->mutable_context_update()->set_rng_seed(8);
  run.mutable_commands(0)->mutable_context_update()->set_if_busy(
      v1::CONTEXT_CONFLICT_QUEUE);
  grpc::ClientContext leaving;
  Enter(&leaving);
  std::thread leaves([&] {
    v1::RunResponse response;
    EXPECT_EQ(server_.evaluator().Run(&leaving, run, &response).error_code(),
              grpc::StatusCode::CANCELLED);
  });
  EXPECT_TRUE(Eventually(
      [&] { return server_.Metric("weir_requests_in_flight") == 2; }));
  leaving.TryCancel();
  leaves.join();
  EXPECT_TRUE(
      Eventually([&] { return server_.Requests("Run", "CANCELLED") == 1; }));
  ASSERT_FALSE(Signal(1, 1).has_error());
  call.join();
  EXPECT_TRUE(held.status.ok()) << held.status.error_message();
  EXPECT_EQ(Settings(1).rng_seed(), 7u);
}

// A context says for all calls what they do not.
TEST_F(ContextCommandsTest, AContextMayQueueItsCalls) {
  v1::Command create = Create(1, 7);
  create.mutable_context_create()->set_on_conflict(v1::CONTEXT_CONFLICT_QUEUE);
  Succeed(create);
  EvaluateAnswer held, queued;
  std::thread call = Occupy(&held);
  v1::EvaluateRequest refuses = Draw(1, 2);
  refuses.set_on_conflict(v1::CONTEXT_CONFLICT_REFUSE);
  EXPECT_EQ(Evaluate(refuses).status.error_code(), grpc::StatusCode::ABORTED);
  std::thread waits([&] { queued = Evaluate(Draw(1, 3)); });
  ASSERT_FALSE(Signal(1, 1).has_error());
  call.join();
  waits.join();
  EXPECT_TRUE(held.status.ok()) << held.status.error_message();
  EXPECT_TRUE(queued.status.ok()) << queued.status.error_message();
}

TEST_F(ContextCommandsTest, AnUnusedContextEndsAndItsNumberSaysWhy) {
  v1::Command create = Create(1, 7);
  create.mutable_context_create()->set_ttl_ns(1);
  Succeed(create);
  ASSERT_TRUE(Eventually([&] { return Describe().held().contexts() == 0; }));
  const v1::Failure gone = Failing(Update(1));
  EXPECT_EQ(gone.code(), static_cast<int>(grpc::NOT_FOUND));
  EXPECT_EQ(ReasonOf(gone), "CONTEXT_NOT_FOUND");
  EXPECT_THAT(gone.message(), HasSubstr("nobody had used it for 1ns"));
  const EvaluateAnswer late = Evaluate(Draw(1, 1));
  EXPECT_THAT(late.status.error_message(), HasSubstr("its ttl"));
  // The number is free, and says nothing of its past any more.
  Succeed(Create(1, 7));
  v1::Command close;
  close.mutable_context_close()->set_context(1);
  Succeed(close);
  EXPECT_THAT(Failing(Update(1)).message(),
              ::testing::Not(HasSubstr("its ttl")));
}

// While a work of it has not ended, a context is in use.
TEST_F(ContextCommandsTest, AContextWithWorksIsNoUnusedOne) {
  CreateTimeline(1);
  v1::Command idle = Create(2, 7);
  v1::Command create = Create(1, 7);
  Succeed(create);
  v1::EvaluateRequest parked = Draw(1, 1);
  After(1, 1, &parked);
  ASSERT_TRUE(Evaluate(parked).status.ok());
  v1::Command update = Update(1);
  update.mutable_context_update()->set_ttl_ns(1);
  Succeed(update);
  idle.mutable_context_create()->set_ttl_ns(1);
  Succeed(idle);
  ASSERT_TRUE(Eventually([&] { return Describe().held().contexts() == 1; }));
  EXPECT_FALSE(RunOne(Update(1)).has_error());
  ASSERT_FALSE(Signal(1, 1).has_error());
  EXPECT_EQ(Read(1).size(), 4u);
  EXPECT_TRUE(Eventually([&] { return Describe().held().contexts() == 0; }));
}

TEST_F(ContextCommandsTest, AnExportedContextGoesOnWhereItWas) {
  v1::Command create = Create(1, 7);
  create.mutable_context_create()->set_mode(v1::EVAL_MODE_SYNC_FULL);
  create.mutable_context_create()->set_ttl_ns(60'000'000'000);
  Succeed(create);
  Drawn(1);
  const std::string state = Succeed(Export(1)).context_export().state();
  const std::string settings = Settings(1).SerializeAsString();
  const std::vector<float> second = Drawn(1);
  const std::vector<float> third = Drawn(1);

  // As another one, and as the same, which goes back.
  const v1::ContextImported made = Succeed(Import(2, state)).context_import();
  EXPECT_TRUE(made.created());
  EXPECT_EQ(made.settings().SerializeAsString(), settings);
  EXPECT_EQ(Drawn(2), second);
  EXPECT_EQ(Drawn(2), third);
  EXPECT_FALSE(Succeed(Import(1, state)).context_import().created());
  EXPECT_EQ(Drawn(1), second);

  // On another server.
  TestServer other;
  const auto spaces = v1::Spaces::NewStub(other.Connect());
  grpc::ClientContext opens;
  SetPatience(&opens);
  v1::OpenSpaceResponse opened;
  ASSERT_TRUE(spaces->Open(&opens, {}, &opened).ok());
  v1::RunRequest run;
  *run.add_commands() = Import(5, state);
  *run.add_commands()->mutable_evaluate() = Draw(5, 1);
  run.add_commands()->mutable_tensor_get()->set_tensor(1);
  grpc::ClientContext runs;
  Enter(&runs, opened.token());
  v1::RunResponse response;
  const grpc::Status status = other.evaluator().Run(&runs, run, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.results_size(), 3);
  const v1::EvaluateResponse& got = response.results(2).tensor_get();
  ASSERT_EQ(got.outputs_size(), 1) << response.results(2).error().message();
  EXPECT_EQ(Values<float>(got.outputs(0).value().raw()), second);
}

TEST_F(ContextCommandsTest, AStateThatIsNoneIsRefused) {
  Succeed(Create(1, 7));
  v1::ContextState state;
  ASSERT_TRUE(
      state.ParseFromString(Succeed(Export(1)).context_export().state()));
  EXPECT_EQ(state.version(), 1u);
  state.set_version(2);
  const v1::Failure newer = Failing(Import(2, state.SerializeAsString()));
  EXPECT_EQ(newer.code(), static_cast<int>(grpc::FAILED_PRECONDITION));
  EXPECT_EQ(ReasonOf(newer), "CONTEXT_STATE_VERSION");
  EXPECT_EQ(newer.metadata().at("version"), "2");
  EXPECT_EQ(newer.metadata().at("expected"), "1");
  EXPECT_THAT(newer.message(), HasSubstr("version 2"));
  EXPECT_THAT(newer.message(), HasSubstr("version 1"));
  EXPECT_EQ(newer.field(), "state");
  for (const char* bytes : {"", "no state"}) {
    EXPECT_EQ(Failing(Import(2, bytes)).code(), kInvalid) << bytes;
  }
  state.set_version(1);
  state.mutable_settings()->set_ttl_ns(-1);
  EXPECT_EQ(Failing(Import(2, state.SerializeAsString())).field(), "state");
  EXPECT_EQ(Failing(Import(1, state.SerializeAsString())).field(), "state");
  EXPECT_EQ(Failing(Import(0, "")).code(), kInvalid);
  EXPECT_EQ(Settings(1).ttl_ns(), 0);
  v1::Command moved = Import(1, Succeed(Export(1)).context_export().state());
  moved.mutable_context_import()->set_device("nowhere");
  EXPECT_EQ(ReasonOf(Failing(moved)), "WRONG_DEVICE");
}

}  // namespace
}  // namespace weir::testing
