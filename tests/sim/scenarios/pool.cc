// The stream pool: handlers that want its only lane, give up, come too late, or
// find that it cannot be made; and lanes that go when nobody wants them.
#include <memory>
#include <utility>

#include "kernels/base/atomic.h"
#include "kernels/base/thread.h"
#include "kernels/base/timer_queue.h"
#include "kernels/device/stream_pool.h"
#include "tests/sim/scenarios/scenarios.h"
#include "tests/sim/scheduler.h"
#include "tests/sim/sim_device.h"

namespace weir::sim {
namespace {

struct Asker {
  int answers = 0;
  absl::Status status;
};

enum class Event { kNone, kCancel, kDeadline, kStop, kBusy };

// Leaves the device something to do.
class OneKernel final : public StreamTask {
 public:
  absl::Status Launch(Stream& stream) override {
    static_cast<SimStream&>(stream).Launch([] {});
    return absl::OkStatus();
  }
  void Complete(const Completion&) override {}
};

void OneLane(Event event) {
  SimDevice device;
  TimerQueue timers;
  Atomic<int> holders{0};  // in two steps, between which another may come
  {
    StreamPoolOptions options;
    options.max = 1;
    auto made = StreamPool::Create(&device, &timers, options);
    Check(made.ok(), "a pool");
    StreamPool& pool = **made;
    Asker askers[2];
    OneKernel kernel;
    bool stopped = false;
    const auto ask = [&](Asker& asker, Nanos deadline) {
      return pool.Acquire(deadline, [&](absl::StatusOr<StreamLease> lease) {
        ++asker.answers;
        asker.status = lease.status();
        if (!lease.ok()) return;
        Check(!stopped, "handed out by a pool that has stopped");
        Check(++holders == 1, "two have the only lane");
        Check(device.IsIdle(lease->stream().id()), "handed out at work");
        --holders;
        lease->Reset();
      });
    };
    Quiesce();
    AfterEveryStep([&pool] {
      const Unobserved look;
      const StreamPoolStats stats = pool.stats();
      if (look.consistent()) Check(stats.created() <= 1, "two lanes of one");
    });
    SetExploring(true);
    Thread other("other", [&] {
      ask(askers[1],
          event == Event::kDeadline ? NowNanos() + 1000 : kNoDeadline);
    });
    {
      absl::StatusOr<StreamLease> mine = pool.AcquireNow();
      if (mine.ok() && *mine) {
        Check(++holders == 1, "two have the only lane");
        const uint64_t wait = ask(askers[0], kNoDeadline);
        if (event == Event::kCancel) pool.CancelWait(wait);
        // The lane goes back with its work unfinished.
        if (event == Event::kBusy) mine->stream().Enqueue(&kernel);
        --holders;
      } else {
        ask(askers[0], kNoDeadline);
      }
    }
    if (event == Event::kStop) {
      pool.Stop();
      stopped = true;
    }
    other.Join();
    SetExploring(false);
    // Who looks at the device's records has to wake.
    if (event == Event::kBusy) sim::Sleep(1'000'000);
    Quiesce();
    AfterEveryStep(nullptr);
    for (const Asker& asker : askers) {
      Check(asker.answers == 1, "answered exactly once");
      Check(
          asker.status.ok() || (event != Event::kNone && event != Event::kBusy),
          "it was refused");
    }
    Check(pool.stats().leased == 0, "the lane did not come back");
  }
  timers.Stop();
}

// Whoever waits for the only lane has it before whoever comes as it returns.
void InTurn() {
  SimDevice device;
  TimerQueue timers;
  {
    StreamPoolOptions options;
    options.max = 1;
    auto made = StreamPool::Create(&device, &timers, options);
    Check(made.ok(), "a pool");
    StreamPool& pool = **made;
    int served = 0;
    const auto ask = [&](int before) {
      return pool.Acquire(
          kNoDeadline, [&served, before](absl::StatusOr<StreamLease> lease) {
            Check(lease.ok(), "it was refused");
            Check(served++ == before, "overtaken by who came later");
          });
    };
    absl::StatusOr<StreamLease> mine = pool.AcquireNow();
    Check(mine.ok() && *mine, "the lane");
    Check(ask(0) != 0, "one waits");
    Quiesce();
    SetExploring(true);
    Thread other("other", [&] { ask(1); });
    mine->Reset();
    other.Join();
    SetExploring(false);
    Quiesce();
    Check(served == 2, "both had it");
  }
  timers.Stop();
}

// Whatever handlers do meanwhile, the pool gets to know of each lane that is
// idle, and lets it go in time.
void IdleLanesGo() {
  SimDevice device;
  TimerQueue timers;
  {
    StreamPoolOptions options;
    options.reserved = 0;
    options.max = 3;  // one for each, and one that is being ended
    options.idle_ttl = absl::Microseconds(10);
    auto made = StreamPool::Create(&device, &timers, options);
    Check(made.ok(), "a pool");
    StreamPool& pool = **made;
    AfterEveryStep([&pool] {
      const Unobserved look;
      const StreamPoolStats stats = pool.stats();
      if (look.consistent()) Check(stats.created() <= 3, "four lanes of three");
    });
    const auto use = [&pool] {
      absl::StatusOr<StreamLease> lease = pool.TryAcquire();
      Check(lease.ok(), "there is a lane for each");
    };
    use();
    Quiesce();
    SetExploring(true);
    Thread other("other", use);
    use();
    other.Join();
    SetExploring(false);
    sim::Sleep(1'000'000);
    AfterEveryStep(nullptr);
    Check(pool.stats().created() == 0, "a lane stays");
  }
  timers.Stop();
}

}  // namespace

void AddPool(std::vector<Scenario>& all) {
  const auto add = [&all](const char* name, Event event) {
    all.push_back({.name = name, .body = [event] { OneLane(event); }});
  };
  add("pool/one-lane", Event::kNone);
  add("pool/one-lane+cancel", Event::kCancel);
  add("pool/one-lane+deadline", Event::kDeadline);
  add("pool/one-lane+stop", Event::kStop);
  add("pool/one-lane+busy", Event::kBusy);
  all.push_back({.name = "pool/in-turn", .body = InTurn});
  all.push_back({.name = "pool/idle-lanes", .body = IdleLanesGo});
}

}  // namespace weir::sim
