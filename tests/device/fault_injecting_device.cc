#include "tests/device/fault_injecting_device.h"

#include <utility>

#include "kernels/base/status_macros.h"
#include "kernels/base/thread_role.h"

namespace weir {
namespace {

class FaultInjectingStream final : public Stream {
 public:
  FaultInjectingStream(FaultInjectingDevice* device,
                       std::unique_ptr<Stream> stream)
      : Stream(stream->timeline()),
        device_(device),
        stream_(std::move(stream)) {}
  ~FaultInjectingStream() override {
    device_->ExpectToWait("destroying a stream");
  }

  Device& device() const override { return *device_; }
  uint64_t id() const override { return stream_->id(); }
  int priority() const override { return stream_->priority(); }
  void* native_handle() const override { return stream_->native_handle(); }

  uint64_t Enqueue(StreamTask* task, Inline inline_run) override {
    device_->Pass(DeviceCall::kEnqueue).IgnoreError();
    last_sequence_.fetch_add(1);
    return stream_->Enqueue(new Task(this, task), inline_run);
  }

  absl::Status Check() override {
    device_->ExpectToWait("Stream::Check");
    WEIR_RETURN_IF_ERROR(device_->Pass(DeviceCall::kCheck));
    return stream_->Check();
  }
  absl::Status CopyToDevice(void* dst, const void* src, size_t bytes) override {
    WEIR_RETURN_IF_ERROR(device_->Pass(DeviceCall::kCopy));
    return stream_->CopyToDevice(dst, src, bytes);
  }
  absl::Status CopyToHost(void* dst, const void* src, size_t bytes) override {
    WEIR_RETURN_IF_ERROR(device_->Pass(DeviceCall::kCopy));
    return stream_->CopyToHost(dst, src, bytes);
  }
  absl::Status CopyOnDevice(void* dst, const void* src, size_t bytes) override {
    WEIR_RETURN_IF_ERROR(device_->Pass(DeviceCall::kCopy));
    return stream_->CopyOnDevice(dst, src, bytes);
  }
  absl::Status Fill(void* dst, uint8_t value, size_t bytes) override {
    WEIR_RETURN_IF_ERROR(device_->Pass(DeviceCall::kCopy));
    return stream_->Fill(dst, value, bytes);
  }
  absl::Status WaitOnDevice(const Point& point) override {
    WEIR_RETURN_IF_ERROR(device_->Pass(DeviceCall::kWaitOnDevice));
    return stream_->WaitOnDevice(point);
  }
  absl::Status WaitForRoom(GoOn go_on) override {
    device_->ExpectToWait("Stream::WaitForRoom");
    WEIR_RETURN_IF_ERROR(device_->Pass(DeviceCall::kWaitForRoom));
    return stream_->WaitForRoom(go_on);
  }
  FaultSlot* fault_slot() override { return stream_->fault_slot(); }

 private:
  // Stands in for a task on the wrapped stream; deletes itself at the end.
  class Task final : public StreamTask {
   public:
    Task(FaultInjectingStream* stream, StreamTask* task)
        : stream_(stream), task_(task) {
      task_->completion = Completion();
      expected = task->expected;
      expected_device_time = task->expected_device_time;
    }

    absl::Status Launch(Stream&) override {
      task_->completion = completion;
      stream_->device_->NoteLaunch(*this);
      WEIR_RETURN_IF_ERROR(stream_->device_->Pass(DeviceCall::kLaunch));
      const ScopedThreadRole role(stream_->device_->allocation_waits()
                                      ? enqueued_by_
                                      : CurrentThreadRole());
      return task_->Launch(*stream_);
    }

    std::optional<absl::Status> Settle(const Completion& completion) override {
      return task_->Settle(completion);
    }

    void Complete(const Completion& completion) override {
      const std::unique_ptr<Task> self(this);
      task_->completion = completion;
      task_->Complete(task_->completion);
    }
    std::string Describe() const override { return task_->Describe(); }

   private:
    FaultInjectingStream* const stream_;
    StreamTask* const task_;
    const ThreadRole enqueued_by_ = CurrentThreadRole();
  };

