// The completion logic with no device: the test writes the records.
#include "kernels/device/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/base/error_info.h"
#include "tests/base/event.h"
#include "tests/base/eventually.h"
#include "tests/device/test_task.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr Nanos kMs = 1'000'000;

// What a device is to the monitor.
struct FakeStream {
  explicit FakeStream(bool driver_blocks = false) {
    monitored->record = &record;
    monitored->timeline = std::make_shared<Timeline>("fake");
    monitored->query = [driver = driver] {
      driver->asked.Set();
      driver->let_through.Wait();
      MutexLock lock(&driver->mu);
      return driver->answer;
    };
    if (!driver_blocks) driver->let_through.Set();
  }

  void Launch(CompletionMonitor& monitor, StreamTask* task) {
    task->completion = Completion();
    task->completion.sequence = ++launched;
    task->completion.launched_at = clock();
    monitored->timeline->SetLaunched(launched);
    monitor.Push(monitored, task);
  }

  // A launch that waits and then ends.
  void BeginLaunch(CompletionMonitor& monitor, StreamTask* task) {
    task->completion = Completion();
    task->completion.sequence = ++launched;
    task->completion.enqueued_at = clock();
    monitor.SetLaunchWaits(monitored, task, true);
  }
  void EndLaunch(CompletionMonitor& monitor, StreamTask* task) {
    monitor.SetLaunchWaits(monitored, task, false);
    task->completion.launched_at = clock();
    monitor.Push(monitored, task);
  }
  void PassMark() { record.mark.fetch_add(1, std::memory_order_release); }

  // As the device writes it: the fault first.
  void Finish(uint64_t sequence, uint64_t fault_word = 0) {
    auto& slot = record.slots[sequence % CompletionRecord::kSlots];
    slot.fault.store(fault_word, std::memory_order_relaxed);
    record.sequence.store(sequence, std::memory_order_release);
  }

  // Outlives the stream, as a driver does.
  struct Driver {
    Event asked;        // as often as a query began
    Event let_through;  // set once, ends every wait
    Mutex mu;
    absl::Status answer WEIR_GUARDED_BY(mu);
  };
  void Answer(absl::Status status) {
    MutexLock lock(&driver->mu);
    driver->answer = std::move(status);
  }
  size_t queries() const { return driver->asked.count(); }

  std::shared_ptr<Driver> driver = std::make_shared<Driver>();
  CompletionRecord record{};
  std::shared_ptr<MonitoredStream> monitored =
      std::make_shared<MonitoredStream>();
  uint64_t launched = 0;
  std::function<Nanos()> clock = NowNanos;
};

CompletionMonitor::Options Eager() {
  CompletionMonitor::Options options;
  options.overdue = absl::ZeroDuration();  // asks whenever nothing moves
  return options;
}

CompletionMonitor::Options Patient() {
  CompletionMonitor::Options options;
  options.overdue = absl::Hours(1);
  return options;
}

TEST(CompletionMonitorTest, CompletesInTheOrderOfRecords) {
  DeviceHealth health;
  FakeStream a, b;
  TestTask a1, a2, b1;
  CompletionMonitor monitor(&health, Patient());
  a.Launch(monitor, &a1);
  a.Launch(monitor, &a2);
  b.Launch(monitor, &b1);
  b.Finish(1);
  EXPECT_TRUE(b1.Wait().status.ok());
  EXPECT_FALSE(a1.finished());
  a.Finish(1);
  EXPECT_EQ(a1.Wait().sequence, 1u);
  EXPECT_FALSE(a2.finished());
  EXPECT_EQ(a.monitored->timeline->value(), 1u);
  a.Finish(2);
  EXPECT_EQ(a2.Wait().sequence, 2u);
  EXPECT_GT(a2.Wait().completed_at, 0);
}

TEST(CompletionMonitorTest, OneRecordMayEndSeveralWorks) {
  DeviceHealth health;
  FakeStream stream;
  std::array<TestTask, 5> tasks;
  CompletionMonitor monitor(&health, Patient());
  for (TestTask& task : tasks) stream.Launch(monitor, &task);
  stream.Finish(5);
  for (TestTask& task : tasks) {
    EXPECT_TRUE(task.Wait().status.ok());
    EXPECT_EQ(task.completions(), 1u);
  }
}

