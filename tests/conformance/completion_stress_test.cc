#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/base/error_info.h"
#include "tests/conformance/device_conformance.h"

namespace weir {
namespace {

class CompletionConformance : public DeviceConformance {};

// Every work is completed once, with its own status and its own sequence.
TEST_P(CompletionConformance, ExactlyOnceUnderStress) {
  constexpr int kThreads = 8;
  constexpr uint64_t kWorks = 10000;
  constexpr size_t kInFlight = 32;
  std::atomic<uint64_t> completed{0}, wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      auto stream = MakeStream();
      std::vector<std::unique_ptr<TestTask>> ring(kInFlight);
      for (uint64_t n = 1; n <= kWorks; ++n) {
        auto& task = ring[n % kInFlight];
        if (task != nullptr) task->Wait();
        task = std::make_unique<TestTask>(
            [n](Stream&) {
              return n % 7 == 0 ? absl::InvalidArgumentError("seventh")
                                : absl::OkStatus();
            },
            [&, n](const Completion& completion) {
              ++completed;
              if (completion.sequence != n) ++wrong;
              if (completion.status.ok() != (n % 7 != 0)) ++wrong;
            });
        stream->Enqueue(task.get(), n % 2 == 0 ? Stream::Inline::kIfIdle
                                               : Stream::Inline::kNever);
      }
      for (auto& task : ring) {
        task->Wait();
        if (task->completions() != 1) ++wrong;
      }
      if (!stream->idle()) ++wrong;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(completed, kThreads * kWorks);
}

class PoisonConformance : public DeviceConformance {};

TEST_P(PoisonConformance, ALostDeviceRefusesEverythingWithTheRootCause) {
  auto lost = MakeAnother();
  ASSERT_TRUE(lost.ok()) << lost.status();
  Device& device = **lost;
  auto stream = *device.CreateStream(0);
  ASSERT_TRUE(RunOn(*stream, nullptr).ok());
  device.health().Poison(absl::InternalError("the first cause"));
  device.health().Poison(absl::InternalError("a later one"));

  TestTask task;
  stream->Enqueue(&task);
  const absl::Status status = task.Wait().status;
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Reason(status), "DEVICE_POISONED");
  EXPECT_NE(status.message().find("the first cause"), std::string::npos);
  EXPECT_EQ(task.launches(), 0);
  EXPECT_EQ(Reason(device.CreateStream(0).status()), "DEVICE_POISONED");
  EXPECT_EQ(Reason(device.Allocate(64).status()), "DEVICE_POISONED");
  EXPECT_EQ(Reason(device.AllocatePinned(64).status()), "DEVICE_POISONED");
  EXPECT_EQ(Reason(stream->Check()), "DEVICE_POISONED");
}

TEST_P(PoisonConformance, WorkInFlightEndsExactlyOnce) {
  auto lost = MakeAnother();
  ASSERT_TRUE(lost.ok()) << lost.status();
  Device& device = **lost;
  auto stream = *device.CreateStream(0);
  auto gate = MakeGate(device);
  TestTask first([&](Stream& s) { return gate->Hold(s); });
  std::array<TestTask, 10> behind;
  stream->Enqueue(&first);
  for (TestTask& task : behind) stream->Enqueue(&task);
  device.health().Poison(absl::InternalError("gone"));
  if (device.host_addressable()) {
    gate->Open();  // what runs on the host ends by itself
  } else {
    // The rest fails without waiting for the device: once the gate is open,
    // records may arrive and count as done.
    for (TestTask& task : behind) task.Wait();
    gate->Open();
  }
  first.Wait();
  for (TestTask& task : behind) {
    EXPECT_EQ(Reason(task.Wait().status), "DEVICE_POISONED");
  }
  for (TestTask& task : behind) EXPECT_EQ(task.completions(), 1u);
  EXPECT_EQ(first.completions(), 1u);
}

WEIR_INSTANTIATE_CONFORMANCE(CompletionConformance);
WEIR_INSTANTIATE_CONFORMANCE(PoisonConformance);

}  // namespace
}  // namespace weir
