// What watches a device's health goes while it is called: once a watch is
// reset, its call is over and what it held is gone.
#include "kernels/device/health.h"

#include <memory>
#include <utility>

#include "kernels/base/atomic.h"
#include "kernels/base/thread.h"
#include "tests/sim/scenarios/scenarios.h"
#include "tests/sim/scheduler.h"

namespace weir::sim {
namespace {

class Watcher {
 public:
  // To be watched with.
  DeviceHealth::Watcher Callback() {
    return [held = std::make_unique<Held>(&gone_)](const absl::Status&) {
      held->ExpectWatched();
      held->ExpectWatched();
    };
  }
  void set_watch(DeviceHealth::Watch watch) { watch_ = std::move(watch); }

  void Reset() {
    watch_.Reset();
    gone_.store(true);
  }

 private:
  // What the callback uses, and takes with it.
  class Held {
   public:
    explicit Held(const Atomic<bool>* gone) : gone_(gone) {}
    ~Held() { ExpectWatched(); }

    void ExpectWatched() const {
      Check(!gone_->load(), "its watch has gone before");
    }

   private:
    const Atomic<bool>* const gone_;
  };

  Atomic<bool> gone_{false};
  DeviceHealth::Watch watch_;
};

// Two of them are called one after the other.
void LossMeetsReset() {
  DeviceHealth health;
  Watcher first, second;
  for (Watcher* each : {&first, &second}) {
    each->set_watch(health.OnPoisoned(each->Callback()));
  }
  SetExploring(true);
  Thread loser("loser", [&] { health.Poison(absl::InternalError("lost")); });
  Thread remover("remover", [&] { second.Reset(); });
  first.Reset();
  loser.Join();
  remover.Join();
  SetExploring(false);
}

// It may be called twice.
void StallMeetsReset() {
  DeviceHealth health;
  Watcher watcher;
  watcher.set_watch(health.OnStall(watcher.Callback()));
  SetExploring(true);
  Thread staller("staller", [&] {
    health.SetStalled(absl::UnavailableError("stands"));
    health.SetStalled(absl::OkStatus());
  });
  watcher.Reset();
  staller.Join();
  SetExploring(false);
}

}  // namespace

void AddHealth(std::vector<Scenario>& all) {
  all.push_back({.name = "health/loss+reset", .body = LossMeetsReset});
  all.push_back({.name = "health/stall+reset", .body = StallMeetsReset});
}

}  // namespace weir::sim
