// The completion logic with no device: the test writes the records.
#include "kernels/device/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/base/error_info.h"
#include "tests/base/event.h"
#include "tests/device/test_task.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

// What a device is to the monitor.
struct FakeStream {
  FakeStream() {
    monitored->record = &record;
    monitored->timeline = std::make_shared<Timeline>("fake");
    monitored->query = [this] {
      ++queries;
      MutexLock lock(&mu);
      return answer;
    };
  }

  void Launch(CompletionMonitor& monitor, StreamTask* task) {
    task->completion = Completion();
    task->completion.sequence = ++launched;
    monitored->timeline->SetLaunched(launched);
    monitor.Push(monitored, task);
  }

  // As the device writes it: the fault first.
  void Finish(uint64_t sequence, uint64_t fault_word = 0) {
    auto& slot = record.slots[sequence % CompletionRecord::kSlots];
    slot.fault.store(fault_word, std::memory_order_relaxed);
    record.sequence.store(sequence, std::memory_order_release);
  }

  void Answer(absl::Status status) {
    MutexLock lock(&mu);
    answer = std::move(status);
  }

  CompletionRecord record{};
  std::shared_ptr<MonitoredStream> monitored =
      std::make_shared<MonitoredStream>();
  uint64_t launched = 0;
  std::atomic<int> queries{0};
  Mutex mu;
  absl::Status answer WEIR_GUARDED_BY(mu);
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
  EXPECT_EQ(stream.queries, 0);
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
  monitor.FailAll(absl::InternalError("fell off the bus"));
  open.Set();
  EXPECT_TRUE(done.Wait().status.ok());
  EXPECT_EQ(Reason(lost.Wait().status), "DEVICE_POISONED");
}

TEST(CompletionMonitorTest, WorkPushedToALostDeviceFails) {
  DeviceHealth health;
  FakeStream stream;
  TestTask task;
  CompletionMonitor monitor(&health, Patient());
  monitor.FailAll(absl::InternalError("lost"));
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
  monitor.FailAll(absl::InternalError("lost"));
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
