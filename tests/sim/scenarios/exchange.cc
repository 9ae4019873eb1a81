// What threads hand to one another without a lock: lists of numbers.
#include <array>
#include <functional>
#include <optional>
#include <utility>

#include "kernels/base/number_stack.h"
#include "kernels/base/thread.h"
#include "tests/sim/scenarios/scenarios.h"
#include "tests/sim/scheduler.h"

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

}  // namespace

void AddExchange(std::vector<Scenario>& all) {
  const auto add = [&all](const char* name, std::function<void()> body) {
    all.push_back({.name = name, .body = std::move(body), .preemptions = 3});
  };
  add("exchange/numbers", NumbersHaveOneOwner);
}

}  // namespace weir::sim
