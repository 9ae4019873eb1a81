#include "kernels/device/stream.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/thread.h"
#include "kernels/base/thread_role.h"
#include "kernels/device/device.h"

namespace weir {
namespace {

// Between two looks: a part of what was waited already, within bounds.
constexpr Nanos kPauseShare = 8;
constexpr Nanos kShortestPause = 20'000;
constexpr Nanos kLongestPause = 1'000'000;

}  // namespace

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

absl::Status Stream::Await(Look look, GoOn go_on) {
  ExpectMayWait("Stream::Await");
  const Nanos began = NowNanos();
  bool awaits_device = false;
  absl::Status status;
  for (;;) {
    const absl::StatusOr<Awaited> seen = look();
    status = seen.status();
    if (!status.ok() || *seen == Awaited::kNothing) break;
    if (awaits_device != (*seen == Awaited::kDevice)) {
      awaits_device = !awaits_device;
      SetAwaitsDevice(awaits_device);
    }
    status = device().health().status();
    if (status.ok()) status = go_on();
    if (!status.ok()) break;
    const Nanos waited = NowNanos() - began;
    SleepFor(std::clamp(waited / kPauseShare, kShortestPause, kLongestPause));
  }
  if (awaits_device) SetAwaitsDevice(false);
  return status;
}

}  // namespace weir