  FaultInjectingDevice* const device_;
  const std::unique_ptr<Stream> stream_;
};

}  // namespace

FaultInjectingDevice::FaultInjectingDevice(std::unique_ptr<Device> device)
    : Device(device->info()), device_(std::move(device)) {
  // One latch seen from both sides.
  inner_lost_ = device_->health().OnPoisoned(
      [this](const absl::Status& cause) { health_.Poison(cause); });
  outer_lost_ = health_.OnPoisoned(
      [this](const absl::Status& cause) { device_->health().Poison(cause); });
}

FaultInjectingDevice::~FaultInjectingDevice() = default;

void FaultInjectingDevice::Fail(DeviceCall call, absl::Status status,
                                uint64_t nth, uint64_t count) {
  MutexLock lock(&mu_);
  const uint64_t first = calls_[static_cast<size_t>(call)] + nth;
  rules_.push_back(
      {call, first, first + count - 1, std::move(status), nullptr});
}

FaultInjectingDevice::Hold& FaultInjectingDevice::HoldCall(DeviceCall call,
                                                           uint64_t nth) {
  MutexLock lock(&mu_);
  const uint64_t at = calls_[static_cast<size_t>(call)] + nth;
  Hold& hold = holds_.emplace_back();
  rules_.push_back({call, at, at, absl::OkStatus(), &hold});
  return hold;
}

uint64_t FaultInjectingDevice::calls(DeviceCall call) const {
  MutexLock lock(&mu_);
  return calls_[static_cast<size_t>(call)];
}

FaultInjectingDevice::Launched FaultInjectingDevice::last_launched() const {
  MutexLock lock(&mu_);
  return last_launched_;
}

void FaultInjectingDevice::NoteLaunch(const StreamTask& task) {
  Launched launched{task.expected, task.expected_device_time, task.Describe()};
  MutexLock lock(&mu_);
  last_launched_ = std::move(launched);
}

void FaultInjectingDevice::ExpectToWait(const char* call) const {
  if (allocation_waits_ && !health_.poisoned()) ExpectMayWait(call);
}

absl::Status FaultInjectingDevice::Pass(DeviceCall call) {
  absl::Status status;
  Hold* hold = nullptr;
  {
    MutexLock lock(&mu_);
    const uint64_t number = ++calls_[static_cast<size_t>(call)];
    for (const Rule& rule : rules_) {
      if (rule.call != call || number < rule.first || number > rule.last) {
        continue;
      }
      if (rule.hold != nullptr) hold = rule.hold;
      if (!rule.status.ok()) status = rule.status;
    }
  }
  if (hold != nullptr) {
    hold->thread_ = std::this_thread::get_id();
    hold->arrived_.Set();
    hold->released_.Wait();
  }
  return status;
}

absl::StatusOr<std::unique_ptr<Stream>> FaultInjectingDevice::CreateStream(
    int priority) {
  ExpectToWait("Device::CreateStream");
  WEIR_RETURN_IF_ERROR(Pass(DeviceCall::kCreateStream));
  WEIR_ASSIGN_OR_RETURN(auto stream, device_->CreateStream(priority));
  return std::make_unique<FaultInjectingStream>(this, std::move(stream));
}

absl::StatusOr<int64_t> FaultInjectingDevice::QueryFreeMemory() {
  ExpectToWait("Device::QueryFreeMemory");
  WEIR_RETURN_IF_ERROR(Pass(DeviceCall::kQueryFreeMemory));
  return device_->QueryFreeMemory();
}

absl::Status FaultInjectingDevice::Synchronize() {
  ExpectToWait("Device::Synchronize");
  WEIR_RETURN_IF_ERROR(Pass(DeviceCall::kSynchronize));
  return device_->Synchronize();
}

absl::StatusOr<void*> FaultInjectingDevice::AllocateRaw(size_t bytes) {
  WEIR_RETURN_IF_ERROR(Pass(DeviceCall::kAllocate));
  return device_->AllocateRaw(bytes);
}

std::thread::id FaultInjectingDevice::freed_on() const {
  MutexLock lock(&mu_);
  return freed_on_;
}

size_t FaultInjectingDevice::freed_by(std::thread::id thread) const {
  MutexLock lock(&mu_);
  const auto found = freed_by_.find(thread);
  return found == freed_by_.end() ? 0 : found->second;
}

void FaultInjectingDevice::FreeRaw(void* data, size_t bytes) {
  {
    MutexLock lock(&mu_);
    freed_on_ = std::this_thread::get_id();
    freed_by_[freed_on_] += bytes;
  }
  Pass(DeviceCall::kFree).IgnoreError();
  device_->FreeRaw(data, bytes);
}

absl::StatusOr<void*> FaultInjectingDevice::AllocatePinnedRaw(size_t bytes) {
  WEIR_RETURN_IF_ERROR(Pass(DeviceCall::kAllocatePinned));
  return device_->AllocatePinnedRaw(bytes);
}

void FaultInjectingDevice::FreePinnedRaw(void* data, size_t bytes) {
  {
    MutexLock lock(&mu_);
    freed_by_[std::this_thread::get_id()] += bytes;
  }
  device_->FreePinnedRaw(data, bytes);
}

}  // namespace weir
