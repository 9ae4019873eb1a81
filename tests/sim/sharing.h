// What of a scenario matters to the order of its threads: objects that two of
// them touch, at least one of them to change them, in an order that nothing
// else decides. To switch before any other object is touched only makes orders
// that differ in nothing: whoever touches it comes after who did before, by
// what was done to those that matter. (Musuvathi and Qadeer, "Iterative context
// bounding", PLDI 2007: they switch at synchronization alone and see that the
// rest has no races. Here it is found out which objects are the rest.)
//
// Objects are known by the place in the program where they are made. A search
// that meets one which matters, and did not know it, has missed orders: it
// begins anew.
//
// Of those that hold an object together (shared_ptr) it matters who lets go
// last, if that is not decided by something else, and who looks whether there
// are others.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "tests/sim/logical.h"

namespace weir::sim {

// What a thread knows of all: it comes after so much of each.
struct Clock {
  static constexpr size_t kThreads = 64;
  std::array<uint32_t, kThreads> at = {};
};

// Threads are numbered from 1 here, and the clock is 0: it changes the time,
// which others look at.
class Sharing {
 public:
  static constexpr int kClock = 0;

  // Over all runs: how many places are known.
  size_t size() const { return places_.size(); }

  // Of one run.
  void Begin();
  void End();
  // Whether the run has met something that matters and was not known.
  bool learned() const { return learned_; }

  void Start(int thread, int parent);
  // `thread` goes on after all that `other` has done.
  void Follow(int thread, int other);

  // The time of the clock's trail is `now` from here on.
  void PassTime(Nanos now, Trail& clock);
  // `thread` goes on after the time was `wake_at`, or beyond, for the first
  // time.
  void Wake(int thread, Nanos wake_at);
  // All that was done comes before all that is done from now on.
  void MeetAll();
  // Says at its first use in a run what it is known as.
  void Recognize(Trail& trail) const {
    trail.shared = places_.contains(trail.place);
    trail.visible = visible_.contains(trail.place);
  }
  // An invariant looks at it.
  void MakeVisible(Trail& trail);
  void Touch(int thread, Trail& trail, Access access);

  // Of those that hold an object, by where they are counted.
  bool IsShared(const void* place) const { return places_.contains(place); }
  size_t threads() const { return threads_; }
  const Clock& clock(int thread) const {
    return clocks_[static_cast<size_t>(thread)];
  }
  void Drop(int thread, const void* count, const void* place, bool last);
  void Look(int thread, const void* count, const void* place);

 private:
  struct Holders {
    Clock* drops = nullptr;
    Clock* looks = nullptr;
  };

  Clock& of(int thread) { return clocks_[static_cast<size_t>(thread)]; }
  Clock* NewClock();
  void Release(int thread) { ++of(thread).at[static_cast<size_t>(thread)]; }
  bool Covers(const Clock& clock, const Clock& other) const;
  void Join(Clock& clock, const Clock& other) const;
  bool Knows(int thread, int other, uint32_t at) {
    return other < 0 || other == thread ||
           of(thread).at[static_cast<size_t>(other)] >= at;
  }
  void Learn(const void* place);
  void TouchShared(int thread, Trail& trail, Access access);

  absl::flat_hash_set<const void*> places_;
  absl::flat_hash_set<const void*> visible_;  // of them

  bool learned_ = false;
  size_t threads_ = 0;
  std::vector<Clock> clocks_;
  absl::flat_hash_map<const void*, Holders> holders_;
  std::vector<std::pair<Nanos, Clock>> times_;  // when they came
  std::deque<Clock> pool_;
  size_t used_ = 0;
};

}  // namespace weir::sim