TEST(CompletionMonitorTest, TheTimelineIsReachedBeforeComplete) {
  DeviceHealth health;
  FakeStream stream;
  uint64_t seen = 0;
  TestTask task(nullptr, [&](const Completion&) {
    seen = stream.monitored->timeline->value();
  });
  CompletionMonitor monitor(&health, Patient());
  stream.Launch(monitor, &task);
  stream.Finish(1);
  task.Wait();
  EXPECT_EQ(seen, 1u);
}

// Whichever stream the monitor looks at first.
TEST(CompletionMonitorTest, AWorkIsSettledAfterWhatItDependsOn) {
  for (const bool lost : {false, true}) {
    SCOPED_TRACE(lost);
    DeviceHealth health;
    FakeStream streams[3];
    TestTask tasks[3];
    CompletionMonitor monitor(&health, Patient());
    const auto broken = absl::InternalError("broken");
    Event asked;
    for (int i = 0; i < 3; ++i) {
      tasks[i].set_settle([&, i](const Completion& completion) {
        if (i == 0) asked.Set();
        if (i == 2) return std::optional<absl::Status>(broken);
        EXPECT_EQ(streams[i].monitored->timeline->value(), 0u);
        if (!completion.status.ok()) return std::optional(completion.status);
        return streams[i + 1].monitored->timeline->Outcome(1);
      });
      streams[i].Launch(monitor, &tasks[i]);
    }
    streams[0].Finish(1);
    streams[1].Finish(1);
    if (lost) {
      // The record that came before the loss counts for all of them.
      streams[2].Finish(1);
      health.Poison(absl::UnavailableError("lost"));
    } else {
      asked.Wait();
      EXPECT_FALSE(tasks[0].finished());
      streams[2].Finish(1);
    }
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(tasks[i].Wait().status.ok());
      EXPECT_EQ(tasks[i].Wait().outcome, broken);
      EXPECT_EQ(streams[i].monitored->timeline->Outcome(1), broken);
    }
    monitor.Stop();
  }
}

// Its record came before the loss, but what it depends on is lost.
TEST(CompletionMonitorTest, AFaultThatIsNotSettledIsLostWithTheDevice) {
  DeviceHealth health;
  FakeStream faulty, other;
  TestTask bad, awaited;
  Event asked;
  bad.set_settle([&](const Completion& completion) {
    asked.Set();
    if (completion.fault == FaultCode::kNone) {
      return std::optional(completion.status);
    }
    return other.monitored->timeline->Outcome(1);
  });
  CompletionMonitor monitor(&health, Patient());
  faulty.Launch(monitor, &bad);
  other.Launch(monitor, &awaited);
  faulty.Finish(1, uint64_t{8} << 32 |
                       static_cast<uint64_t>(FaultCode::kIndexOutOfRange));
  asked.Wait();
  EXPECT_FALSE(bad.finished());
  health.Poison(absl::InternalError("fell off the bus"));
  EXPECT_EQ(Reason(bad.Wait().status), "DEVICE_POISONED");
  EXPECT_EQ(Reason(bad.Wait().outcome), "DEVICE_POISONED");
  EXPECT_EQ(bad.Wait().fault, FaultCode::kNone);
  EXPECT_EQ(bad.completions(), 1u);
  EXPECT_EQ(Reason(awaited.Wait().status), "DEVICE_POISONED");
}

TEST(CompletionMonitorTest, AFaultWordFailsItsWorkAlone) {
  DeviceHealth health;
  FakeStream stream;
  TestTask good, bad, next;
  CompletionMonitor monitor(&health, Patient());
  stream.Launch(monitor, &good);
  stream.Launch(monitor, &bad);
  stream.Launch(monitor, &next);
  const uint64_t word = uint64_t{8} << 32 |  // node 7
                        static_cast<uint64_t>(FaultCode::kIndexOutOfRange);
  stream.Finish(2, word);
  EXPECT_TRUE(good.Wait().status.ok());
  const Completion& failed = bad.Wait();
  EXPECT_EQ(failed.status, FaultStatus(FaultCode::kIndexOutOfRange));
  EXPECT_EQ(failed.fault, FaultCode::kIndexOutOfRange);
  EXPECT_EQ(failed.fault_node, 7u);
  EXPECT_FALSE(stream.monitored->timeline->Outcome(2)->ok());
  stream.Finish(3);
  EXPECT_TRUE(next.Wait().status.ok());
  EXPECT_TRUE(stream.monitored->timeline->Outcome(3)->ok());
  EXPECT_FALSE(health.poisoned());
}

