#include "server/services/stream_choice.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "proto/weir/v1/evaluation.pb.h"

namespace weir {
namespace {

constexpr char kStreamField[] = "stream_policy.stream";

}  // namespace

absl::Status CheckStreamWish(const StreamWish& wish) {
  if (!v1::StreamPolicy::Kind_IsValid(wish.kind)) {
    return InvalidField(
        "stream_policy.kind",
        absl::StrCat(wish.kind, " is not a kind of stream policy"));
  }
  const bool named = wish.kind == v1::StreamPolicy::KIND_NAMED;
  const bool pooled = wish.kind == v1::StreamPolicy::KIND_POOLED ||
                      wish.kind == v1::StreamPolicy::KIND_UNSPECIFIED;
  if (named && wish.stream == 0) {
    return InvalidField(kStreamField, "KIND_NAMED needs a stream's number");
  }
  if (!named && wish.stream != 0) {
    return InvalidField(kStreamField, "only KIND_NAMED has a stream");
  }
  if (!named && wish.slot != 0) {
    return InvalidField("stream_policy.slot", "only KIND_NAMED has slots");
  }
  if (!pooled && wish.priority != 0) {
    return InvalidField("stream_policy.priority",
                        "only KIND_POOLED has a priority; that of a named "
                        "stream is said when it is acquired");
  }
  return absl::OkStatus();
}

absl::StatusOr<StreamPolicy> FindStream(const StreamWish& wish, Space* space,
                                        Engine& engine) {
  StreamPolicy policy;
  switch (wish.kind) {
    case v1::StreamPolicy::KIND_SERVER_DEFAULT:
      policy.kind = StreamPolicy::Kind::kServerDefault;
      return policy;
    case v1::StreamPolicy::KIND_NAMED: {
      if (space == nullptr) {
        return InvalidField(kStreamField, "a named stream needs a space");
      }
      const auto kept = space->streams().Find(wish.stream);
      if (!kept.ok()) return WithField(kept.status(), kStreamField);
      if ((*kept)->settings().engine != &engine) {
        return WithField(
            WithReason(
                absl::FailedPreconditionError(absl::StrCat(
                    "stream ", wish.stream, " is on ",
                    DeviceName((*kept)->settings().engine->device().info()),
                    ", and this runs on ", DeviceName(engine.device().info()))),
                "WRONG_DEVICE"),
            kStreamField);
      }
      policy.kind = StreamPolicy::Kind::kNamed;
      policy.stream = (*kept)->stream();
      return policy;
    }
    default: {
      policy.priority = wish.priority;
      const auto pool = engine.pools().OfPriority(wish.priority);
      if (!pool.ok()) {
        return WithField(pool.status(), "stream_policy.priority");
      }
      return policy;
    }
  }
}

}  // namespace weir
