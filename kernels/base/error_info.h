// Machine-readable details of an error, carried as payloads of absl::Status so
// that `kernels` need not know protobuf. The server turns them into
// google.rpc.ErrorInfo (domain "weir"), RetryInfo and BadRequest.
// All functions are pure and may be called from any thread.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/base/export.h"

namespace weir {

using ReasonMetadata = std::vector<std::pair<std::string, std::string>>;

// `reason` is UPPER_SNAKE_CASE, for example "CONTEXT_BUSY".
WEIR_EXPORT absl::Status WithReason(absl::Status status,
                                    std::string_view reason,
                                    ReasonMetadata metadata = {});

// How long a caller should wait before it tries again.
WEIR_EXPORT absl::Status WithRetryAfter(absl::Status status,
                                        absl::Duration delay);

// The path of the request field at fault, for example "inputs[2].shape".
WEIR_EXPORT absl::Status WithField(absl::Status status, std::string_view field);

// INVALID_ARGUMENT with `message` and, as WithField, the field at fault.
WEIR_EXPORT absl::Status InvalidField(std::string_view field,
                                      std::string_view message);

// The node of a graph at fault, as errors name it. For reports; it is in the
// message as well.
WEIR_EXPORT absl::Status WithNode(absl::Status status, std::string_view node);

// The same by its place in the graph, for whoever knows more of that; and
// without that, once it is told.
WEIR_EXPORT absl::Status WithNodeIndex(absl::Status status, size_t index);
WEIR_EXPORT absl::Status WithoutNodeIndex(absl::Status status);

// Reads back; empty where nothing was attached.
WEIR_EXPORT std::string Reason(const absl::Status& status);
WEIR_EXPORT ReasonMetadata Metadata(const absl::Status& status);
WEIR_EXPORT std::optional<absl::Duration> RetryAfter(
    const absl::Status& status);
WEIR_EXPORT std::string Field(const absl::Status& status);
WEIR_EXPORT std::string NodeAtFault(const absl::Status& status);
WEIR_EXPORT std::optional<size_t> NodeIndex(const absl::Status& status);

// The same status with `prefix` before its message, payloads kept.
WEIR_EXPORT absl::Status Annotate(const absl::Status& status,
                                  std::string_view prefix);

// What becomes of that which depends on something that ended with `cause`:
// annotated with what that is, unless `cause` was inherited itself. So an error
// that goes through a thousand works names the first, and does not grow. The
// field is not inherited: it is one of another request.
WEIR_EXPORT absl::Status Inherited(const absl::Status& cause,
                                   std::string_view prefix);
WEIR_EXPORT bool IsInherited(const absl::Status& status);

}  // namespace weir