TEST(CompletionMonitorTest, AFailedLaunchKeepsItsStatusAndItsPlace) {
  DeviceHealth health;
  FakeStream stream;
  TestTask first, refused;
  CompletionMonitor monitor(&health, Patient());
  stream.Launch(monitor, &first);
  refused.completion = Completion();
  refused.completion.sequence = ++stream.launched;
  refused.completion.status = absl::ResourceExhaustedError("no launch");
  monitor.Push(stream.monitored, &refused);
  EXPECT_FALSE(refused.finished());
  stream.Finish(2);
  EXPECT_TRUE(first.Wait().status.ok());
  EXPECT_EQ(refused.Wait().status, absl::ResourceExhaustedError("no launch"));
}

TEST(CompletionMonitorTest, OverdueWorkIsAskedForAndGoesOn) {
  DeviceHealth health;
  FakeStream stream;
  Event asked;
  stream.monitored->query = [&] {
    asked.Set();
    return absl::OkStatus();
  };
  TestTask task;
  CompletionMonitor monitor(&health, Eager());
  stream.Launch(monitor, &task);
  asked.Wait(2);
  EXPECT_FALSE(task.finished());
  stream.Finish(1);
  EXPECT_TRUE(task.Wait().status.ok());
  EXPECT_FALSE(health.poisoned());
}

TEST(CompletionMonitorTest, NobodyIsAskedBeforeWorkIsOverdue) {
  DeviceHealth health;
  FakeStream stream;
  TestTask task;
  {
    CompletionMonitor monitor(&health, Patient());
    stream.Launch(monitor, &task);
    stream.Finish(1);
    task.Wait();
  }
  EXPECT_EQ(stream.queries(), 0u);
}

TEST(CompletionMonitorTest, AFaultFailsWhatHasNoRecordExactlyOnce) {
  DeviceHealth health;
  FakeStream healthy, faulty;
  std::array<TestTask, 4> before, after;
  TestTask other;
  {
    CompletionMonitor monitor(&health, Eager());
    for (TestTask& task : before) faulty.Launch(monitor, &task);
    for (TestTask& task : after) faulty.Launch(monitor, &task);
    healthy.Launch(monitor, &other);
    // These were done when the fault came, though nobody had looked yet.
    faulty.Finish(before.size());
    faulty.Answer(absl::InternalError("illegal address"));
    for (TestTask& task : after) task.Wait();
    other.Wait();
  }
  for (TestTask& task : before) {
    EXPECT_EQ(task.completions(), 1u);
    EXPECT_TRUE(task.Wait().status.ok());
  }
  for (TestTask& task : after) {
    EXPECT_EQ(task.completions(), 1u);
    EXPECT_EQ(Reason(task.Wait().status), "DEVICE_POISONED");
  }
  EXPECT_EQ(Reason(other.Wait().status), "DEVICE_POISONED");
  EXPECT_TRUE(health.poisoned());
  EXPECT_EQ(faulty.monitored->timeline->value(), 8u);
}

TEST(CompletionMonitorTest, ARecordBeforeTheFaultCountsAsDone) {
  // Deterministic form: both are there before the monitor looks.
  DeviceHealth health;
  FakeStream stream;
  TestTask gate_task, done, lost;
  FakeStream gate;
  Event entered, open;
  gate.monitored->query = nullptr;
  TestTask gated(nullptr, [&](const Completion&) {
    entered.Set();
    open.Wait();
  });
  CompletionMonitor monitor(&health, Patient());
  gate.Launch(monitor, &gated);
  gate.Finish(1);
  entered.Wait();  // the monitor's thread is held in this completion
  stream.Launch(monitor, &done);
  stream.Launch(monitor, &lost);
  stream.Finish(1);
  health.Poison(absl::InternalError("fell off the bus"));
  open.Set();
  EXPECT_TRUE(done.Wait().status.ok());
  EXPECT_EQ(Reason(lost.Wait().status), "DEVICE_POISONED");
}

TEST(CompletionMonitorTest, WorkPushedToALostDeviceFails) {
  DeviceHealth health;
  FakeStream stream;
  TestTask task;
  CompletionMonitor monitor(&health, Patient());
  health.Poison(absl::InternalError("lost"));
  stream.Launch(monitor, &task);
  EXPECT_EQ(Reason(task.Wait().status), "DEVICE_POISONED");
}

