#include "tests/conformance/gate.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/base/event.h"

namespace weir {
namespace {

class HostGate final : public DeviceGate {
 public:
  absl::Status Hold(Stream&) override {
    open_.Wait();
    return absl::OkStatus();
  }
  void Open() override { open_.Set(); }

 private:
  Event open_;
};

// cuStreamWaitValue64 on the pinned word, straight from the driver: pinned
// memory has the same address on both sides.
class CudaGate final : public DeviceGate {
 public:
  explicit CudaGate(PinnedMemory memory)
      : memory_(std::move(memory)),
        word_(new (memory_.data()) std::atomic<uint64_t>(0)) {}

  absl::Status Hold(Stream& stream) override {
    using WaitValue = int(void*, unsigned long long, uint64_t, unsigned);
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == nullptr) return absl::UnavailableError(dlerror());
    auto* wait =
        reinterpret_cast<WaitValue*>(dlsym(driver, "cuStreamWaitValue64_v2"));
    if (wait == nullptr) return absl::UnavailableError(dlerror());
    constexpr unsigned kGreaterOrEqual = 0;
    const int result = (*wait)(stream.native_handle(),
                               reinterpret_cast<uintptr_t>(memory_.data()), 1,
                               kGreaterOrEqual);
    if (result == 0) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat("cuStreamWaitValue64 failed with ", result));
  }
  void Open() override { word_->store(1); }

 private:
  PinnedMemory memory_;
  std::atomic<uint64_t>* const word_;
};

}  // namespace

std::unique_ptr<DeviceGate> MakeGate(Device& device) {
  if (device.info().kind == DeviceKind::kCpu) {
    return std::make_unique<HostGate>();
  }
  return std::make_unique<CudaGate>(
      device.AllocatePinned(sizeof(std::atomic<uint64_t>)).value());
}

}  // namespace weir
