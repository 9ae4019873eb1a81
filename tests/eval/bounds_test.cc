// What an evaluation may take and keep, and for how long: the bounds, and what
// is given back.
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/base/eventually.h"
#include "tests/device/fault_injecting_device.h"
#include "tests/eval/eval_fixture.h"

namespace weir {
namespace {

class Bounds : public ::testing::Test {
 protected:
  void Start(const EngineOptions& changed = {}) {
    registry_ = MakeOpRegistry({.test_operators = true});
    auto device = std::make_unique<FaultInjectingDevice>(
        MakeCpuDevice({.cpu_threads = 2}));
    device_ = device.get();
    EngineOptions options = changed;
    // A launch that is held must not hold the test.
    options.inline_below = absl::ZeroDuration();
    options.streams.max = 2;
    options.pinned_bytes = size_t{1} << 20;
    options.tensor_bytes = size_t{1} << 20;
    engine_ = *Engine::Create(std::move(device), registry_.get(), options);
    context_ = EvalContext::Create(engine_.get(), {});
    activation_ = *context_->Enter(NewHandlerId());
  }

  std::shared_ptr<const Program> Compile(const std::string& op,
                                         const std::string& domain = "") {
    return *Program::Compile(MakeGraph(op, 1, {}, domain), engine_->device(),
                             *registry_);
  }

  bool NoLaneIsUsed() {
    return testing::Eventually([this] {
      const StreamPoolStats stats = engine_->streams().stats();
      return stats.leased == 0 && stats.draining == 0;
    });
  }

  void Submit(WatchedWork& watched, const std::shared_ptr<const Program>& of,
              InputSource input) {
    watched.request().program = of;
    watched.request().inputs = {std::move(input)};
    activation_.Submit(watched.work.get(), &watched.waiter);
  }

