// What only the CPU device has: limits of the host, inline runs, the wide team.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernels/backend/devices.h"
#include "kernels/device/cpu/host_limits.h"
#include "tests/device/test_task.h"

namespace weir {
namespace {

class HostLimitsTest : public ::testing::Test {
 protected:
  HostLimitsTest() {
    std::string folder = ::testing::TempDir() + "/host_limits_XXXXXX";
    root_ = mkdtemp(folder.data());
    files_ = {.proc = root_ / "proc", .cgroup = root_ / "cgroup"};
  }
  ~HostLimitsTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const auto full = root_ / path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text << "\n";
  }

  std::filesystem::path root_;
  HostFiles files_;
};

TEST_F(HostLimitsTest, WithoutControlGroupsTheMachineIsTheLimit) {
  EXPECT_EQ(AllowedCpus(files_, 6), 6);
  EXPECT_EQ(AllowedMemory(files_, 1 << 30), 1 << 30);
}

TEST_F(HostLimitsTest, Version2QuotaIsRoundedUp) {
  Write("proc/self/cgroup", "0::/");
  Write("cgroup/cpu.max", "150000 100000");
  Write("cgroup/memory.max", "1000000");
  EXPECT_EQ(AllowedCpus(files_, 8), 2);
  EXPECT_EQ(AllowedCpus(files_, 1), 1);
  EXPECT_EQ(AllowedMemory(files_, 1 << 30), 1000000);
}

TEST_F(HostLimitsTest, NoQuotaIsNoLimit) {
  Write("proc/self/cgroup", "0::/");
  Write("cgroup/cpu.max", "max 100000");
  Write("cgroup/memory.max", "max");
  EXPECT_EQ(AllowedCpus(files_, 8), 8);
  EXPECT_EQ(AllowedMemory(files_, 1 << 30), 1 << 30);
}

TEST_F(HostLimitsTest, TheTightestGroupOnTheWayUpCounts) {
  Write("proc/self/cgroup", "0::/pods/pod1");
  Write("cgroup/pods/pod1/cpu.max", "800000 100000");
  Write("cgroup/pods/cpu.max", "300000 100000");
  EXPECT_EQ(AllowedCpus(files_, 16), 3);
}

TEST_F(HostLimitsTest, Version1IsReadToo) {
  Write("proc/self/cgroup", "4:cpu,cpuacct:/docker/abc\n9:memory:/docker/abc");
  Write("cgroup/cpu/cpu.cfs_quota_us", "50000");
  Write("cgroup/cpu/cpu.cfs_period_us", "100000");
  Write("cgroup/memory/memory.limit_in_bytes", "5000");
  EXPECT_EQ(AllowedCpus(files_, 8), 1);
  EXPECT_EQ(AllowedMemory(files_, 1 << 30), 5000);
  Write("cgroup/cpu/cpu.cfs_quota_us", "-1");
  EXPECT_EQ(AllowedCpus(files_, 8), 8);
}

TEST_F(HostLimitsTest, NonsenseIsIgnored) {
  Write("proc/self/cgroup", "garbage\n::\n0::");
  Write("cgroup/cpu.max", "-5 x");
  Write("cgroup/memory.max", "");
  EXPECT_EQ(AllowedCpus(files_, 4), 4);
  EXPECT_EQ(AllowedMemory(files_, 7), 7);
}

TEST_F(HostLimitsTest, WhatTheMachineHasAvailableIsFree) {
  EXPECT_EQ(FreeMemory(files_, 1000), 1000) << "nothing says less";
  Write("proc/meminfo", "MemTotal: 9 kB\nMemFree: 1 kB\nMemAvailable: 3 kB\n");
  EXPECT_EQ(FreeMemory(files_, 9 * 1024), 3 * 1024);
  EXPECT_EQ(FreeMemory(files_, 100), 100) << "never more than is allowed";
}

TEST_F(HostLimitsTest, TheTightestGroupSaysWhatIsFree) {
  Write("proc/meminfo", "MemAvailable: 3000 kB");
  Write("proc/self/cgroup", "0::/pod/one\n");
  Write("cgroup/pod/memory.max", "2000000");
  Write("cgroup/pod/memory.current", "1500000");
  Write("cgroup/pod/one/memory.max", "max");
  Write("cgroup/pod/one/memory.current", "900000");
  EXPECT_EQ(FreeMemory(files_, 2000000), 500000);
  // Files that the group has read make room.
  Write("cgroup/pod/memory.stat", "anon 1\ninactive_file 400000\n");
  EXPECT_EQ(FreeMemory(files_, 2000000), 900000);
  // More in use than allowed, as right after the limit went down.
  Write("cgroup/pod/memory.current", "2900000");
  EXPECT_EQ(FreeMemory(files_, 2000000), 0);
}

TEST_F(HostLimitsTest, AGroupOfVersionOneSaysWhatIsFree) {
  Write("proc/self/cgroup", "4:memory:/one\n");
  Write("cgroup/memory/one/memory.limit_in_bytes", "1000");
  Write("cgroup/memory/one/memory.usage_in_bytes", "800");
  Write("cgroup/memory/one/memory.stat", "total_inactive_file 50\n");
  EXPECT_EQ(FreeMemory(files_, 5000), 250);
}

TEST_F(HostLimitsTest, ThisProcessHasAtLeastOneCpuAndNoMoreThanItMayRunOn) {
  EXPECT_GE(CpuQuota(), 1);
  EXPECT_LE(CpuQuota(), OnlineCpus());
}

std::unique_ptr<Device> Cpu(int threads) {
  return MakeCpuDevice({.cpu_threads = threads, .cache_dir = {}});
}

TEST(CpuDeviceTest, DescribesItself) {
  auto device = Cpu(3);
  EXPECT_EQ(device->info().kind, DeviceKind::kCpu);
  EXPECT_EQ(DeviceName(device->info()), "cpu");
  EXPECT_EQ(device->info().multiprocessors, 3);
  EXPECT_EQ(device->info().uuid.rfind("CPU-", 0), 0u);
  EXPECT_EQ(device->info().driver.rfind("Linux ", 0), 0u);
  EXPECT_EQ(device->info().runtime.rfind("glibc ", 0), 0u);
  const auto free = device->QueryFreeMemory();
  ASSERT_TRUE(free.ok()) << free.status();
  EXPECT_GT(*free, 0);
  EXPECT_LE(*free, device->info().total_memory);
  EXPECT_GT(device->info().total_memory, 0);
  EXPECT_TRUE(device->host_addressable());
  EXPECT_GE(MakeCpuDevice({})->info().multiprocessors, 1);
}

TEST(CpuStreamTest, RunsInlineIfIdle) {
  auto device = Cpu(1);
  auto stream = *device->CreateStream(0);
  std::thread::id launched, completed;
  TestTask task(
      [&](Stream&) {
        launched = std::this_thread::get_id();
        return absl::OkStatus();
      },
      [&](const Completion&) { completed = std::this_thread::get_id(); });
  EXPECT_EQ(stream->Enqueue(&task, Stream::Inline::kIfIdle), 1u);
  EXPECT_TRUE(task.finished());
  EXPECT_EQ(launched, std::this_thread::get_id());
  EXPECT_EQ(completed, std::this_thread::get_id());
  EXPECT_EQ(stream->timeline()->launched(), 1u);
}

TEST(CpuStreamTest, DoesNotRunInlineBehindOtherWork) {
  auto device = Cpu(1);
  auto stream = *device->CreateStream(0);
  Event entered, release;
  TestTask first([&](Stream&) {
    entered.Set();
    release.Wait();
    return absl::OkStatus();
  });
  stream->Enqueue(&first);
  entered.Wait();
  TestTask second;
  stream->Enqueue(&second, Stream::Inline::kIfIdle);
  EXPECT_EQ(second.launches(), 0);
  release.Set();
  EXPECT_EQ(second.Wait().sequence, 2u);
}

TEST(CpuStreamTest, InlineWorkThatEnqueuesInlineDoesNotNest) {
  auto device = Cpu(1);
  auto stream = *device->CreateStream(0);
  TestTask second;
  bool nested = false;
  TestTask first(nullptr, [&](const Completion&) {
    stream->Enqueue(&second, Stream::Inline::kIfIdle);
    nested = second.launches() != 0;
  });
  stream->Enqueue(&first, Stream::Inline::kIfIdle);
  EXPECT_TRUE(second.Wait().status.ok());
  EXPECT_FALSE(nested);
}

// One worker: each wait gives its place to the work that it waits for.
TEST(CpuStreamTest, WaitsNeverUseUpTheWorkers) {
  constexpr size_t kStreams = 16;
  auto device = Cpu(1);
  Event entered, release;
  TestTask gate([&](Stream&) {
    entered.Set();
    release.Wait();
    return absl::OkStatus();
  });
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<TestTask>> tasks;
  streams.push_back(*device->CreateStream(0));
  streams[0]->Enqueue(&gate);
  entered.Wait();
  std::vector<int> order;
  for (size_t i = 1; i <= kStreams; ++i) {
    streams.push_back(*device->CreateStream(i % 2 == 0 ? 0 : -5));
    const Point before{streams[i - 1]->timeline(), 1};
    tasks.push_back(
        std::make_unique<TestTask>([&order, before, i](Stream& stream) {
          const absl::Status status = stream.WaitOnDevice(before);
          order.push_back(static_cast<int>(i));
          return status;
        }));
    streams[i]->Enqueue(tasks.back().get());
  }
  release.Set();
  for (auto& task : tasks) EXPECT_TRUE(task->Wait().status.ok());
  gate.Wait();
  ASSERT_EQ(order.size(), kStreams);
  for (size_t i = 0; i < kStreams; ++i) {
    EXPECT_EQ(order[i], static_cast<int>(i) + 1);
  }
}

TEST(CpuStreamTest, OnALostDeviceNothingIsLaunched) {
  auto device = Cpu(1);
  auto stream = *device->CreateStream(0);
  Event entered, release;
  TestTask running([&](Stream&) {
    entered.Set();
    release.Wait();
    return absl::OkStatus();
  });
  TestTask behind, next;
  stream->Enqueue(&running);
  entered.Wait();
  stream->Enqueue(&behind);
  device->health().Poison(absl::InternalError("lost"));
  release.Set();
  EXPECT_FALSE(behind.Wait().outcome.ok());
  stream->Enqueue(&next);
  EXPECT_FALSE(next.Wait().outcome.ok());
  EXPECT_EQ(behind.launches() + next.launches(), 0);
  running.Wait();
}

// A device of one thread, which stands still until Go; tasks note in which
// order they run.
class CpuTurns : public ::testing::Test {
 protected:
  CpuTurns() {
    held_->Enqueue(&gate_);
    entered_.Wait();
  }

