#include "kernels/device/cuda/record_slab.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <new>

#include "kernels/base/status_macros.h"
#include "kernels/base/thread_role.h"
#include "kernels/device/cuda/cuda_status.h"
#include "kernels/device/device.h"

namespace weir {

namespace {

constexpr size_t kSlots =
    RecordSlab::kRecordsPerBlock * CompletionRecord::kSlots;

void FreeCuda(const RecordSlab::Block& block) {
  // The process may have lost its device; there is nobody to tell.
  if (block.host != nullptr) (void)cudaFreeHost(block.host);
  if (block.fault_slots != nullptr) (void)cudaFree(block.fault_slots);
}

absl::Status FillCuda(RecordSlab::Block& block) {
  void* host = nullptr;
  WEIR_RETURN_IF_ERROR(ShortOfHostMemory(WEIR_CUDA_CALL(cudaHostAlloc(
      &host, RecordSlab::kRecordsPerBlock * sizeof(CompletionRecord),
      cudaHostAllocPortable | cudaHostAllocMapped))));
  block.host = static_cast<CompletionRecord*>(host);
  void* mapped = nullptr;
  WEIR_CUDA_RETURN_IF_ERROR(cudaHostGetDevicePointer(&mapped, host, 0));
  block.device = static_cast<CompletionRecord*>(mapped);
  void* device = nullptr;
  WEIR_CUDA_RETURN_IF_ERROR(
      cudaMalloc(&device, kSlots * sizeof(CudaFaultSlot)));
  block.fault_slots = static_cast<CudaFaultSlot*>(device);

  std::vector<CudaFaultSlot> image(kSlots);
  for (size_t i = 0; i < RecordSlab::kRecordsPerBlock; ++i) {
    CompletionRecord& record = *new (&block.host[i]) CompletionRecord();
    record.sequence.store(0, std::memory_order_relaxed);
    record.mark.store(0, std::memory_order_relaxed);
    for (size_t s = 0; s < CompletionRecord::kSlots; ++s) {
      record.slots[s].fault.store(0, std::memory_order_relaxed);
      image[i * CompletionRecord::kSlots + s] = {
          // NOLINTNEXTLINE(google-runtime-int): what kernels swap
          0, reinterpret_cast<unsigned long long*>(
                 &block.device[i].slots[s].fault)};
    }
  }
  // A stream of its own: nothing of ours runs on the default streams.
  cudaStream_t stream = nullptr;
  WEIR_CUDA_RETURN_IF_ERROR(
      cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  absl::Status copied = WEIR_CUDA_CALL(
      cudaMemcpyAsync(device, image.data(), kSlots * sizeof(CudaFaultSlot),
                      cudaMemcpyHostToDevice, stream));
  if (copied.ok()) copied = WEIR_CUDA_CALL(cudaStreamSynchronize(stream));
  const absl::Status destroyed = WEIR_CUDA_CALL(cudaStreamDestroy(stream));
  return copied.ok() ? destroyed : copied;
}

absl::StatusOr<RecordSlab::Block> MakeCuda() {
  ExpectMayWait("RecordSlab::Acquire");
  RecordSlab::Block block;
  if (absl::Status status = FillCuda(block); !status.ok()) {
    FreeCuda(block);
    return status;
  }
  return block;
}

}  // namespace

RecordSlab::Memory RecordSlab::CudaMemory() { return {MakeCuda, FreeCuda}; }

RecordSlab::~RecordSlab() {
  for (const Block& block : blocks_) memory_.free(block);
}

absl::Status RecordSlab::Grow() {
  WEIR_ASSIGN_OR_RETURN(const Block block, memory_.make());
  blocks_.push_back(block);
  MutexLock lock(&mu_);
  for (size_t i = 0; i < kRecordsPerBlock; ++i) {
    free_.push_back({&block.host[i],
                     reinterpret_cast<uint64_t>(&block.device[i].sequence),
                     reinterpret_cast<uint64_t>(&block.device[i].mark),
                     block.fault_slots + i * CompletionRecord::kSlots});
  }
  return absl::OkStatus();
}

std::optional<StreamRecord> RecordSlab::Take(
    const std::shared_ptr<Timeline>& timeline) {
  MutexLock lock(&mu_);
  while (!retired_.empty()) {
    const Retired& oldest = retired_.front();
    const bool quiet = std::all_of(
        oldest.before.begin(), oldest.before.end(),
        [](const auto& entry) { return entry.first->value() >= entry.second; });
    if (!quiet) break;
    oldest.record.host->sequence.store(0, std::memory_order_release);
    oldest.record.host->mark.store(0, std::memory_order_release);
    free_.push_back(oldest.record);
    retired_.pop_front();
  }
  if (free_.empty()) return std::nullopt;
  const StreamRecord record = free_.back();
  free_.pop_back();
  live_[timeline.get()] = {timeline, nullptr, record};
  return record;
}

absl::StatusOr<StreamRecord> RecordSlab::Acquire(
    const std::shared_ptr<Timeline>& timeline) {
  if (auto record = Take(timeline)) return *record;
  MutexLock growing(&grow_mu_);
  for (;;) {
    // Another thread may have made some meanwhile.
    if (auto record = Take(timeline)) return *record;
    WEIR_RETURN_IF_ERROR(Grow());
  }
}

void RecordSlab::SetLastSequence(const Timeline* timeline,
                                 const std::atomic<uint64_t>* last_sequence) {
  MutexLock lock(&mu_);
  live_[timeline].last_sequence = last_sequence;
}

void RecordSlab::Release(const Timeline* timeline) {
  MutexLock lock(&mu_);
  auto it = live_.find(timeline);
  if (it == live_.end()) return;
  const StreamRecord record = it->second.record;
  live_.erase(it);
  retired_.push_back({record, SnapshotLocked()});
}

std::optional<StreamRecord> RecordSlab::Find(const Timeline* timeline) const {
  MutexLock lock(&mu_);
  const auto found = live_.find(timeline);
  if (found == live_.end()) return std::nullopt;
  return found->second.record;
}

std::vector<std::pair<std::shared_ptr<Timeline>, uint64_t>>
RecordSlab::Snapshot() const {
  MutexLock lock(&mu_);
  return SnapshotLocked();
}

std::vector<std::pair<std::shared_ptr<Timeline>, uint64_t>>
RecordSlab::SnapshotLocked() const {
  std::vector<std::pair<std::shared_ptr<Timeline>, uint64_t>> result;
  for (const auto& [timeline, live] : live_) {
    if (live.last_sequence == nullptr) continue;
    result.emplace_back(live.timeline, live.last_sequence->load());
  }
  return result;
}

}  // namespace weir
