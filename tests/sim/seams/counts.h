// Comes before everything else in whatever the simulation compiles: has the
// standard library say when a reference is let go of. These are its macros for
// race detectors.
#pragma once

namespace weir::sim {
void BeforeDrop(const void* count);
}  // namespace weir::sim

// NOLINTBEGIN(bugprone-reserved-identifier): they are named so
#define _GLIBCXX_SYNCHRONIZATION_HAPPENS_BEFORE(count) \
  ::weir::sim::BeforeDrop(count)
#define _GLIBCXX_SYNCHRONIZATION_HAPPENS_AFTER(count)
// NOLINTEND(bugprone-reserved-identifier)
