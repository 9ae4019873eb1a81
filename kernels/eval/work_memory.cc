#include "kernels/eval/work_memory.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/alignment.h"
#include "kernels/base/error_info.h"
#include "kernels/base/long_step_bytes.h"
#include "kernels/base/status_macros.h"
#include "kernels/eval/engine.h"

namespace weir {
namespace {

size_t PieceBytes(const InputSource& source) {
  size_t bytes = 0;
  for (std::string_view piece : source.pieces) bytes += piece.size();
  return bytes;
}

absl::Span<const StringRef> Strings(const InputSource& source) {
  const std::string_view piece = source.pieces[0];
  return {reinterpret_cast<const StringRef*>(piece.data()),
          piece.size() / sizeof(StringRef)};
}

// Room for a copy of the input: its bytes and, of strings, their text.
size_t CopyBytes(const InputSource& source) {
  size_t bytes = AlignUp(PieceBytes(source));
  if (source.dtype == DType::kString && !source.pieces.empty()) {
    size_t text = 0;
    for (const StringRef& string : Strings(source)) text += string.size;
    bytes += AlignUp(text);
  }
  return bytes;
}

void CopyStrings(absl::Span<const StringRef> from, std::byte* to) {
  StringRef* refs = reinterpret_cast<StringRef*>(to);
  std::byte* text = to + AlignUp(from.size() * sizeof(StringRef));
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i].size > 0) std::memcpy(text, from[i].data, from[i].size);
    refs[i] = {reinterpret_cast<const char*>(text), from[i].size};
    text += from[i].size;
  }
}

void CopyInput(const InputSource& source, std::byte* to) {
  if (source.dtype == DType::kString && !source.pieces.empty()) {
    CopyStrings(Strings(source), to);
    return;
  }
  for (std::string_view piece : source.pieces) {
    if (!piece.empty()) std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
  }
}

}  // namespace

void WorkMemory::Reset() {
  plan_ = nullptr;
  bytes_stay_ = false;
  staged_ = false;
  addresses_.clear();
  ReleaseInputs();
}

void WorkMemory::ReleaseInputs() {
  owned_inputs_.Reset();
  staging_.Reset();
}

void WorkMemory::SetPlan(const Plan* plan, bool host_addressable) {
  plan_ = plan;
  host_addressable_ = host_addressable;
}

absl::Status WorkMemory::OwnInputs(PinnedPool& pool) {
  size_t bytes = 0;
  for (const InputSource& source : request_.inputs) bytes += CopyBytes(source);
  bytes_stay_ = true;
  if (bytes == 0) return absl::OkStatus();
  WEIR_ASSIGN_OR_RETURN(owned_inputs_, PageableBuffer::Create(pool, bytes));
  std::byte* to = owned_inputs_.data();
  for (InputSource& source : request_.inputs) {
    if (source.pieces.empty()) continue;
    CopyInput(source, to);
    const size_t room = CopyBytes(source);
    source.pieces = {std::string_view(reinterpret_cast<const char*>(to),
                                      PieceBytes(source))};
    to += room;
  }
  return absl::OkStatus();
}

// An input is read where it lies if nothing has to be copied and its bytes stay
// until the run is done.
bool WorkMemory::Borrows(size_t i) const {
  const InputSource& source = request_.inputs[i];
  if (source.pieces.size() != 1 || !bytes_stay_) return false;
  const size_t align = source.dtype == DType::kString ? alignof(StringRef)
                                                      : SizeOf(source.dtype);
  const bool aligned =
      reinterpret_cast<uintptr_t>(source.pieces[0].data()) % align == 0;
  return aligned && (host_addressable_ || plan_->inputs()[i].on_host);
}

bool WorkMemory::Stages() const {
  for (size_t i = 0; i < request_.inputs.size(); ++i) {
    if (!request_.inputs[i].tensor.valid() && !Borrows(i)) return true;
  }
  return false;
}

bool WorkMemory::NeedsResults() const {
  return host_addressable_ || request_.Reads(OutputWish::kInline);
}

size_t WorkMemory::StagingBytes() const {
  size_t bytes = plan_->input_bytes();
  for (size_t i = 0; i < request_.inputs.size(); ++i) {
    if (request_.inputs[i].tensor.valid()) continue;
    if (!plan_->inputs()[i].on_host || Borrows(i)) continue;
    bytes += CopyBytes(request_.inputs[i]);
  }
  return bytes;
}

