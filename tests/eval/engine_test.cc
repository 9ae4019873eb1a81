#include "kernels/eval/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/backend/devices.h"
#include "kernels/base/clock.h"
#include "tests/base/event.h"
#include "tests/base/eventually.h"
#include "tests/device/fault_injecting_device.h"
#include "tests/graph/plan_runner.h"

namespace weir {
namespace {

// Keeps three pieces, and notes since when they should not have been used.
class TrimmedDevice final : public testing::FarDevice {
 public:
  bool TrimOne(Nanos before) override {
    ++calls;
    // On one thread.
    earliest = std::min(earliest.load(), before);
    latest = std::max(latest.load(), before);
    return pieces.fetch_sub(1) > 0;
  }
  std::atomic<int> pieces{3};
  std::atomic<int> calls{0};
  std::atomic<Nanos> earliest{std::numeric_limits<Nanos>::max()};
  std::atomic<Nanos> latest{std::numeric_limits<Nanos>::min()};
};

// The device is asked when the pool has given back what it will.
TEST(EngineTest, PinnedBuffersThatNobodyUsesGoBack) {
  const auto registry = MakeOpRegistry({});
  auto owned = std::make_unique<TrimmedDevice>();
  TrimmedDevice* const device = owned.get();
  EngineOptions options;
  options.pinned_ttl = absl::Milliseconds(1);
  options.kept_pinned_bytes = 8192;
  const auto engine = Engine::Create(std::move(owned), registry.get(), options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  PinnedPool& pool = (*engine)->pinned();
  {
    const auto large = pool.Acquire(1 << 20);
    const auto small = pool.Acquire(8192);
    ASSERT_TRUE(large.ok() && small.ok());
    EXPECT_EQ(pool.stats().leased_bytes, (1 << 20) + 8192u);
  }
  EXPECT_TRUE(
      testing::Eventually([&] { return pool.stats().cached_bytes <= 8192; }));
  const int calls = device->calls;
  EXPECT_TRUE(testing::Eventually([&] { return device->calls > calls + 5; }));
  EXPECT_EQ(pool.stats().cached_bytes, 8192u);
}

// Its last holder may be an I/O thread, which must not wait for the device.
TEST(EngineTest, ProgramsEndOnAThreadThatMayWait) {
  const auto registry = MakeOpRegistry({});
  auto wrapped = std::make_unique<FaultInjectingDevice>(MakeCpuDevice({}));
  const FaultInjectingDevice& device = *wrapped;
  EngineOptions options;
  options.programs.max_programs = 1;
  const auto engine =
      Engine::Create(std::move(wrapped), registry.get(), options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  static const float kOdd[4] = {1, 2, 3, 4};
  const auto compile = [&](const std::string& key) {
    Event done;
    std::shared_ptr<const Program> program;
    (*engine)->programs().GetOrCompile(
        key,
        []() -> absl::StatusOr<Graph> {
          Graph graph;
          // Nobody's: it is copied to the device.
          auto constant = std::make_shared<Constant>();
          constant->tensor = {DType::kFloat, {4}, kOdd};
          graph.constants["c"] = constant;
          GraphNode node;
          node.op = "Neg";
          node.inputs = {"x"};
          node.outputs = {"y"};
          graph.inputs = {{"x", DType::kFloat, SymbolicDims{Dim(4)}}};
          graph.nodes = {node};
          graph.outputs = {"y", "c"};
          return graph;
        },
        kNoDeadline,
        [&](ProgramCache::ProgramOr made) {
          EXPECT_TRUE(made.ok()) << made.status();
          if (made.ok()) program = *std::move(made);
          done.Set();
        });
    done.Wait();
    return program;
  };
  auto program = compile("one");
  ASSERT_NE(program, nullptr);
  ASSERT_NE(compile("another"), nullptr);
  EXPECT_EQ((*engine)->programs().Find("one"), nullptr);
  program = nullptr;
  (*engine)->reclaim()->Flush();
  EXPECT_NE(device.freed_on(), std::thread::id());
  EXPECT_NE(device.freed_on(), std::this_thread::get_id());
}

TEST(EngineTest, LanesShareTheQueueOfTheDriver) {
  const auto registry = MakeOpRegistry({});
  for (const auto& [lanes, launches] : std::vector<std::pair<size_t, size_t>>{
           {1, 512}, {32, 512}, {64, 256}, {128, 128}, {1000, 64}}) {
    EngineOptions options;
    options.streams.max = lanes;
    const auto engine = Engine::Create(MakeCpuDevice({.cpu_threads = 1}),
                                       registry.get(), options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    EXPECT_EQ((*engine)->max_lane_launches(), launches) << lanes;
  }
}

// Keeps many pieces once `engine` is there, whose allocator gets another task
// while it gives the first one back.
class SharingDevice final : public testing::FarDevice {
 public:
  static constexpr int kPieces = 10'000;

  bool TrimOne(Nanos) override {
    if (engine == nullptr || ended) return false;
    if (++trimmed == 1) {
      engine.load()->allocator().Post([this] { other_came = true; });
    }
    ended = other_came || trimmed == kPieces;
    came_between = other_came;
    if (ended) end.Set();
    return true;
  }
  std::atomic<Engine*> engine{nullptr};
  // The allocator's until the end.
  int trimmed = 0;
  bool other_came = false;
  bool came_between = false;
  bool ended = false;
  Event end;
};

TEST(EngineTest, WhoeverNeedsTheAllocatorComesBetweenPieces) {
  const auto registry = MakeOpRegistry({});
  auto owned = std::make_unique<SharingDevice>();
  SharingDevice* const device = owned.get();
  EngineOptions options;
  options.pinned_ttl = absl::Milliseconds(1);
  const auto engine = Engine::Create(std::move(owned), registry.get(), options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  device->engine = engine->get();
  device->end.Wait();
  EXPECT_TRUE(device->came_between);
}

// Keeps the allocator once it is asked for a piece.
class BusyDevice final : public testing::FarDevice {
 public:
  bool TrimOne(Nanos) override {
    asked.Set();
    answer.Wait();
    return false;
  }
  Event asked, answer;
};

TEST(EngineTest, OnePieceAtMostStandsInLineToBeGivenBack) {
  const auto registry = MakeOpRegistry({});
  auto owned = std::make_unique<BusyDevice>();
  BusyDevice* const device = owned.get();
  EngineOptions options;
  options.pinned_ttl = absl::Milliseconds(1);
  const auto engine = Engine::Create(std::move(owned), registry.get(), options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  device->asked.Wait();
  // Time enough for many.
  for (int i = 0; i < 20; ++i) {
    Event passed;
    (*engine)->timers().Add(NowNanos() + 2'000'000, [&] { passed.Set(); });
    passed.Wait();
  }
  EXPECT_LE((*engine)->allocator().waiting(), 1u);
  device->answer.Set();
  device->asked.Wait(2);  // it goes on
}

// Each by a task of its own.
TEST(EngineTest, ADeviceGivesBackWhatItKeepsPieceByPiece) {
  const auto registry = MakeOpRegistry({});
  auto owned = std::make_unique<TrimmedDevice>();
  TrimmedDevice* const device = owned.get();
  EngineOptions options;
  options.pinned_ttl = absl::Milliseconds(1);
  options.device_ttl = absl::Hours(1);
  const Nanos ttl = absl::ToInt64Nanoseconds(options.device_ttl);
  const Nanos began = NowNanos();
  const auto engine = Engine::Create(std::move(owned), registry.get(), options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_TRUE(testing::Eventually([&] { return device->pieces <= 0; }));
  EXPECT_GE(device->calls, 3);
  EXPECT_GE(device->earliest, began - ttl);
  EXPECT_LE(device->latest, NowNanos() - ttl);
}

}  // namespace
}  // namespace weir
