// Worlds that the seed makes: handlers that submit, defer, flush and cancel
// works which depend on each other, while the device, memory and time do what
// they like.
#include <memory>
#include <utility>
#include <vector>

#include "kernels/base/thread.h"
#include "tests/sim/scenarios/scenarios.h"
#include "tests/sim/scheduler.h"
#include "tests/sim/world.h"

namespace weir::sim {
namespace {

constexpr uint64_t kSteps = 2'500'000;

struct Mix {
  int handlers = 2;
  int works = 4;  // of each handler
  bool cpu = false;
};

// Everything that is chosen is chosen while the world is made, or by the thread
// whose it is.
void RandomWorld(const Mix& mix) {
  SetExploring(true);
  WorldOptions options;
  options.lanes = static_cast<size_t>(1 + Choose(3));
  options.graphs = Choose(3) == 0;
  options.cpu = mix.cpu;
  options.trims = true;
  options.faults.slow_memory = Choose(2) == 0;
  bool errors = false;
  if (Choose(4) == 0) {
    // Not for all works.
    options.tensor_bytes = 256 * static_cast<size_t>(1 + Choose(4));
    errors = true;
  }
  switch (mix.cpu ? 8 : Choose(8)) {
    case 0:
      options.faults.allocation = 1 + Choose(4);
      errors = true;
      break;
    case 1:
      options.faults.pinned_allocation = 1 + Choose(4);
      errors = true;
      break;
    case 2:
      options.faults.stream = 2 + Choose(2);
      errors = true;
      break;
    case 3:
      options.faults.copy = 1 + Choose(12);
      errors = true;
      break;
    case 4:
      options.faults.operation = 1 + Choose(40);
      errors = true;
      break;
    default:
      break;
  }
  SetExploring(false);
  World world(options);
  if (errors) world.ExpectErrors();

  struct Handler {
    std::shared_ptr<EvalContext> context;
    std::vector<SimWork*> works;
    Thread thread;
  };
  std::vector<Handler> handlers(static_cast<size_t>(mix.handlers));
  for (Handler& handler : handlers) {
    handler.context = world.MakeContext();
    for (int i = 0; i < mix.works; ++i) {
      handler.works.push_back(&world.MakeWork());
    }
  }
  SetExploring(true);
  std::vector<std::pair<SimWork*, Point>> signals;  // of works before
  for (int i = 0; i < mix.works; ++i) {
    for (Handler& handler : handlers) {
      SimWork& work = *handler.works[static_cast<size_t>(i)];
      const int result = Choose(4);
      work.set_result(result == 0   ? SimWork::Result::kInline
                      : result == 1 ? SimWork::Result::kDropped
                                    : SimWork::Result::kKept);
      if (Choose(8) == 0) work.set_faulty();
      if (Choose(8) == 0) work.set_launches(200);
      if (Choose(4) == 0) work.set_two_outputs();
      if (Choose(8) == 0)
        work.set_deadline(NowNanos() + 1000 * (1 + Choose(20)));
      if (Choose(4) == 0) {
        work.set_mode(static_cast<EvalMode>(1 + Choose(4)));
      }
      if (!signals.empty() && Choose(3) == 0) {
        const auto& [other, point] = signals[static_cast<size_t>(
            Choose(static_cast<int>(signals.size())))];
        work.After(point);
        work.Follow(*other);
      }
      // A deferred work stands in its queue behind whatever is submitted before
      // it is flushed: who waits for it elsewhere might wait in a circle.
      if (work.mode() != EvalMode::kDeferred && Choose(2) == 0) {
        signals.emplace_back(&work, work.Signal());
      }
    }
  }
  SetExploring(false);
  world.Begin();
  for (Handler& handler : handlers) {
    handler.thread = Thread("handler", [&world, &handler] {
      SimWork* before = nullptr;
      Activation inside = world.Enter(*handler.context);
      for (SimWork* work : handler.works) {
        if (before != nullptr && Choose(2) == 0) {
          if (before->keeps()) {
            work->ReadProducer(*before);
          } else {
            work->After(*before);
          }
        }
        if (work->mode() == EvalMode::kDeferred || Choose(4) == 0) {
          work->Defer(inside);
        } else {
          work->Submit(inside);
        }
        if (Choose(8) == 0) work->Cancel();
        if (Choose(4) == 0) inside.Flush();
        if (Choose(4) == 0) {
          world.Leave(inside);
          inside = world.Enter(*handler.context);
        }
        before = work->accepted() ? work : nullptr;
      }
      if (Choose(4) != 0) inside.Flush();
      world.Leave(inside);
      world.Close(handler.context);
      for (SimWork* work : handler.works) work->WaitDone();
    });
  }
  for (Handler& handler : handlers) handler.thread.Join();
  world.End();
}

}  // namespace

void AddRandom(std::vector<Scenario>& all) {
  all.push_back({.name = "random/4-works",
                 .body = [] { RandomWorld({.handlers = 2, .works = 2}); },
                 .limits = {.idle_steps = 50'000},
                 .large = true,
                 .at_random = kSteps});
  all.push_back(
      {.name = "random/4-works-cpu",
       .body = [] { RandomWorld({.handlers = 2, .works = 2, .cpu = true}); },
       .limits = {.idle_steps = 50'000},
       .large = true,
       .at_random = kSteps});
  all.push_back(
      {.name = "random/12-works-cpu",
       .body = [] { RandomWorld({.handlers = 3, .works = 4, .cpu = true}); },
       .limits = {.idle_steps = 100'000},
       .large = true,
       .at_random = kSteps});
  all.push_back({.name = "random/12-works",
                 .body = [] { RandomWorld({.handlers = 3, .works = 4}); },
                 .limits = {.idle_steps = 100'000},
                 .large = true,
                 .at_random = kSteps});
}

}  // namespace weir::sim