TEST(CompletionMonitorTest, StopCompletesWhatIsInFlight) {
  DeviceHealth health;
  FakeStream stream;
  std::array<TestTask, 3> tasks;
  CompletionMonitor monitor(&health, Patient());
  for (TestTask& task : tasks) stream.Launch(monitor, &task);
  std::thread stopper([&] { monitor.Stop(); });
  stream.Finish(3);
  stopper.join();
  for (TestTask& task : tasks) EXPECT_EQ(task.completions(), 1u);
}

TEST(CompletionMonitorTest, StopOnALostDeviceFailsWhatIsInFlight) {
  DeviceHealth health;
  FakeStream stream;
  TestTask task;
  CompletionMonitor monitor(&health, Patient());
  stream.Launch(monitor, &task);
  health.Poison(absl::InternalError("lost"));
  monitor.Stop();
  EXPECT_EQ(task.completions(), 1u);
  EXPECT_FALSE(task.Wait().status.ok());
}

TEST(CompletionMonitorTest, CompleteMayLaunchTheNextWork) {
  DeviceHealth health;
  FakeStream stream;
  CompletionMonitor monitor(&health, Patient());
  TestTask second;
  TestTask first(nullptr, [&](const Completion&) {
    stream.Launch(monitor, &second);
    stream.Finish(2);
  });
  stream.Launch(monitor, &first);
  stream.Finish(1);
  EXPECT_EQ(second.Wait().sequence, 2u);
}

TEST(CompletionMonitorTest, ADriverThatBlocksHoldsUpNoCompletion) {
  DeviceHealth health;
  FakeStream overdue(/*driver_blocks=*/true);
  FakeStream healthy;
  healthy.monitored->query = nullptr;
  TestTask a, b;
  CompletionMonitor monitor(&health, Eager());
  overdue.Launch(monitor, &a);
  overdue.driver->asked.Wait();
  healthy.Launch(monitor, &b);
  healthy.Finish(1);
  EXPECT_TRUE(b.Wait().status.ok());
  overdue.Finish(1);
  EXPECT_TRUE(a.Wait().status.ok());
  EXPECT_EQ(overdue.queries(), 1u);
  overdue.driver->let_through.Set();
}

TEST(CompletionMonitorTest, AWorkStartsWhenTheOneBeforeItIsDone) {
  DeviceHealth health;
  FakeStream stream;
  TestTask first, second;
  CompletionMonitor monitor(&health, Patient());
  stream.Launch(monitor, &first);
  stream.Launch(monitor, &second);
  stream.Finish(1);
  EXPECT_EQ(first.Wait().started_at, first.Wait().launched_at);
  stream.Finish(2);
  EXPECT_EQ(second.Wait().started_at, first.Wait().completed_at);
  EXPECT_GT(second.Wait().started_at, second.Wait().launched_at);
}

TEST(CompletionMonitorTest, StreamsThatAreBusyTogetherShareTheTime) {
  DeviceHealth health;
  FakeStream streams[4];
  TestTask tasks[4];
  // Held in a completion, so that it sees the four begin and end together.
  FakeStream first;
  Event entered, open;
  TestTask gate(nullptr, [&](const Completion&) {
    entered.Set();
    open.Wait();
  });
  CompletionMonitor monitor(&health, Patient());
  first.Launch(monitor, &gate);
  first.Finish(1);
  entered.Wait();
  for (int i = 0; i < 4; ++i) streams[i].Launch(monitor, &tasks[i]);
  open.Set();
  gate.Wait();
  Nanos whole = 0, shared = 0;
  for (int i = 0; i < 4; ++i) {
    streams[i].Finish(1);
    const Completion& done = tasks[i].Wait();
    EXPECT_GE(done.device_time, 0);
    whole += done.completed_at - done.started_at;
    shared += done.device_time;
    if (i == 0) continue;
    // Since the one before ended so many were busy, or for a moment one more.
    const Nanos busy = 4 - i;
    const Completion& before = tasks[i - 1].Wait();
    const Nanos since = done.completed_at - before.completed_at;
    EXPECT_LE(done.device_time - before.device_time, since / busy);
    EXPECT_GE(done.device_time - before.device_time, since / (busy + 1) - 2);
  }
  EXPECT_LT(shared, whole);
  TestTask alone;
  streams[0].Launch(monitor, &alone);
  streams[0].Finish(2);
  EXPECT_LE(alone.Wait().device_time,
            alone.Wait().completed_at - alone.Wait().started_at);
}

