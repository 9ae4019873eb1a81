// What holds after every step of a scenario, and at its end. Numbers are those
// of reference-systems.md, section 8; the others are the evaluation core's own
// promises (eval_context.h, work.h, stream_pool.h).
//
// Elsewhere, where it happens (world.cc, sim_device.cc): a context is one
// handler's (1, World::NoteEntered); a lease is one context's, and a stream is
// idle when it is handed out (2, 3, SimWork::OnLaunch); nothing completes on
// garbage, be it read too early or from memory that was given to another (6,
// SimWork::OnDone); a work returns once and is done once, in this order; no
// memory of the heap or the device is leaked, or used when it is freed
// (heap.cc, SimDevice); nobody waits for ever, or spins (scheduler.cc).
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/thread_role.h"
#include "tests/sim/scheduler.h"
#include "tests/sim/world.h"

namespace weir::sim {
namespace {

bool IsRefusal(const absl::Status& status) {
  return absl::IsResourceExhausted(status);
}

}  // namespace

void World::CheckStep() {
  for (const Site& site : sites_) {
    const Unobserved look;
    const StreamPoolStats streams = site.engine->streams().stats();
    if (!look.consistent()) continue;
    // 2: the pool's equation.
    if (streams.created() > streams.max) {
      Fail(absl::StrCat("the pool has ", streams.created(), " lanes of ",
                        streams.max));
    }
    if (streams.created_total - streams.destroyed_total != streams.created()) {
      Fail("the pool has lost count of its lanes");
    }
  }
}

// Whether it may fail for a reason of its own, or of what it comes after.
bool World::HasCause(const SimWork& work) const {
  return errors_expected_ || work.faulty_ || work.misplaced_ ||
         work.cancelled_ || work.deadline_ != kNoDeadline ||
         std::any_of(work.follows_.begin(), work.follows_.end(),
                     [this](const SimWork* other) { return HasCause(*other); });
}

// Joined, when one of those that it was joined with failed, and then alone.
bool World::MayRunTwice(const SimWork& work) const {
  return options_.graphs && work.deferred_ && work.joined_works_ == 0 &&
         std::any_of(works_.begin(), works_.end(), [&](const auto& other) {
           return other->deferred_ && other->context_ == work.context_ &&
                  HasCause(*other);
         });
}

void World::CheckEnd() {
  for (const Site& site : sites_) {
    const StreamPoolStats streams = site.engine->streams().stats();
    // 8: whatever failed, every lane came back.
    Check(streams.leased == 0 && streams.draining == 0 && streams.waiting == 0,
          absl::StrCat("lanes did not come back: ", streams.leased, " leased, ",
                       streams.draining, " draining, ", streams.waiting,
                       " waited for"));
    Check(site.engine->dispatcher().parked() == 0, "a wait is parked for ever");
    const size_t upkeep = options_.trims ? 2 : 1;  // the pool's, the engine's
    Check(site.engine->timers().pending() <= upkeep,
          absl::StrCat(site.engine->timers().pending(), " timers are left"));
  }
  for (const auto& timeline : timelines_) CheckNoWaits(*timeline);
  {
    const Unobserved look;
    const MisplacedWaits misplaced = CountMisplacedWaits();
    Check(misplaced.count == 0, misplaced.first);
  }
  for (const auto& work : works_) {
    if (work->submitted_) CheckEnd(*work);
  }
}

// Nobody waits for what everybody has come to the end of.
void World::CheckNoWaits(const Timeline& timeline) const {
  Check(timeline.waits() == 0,
        absl::StrCat("waits are left on timeline ", timeline.name()));
}

void World::CheckEnd(const SimWork& work) const {
  const std::string name = absl::StrCat("w", work.salt_);
  Check(work.done_.load(), absl::StrCat(name, " is never done"));
  const absl::Status& status = work.status_;
  // 9: evaluated once, but for a joined run that failed and is repeated.
  const int runs = work.runs_;
  Check(runs <= (MayRunTwice(work) ? 2 : 1),
        absl::StrCat(name, " ran ", runs, " times"));
  // Of a joined run what nobody reads is left out.
  const bool runs_always = !options_.graphs || !work.deferred_ ||
                           work.result_ != SimWork::Result::kDropped;
  Check(!status.ok() || runs >= 1 || !runs_always,
        absl::StrCat(name, " is OK and never ran"));
  // An error goes to whoever depends on it, and to nobody else.
  const bool inherits =
      std::any_of(work.follows_.begin(), work.follows_.end(),
                  [](const SimWork* other) { return !other->status_.ok(); });
  Check(!status.ok() || !inherits,
        absl::StrCat(name, " is OK, and what it depends on is not"));
  const bool may_fail = inherits || errors_expected_ || work.faulty_ ||
                        work.misplaced_ || work.cancelled_ ||
                        work.deadline_ != kNoDeadline ||
                        (work.droppable_ && absl::IsCancelled(status));
  Check(status.ok() || may_fail,
        absl::StrCat(name, " failed without a cause: ", status.ToString()));
  Check(!(status.ok() && work.faulty_) || (runs == 0 && !runs_always),
        absl::StrCat(name, " is OK in spite of its fault"));
  const bool by_name = inherits || errors_expected_ || work.cancelled_ ||
                       work.deadline_ != kNoDeadline ||
                       Reason(status) == "WRONG_DEVICE";
  Check(!work.misplaced_ || by_name,
        absl::StrCat(name, " reads what lies elsewhere: ", status.ToString()));
  // Whoever waits for it is told, with its outcome.
  for (const auto& [timeline, value] : work.signals_) {
    const std::optional<absl::Status> outcome = timeline->Outcome(value);
    if (IsRefusal(status) && !outcome.has_value()) continue;
    Check(outcome.has_value(),
          absl::StrCat("the signal of ", name, " was never given"));
    Check(outcome->ok() == status.ok(),
          absl::StrCat("the signal of ", name, " says ", outcome->ToString(),
                       ", the work ", status.ToString()));
  }
  if (!work.end_->is_null()) {
    CheckNoWaits(*work.end_->timeline);
    const std::optional<absl::Status> outcome = work.end_->Outcome();
    Check(outcome.has_value(),
          absl::StrCat("the point of ", name, " is never reached"));
    Check(outcome->ok() == status.ok(),
          absl::StrCat("the point of ", name, " says ", outcome->ToString(),
                       ", the work ", status.ToString()));
  }
}

}  // namespace weir::sim
