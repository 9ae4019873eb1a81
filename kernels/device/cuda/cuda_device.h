// One NVIDIA GPU. Owns what its streams and kernels share: driver functions,
// completion records, the monitor, the cache of compiled kernels, and NVIDIA's
// libraries, each opened when a program first needs it. Thread-safe.
//
// Once the device is lost none of its streams, memory and modules is given back
// to the driver: every call would fail, some of them slowly, and the process is
// about to end.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device/completion.h"
#include "kernels/device/cuda/driver_api.h"
#include "kernels/device/cuda/host_scratch.h"
#include "kernels/device/cuda/kernel_cache.h"
#include "kernels/device/cuda/nvrtc.h"
#include "kernels/device/cuda/opened_once.h"
#include "kernels/device/cuda/record_slab.h"
#include "kernels/device/cuda/staged_copy.h"
#include "kernels/device/device.h"
#include "kernels/device/device_options.h"

namespace weir {
namespace cuda {
class CublasLt;
class Cudnn;
class NvJpeg;
}  // namespace cuda

class CudaDevice final : public Device {
 public:
  // UNAVAILABLE with reason NO_CUDA_DEVICE without driver or GPU, with
  // DEVICE_FAULT if they answer nothing but errors; INVALID_ARGUMENT with
  // reason NO_SUCH_CUDA_DEVICE for an ordinal that does not exist;
  // FAILED_PRECONDITION naming both versions if the driver is too old or a
  // library is missing, with a remedy if the driver's parts do not fit one
  // another or the GPU, and for a GPU of compute capability below 8.0.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Create(
      int ordinal, const DeviceOptions& options);
  // Compiles kernels for `capability` (90 for 9.0) and runs nothing: needs
  // NVRTC but no GPU. Fills a kernel cache ahead of time, and proves in tests
  // that every generated kernel compiles, and by a pretended `driver` what it
  // is launched with.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> CreateCompiler(
      int capability, const DeviceOptions& options,
      const DriverApi& driver = {});
  ~CudaDevice() override;

  // The device as one of ours; UNIMPLEMENTED for any other.
  static absl::StatusOr<CudaDevice*> From(Device& device);

  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(int priority) override;
  bool host_addressable() const override { return false; }
  bool loads_late() const override { return true; }
  size_t quick_bytes() const override { return 0; }
  bool TrimOne(Nanos before) override;
  absl::StatusOr<int64_t> QueryFreeMemory() override;
  std::optional<KernelCacheStats> kernel_cache_stats() const override {
    return kernels_->stats();
  }
  absl::Status Synchronize() override;

  // Makes this the calling thread's device. Cheap when it is already.
  absl::Status Activate();

  // A sticky error was seen: latches it and fails what is in flight.
  void Lose(const absl::Status& cause);
  // What a driver call said, for those who asked for it. A sticky error loses
  // the device, and the answer is the root cause: the call has only met it.
  absl::Status Report(const absl::Status& status);

  // Bytes that kernels of a plan read: on the device when this returns, freed
  // in the background of a stream of the device's own. Off the hot path.
  absl::StatusOr<std::shared_ptr<const void>> Upload(const void* data,
                                                     size_t bytes);

  bool compiles_only() const { return compiles_only_; }
  const DriverApi& driver() const { return driver_; }
  RecordSlab& records() { return records_; }
  // For as long as a stream of this device lives. Launches of one stream follow
  // one another, so the libraries are made ready for one at a time from each.
  void AddStream();
  void RemoveStream();
  CompletionMonitor& monitor() { return *monitor_; }
  // Opened when first asked for, which takes a while: when programs are
  // compiled. FAILED_PRECONDITION or UNIMPLEMENTED naming the library.
  absl::StatusOr<cuda::CublasLt*> cublaslt();
  absl::StatusOr<cuda::Cudnn*> cudnn();
  absl::StatusOr<cuda::NvJpeg*> nvjpeg();
  cuda::StagedCopies& staged_copies() { return staged_copies_; }
  cuda::HostScratch& host_scratch() { return host_scratch_; }
  // Compiles (or finds) the one extern "C" kernel `weir_kernel` of `source`.
  KernelCache& kernels() { return *kernels_; }

 private:
  // `cublaslt` has no path if the device compiles only.
  CudaDevice(DeviceInfo info, DriverApi driver, LibraryFile nvrtc,
             LibraryFile cublaslt, const DeviceOptions& options);

  absl::StatusOr<std::string> Compile(const std::string& source);

  absl::StatusOr<void*> AllocateRaw(size_t bytes) override;
  void FreeRaw(void* data, size_t bytes) override;
  absl::StatusOr<void*> AllocatePinnedRaw(size_t bytes) override;
  void FreePinnedRaw(void* data, size_t bytes) override;

  absl::StatusOr<std::shared_ptr<const CudaFunction>> LoadImage(
      const std::string& image);
  // Gives something back by `call`, unless the device is lost.
  template <typename Call>
  void GiveBack(const Call& call);

  const LibraryFile nvrtc_file_;
  const LibraryFile cublaslt_file_;
  const bool compiles_only_;
  const DriverApi driver_;
  RecordSlab records_;
  cudaStream_t setup_stream_ = nullptr;  // for Upload; thread-safe in CUDA
  std::unique_ptr<KernelCache> kernels_;
  Mutex pinned_mu_;
  // Where an aligned address is not what CUDA gave.
  absl::flat_hash_map<void*, void*> pinned_blocks_ WEIR_GUARDED_BY(pinned_mu_);
  cuda::OpenedOnce<Nvrtc> nvrtc_;
  cuda::OpenedOnce<cuda::CublasLt> cublaslt_;
  cuda::OpenedOnce<cuda::Cudnn> cudnn_;
  cuda::OpenedOnce<cuda::NvJpeg> nvjpeg_;
  std::atomic<cuda::NvJpeg*> opened_nvjpeg_ = nullptr;
  Mutex streams_mu_;
  size_t streams_ WEIR_GUARDED_BY(streams_mu_) = 0;
  cuda::Cudnn* opened_cudnn_ WEIR_GUARDED_BY(streams_mu_) = nullptr;
  cuda::StagedCopies staged_copies_;
  cuda::HostScratch host_scratch_;
  std::unique_ptr<CompletionMonitor> monitor_;
};

}  // namespace weir
