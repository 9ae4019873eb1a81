#include "kernels/graph/wait_limits.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"

namespace weir {
namespace {

absl::Status WaitTooLong(absl::Duration longest) {
  return WithRetryAfter(
      WithReason(absl::DeadlineExceededError(absl::StrCat(
                     "the program was not compiled or planned within ",
                     absl::FormatDuration(longest),
                     ", the longest wait; try again later")),
                 "COMPILE_WAIT_TOO_LONG"),
      absl::Seconds(1));
}

}  // namespace

absl::Status CompileQueueFull(std::string_view what, std::string_view name,
                              size_t limit) {
  return WithRetryAfter(
      WithReason(absl::ResourceExhaustedError(
                     absl::StrCat("more than ", limit, " ", AbslView(what),
                                  " (", AbslView(name), "); try again later")),
                 "COMPILE_QUEUE_FULL",
                 {{std::string(name), absl::StrCat(limit)}}),
      absl::Milliseconds(200));
}

absl::Status LeftWhileWaiting() {
  return absl::CancelledError(
      "cancelled while the program was compiled or planned");
}

absl::Status CompileQueueStopping() {
  return absl::CancelledError("the program cache is stopping");
}

TimerQueue::TimerId EndWaitLater(TimerQueue& timers, Nanos deadline,
                                 absl::Duration longest,
                                 absl::AnyInvocable<void(absl::Status)> end) {
  const Nanos last = NowNanos() + absl::ToInt64Nanoseconds(longest);
  return timers.Add(
      std::min(deadline, last),
      [end = std::move(end), in_time = deadline > last, longest]() mutable {
        end(in_time ? WaitTooLong(longest)
                    : absl::DeadlineExceededError(
                          "the deadline passed while the program was compiled "
                          "or planned"));
      });
}

}  // namespace weir