  auto Note(int i) {
    return [this, i](Stream&) {
      order_.push_back(i);
      return absl::OkStatus();
    };
  }
  void Go() {
    release_.Set();
    gate_.Wait();
  }

  const std::unique_ptr<Device> device_ = Cpu(1);
  const std::unique_ptr<Stream> held_ = *device_->CreateStream(0);
  Event entered_, release_;
  TestTask gate_{[this](Stream&) {
    entered_.Set();
    release_.Wait();
    return absl::OkStatus();
  }};
  std::vector<int> order_;  // the device's thread's
};

TEST_F(CpuTurns, UrgentStreamsGoFirst) {
  auto low = *device_->CreateStream(0);
  auto high = *device_->CreateStream(device_->info().greatest_priority);
  TestTask a(Note(1)), b(Note(2));
  low->Enqueue(&a);
  high->Enqueue(&b);
  Go();
  a.Wait();
  b.Wait();
  EXPECT_THAT(order_, testing::ElementsAre(2, 1));
}

TEST_F(CpuTurns, StreamsOfOnePriorityTakeThem) {
  auto one = *device_->CreateStream(0);
  auto other = *device_->CreateStream(0);
  TestTask a(Note(1)), b(Note(2)), c(Note(3)), d(Note(4));
  one->Enqueue(&a);
  one->Enqueue(&b);
  other->Enqueue(&c);
  other->Enqueue(&d);
  Go();
  for (TestTask* task : {&a, &b, &c, &d}) task->Wait();
  EXPECT_THAT(order_, testing::ElementsAre(1, 3, 2, 4));
}

TEST(CpuTeamTest, CoversTheRangeOnce) {
  auto device = Cpu(4);
  CpuTeam& team = *device->cpu_team();
  EXPECT_EQ(team.size(), 4);
  for (const int64_t n : {0, 1, 7, 64, 1000, 100003}) {
    for (const int64_t grain : {0, 1, 16, 5000}) {
      std::vector<std::atomic<int>> hits(static_cast<size_t>(n));
      team.Run(n, grain, [&](int64_t begin, int64_t end) {
        EXPECT_LT(begin, end);
        for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
      });
      for (const auto& hit : hits) ASSERT_EQ(hit, 1);
    }
  }
}

TEST(CpuTeamTest, SmallLoopsStayInTheCaller) {
  auto device = Cpu(4);
  int calls = 0;
  device->cpu_team()->Run(100, 100, [&](int64_t begin, int64_t end) {
    ++calls;
    EXPECT_EQ(begin, 0);
    EXPECT_EQ(end, 100);
  });
  EXPECT_EQ(calls, 1);
}

TEST(CpuTeamTest, OtherWorkersHelp) {
  auto device = Cpu(2);
  std::atomic<int> arrived{0};
  // Each part waits for the other, so that one thread alone would never end.
  device->cpu_team()->Run(2, 1, [&](int64_t, int64_t) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
  });
  EXPECT_EQ(arrived, 2);
}

TEST(CpuTeamTest, WorksOnEveryWorkerMayUseTheTeamAtOnce) {
  auto device = Cpu(2);
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<TestTask>> tasks;
  std::atomic<int64_t> sum{0};
  for (int i = 0; i < 6; ++i) {
    streams.push_back(*device->CreateStream(0));
    for (int k = 0; k < 10; ++k) {
      tasks.push_back(std::make_unique<TestTask>([&](Stream& stream) {
        CpuTeam& team = *stream.device().cpu_team();
        team.Run(64, 1, [&](int64_t begin, int64_t end) {
          team.Run(end - begin, 1, [&](int64_t b, int64_t e) { sum += e - b; });
        });
        return absl::OkStatus();
      }));
      streams.back()->Enqueue(tasks.back().get());
    }
  }
  for (auto& task : tasks) EXPECT_TRUE(task->Wait().status.ok());
  EXPECT_EQ(sum, 6 * 10 * 64);
}

}  // namespace
}  // namespace weir
