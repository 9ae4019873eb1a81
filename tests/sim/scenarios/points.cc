// Timelines and the dispatcher: an Advance meets whoever begins to wait, gives
// up, or holds the point.
#include <memory>
#include <optional>

#include "kernels/base/atomic.h"
#include "kernels/base/thread.h"
#include "kernels/base/timer_queue.h"
#include "kernels/device/dispatcher.h"
#include "kernels/device/point.h"
#include "kernels/eval/work_progress.h"
#include "tests/sim/scenarios/scenarios.h"
#include "tests/sim/scheduler.h"

namespace weir::sim {
namespace {

// Every waiter is called exactly once, with the outcome of its value.
void AdvanceMeetsWaiters() {
  Timeline timeline("t");
  int first = 0;
  int second = 0;
  SetExploring(true);
  Thread waiter("waiter", [&] {
    timeline.OnReached(1, [&](absl::Status status) {
      Check(!status.ok(), "1 has failed");
      ++first;
    });
    timeline.OnReached(2, [&](absl::Status status) {
      Check(status.ok(), "2 is good");
      ++second;
    });
  });
  timeline.Advance(1, absl::InternalError("bad")).IgnoreError();
  timeline.Advance(2).IgnoreError();
  waiter.Join();
  SetExploring(false);
  Check(first == 1 && second == 1, "a waiter is called once");
}

// Who cancels a wait knows whether it is called.
void AdvanceMeetsCancel() {
  Timeline timeline("t");
  int called = 0;
  SetExploring(true);
  Thread advancer("advancer", [&] { timeline.Advance(1).IgnoreError(); });
  const Timeline::WaitId wait =
      timeline.OnReached(1, [&](absl::Status) { ++called; });
  const bool cancelled = timeline.CancelWait(wait);
  advancer.Join();
  SetExploring(false);
  Check(called == (cancelled ? 0 : 1), "cancelled or called");
}

void AdvanceMeetsFail() {
  Timeline timeline("t");
  std::optional<absl::Status> seen;
  SetExploring(true);
  Thread failer("failer", [&] { timeline.Fail(absl::InternalError("whole")); });
  Thread waiter("waiter", [&] {
    timeline.OnReached(1, [&](absl::Status status) {
      Check(!seen.has_value(), "called twice");
      seen = std::move(status);
    });
  });
  const absl::Status advanced = timeline.Advance(1);
  failer.Join();
  waiter.Join();
  SetExploring(false);
  Check(seen.has_value(), "never called");
  Check(seen->ok() == advanced.ok(), "the outcome is what Advance said");
  Check(timeline.Outcome(1)->ok() == advanced.ok(), "and so it stays");
}

// A point that is held keeps its outcome; whoever asks sees a final one.
void OutcomesAreFinal() {
  auto timeline = std::make_shared<Timeline>("t");
  SetExploring(true);
  Thread reader("reader", [&] {
    const HeldPoint held(Point{timeline, 1});
    std::optional<absl::Status> before = held->Outcome();
    std::optional<absl::Status> after = held->Outcome();
    if (before.has_value()) {
      Check(after.has_value() && before->ok() == after->ok(), "it changed");
      Check(!before->ok(), "1 has failed");
    }
  });
  timeline->Advance(1, absl::InternalError("bad")).IgnoreError();
  timeline->Advance(2).IgnoreError();
  reader.Join();
}

// A launch is seen by whoever waits for it, or for its end.
void LaunchMeetsWaiters() {
  // Timelines only compare devices.
  const Device* const device = reinterpret_cast<const Device*>(&device);
  Timeline timeline("t", device);
  int launched = 0;
  SetExploring(true);
  Thread waiter("waiter", [&] {
    timeline.OnLaunched(1, device, [&](absl::Status status) {
      Check(status.ok(), "it is good");
      ++launched;
    });
  });
  timeline.SetLaunched(1);
  timeline.Advance(1).IgnoreError();
  waiter.Join();
  SetExploring(false);
  Check(launched == 1, "a waiter is called once");
}

enum class Ending { kReached, kCancelled, kLate };

// Two points of two timelines, which two threads advance.
void DispatcherWaits(Ending ending) {
  TimerQueue timers;
  {
    Dispatcher dispatcher(&timers);
    auto a = std::make_shared<Timeline>("a");
    auto b = std::make_shared<Timeline>("b");
    const Point points[] = {{a, 1}, {b, 1}};
    int called = 0;
    absl::Status outcome;
    Quiesce();
    SetExploring(true);
    Thread first("first", [&] { a->Advance(1).IgnoreError(); });
    const Nanos deadline =
        ending == Ending::kLate ? NowNanos() + 1000 : kNoDeadline;
    const uint64_t wait = dispatcher.WhenReady(points, nullptr, deadline,
                                               [&](absl::Status status) {
                                                 ++called;
                                                 outcome = std::move(status);
                                               });
    Thread second("second", [&] { b->Advance(1).IgnoreError(); });
    if (ending == Ending::kCancelled) dispatcher.CancelWait(wait);
    first.Join();
    second.Join();
    SetExploring(false);
    Quiesce();
    Check(called == 1, "called exactly once");
    Check(outcome.ok() || ending != Ending::kReached, "it failed");
    Check(dispatcher.parked() == 0, "it is parked still");
    Check(timers.pending() == 0, "its timer is left");
    Check(a->waits() + b->waits() == 0, "a wait is left on a timeline");
  }
  timers.Stop();
}

// Whoever begins to watch meanwhile is told each state once, in order, and the
// last; nothing once it has given up.
void ProgressMeetsWatcher(bool gives_up) {
  WorkProgress progress;
  Atomic<bool> over{false};
  WorkState last = WorkState::kNotEnqueued;
  int told = 0;
  bool watched = false;
  SetExploring(true);
  Thread watcher("watcher", [&] {
    const uint64_t watch = progress.Watch([&](WorkState state) {
      Check(!over.load(), "told after Unwatch");
      Check(told == 0 || state > last, "told twice, or out of order");
      last = state;
      ++told;
    });
    watched = watch != 0;
    if (gives_up) progress.Unwatch(watch);
    over.store(gives_up);
  });
  progress.Advance(WorkState::kScheduled);
  progress.Advance(WorkState::kCompleted);
  watcher.Join();
  SetExploring(false);
  Check(!watched || gives_up || last == WorkState::kCompleted,
        "never told the end");
}

}  // namespace

void AddPoints(std::vector<Scenario>& all) {
  const auto add = [&all](const char* name, void (*body)()) {
    all.push_back({.name = name, .body = body});
  };
  add("points/advance+wait", AdvanceMeetsWaiters);
  add("points/advance+cancel", AdvanceMeetsCancel);
  add("points/advance+fail", AdvanceMeetsFail);
  add("points/outcomes", OutcomesAreFinal);
  add("points/launch+wait", LaunchMeetsWaiters);
  add("points/watched", [] { ProgressMeetsWatcher(false); });
  add("points/watched+unwatched", [] { ProgressMeetsWatcher(true); });
  add("points/dispatcher", [] { DispatcherWaits(Ending::kReached); });
  add("points/dispatcher+cancel", [] { DispatcherWaits(Ending::kCancelled); });
  add("points/dispatcher+deadline", [] { DispatcherWaits(Ending::kLate); });
}

}  // namespace weir::sim
