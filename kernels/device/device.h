// One CPU or GPU: makes streams and memory. Thread-safe. Outlives everything it
// made. Adding a device: ARCHITECTURE.md says how; one entry in the conformance
// list (tests/conformance).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/export.h"
#include "kernels/device/cpu_team.h"
#include "kernels/device/health.h"
#include "kernels/device/memory.h"
#include "kernels/device/stream.h"

namespace weir {

// Whose kernels an operator needs. What a device does is asked of the device
// itself, not told from its kind.
enum class DeviceKind : uint8_t { kCpu = 0, kCuda = 1 };
inline constexpr int kDeviceKinds = 2;

// How a device goes through what a kernel computes, by which goes how long that
// takes.
enum class Pace : uint8_t {
  // Element by element: each takes its time, and so does each row of them.
  kInTurn,
  // Some thousand elements at a time: few take as long as many.
  kSideBySide,
};

struct DeviceInfo {
  DeviceKind kind = DeviceKind::kCpu;
  Pace pace = Pace::kInTurn;
  int ordinal = 0;             // as the driver numbers what is visible
  std::string uuid;            // "GPU-..." or "CPU-..." (from the machine id)
  std::string name;            // marketing name
  std::string driver;          // "CUDA driver 13.0", or the host's kernel
  std::string runtime;         // "CUDA runtime 13.0", or the C library
  int64_t total_memory = 0;    // bytes
  int multiprocessors = 0;     // SMs, or worker threads
  int compute_capability = 0;  // 90 for 9.0; 0 on the CPU
  int least_priority = 0;      // of streams; lower numbers run first
  int greatest_priority = 0;
  // Operations of one evaluation where nobody gives a limit: what the device
  // does in a time that somebody waits.
  int64_t default_max_operations = 100'000'000'000'000;
};

// Of a device that compiles kernels and keeps them, also in a folder.
struct KernelCacheStats {
  // Found as they were asked for: loaded, or in the making; or in the folder.
  uint64_t memory_hits_total = 0, disk_hits_total = 0;
  uint64_t misses_total = 0;  // that had to be compiled
  // That could not be written into the folder; why the last one was not.
  uint64_t write_failures_total = 0;
  std::string write_failure;
};

// What the kernels that serve it are called: "cpu" or "cuda".
WEIR_EXPORT std::string_view KernelsName(const DeviceInfo& info);
// Whether one set of kernels serves both.
WEIR_EXPORT bool ShareKernels(const DeviceInfo& a, const DeviceInfo& b);

// "cpu" or "cuda:0"; of several CPUs in one process, in tests, "cpu:1".
WEIR_EXPORT std::string DeviceName(const DeviceInfo& info);

// What callers are told of memory that is short at the moment: a status
// RESOURCE_EXHAUSTED with the reason DEVICE_MEMORY_EXHAUSTED, for host memory
// HOST_MEMORY_EXHAUSTED, and when to try again. Others
// stay as they are.
WEIR_EXPORT absl::Status ShortOfDeviceMemory(absl::Status status);
WEIR_EXPORT absl::Status ShortOfHostMemory(absl::Status status);

class WEIR_EXPORT Device {
 public:
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceInfo& info() const { return info_; }
  DeviceHealth& health() { return health_; }

  // The one that a backend made, where another stands before it, as a test's
  // may; else itself. Kernels that are made for either run on its streams.
  virtual Device& backend() { return *this; }

  // A non-blocking stream. `priority` lies between greatest and least
  // (OUT_OF_RANGE otherwise). Tens of microseconds: use a StreamPool.
  virtual absl::StatusOr<std::unique_ptr<Stream>> CreateStream(
      int priority) = 0;

  // Device memory, aligned to kBlockAlignment, contents undefined.
  // RESOURCE_EXHAUSTED when there is none left, as ShortOfDeviceMemory makes it
  // but without a time for more than the device has in all: not sticky. May
  // synchronize the device; not for the hot path (lanes own arenas, tensors use
  // MemoryPool).
  absl::StatusOr<DeviceMemory> Allocate(size_t bytes);

  // Host memory that the device copies from and to, aligned to 4096 bytes.
  // Slow like Allocate: use a PinnedPool. RESOURCE_EXHAUSTED as
  // ShortOfHostMemory makes it.
  absl::StatusOr<PinnedMemory> AllocatePinned(size_t bytes);

  // How much memory a thread that may not wait takes or frees itself: to free
  // what was used takes the host 45 ms a gigabyte. 0 if either may wait for the
  // driver, and so for running work, as making and ending a stream may then.
  // Who goes beyond it is held to ExpectMayWait.
  virtual size_t quick_bytes() const { return size_t{16} << 20; }

  // The device reads and writes host memory directly: inputs need no copy.
  virtual bool host_addressable() const = 0;

  // A stream waits for another one's point (Stream::WaitOnDevice) without
  // keeping a thread of the host. Where it does not, a work waits before it is
  // launched, and its deadline acts meanwhile.
  virtual bool streams_wait() const { return true; }

  // The first launch of a plan may load code of libraries, for which the driver
  // waits as for memory: it is for a thread that may wait.
  virtual bool loads_late() const { return false; }

  // The wide team of a CPU device; null on others.
  virtual CpuTeam* cpu_team() { return nullptr; }

  // Frees one piece of what the device keeps for later works of its own accord
  // and has not used since `before`; false if there is none. May wait for the
  // driver.
  virtual bool TrimOne(Nanos before) {
    (void)before;
    return false;
  }

  // Bytes of total_memory that nobody uses; UNIMPLEMENTED for a device that
  // cannot say. May wait in the driver for others who allocate: not on threads
  // that may not wait (the server's MemorySampler asks).
  virtual absl::StatusOr<int64_t> QueryFreeMemory();

  // Nothing for a device that compiles none. Does not wait.
  virtual std::optional<KernelCacheStats> kernel_cache_stats() const {
    return std::nullopt;
  }

  // Waits until all work enqueued before the call, on every stream, has
  // completed. For tests and shutdown: never on a request's path.
  virtual absl::Status Synchronize() = 0;

 protected:
  explicit Device(DeviceInfo info) : info_(std::move(info)) {}

  friend class DeviceMemory;
  friend class PinnedMemory;
  friend class FaultInjectingDevice;
  virtual absl::StatusOr<void*> AllocateRaw(size_t bytes) = 0;
  virtual void FreeRaw(void* data, size_t bytes) = 0;
  virtual absl::StatusOr<void*> AllocatePinnedRaw(size_t bytes) = 0;
  virtual void FreePinnedRaw(void* data, size_t bytes) = 0;

  DeviceInfo info_;
  DeviceHealth health_;
};

}  // namespace weir
