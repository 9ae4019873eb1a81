// Deferred works: what waits for Flush, is dropped, read by others, joined, or
// left when its context is closed.
#include <memory>
#include <utility>
#include <vector>

#include "kernels/base/holders.h"
#include "kernels/base/thread.h"
#include "tests/sim/scenarios/scenarios.h"
#include "tests/sim/scheduler.h"
#include "tests/sim/world.h"

namespace weir::sim {
namespace {

struct Variant {
  bool joined = false;  // works bring their graphs
  bool cancel = false;
  bool fault = false;
  bool close = false;   // instead of Flush
  bool reader = false;  // a work of another context comes after the second
  bool reads = false;   // or reads the first
  bool after = false;   // and is submitted by the same handler, after Flush
  bool late = false;    // one that is submitted after Flush reads the second
};

// A chain of two, whose last result is kept or dropped.
void Chain(const Variant& variant) {
  World world({.graphs = variant.joined});
  std::shared_ptr<EvalContext> a = world.MakeContext(EvalMode::kDeferred);
  std::shared_ptr<EvalContext> b = world.MakeContext();
  SimWork& first = world.MakeWork();
  SimWork& second = world.MakeWork();
  SimWork& outside = world.MakeWork();
  SimWork& late = world.MakeWork();
  first.set_result(SimWork::Result::kKept);
  second.set_result(SimWork::Result::kKept);
  if (variant.fault) first.set_faulty();
  second.ReadProducer(first);
  second.Signal();
  world.Begin();
  Activation in_a = world.Enter(*a);
  first.Defer(in_a);
  second.Defer(in_a);
  const auto read = [&] {
    Activation in_b = world.Enter(*b);
    outside.Submit(in_b);
    outside.WaitDone();
    world.Leave(in_b);
  };
  Thread reader;
  if (variant.reader) {
    if (variant.reads) {
      outside.ReadProducer(first);
    } else {
      outside.After(second);
    }
    if (!variant.after) reader = Thread("reader", read);
  }
  Thread canceler;
  if (variant.cancel) {
    canceler = Thread("canceler", [&first] { first.Cancel(); });
  }
  if (!variant.close) in_a.Flush();
  if (variant.after) read();
  if (variant.late) {
    late.ReadProducer(second);
    late.set_mode(EvalMode::kEager);
    late.Submit(in_a);
    late.WaitDone();
  }
  world.Leave(in_a);
  world.Close(a);
  if (canceler.Joinable()) canceler.Join();
  first.WaitDone();
  second.WaitDone();
  if (reader.Joinable()) reader.Join();
  world.End();
}

// Others read what is deferred here, at once, while its own handler flushes: it
// is evaluated once.
void Readers(int readers) {
  World world({.lanes = static_cast<size_t>(readers)});
  std::shared_ptr<EvalContext> a = world.MakeContext(EvalMode::kDeferred);
  SimWork& first = world.MakeWork();
  first.set_result(SimWork::Result::kKept);
  struct Reader {
    std::shared_ptr<EvalContext> context;
    SimWork* work = nullptr;
    Thread thread;
  };
  std::vector<Reader> others(static_cast<size_t>(readers));
  for (Reader& other : others) {
    other.context = world.MakeContext();
    other.work = &world.MakeWork();
    other.work->ReadProducer(first);
  }
  world.Begin();
  Activation in_a = world.Enter(*a);
  first.Defer(in_a);
  for (Reader& other : others) {
    other.thread = Thread("reader", [&world, &other] {
      Activation inside = world.Enter(*other.context);
      other.work->Submit(inside);
      other.work->WaitDone();
      world.Leave(inside);
    });
  }
  in_a.Flush();
  world.Leave(in_a);
  world.Close(a);
  first.WaitDone();
  for (Reader& other : others) other.thread.Join();
  world.End();
}

// Two works whose results are kept, and the second reads the first's.
struct KeptPair {
  SimWork& first;
  SimWork& second;
};
KeptPair MakeKeptPair(World& world) {
  KeptPair pair = {world.MakeWork(), world.MakeWork()};
  pair.first.set_result(SimWork::Result::kKept);
  pair.second.set_result(SimWork::Result::kKept);
  pair.second.ReadProducer(pair.first);
  return pair;
}

// Nobody reads the works: they are dropped, and whoever made them is told.
// Another context is at work meanwhile.
void Unread() {
  World world;
  std::shared_ptr<EvalContext> a = world.MakeContext(EvalMode::kDeferred);
  std::shared_ptr<EvalContext> b = world.MakeContext();
  SimWork& outside = world.MakeWork();
  auto [first, second] = MakeKeptPair(world);
  world.Begin();
  Thread other("other", [&] {
    Activation in_b = world.Enter(*b);
    outside.Submit(in_b);
    outside.WaitDone();
    world.Leave(in_b);
  });
  Activation in_a = world.Enter(*a);
  first.Defer(in_a);
  second.Defer(in_a);
  first.Abandon();
  second.Abandon();
  in_a.Flush();
  world.Leave(in_a);
  world.Close(a);
  other.Join();
  first.WaitDone();
  second.WaitDone();
  world.End();
}

// Nobody reads the works, and somebody asks for the end of the second while
// their handler flushes: they run for him, or were dropped before. If he asked
// before that they are never dropped.
void Awaited(bool before) {
  World world;
  std::shared_ptr<EvalContext> a = world.MakeContext(EvalMode::kDeferred);
  auto [first, second] = MakeKeptPair(world);
  world.Begin();
  Activation in_a = world.Enter(*a);
  first.Defer(in_a);
  second.Defer(in_a);
  const std::weak_ptr<Timeline> end = second.point().timeline;
  const auto ask = [&end] {
    if (const auto timeline = HoldIfThere(end)) timeline->Want(1);
  };
  first.Abandon();
  second.Abandon();
  Thread asker;
  if (before) {
    ask();
  } else {
    asker = Thread("asker", ask);
  }
  in_a.Flush();
  world.Leave(in_a);
  if (asker.Joinable()) asker.Join();
  world.Close(a);
  first.WaitDone();
  second.WaitDone();
  Check(!before || second.status().ok(), "what was asked for is dropped");
  world.End();
}

// Nobody flushes for them: one is late, one cancelled, and the handler may be
// flushing or leaving when they go.
void Unwanted(bool flush) {
  World world;
  std::shared_ptr<EvalContext> a = world.MakeContext(EvalMode::kDeferred);
  std::shared_ptr<EvalContext> b = world.MakeContext();
  SimWork& late = world.MakeWork();
  SimWork& cancelled = world.MakeWork();
  SimWork& outside = world.MakeWork();
  late.set_result(SimWork::Result::kKept);
  cancelled.set_result(SimWork::Result::kKept);
  world.Begin();
  late.set_deadline(NowNanos() + 2000);
  Activation in_a = world.Enter(*a);
  late.Defer(in_a);
  cancelled.Defer(in_a);
  Thread canceler("canceler", [&cancelled] { cancelled.Cancel(); });
  outside.After(cancelled);
  Activation in_b = world.Enter(*b);
  outside.Submit(in_b);
  if (flush) {
    in_a.Flush();
  } else {
    late.WaitDone();
    cancelled.WaitDone();
  }
  world.Leave(in_a);
  world.Close(a);
  canceler.Join();
  late.WaitDone();
  cancelled.WaitDone();
  outside.WaitDone();
  world.Leave(in_b);
  world.End();
}

// What is used waits for another context, which waits for what is deferred
// here: that is run, and what waits for the one that is used stays.
void Elsewhere(const Variant& variant) {
  World world({.graphs = variant.joined});
  std::shared_ptr<EvalContext> a = world.MakeContext(EvalMode::kDeferred);
  std::shared_ptr<EvalContext> b = world.MakeContext();
  SimWork& first = world.MakeWork();
  SimWork& second = world.MakeWork();
  SimWork& there = world.MakeWork();
  SimWork& used = world.MakeWork();
  SimWork& after = world.MakeWork();
  for (SimWork* work : {&first, &second, &after}) {
    work->set_result(SimWork::Result::kKept);
  }
  if (variant.fault) second.set_faulty();
  there.After(second.Signal());
  there.Follow(second);
  used.After(there.Signal());
  used.Follow(there);
  used.set_mode(EvalMode::kEager);
  after.After(used.Signal());
  after.Follow(used);
  world.Begin();
  Thread elsewhere("elsewhere", [&] {
    Activation in_b = world.Enter(*b);
    there.Submit(in_b);
    world.Leave(in_b);
  });
  Thread canceler;
  if (variant.cancel) {
    canceler = Thread("canceler", [&there] { there.Cancel(); });
  }
  Activation in_a = world.Enter(*a);
  for (SimWork* work : {&first, &second, &after}) work->Defer(in_a);
  used.Submit(in_a);
  used.WaitDone();
  Check(!after.work()->done(), "nobody has asked for it yet");
  in_a.Flush();
  world.Leave(in_a);
  world.Close(a);
  elsewhere.Join();
  if (canceler.Joinable()) canceler.Join();
  for (SimWork* work : {&first, &second, &there, &after}) work->WaitDone();
  world.End();
}

}  // namespace

void AddDeferred(std::vector<Scenario>& all) {
  const auto add = [&all](const char* name, Variant variant) {
    all.push_back({.name = name,
                   .body = [variant] { Chain(variant); },
                   .limits = {.idle_steps = 20'000}});
  };
  add("deferred/chain", {});
  add("deferred/chain+cancel", {.cancel = true});
  add("deferred/chain+fault", {.fault = true});
  add("deferred/chain+close+cancel", {.cancel = true, .close = true});
  add("deferred/chain+close+reader", {.close = true, .reader = true});
  add("deferred/chain+reader", {.reader = true});
  add("deferred/joined", {.joined = true});
  add("deferred/joined+cancel", {.joined = true, .cancel = true});
  add("deferred/joined+fault", {.joined = true, .fault = true});
  add("deferred/joined+reader", {.joined = true, .reader = true});
  add("deferred/joined+reader+reads",
      {.joined = true, .reader = true, .reads = true});
  add("deferred/joined+reader+reads+after",
      {.joined = true, .reader = true, .reads = true, .after = true});
  // What it is about is seldom met: between two steps of another thread.
  all.back().at_random = 60'000'000;
  add("deferred/chain+late", {.late = true});
  add("deferred/joined+late", {.joined = true, .late = true});
  add("deferred/joined+late+cancel",
      {.joined = true, .cancel = true, .late = true});
  const auto add_elsewhere = [&all](const char* name, Variant variant) {
    all.push_back({.name = name,
                   .body = [variant] { Elsewhere(variant); },
                   .limits = {.idle_steps = 20'000}});
  };
  add_elsewhere("deferred/elsewhere", {});
  add_elsewhere("deferred/elsewhere+cancel", {.cancel = true});
  add_elsewhere("deferred/elsewhere+fault", {.fault = true});
  add_elsewhere("deferred/elsewhere+joined", {.joined = true});
  for (const bool flush : {false, true}) {
    all.push_back(
        {.name = flush ? "deferred/unwanted+flush" : "deferred/unwanted",
         .body = [flush] { Unwanted(flush); },
         .limits = {.idle_steps = 20'000}});
  }
  all.push_back({.name = "deferred/readers",
                 .body = [] { Readers(2); },
                 .limits = {.idle_steps = 20'000}});
  all.push_back({.name = "deferred/unread",
                 .body = Unread,
                 .limits = {.idle_steps = 20'000}});
  for (const bool before : {false, true}) {
    all.push_back({.name = before ? "deferred/awaited" : "deferred/awaited+by",
                   .body = [before] { Awaited(before); },
                   .limits = {.idle_steps = 20'000}});
  }
}

}  // namespace weir::sim
