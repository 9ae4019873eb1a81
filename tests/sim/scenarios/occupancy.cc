// Who may be in a context (invariant 1): entries at once, in the queue, given
// up, too late.
#include "kernels/eval/occupancy.h"

#include <memory>
#include <utility>

#include "kernels/base/atomic.h"
#include "kernels/base/thread.h"
#include "kernels/base/timer_queue.h"
#include "tests/sim/scenarios/scenarios.h"
#include "tests/sim/scheduler.h"

namespace weir::sim {
namespace {

enum class Event { kNone, kCancel, kDeadline };

void Entries(Event event) {
  TimerQueue timers;
  {
    const std::shared_ptr<Occupancy> occupancy = Occupancy::Create(1, &timers);
    // In two steps, between which another one may come.
    Atomic<int> inside{0};
    int answers = 0;
    bool cancelled = false;
    const auto stay = [&] {
      Check(++inside == 1, "two handlers are inside");
      --inside;
      occupancy->Leave();
    };
    const HandlerId handlers[] = {NewHandlerId(), NewHandlerId(),
                                  NewHandlerId()};
    Quiesce();
    SetExploring(true);
    Thread queued("queued", [&] {
      const Occupancy::EntryId entry = occupancy->EnterQueued(
          handlers[1],
          event == Event::kDeadline ? NowNanos() + 1000 : kNoDeadline,
          [&](absl::Status entered) {
            ++answers;
            Check(entered.ok() || event == Event::kDeadline, "it was refused");
            if (entered.ok()) stay();
          });
      if (event == Event::kCancel && entry != 0) {
        cancelled = occupancy->CancelEntry(entry);
      }
    });
    Thread refused("refused", [&] {
      const absl::Status entered = occupancy->Enter(handlers[2]);
      if (entered.ok()) {
        stay();
      } else {
        Check(absl::IsAborted(entered), "ABORTED it is");
      }
    });
    if (occupancy->Enter(handlers[0]).ok()) {
      // The same handler once more.
      Check(occupancy->Enter(handlers[0]).ok(), "it is inside already");
      occupancy->Leave();
      stay();
    }
    queued.Join();
    refused.Join();
    SetExploring(false);
    Quiesce();
    Check(answers == (cancelled ? 0 : 1), "answered once, or cancelled");
    Check(occupancy->owner() == 0, "it is empty");
  }
  timers.Stop();
}

}  // namespace

void AddOccupancy(std::vector<Scenario>& all) {
  const auto add = [&all](const char* name, Event event) {
    all.push_back({.name = name, .body = [event] { Entries(event); }});
  };
  add("occupancy/entries", Event::kNone);
  add("occupancy/entries+cancel", Event::kCancel);
  add("occupancy/entries+deadline", Event::kDeadline);
}

}  // namespace weir::sim
