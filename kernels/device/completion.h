// Sees that launched work is done, for devices that run apart from the host.
// The last thing of every work on a stream is a 64-bit write of its sequence
// into the stream's completion record in pinned memory; one thread per device
// reads the record of the oldest work of each busy stream without driver calls,
// spins while work is short, backs off when it is not, and asks the driver only
// for overdue work and for faults. Records that arrived before a fault count as
// done. Every task completes exactly once.
//
// Knows no driver: the device hands in its questions, so that this logic is
// tested with no device at all.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "kernels/base/export.h"
#include "kernels/base/mutex.h"
#include "kernels/device/health.h"
#include "kernels/device/stream.h"

namespace weir {

// Written by the device, read by the host. `fault` of a work is written before
// its sequence. One per stream and ring slot: a work's slot is its sequence
// modulo kSlots, and at most kSlots works of a stream are in flight. The stream
// clears a slot's fault before the slot's next work.
struct CompletionRecord {
  static constexpr uint64_t kSlots = Stream::kMaxUnfinished;
  alignas(64) std::atomic<uint64_t> sequence;  // the newest work done
  struct alignas(16) Slot {
    std::atomic<uint64_t> fault;  // FaultSlot::word of that work
  } slots[kSlots];
};

// What the monitor keeps of one stream. Shared: it outlives the stream. Once a
// stream is idle, neither record nor query is touched, so it may be destroyed
// then, also while the Complete of its last task still runs.
struct MonitoredStream {
  CompletionRecord* record = nullptr;  // pinned memory; not owned
  std::shared_ptr<Timeline> timeline;
  // Asked in the monitor's thread when the oldest work is overdue: OK if
  // running or done, else the device's sticky error.
  absl::AnyInvocable<absl::Status()> query;

  Mutex mu;
  StreamTaskQueue in_flight WEIR_GUARDED_BY(mu);
  bool watched WEIR_GUARDED_BY(mu) = false;  // by the monitor's thread
  std::atomic<uint64_t> oldest{0};           // sequence in flight; 0: none
  Nanos asked_at = 0;  // the monitor's own: progress or query
};

class WEIR_EXPORT CompletionMonitor {
 public:
  struct Options {
    absl::Duration spin = absl::Microseconds(200);  // then yield, then sleep
    absl::Duration max_sleep = absl::Microseconds(50);
    absl::Duration overdue = absl::Milliseconds(100);
  };

  // `health` outlives the monitor and is poisoned by a failed query.
  CompletionMonitor(DeviceHealth* health, const Options& options);
  ~CompletionMonitor() { Stop(); }
  CompletionMonitor(const CompletionMonitor&) = delete;
  CompletionMonitor& operator=(const CompletionMonitor&) = delete;

  // `task`, with its sequence set, was launched as the newest work of `stream`.
  // If its completion.status is set (a failed Launch), that is its outcome; its
  // record is still awaited, so that it completes in order. On a poisoned
  // device no record is awaited: a stream pushes there too.
  void Push(const std::shared_ptr<MonitoredStream>& stream, StreamTask* task);

  // The device is lost: poisons the health, and everything in flight that has
  // no record fails. Returns at once; the monitor's thread does it.
  void FailAll(const absl::Status& cause);

  // Completes what is in flight first; on a poisoned device fails it.
  void Stop();

 private:
  void Run();
  void TakeIncoming();
  // Blocks until there is something to watch; false when it is time to end.
  bool Sleep();
  // True if anything completed.
  bool Poll(MonitoredStream& stream);
  void FailRest(MonitoredStream& stream);
  // True if the stream left the busy list.
  bool Unwatch(MonitoredStream& stream);
  void AskOverdue(Nanos now);

  DeviceHealth* const health_;
  const Nanos spin_;
  const Nanos max_sleep_;
  const Nanos overdue_;
  Mutex mu_;
  CondVar work_;
  bool stopping_ WEIR_GUARDED_BY(mu_) = false;
  bool asleep_ WEIR_GUARDED_BY(mu_) = false;
  std::vector<std::shared_ptr<MonitoredStream>> incoming_ WEIR_GUARDED_BY(mu_);
  std::atomic<bool> has_incoming_{false};
  std::vector<std::shared_ptr<MonitoredStream>> busy_;  // the thread's own
  std::thread thread_;
};

}  // namespace weir