// The stream and its record go as soon as its last work is reached, which is
// before that work's Complete has returned.
TEST(CompletionMonitorTest, AnIdleStreamMayGoDuringComplete) {
  DeviceHealth health;
  CompletionMonitor monitor(&health, Eager());
  for (int i = 0; i < 200; ++i) {
    auto stream = std::make_unique<FakeStream>();
    FakeStream* const raw = stream.get();
    TestTask task(nullptr, [&](const Completion&) { stream.reset(); });
    raw->Launch(monitor, &task);
    raw->Finish(1);
    task.Wait();
  }
}

// A monitor whose clock the test moves.
class CompletionMonitorClockTest : public ::testing::Test {
 protected:
  CompletionMonitor::Options Clocked() {
    CompletionMonitor::Options options;
    options.overdue = absl::Milliseconds(100);
    options.stall = absl::Milliseconds(500);
    options.hooks.clock = [this] {
      ++reads_;
      return now_.load();
    };
    return options;
  }

  // The monitor's thread reads the clock once a round before it judges, and
  // when it takes a work over.
  void AwaitReads(uint64_t count) {
    const uint64_t goal = reads_ + count;
    EXPECT_TRUE(weir::testing::Eventually([&] { return reads_ >= goal; }));
  }
  void At(Nanos time) { now_ = time; }
  // Moves the clock, and returns when the monitor has judged at that time.
  void LookAt(Nanos time) {
    At(time);
    AwaitReads(3);  // the first may have begun before
  }
  // Returns when the monitor knows of the work.
  void Launch(FakeStream& stream, TestTask* task, Nanos expected = 0) {
    Launch(stream, task, expected, expected);
  }
  void Launch(FakeStream& stream, TestTask* task, Nanos expected,
              Nanos expected_device_time) {
    task->expected = expected;
    task->expected_device_time = expected_device_time;
    stream.clock = [this] { return now_.load(); };
    stream.Launch(monitor_, task);
    AwaitReads(3);
  }
  void BeginLaunch(FakeStream& stream, StreamTask* task) {
    stream.clock = [this] { return now_.load(); };
    stream.BeginLaunch(monitor_, task);
    AwaitReads(3);
  }
  bool Stalls() {
    return weir::testing::Eventually([this] { return !health_.stall().ok(); });
  }
  bool Moves() {
    return weir::testing::Eventually([this] { return health_.stall().ok(); });
  }

  std::atomic<Nanos> now_{1000 * kMs};
  std::atomic<uint64_t> reads_{0};
  DeviceHealth health_;
  CompletionMonitor monitor_{&health_, Clocked()};
};

constexpr Nanos kStart = 1000 * kMs;

TEST_F(CompletionMonitorClockTest, NothingCompletesThoughItShould) {
  FakeStream stream;
  TestTask trapped;
  Launch(stream, &trapped, 10 * kMs);
  LookAt(kStart + 505 * kMs);
  EXPECT_TRUE(health_.stall().ok());
  At(kStart + 511 * kMs + 20 * kMs);
  ASSERT_TRUE(Stalls());
  EXPECT_EQ(health_.stall().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Reason(health_.stall()), "DEVICE_STALLED");
  EXPECT_FALSE(health_.poisoned());
  EXPECT_FALSE(trapped.finished());
  EXPECT_EQ(health_.stalls_total(), 1u);
  stream.Finish(1);
  EXPECT_TRUE(trapped.Wait().status.ok());
  EXPECT_TRUE(Moves());
  EXPECT_EQ(health_.stalls_total(), 1u);
}

