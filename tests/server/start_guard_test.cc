// Starts whose device is lost, or not there.
#include "server/start_guard.h"

#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/base/error_info.h"
#include "server/server.h"
#include "tests/base/event.h"
#include "tests/graph/plan_runner.h"
#include "tests/server/server_fixture.h"

namespace weir::testing {
namespace {

constexpr char kLoss[] = "an illegal address";
constexpr absl::Duration kNever = absl::Hours(1);

// As a GPU whose context a process has lost, which the first stream meets.
class LostDevice final : public FarDevice {
 public:
  // Its driver does not come back from what it is given back with, until
  // `released`.
  LostDevice(int ordinal, Event* released)
      : FarDevice(ordinal), released_(released) {}
  ~LostDevice() override { released_->Wait(); }

  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(int) override {
    health_.Poison(WithReason(absl::UnavailableError(kLoss), "DEVICE_FAULT"));
    return health_.status();
  }

 private:
  Event* const released_;
};

ServerOptions WithDevices(DeviceFactory make_device) {
  ServerOptions options = TestOptions();
  options.devices = {"cuda:0", "cuda:1"};
  options.isolation = "none";
  options.make_device = std::move(make_device);
  return options;
}

// The second of two is lost.
DeviceFactory MakeOneLost(Event* released) {
  return [released](std::string_view which, const DeviceOptions&,
                    OpRegistry&) -> absl::StatusOr<std::unique_ptr<Device>> {
    if (which == "cuda:0") return std::make_unique<FarDevice>(0);
    return std::make_unique<LostDevice>(1, released);
  };
}

TEST(StartGuardTest, ALossWhileEnginesAreMadeFailsAsWithoutTheDevice) {
  Event released;
  released.Set();
  StartGuard guard(kNever,
                   [](const absl::Status& status) { ADD_FAILURE() << status; });
  ServerOptions options = WithDevices(MakeOneLost(&released));
  options.make_device = guard.Watch(std::move(options.make_device));
  const absl::Status status = Server::Open(options).status();
  EXPECT_TRUE(IsDeviceMissing(status)) << status;
  EXPECT_EQ(status.message(),
            "--device=cuda:1: the device is lost: an illegal address");
}

// The test's process does not end: what hangs goes on instead.
TEST(StartGuardTest, ADriverThatDoesNotComeBackHoldsNoStart) {
  Event released;
  absl::Status told;
  StartGuard guard(absl::Milliseconds(1), [&](const absl::Status& status) {
    told = status;
    released.Set();
  });
  ServerOptions options = WithDevices(MakeOneLost(&released));
  options.make_device = guard.Watch(std::move(options.make_device));
  EXPECT_TRUE(IsDeviceMissing(Server::Open(options).status()));
  guard.Over();
  EXPECT_TRUE(IsDeviceMissing(told)) << told;
  EXPECT_EQ(told.message(),
            "--device=cuda:1: the device is lost: an illegal address");
}

// One driver has all of them.
TEST(StartGuardTest, NorDoesItWithADeviceBesideOneThatIsMissing) {
  Event released;
  absl::Status told;
  StartGuard guard(absl::Milliseconds(1), [&](const absl::Status& status) {
    told = status;
    released.Set();
  });
  ServerOptions options = WithDevices(
      guard.Watch([&](std::string_view which, const DeviceOptions&,
                      OpRegistry&) -> absl::StatusOr<std::unique_ptr<Device>> {
        if (which == "cuda:0")
          return std::make_unique<LostDevice>(0, &released);
        return WithReason(absl::UnavailableError("it fell off the bus"),
                          "DEVICE_FAULT");
      }));
  EXPECT_TRUE(IsDeviceMissing(Server::Open(options).status()));
  guard.Over();
  EXPECT_EQ(told.message(), "--device=cuda:1: it fell off the bus");
}

TEST(StartGuardTest, ALaterLossIsNoneOfTheStart) {
  Device* device = nullptr;
  Event told;
  StartGuard guard(absl::ZeroDuration(),
                   [&](const absl::Status&) { told.Set(); });
  ServerOptions options = WithDevices(
      guard.Watch([&](std::string_view which, const DeviceOptions&,
                      OpRegistry&) -> absl::StatusOr<std::unique_ptr<Device>> {
        auto made = std::make_unique<FarDevice>(which == "cuda:1" ? 1 : 0);
        device = made.get();
        return made;
      }));
  auto server = Server::Open(options);
  ASSERT_TRUE(server.ok()) << server.status();
  guard.Over();
  device->health().Poison(absl::UnavailableError("lost"));
  EXPECT_FALSE((*server)->device_status().ok());
  server->reset();
  EXPECT_EQ(told.count(), 0u);
}

}  // namespace
}  // namespace weir::testing
