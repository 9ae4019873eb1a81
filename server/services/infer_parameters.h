// What the parameters of a ModelInfer request and of its tensors ask for. What
// would change the answer and is not offered is refused by name; what asks for
// nothing passes, and so do names that only the caller knows. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/rpc/wire/infer_parameter.h"

namespace weir {

// Of requests ("brief", "full") and of the replies that carry a report.
inline constexpr std::string_view kReportParameter = "weir_sync_report";

enum class ReportWish : uint8_t { kNone, kBrief, kFull };

// The report that the request asks for. INVALID_ARGUMENT for a value that its
// parameter cannot have, UNIMPLEMENTED for one that is not offered; both name
// the field "parameters.NAME".
absl::StatusOr<ReportWish> ReadInferParameters(
    std::span<const InferParameter> parameters);

// The same for those of input or output `tensor`, whose path in the request is
// `path`.
absl::Status CheckTensorParameters(std::string_view tensor,
                                   std::string_view path,
                                   std::span<const InferParameter> parameters);

}  // namespace weir
