// How a launch waits, with no device that it could wait for.
#include "kernels/device/stream.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "kernels/backend/devices.h"
#include "kernels/base/error_info.h"
#include "kernels/base/thread_role.h"
#include "tests/device/fault_injecting_device.h"

namespace weir {
namespace {

// Notes what Await tells a backend.
class NotingStream final : public Stream {
 public:
  explicit NotingStream(Device* device)
      : Stream(std::make_shared<Timeline>("noting", device)), device_(device) {}

  Device& device() const override { return *device_; }
  uint64_t id() const override { return 1; }
  int priority() const override { return 0; }
  uint64_t Enqueue(StreamTask*, Inline) override { return 0; }
  absl::Status CopyToDevice(void*, const void*, size_t) override {
    return absl::OkStatus();
  }
  absl::Status CopyToHost(void*, const void*, size_t) override {
    return absl::OkStatus();
  }
  absl::Status CopyOnDevice(void*, const void*, size_t) override {
    return absl::OkStatus();
  }
  absl::Status Fill(void*, uint8_t, size_t) override {
    return absl::OkStatus();
  }
  absl::Status WaitOnDevice(const Point&) override { return absl::OkStatus(); }
  FaultSlot* fault_slot() override { return nullptr; }

  std::vector<bool> told;

 private:
  void SetAwaitsDevice(bool awaits) override { told.push_back(awaits); }

  Device* const device_;
};

class StreamAwaitTest : public ::testing::Test {
 protected:
  // What each look says; the last one for ever.
  absl::StatusOr<Awaited> Look() {
    const Awaited seen = looks_[at_];
    if (at_ + 1 < looks_.size()) ++at_;
    return seen;
  }
  absl::Status Await(Stream::GoOn go_on) {
    return stream_.Await([this] { return Look(); }, go_on);
  }

  std::unique_ptr<Device> device_ = MakeCpuDevice({.cpu_threads = 1});
  NotingStream stream_{device_.get()};
  std::vector<Awaited> looks_;
  size_t at_ = 0;
  int asked_ = 0;
};

TEST_F(StreamAwaitTest, WhatIsThereIsNotWaitedFor) {
  looks_ = {Awaited::kNothing};
  EXPECT_TRUE(Await([] { return absl::CancelledError("never asked"); }).ok());
  EXPECT_TRUE(stream_.told.empty());
}

TEST_F(StreamAwaitTest, TellsWhenTheDeviceIsAwaited) {
  looks_ = {Awaited::kHost, Awaited::kDevice, Awaited::kDevice,
            Awaited::kHost, Awaited::kDevice, Awaited::kNothing};
  EXPECT_TRUE(Await([this] {
                ++asked_;
                return absl::OkStatus();
              }).ok());
  EXPECT_EQ(asked_, 5);
  EXPECT_EQ(stream_.told, (std::vector<bool>{true, false, true, false}));
}

TEST_F(StreamAwaitTest, EndsWhenNobodyWaitsForIt) {
  looks_ = {Awaited::kDevice};
  EXPECT_EQ(Await([this] {
              return ++asked_ < 3 ? absl::OkStatus()
                                  : absl::DeadlineExceededError("too late");
            }),
            absl::DeadlineExceededError("too late"));
  EXPECT_EQ(stream_.told, (std::vector<bool>{true, false}));
}

TEST_F(StreamAwaitTest, EndsWithTheDevice) {
  looks_ = {Awaited::kDevice};
  const absl::Status lost = Await([this] {
    device_->health().Poison(absl::UnavailableError("CUDA error 719"));
    return absl::OkStatus();
  });
  EXPECT_EQ(Reason(lost), "DEVICE_POISONED");
  EXPECT_EQ(stream_.told, (std::vector<bool>{true, false}));
}

// However long it takes, and also if it takes no time: that is chance.
TEST_F(StreamAwaitTest, IsOutOfPlaceOnAThreadThatMayNotWait) {
  const auto fine = [] { return absl::OkStatus(); };
  for (const bool waits : {false, true}) {
    for (const auto& [role, misplaced] :
         {std::pair{ThreadRole::kLauncher, 0u}, {ThreadRole::kIo, 1u}}) {
      at_ = 0;
      looks_ = {Awaited::kNothing};
      if (waits) looks_ = {Awaited::kHost, Awaited::kHost, Awaited::kNothing};
      const ScopedThreadRole scoped(role);
      const uint64_t before = CountMisplacedWaits().count;
      EXPECT_TRUE(Await(fine).ok());
      EXPECT_EQ(CountMisplacedWaits().count, before + misplaced)
          << ThreadRoleName(role);
    }
  }
  EXPECT_EQ(CountMisplacedWaits().first, "Stream::Await on an I/O thread");
}

TEST_F(StreamAwaitTest, EndsWithWhatALookMeets) {
  int looks = 0;
  EXPECT_EQ(stream_.Await(
                [&]() -> absl::StatusOr<Awaited> {
                  if (++looks == 2) return absl::InternalError("an event");
                  return Awaited::kDevice;
                },
                [] { return absl::OkStatus(); }),
            absl::InternalError("an event"));
  EXPECT_EQ(stream_.told, (std::vector<bool>{true, false}));
}

}  // namespace
}  // namespace weir
