#include "kernels/device/cuda/cuda_device.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/thread_role.h"
#include "kernels/device/cpu/host_limits.h"
#include "kernels/device/cuda/cublaslt.h"
#include "kernels/device/cuda/cuda_status.h"
#include "kernels/device/cuda/cuda_stream.h"
#include "kernels/device/cuda/cudnn.h"
#include "kernels/device/cuda/nvjpeg.h"

namespace weir {
namespace {

constexpr char kKernelName[] = "weir_kernel";
constexpr uint64_t kKeptPoolBytes = uint64_t{64} << 20;
constexpr size_t kPinnedAlignment = 4096;
constexpr size_t kPackedPinnedBytes = size_t{2} << 20;
// The first that computes with bfloat16, which kernels and libraries take for
// granted.
constexpr int kLeastCapability = 80;

absl::Status NoDevice(const std::string& message) {
  return WithReason(absl::UnavailableError(message), "NO_CUDA_DEVICE");
}

std::string VersionString(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

struct FoundDriver {
  int version = 0;
  int gpus = 0;  // at least one
};

// Asks the driver itself before the runtime does, because the runtime gives the
// same error for a driver that is missing and one that is too old.
absl::StatusOr<FoundDriver> CheckDriver() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    return NoDevice("no NVIDIA driver: libcuda.so.1 cannot be opened");
  }
  using Init = CUresult(unsigned);
  using GetNumber = CUresult(int*);
  auto* init = reinterpret_cast<Init*>(dlsym(library, "cuInit"));
  auto* get_version =
      reinterpret_cast<GetNumber*>(dlsym(library, "cuDriverGetVersion"));
  auto* get_count =
      reinterpret_cast<GetNumber*>(dlsym(library, "cuDeviceGetCount"));
  if (init == nullptr || get_version == nullptr || get_count == nullptr) {
    return NoDevice("libcuda.so.1 is not NVIDIA's driver");
  }
  const CUresult initialized = init(0);
  if (initialized == CUDA_ERROR_NO_DEVICE ||
      initialized == CUDA_ERROR_STUB_LIBRARY) {
    return NoDevice("the NVIDIA driver finds no GPU");
  }
  FoundDriver found;
  if (get_version(&found.version) != CUDA_SUCCESS) found.version = 0;
  const std::string version = VersionString(found.version);
  if (found.version < CUDART_VERSION) {
    return absl::FailedPreconditionError(
        absl::StrCat("the NVIDIA driver supports CUDA ", version,
                     ", this build needs CUDA ", VersionString(CUDART_VERSION),
                     " (driver 580 or newer): update the driver"));
  }
  // Faults of what is installed, which no other GPU mends.
  if (initialized == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH ||
      initialized == CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the NVIDIA driver (CUDA ", version, ") does not start: error ",
        static_cast<int>(initialized),
        initialized == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
            ? ": libcuda.so.1 is not of the version of the kernel's module; "
              "load the module of the driver that is installed (restart the "
              "machine), and make containers anew"
            : ": libcuda.so.1 is of a compatibility package that does not "
              "support this GPU; remove the package, or its folder from "
              "LD_LIBRARY_PATH, and update the driver"));
  }
  if (initialized != CUDA_SUCCESS) {
    // As of a GPU that the process before this one has lost.
    return WithReason(
        absl::UnavailableError(absl::StrCat("the NVIDIA driver (CUDA ", version,
                                            ") does not start: error ",
                                            static_cast<int>(initialized))),
        kDeviceFaultReason);
  }
  WEIR_RETURN_IF_ERROR(CudaStartStatus(
      static_cast<cudaError_t>(get_count(&found.gpus)), "cuDeviceGetCount"));
  if (found.gpus == 0) return NoDevice("the NVIDIA driver finds no GPU");
  return found;
}

