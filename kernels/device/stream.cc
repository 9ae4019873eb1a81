#include "kernels/device/stream.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/device/device.h"

namespace weir {

absl::Status FaultStatus(FaultCode code) {
  switch (code) {
    case FaultCode::kNone:
      return absl::OkStatus();
    case FaultCode::kIndexOutOfRange:
      return WithReason(absl::InvalidArgumentError("an index is out of range"),
                        "INDEX_OUT_OF_RANGE");
    case FaultCode::kDivisionByZero:
      return WithReason(
          absl::InvalidArgumentError("an integer is divided by zero"),
          "DIVISION_BY_ZERO");
    case FaultCode::kCorruptData:
      return WithReason(
          absl::InvalidArgumentError("the data is corrupt or truncated"),
          "CORRUPT_DATA");
    case FaultCode::kInjected:
      return WithReason(absl::InternalError("a fault was injected"),
                        "INJECTED_FAULT");
  }
  return absl::InternalError(absl::StrCat("a kernel reported the fault ",
                                          static_cast<uint32_t>(code)));
}

absl::Status Stream::Check() { return device().health().status(); }

}  // namespace weir
