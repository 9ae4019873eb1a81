#include "server/rpc/status_mapping.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"
#include "kernels/base/utf8.h"
#include "proto/google/rpc/error_details.pb.h"
#include "proto/google/rpc/status.pb.h"

namespace weir {
namespace {

// Clients in Java take 8 KiB of trailers, names and 32 bytes for each among
// them, and show another error for more: there a byte of a message that is not
// ASCII has three, and three of the details have four.
constexpr size_t kMaxTrailerBytes = size_t{8} << 10;
constexpr size_t kOtherTrailerBytes = 256;
static_assert(3 * kMaxStatusMessageBytes + (kMaxStatusDetailBytes + 2) / 3 * 4 +
                  kOtherTrailerBytes <=
              kMaxTrailerBytes);

// What callers sent may be in it; details that are not UTF-8 cannot be read.
std::string Clean(absl::string_view text) {
  return EscapeNonUtf8({text.data(), text.size()});
}

std::string CutMessage(absl::string_view message) {
  if (message.size() <= kMaxStatusMessageBytes) return std::string(message);
  const std::string_view start =
      CutText({message.data(), message.size()}, kMaxStatusMessageBytes - 3);
  return absl::StrCat(AbslView(start), "...");
}

google::protobuf::Duration ToProto(absl::Duration duration) {
  google::protobuf::Duration proto;
  absl::Duration rest;
  proto.set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &rest));
  proto.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
  return proto;
}

// Appends `detail` if it fits.
void AddDetail(const google::protobuf::Message& detail,
               google::rpc::Status* rich) {
  google::protobuf::Any any;
  any.PackFrom(detail);
  if (rich->ByteSizeLong() + any.ByteSizeLong() + 8 > kMaxStatusDetailBytes) {
    return;
  }
  *rich->add_details() = std::move(any);
}

}  // namespace

absl::Status CutStatus(const absl::Status& status) {
  bool fits = status.message().size() <= kMaxStatusMessageBytes;
  status.ForEachPayload([&](absl::string_view, const absl::Cord& payload) {
    fits = fits && payload.size() <= kMaxStatusDetailBytes;
  });
  if (fits) return status;
  absl::Status cut(status.code(), CutMessage(status.message()));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    if (payload.size() <= kMaxStatusDetailBytes) cut.SetPayload(url, payload);
  });
  return cut;
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // The codes have the same numbers.
  const auto code = static_cast<grpc::StatusCode>(status.raw_code());
  std::string message = CutMessage(Clean(status.message()));

  google::rpc::Status rich;
  rich.set_code(static_cast<int32_t>(code));
  rich.set_message(message);
  if (std::string reason = Reason(status); !reason.empty()) {
    google::rpc::ErrorInfo info;
    info.set_reason(std::move(reason));
    info.set_domain(kErrorDomain);
    for (const auto& [key, value] : Metadata(status)) {
      (*info.mutable_metadata())[Clean(key)] = Clean(value);
    }
    AddDetail(info, &rich);
  }
  if (const std::optional<absl::Duration> delay = RetryAfter(status)) {
    google::rpc::RetryInfo retry;
    *retry.mutable_retry_delay() = ToProto(*delay);
    AddDetail(retry, &rich);
  }
  if (const std::string field = Field(status); !field.empty()) {
    google::rpc::BadRequest bad_request;
    auto* violation = bad_request.add_field_violations();
    violation->set_field(Clean(field));
    violation->set_description(message);
    AddDetail(bad_request, &rich);
  }
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    if (!absl::StartsWith(url, kTypeUrlPrefix)) return;
    if (rich.ByteSizeLong() + url.size() + payload.size() + 16 >
        kMaxStatusDetailBytes) {
      return;
    }
    google::protobuf::Any* any = rich.add_details();
    any->set_type_url(std::string(url));
    any->set_value(std::string(payload));
  });
  if (rich.details().empty()) return grpc::Status(code, message);
  return grpc::Status(code, message, rich.SerializeAsString());
}

}  // namespace weir
