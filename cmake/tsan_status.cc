// What ends an absl::Status, for programs under ThreadSanitizer. The packaged
// Abseil is not instrumented: there the sanitizer would not see the count of a
// status that threads share, and takes its end for a race with whoever read it
// before. The program's definition goes before the library's.
#include <atomic>
#include <cstdint>

#include "absl/status/internal/status_internal.h"
#include "absl/status/status.h"

namespace absl {
ABSL_NAMESPACE_BEGIN

void Status::UnrefNonInlined(uintptr_t rep) {
  status_internal::StatusRep* const shared = RepToPointer(rep);
  if (shared->ref.fetch_sub(1, std::memory_order_acq_rel) == 1) delete shared;
}

ABSL_NAMESPACE_END
}  // namespace absl
