// Works of two engines, each with a device of its own: what one waits for
// happens on the other's device, where no stream of its own can wait for it.
#include <memory>
#include <utility>

#include "kernels/base/thread.h"
#include "tests/sim/scenarios/scenarios.h"
#include "tests/sim/scheduler.h"
#include "tests/sim/world.h"

namespace weir::sim {
namespace {

struct Variant {
  bool point = false;  // after the works' own points, not callers' timelines
  bool cancel = false;
  bool fault = false;
  bool poison = false;  // the first device is lost
};

// There and back: the second comes after the first, and the third, behind the
// first in its context, after the second.
void ThereAndBack(const Variant& variant) {
  World world({.engines = 2, .lanes = 1});
  if (variant.poison) world.ExpectErrors();
  std::shared_ptr<EvalContext> here = world.MakeContext(EvalMode::kEager, 0);
  std::shared_ptr<EvalContext> there = world.MakeContext(EvalMode::kEager, 1);
  SimWork& first = world.MakeWork();
  SimWork& second = world.MakeWork();
  SimWork& third = world.MakeWork();
  // What is given here when the second is done there.
  const Point back = second.Signal();
  if (!variant.point) {
    second.After(first.Signal());
    second.Follow(first);
  }
  third.After(back);
  third.Follow(second);
  if (variant.fault) first.set_faulty();
  world.Begin();
  if (variant.poison) world.device(0).LoseAt(1 + 4 * Choose(3));
  Activation in_here = world.Enter(*here);
  if (variant.point) {
    first.Submit(in_here);
    second.After(first);
  }
  Thread handler("there", [&] {
    Activation in_there = world.Enter(*there);
    second.Submit(in_there);
    world.Leave(in_there);
    there = nullptr;
  });
  Thread canceler;
  if (variant.cancel) {
    canceler = Thread("canceler", [&second] { second.Cancel(); });
  }
  if (!variant.point) first.Submit(in_here);
  third.Submit(in_here);
  world.Leave(in_here);
  here = nullptr;
  handler.Join();
  if (canceler.Joinable()) canceler.Join();
  for (SimWork* work : {&first, &second, &third}) work->WaitDone();
  world.End();
}

// The second reads what the first one has made on the other device: it is
// refused, be the first launched, done or failed by then. What comes behind the
// second is not.
void Misplaced(const Variant& variant) {
  World world({.engines = 2, .lanes = 1});
  std::shared_ptr<EvalContext> here = world.MakeContext(EvalMode::kEager, 0);
  std::shared_ptr<EvalContext> there = world.MakeContext(EvalMode::kEager, 1);
  SimWork& first = world.MakeWork();
  SimWork& second = world.MakeWork();
  SimWork& third = world.MakeWork();
  first.set_result(SimWork::Result::kKept);
  second.ReadProducer(first);
  second.set_misplaced();
  if (variant.fault) first.set_faulty();
  world.Begin();
  Activation in_here = world.Enter(*here);
  first.Submit(in_here);
  Thread handler("there", [&] {
    Activation in_there = world.Enter(*there);
    second.Submit(in_there);
    third.Submit(in_there);
    world.Leave(in_there);
    there = nullptr;
  });
  Thread canceler;
  if (variant.cancel) {
    canceler = Thread("canceler", [&first] { first.Cancel(); });
  }
  world.Leave(in_here);
  here = nullptr;
  handler.Join();
  if (canceler.Joinable()) canceler.Join();
  for (SimWork* work : {&first, &second, &third}) work->WaitDone();
  Check(!second.status().ok(), "it reads what lies on another device");
  world.End();
}

}  // namespace

void AddEngines(std::vector<Scenario>& all) {
  const auto add = [&all](const char* name, void (*body)(const Variant&),
                          Variant variant) {
    all.push_back({.name = name,
                   .body = [body, variant] { body(variant); },
                   .limits = {.idle_steps = 20'000}});
  };
  add("engines/signal", ThereAndBack, {});
  add("engines/signal+cancel", ThereAndBack, {.cancel = true});
  add("engines/signal+fault", ThereAndBack, {.fault = true});
  add("engines/signal+poison", ThereAndBack, {.poison = true});
  add("engines/point", ThereAndBack, {.point = true});
  add("engines/point+cancel", ThereAndBack, {.point = true, .cancel = true});
  add("engines/point+fault", ThereAndBack, {.point = true, .fault = true});
  add("engines/point+poison", ThereAndBack, {.point = true, .poison = true});
  add("engines/misplaced", Misplaced, {});
  add("engines/misplaced+cancel", Misplaced, {.cancel = true});
  add("engines/misplaced+fault", Misplaced, {.fault = true});
}

}  // namespace weir::sim