size_t WorkMemory::ArenaBytes() const {
  const size_t blocks = host_addressable_ ? 0
                                          : AlignUp(plan_->input_bytes()) +
                                                AlignUp(plan_->output_bytes());
  return blocks + plan_->arena_bytes();
}

absl::Status WorkMemory::KeepInputs(PinnedPool& pool) {
  if (!Stages()) return absl::OkStatus();
  WEIR_ASSIGN_OR_RETURN(staging_, pool.AcquireNow(StagingBytes()));
  if (staging_.empty()) return OwnInputs(pool);
  StageInputs();
  return absl::OkStatus();
}

bool WorkMemory::StagesMuch() const {
  if (staged_) return false;
  size_t bytes = 0;
  for (size_t i = 0; i < request_.inputs.size(); ++i) {
    const InputSource& source = request_.inputs[i];
    if (source.tensor.valid() || Borrows(i)) continue;
    // How long many strings are is itself long to find out.
    if (bytes + PieceBytes(source) > kLongStepBytes) return true;
    bytes += CopyBytes(source);
  }
  return bytes > kLongStepBytes;
}

// The inputs that the device reads lie in the staging block as in the plan's
// input block, those that the host reads behind them.
void WorkMemory::StageInputs() {
  if (staged_) return;
  addresses_.assign(request_.inputs.size(), nullptr);
  bool borrows = false;
  size_t host_offset = AlignUp(plan_->input_bytes());
  for (size_t i = 0; i < request_.inputs.size(); ++i) {
    const InputSource& source = request_.inputs[i];
    const Plan::Value& value = plan_->inputs()[i];
    if (source.tensor.valid()) {
      addresses_[i] = source.tensor.data();
      continue;
    }
    if (Borrows(i)) {
      addresses_[i] = source.pieces[0].data();
      borrows = true;
      continue;
    }
    std::byte* to =
        staging_.data() + (value.on_host ? host_offset : value.offset);
    CopyInput(source, to);
    if (value.on_host) host_offset += CopyBytes(source);
    report_.bytes_in += value.meta.bytes;
    addresses_[i] = to;
  }
  staged_ = true;
  if (!borrows) owned_inputs_.Reset();
}

absl::StatusOr<bool> WorkMemory::TakeKept(MemoryPool& pool, bool may_wait) {
  if (!request_.Reads(OutputWish::kKeep)) return true;
  result_.kept.resize(request_.outputs.size());
  for (size_t i = 0; i < request_.outputs.size(); ++i) {
    if (request_.outputs[i] != OutputWish::kKeep || result_.kept[i].valid()) {
      continue;
    }
    const TensorMeta& meta = plan_->outputs()[i].meta;
    if (meta.dtype == DType::kString) {
      // Its characters lie with the run's inputs and results.
      return absl::UnimplementedError(
          absl::StrCat("output ", i, " is text and cannot be kept"));
    }
    WEIR_ASSIGN_OR_RETURN(
        std::shared_ptr<TensorStorage> storage,
        may_wait ? pool.Allocate(meta.bytes) : pool.AllocateNow(meta.bytes));
    if (storage == nullptr) return false;
    // The copy of the result writes the whole tensor.
    result_.kept[i] =
        Tensor(TensorSpec{meta.dtype, meta.dims, ""}, std::move(storage));
  }
  return true;
}

absl::StatusOr<bool> WorkMemory::TakeAtHand(Engine& engine, Lane& lane) {
  WEIR_ASSIGN_OR_RETURN(const bool kept,
                        TakeKept(engine.memory(), /*may_wait=*/false));
  if (!kept) return false;
  if (!staged_ && staging_.empty() && Stages()) {
    WEIR_ASSIGN_OR_RETURN(staging_, engine.pinned().AcquireNow(StagingBytes()));
    if (staging_.empty()) return false;
  }
  if (result_.buffer.empty() && NeedsResults()) {
    WEIR_ASSIGN_OR_RETURN(result_.buffer,
                          engine.pinned().AcquireNow(plan_->output_bytes()));
    if (result_.buffer.empty()) return false;
  }
  const size_t arena_bytes = ArenaBytes();
  device_inputs_ = nullptr;
  if (arena_bytes == 0) return true;
  device_inputs_ = lane.ArenaNow(arena_bytes);
  return device_inputs_ != nullptr;
}

