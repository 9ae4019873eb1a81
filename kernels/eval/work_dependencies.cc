#include "kernels/eval/work_dependencies.h"

#include <algorithm>
#include <utility>

namespace weir {

// What was asked for may have failed by itself meanwhile.
std::optional<absl::Status> WorkDependencies::Dependency::Outcome() const {
  std::optional<absl::Status> outcome = point().Outcome();
  if (at->is_null() || outcome != absl::OkStatus()) return outcome;
  return asked->Outcome().value_or(absl::OkStatus());
}

void WorkDependencies::Hold(absl::Span<const Point> points) {
  for (const Point& point : points) {
    all_.push_back({HeldPoint(point), HeldPoint()});
  }
}

WorkDependencies::Points WorkDependencies::Resolve(
    absl::Span<const Point> points, const Device& device,
    absl::FunctionRef<bool(const Timeline*)> is_before, SyncReport* report) {
  Points pending;
  absl::InlinedVector<Dependency, 4> resolved;
  for (const Point& point : points) {
    if (point.is_null()) continue;
    const std::optional<absl::Status> outcome = point.Outcome();
    if (outcome.has_value() && outcome->ok()) {
      report->AddWait(point, InsertedWait::Kind::kNone);
      continue;
    }
    Dependency& dependency = resolved.emplace_back();
    dependency.asked = HeldPoint(point);
    Point at = outcome.has_value() ? Point() : point.OnDevice(&device);
    if (at.is_null() ||
        (!device.streams_wait() && !is_before(at.timeline.get()))) {
      report->AddWait(point, InsertedWait::Kind::kHost);
      pending.push_back(point);
      continue;
    }
    report->AddWait(point, InsertedWait::Kind::kDevice);
    // Its outcome is remembered: what it backs was not reached just now.
    if (at != point) dependency.at = HeldPoint(std::move(at));
  }
  all_ = std::move(resolved);
  return pending;
}

void WorkDependencies::Refresh(const Device& device) {
  for (Dependency& dependency : all_) {
    if (!dependency.at->is_null() || dependency.asked->Outcome().has_value()) {
      continue;
    }
    Point at = dependency.asked->OnDevice(&device);
    if (!at.is_null() && at != *dependency.asked) {
      dependency.at = HeldPoint(std::move(at));
    }
  }
}

bool WorkDependencies::AnyOpen() const { return AnyOpenElsewhere(nullptr); }

bool WorkDependencies::AnyOpenElsewhere(const Timeline* timeline) const {
  return std::any_of(all_.begin(), all_.end(),
                     [timeline](const Dependency& dependency) {
                       return dependency.point().timeline.get() != timeline &&
                              !dependency.Outcome().has_value();
                     });
}

absl::Status WorkDependencies::WaitOn(Stream& stream) const {
  for (const Dependency& dependency : all_) {
    const Point& point = dependency.point();
    if (point.timeline == stream.timeline() || point.Outcome().has_value()) {
      continue;
    }
    absl::Status waited = stream.WaitOnDevice(point);
    if (!waited.ok() && !point.Outcome().has_value()) return waited;
  }
  return absl::OkStatus();
}

// A stream that waited on the device for a work that then failed has run on
// what that work left behind: the result is worth nothing.
std::optional<absl::Status> WorkDependencies::Outcome() const {
  std::optional<absl::Status> status = absl::OkStatus();
  for (const Dependency& dependency : all_) {
    const std::optional<absl::Status> outcome = dependency.Outcome();
    if (!outcome.has_value()) {
      status = std::nullopt;
    } else if (!outcome->ok()) {
      return DependsOnFailed(dependency.asked->timeline->name(),
                             dependency.asked->value, *outcome);
    }
  }
  return status;
}

}  // namespace weir
