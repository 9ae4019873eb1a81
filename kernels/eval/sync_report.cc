#include "kernels/eval/sync_report.h"

#include <utility>

namespace weir {

void SyncReport::AddWait(const Point& point, InsertedWait::Kind kind) {
  if (waits.size() >= kMaxWaits) {
    ++waits_omitted;
    return;
  }
  waits.push_back(
      {point.timeline->owner(), point.timeline->device(), point.value, kind});
}

void SyncReport::Clear() {
  auto kept_waits = std::move(waits);
  auto kept_errors = std::move(device_errors);
  *this = SyncReport();
  kept_waits.clear();
  kept_errors.clear();
  waits = std::move(kept_waits);
  device_errors = std::move(kept_errors);
}

}  // namespace weir