std::string UuidString(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    absl::StrAppendFormat(&text, "%02x",
                          static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

absl::StatusOr<DeviceInfo> Describe(int ordinal, int driver_version) {
  cudaDeviceProp properties;
  WEIR_CUDA_RETURN_IF_ERROR(cudaGetDeviceProperties(&properties, ordinal));
  int runtime_version = 0;
  WEIR_CUDA_RETURN_IF_ERROR(cudaRuntimeGetVersion(&runtime_version));
  DeviceInfo info;
  info.kind = DeviceKind::kCuda;
  info.pace = Pace::kSideBySide;
  info.ordinal = ordinal;
  info.uuid = UuidString(properties.uuid);
  info.name = properties.name;
  info.driver = absl::StrCat("CUDA driver ", VersionString(driver_version));
  info.runtime = absl::StrCat("CUDA runtime ", VersionString(runtime_version));
  info.total_memory = static_cast<int64_t>(properties.totalGlobalMem);
  info.multiprocessors = properties.multiProcessorCount;
  info.compute_capability = properties.major * 10 + properties.minor;
  WEIR_CUDA_RETURN_IF_ERROR(cudaDeviceGetStreamPriorityRange(
      &info.least_priority, &info.greatest_priority));
  return info;
}

// Both versions, as start-up errors name them.
std::string Versions(const DeviceInfo& info) {
  return absl::StrCat(info.driver, ", ", info.runtime);
}

// Told at start: later each program of bfloat16 would fail when it is planned.
absl::Status CheckCapability(const DeviceInfo& info) {
  const int capability = info.compute_capability;
  if (capability >= kLeastCapability) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      info.name, " has compute capability ", capability / 10, ".",
      capability % 10, "; weir needs ", kLeastCapability / 10, ".",
      kLeastCapability % 10, " or newer: choose another GPU, or the CPU"));
}

// Makes this the calling thread's device. The only place that does: what it
// remembers has to be what CUDA goes by, whichever devices take turns.
absl::Status MakeCurrent(int ordinal) {
  thread_local int current = -1;
  if (current == ordinal) return absl::OkStatus();
  current = -1;  // a call that fails may have changed it
  WEIR_CUDA_RETURN_IF_ERROR(cudaSetDevice(ordinal));
  current = ordinal;
  return absl::OkStatus();
}

// What the completion records are written with.
absl::Status CheckStreamOperations(const DriverApi& driver,
                                   const DeviceInfo& info) {
  CUdevice device = 0;
  WEIR_CUDA_RETURN_IF_ERROR(driver.device_get(&device, info.ordinal));
  int supported = 0;
  WEIR_CUDA_RETURN_IF_ERROR(driver.device_get_attribute(
      &supported, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, device));
  if (supported != 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(info.name, " with ", Versions(info),
                   " has no 64-bit stream memory operations"));
}

size_t HostScratchBytes(const DeviceOptions& options) {
  if (options.host_scratch_bytes > 0) return options.host_scratch_bytes;
  const int64_t host = AllowedMemory(HostFiles(), InstalledMemory());
  return static_cast<size_t>(host) / 8;
}

