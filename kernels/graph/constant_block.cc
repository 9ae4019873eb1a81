#include "kernels/graph/constant_block.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/alignment.h"
#include "kernels/base/error_info.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status_macros.h"
#include "kernels/device/stream.h"

namespace weir {
namespace {

constexpr size_t kStagingBytes = size_t{32} << 20;

struct Copy {
  const void* source;
  size_t offset;
  size_t bytes;
};

// Copies staging memory to the device and says when it is done.
class StagedCopy final : public StreamTask {
 public:
  StagedCopy(void* target, const void* staging, size_t bytes)
      : target_(target), staging_(staging), bytes_(bytes) {}

  absl::Status Launch(Stream& stream) override {
    return stream.CopyToDevice(target_, staging_, bytes_);
  }

  void Complete(const Completion& completion) override {
    MutexLock lock(&mu_);
    status_ = completion.status;
    done_ = true;
    changed_.NotifyAll();
  }

  absl::Status Wait() {
    MutexLock lock(&mu_);
    while (!done_) changed_.Wait(&mu_);
    return status_;
  }

 private:
  void* const target_;
  const void* const staging_;
  const size_t bytes_;
  Mutex mu_;
  CondVar changed_;
  bool done_ WEIR_GUARDED_BY(mu_) = false;
  absl::Status status_ WEIR_GUARDED_BY(mu_);
};

absl::Status CopyThroughStream(Device& device, std::byte* block,
                               const std::vector<Copy>& copies, size_t total) {
  WEIR_ASSIGN_OR_RETURN(PinnedMemory staging,
                        device.AllocatePinned(std::min(total, kStagingBytes)));
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream,
                        device.CreateStream(device.info().least_priority));
  size_t filled = 0;  // bytes in the staging buffer
  size_t target = 0;  // where they go in the block
  const auto flush = [&]() -> absl::Status {
    if (filled == 0) return absl::OkStatus();
    StagedCopy copy(block + target, staging.data(), filled);
    stream->Enqueue(&copy);
    filled = 0;
    return copy.Wait();
  };
  for (const Copy& copy : copies) {
    size_t done = 0;
    while (done < copy.bytes) {
      const size_t at = copy.offset + done;
      if (filled == 0) target = at;
      // Offsets grow, so the gap is padding between two constants.
      size_t room =
          at - target < staging.size() ? staging.size() - (at - target) : 0;
      if (room == 0) {
        WEIR_RETURN_IF_ERROR(flush());
        continue;
      }
      const size_t part = std::min(room, copy.bytes - done);
      std::memcpy(staging.data() + (at - target),
                  static_cast<const std::byte*>(copy.source) + done, part);
      filled = at - target + part;
      done += part;
    }
  }
  return flush();
}

bool CanStay(const Constant& constant) {
  return constant.owner != nullptr &&
         reinterpret_cast<uintptr_t>(constant.tensor.data) % kVectorAlignment ==
             0;
}

}  // namespace

absl::StatusOr<ConstantBlock> UploadConstants(
    Device& device,
    const std::vector<std::shared_ptr<const Constant>>& constants) {
  ConstantBlock block;
  block.addresses.assign(constants.size(), nullptr);
  const bool host = device.host_addressable();
  std::vector<Copy> copies;
  std::vector<size_t> copied;
  size_t total = 0;
  for (size_t i = 0; i < constants.size(); ++i) {
    const Constant& constant = *constants[i];
    WEIR_ASSIGN_OR_RETURN(const int64_t bytes, ByteSize(constant.tensor.dtype,
                                                        constant.tensor.dims));
    block.bytes += static_cast<size_t>(bytes);
    if (host &&
        (CanStay(constant) || constant.tensor.dtype == DType::kString)) {
      block.in_place.push_back(constants[i]);
    }
    if (host && CanStay(constant)) {
      block.addresses[i] = constant.tensor.data;
      continue;
    }
    copies.push_back({constant.tensor.data, total, static_cast<size_t>(bytes)});
    copied.push_back(i);
    total += AlignUp(static_cast<size_t>(bytes));
  }
  if (total == 0) return block;
  auto memory = device.Allocate(total);
  if (!memory.ok()) {
    return Annotate(memory.status(),
                    absl::StrCat("for ", total, " bytes of constants: "));
  }
  block.memory = *std::move(memory);
  auto* base = static_cast<std::byte*>(block.memory.data());
  for (size_t i = 0; i < copies.size(); ++i) {
    block.addresses[copied[i]] = base + copies[i].offset;
    if (host && copies[i].bytes > 0) {
      std::memcpy(base + copies[i].offset, copies[i].source, copies[i].bytes);
    }
  }
  if (!host) {
    WEIR_RETURN_IF_ERROR(CopyThroughStream(device, base, copies, total));
  }
  return block;
}

}  // namespace weir
