#include "kernels/device/cuda/cuda_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/thread_role.h"
#include "kernels/device/cuda/cuda_device.h"
#include "kernels/device/cuda/cuda_status.h"

namespace weir {

static_assert(Stream::kMaxUnfinished <= CompletionRecord::kSlots);
static_assert(offsetof(CudaFaultSlot, word) == offsetof(FaultSlot, word));

struct CudaStream::Handle {
  Handle(CudaDevice* d, cudaStream_t s) : device(d), stream(s) {
    device->AddStream();
  }
  ~Handle() {
    device->RemoveStream();
    // On a lost device there is nothing to mend.
    if (device->health().poisoned() || !device->Activate().ok()) return;
    ExpectMayWait("cudaStreamDestroy");
    (void)cudaStreamDestroy(stream);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  absl::Status Query() const {
    WEIR_RETURN_IF_ERROR(device->Activate());
    const CUresult result = device->driver().stream_query(stream);
    if (result == CUDA_ERROR_NOT_READY) return absl::OkStatus();
    return CudaStatus(result, "cuStreamQuery");
  }

  CudaDevice* const device;
  const cudaStream_t stream;
};

absl::StatusOr<std::unique_ptr<CudaStream>> CudaStream::Create(
    CudaDevice* device, int priority) {
  const DeviceInfo& info = device->info();
  if (priority > info.least_priority || priority < info.greatest_priority) {
    return absl::OutOfRangeError(
        absl::StrCat("stream priority ", priority, " is not within [",
                     info.greatest_priority, ", ", info.least_priority, "]"));
  }
  WEIR_RETURN_IF_ERROR(device->health().status());
  WEIR_RETURN_IF_ERROR(device->Activate());
  cudaStream_t stream = nullptr;
  ExpectMayWait("cudaStreamCreateWithPriority");
  WEIR_RETURN_IF_ERROR(device->Report(WEIR_CUDA_CALL(
      cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority))));
  auto handle = std::make_shared<Handle>(device, stream);
  unsigned long long id = 0;  // NOLINT(google-runtime-int): the runtime's type
  WEIR_RETURN_IF_ERROR(
      device->Report(WEIR_CUDA_CALL(cudaStreamGetId(stream, &id))));
  if (id <= 2) {
    return absl::InternalError(
        absl::StrCat("a new CUDA stream has the id ", id,
                     ", which belongs to the default streams"));
  }
  auto timeline = std::make_shared<Timeline>(
      absl::StrCat(DeviceName(info), "/stream/", id), device,
      TimelineOwner{TimelineOwner::Kind::kStream, id});
  absl::StatusOr<StreamRecord> record = device->records().Acquire(timeline);
  if (!record.ok()) return device->Report(record.status());
  std::unique_ptr<CudaStream> result(new CudaStream(
      device, timeline, std::move(handle), id, priority, *record));
  device->records().SetLastSequence(timeline.get(), &result->last_sequence_);
  return result;
}

CudaStream::CudaStream(CudaDevice* device, std::shared_ptr<Timeline> timeline,
                       std::shared_ptr<Handle> handle, uint64_t id,
                       int priority, const StreamRecord& record)
    : Stream(std::move(timeline)),
      device_(device),
      handle_(std::move(handle)),
      stream_(handle_->stream),
      id_(id),
      priority_(priority),
      record_(record),
      monitored_(std::make_shared<MonitoredStream>()) {
  monitored_->record = record_.host;
  monitored_->timeline = timeline_;
  monitored_->query = [weak = std::weak_ptr<const Handle>(handle_)] {
    const std::shared_ptr<const Handle> alive = weak.lock();
    return alive == nullptr ? absl::OkStatus() : alive->Query();
  };
}

CudaStream::~CudaStream() { device_->records().Release(timeline_.get()); }

Device& CudaStream::device() const { return *device_; }

uint64_t CudaStream::Enqueue(StreamTask* task, Inline) {
  const uint64_t sequence = last_sequence_.load(std::memory_order_relaxed) + 1;
  task->completion = Completion();
  task->completion.sequence = sequence;
  task->completion.enqueued_at = NowNanos();
  const uint64_t unfinished = sequence - 1 - timeline_->value();
  last_sequence_.store(sequence, std::memory_order_release);

  if (!device_->health().poisoned()) {
    absl::Status status =
        unfinished < kMaxUnfinished
            ? Issue(task, sequence)
            : WithReason(absl::ResourceExhaustedError(
                             absl::StrCat("stream ", id_, " has ",
                                          kMaxUnfinished, " unfinished works")),
                         "STREAM_FULL");
    // Once the device is lost every call of it fails, some of them slowly.
    const bool alive = !device_->health().poisoned() && !IsDeviceFault(status);
    if (alive) {
      task->completion.status = std::move(status);
      // Written whatever became of the work: what was issued before a failure
      // ends before it, and later work stands behind it.
      status = CudaStatus(device_->driver().stream_write_value64(
                              stream_, record_.device_sequence, sequence,
                              CU_STREAM_WRITE_VALUE_DEFAULT),
                          "cuStreamWriteValue64");
    }
    if (alive && status.ok()) {
      task->completion.launched_at = NowNanos();
      timeline_->SetLaunched(sequence);
    } else {
      // Without its record the work can never be seen done.
      device_->Lose(status);
      task->completion.status = absl::OkStatus();
    }
  }
  // The monitor fails what it finds in flight on a lost device, in order, and
  // says why. The task and this stream may be gone once it has the task.
  device_->monitor().Push(monitored_, task);
  return sequence;
}

absl::Status CudaStream::Check() {
  WEIR_RETURN_IF_ERROR(device_->health().status());
  ExpectMayWait("cuStreamQuery");
  return device_->Report(handle_->Query());
}

absl::Status CudaStream::Issue(StreamTask* task, uint64_t sequence) {
  WEIR_RETURN_IF_ERROR(device_->Activate());
  WEIR_RETURN_IF_ERROR(ClearFault(sequence));
  launching_ = task;
  return task->Launch(*this);
}

absl::Status CudaStream::ClearFault(uint64_t sequence) {
  const size_t index = sequence % CompletionRecord::kSlots;
  std::atomic<uint64_t>& fault = record_.host->slots[index].fault;
  if (fault.load(std::memory_order_acquire) == 0) return absl::OkStatus();
  // The slot's last work has completed, so both sides may be cleared, the
  // device's in stream order.
  fault.store(0, std::memory_order_release);
  return CudaStatus(
      device_->driver().stream_write_value64(
          stream_, reinterpret_cast<uint64_t>(&record_.fault_slots[index].word),
          0, CU_STREAM_WRITE_VALUE_DEFAULT),
      "cuStreamWriteValue64");
}

absl::Status CudaStream::Copy(void* dst, const void* src, size_t bytes,
                              cudaMemcpyKind kind) {
  if (bytes == 0) return absl::OkStatus();
  return WEIR_CUDA_CALL(cudaMemcpyAsync(dst, src, bytes, kind, stream_));
}

absl::Status CudaStream::CopyToDevice(void* dst, const void* src,
                                      size_t bytes) {
  return Copy(dst, src, bytes, cudaMemcpyHostToDevice);
}

absl::Status CudaStream::CopyToHost(void* dst, const void* src, size_t bytes) {
  return Copy(dst, src, bytes, cudaMemcpyDeviceToHost);
}

absl::Status CudaStream::CopyOnDevice(void* dst, const void* src,
                                      size_t bytes) {
  return Copy(dst, src, bytes, cudaMemcpyDeviceToDevice);
}

absl::Status CudaStream::Fill(void* dst, uint8_t value, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  return WEIR_CUDA_CALL(cudaMemsetAsync(dst, value, bytes, stream_));
}

absl::Status CudaStream::WaitOnDevice(const Point& point) {
  if (auto outcome = point.Outcome()) return *std::move(outcome);
  if (point.timeline == timeline_) return absl::OkStatus();  // in order anyway
  if (point.timeline->device() != device_ ||
      point.timeline->launched() < point.value) {
    return absl::FailedPreconditionError(absl::StrCat(
        "stream ", id_, " cannot wait for ", point.timeline->name(), " = ",
        point.value, ": not launched on ", DeviceName(device_->info())));
  }
  if (const auto other = device_->records().Find(point.timeline.get())) {
    return CudaStatus(device_->driver().stream_wait_value64(
                          stream_, other->device_sequence, point.value,
                          CU_STREAM_WAIT_VALUE_GEQ),
                      "cuStreamWaitValue64");
  }
  // Its stream is gone, which only an idle one may be.
  return point.Outcome().value_or(absl::InternalError(absl::StrCat(
      point.timeline->name(), " = ", point.value, " has no stream")));
}

absl::Status CudaStream::WaitForRoom(GoOn go_on) {
  // A mark is a word that the stream writes: seen without the driver, which on
  // a device that stands still might not return.
  const auto look = [this]() -> absl::StatusOr<Awaited> {
    return record_.host->mark.load(std::memory_order_acquire) < marks_
               ? Awaited::kDevice
               : Awaited::kNothing;
  };
  WEIR_RETURN_IF_ERROR(Await(look, go_on));
  WEIR_RETURN_IF_ERROR(CudaStatus(device_->driver().stream_write_value64(
                                      stream_, record_.device_mark, marks_ + 1,
                                      CU_STREAM_WRITE_VALUE_DEFAULT),
                                  "cuStreamWriteValue64"));
  ++marks_;  // one that was not issued would be awaited for ever
  return absl::OkStatus();
}

void CudaStream::SetAwaitsDevice(bool awaits) {
  device_->monitor().SetLaunchWaits(monitored_, launching_, awaits);
}

FaultSlot* CudaStream::fault_slot() {
  const size_t index = last_sequence() % CompletionRecord::kSlots;
  return reinterpret_cast<FaultSlot*>(&record_.fault_slots[index]);
}

}  // namespace weir