// Uploads come and go: keep their memory instead of giving it back each time.
absl::Status KeepPoolMemory(int ordinal) {
  cudaMemPool_t pool = nullptr;
  WEIR_CUDA_RETURN_IF_ERROR(cudaDeviceGetDefaultMemPool(&pool, ordinal));
  uint64_t threshold = kKeptPoolBytes;
  return WEIR_CUDA_CALL(cudaMemPoolSetAttribute(
      pool, cudaMemPoolAttrReleaseThreshold, &threshold));
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Create(
    int ordinal, const DeviceOptions& options) {
  // Streams beyond the hardware queues in use would wait for one another; the
  // driver's default is 8. Read once, when the driver starts.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  WEIR_ASSIGN_OR_RETURN(const FoundDriver found, CheckDriver());
  if (ordinal < 0 || ordinal >= found.gpus) {
    return WithReason(absl::InvalidArgumentError(absl::StrCat(
                          "there is no cuda:", ordinal, ": this machine has ",
                          found.gpus, found.gpus == 1 ? " GPU" : " GPUs")),
                      "NO_SUCH_CUDA_DEVICE");
  }
  WEIR_RETURN_IF_ERROR(
      CudaStartStatus(cudaInitDevice(ordinal, 0, 0), "cudaInitDevice"));
  WEIR_RETURN_IF_ERROR(MakeCurrent(ordinal));
  WEIR_ASSIGN_OR_RETURN(DeviceInfo info, Describe(ordinal, found.version));
  WEIR_RETURN_IF_ERROR(CheckCapability(info));
  DriverApi driver;
  WEIR_RETURN_IF_ERROR(driver.Load());
  WEIR_RETURN_IF_ERROR(CheckStreamOperations(driver, info));
  WEIR_RETURN_IF_ERROR(KeepPoolMemory(ordinal));
  // Found now, so that a machine that lacks them says so at start.
  absl::StatusOr<LibraryFile> nvrtc = Nvrtc::Find();
  if (!nvrtc.ok()) {
    return Annotate(nvrtc.status(),
                    absl::StrCat(info.name, " (", Versions(info), "): "));
  }
  absl::StatusOr<LibraryFile> cublaslt = cuda::CublasLt::Find();
  if (!cublaslt.ok()) {
    return Annotate(cublaslt.status(),
                    absl::StrCat(info.name, " (", Versions(info), "): "));
  }
  std::unique_ptr<CudaDevice> device(
      new CudaDevice(std::move(info), driver, *std::move(nvrtc),
                     *std::move(cublaslt), options));
  WEIR_CUDA_RETURN_IF_ERROR(
      cudaStreamCreateWithFlags(&device->setup_stream_, cudaStreamNonBlocking));
  return device;
}

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::CreateCompiler(
    int capability, const DeviceOptions& options, const DriverApi& driver) {
  WEIR_ASSIGN_OR_RETURN(LibraryFile nvrtc, Nvrtc::Find());
  DeviceInfo info;
  info.kind = DeviceKind::kCuda;
  info.pace = Pace::kSideBySide;
  info.name = "compiler";
  info.multiprocessors = 132;
  info.compute_capability = capability;
  WEIR_RETURN_IF_ERROR(CheckCapability(info));
  return std::unique_ptr<CudaDevice>(new CudaDevice(
      std::move(info), driver, std::move(nvrtc), LibraryFile(), options));
}

CudaDevice::CudaDevice(DeviceInfo info, DriverApi driver, LibraryFile nvrtc,
                       LibraryFile cublaslt, const DeviceOptions& options)
    : Device(std::move(info)),
      nvrtc_file_(std::move(nvrtc)),
      cublaslt_file_(std::move(cublaslt)),
      compiles_only_(cublaslt_file_.path.empty()),
      driver_(driver),
      host_scratch_(HostScratchBytes(options), static_cast<size_t>(CpuQuota()),
                    options.host_scratch_name) {
  kernels_ = std::make_unique<KernelCache>(
      options.cache_dir,
      absl::StrCat("nvrtc ", nvrtc_file_.build_id, " sm_",
                   info_.compute_capability),
      [this](const std::string& source) { return Compile(source); },
      [this](const std::string& image) { return LoadImage(image); });
  CompletionMonitor::Options monitor;
  monitor.hooks.note = options.note;
  monitor_ = std::make_unique<CompletionMonitor>(&health_, std::move(monitor));
}

CudaDevice::~CudaDevice() {
  monitor_->Stop();
  kernels_.reset();
  if (setup_stream_ != nullptr && Activate().ok()) {
    (void)cudaStreamDestroy(setup_stream_);
  }
}

absl::StatusOr<CudaDevice*> CudaDevice::From(Device& device) {
  auto* cuda = dynamic_cast<CudaDevice*>(&device.backend());
  if (cuda == nullptr) {
    return absl::UnimplementedError(absl::StrCat(
        DeviceName(device.info()), " is not made by the CUDA backend"));
  }
  return cuda;
}

absl::Status CudaDevice::Activate() { return MakeCurrent(info_.ordinal); }

void CudaDevice::Lose(const absl::Status& cause) { health_.Poison(cause); }

absl::Status CudaDevice::Report(const absl::Status& status) {
  if (!IsDeviceFault(status)) return status;
  Lose(status);
  return health_.status();
}

template <typename Call>
void CudaDevice::GiveBack(const Call& call) {
  if (health_.poisoned()) return;
  absl::Status status = Activate();
  if (status.ok()) status = call();
  Report(status).IgnoreError();  // there is nobody else to tell
}

absl::StatusOr<std::unique_ptr<Stream>> CudaDevice::CreateStream(int priority) {
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<CudaStream> stream,
                        CudaStream::Create(this, priority));
  return std::unique_ptr<Stream>(std::move(stream));
}

absl::StatusOr<int64_t> CudaDevice::QueryFreeMemory() {
  WEIR_RETURN_IF_ERROR(health_.status());
  WEIR_RETURN_IF_ERROR(Activate());
  ExpectMayWait("cudaMemGetInfo");
  size_t free = 0;
  size_t total = 0;
  // A fault that it meets is left to those whose work it cost: they name it.
  WEIR_CUDA_RETURN_IF_ERROR(cudaMemGetInfo(&free, &total));
  return static_cast<int64_t>(free);
}

