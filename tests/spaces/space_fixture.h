// Spaces over an engine on the CPU, for their tests, with works that a test
// holds: nothing sleeps.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/spaces/space_work.h"
#include "server/spaces/spaces.h"
#include "tests/base/event.h"
#include "tests/conformance/hold_operator.h"
#include "tests/eval/eval_fixture.h"

namespace weir {

inline constexpr Nanos kTestLease = 60'000'000'000;
inline constexpr SpaceToken::Origin kTestOrigin = {.worker = 3, .start = 517};

inline Amounts Everything(uint64_t amount) {
  Amounts amounts;
  for (size_t i = 0; i < kHoldings; ++i) {
    amounts[static_cast<Holding>(i)] = amount;
  }
  return amounts;
}

inline SpacesOptions TestSpaces() {
  return {.space = Everything(1000),
          .identity = Everything(4000),
          .server = Everything(16000),
          .lease = kTestLease,
          .origin = kTestOrigin};
}

inline Spaces::Wish WishOf(std::string identity, Nanos lease = 0,
                           const Amounts& quota = {}) {
  return {.label = "a label",
          .identity = std::move(identity),
          .lease = lease,
          .quota = quota};
}

// Whoever asks for a work: what it was told.
class TestCaller final : public SpaceWork::Caller {
 public:
  absl::Status Planned(const Work&) override {
    planned.Set();
    return at_plan;
  }
  void Ready() override { ready.Set(); }

  absl::Status at_plan;  // what it answers
  Event planned, ready;
};

class SpaceEngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    registry_ = MakeOpRegistry({.test_operators = true});
    ASSERT_TRUE(hold_.Register(*registry_).ok());
    engine_ = NewEngine();
    negate_ = Compile("Neg", 1);
    held_ = Compile("Hold", 1, "weir");
    fault_ = Compile("Fault", 1, "weir");
  }
  void TearDown() override { hold_.Open(); }

  std::unique_ptr<Engine> NewEngine() {
    EngineOptions options;
    options.streams.max = 4;
    options.pinned_bytes = size_t{64} << 20;
    options.tensor_bytes = size_t{64} << 20;
    options.programs.quick_plan = absl::InfiniteDuration();
    auto device = MakeDevice("cpu", {.cpu_threads = 2}, *registry_);
    EXPECT_TRUE(device.ok()) << device.status();
    return *Engine::Create(*std::move(device), registry_.get(), options);
  }

  std::shared_ptr<const Program> Compile(std::string op, size_t inputs,
                                         std::string domain = "") {
    auto program = Program::Compile(
        MakeGraph(std::move(op), inputs, {}, std::move(domain)),
        engine_->device(), *registry_);
    EXPECT_TRUE(program.ok()) << program.status();
    return *std::move(program);
  }

  // Of a program with one input and one output, which is kept under `number`;
  // 0: it is inline.
  std::shared_ptr<SpaceWork> NewWork(const SpaceUse& space,
                                     std::shared_ptr<const Program> program,
                                     uint64_t number = 0) {
    auto work = SpaceWork::Create(space.shared(), *engine_, "me");
    EXPECT_TRUE(work.ok()) << work.status();
    WorkRequest& request = (*work)->request();
    request.program = std::move(program);
    request.inputs.resize(1);
    request.outputs = {number == 0 ? OutputWish::kInline : OutputWish::kKeep};
    if (number != 0) {
      const absl::Status kept = (*work)->Keep(0, number, *engine_);
      EXPECT_TRUE(kept.ok()) << kept;
    }
    return *std::move(work);
  }

  // In a context of its own, which is the next one's again if it is given.
  absl::Status Submit(const std::shared_ptr<SpaceWork>& work,
                      TestCaller& caller,
                      SpaceWork::Until until = SpaceWork::Until::kDone) {
    auto context = EvalContext::Create(engine_.get(), {});
    return SubmitIn(context, work, caller, until);
  }
  static absl::Status SubmitIn(
      const std::shared_ptr<EvalContext>& context,
      const std::shared_ptr<SpaceWork>& work, TestCaller& caller,
      SpaceWork::Until until = SpaceWork::Until::kDone) {
    auto activation = context->Enter(NewHandlerId());
    EXPECT_TRUE(activation.ok()) << activation.status();
    return work->Submit(*activation, caller, until);
  }

  const std::vector<float> values_ = {1, 2, 3};
  HoldOperator hold_;
  std::unique_ptr<OpRegistry> registry_;
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<const Program> negate_, held_, fault_;
};

}  // namespace weir
