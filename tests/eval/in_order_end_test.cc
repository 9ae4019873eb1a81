#include "kernels/eval/in_order_end.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "tests/base/event.h"

namespace weir {
namespace {

TEST(InOrderEnd, TheTimelineMovesInOrderWithTheOutcomeOfEach) {
  InOrderEnd order(std::make_shared<Timeline>("context"));
  order.Take(3, 3);
  Timeline& timeline = *order.timeline();
  order.End(2, absl::CancelledError("second"));
  order.End(3, absl::OkStatus());
  EXPECT_EQ(timeline.value(), 0u);
  EXPECT_EQ(timeline.Outcome(2), absl::CancelledError("second"))
      << "whoever reads it need not wait for the first";
  EXPECT_EQ(timeline.Outcome(3), std::nullopt);
  order.End(1, absl::OkStatus());
  EXPECT_EQ(timeline.value(), 3u);
  EXPECT_EQ(timeline.Outcome(1), absl::OkStatus());
  EXPECT_EQ(timeline.Outcome(2), absl::CancelledError("second"));
  EXPECT_EQ(timeline.Outcome(3), absl::OkStatus());
}

// What follows from one end may be another one.
TEST(InOrderEnd, AContinuationMayEndTheNext) {
  InOrderEnd order(std::make_shared<Timeline>("context"));
  order.Take(2, 2);
  order.timeline()->OnReached(
      1, [&](absl::Status) { order.End(2, absl::OkStatus()); });
  order.End(1, absl::OkStatus());
  EXPECT_EQ(order.timeline()->value(), 2u);
}

TEST(InOrderEnd, NumbersAreBoundedByWhatIsUnfinished) {
  InOrderEnd order(std::make_shared<Timeline>("context"));
  EXPECT_EQ(order.Take(1, 3), 1u);
  EXPECT_EQ(order.Take(2, 3), 2u);
  EXPECT_EQ(order.last(), 3u);
  EXPECT_EQ(order.Take(1, 3), 0u);
  EXPECT_EQ(order.unfinished(), 3u);
  order.End(2, absl::OkStatus());
  EXPECT_EQ(order.unfinished(), 2u);
  EXPECT_EQ(order.Take(2, 3), 0u);
  EXPECT_EQ(order.Take(1, 3), 4u);
}

// Another one that moves the timeline goes on to what ends meanwhile.
TEST(InOrderEnd, OneMovesTheTimelineAtATime) {
  InOrderEnd order(std::make_shared<Timeline>("context"));
  order.Take(2, 2);
  Event in, out;
  order.timeline()->OnReached(1, [&](absl::Status) {
    in.Set();
    out.Wait();
  });
  std::thread first([&] { order.End(1, absl::OkStatus()); });
  in.Wait();
  order.End(2, absl::InternalError("second"));
  EXPECT_EQ(order.timeline()->value(), 1u);
  out.Set();
  first.join();
  EXPECT_EQ(order.timeline()->value(), 2u);
  EXPECT_EQ(order.timeline()->Outcome(2), absl::InternalError("second"));
}

TEST(InOrderEnd, ThreadsThatEndAtRandomLeaveNoneBehind) {
  constexpr uint64_t kWorks = 2000;
  InOrderEnd order(std::make_shared<Timeline>("context"));
  order.Take(kWorks, kWorks);
  std::vector<uint64_t> numbers(kWorks);
  std::iota(numbers.begin(), numbers.end(), 1);
  std::shuffle(numbers.begin(), numbers.end(), std::mt19937(7));
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = t; i < kWorks; i += 4) {
        order.End(numbers[i], numbers[i] % 2 == 0 ? absl::OkStatus()
                                                  : absl::InternalError("odd"));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(order.timeline()->value(), kWorks);
  EXPECT_EQ(order.timeline()->Outcome(kWorks), absl::OkStatus());
  EXPECT_EQ(order.timeline()->Outcome(kWorks - 1), absl::InternalError("odd"));
}

}  // namespace
}  // namespace weir
