#include "tests/conformance/device_conformance.h"

#include <map>
#include <utility>

#include "kernels/backend/devices.h"
#include "kernels/base/error_info.h"
#include "kernels/ops/registry.h"

namespace weir {
namespace {

// Enough workers that held streams leave room for others.
constexpr int kCpuThreads = 4;

// A device and the registry that must outlive it.
struct Made {
  std::unique_ptr<OpRegistry> ops;
  absl::StatusOr<std::unique_ptr<Device>> device;
};

Made Make(const char* which) {
  Made made{MakeOpRegistry(), absl::UnknownError("")};
  DeviceOptions options;
  options.cpu_threads = kCpuThreads;
  made.device = MakeDevice(which, options, *made.ops);
  return made;
}

}  // namespace

void DeviceConformance::SetUp() {
  static std::map<std::string, Made>* const devices =
      new std::map<std::string, Made>;
  auto found = devices->find(GetParam());
  if (found == devices->end()) {
    found = devices->emplace(GetParam(), Make(GetParam())).first;
  }
  const auto& device = found->second.device;
  if (!device.ok() && Reason(device.status()) == "NO_CUDA_DEVICE") {
    GTEST_SKIP() << device.status().message();
  }
  ASSERT_TRUE(device.ok()) << device.status();
  device_ = device->get();
}

absl::StatusOr<std::unique_ptr<Device>> DeviceConformance::MakeAnother() {
  Made made = Make(GetParam());
  // Kernels may be used until the device is gone, so the registry stays.
  static auto* const registries = new std::vector<std::unique_ptr<OpRegistry>>;
  registries->push_back(std::move(made.ops));
  return std::move(made.device);
}

std::unique_ptr<Stream> DeviceConformance::MakeStream(int priority) {
  auto stream = device().CreateStream(priority);
  EXPECT_TRUE(stream.ok()) << stream.status();
  return *std::move(stream);
}

absl::Status DeviceConformance::RunOn(Stream& stream,
                                      TestTask::LaunchFunction launch) {
  TestTask task(std::move(launch));
  stream.Enqueue(&task);
  return task.Wait().status;
}

}  // namespace weir
