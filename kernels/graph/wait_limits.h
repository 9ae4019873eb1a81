// How the waits of callers for a program or a plan end, when neither comes in
// time, and what their queues say to whoever finds no room. Internal to this
// layer.
#pragma once

#include <cstddef>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "kernels/base/timer_queue.h"

namespace weir {

// RESOURCE_EXHAUSTED, reason COMPILE_QUEUE_FULL, with RetryInfo: there are more
// than `limit` of `what`. `name` is that of ProgramCacheOptions.
absl::Status CompileQueueFull(std::string_view what, std::string_view name,
                              size_t limit);
// CANCELLED: by Cancel, by the end of the queue.
absl::Status LeftWhileWaiting();
absl::Status CompileQueueStopping();

// Calls `end` with what to tell the caller: at its deadline, or after the
// longest wait (reason COMPILE_WAIT_TOO_LONG, with RetryInfo).
TimerQueue::TimerId EndWaitLater(TimerQueue& timers, Nanos deadline,
                                 absl::Duration longest,
                                 absl::AnyInvocable<void(absl::Status)> end);

}  // namespace weir