absl::Status CudaDevice::Synchronize() {
  WEIR_RETURN_IF_ERROR(health_.status());
  WEIR_RETURN_IF_ERROR(Activate());
  const auto before = records_.Snapshot();
  ExpectMayWait("cudaDeviceSynchronize");
  WEIR_RETURN_IF_ERROR(Report(WEIR_CUDA_CALL(cudaDeviceSynchronize())));
  // The device is done; wait until the monitor has seen and told it.
  struct Pending {
    Mutex mu;
    CondVar none_left;
    size_t count WEIR_GUARDED_BY(mu) = 0;
  };
  auto pending = std::make_shared<Pending>();
  {
    MutexLock lock(&pending->mu);
    pending->count = before.size();
  }
  for (const auto& [timeline, value] : before) {
    timeline->OnReached(value, [pending](const absl::Status&) {
      MutexLock lock(&pending->mu);
      --pending->count;
      pending->none_left.NotifyAll();
    });
  }
  MutexLock lock(&pending->mu);
  while (pending->count > 0) pending->none_left.Wait(&pending->mu);
  return health_.status();
}

absl::StatusOr<std::shared_ptr<const void>> CudaDevice::Upload(const void* data,
                                                               size_t bytes) {
  if (bytes == 0 || compiles_only_) return std::shared_ptr<const void>();
  WEIR_RETURN_IF_ERROR(Activate());
  void* copy = nullptr;
  ExpectMayWait("cudaStreamSynchronize");
  const absl::Status taken =
      WEIR_CUDA_CALL(cudaMallocAsync(&copy, bytes, setup_stream_));
  if (!taken.ok()) {
    (void)cudaGetLastError();  // no memory is not sticky: forget it
    return Report(taken);
  }
  std::shared_ptr<const void> owner(copy, [this](const void* unused) {
    GiveBack([&] {
      return WEIR_CUDA_CALL(
          cudaFreeAsync(const_cast<void*>(unused), setup_stream_));
    });
  });
  WEIR_RETURN_IF_ERROR(Report(WEIR_CUDA_CALL(cudaMemcpyAsync(
      copy, data, bytes, cudaMemcpyHostToDevice, setup_stream_))));
  WEIR_RETURN_IF_ERROR(
      Report(WEIR_CUDA_CALL(cudaStreamSynchronize(setup_stream_))));
  return owner;
}

absl::StatusOr<std::string> CudaDevice::Compile(const std::string& source) {
  WEIR_ASSIGN_OR_RETURN(
      const Nvrtc* nvrtc,
      nvrtc_.Get([this]() -> absl::StatusOr<std::unique_ptr<Nvrtc>> {
        WEIR_ASSIGN_OR_RETURN(Nvrtc opened, Nvrtc::Open(nvrtc_file_));
        return std::make_unique<Nvrtc>(std::move(opened));
      }));
  return nvrtc->Compile(source, info_.compute_capability);
}

absl::StatusOr<cuda::CublasLt*> CudaDevice::cublaslt() {
  if (compiles_only_) {
    return absl::UnimplementedError("a compiler runs no matrix products");
  }
  WEIR_RETURN_IF_ERROR(Activate());
  return cublaslt_.Get([this] { return cuda::CublasLt::Open(cublaslt_file_); });
}

absl::StatusOr<cuda::Cudnn*> CudaDevice::cudnn() {
  WEIR_RETURN_IF_ERROR(Activate());
  WEIR_ASSIGN_OR_RETURN(cuda::Cudnn * opened,
                        cudnn_.Get([] { return cuda::Cudnn::Open(); }));
  size_t streams = 0;
  {
    MutexLock lock(&streams_mu_);
    opened_cudnn_ = opened;
    streams = streams_;
  }
  WEIR_RETURN_IF_ERROR(opened->ExpectLaunches(streams));
  return opened;
}

void CudaDevice::AddStream() {
  cuda::Cudnn* opened = nullptr;
  size_t streams = 0;
  {
    MutexLock lock(&streams_mu_);
    opened = opened_cudnn_;
    streams = ++streams_;
  }
  // What there is no memory for now is made by the launch that needs it.
  if (opened != nullptr) {
    Report(opened->ExpectLaunches(streams)).IgnoreError();
  }
}

void CudaDevice::RemoveStream() {
  MutexLock lock(&streams_mu_);
  --streams_;
}