  std::unique_ptr<OpRegistry> registry_;
  FaultInjectingDevice* device_ = nullptr;
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<EvalContext> context_;
  Activation activation_;
};

// The CPU reads inputs where they lie, but floats only where floats may lie.
TEST_F(Bounds, AnInputThatIsNotAlignedIsCopied) {
  Start();
  const auto program = Compile("Neg");
  alignas(64) std::byte bytes[64];
  const std::vector<float> values = {1, 2, 3, 4};
  for (const size_t offset : {0u, 1u, 4u, 6u}) {
    SCOPED_TRACE(offset);
    std::memcpy(bytes + offset, values.data(), 16);
    WatchedWork watched;
    Submit(watched, program, FloatsAt(bytes + offset, 4));
    ASSERT_TRUE(watched.Done().ok());
    std::vector<float> result(4);
    std::memcpy(result.data(), watched.work->OutputBytes(0).data(), 16);
    EXPECT_EQ(result, std::vector<float>({-1, -2, -3, -4}));
    EXPECT_EQ(watched.work->report().bytes_in, offset % 4 == 0 ? 0u : 16u);
  }
}

TEST_F(Bounds, AWorkWhoseResultIsKeptHoldsNoPinnedMemory) {
  Start();
  const std::vector<float> values(20'000, 1.0f);
  WatchedWork watched;
  watched.request().outputs = {OutputWish::kKeep};
  Submit(watched, Compile("Neg"),
         FloatsAt(reinterpret_cast<const std::byte*>(values.data()),
                  values.size()));
  ASSERT_TRUE(watched.Done().ok());
  EXPECT_TRUE(watched.work->OutputTensor(0).valid());
  EXPECT_EQ(engine_->pinned().stats().leased_bytes, 0u);
}

// So that its memory is not used again before the reader is done.
TEST_F(Bounds, AKeptTensorKnowsWhoReadsIt) {
  Start();
  const std::vector<float> values(16, 1.0f);
  WatchedWork producer;
  producer.request().outputs = {OutputWish::kKeep};
  const auto program = Compile("Neg");
  Submit(producer, program,
         FloatsAt(reinterpret_cast<const std::byte*>(values.data()), 16));
  ASSERT_TRUE(producer.Done().ok());
  const Tensor kept = producer.work->OutputTensor(0);
  EXPECT_EQ(kept.storage().Uses().size(), 1u);  // its writer
  // In a context of its own, and so on a lane of its own while this one's
  // launch is held.
  auto& held = device_->HoldCall(DeviceCall::kLaunch);
  const auto other = EvalContext::Create(engine_.get(), {});
  Activation in_other = *other->Enter(NewHandlerId());
  WatchedWork reader;
  reader.request().program = program;
  reader.request().inputs.resize(1);
  reader.request().inputs[0].tensor = kept;
  in_other.Submit(reader.work.get(), &reader.waiter);
  held.WaitUntilHeld();
  const std::vector<Point> uses = kept.storage().Uses();
  EXPECT_TRUE(std::any_of(uses.begin(), uses.end(), [](const Point& point) {
    return !point.Outcome().has_value();
  })) << "nothing says that it is being read";
  held.Release();
  EXPECT_TRUE(reader.Done().ok());
}

TEST_F(Bounds, NoWorkWaitsLongerThanTheEngineAllows) {
  EngineOptions options;
  options.max_wait = absl::Milliseconds(20);
  Start(options);
  const auto never = std::make_shared<Timeline>("never");
  const std::vector<float> values(4, 1.0f);
  WatchedWork watched;
  watched.request().after = {Point{never, 1}};
  Submit(watched, Compile("Neg"),
         FloatsAt(reinterpret_cast<const std::byte*>(values.data()), 4));
  EXPECT_EQ(watched.Done().code(), absl::StatusCode::kDeadlineExceeded);
}

// The device is asked whether a lane is well after a work failed on it, and
// not after one that was given up.
TEST_F(Bounds, ALaneIsCheckedAfterAFailure) {
  Start();
  const auto program = Compile("Neg");
  const std::vector<float> values(4, 1.0f);
  const auto input =
      FloatsAt(reinterpret_cast<const std::byte*>(values.data()), 4);
  WatchedWork good;
  Submit(good, program, input);
  ASSERT_TRUE(good.Done().ok());
  EXPECT_TRUE(NoLaneIsUsed());
  EXPECT_EQ(device_->calls(DeviceCall::kCheck), 0u);

  device_->Fail(DeviceCall::kLaunch, absl::InternalError("launch failed"));
  WatchedWork failed;
  Submit(failed, program, input);
  EXPECT_FALSE(failed.Done().ok());
  // On another thread, for it may take long.
  EXPECT_TRUE(testing::Eventually(
      [this] { return device_->calls(DeviceCall::kCheck) == 1; }));

  auto& held = device_->HoldCall(DeviceCall::kLaunch);
  WatchedWork cancelled;
  Submit(cancelled, program, input);
  held.WaitUntilHeld();
  cancelled.work->Cancel();
  held.Release();
  EXPECT_EQ(cancelled.Done().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(NoLaneIsUsed());
  EXPECT_EQ(device_->calls(DeviceCall::kCheck), 1u);
}

// Only what takes less than this is computed in the caller's thread.
TEST_F(Bounds, WhatIsNotShortIsComputedElsewhere) {
  Start();  // with inline_below 0
  const auto program = Compile("Neg");
  const std::vector<float> values(4, 1.0f);
  for (int i = 0; i < 3; ++i) {
    WatchedWork watched;
    Submit(watched, program,
           FloatsAt(reinterpret_cast<const std::byte*>(values.data()), 4));
    ASSERT_TRUE(watched.Done().ok());
    EXPECT_FALSE(watched.work->report().ran_inline);
  }
}

TEST_F(Bounds, SoManyHandlersWaitForAContextAndNoMore) {
  Start();
  constexpr int kMost = 1024;
  int refused = 0;
  int cancelled = 0;
  std::vector<Occupancy::EntryId> entries;
  for (int i = 0; i <= kMost; ++i) {
    entries.push_back(context_->EnterQueued(
        NewHandlerId(), kNoDeadline, [&](absl::StatusOr<Activation> entered) {
          if (Reason(entered.status()) == "CONTEXT_QUEUE_FULL") {
            EXPECT_TRUE(RetryAfter(entered.status()).has_value());
            ++refused;
          } else {
            ++cancelled;
          }
        }));
    EXPECT_EQ(refused, i == kMost ? 1 : 0);
  }
  for (const Occupancy::EntryId entry : entries) {
    if (entry == 0) continue;  // the one that was refused
    EXPECT_TRUE(context_->CancelEntry(entry));
  }
  EXPECT_EQ(cancelled, 0);
}

}  // namespace
}  // namespace weir
