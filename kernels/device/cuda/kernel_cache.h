// Kernels compiled from generated source and loaded on one device. Single
// flight: callers that want the same text wait for one compilation. Compiles
// off the hot path (Kernel::Plan). Keeps the latest kMaxKernels, and no more of
// their text and images than kMaxBytes; a kernel that a plan holds stays
// loaded, and counts with the plan (CudaFunction::held_bytes). Thread-safe.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "kernels/base/mutex.h"
#include "kernels/device/cuda/cubin_cache.h"
#include "kernels/device/device.h"

namespace weir {

// A loaded module with one kernel.
class CudaFunction {
 public:
  using Unload = absl::AnyInvocable<void(CUmodule)>;
  CudaFunction(CUmodule module, CUfunction function, size_t image_bytes,
               Unload unload)
      : module_(module),
        function_(function),
        image_bytes_(image_bytes),
        unload_(std::move(unload)) {}
  ~CudaFunction() { unload_(module_); }
  CudaFunction(const CudaFunction&) = delete;
  CudaFunction& operator=(const CudaFunction&) = delete;

  CUfunction get() const { return function_; }

  // The driver's own objects on the host, of which it tells no size. With
  // driver 580 on an H200 a module took 9 to 14 KiB there, and on the device
  // as much as its image.
  static constexpr size_t kDriverBytes = size_t{16} << 10;
  // What it takes while it is loaded, on host and device.
  size_t held_bytes() const { return image_bytes_ + kDriverBytes; }

 private:
  const CUmodule module_;
  const CUfunction function_;
  const size_t image_bytes_;
  Unload unload_;
};

class KernelCache {
 public:
  static constexpr size_t kMaxKernels = 4096;
  static constexpr size_t kMaxBytes = size_t{64} << 20;
  using Compile =
      absl::AnyInvocable<absl::StatusOr<std::string>(const std::string&)>;
  using LoadImage =
      absl::AnyInvocable<absl::StatusOr<std::shared_ptr<const CudaFunction>>(
          const std::string& image)>;

  // `compile` turns source into an image, `load` an image into a kernel; both
  // may be called from several threads at once. `environment` names what else
  // the image depends on (compiler version, architecture).
  KernelCache(std::string cache_dir, std::string environment, Compile compile,
              LoadImage load);

  absl::StatusOr<std::shared_ptr<const CudaFunction>> Get(
      const std::string& source);

  struct Stats : KernelCacheStats {
    size_t kernels = 0;
    size_t bytes = 0;  // of sources and images
  };
  Stats stats() const;

 private:
  struct Entry {
    explicit Entry(const std::string& text) : source(text) {}
    const std::string source;
    size_t bytes = 0;  // once it is done
    bool done = false;
    absl::StatusOr<std::shared_ptr<const CudaFunction>> result;
    std::list<std::shared_ptr<Entry>>::iterator position;
  };
  using Entries = std::list<std::shared_ptr<Entry>>;

  absl::StatusOr<std::shared_ptr<const CudaFunction>> Make(
      const std::string& source, size_t* image_bytes);
  void Remove(const Entry& entry) WEIR_REQUIRES(mu_);
  // The oldest that are too many.
  Entries TakeOldest() WEIR_REQUIRES(mu_);

  const std::string environment_;
  const CubinCache disk_;
  Compile compile_;
  LoadImage load_;

  mutable Mutex mu_;
  CondVar made_;
  Entries recent_ WEIR_GUARDED_BY(mu_);  // newest first
  // By source.
  absl::flat_hash_map<std::string_view, std::shared_ptr<Entry>> entries_
      WEIR_GUARDED_BY(mu_);
  Stats stats_ WEIR_GUARDED_BY(mu_);
};

}  // namespace weir
