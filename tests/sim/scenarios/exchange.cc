// What threads hand to one another without a lock: lists of numbers, the pinned
// buffers that are cached in them, and snapshots.
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/base/atomic.h"
#include "kernels/base/number_stack.h"
#include "kernels/base/striped_snapshot.h"
#include "kernels/base/thread.h"
#include "kernels/device/pinned_pool.h"
#include "tests/sim/scenarios/scenarios.h"
#include "tests/sim/scheduler.h"
#include "tests/sim/sim_device.h"

namespace weir::sim {
namespace {

// A number that was first, was taken, and is first again, while another is no
// more what came after it.
void NumbersHaveOneOwner() {
  std::array<NumberStack::Link, 3> links = {};
  const auto link = [&links](uint32_t number) -> NumberStack::Link& {
    return links[number];
  };
  NumberStack stack;
  std::array<bool, 3> owned = {};
  const auto pop = [&] {
    const std::optional<uint32_t> number = stack.Pop(link);
    if (number.has_value()) {
      Check(!std::exchange(owned[*number], true), "two have one number");
    }
    return number;
  };
  const auto push = [&](std::optional<uint32_t> number) {
    if (!number.has_value()) return;
    owned[*number] = false;
    stack.Push(*number, link);
  };
  for (const uint32_t number : {0u, 1u, 2u}) push(number);
  for (bool& own : owned) own = false;
  SetExploring(true);
  Thread other("other", [&] {
    const auto first = pop();
    const auto second = pop();
    push(first);
    push(second);
  });
  const auto first = pop();
  const auto second = pop();
  push(first);
  push(second);
  other.Join();
  SetExploring(false);
  Check(stack.TakeAll(link).size() == 3, "a number is lost");
}

constexpr size_t kUnit = 4096;

// One wants all of a budget, which smaller buffers use up that nobody has; or
// both want the only buffer.
void PinnedBudgetHolds(size_t units) {
  const size_t budget = units * kUnit;
  SimDevice device;
  {
    PinnedPool pool(&device, budget);
    {
      std::vector<PinnedBuffer> cached(units);
      for (PinnedBuffer& buffer : cached) buffer = *pool.Acquire(kUnit);
    }
    Quiesce();
    AfterEveryStep([&pool, budget] {
      const Unobserved look;
      const PinnedPoolStats stats = pool.stats();
      Check(stats.leased_bytes + stats.cached_bytes <= budget,
            "more than the budget");
    });
    size_t held = 0;
    const auto hold = [&held, budget](const PinnedBuffer& buffer) {
      held += buffer.capacity();
      Check(held <= budget, "more is held than the budget");
      sim::Sleep(1);
      held -= buffer.capacity();
    };
    // Looked at beside what they are about: an order of their own.
    Atomic<bool> other_begun{false};
    Atomic<bool> other_ended{false};
    SetExploring(true);
    Thread other("other", [&] {
      other_begun.store(true);
      if (auto small = pool.AcquireNow(kUnit); small.ok()) hold(*small);
      other_ended.store(true);
    });
    const bool alone = other_ended.load();
    if (auto all = pool.Acquire(budget); all.ok()) {
      hold(*all);
    } else {
      Check(other_begun.load() && !alone, "refused what nobody has");
    }
    other.Join();
    SetExploring(false);
    AfterEveryStep(nullptr);
    Check(pool.stats().leased_bytes == 0, "a buffer did not come back");
    Check(pool.Acquire(budget).ok(), "the whole budget is there again");
  }
}

// Whoever ends the pool has seen that nothing is leased any more.
void PinnedReturnMeetsTheEnd() {
  SimDevice device;
  auto pool = std::make_unique<PinnedPool>(&device, 2 * kUnit);
  auto buffer = pool->Acquire(kUnit);
  Check(buffer.ok(), "a buffer");
  Quiesce();
  SetExploring(true);
  Thread other("other", [&] { buffer->Reset(); });
  while (pool->stats().leased_bytes > 0) Yield();
  pool.reset();
  other.Join();
  SetExploring(false);
}

// Who looks at a value, however old, sees it whole, and the last one looks at
// the newest; each ends once.
void SnapshotsEndUnseen() {
  struct Counted {
    Counted(int number, int* living) : number(number), living(living) {
      ++*living;
    }
    ~Counted() {
      --*living;
      ended = 1;
    }
    const int number;
    int* const living;
    Atomic<int> ended{0};  // which the simulation sees
  };
  int living = 0;
  {
    const auto make = [&living](int number) {
      return std::make_shared<const Counted>(number, &living);
    };
    StripedSnapshot<Counted> snapshot(make(0));
    const auto look = [&snapshot] {
      return snapshot.Read([](const Counted& value) {
        Check(value.ended.load() == 0, "a value that has ended was read");
        return value.number;
      });
    };
    SetExploring(true);
    Thread reader("reader", [&look] {
      const int first = look();
      Check(look() >= first, "a reader went back");
    });
    Thread writer("writer", [&] {
      snapshot.Store(make(1));
      snapshot.Store(make(2));
    });
    reader.Join();
    writer.Join();
    Check(look() == 2, "an old value is read");
    SetExploring(false);
    Check(living == 1, "an old value stays");
  }
  Check(living == 0, "the last value stays");
}

}  // namespace

void AddExchange(std::vector<Scenario>& all) {
  const auto add = [&all](const char* name, std::function<void()> body) {
    all.push_back({.name = name, .body = std::move(body)});
  };
  add("exchange/numbers", NumbersHaveOneOwner);
  add("exchange/snapshots", SnapshotsEndUnseen);
  add("exchange/pinned-one", [] { PinnedBudgetHolds(1); });
  add("exchange/pinned-two", [] { PinnedBudgetHolds(2); });
  add("exchange/pinned-return+end", PinnedReturnMeetsTheEnd);
}

}  // namespace weir::sim
