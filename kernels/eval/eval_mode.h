// How far an evaluation goes before the call returns, and how far a work has
// come. Both are ordered. On the wire a mode has the same number and a state
// one more (there 0 is WORK_STATE_UNSPECIFIED).
#pragma once

#include <cstdint>

namespace weir {

enum class EvalMode : uint8_t {
  kDeferred = 1,  // returns when there is room; the rest at its use
  kEager = 2,     // validated and queued in the context's order (the default)
  kSyncCpu = 3,   // host work and launches are done
  kSyncFull = 4,  // this work's completion was seen
};

// Only forward; kCompleted and kError are final.
enum class WorkState : uint8_t {
  kNotEnqueued = 0,
  kEnqueued = 1,   // its place in the context's order is reserved
  kCommitted = 2,  // accepted, perhaps parked on points or waiting for a lane
  kScheduled = 3,  // launched
  kCompleted = 4,
  kError = 5,
};

}  // namespace weir
