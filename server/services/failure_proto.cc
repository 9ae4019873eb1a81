#include "server/services/failure_proto.h"

#include <optional>
#include <string>

#include "absl/strings/cord.h"
#include "absl/time/time.h"
#include "kernels/base/error_info.h"
#include "kernels/base/utf8.h"
#include "server/rpc/status_mapping.h"

namespace weir {

namespace {

// What callers sent may be in it; a string that is not UTF-8 cannot be read.
std::string Clean(absl::string_view text) {
  return EscapeNonUtf8({text.data(), text.size()});
}

}  // namespace

v1::Failure ToFailure(const absl::Status& status) {
  const absl::Status cut = CutStatus(status);
  v1::Failure failure;
  failure.set_code(cut.raw_code());
  failure.set_message(
      std::string(CutText(Clean(cut.message()), kMaxStatusMessageBytes)));
  failure.set_reason(Reason(cut));
  for (const auto& [key, value] : Metadata(cut)) {
    (*failure.mutable_metadata())[Clean(key)] = Clean(value);
  }
  failure.set_field(Clean(Field(cut)));
  if (const std::optional<absl::Duration> delay = RetryAfter(cut)) {
    failure.set_retry_after_ns(absl::ToInt64Nanoseconds(*delay));
  }
  // Abseil's optional.
  if (const auto report = cut.GetPayload(kReportDetail)) {
    if (!failure.mutable_report()->ParseFromString(std::string(*report))) {
      failure.clear_report();
    }
  }
  return failure;
}

}  // namespace weir
