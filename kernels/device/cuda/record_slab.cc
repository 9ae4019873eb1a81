#include "kernels/device/cuda/record_slab.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <new>

#include "kernels/base/status_macros.h"
#include "kernels/device/cuda/cuda_status.h"
#include "kernels/device/device.h"

namespace weir {

RecordSlab::~RecordSlab() {
  // The process may have lost its device; there is nobody to tell.
  for (void* block : host_blocks_) (void)cudaFreeHost(block);
  for (void* block : device_blocks_) (void)cudaFree(block);
}

absl::Status RecordSlab::Grow() {
  void* host = nullptr;
  WEIR_RETURN_IF_ERROR(ShortOfHostMemory(WEIR_CUDA_CALL(
      cudaHostAlloc(&host, kRecordsPerBlock * sizeof(CompletionRecord),
                    cudaHostAllocPortable | cudaHostAllocMapped))));
  host_blocks_.push_back(host);
  void* mapped = nullptr;
  WEIR_CUDA_RETURN_IF_ERROR(cudaHostGetDevicePointer(&mapped, host, 0));
  constexpr size_t kSlotBytes =
      kRecordsPerBlock * CompletionRecord::kSlots * sizeof(CudaFaultSlot);
  void* device = nullptr;
  WEIR_CUDA_RETURN_IF_ERROR(cudaMalloc(&device, kSlotBytes));
  device_blocks_.push_back(device);

  auto* records = static_cast<CompletionRecord*>(host);
  auto* mapped_records = static_cast<CompletionRecord*>(mapped);
  auto* slots = static_cast<CudaFaultSlot*>(device);
  std::vector<CudaFaultSlot> image(kRecordsPerBlock * CompletionRecord::kSlots);
  std::vector<StreamRecord> fresh;
  for (size_t i = 0; i < kRecordsPerBlock; ++i) {
    new (&records[i]) CompletionRecord();
    records[i].sequence.store(0, std::memory_order_relaxed);
    records[i].mark.store(0, std::memory_order_relaxed);
    for (size_t s = 0; s < CompletionRecord::kSlots; ++s) {
      records[i].slots[s].fault.store(0, std::memory_order_relaxed);
      image[i * CompletionRecord::kSlots + s] = {
          0, reinterpret_cast<unsigned long long*>(
                 &mapped_records[i].slots[s].fault)};
    }
    fresh.push_back({&records[i],
                     reinterpret_cast<uint64_t>(&mapped_records[i].sequence),
                     reinterpret_cast<uint64_t>(&mapped_records[i].mark),
                     slots + i * CompletionRecord::kSlots});
  }
  // A stream of its own: nothing of ours runs on the default streams.
  cudaStream_t stream = nullptr;
  WEIR_CUDA_RETURN_IF_ERROR(
      cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  absl::Status copied = WEIR_CUDA_CALL(cudaMemcpyAsync(
      device, image.data(), kSlotBytes, cudaMemcpyHostToDevice, stream));
  if (copied.ok()) copied = WEIR_CUDA_CALL(cudaStreamSynchronize(stream));
  const absl::Status destroyed = WEIR_CUDA_CALL(cudaStreamDestroy(stream));
  WEIR_RETURN_IF_ERROR(copied);
  WEIR_RETURN_IF_ERROR(destroyed);
  free_.insert(free_.end(), fresh.begin(), fresh.end());
  return absl::OkStatus();
}

absl::StatusOr<StreamRecord> RecordSlab::Acquire(
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
  if (free_.empty()) WEIR_RETURN_IF_ERROR(Grow());
  const StreamRecord record = free_.back();
  free_.pop_back();
  live_[timeline.get()] = {timeline, nullptr, record};
  return record;
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

bool RecordSlab::WithRecord(const Timeline* timeline,
                            absl::FunctionRef<void(const StreamRecord&)> use) {
  MutexLock lock(&mu_);
  auto it = live_.find(timeline);
  if (it == live_.end()) return false;
  use(it->second.record);
  return true;
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
