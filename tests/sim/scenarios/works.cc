// Two works in two contexts, of which the second depends on the first, and up
// to two of: cancel, deadline, fault, close, poison, full stream.
#include <memory>
#include <string>
#include <utility>

#include "kernels/base/atomic.h"
#include "kernels/base/thread.h"
#include "tests/sim/scenarios/scenarios.h"
#include "tests/sim/scheduler.h"
#include "tests/sim/world.h"

namespace weir::sim {
namespace {

enum Event : unsigned {
  kCancel = 1,
  kDeadline = 2,
  kFault = 4,
  kClose = 8,
  kPoison = 16,
  kFull = 32,
};
constexpr const char* kNames[] = {"cancel", "deadline", "fault",
                                  "close",  "poison",   "full"};
constexpr int kEvents = 6;

enum class Edge {
  kSignal,  // the second comes after a timeline that the first signals
  kTensor,  // it reads the first one's kept tensor, on the device
  kNone,    // they only share the device
};

void TwoWorks(unsigned events, Edge edge, bool cpu) {
  World world(
      {.lanes = edge == Edge::kNone ? size_t{1} : size_t{2}, .cpu = cpu});
  if ((events & kPoison) != 0) world.ExpectErrors();
  std::shared_ptr<EvalContext> a = world.MakeContext();
  std::shared_ptr<EvalContext> b = world.MakeContext();
  SimWork& first = world.MakeWork();
  SimWork& second = world.MakeWork();
  std::vector<SimWork*> heavy;
  if (edge == Edge::kTensor) first.set_result(SimWork::Result::kKept);
  if (edge == Edge::kSignal) {
    second.After(first.Signal());
    second.Follow(first);
  }
  if ((events & kFault) != 0) first.set_faulty();
  if ((events & kFull) != 0) {
    // A lane has room for 512 launches.
    for (int i = 0; i < 3; ++i) {
      heavy.push_back(&world.MakeWork());
      heavy.back()->set_result(SimWork::Result::kKept);
      heavy.back()->set_launches(200);
    }
  }
  world.Begin();
  if ((events & kPoison) != 0) world.device().LoseAt(1 + 4 * Choose(3));
  Thread clock;
  if ((events & kDeadline) != 0) {
    first.set_deadline(NowNanos() + 2000);
    // So that it may pass at any time.
    clock = Thread("clock", [] { sim::Sleep(2000); });
  }
  Thread canceler;
  Activation in_a = world.Enter(*a);
  for (SimWork* work : heavy) work->Submit(in_a);
  if ((events & kCancel) != 0) {
    canceler = Thread("canceler", [&first] { first.Cancel(); });
  }
  Thread handler_b;
  const auto run_b = [&] {
    Activation in_b = world.Enter(*b);
    second.Submit(in_b);
    second.WaitReturned();
    world.Leave(in_b);
    // The context goes with its last work.
    if ((events & kClose) != 0) b = nullptr;
  };
  if (edge != Edge::kTensor) handler_b = Thread("handler B", run_b);
  first.Submit(in_a);
  if (edge == Edge::kTensor) {
    // Only what was launched has a tensor.
    first.WaitScheduled();
    if (first.launched()) second.ReadTensor(first);
    run_b();
  }
  first.WaitReturned();
  world.Leave(in_a);
  if ((events & kClose) != 0) a = nullptr;
  if (handler_b.Joinable()) handler_b.Join();
  if (canceler.Joinable()) canceler.Join();
  if (clock.Joinable()) clock.Join();
  first.WaitDone();
  second.WaitDone();
  for (SimWork* work : heavy) work->WaitDone();
  world.End();
}

// In one context the second reads what the first makes, and is submitted while
// that runs.
void Producer(unsigned events) {
  World world;
  std::shared_ptr<EvalContext> context = world.MakeContext();
  SimWork& first = world.MakeWork();
  SimWork& second = world.MakeWork();
  first.set_result(SimWork::Result::kKept);
  second.set_result(SimWork::Result::kKept);
  second.ReadProducer(first);
  if ((events & kFault) != 0) first.set_faulty();
  world.Begin();
  Activation inside = world.Enter(*context);
  Thread canceler;
  if ((events & kCancel) != 0) {
    canceler = Thread("canceler", [&] { second.Cancel(); });
  }
  first.Submit(inside);
  second.Submit(inside);
  world.Leave(inside);
  context = nullptr;
  if (canceler.Joinable()) canceler.Join();
  first.WaitDone();
  second.WaitDone();
  world.End();
}

// Three handlers want one context: the first is refused if another one is
// inside, the second waits for its turn, the third comes when it may.
void Contended() {
  World world;
  std::shared_ptr<EvalContext> context = world.MakeContext();
  SimWork& refused = world.MakeWork();
  SimWork& queued = world.MakeWork();
  SimWork& mine = world.MakeWork();
  world.Begin();
  const auto run = [&world](SimWork& work, absl::StatusOr<Activation> entered) {
    if (!entered.ok()) {
      Check(absl::IsAborted(entered.status()), "ABORTED it is");
      return;
    }
    world.NoteEntered(entered->context());
    work.Submit(*entered);
    world.Leave(*entered);
  };
  Thread first("refused",
               [&] { run(refused, context->Enter(NewHandlerId())); });
  Thread second("queued", [&] {
    context->EnterQueued(NewHandlerId(), kNoDeadline,
                         [&](absl::StatusOr<Activation> entered) {
                           Check(entered.ok(), "its turn comes");
                           run(queued, std::move(entered));
                         });
  });
  run(mine, context->Enter(NewHandlerId()));
  first.Join();
  second.Join();
  queued.WaitDone();
  for (SimWork* work : {&refused, &mine}) {
    if (work->accepted()) work->WaitDone();
  }
  world.End();
}

// The first work is watched from another thread, which gives up some time.
void Watched(bool gives_up) {
  World world;
  std::shared_ptr<EvalContext> context = world.MakeContext();
  SimWork& work = world.MakeWork();
  world.Begin();
  Atomic<bool> over{false};
  WorkState last = WorkState::kNotEnqueued;
  int told = 0;
  uint64_t watch = 0;
  Thread watcher("watcher", [&] {
    watch = work.work()->Watch([&](WorkState state) {
      Check(!over.load(), "told after Unwatch");
      Check(told == 0 || state > last, "told twice, or out of order");
      last = state;
      ++told;
    });
    if (!gives_up) return;
    work.work()->Unwatch(watch);
    over.store(true);
  });
  Activation inside = world.Enter(*context);
  work.Submit(inside);
  world.Leave(inside);
  watcher.Join();
  work.WaitDone();
  world.End();
  if (watch != 0 && !gives_up) {
    Check(last == WorkState::kCompleted, "never told the end");
  }
}

// Each reads on the device what the one before it, of another context, makes;
// the first one finds a fault. An error goes any number of hops.
void Hops(int works, bool fault) {
  World world({.lanes = static_cast<size_t>(works)});
  std::vector<std::shared_ptr<EvalContext>> contexts;
  std::vector<SimWork*> chain;
  for (int i = 0; i < works; ++i) {
    contexts.push_back(world.MakeContext());
    chain.push_back(&world.MakeWork());
    chain.back()->set_result(SimWork::Result::kKept);
  }
  if (fault) chain[0]->set_faulty();
  world.Begin();
  for (size_t i = 0; i < chain.size(); ++i) {
    Activation inside = world.Enter(*contexts[i]);
    if (i > 0) chain[i]->ReadTensor(*chain[i - 1]);
    chain[i]->Submit(inside);
    world.Leave(inside);
    chain[i]->WaitScheduled();
    // A reader that fails before it is launched has nothing to be read.
    if (!chain[i]->launched()) chain.resize(i + 1);
  }
  for (SimWork* work : chain) work->WaitDone();
  world.End();
}

// Two kept results of which only one has room; nobody uses the stream after.
void NoRoomForTheSecond() {
  World world({.lanes = 1, .tensor_bytes = 256});
  world.ExpectErrors();
  std::shared_ptr<EvalContext> context = world.MakeContext();
  SimWork& work = world.MakeWork();
  work.set_two_outputs();
  work.set_result(SimWork::Result::kKept);
  world.Begin();
  Activation inside = world.Enter(*context);
  work.Submit(inside);
  work.WaitDone();
  world.Leave(inside);
  Check(absl::IsResourceExhausted(work.status()), "there is no room for two");
  world.End();
}

// Two of each of two contexts; each depends on the one before it, wherever.
void FourWorks(unsigned events) {
  World world({.lanes = 1});
  std::shared_ptr<EvalContext> contexts[] = {world.MakeContext(),
                                             world.MakeContext()};
  SimWork* works[4];
  for (int i = 0; i < 4; ++i) {
    works[i] = &world.MakeWork();
    if (i > 0) {
      works[i]->After(works[i - 1]->Signal());
      works[i]->Follow(*works[i - 1]);
    }
  }
  if ((events & kFault) != 0) works[1]->set_faulty();
  world.Begin();
  Thread canceler;
  if ((events & kCancel) != 0) {
    canceler = Thread("canceler", [&] { works[2]->Cancel(); });
  }
  Thread handlers[2];
  for (size_t h = 0; h < 2; ++h) {
    handlers[h] = Thread("handler", [&, h] {
      Activation inside = world.Enter(*contexts[h]);
      works[h]->Submit(inside);
      works[h + 2]->Submit(inside);
      world.Leave(inside);
      contexts[h] = nullptr;
    });
  }
  for (Thread& handler : handlers) handler.Join();
  if (canceler.Joinable()) canceler.Join();
  for (SimWork* work : works) work->WaitDone();
  world.End();
}

std::string Name(unsigned events, Edge edge, bool cpu) {
  std::string name = edge == Edge::kSignal   ? "works/signal"
                     : edge == Edge::kTensor ? "works/tensor"
                                             : "works/lane";
  if (cpu) name += "-cpu";
  for (int i = 0; i < kEvents; ++i) {
    if ((events >> i & 1) != 0) name += std::string("+") + kNames[i];
  }
  return name;
}

}  // namespace

void AddWorks(std::vector<Scenario>& all) {
  for (const Edge edge : {Edge::kSignal, Edge::kTensor, Edge::kNone}) {
    for (unsigned events = 0; events < 1u << kEvents; ++events) {
      if (__builtin_popcount(events) > 2) continue;
      for (const bool cpu : {false, true}) {
        // The CPU is never lost, and its streams have no queue of a driver's.
        if (cpu && (events & (kPoison | kFull)) != 0) continue;
        all.push_back(
            {.name = Name(events, edge, cpu),
             .body = [events, edge, cpu] { TwoWorks(events, edge, cpu); },
             .limits = {.idle_steps = 20'000}});
      }
    }
  }
  const auto add = [&all](const char* name, std::function<void()> body) {
    all.push_back({.name = name,
                   .body = std::move(body),
                   .limits = {.idle_steps = 20'000}});
  };
  add("works/producer", [] { Producer(0); });
  add("works/producer+cancel", [] { Producer(kCancel); });
  add("works/producer+fault", [] { Producer(kFault); });
  add("works/hops", [] { Hops(3, false); });
  add("works/hops+fault", [] { Hops(3, true); });
  add("works/no-room", NoRoomForTheSecond);
  add("works/contended", Contended);
  add("works/watched", [] { Watched(false); });
  add("works/watched+unwatched", [] { Watched(true); });
  add("works/four", [] { FourWorks(0); });
  add("works/four+cancel", [] { FourWorks(kCancel); });
  add("works/four+cancel+fault", [] { FourWorks(kCancel | kFault); });
}

}  // namespace weir::sim
