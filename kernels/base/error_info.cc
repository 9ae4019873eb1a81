#include "kernels/base/error_info.h"

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"

namespace weir {
namespace {

constexpr char kReasonUrl[] = "weir/reason";
constexpr char kMetadataUrl[] = "weir/metadata";
constexpr char kRetryUrl[] = "weir/retry_after_ns";
constexpr char kFieldUrl[] = "weir/field";
constexpr char kNodeUrl[] = "weir/node";
constexpr char kNodeIndexUrl[] = "weir/node_index";
constexpr char kInheritedUrl[] = "weir/inherited";

std::string Payload(const absl::Status& status, const char* url) {
  auto payload = status.GetPayload(url);
  return payload.has_value() ? std::string(*payload) : std::string();
}

void AppendSized(std::string* out, std::string_view s) {
  absl::StrAppend(out, s.size(), ":", AbslView(s));
}

bool TakeSized(std::string_view* in, std::string* out) {
  const size_t colon = in->find(':');
  size_t size = 0;
  if (colon == std::string_view::npos ||
      !absl::SimpleAtoi(AbslView(in->substr(0, colon)), &size) ||
      in->size() - colon - 1 < size) {
    return false;
  }
  *out = std::string(in->substr(colon + 1, size));
  in->remove_prefix(colon + 1 + size);
  return true;
}

}  // namespace

absl::Status WithReason(absl::Status status, std::string_view reason,
                        ReasonMetadata metadata) {
  if (status.ok()) return status;
  status.SetPayload(kReasonUrl, absl::Cord(AbslView(reason)));
  if (!metadata.empty()) {
    std::string encoded;
    for (const auto& [key, value] : metadata) {
      AppendSized(&encoded, key);
      AppendSized(&encoded, value);
    }
    status.SetPayload(kMetadataUrl, absl::Cord(encoded));
  }
  return status;
}

absl::Status WithRetryAfter(absl::Status status, absl::Duration delay) {
  if (status.ok()) return status;
  status.SetPayload(kRetryUrl,
                    absl::Cord(absl::StrCat(absl::ToInt64Nanoseconds(delay))));
  return status;
}

absl::Status WithField(absl::Status status, std::string_view field) {
  if (status.ok()) return status;
  status.SetPayload(kFieldUrl, absl::Cord(AbslView(field)));
  return status;
}

absl::Status InvalidField(std::string_view field, std::string_view message) {
  return WithField(absl::InvalidArgumentError(AbslView(message)), field);
}

absl::Status WithNode(absl::Status status, std::string_view node) {
  if (status.ok()) return status;
  status.SetPayload(kNodeUrl, absl::Cord(AbslView(node)));
  return status;
}

absl::Status WithNodeIndex(absl::Status status, size_t index) {
  if (status.ok()) return status;
  status.SetPayload(kNodeIndexUrl, absl::Cord(absl::StrCat(index)));
  return status;
}

absl::Status WithoutNodeIndex(absl::Status status) {
  status.ErasePayload(kNodeIndexUrl);
  return status;
}

std::string Reason(const absl::Status& status) {
  return Payload(status, kReasonUrl);
}

ReasonMetadata Metadata(const absl::Status& status) {
  ReasonMetadata metadata;
  const std::string encoded = Payload(status, kMetadataUrl);
  std::string_view rest = encoded;
  std::string key, value;
  while (TakeSized(&rest, &key) && TakeSized(&rest, &value)) {
    metadata.emplace_back(std::move(key), std::move(value));
  }
  return metadata;
}

std::optional<absl::Duration> RetryAfter(const absl::Status& status) {
  int64_t nanos = 0;
  if (!absl::SimpleAtoi(Payload(status, kRetryUrl), &nanos)) {
    return std::nullopt;
  }
  return absl::Nanoseconds(nanos);
}

std::string Field(const absl::Status& status) {
  return Payload(status, kFieldUrl);
}

std::string NodeAtFault(const absl::Status& status) {
  return Payload(status, kNodeUrl);
}

std::optional<size_t> NodeIndex(const absl::Status& status) {
  size_t index = 0;
  if (!absl::SimpleAtoi(Payload(status, kNodeIndexUrl), &index)) {
    return std::nullopt;
  }
  return index;
}

absl::Status Annotate(const absl::Status& status, std::string_view prefix) {
  if (status.ok()) return status;
  absl::Status result(status.code(),
                      absl::StrCat(AbslView(prefix), status.message()));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    result.SetPayload(url, payload);
  });
  return result;
}

absl::Status Inherited(const absl::Status& cause, std::string_view prefix) {
  if (cause.ok() || IsInherited(cause)) return cause;
  absl::Status result = Annotate(cause, prefix);
  result.SetPayload(kInheritedUrl, absl::Cord());
  result.ErasePayload(kFieldUrl);  // of another request
  return result;
}

bool IsInherited(const absl::Status& status) {
  return status.GetPayload(kInheritedUrl).has_value();
}

}  // namespace weir
