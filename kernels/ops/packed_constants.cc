#include "kernels/ops/packed_constants.h"

#include <new>

#include "absl/strings/str_cat.h"
#include "kernels/base/alignment.h"
#include "kernels/base/holders.h"
#include "kernels/base/status_macros.h"
#include "kernels/device/device.h"

namespace weir {
namespace {

constexpr std::align_val_t kAlignment{kVectorAlignment};

}  // namespace

void PackedConstants::Limit(size_t max_bytes) {
  MutexLock lock(&mu_);
  max_bytes_ = max_bytes;
}

absl::StatusOr<std::shared_ptr<const std::byte>> PackedConstants::Get(
    const void* constant, const std::string& form, size_t bytes,
    absl::FunctionRef<absl::Status(std::byte*)> make) {
  MutexLock lock(&mu_);
  auto& forms = copies_[constant];
  if (const auto it = forms.find(form); it != forms.end()) {
    if (auto copy = HoldIfThere(it->second)) return copy;
  }
  for (auto it = forms.begin(); it != forms.end();) {
    it = it->second.expired() ? forms.erase(it) : std::next(it);
  }
  if (forms.size() >= kMaxPackedForms) return nullptr;
  const size_t held = tally_->bytes();
  if (held > max_bytes_ || bytes > max_bytes_ - held) return nullptr;
  auto* const data =
      static_cast<std::byte*>(operator new(bytes, kAlignment, std::nothrow));
  if (data == nullptr) {
    return ShortOfHostMemory(absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", bytes, " bytes of packed constants")));
  }
  tally_->Add(bytes);
  std::shared_ptr<const std::byte> copy(
      data, [tally = tally_, bytes](const std::byte* held) {
        operator delete(const_cast<std::byte*>(held), kAlignment);
        tally->Remove(bytes);
      });
  WEIR_RETURN_IF_ERROR(make(data));
  forms.emplace(form, copy);
  ++made_;
  return copy;
}

size_t PackedConstants::made() const {
  MutexLock lock(&mu_);
  return made_;
}

}  // namespace weir
