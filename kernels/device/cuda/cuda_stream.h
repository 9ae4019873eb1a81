// A non-blocking CUDA stream whose works end with a 64-bit stream write value
// of their sequence into a completion record in pinned memory. Work is issued
// in the caller's thread; the device's completion monitor sees it done. At most
// CompletionRecord::kSlots works are in flight; one more fails with
// RESOURCE_EXHAUSTED.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device/completion.h"
#include "kernels/device/cuda/record_slab.h"
#include "kernels/device/stream.h"

namespace weir {

class CudaDevice;

class CudaStream final : public Stream {
 public:
  static absl::StatusOr<std::unique_ptr<CudaStream>> Create(CudaDevice* device,
                                                            int priority);
  ~CudaStream() override;

  Device& device() const override;
  uint64_t id() const override { return id_; }
  int priority() const override { return priority_; }
  void* native_handle() const override { return stream_; }

  using Stream::Enqueue;
  uint64_t Enqueue(StreamTask* task, Inline inline_run) override;

  absl::Status Check() override;

  absl::Status CopyToDevice(void* dst, const void* src, size_t bytes) override;
  absl::Status CopyToHost(void* dst, const void* src, size_t bytes) override;
  absl::Status CopyOnDevice(void* dst, const void* src, size_t bytes) override;
  absl::Status Fill(void* dst, uint8_t value, size_t bytes) override;
  absl::Status WaitOnDevice(const Point& point) override;
  absl::Status WaitForRoom(GoOn go_on) override;
  FaultSlot* fault_slot() override;

 private:
  // Destroys the native stream with its last owner, which is a question to the
  // driver if one is under way.
  struct Handle;

  CudaStream(CudaDevice* device, std::shared_ptr<Timeline> timeline,
             std::shared_ptr<Handle> handle, uint64_t id, int priority,
             const StreamRecord& record);

  void SetAwaitsDevice(bool awaits) override;
  absl::Status Issue(StreamTask* task, uint64_t sequence);
  absl::Status ClearFault(uint64_t sequence);
  absl::Status Copy(void* dst, const void* src, size_t bytes,
                    cudaMemcpyKind kind);

  CudaDevice* const device_;
  const std::shared_ptr<Handle> handle_;
  const cudaStream_t stream_;
  const uint64_t id_;
  const int priority_;
  const StreamRecord record_;
  const std::shared_ptr<MonitoredStream> monitored_;
  // The launching thread's own: the work that it launches, and the marks that
  // it has issued (CompletionRecord::mark).
  StreamTask* launching_ = nullptr;
  uint64_t marks_ = 0;
};

}  // namespace weir
