// What was synchronized for one work, as data. Plain values; written by the
// work's own stages, read by its observer in the callbacks and by others once
// the work is done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/base/clock.h"
#include "kernels/device/stream.h"
#include "kernels/eval/eval_mode.h"

namespace weir {

// The wait that was performed for the caller before the reply.
enum class WaitKind : uint8_t {
  kNone = 0,    // nothing was waited for
  kQuery = 1,   // the state was looked at once
  kRecord = 2,  // this work's completion record was seen
  kStream = 3,  // everything on the stream before it
  kDevice = 4,  // everything on the device before it
};

// An order that the server added between this work and an earlier one.
struct InsertedWait {
  enum class Kind : uint8_t {
    kNone = 0,    // already reached: nothing to wait for
    kDevice = 1,  // this stream waits on the device
    kHost = 2,    // the work was parked until the point was reached
  };
  TimelineOwner from;
  const Device* from_device = nullptr;  // of a stream
  uint64_t from_value = 0;
  Kind kind = Kind::kNone;
};

struct DeviceError {
  int32_t code = 0;  // the backend's, or a FaultCode
  std::string name;  // of the code: "cudaErrorAssert", "INDEX_OUT_OF_RANGE"
  std::string text;
  bool sticky = false;  // the device is poisoned
  std::string node;     // label of the node at fault; empty if unknown
};

struct WEIR_EXPORT SyncReport {
  // Brief.
  WorkState state = WorkState::kNotEnqueued;
  WaitKind wait = WaitKind::kNone;
  uint64_t stream_id = 0;  // 0: no stream yet
  uint64_t sequence = 0;   // on that stream; 0: not launched
  // Steady-clock time stamps; 0: has not happened.
  Nanos accepted_at = 0;
  Nanos launched_at = 0;
  Nanos completed_at = 0;  // the stream was done with it, well or not

  // Full.
  int stream_priority = 0;
  uint64_t lease_generation = 0;  // of the lane
  Nanos planned_at = 0;           // the plan was there
  Nanos ready_at = 0;             // all points were reached or launched
  Nanos leased_at = 0;            // the lane was there
  uint64_t bytes_in = 0;          // copied to the device or into staging
  uint64_t bytes_out = 0;         // copied from the device
  bool plan_was_cached = false;
  bool ran_inline = false;  // on the calling thread (CPU only)
  size_t joined_works = 0;  // works that ran as one graph; 0: it ran alone
  std::vector<InsertedWait> waits;  // the first kMaxWaits
  uint64_t waits_omitted = 0;
  static constexpr size_t kMaxWaits = 64;
  std::vector<DeviceError> device_errors;  // at most one

  // Of what the work comes after.
  void AddWait(const Point& point, InsertedWait::Kind kind);

  // Forgets everything, keeps the vectors' memory.
  void Clear();
};

}  // namespace weir
