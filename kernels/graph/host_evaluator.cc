#include "kernels/graph/host_evaluator.h"

#include <cstdlib>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/alignment.h"
#include "kernels/base/mutex.h"
#include "kernels/base/saturating.h"
#include "kernels/base/status_macros.h"
#include "kernels/graph/evaluation_size.h"
#include "kernels/graph/node_inference.h"

namespace weir {
namespace {

// Frees what MakeHostConstant has allocated.
struct HostBytes {
  std::shared_ptr<const void> text;

  void operator()(const std::byte* data) const {
    std::free(const_cast<std::byte*>(data));
  }
};

// What was given to MakeHostConstant; null of other constants.
const void* TextOf(const Constant& constant) {
  const HostBytes* bytes = std::get_deleter<HostBytes>(constant.owner);
  return bytes == nullptr ? nullptr : bytes->text.get();
}

class CallerAlone final : public CpuTeam {
 public:
  explicit CallerAlone(const StopToken& stop) : stop_(stop) {}

  bool GivenUp() override { return stop_.stop_requested(); }
  int size() const override { return 1; }
  void Run(int64_t n, int64_t /*grain*/,
           absl::FunctionRef<void(int64_t, int64_t)> fn) override {
    if (n > 0) fn(0, n);
  }

 private:
  const StopToken& stop_;
};

absl::Status NoSuchThing() {
  return absl::InternalError("not available while a plan is made");
}

DeviceInfo HostInfo() {
  DeviceInfo info;
  info.uuid = "CPU-planner";
  info.name = "planner";
  info.multiprocessors = 1;
  return info;
}

// Of its elements, with the characters of strings, which an owner holds beside
// them.
size_t BytesWithText(const Constant& constant) {
  const TensorMeta meta = MakeMeta(constant.tensor.dtype, constant.tensor.dims);
  size_t bytes = meta.bytes;
  if (meta.dtype != DType::kString) return bytes;
  const auto* text = constant.tensor.as<StringRef>();
  for (int64_t i = 0; i < meta.elements; ++i) bytes += text[i].size;
  return bytes;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Constant>> MakeHostConstant(
    const TensorMeta& meta, std::byte** data,
    std::shared_ptr<const void> text) {
  const size_t size = AlignUp(meta.bytes == 0 ? 1 : meta.bytes);
  *data = static_cast<std::byte*>(std::aligned_alloc(kBlockAlignment, size));
  if (*data == nullptr) {
    return ShortOfHostMemory(absl::ResourceExhaustedError(
        absl::StrCat("the host has no memory left for ", size, " bytes")));
  }
  std::memset(*data, 0, size);
  auto constant = std::make_shared<Constant>();
  constant->tensor = {meta.dtype, meta.dims, *data};
  constant->owner =
      std::shared_ptr<const std::byte>(*data, HostBytes{std::move(text)});
  return std::shared_ptr<const Constant>(std::move(constant));
}

bool HostBudget::Take(size_t bytes, const NodeCost& cost) {
  const int64_t all =
      SaturatingAdd(static_cast<int64_t>(bytes), cost.scratch_bytes);
  if (all > static_cast<int64_t>(bytes_) || cost.operations > operations_) {
    return false;
  }
  bytes_ -= static_cast<size_t>(all);
  operations_ -= cost.operations;
  return true;
}

// One set for all results: each with its own would hold as many owners as there
// were constants before it.
class HostEvaluator::TextOwners {
 public:
  void Keep(const std::shared_ptr<const Constant>& constant) {
    std::shared_ptr<const void> owner =
        constant->owner != nullptr ? constant->owner : constant;
    const MutexLock lock(&mu_);
    if (counted_.insert(constant->tensor.data).second) {
      bytes_ += BytesWithText(*constant);
    }
    owners_.insert(std::move(owner));
  }

  size_t bytes() const {
    const MutexLock lock(&mu_);
    return bytes_;
  }

  bool Keeps(const Constant& constant) const {
    const MutexLock lock(&mu_);
    return counted_.contains(constant.tensor.data);
  }

 private:
  mutable Mutex mu_;
  std::set<std::shared_ptr<const void>> owners_ WEIR_GUARDED_BY(mu_);
  std::set<const void*> counted_
      WEIR_GUARDED_BY(mu_);  // an owner's may be many
  size_t bytes_ WEIR_GUARDED_BY(mu_) = 0;
};

class HostEvaluator::HostDevice final : public Device {
 public:
  HostDevice() : Device(HostInfo()) {}

  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(int) override {
    return NoSuchThing();
  }
  bool host_addressable() const override { return true; }
  absl::Status Synchronize() override { return absl::OkStatus(); }

 protected:
  absl::StatusOr<void*> AllocateRaw(size_t bytes) override {
    void* data = std::aligned_alloc(kBlockAlignment, AlignUp(bytes));
    if (data == nullptr) return absl::ResourceExhaustedError("no memory left");
    return data;
  }
  void FreeRaw(void* data, size_t) override { std::free(data); }
  absl::StatusOr<void*> AllocatePinnedRaw(size_t bytes) override {
    return AllocateRaw(bytes);
  }
  void FreePinnedRaw(void* data, size_t) override { std::free(data); }
};

class HostEvaluator::HostStream final : public Stream {
 public:
  explicit HostStream(Device* device)
      : Stream(std::make_shared<Timeline>("planner")), device_(device) {}

  Device& device() const override { return *device_; }
  uint64_t id() const override { return 0; }
  int priority() const override { return 0; }
  // A kernel has no business here: nothing is ever enqueued.
  uint64_t Enqueue(StreamTask* task, Inline) override {
    task->completion.status = NoSuchThing();
    task->Complete(task->completion);
    return 0;
  }
  absl::Status CopyToDevice(void* dst, const void* src, size_t bytes) override {
    std::memcpy(dst, src, bytes);
    return absl::OkStatus();
  }
  absl::Status CopyToHost(void* dst, const void* src, size_t bytes) override {
    return CopyToDevice(dst, src, bytes);
  }
  absl::Status CopyOnDevice(void* dst, const void* src, size_t bytes) override {
    return CopyToDevice(dst, src, bytes);
  }
  absl::Status Fill(void* dst, uint8_t value, size_t bytes) override {
    std::memset(dst, value, bytes);
    return absl::OkStatus();
  }
  absl::Status WaitOnDevice(const Point&) override { return NoSuchThing(); }
  FaultSlot* fault_slot() override { return nullptr; }

 private:
  Device* const device_;
};

HostEvaluator::HostEvaluator()
    : device_(std::make_unique<HostDevice>()),
      stream_(std::make_unique<HostStream>(device_.get())),
      text_(std::make_shared<TextOwners>()) {}

HostEvaluator::~HostEvaluator() = default;

Device& HostEvaluator::device() const { return *device_; }

size_t HostEvaluator::kept_bytes() const { return text_->bytes(); }

size_t HostEvaluator::OwnBytes(const Constant& constant) const {
  if (TextOf(constant) == text_.get()) {
    return MakeMeta(constant.tensor.dtype, constant.tensor.dims).bytes;
  }
  return text_->Keeps(constant) ? 0 : BytesWithText(constant);
}

NodeCost HostEvaluator::CostOf(
    const LoweredNode& node, absl::Span<const TensorMeta> inputs,
    absl::Span<const TensorMeta> outputs,
    absl::Span<const std::vector<int64_t>> host_ints) {
  NodeCost cost = node.def->cost(node.info, Pace::kInTurn,
                                 {.inputs = inputs,
                                  .outputs = outputs,
                                  .host_ints = host_ints,
                                  .once = true});
  cost.operations = CpuOperations(node, cost.operations, outputs);
  return cost;
}

absl::StatusOr<HostEvaluator::Results> HostEvaluator::Run(
    const LoweredNode& node, const Kernel& kernel,
    absl::Span<const TensorMeta> inputs,
    absl::Span<const std::shared_ptr<const Constant>> values,
    absl::Span<const std::vector<int64_t>> host_ints,
    absl::Span<const TensorMeta> outputs, const StopToken& stop) const {
  for (const auto& value : values) {
    if (value == nullptr || value->tensor.dtype != DType::kString) continue;
    if (TextOf(*value) != text_.get()) text_->Keep(value);
  }
  bool empty = true;
  std::vector<void*> targets;
  Results results;
  for (const TensorMeta& meta : outputs) {
    std::byte* data = nullptr;
    auto result = MakeHostConstant(
        meta, &data, meta.dtype == DType::kString ? text_ : nullptr);
    if (!result.ok()) return NodeError(result.status(), node);
    results.push_back(*std::move(result));
    targets.push_back(data);
    empty = empty && meta.elements == 0;
  }
  // As on a device, where kernels are never asked for nothing.
  if (empty) return results;
  auto plan = kernel.Plan({.inputs = inputs,
                           .outputs = outputs,
                           .host_ints = host_ints,
                           .once = true});
  if (!plan.ok()) return NodeError(plan.status(), node);
  TensorMeta scratch_meta;
  scratch_meta.bytes = (*plan)->scratch_bytes();
  if (scratch_meta.bytes > kMaxScratchBytes) return Results();
  std::byte* scratch = nullptr;
  const auto scratch_owner = MakeHostConstant(scratch_meta, &scratch);
  if (!scratch_owner.ok()) return NodeError(scratch_owner.status(), node);

  std::vector<const void*> sources;
  for (const auto& value : values) {
    sources.push_back(value == nullptr ? nullptr : value->tensor.data);
  }
  CallerAlone team(stop);
  RunArgs args{*stream_, &team, sources, targets, scratch, {}, 0};
  args.node_index = static_cast<uint32_t>(node.index);
  const absl::Status status = (*plan)->Run(args);
  if (!status.ok()) return NodeError(status, node);
  // Not all of it was computed, as a rule.
  if (stop.stop_requested()) {
    return absl::CancelledError("nobody wants what the host computes any more");
  }
  return results;
}

}  // namespace weir
