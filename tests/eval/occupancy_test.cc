// A context is active in at most one handler.
#include <atomic>
#include <barrier>
#include <optional>
#include <thread>
#include <vector>

#include "kernels/base/error_info.h"
#include "tests/base/event.h"
#include "tests/eval/eval_fixture.h"

namespace weir {
namespace {

class ContextOccupancy : public EvalTest {};
WEIR_EVAL_ON_EVERY_DEVICE(ContextOccupancy);

TEST_P(ContextOccupancy, RefusesASecondHandlerAndNamesTheOwner) {
  auto context = NewContext();
  const HandlerId first = NewHandlerId();
  Activation activation = Enter(context, first);
  auto second = context->Enter(NewHandlerId());
  ASSERT_EQ(second.status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Reason(second.status()), "CONTEXT_BUSY");
  const ReasonMetadata metadata = Metadata(second.status());
  ASSERT_EQ(metadata.size(), 2u);
  EXPECT_EQ(metadata[1].second, std::to_string(first));
  EXPECT_EQ(context->refused_entries(), 1u);
}

TEST_P(ContextOccupancy, CountsReentryOfTheSameHandler) {
  auto context = NewContext();
  const HandlerId handler = NewHandlerId();
  Activation outer = Enter(context, handler);
  { Activation inner = Enter(context, handler); }
  EXPECT_EQ(context->owner(), handler) << "the outer activation still holds";
  EXPECT_FALSE(context->Enter(NewHandlerId()).ok());
  outer.Leave();
  EXPECT_EQ(context->owner(), 0u);
  EXPECT_TRUE(context->Enter(NewHandlerId()).ok());
}

TEST_P(ContextOccupancy, QueuedHandlersEnterInOrder) {
  auto context = NewContext();
  Activation holder = Enter(context);
  std::vector<int> order;
  std::vector<Activation> held;
  const HandlerId handlers[] = {NewHandlerId(), NewHandlerId(), NewHandlerId()};
  for (int i = 0; i < 3; ++i) {
    context->EnterQueued(handlers[i], kNoDeadline,
                         [&, i](absl::StatusOr<Activation> entered) {
                           ASSERT_TRUE(entered.ok());
                           order.push_back(i);
                           held.push_back(*std::move(entered));
                         });
  }
  EXPECT_TRUE(order.empty());
  holder.Leave();
  ASSERT_EQ(order, std::vector<int>({0}));
  EXPECT_EQ(context->owner(), handlers[0]);
  EXPECT_TRUE(absl::IsAborted(context->Enter(NewHandlerId()).status()));
  Activation next = std::move(held[0]);
  next.Leave();
  ASSERT_EQ(order, std::vector<int>({0, 1}));
  next = std::move(held[1]);
  next.Leave();
  EXPECT_EQ(order, std::vector<int>({0, 1, 2}));
}

TEST_P(ContextOccupancy, QueuedHandlerGivesUpAtItsDeadline) {
  auto context = NewContext();
  Activation holder = Enter(context);
  WorkWaiter unused;
  Mutex mu;
  CondVar changed;
  absl::Status status;
  bool called = false;
  context->EnterQueued(NewHandlerId(), NowNanos() + 1'000'000,
                       [&](absl::StatusOr<Activation> entered) {
                         MutexLock lock(&mu);
                         status = entered.status();
                         called = true;
                         changed.NotifyAll();
                       });
  MutexLock lock(&mu);
  while (!called) changed.Wait(&mu);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_P(ContextOccupancy, EachEntryOfAHandlerHasItsOwnDeadline) {
  auto context = NewContext();
  Activation holder = Enter(context);
  const HandlerId handler = NewHandlerId();
  std::optional<absl::StatusOr<Activation>> patient;
  const auto entry = context->EnterQueued(
      handler, kNoDeadline, [&](absl::StatusOr<Activation> entered) {
        patient = std::move(entered);
      });
  EXPECT_NE(entry, 0u);
  Event late;
  context->EnterQueued(handler, NowNanos(),
                       [&](absl::StatusOr<Activation> entered) {
                         EXPECT_TRUE(absl::IsDeadlineExceeded(entered.status()))
                             << entered.status();
                         late.Set();
                       });
  late.Wait();
  EXPECT_FALSE(patient.has_value());
  holder.Leave();
  ASSERT_TRUE(patient.has_value());
  EXPECT_TRUE(patient->ok()) << patient->status();
}

TEST_P(ContextOccupancy, AnEntryThatIsCancelledNeverEnters) {
  auto context = NewContext();
  Activation holder = Enter(context);
  std::vector<int> entered;
  Occupancy::EntryId entries[2];
  for (int i = 0; i < 2; ++i) {
    entries[i] = context->EnterQueued(
        NewHandlerId(), kNoDeadline,
        [&, i](absl::StatusOr<Activation>) { entered.push_back(i); });
  }
  EXPECT_TRUE(context->CancelEntry(entries[0]));
  EXPECT_FALSE(context->CancelEntry(entries[0])) << "cancelled twice";
  holder.Leave();
  EXPECT_EQ(entered, std::vector<int>({1}));
  EXPECT_FALSE(context->CancelEntry(entries[1])) << "it has entered";
  EXPECT_EQ(context->owner(), 0u);
}

TEST_P(ContextOccupancy, ExactlyOneOfManyThreadsWins) {
  constexpr int kRounds = 10'000;
  auto context = NewContext();
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  std::atomic<int> entered{0};
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      const HandlerId handler = NewHandlerId();
      for (int i = 0; i < kRounds; ++i) {
        auto activation = context->Enter(handler);
        if (!activation.ok()) {
          ++refused;
          continue;
        }
        const int now = ++inside;
        if (now > most) most = now;
        --inside;
        ++entered;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(most, 1);
  EXPECT_EQ(entered + refused, 4 * kRounds);
  EXPECT_GT(entered, 0);
  EXPECT_EQ(context->owner(), 0u);
}

TEST_P(ContextOccupancy, OfTwoHandlersOneWinsAndTheOtherIsRefused) {
  constexpr int kRounds = 10'000;
  auto context = NewContext();
  std::barrier<> both(2);
  int won[2] = {};
  int lost[2] = {};
  const auto contend = [&](int who) {
    const HandlerId handler = NewHandlerId();
    for (int i = 0; i < kRounds; ++i) {
      both.arrive_and_wait();
      auto activation = context->Enter(handler);
      if (activation.ok()) {
        ++won[who];
      } else if (absl::IsAborted(activation.status()) &&
                 Reason(activation.status()) == "CONTEXT_BUSY") {
        ++lost[who];
      }
      both.arrive_and_wait();  // the other has tried
    }
  };
  std::thread other([&] { contend(1); });
  contend(0);
  other.join();
  EXPECT_EQ(won[0] + won[1], kRounds);
  EXPECT_EQ(lost[0] + lost[1], kRounds);
  EXPECT_EQ(context->refused_entries(), static_cast<uint64_t>(kRounds));
  EXPECT_EQ(context->owner(), 0u);
}

// As a session's commands are.
TEST_P(ContextOccupancy, AHandlerMayBeOnSeveralThreads) {
  constexpr int kRounds = 5'000;
  auto context = NewContext();
  const HandlerId handlers[] = {NewHandlerId(), NewHandlerId()};
  std::atomic<int> inside[2] = {};
  std::atomic<int> both{0};
  std::atomic<int> entered{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, who = t % 2] {
      for (int i = 0; i < kRounds; ++i) {
        auto outer = context->Enter(handlers[who]);
        if (!outer.ok()) continue;
        ++inside[who];
        both += inside[1 - who] > 0;
        // It is inside: it may enter again whatever others of it do.
        auto inner = context->Enter(handlers[who]);
        if (inner.ok()) ++entered;
        outer->Leave();
        both += inside[1 - who] > 0;
        --inside[who];
        if (inner.ok()) inner->Leave();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(both, 0);
  EXPECT_GT(entered, 0);
  EXPECT_EQ(context->owner(), 0u);
}

TEST(OccupancyTest, AnEntryThatIsOverHasNoTimer) {
  TimerQueue timers;
  const auto occupancy = Occupancy::Create(/*context=*/1, &timers);
  ASSERT_TRUE(occupancy->Enter(NewHandlerId()).ok());
  const Nanos late = NowNanos() + absl::ToInt64Nanoseconds(absl::Hours(1));
  int entered = 0;
  const auto queue = [&] {
    return occupancy->EnterQueued(NewHandlerId(), late, [&](absl::Status s) {
      EXPECT_TRUE(s.ok()) << s;
      ++entered;
    });
  };
  const Occupancy::EntryId cancelled = queue();
  queue();
  EXPECT_EQ(timers.pending(), 2u);
  EXPECT_TRUE(occupancy->CancelEntry(cancelled));
  EXPECT_EQ(timers.pending(), 1u);
  occupancy->Leave();
  EXPECT_EQ(entered, 1);
  EXPECT_EQ(timers.pending(), 0u);
  occupancy->Leave();
}

}  // namespace
}  // namespace weir