absl::Status WorkMemory::Reserve(Engine& engine, Lane& lane) {
  WEIR_RETURN_IF_ERROR(TakeKept(engine.memory(), /*may_wait=*/true).status());
  if (!staged_ && staging_.empty() && Stages()) {
    WEIR_ASSIGN_OR_RETURN(staging_, engine.pinned().Acquire(StagingBytes()));
  }
  if (result_.buffer.empty() && NeedsResults()) {
    WEIR_ASSIGN_OR_RETURN(result_.buffer,
                          engine.pinned().Acquire(plan_->output_bytes()));
  }
  if (const size_t bytes = ArenaBytes(); bytes > 0) {
    WEIR_RETURN_IF_ERROR(lane.Arena(bytes).status());
  }
  return absl::OkStatus();
}

void WorkMemory::Assign(const Lane& lane) {
  const size_t inputs = host_addressable_ ? 0 : AlignUp(plan_->input_bytes());
  const size_t outputs = host_addressable_ ? 0 : AlignUp(plan_->output_bytes());
  device_outputs_ = device_inputs_ + inputs;
  arena_ = device_inputs_ + inputs + outputs;
  StageInputs();
  // What the device reads it reads on the device.
  for (size_t i = 0; !host_addressable_ && i < request_.inputs.size(); ++i) {
    const Plan::Value& value = plan_->inputs()[i];
    if (request_.inputs[i].tensor.valid() || value.on_host) continue;
    addresses_[i] = device_inputs_ + value.offset;
  }
  result_.bytes = result_.buffer.data();
  if (host_addressable_) device_outputs_ = result_.buffer.data();

  // The next on the stream is this run.
  const Point here{lane.stream().timeline(), lane.stream().last_sequence() + 1};
  for (const Tensor& kept : result_.kept) {
    if (kept.valid()) kept.storage().SetWriter(here);
  }
  for (const InputSource& source : request_.inputs) {
    if (source.tensor.valid()) source.tensor.storage().AddReader(here);
  }
}

bool WorkMemory::CopiesIn() const {
  return !host_addressable_ && !staging_.empty() && plan_->input_bytes() > 0;
}

// A kept output is a copy of its own; those that are read are one where they
// lie side by side, with what rounds all but the last of them up.
absl::Status WorkMemory::EachCopyOut(CopyResults copy) const {
  const auto& wishes = request_.outputs;
  const auto& outputs = plan_->outputs();
  for (size_t i = 0; i < wishes.size(); ++i) {
    const size_t first = i;
    if (wishes[i] == OutputWish::kDrop) continue;
    if (wishes[i] == OutputWish::kInline) {
      if (host_addressable_) continue;
      while (i + 1 < wishes.size() && wishes[i + 1] == OutputWish::kInline) ++i;
    }
    const size_t bytes =
        outputs[i].offset + outputs[i].meta.bytes - outputs[first].offset;
    if (bytes > 0) WEIR_RETURN_IF_ERROR(copy(first, bytes));
  }
  return absl::OkStatus();
}

size_t WorkMemory::copies() const {
  size_t copies = CopiesIn() ? 1 : 0;
  EachCopyOut([&copies](size_t, size_t) {
    ++copies;
    return absl::OkStatus();
  }).IgnoreError();
  return copies;
}

absl::Status WorkMemory::CopyIn(Stream& stream) const {
  if (!CopiesIn()) return absl::OkStatus();
  return stream.CopyToDevice(device_inputs_, staging_.data(),
                             plan_->input_bytes());
}

absl::Status WorkMemory::CopyOut(const ProgramRun& run) {
  // The plan may have ended just before it would have called it; one copy more
  // is no matter.
  size_t unpaced = run.pace_launches - 1;
  return EachCopyOut([&](size_t first, size_t bytes) -> absl::Status {
    if (run.pace.has_value()) {
      if (unpaced >= run.pace_launches) {
        WEIR_RETURN_IF_ERROR((*run.pace)());
        unpaced = 0;
      }
      ++unpaced;
    }
    const size_t offset = plan_->outputs()[first].offset;
    if (request_.outputs[first] == OutputWish::kKeep) {
      return run.stream.CopyOnDevice(result_.kept[first].data(),
                                     device_outputs_ + offset, bytes);
    }
    report_.bytes_out += bytes;
    return run.stream.CopyToHost(result_.buffer.data() + offset,
                                 device_outputs_ + offset, bytes);
  });
}

}  // namespace weir
