// Waits for a point on the calling thread, as a call does that is in no
// context: the point is wanted thereby. The server never waits so.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "kernels/base/clock.h"
#include "kernels/device/dispatcher.h"
#include "kernels/device/point.h"
#include "kernels/eval/engine.h"
#include "tests/base/event.h"

namespace weir::testing {

// What becomes of `point`, within a minute.
inline absl::Status AwaitPoint(Engine& engine, const Point& point) {
  constexpr Nanos kPatience = Nanos{60} * 1'000'000'000;
  absl::Status status;
  Event ended;
  engine.dispatcher().WhenReady({&point, 1}, nullptr, NowNanos() + kPatience,
                                [&](absl::Status how) {
                                  status = std::move(how);
                                  ended.Set();
                                });
  ended.Wait();
  return status;
}

}  // namespace weir::testing
