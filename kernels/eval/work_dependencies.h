// What a work comes after: points of other works, of tensors' writers, of
// callers. Each is waited for on the device, where something there stands for
// it, or before the launch; and what failed before the work fails it.
//
// Part of Work; no thread rules of its own.
#pragma once

#include <optional>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/base/export.h"
#include "kernels/device/device.h"
#include "kernels/device/point.h"
#include "kernels/device/stream.h"
#include "kernels/eval/sync_report.h"

namespace weir {

class WEIR_EXPORT WorkDependencies {
 public:
  using Points = absl::InlinedVector<Point, 4>;

  // Their outcomes are remembered until it is the work's turn.
  void Hold(absl::Span<const Point> points);

  // It is the work's turn, on `device`: these are what it comes after (null
  // points count for nothing), in place of those that are held. How each is
  // waited for is noted in `report`. Returns those that have to be reached
  // before the launch: no stream of the device can wait for them. `is_before`:
  // whether whatever is launched comes after all that is on a timeline, so that
  // nobody has to wait.
  Points Resolve(absl::Span<const Point> points, const Device& device,
                 absl::FunctionRef<bool(const Timeline*)> is_before,
                 SyncReport* report);

  // What was waited for meanwhile may be on the device now.
  void Refresh(const Device& device);

  // Whether anything is left to wait for; elsewhere than on `timeline`.
  bool AnyOpen() const;
  bool AnyOpenElsewhere(const Timeline* timeline) const;

  // Has the stream wait for what is left. An error is the device's: a point
  // that fails is found in Outcome.
  absl::Status WaitOn(Stream& stream) const;

  // The first failure among all of them, as the work's own; empty while
  // something is not settled and nothing has failed.
  std::optional<absl::Status> Outcome() const;

  void Clear() { all_.clear(); }

 private:
  // As it was asked for, and what stands for it on the device, if that is
  // something else.
  struct Dependency {
    const Point& point() const { return at->is_null() ? *asked : *at; }
    std::optional<absl::Status> Outcome() const;

    HeldPoint asked;
    HeldPoint at;
  };

  absl::InlinedVector<Dependency, 4> all_;
};

}  // namespace weir
