// Sees that launched work is done, for devices that run apart from the host.
// The last thing of every work on a stream is a 64-bit write of its sequence
// into the stream's completion record in pinned memory; one thread per device
// reads the record of the oldest work of each busy stream without driver calls,
// spins while work is short, and backs off when it is not. Records that arrived
// before a fault count as done. Every task completes exactly once, after what
// its stream waited for on the device.
//
// Work that is overdue may have met a fault, of which only the driver knows:
// another thread asks it (overdue_asker.h). The driver may take its time. What
// needs no driver is to see that the device stands still: that nothing on it
// completed for a while plus as long as any of what runs there should take, and
// as all of it should, one work after the other. That turns
// DeviceHealth::stall() until something completes. A work whose launch waits
// for the device to catch up runs there, too, before all of it is launched.
//
// Knows no driver: the device hands in its questions, so that this logic is
// tested with no device at all.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/base/atomic.h"
#include "kernels/base/clock.h"
#include "kernels/base/export.h"
#include "kernels/base/mutex.h"
#include "kernels/base/thread.h"
#include "kernels/device/health.h"
#include "kernels/device/stream.h"

namespace weir {

class OverdueAsker;

// Written by the device, read by the host. `fault` of a work is written before
// its sequence. One per stream and ring slot: a work's slot is its sequence
// modulo kSlots, and at most kSlots works of a stream are in flight. The stream
// clears a slot's fault before the slot's next work.
struct CompletionRecord {
  static constexpr uint64_t kSlots = Stream::kMaxUnfinished;
  alignas(64) Atomic<uint64_t> sequence;  // the newest work done
  // The newest mark passed: places between a long work's launches, numbered by
  // the stream.
  Atomic<uint64_t> mark;
  struct alignas(16) Slot {
    Atomic<uint64_t> fault;  // FaultSlot::word of that work
  } slots[kSlots];
};

// What the monitor keeps of one stream. Shared: it outlives the stream. Once a
// stream is idle its record is not touched, so it may be destroyed then, also
// while the Complete of its last task still runs.
struct MonitoredStream {
  CompletionRecord* record = nullptr;  // pinned memory; not owned
  std::shared_ptr<Timeline> timeline;
  // Asked when the oldest work is overdue, on the asker's thread: OK if running
  // or done, else the device's sticky error. May block, and may still be asked
  // when the stream is idle or gone. Null: nobody knows.
  absl::AnyInvocable<absl::Status()> query;

  Mutex mu;
  StreamTaskQueue in_flight WEIR_GUARDED_BY(mu);
  bool watched WEIR_GUARDED_BY(mu) = false;  // by the monitor's thread
  Atomic<uint64_t> oldest{0};                // sequence in flight; 0: none
  // The work whose launch has waited, until it is pushed; and since when it
  // does, 0 while it does not.
  StreamTask* launching WEIR_GUARDED_BY(mu) = nullptr;
  Nanos waiting_since WEIR_GUARDED_BY(mu) = 0;
  // The monitor's own.
  Nanos asked_at = 0;      // progress or query
  Nanos completed_at = 0;  // its newest completion
  uint64_t mark_seen = 0;
  Nanos shared_from = 0;  // CompletionMonitor::shared_time_ of then
};

// What tests and logs put into a monitor.
struct MonitorHooks {
  // Of what is overdue and of stalls; null: NowNanos. How a thread waits is not
  // its matter.
  std::function<Nanos()> clock;
  // Told what happens beside completions, in a line; on the monitor's threads.
  std::function<void(std::string_view)> note;

  Nanos Now() const { return clock == nullptr ? NowNanos() : clock(); }
  template <typename Text>
  void Note(const Text& text) const {
    if (note != nullptr) note(text());
  }
};

class WEIR_EXPORT CompletionMonitor {
 public:
  struct Options {
    absl::Duration spin = absl::Microseconds(200);  // then yield, then sleep
    absl::Duration max_sleep = absl::Microseconds(50);
    absl::Duration overdue = absl::Milliseconds(100);  // the driver is asked
    // On top of what runs on a device that stands still.
    absl::Duration stall = absl::Milliseconds(500);
    MonitorHooks hooks;
  };

  // `health` outlives the monitor, which tells it of stalls. A failed query
  // poisons it. Once it is poisoned, by whomever, everything in flight that has
  // no record fails, on the monitor's thread.
  CompletionMonitor(DeviceHealth* health, Options options);
  ~CompletionMonitor();
  CompletionMonitor(const CompletionMonitor&) = delete;
  CompletionMonitor& operator=(const CompletionMonitor&) = delete;

  // `task`, with its sequence set, was launched as the newest work of `stream`.
  // Its completion.status may be set (a failed Launch); its record is still
  // awaited, so that it completes in order. On a poisoned
  // device no record is awaited: a stream pushes there too.
  void Push(const std::shared_ptr<MonitoredStream>& stream, StreamTask* task);

  // The launch of `task`, the next work of `stream`, waits from now on for what
  // was issued, or waits no more. Until it is pushed; by the launching thread.
  void SetLaunchWaits(const std::shared_ptr<MonitoredStream>& stream,
                      StreamTask* task, bool waits);

  // Completes what is in flight first; on a poisoned device fails it. Waits for
  // the driver if it is being asked.
  void Stop();

 private:
  void Run();
  void Watch(const std::shared_ptr<MonitoredStream>& stream);
  void TakeIncoming();
  // Blocks until there is something to watch; false when it is time to end.
  bool Sleep();
  // Completes what has its record. True if anything did.
  bool Poll(MonitoredStream& stream);
  // All streams, whichever of them depend on which.
  bool PollAll();
  static StreamTask* Oldest(MonitoredStream& stream);
  static void TakeOldest(MonitoredStream& stream);
  void PollMark(MonitoredStream& stream);
  // On a lost device: names what ran, and completes everything.
  bool FailInFlight();
  // Marks and counts the works that may have lost the device.
  size_t FindSuspects();
  // True if the stream left the busy list.
  bool Unwatch(MonitoredStream& stream);
  // Completes the oldest work of the stream, with the word in its fault slot
  // and, unless it has one already, a status. False while something that it
  // depends on is not settled: it stays where it is.
  bool Finish(StreamTask* task, MonitoredStream& stream, uint64_t fault_word,
              absl::Status status);
  void ShareTime(Nanos now);
  void Progress(Nanos now);
  void AskOverdue(Nanos now);
  void JudgeStall(Nanos now);

  DeviceHealth* const health_;
  const Options options_;
  const Nanos spin_;
  const Nanos max_sleep_;
  const Nanos overdue_;
  const Nanos stall_;
  std::unique_ptr<OverdueAsker> asker_;
  Mutex mu_;
  CondVar work_;
  bool stopping_ WEIR_GUARDED_BY(mu_) = false;
  bool asleep_ WEIR_GUARDED_BY(mu_) = false;
  std::vector<std::shared_ptr<MonitoredStream>> incoming_ WEIR_GUARDED_BY(mu_);
  Atomic<bool> has_incoming_{false};
  // The thread's own.
  std::vector<std::shared_ptr<MonitoredStream>> busy_;
  // What a stream that was always busy would have had of the device up to
  // shared_until_, were it shared evenly.
  Nanos shared_time_ = 0;
  Nanos shared_until_ = 0;
  Nanos last_progress_ = 0;  // the newest completion
  Nanos next_judgement_ = 0;
  bool stalled_ = false;
  bool suspects_named_ = false;

  Thread thread_;
};

}  // namespace weir
