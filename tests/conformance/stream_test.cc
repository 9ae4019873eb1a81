#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <set>
#include <vector>

#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "tests/conformance/device_conformance.h"

namespace weir {
namespace {

class StreamConformance : public DeviceConformance {};

TEST_P(StreamConformance, WorkRunsInTheOrderOfItsSequence) {
  constexpr size_t kWorks = 40;
  auto stream = MakeStream();
  auto memory = *device().Allocate(64);
  auto host = *device().AllocatePinned(kWorks);
  std::vector<std::unique_ptr<TestTask>> tasks;
  std::vector<uint64_t> completed;
  for (size_t i = 0; i < kWorks; ++i) {
    tasks.push_back(std::make_unique<TestTask>(
        [&, i](Stream& s) -> absl::Status {
          WEIR_RETURN_IF_ERROR(
              s.Fill(memory.data(), static_cast<uint8_t>(i), 64));
          return s.CopyToHost(host.data() + i, memory.data(), 1);
        },
        [&](const Completion& completion) {
          completed.push_back(completion.sequence);
        }));
    EXPECT_EQ(stream->Enqueue(tasks.back().get()), i + 1);
  }
  for (auto& task : tasks) EXPECT_TRUE(task->Wait().status.ok());
  for (size_t i = 0; i < kWorks; ++i) {
    EXPECT_EQ(host.data()[i], static_cast<std::byte>(i));
    EXPECT_EQ(completed[i], i + 1);
  }
  EXPECT_TRUE(stream->idle());
}

// More than any native queue holds, in a thread that may wait.
TEST_P(StreamConformance, ManyLaunchesWaitForRoom) {
  constexpr int kLaunches = 8000;
  auto stream = MakeStream();
  auto memory = *device().Allocate(64);
  auto host = *device().AllocatePinned(64);
  EXPECT_TRUE(RunOn(*stream, [&](Stream& s) -> absl::Status {
                for (int i = 1; i <= kLaunches; ++i) {
                  WEIR_RETURN_IF_ERROR(
                      s.Fill(memory.data(), static_cast<uint8_t>(i), 64));
                  if (i % 256 != 0) continue;
                  WEIR_RETURN_IF_ERROR(
                      s.WaitForRoom([] { return absl::OkStatus(); }));
                }
                return s.CopyToHost(host.data(), memory.data(), 64);
              }).ok());
  EXPECT_EQ(host.data()[63], static_cast<std::byte>(kLaunches & 0xff));
}

TEST_P(StreamConformance, IdsAreUniqueAndNeverUsedAgain) {
  std::set<uint64_t> ids;
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(ids.insert(MakeStream()->id()).second);
  }
  EXPECT_EQ(ids.count(0), 0u);
}

TEST_P(StreamConformance, PrioritiesHaveBounds) {
  const DeviceInfo& info = device().info();
  EXPECT_LE(info.greatest_priority, info.least_priority);
  EXPECT_EQ(MakeStream(info.greatest_priority)->priority(),
            info.greatest_priority);
  EXPECT_EQ(device().CreateStream(info.greatest_priority - 1).status().code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ(device().CreateStream(info.least_priority + 1).status().code(),
            absl::StatusCode::kOutOfRange);
}

TEST_P(StreamConformance, AHeldStreamHoldsNoOther) {
  auto held = MakeStream();
  auto gate = MakeDeviceGate();
  TestTask blocked([&](Stream& stream) { return gate->Hold(stream); });
  TestTask behind;
  held->Enqueue(&blocked);
  held->Enqueue(&behind);
  for (int i = 0; i < 4; ++i) {
    auto other = MakeStream();
    EXPECT_TRUE(RunOn(*other, nullptr).ok());
  }
  EXPECT_FALSE(blocked.finished());
  EXPECT_FALSE(behind.finished());
  EXPECT_FALSE(held->idle());
  gate->Open();
  EXPECT_TRUE(blocked.Wait().status.ok());
  EXPECT_TRUE(behind.Wait().status.ok());
}

TEST_P(StreamConformance, LaunchedComesBeforeReached) {
  auto stream = MakeStream();
  auto gate = MakeDeviceGate();
  TestTask first([&](Stream& s) { return gate->Hold(s); });
  TestTask second;
  const Timeline& timeline = *stream->timeline();
  EXPECT_EQ(timeline.launched(), 0u);
  stream->Enqueue(&first);
  stream->Enqueue(&second);
  EXPECT_EQ(timeline.launched(), 2u);
  EXPECT_EQ(timeline.value(), 0u);
  EXPECT_EQ(timeline.device(), &device());
  EXPECT_EQ(stream->last_sequence(), 2u);
  gate->Open();
  second.Wait();
  EXPECT_EQ(timeline.value(), 2u);
}

TEST_P(StreamConformance, ThePointIsReachedBeforeComplete) {
  auto stream = MakeStream();
  auto gate = MakeDeviceGate();
  std::vector<int> order;
  TestTask task([&](Stream& s) { return gate->Hold(s); },
                [&](const Completion& completion) {
                  order.push_back(2);
                  EXPECT_EQ(stream->timeline()->value(), completion.sequence);
                  EXPECT_TRUE(stream->idle());
                });
  stream->Enqueue(&task);
  stream->timeline()->OnReached(1, [&](absl::Status status) {
    EXPECT_TRUE(status.ok());
    order.push_back(1);
  });
  gate->Open();
  task.Wait();
  EXPECT_THAT(order, testing::ElementsAre(1, 2));
}

TEST_P(StreamConformance, TimesGrow) {
  auto stream = MakeStream();
  TestTask task;
  const Nanos before = NowNanos();
  stream->Enqueue(&task);
  const Completion& completion = task.Wait();
  EXPECT_LE(before, completion.enqueued_at);
  EXPECT_LE(completion.enqueued_at, completion.launched_at);
  EXPECT_LE(completion.launched_at, completion.completed_at);
  EXPECT_LE(completion.completed_at, NowNanos());
}

TEST_P(StreamConformance, AWaitOnTheDeviceOrdersTwoStreams) {
  auto writer = MakeStream();
  auto reader = MakeStream();
  auto gate = MakeDeviceGate();
  auto memory = *device().Allocate(16);
  auto host = *device().AllocatePinned(16);
  ASSERT_TRUE(RunOn(*writer, [&](Stream& s) {
                return s.Fill(memory.data(), 1, 16);
              }).ok());
  TestTask write([&](Stream& s) -> absl::Status {
    WEIR_RETURN_IF_ERROR(gate->Hold(s));
    return s.Fill(memory.data(), 2, 16);
  });
  const uint64_t written = writer->Enqueue(&write);
  TestTask read([&](Stream& s) -> absl::Status {
    WEIR_RETURN_IF_ERROR(s.WaitOnDevice({writer->timeline(), written}));
    return s.CopyToHost(host.data(), memory.data(), 16);
  });
  reader->Enqueue(&read);
  EXPECT_FALSE(read.finished());
  gate->Open();
  EXPECT_TRUE(read.Wait().status.ok());
  EXPECT_TRUE(write.Wait().status.ok());
  EXPECT_EQ(host.data()[15], std::byte{2});
}

TEST_P(StreamConformance, OnlyReachedOrLaunchedPointsCanBeWaitedFor) {
  auto stream = MakeStream();
  auto other = MakeStream();
  auto host = std::make_shared<Timeline>("host");
  ASSERT_TRUE(host->Advance(1).ok());
  ASSERT_TRUE(host->Advance(2, absl::AbortedError("failed")).ok());
  auto wait = [&](Point point) {
    return RunOn(*stream, [point](Stream& s) { return s.WaitOnDevice(point); });
  };
  EXPECT_TRUE(wait(Point()).ok());
  EXPECT_TRUE(wait({host, 1}).ok());
  EXPECT_EQ(wait({host, 2}), absl::AbortedError("failed"));
  EXPECT_EQ(wait({host, 3}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(wait({other->timeline(), 1}).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(RunOn(*other, nullptr).ok());
  EXPECT_TRUE(wait({other->timeline(), 1}).ok());
  EXPECT_TRUE(wait({stream->timeline(), 1}).ok());
}

TEST_P(StreamConformance, AFailedWorkLeavesTheStreamGoing) {
  auto stream = MakeStream();
  TestTask before, after;
  TestTask bad([](Stream&) { return absl::InvalidArgumentError("bad data"); });
  stream->Enqueue(&before);
  stream->Enqueue(&bad);
  stream->Enqueue(&after);
  EXPECT_TRUE(before.Wait().status.ok());
  EXPECT_EQ(bad.Wait().status, absl::InvalidArgumentError("bad data"));
  EXPECT_TRUE(after.Wait().status.ok());
  EXPECT_EQ(stream->timeline()->Outcome(1), absl::OkStatus());
  EXPECT_EQ(stream->timeline()->Outcome(2),
            absl::InvalidArgumentError("bad data"));
  EXPECT_EQ(stream->timeline()->Outcome(3), absl::OkStatus());
  EXPECT_TRUE(stream->Check().ok());
  EXPECT_FALSE(device().health().poisoned());
}

TEST_P(StreamConformance, AWorkMayEnqueueTheNextWhenItCompletes) {
  constexpr uint64_t kLinks = 200;
  auto stream = MakeStream();
  Event done;
  // A task may be used again once Complete has returned, so two alternate.
  struct Link : StreamTask {
    absl::Status Launch(Stream&) override { return absl::OkStatus(); }
    void Complete(const Completion&) override {
      if (stream->last_sequence() < kLinks) {
        stream->Enqueue(other);
      } else {
        done->Set();
      }
    }
    Stream* stream;
    StreamTask* other;
    Event* done;
  };
  Link a, b;
  a.stream = b.stream = stream.get();
  a.done = b.done = &done;
  a.other = &b;
  b.other = &a;
  stream->Enqueue(&a);
  done.Wait();
  EXPECT_EQ(stream->last_sequence(), kLinks);
}

TEST_P(StreamConformance, AnIdleStreamMayBeDestroyedDuringComplete) {
  auto stream = MakeStream();
  Event entered, leave;
  TestTask task(nullptr, [&](const Completion&) {
    entered.Set();
    leave.Wait();
  });
  stream->Enqueue(&task);
  entered.Wait();
  EXPECT_TRUE(stream->idle());
  stream.reset();
  leave.Set();
  EXPECT_TRUE(task.Wait().status.ok());
}

TEST_P(StreamConformance, TooManyUnfinishedWorksAreRefused) {
  auto stream = MakeStream();
  auto gate = MakeDeviceGate();
  std::array<TestTask, Stream::kMaxUnfinished - 1> tasks;
  TestTask first([&](Stream& s) { return gate->Hold(s); });
  TestTask surplus;
  stream->Enqueue(&first);
  for (TestTask& task : tasks) stream->Enqueue(&task);
  stream->Enqueue(&surplus);
  gate->Open();
  for (TestTask& task : tasks) EXPECT_TRUE(task.Wait().status.ok());
  EXPECT_TRUE(first.Wait().status.ok());
  EXPECT_EQ(surplus.Wait().status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Reason(surplus.Wait().status), "STREAM_FULL");
  EXPECT_EQ(surplus.launches(), 0);
  EXPECT_TRUE(RunOn(*stream, nullptr).ok());
}

TEST_P(StreamConformance, SynchronizeJoinsEveryStream) {
  auto a = MakeStream();
  auto b = MakeStream();
  std::array<TestTask, 20> tasks;
  for (size_t i = 0; i < tasks.size(); ++i) {
    (i % 2 == 0 ? a : b)->Enqueue(&tasks[i]);
  }
  EXPECT_TRUE(device().Synchronize().ok());
  EXPECT_TRUE(a->idle());
  EXPECT_TRUE(b->idle());
  for (TestTask& task : tasks) task.Wait();
}

WEIR_INSTANTIATE_CONFORMANCE(StreamConformance);

}  // namespace
}  // namespace weir
