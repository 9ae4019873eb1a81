#include "kernels/device/pageable_buffer.h"

#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/alignment.h"
#include "kernels/base/status_macros.h"
#include "kernels/device/device.h"

namespace weir {

absl::StatusOr<PageableBuffer> PageableBuffer::Create(PinnedPool& pool,
                                                      size_t bytes) {
  WEIR_ASSIGN_OR_RETURN(const size_t charged, pool.Charge(bytes));
  void* const data =
      ::operator new (charged, std::align_val_t{kBlockAlignment}, std::nothrow);
  if (data == nullptr) {
    pool.Discharge(charged);
    return ShortOfHostMemory(absl::ResourceExhaustedError(absl::StrCat(
        "the host has no memory for a copy of ", bytes, " bytes")));
  }
  PageableBuffer buffer;
  buffer.data_ = {static_cast<std::byte*>(data), Free{&pool, charged}};
  return buffer;
}

void PageableBuffer::Free::operator()(std::byte* data) const {
  ::operator delete (data, std::align_val_t{kBlockAlignment});
  pool->Discharge(charged);
}

}  // namespace weir
