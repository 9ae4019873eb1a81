// Copies of a program's constants in the forms that its kernels want (weights
// in a library's blocks), made once and shared by all plans: a copy lives as
// long as a plan holds it. One object per program; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/byte_account.h"
#include "kernels/base/export.h"
#include "kernels/base/mutex.h"

namespace weir {

// How many forms of one constant live at the same time. Shapes that would need
// another one do without: their kernels pack on every run.
inline constexpr size_t kMaxPackedForms = 4;

class WEIR_EXPORT PackedConstants {
 public:
  // The copies count in `whole` too, if it is not null.
  explicit PackedConstants(std::shared_ptr<ByteAccount> whole = nullptr)
      : tally_(std::make_shared<ByteAccount>(std::move(whole))) {}
  PackedConstants(const PackedConstants&) = delete;
  PackedConstants& operator=(const PackedConstants&) = delete;

  // Of living copies in all; before the first Get. Without it: no limit.
  void Limit(size_t max_bytes);

  // The copy in `form` (any text that tells forms apart) of the constant that
  // begins at `constant`; made by `make`, into `bytes` aligned to 64, if no
  // plan holds one. Null where kMaxPackedForms others live, or where it does
  // not fit the limit: libraries pad channels, which makes a few bytes some
  // hundred times as many. Waits for other copies that are being made: not for
  // I/O threads.
  absl::StatusOr<std::shared_ptr<const std::byte>> Get(
      const void* constant, const std::string& form, size_t bytes,
      absl::FunctionRef<absl::Status(std::byte*)> make);

  // Of the living copies.
  size_t bytes() const { return tally_->bytes(); }
  // Copies ever made.
  size_t made() const;

 private:
  // Shared with the copies, which may outlive this object.
  const std::shared_ptr<ByteAccount> tally_;
  mutable Mutex mu_;
  size_t max_bytes_ WEIR_GUARDED_BY(mu_) = SIZE_MAX;
  // At most kMaxPackedForms of each constant: forms nobody holds are dropped
  // when another is asked for.
  std::map<const void*, std::map<std::string, std::weak_ptr<const std::byte>>>
      copies_ WEIR_GUARDED_BY(mu_);
  size_t made_ WEIR_GUARDED_BY(mu_) = 0;
};

}  // namespace weir
