// Runs a plan once on a stream of its own, and a device that pretends not to
// see host memory.
#pragma once

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend/devices.h"
#include "kernels/base/mutex.h"
#include "kernels/device/device.h"
#include "kernels/graph/plan.h"

namespace weir::testing {

// Looks like a GPU: another kind, memory that must be copied to. Its streams
// are the CPU's.
class FarDevice : public Device {
 public:
  explicit FarDevice(int ordinal = 0)
      : Device(Info(ordinal)), near_(MakeCpuDevice({})) {}

  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(int priority) override {
    ++streams_made;
    return near_->CreateStream(priority);
  }
  bool host_addressable() const override { return false; }
  absl::Status Synchronize() override { return near_->Synchronize(); }

  int streams_made = 0;
  bool out_of_memory = false;

 protected:
  absl::StatusOr<void*> AllocateRaw(size_t bytes) override {
    if (out_of_memory) return absl::ResourceExhaustedError("no memory");
    return std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  }
  void FreeRaw(void* data, size_t) override { std::free(data); }
  absl::StatusOr<void*> AllocatePinnedRaw(size_t bytes) override {
    return AllocateRaw(bytes);
  }
  void FreePinnedRaw(void* data, size_t) override { std::free(data); }

 private:
  static DeviceInfo Info(int ordinal) {
    DeviceInfo info;
    info.kind = DeviceKind::kCuda;
    info.pace = Pace::kSideBySide;
    info.ordinal = ordinal;
    info.name = "far";
    info.uuid = "GPU-far" + std::to_string(ordinal);
    return info;
  }
  const std::unique_ptr<Device> near_;
};

// Inputs are copied into one block and outputs out of another.
class PlanRunner final : public StreamTask {
 public:
  PlanRunner(Device& device, const Plan& plan) : device_(device), plan_(plan) {}

  // Asked between steps and pieces of them; its first error ends the run.
  void set_go_on(std::function<absl::Status()> go_on) {
    go_on_ = std::move(go_on);
  }
  // How often it was whether to go on, and not to keep pace.
  size_t asked() const { return asked_; }

  absl::Status Run(const std::vector<HostTensor>& inputs, uint64_t seed = 0) {
    // Which every device reads and writes, and this object too.
    PinnedMemory in = *device_.AllocatePinned(plan_.input_bytes() + 1);
    out_ = *device_.AllocatePinned(plan_.output_bytes() + 1);
    arena_ = *device_.Allocate(plan_.arena_bytes() + 1);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Plan::Value& input = plan_.inputs()[i];
      if (input.on_host) {
        addresses_.push_back(inputs[i].data);
        continue;
      }
      auto* at = static_cast<std::byte*>(in.data()) + input.offset;
      std::memcpy(at, inputs[i].data, input.meta.bytes);
      addresses_.push_back(at);
    }
    seed_ = seed;
    std::unique_ptr<Stream> stream =
        *device_.CreateStream(device_.info().least_priority);
    stream->Enqueue(this);
    MutexLock lock(&mu_);
    while (!done_) changed_.Wait(&mu_);
    return status_;
  }

  template <typename T>
  std::vector<T> Output(size_t i) const {
    const Plan::Value& output = plan_.outputs()[i];
    std::vector<T> values(static_cast<size_t>(output.meta.elements));
    std::memcpy(values.data(),
                static_cast<const std::byte*>(out_.data()) + output.offset,
                output.meta.bytes);
    return values;
  }

  absl::Status Launch(Stream& stream) override {
    ProgramRun run{stream,
                   nullptr,
                   addresses_,
                   static_cast<std::byte*>(out_.data()),
                   static_cast<std::byte*>(arena_.data()),
                   {seed_, 0}};
    if (go_on_ != nullptr) {
      run.team = device_.cpu_team();
      run.go_on.emplace(counted_);
      run.pace.emplace(go_on_);
      run.pace_launches = 1;
    }
    return plan_.Run(run);
  }

  void Complete(const Completion& completion) override {
    MutexLock lock(&mu_);
    status_ = completion.status;
    done_ = true;
    changed_.NotifyAll();
  }

 private:
  Device& device_;
  const Plan& plan_;
  PinnedMemory out_;
  DeviceMemory arena_;
  std::vector<const void*> addresses_;
  uint64_t seed_ = 0;
  std::function<absl::Status()> go_on_;
  std::atomic<size_t> asked_{0};
  const std::function<absl::Status()> counted_ = [this] {
    ++asked_;
    return go_on_();
  };
  Mutex mu_;
  CondVar changed_;
  bool done_ WEIR_GUARDED_BY(mu_) = false;
  absl::Status status_ WEIR_GUARDED_BY(mu_);
};

}  // namespace weir::testing
