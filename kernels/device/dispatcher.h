// Parks work on points that are not reached, without a thread that waits. Every
// wait has a deadline and the number parked is bounded. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/base/clock.h"
#include "kernels/base/export.h"
#include "kernels/base/timer_queue.h"
#include "kernels/device/point.h"

namespace weir {

class WEIR_EXPORT Dispatcher {
 public:
  using Ready = absl::AnyInvocable<void(absl::Status)>;

  // `timers` outlives the dispatcher.
  explicit Dispatcher(TimerQueue* timers, size_t max_parked = 65536);
  ~Dispatcher();  // REQUIRES: nothing is parked (see CancelAll)

  // Calls `ready` exactly once: OK when every point is reached, or a stream of
  // `device` can wait for it (Point::OnDevice; null: reached only); the
  // status of the first point that failed, with the timeline named;
  // DEADLINE_EXCEEDED at `deadline`; RESOURCE_EXHAUSTED when too much is
  // parked. Inline when nothing has to be waited for. Returns the wait's number
  // for CancelWait, or 0 if it is over already.
  uint64_t WhenReady(absl::Span<const Point> points, const Device* device,
                     Nanos deadline, Ready ready);

  // The wait ends with CANCELLED, inside this call, unless it is over.
  void CancelWait(uint64_t wait);

  size_t parked() const;
  void CancelAll();  // everything parked gets CANCELLED

 private:
  class Parked;
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace weir