absl::StatusOr<cuda::NvJpeg*> CudaDevice::nvjpeg() {
  WEIR_RETURN_IF_ERROR(Activate());
  WEIR_ASSIGN_OR_RETURN(cuda::NvJpeg * opened,
                        nvjpeg_.Get([] { return cuda::NvJpeg::Open(); }));
  opened_nvjpeg_.store(opened, std::memory_order_release);
  return opened;
}

bool CudaDevice::TrimOne(Nanos before) {
  if (health_.poisoned() || !Activate().ok()) return false;
  ExpectMayWait("CudaDevice::TrimOne");
  if (staged_copies_.TrimOne(before)) return true;
  cuda::NvJpeg* const nvjpeg = opened_nvjpeg_.load(std::memory_order_acquire);
  return nvjpeg != nullptr && nvjpeg->TrimOne(before);
}

absl::StatusOr<void*> CudaDevice::AllocateRaw(size_t bytes) {
  WEIR_RETURN_IF_ERROR(Activate());
  void* data = nullptr;
  const absl::Status status = WEIR_CUDA_CALL(cudaMalloc(&data, bytes));
  if (!status.ok()) {
    (void)cudaGetLastError();  // no memory is not sticky: forget it
    if (IsDeviceFault(status)) return Report(status);
    return Annotate(status,
                    absl::StrCat(bytes, " bytes on ", DeviceName(info_), ": "));
  }
  return data;
}

void CudaDevice::FreeRaw(void* data, size_t) {
  GiveBack([&] { return WEIR_CUDA_CALL(cudaFree(data)); });
}

// CUDA packs small pinned blocks, not always on pages of their own: they get a
// page more, and the block's own address is kept. To try without and give back
// what does not fit would wait for the device on a request's way.
absl::StatusOr<void*> CudaDevice::AllocatePinnedRaw(size_t bytes) {
  WEIR_RETURN_IF_ERROR(Activate());
  void* data = nullptr;
  const size_t extra = bytes < kPackedPinnedBytes ? kPinnedAlignment : 0;
  const absl::Status status = WEIR_CUDA_CALL(cudaHostAlloc(
      &data, bytes + extra, cudaHostAllocPortable | cudaHostAllocMapped));
  if (!status.ok()) {
    (void)cudaGetLastError();  // no memory is not sticky: forget it
    if (IsDeviceFault(status)) return Report(status);
    return Annotate(status, absl::StrCat(bytes, " pinned bytes: "));
  }
  const uintptr_t address = reinterpret_cast<uintptr_t>(data);
  if (address % kPinnedAlignment == 0) return data;
  if (extra == 0) {
    GiveBack([&] { return WEIR_CUDA_CALL(cudaFreeHost(data)); });
    return absl::InternalError(
        absl::StrCat(bytes, " pinned bytes do not begin at a page: ", address));
  }
  void* aligned = static_cast<std::byte*>(data) +
                  (kPinnedAlignment - address % kPinnedAlignment);
  MutexLock lock(&pinned_mu_);
  pinned_blocks_[aligned] = data;
  return aligned;
}

void CudaDevice::FreePinnedRaw(void* data, size_t) {
  {
    MutexLock lock(&pinned_mu_);
    auto block = pinned_blocks_.find(data);
    if (block != pinned_blocks_.end()) {
      data = block->second;
      pinned_blocks_.erase(block);
    }
  }
  GiveBack([&] { return WEIR_CUDA_CALL(cudaFreeHost(data)); });
}

absl::StatusOr<std::shared_ptr<const CudaFunction>> CudaDevice::LoadImage(
    const std::string& image) {
  if (compiles_only_) {
    return std::make_shared<const CudaFunction>(nullptr, nullptr, image.size(),
                                                [](CUmodule) {});
  }
  WEIR_RETURN_IF_ERROR(Activate());
  CUmodule module = nullptr;
  WEIR_RETURN_IF_ERROR(
      Report(WEIR_CUDA_CALL(driver_.module_load_data(&module, image.data()))));
  CUfunction function = nullptr;
  const absl::Status found = WEIR_CUDA_CALL(
      driver_.module_get_function(&function, module, kKernelName));
  auto unload = [this](CUmodule unused) {
    GiveBack([&] {
      ExpectMayWait("cuModuleUnload");
      return WEIR_CUDA_CALL(driver_.module_unload(unused));
    });
  };
  if (!found.ok()) {
    unload(module);
    return Report(found);
  }
  return std::make_shared<const CudaFunction>(module, function, image.size(),
                                              unload);
}

}  // namespace weir
