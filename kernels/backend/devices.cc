#include "kernels/backend/devices.h"

#include <dlfcn.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/backend/cuda_backend.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/build_info.h"
#include "kernels/base/error_info.h"
#include "kernels/device/cpu/cpu_device.h"
#include "kernels/device/cpu/host_limits.h"
#include "kernels/device/cuda_name.h"
#include "kernels/device/health.h"

namespace weir {
namespace {

constexpr char kNoCudaDevice[] = "NO_CUDA_DEVICE";
constexpr char kNoSuchCudaDevice[] = "NO_SUCH_CUDA_DEVICE";
constexpr char kDeviceFault[] = "DEVICE_FAULT";

// Any sign of an NVIDIA device: the driver's node, or its library (which is all
// there is under WSL).
bool NvidiaDriverPresent() {
  if (access("/dev/nvidiactl", F_OK) == 0) return true;
  return dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != nullptr;
}

std::string LibraryFolder() {
  Dl_info self;
  if (dladdr(reinterpret_cast<void*>(&BuildId), &self) == 0) return "";
  std::error_code ignored;
  return std::filesystem::weakly_canonical(self.dli_fname, ignored)
      .parent_path()
      .string();
}

// Opened once and never closed: its kernels and static objects live on.
absl::StatusOr<CudaOpenFunction*> OpenBackend() {
  const std::string folder = LibraryFolder();
  const std::string path = folder + "/" + kCudaBackendLibrary;
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    return WithReason(
        absl::FailedPreconditionError(absl::StrCat(
            "there is an NVIDIA driver, but weir's CUDA backend cannot be "
            "loaded: ",
            dlerror())),
        "CUDA_BACKEND_MISSING", {{"path", path}});
  }
  void* open = dlsym(library, kCudaOpenSymbol);
  if (open == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " has no function ", kCudaOpenSymbol));
  }
  return reinterpret_cast<CudaOpenFunction*>(open);
}

absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(
    int ordinal, const DeviceOptions& options, OpRegistry& ops) {
  if (!NvidiaDriverPresent()) {
    return WithReason(
        absl::UnavailableError("there is no NVIDIA device: neither "
                               "/dev/nvidiactl nor libcuda.so.1 exists"),
        kNoCudaDevice);
  }
  absl::StatusOr<CudaOpenFunction*> open = OpenBackend();
  if (!open.ok()) return open.status();
  CudaBackendRequest request;
  request.ordinal = ordinal;
  request.options = &options;
  request.ops = &ops;
  CudaBackendReply reply;
  const int code = (**open)(kBuildId, &request, &reply);
  if (code == 0) return std::unique_ptr<Device>(reply.device);
  absl::Status status(static_cast<absl::StatusCode>(code), reply.message);
  if (reply.reason[0] != '\0') {
    status = WithReason(std::move(status), reply.reason);
  }
  return status;
}

}  // namespace

std::string_view BuildId() { return kBuildId; }

bool IsDeviceMissing(const absl::Status& status) {
  const std::string reason = Reason(status);
  return reason == kNoCudaDevice || reason == kNoSuchCudaDevice ||
         reason == kDeviceFault || IsDeviceLoss(status);
}

std::unique_ptr<Device> MakeCpuDevice(const DeviceOptions& options) {
  const int threads =
      options.cpu_threads > 0 ? options.cpu_threads : CpuQuota();
  return std::make_unique<CpuDevice>(
      threads, AllowedMemory(HostFiles(), InstalledMemory()),
      options.streams_wait, options.cpu_ordinal);
}

absl::StatusOr<std::unique_ptr<Device>> MakeDevice(std::string_view which,
                                                   const DeviceOptions& options,
                                                   OpRegistry& ops) {
  if (which == "cpu") return MakeCpuDevice(options);
  if (which == "auto") {
    auto device = MakeCudaDevice(0, options, ops);
    if (device.ok() || Reason(device.status()) != kNoCudaDevice) return device;
    return MakeCpuDevice(options);
  }
  if (const std::optional<int> ordinal = CudaOrdinal(which)) {
    return MakeCudaDevice(*ordinal, options, ops);
  }
  return InvalidField(
      "device", absl::StrCat("\"", AbslView(which),
                             "\" is no device: use auto, cpu, cuda or cuda:N"));
}

}  // namespace weir
