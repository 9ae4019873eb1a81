#include "kernels/device/cpu/cpu_device.h"

#include <gnu/libc-version.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "kernels/base/alignment.h"
#include "kernels/base/atomic.h"
#include "kernels/base/holders.h"
#include "kernels/base/philox.h"
#include "kernels/base/saturating.h"
#include "kernels/device/cpu/host_limits.h"

namespace weir {
namespace {

constexpr size_t kPinnedAlignment = 4096;
constexpr int64_t kOperationsOfAThread = 1'000'000'000'000;
constexpr int kGreatestPriority = -5;  // as many levels as a GPU has
static_assert(WorkerPool::kLevels == 1 - kGreatestPriority);

// The machine id is not to be shown to others, so this is a hash of it.
std::string MachineUuid() {
  std::ifstream file("/etc/machine-id");
  std::string id;
  file >> id;
  if (id.size() != 32) return "CPU-unknown";
  uint64_t high = 0, low = 0;
  if (!absl::SimpleHexAtoi(id.substr(0, 16), &high) ||
      !absl::SimpleHexAtoi(id.substr(16), &low)) {
    return "CPU-unknown";
  }
  const PhiloxBlock h = Philox(high, low, 0x77656972);
  return absl::StrFormat("CPU-%08x-%04x-%04x-%04x-%04x%08x", h.word[0],
                         h.word[1] >> 16, h.word[1] & 0xffff, h.word[2] >> 16,
                         h.word[2] & 0xffff, h.word[3]);
}

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
    }
  }
  return "CPU";
}

std::string KernelVersion() {
  utsname name;
  if (uname(&name) != 0) return "unknown";
  return absl::StrCat(name.sysname, " ", name.release);
}

DeviceInfo MakeInfo(int threads, int64_t memory, int ordinal) {
  DeviceInfo info;
  info.kind = DeviceKind::kCpu;
  info.ordinal = ordinal;
  info.uuid = MachineUuid();
  if (ordinal > 0) absl::StrAppend(&info.uuid, "-", ordinal);
  info.name = ProcessorName();
  info.driver = KernelVersion();
  info.runtime = absl::StrCat("glibc ", gnu_get_libc_version());
  info.total_memory = memory;
  info.multiprocessors = threads;
  info.least_priority = 0;
  info.greatest_priority = kGreatestPriority;
  info.default_max_operations =
      std::min(info.default_max_operations,
               SaturatingMul(kOperationsOfAThread, std::max(1, threads)));
  return info;
}

uint64_t NextStreamId() {
  static Atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

CpuDevice::CpuDevice(int threads, int64_t memory, bool streams_wait,
                     int ordinal)
    : Device(MakeInfo(threads, memory, ordinal)),
      streams_wait_(streams_wait),
      free_bytes_(memory),
      workers_(threads) {}

CpuDevice::~CpuDevice() = default;

absl::StatusOr<std::unique_ptr<Stream>> CpuDevice::CreateStream(int priority) {
  if (priority > info_.least_priority || priority < info_.greatest_priority) {
    return absl::OutOfRangeError(
        absl::StrCat("stream priority ", priority, " is not within [",
                     info_.greatest_priority, ", ", info_.least_priority, "]"));
  }
  if (absl::Status status = health_.status(); !status.ok()) return status;
  const uint64_t id = NextStreamId();
  auto timeline = std::make_shared<Timeline>(
      absl::StrCat(DeviceName(info_), "/stream/", id), this,
      TimelineOwner{TimelineOwner::Kind::kStream, id});
  auto strand = std::make_shared<CpuStrand>(
      &workers_, &health_, std::move(timeline),
      static_cast<size_t>(priority - info_.greatest_priority));
  {
    MutexLock lock(&mu_);
    std::erase_if(strands_, [](const auto& weak) { return weak.expired(); });
    strands_.push_back(strand);
  }
  return std::make_unique<CpuStream>(this, id, priority, std::move(strand));
}

absl::Status CpuDevice::WaitFor(const Point& point) {
  Mutex mu;
  CondVar known;
  std::optional<absl::Status> outcome;
  point.timeline->OnReached(point.value, [&](absl::Status status) {
    MutexLock lock(&mu);
    outcome = std::move(status);
    known.NotifyOne();
  });
  WorkerPool::BlockingScope blocking(&workers_);
  MutexLock lock(&mu);
  while (!outcome.has_value()) known.Wait(&mu);
  return *std::move(outcome);
}

absl::Status CpuDevice::Synchronize() {
  std::vector<Point> last;
  {
    MutexLock lock(&mu_);
    for (const auto& weak : strands_) {
      if (auto strand = HoldIfThere(weak)) {
        last.push_back({strand->timeline(), strand->last_sequence()});
      }
    }
  }
  // An error belongs to its work, not to the device.
  for (const Point& point : last) WaitFor(point).IgnoreError();
  return health_.status();
}

absl::StatusOr<int64_t> CpuDevice::QueryFreeMemory() {
  return FreeMemory(HostFiles(), info_.total_memory);
}

absl::StatusOr<void*> CpuDevice::AllocateAligned(size_t bytes,
                                                 size_t alignment) {
  const int64_t wanted = static_cast<int64_t>(bytes);
  int64_t available = free_bytes_.load(std::memory_order_relaxed);
  void* data = nullptr;
  do {
    if (wanted < 0 || wanted > available) break;
  } while (!free_bytes_.compare_exchange_weak(available, available - wanted,
                                              std::memory_order_relaxed));
  if (wanted >= 0 && wanted <= available) {
    const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    data = std::aligned_alloc(alignment, rounded);
    if (data != nullptr) return data;
    free_bytes_.fetch_add(wanted, std::memory_order_relaxed);
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("no host memory for ", bytes, " bytes, ", available, " of ",
                   info_.total_memory, " are left"));
}

void CpuDevice::FreeAligned(void* data, size_t bytes) {
  std::free(data);
  free_bytes_.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
}

absl::StatusOr<void*> CpuDevice::AllocateRaw(size_t bytes) {
  return AllocateAligned(bytes, kBlockAlignment);
}

void CpuDevice::FreeRaw(void* data, size_t bytes) { FreeAligned(data, bytes); }

absl::StatusOr<void*> CpuDevice::AllocatePinnedRaw(size_t bytes) {
  return AllocateAligned(bytes, kPinnedAlignment);
}

void CpuDevice::FreePinnedRaw(void* data, size_t bytes) {
  FreeAligned(data, bytes);
}

}  // namespace weir