TEST_F(CompletionMonitorClockTest, OneLongEvaluationIsNoStall) {
  FakeStream stream;
  TestTask task;
  Launch(stream, &task, 10'000 * kMs);
  LookAt(kStart + 9'000 * kMs);
  EXPECT_TRUE(health_.stall().ok());
  LookAt(kStart + 10'400 * kMs);
  EXPECT_TRUE(health_.stall().ok());
  stream.Finish(1);
  EXPECT_TRUE(task.Wait().status.ok());
  EXPECT_EQ(health_.stalls_total(), 0u);
}

TEST_F(CompletionMonitorClockTest, ALongEvaluationExcusesShortOnesBesideIt) {
  FakeStream longer, shorter;
  TestTask slow, quick;
  Launch(longer, &slow, 10'000 * kMs);
  Launch(shorter, &quick, 1 * kMs);
  LookAt(kStart + 5'000 * kMs);
  EXPECT_TRUE(health_.stall().ok());
  // Only until its own time is up.
  At(kStart + 10'600 * kMs);
  EXPECT_TRUE(Stalls());
  longer.Finish(1);
  shorter.Finish(1);
  slow.Wait();
  quick.Wait();
}

// A device that shares itself ends all of them together.
TEST_F(CompletionMonitorClockTest, StreamsShareTheDevice) {
  std::array<FakeStream, 4> streams;
  std::array<TestTask, 4> tasks;
  for (size_t i = 0; i < 4; ++i) Launch(streams[i], &tasks[i], 400 * kMs);
  LookAt(kStart + 1'500 * kMs);
  EXPECT_TRUE(health_.stall().ok());
  LookAt(kStart + 2'050 * kMs);
  EXPECT_TRUE(health_.stall().ok());
  At(kStart + 2'150 * kMs);
  EXPECT_TRUE(Stalls());
  for (FakeStream& stream : streams) stream.Finish(1);
  for (TestTask& task : tasks) task.Wait();
}

// 32 callers' works that take 600 ms side by side, and 19 ms alone.
TEST_F(CompletionMonitorClockTest, WorksThatSharedTheDeviceAreNotAddedUp) {
  std::array<FakeStream, 32> streams;
  std::array<TestTask, 32> tasks;
  for (size_t i = 0; i < 32; ++i) {
    Launch(streams[i], &tasks[i], 600 * kMs, 19 * kMs);
  }
  LookAt(kStart + 1'050 * kMs);
  EXPECT_TRUE(health_.stall().ok());
  At(kStart + 1'150 * kMs);
  EXPECT_TRUE(Stalls());
  for (FakeStream& stream : streams) stream.Finish(1);
  for (TestTask& task : tasks) task.Wait();
}

TEST_F(CompletionMonitorClockTest, WhatHasNotBegunExcusesNothing) {
  FakeStream stream;
  TestTask running, behind;
  Launch(stream, &running, 1 * kMs);
  Launch(stream, &behind, 60'000 * kMs);
  At(kStart + 600 * kMs);
  EXPECT_TRUE(Stalls());
  stream.Finish(2);
  behind.Wait();
}

TEST_F(CompletionMonitorClockTest, ACompletionAnywhereShowsThatItMoves) {
  FakeStream stuck, other;
  TestTask slow, quick;
  Launch(stuck, &slow);
  Launch(other, &quick);
  At(kStart + 400 * kMs);
  other.Finish(1);
  quick.Wait();
  LookAt(kStart + 880 * kMs);
  EXPECT_TRUE(health_.stall().ok());
  At(kStart + 950 * kMs);
  EXPECT_TRUE(Stalls());
  stuck.Finish(1);
  slow.Wait();
}

TEST_F(CompletionMonitorClockTest, LaunchingIsNoProgress) {
  FakeStream stuck;
  TestTask first;
  Launch(stuck, &first);
  std::array<FakeStream, 3> streams;
  std::array<TestTask, 3> tasks;
  for (size_t i = 0; i < 3; ++i) {
    LookAt(now_ + 150 * kMs);
    Launch(streams[i], &tasks[i]);
  }
  EXPECT_TRUE(health_.stall().ok());
  At(kStart + 550 * kMs);
  EXPECT_TRUE(Stalls());
  stuck.Finish(1);
  first.Wait();
  for (FakeStream& stream : streams) stream.Finish(1);
  for (TestTask& task : tasks) task.Wait();
}

TEST_F(CompletionMonitorClockTest, AnIdleDeviceDoesNotStall) {
  FakeStream stream;
  TestTask first, second;
  Launch(stream, &first);
  stream.Finish(1);
  first.Wait();
  At(kStart + 3'600'000 * kMs);
  Launch(stream, &second);
  // The time begins with the work.
  LookAt(kStart + 3'600'400 * kMs);
  EXPECT_TRUE(health_.stall().ok());
  stream.Finish(2);
  second.Wait();
  EXPECT_EQ(health_.stalls_total(), 0u);
}

// Works of many launches wait for room before all of them are made.
TEST_F(CompletionMonitorClockTest, ALaunchThatWaitsRunsOnTheDevice) {
  FakeStream stream;
  TestTask task;
  task.expected = 10 * kMs;
  BeginLaunch(stream, &task);
  LookAt(kStart + 505 * kMs);
  EXPECT_TRUE(health_.stall().ok());
  At(kStart + 531 * kMs);
  ASSERT_TRUE(Stalls());
  stream.driver->asked.Wait();
  stream.PassMark();
  EXPECT_TRUE(Moves());
  stream.EndLaunch(monitor_, &task);
  stream.Finish(1);
  EXPECT_TRUE(task.Wait().status.ok());
  EXPECT_EQ(task.Wait().started_at, kStart) << "its first launches ran then";
  EXPECT_EQ(health_.stalls_total(), 1u);
}

TEST_F(CompletionMonitorClockTest, AMarkShowsThatItMoves) {
  FakeStream stream;
  TestTask task;
  BeginLaunch(stream, &task);
  for (int i = 1; i <= 5; ++i) {
    LookAt(kStart + i * 400 * kMs);
    stream.PassMark();
    AwaitReads(3);
  }
  EXPECT_EQ(health_.stalls_total(), 0u);
  At(kStart + 2'600 * kMs);
  EXPECT_TRUE(Stalls());
  stream.EndLaunch(monitor_, &task);
  stream.Finish(1);
  task.Wait();
}

// It decodes pictures, for example.
TEST_F(CompletionMonitorClockTest, ALaunchThatComputesIsOwedNothing) {
  FakeStream stream;
  TestTask task;
  BeginLaunch(stream, &task);
  monitor_.SetLaunchWaits(stream.monitored, &task, false);
  LookAt(kStart + 10'000 * kMs);
  LookAt(kStart + 20'000 * kMs);
  EXPECT_EQ(health_.stalls_total(), 0u);
  // The time begins when it waits again.
  monitor_.SetLaunchWaits(stream.monitored, &task, true);
  LookAt(kStart + 20'450 * kMs);
  EXPECT_EQ(health_.stalls_total(), 0u);
  At(kStart + 20'600 * kMs);
  EXPECT_TRUE(Stalls());
  stream.EndLaunch(monitor_, &task);
  stream.Finish(1);
  task.Wait();
}

// As after a trap: the driver is silent for a while, and then knows.
TEST_F(CompletionMonitorClockTest, AStallMayEndInALoss) {
  FakeStream stream(/*driver_blocks=*/true);
  stream.Answer(absl::UnavailableError("CUDA error 719"));
  TestTask trapped;
  Launch(stream, &trapped);
  At(kStart + 600 * kMs);
  stream.driver->asked.Wait();
  EXPECT_TRUE(Stalls());
  EXPECT_FALSE(health_.poisoned());
  stream.driver->let_through.Set();
  EXPECT_EQ(Reason(trapped.Wait().status), "DEVICE_POISONED");
  EXPECT_FALSE(health_.stall().ok()) << "it never moved again";
}

TEST_F(CompletionMonitorClockTest, WhatStoodStillLongestIsAskedForFirst) {
  FakeStream early(/*driver_blocks=*/true);
  FakeStream late(/*driver_blocks=*/true);
  std::array<TestTask, 4> tasks;
  // Both have work that will not end, behind some that does.
  Launch(late, &tasks[0]);
  Launch(late, &tasks[1]);
  Launch(early, &tasks[2]);
  Launch(early, &tasks[3]);
  At(kStart + 10 * kMs);
  early.Finish(1);
  tasks[2].Wait();
  At(kStart + 20 * kMs);
  late.Finish(1);
  tasks[0].Wait();
  At(kStart + 200 * kMs);
  early.driver->asked.Wait();
  EXPECT_EQ(late.queries(), 0u) << "one question at a time";
  early.driver->let_through.Set();
  late.driver->asked.Wait();
  late.driver->let_through.Set();
  early.Finish(2);
  late.Finish(2);
  for (TestTask& task : tasks) task.Wait();
}

class NamedTask : public TestTask {
 public:
  explicit NamedTask(std::string name) : name_(std::move(name)) {}
  std::string Describe() const override { return name_; }

 private:
  const std::string name_;
};

TEST(CompletionMonitorTest, WhatRanWhenTheDeviceWasLostIsNamed) {
  DeviceHealth health;
  FakeStream a, b, idle;
  NamedTask done("done"), first("first"), behind("behind"), other("other");
  Event entered, open;
  TestTask gate(nullptr, [&](const Completion&) {
    entered.Set();
    open.Wait();
  });
  CompletionMonitor monitor(&health, Patient());
  idle.Launch(monitor, &gate);
  idle.Finish(1);
  entered.Wait();  // the monitor's thread is held in this completion
  a.Launch(monitor, &done);
  a.Launch(monitor, &first);
  a.Launch(monitor, &behind);
  b.Launch(monitor, &other);
  a.Finish(1);
  health.Poison(absl::UnavailableError("CUDA error 719"));
  open.Set();
  EXPECT_TRUE(done.Wait().status.ok());
  for (TestTask* task : {&first, &behind, &other}) {
    EXPECT_EQ(Reason(task->Wait().status), "DEVICE_POISONED");
    EXPECT_THAT(std::string(task->Wait().status.message()),
                HasSubstr("the device is lost: CUDA error 719"));
  }
  EXPECT_THAT(health.suspects(), ElementsAre("first", "other"));
  EXPECT_TRUE(first.Wait().suspect);
  EXPECT_TRUE(other.Wait().suspect);
  EXPECT_FALSE(behind.Wait().suspect);
  EXPECT_THAT(std::string(first.Wait().status.message()),
              HasSubstr("this work and 1 more were running when it failed"));
  EXPECT_THAT(std::string(behind.Wait().status.message()),
              Not(HasSubstr("running")));
}

TEST(CompletionMonitorTest, AWorkThatWaitsForRoomIsNamedOnceItIsPushed) {
  DeviceHealth health;
  FakeStream stream;
  NamedTask large("large");
  CompletionMonitor monitor(&health, Eager());
  stream.Answer(absl::UnavailableError("CUDA error 719"));
  stream.BeginLaunch(monitor, &large);
  // The driver is asked, for it is overdue.
  EXPECT_TRUE(weir::testing::Eventually([&] { return health.poisoned(); }));
  EXPECT_TRUE(
      weir::testing::Eventually([&] { return !health.suspects().empty(); }));
  EXPECT_THAT(health.suspects(), ElementsAre("large"));
  EXPECT_FALSE(large.finished()) << "its launch runs";
  monitor.Push(stream.monitored, &large);
  EXPECT_EQ(Reason(large.Wait().status), "DEVICE_POISONED");
  EXPECT_THAT(std::string(large.Wait().status.message()),
              HasSubstr("this work was running when it failed"));
  EXPECT_EQ(large.completions(), 1u);
}

// A device of two threads finishes works of many streams while others launch.
TEST(CompletionMonitorStressTest, EveryWorkCompletesOnceWithItsStatus) {
  constexpr int kStreams = 8;
  constexpr uint64_t kWorks = 5000;
  DeviceHealth health;
  CompletionMonitor monitor(&health, Patient());
  std::array<FakeStream, kStreams> streams;
  std::atomic<uint64_t> ok{0}, failed{0}, wrong{0};
  std::vector<std::thread> launchers;
  std::vector<std::unique_ptr<std::atomic<uint64_t>>> launched;
  for (int i = 0; i < kStreams; ++i) {
    launched.push_back(std::make_unique<std::atomic<uint64_t>>(0));
  }
  for (size_t i = 0; i < kStreams; ++i) {
    launchers.emplace_back([&, i] {
      FakeStream& stream = streams[i];
      std::vector<std::unique_ptr<TestTask>> tasks;
      for (uint64_t n = 1; n <= kWorks; ++n) {
        tasks.push_back(std::make_unique<TestTask>(
            nullptr, [&, n](const Completion& completion) {
              ++(completion.status.ok() ? ok : failed);
              if (completion.sequence != n) ++wrong;
              if (completion.status.ok() != (n % 3 != 0)) ++wrong;
            }));
        if (n > CompletionRecord::kSlots) {
          tasks[n - 1 - CompletionRecord::kSlots]->Wait();
        }
        stream.Launch(monitor, tasks.back().get());
        launched[i]->store(n, std::memory_order_release);
      }
      for (auto& task : tasks) {
        task->Wait();
        if (task->completions() != 1) ++wrong;
      }
    });
  }
  std::thread device([&] {
    std::array<uint64_t, kStreams> done{};
    for (uint64_t left = kStreams * kWorks; left > 0;) {
      for (size_t i = 0; i < kStreams; ++i) {
        if (done[i] == launched[i]->load(std::memory_order_acquire)) continue;
        ++done[i];
        --left;
        streams[i].Finish(
            done[i],
            done[i] % 3 == 0 ? static_cast<uint64_t>(FaultCode::kInjected) : 0);
      }
    }
  });
  for (std::thread& launcher : launchers) launcher.join();
  device.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(ok + failed, kStreams * kWorks);
}

}  // namespace
}  // namespace weir
