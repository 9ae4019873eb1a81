#include "server/spaces/number_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/base/error_info.h"

namespace weir {
namespace {

struct Thing {
  ~Thing() {
    if (at_end) at_end();
  }
  std::function<void()> at_end;
};
using Table = NumberTable<Thing>;

std::shared_ptr<Thing> Put(Table& table, uint64_t number) {
  auto thing = std::make_shared<Thing>();
  auto claim = table.Take(number);
  EXPECT_TRUE(claim.ok()) << claim.status();
  EXPECT_TRUE(claim->Fill(thing));
  return thing;
}

TEST(NumberTableTest, ZeroIsNoNumber) {
  Table table("tensor");
  const absl::Status status = table.Take(0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "0 is no number of a tensor");
}

TEST(NumberTableTest, AClaimedNumberStandsForNothingAndIsNobodyElses) {
  Table table("tensor");
  auto claim = table.Take(7);
  ASSERT_TRUE(claim.ok()) << claim.status();
  EXPECT_EQ(claim->number(), 7u);
  EXPECT_EQ(Reason(table.Find(7).status()), "TENSOR_NOT_FOUND");
  EXPECT_EQ(Reason(table.Remove(7).status()), "TENSOR_NOT_FOUND");
  const absl::Status taken = table.Take(7).status();
  EXPECT_EQ(taken.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Reason(taken), "NUMBER_IN_USE");
}

TEST(NumberTableTest, AFilledNumberStandsForItsObject) {
  Table table("tensor");
  auto claim = *table.Take(7);
  auto moved = std::move(claim);
  EXPECT_FALSE(claim);
  const auto thing = std::make_shared<Thing>();
  EXPECT_TRUE(moved.Fill(thing));
  EXPECT_FALSE(moved);
  EXPECT_EQ(*table.Find(7), thing);
  EXPECT_EQ(Reason(table.Take(7).status()), "NUMBER_IN_USE");
}

TEST(NumberTableTest, AnUnfilledNumberIsFreeAgain) {
  Table table("tensor");
  { const auto claim = table.Take(7); }
  EXPECT_TRUE(table.Take(7).ok());
}

TEST(NumberTableTest, ARemovedNumberIsFreeAgain) {
  Table table("work");
  const auto thing = Put(table, 7);
  EXPECT_EQ(*table.Remove(7), thing);
  EXPECT_EQ(Reason(table.Find(7).status()), "WORK_NOT_FOUND");
  EXPECT_EQ(table.Remove(7).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(table.Take(7).ok());
}

TEST(NumberTableTest, AnotherObjectUnderTheNumberStays) {
  Table table("work");
  const auto first = Put(table, 7);
  table.RemoveIf(8, first.get());
  ASSERT_TRUE(table.Remove(7).ok());
  const auto second = Put(table, 7);
  table.RemoveIf(7, first.get());
  EXPECT_EQ(*table.Find(7), second);
  table.RemoveIf(7, second.get());
  EXPECT_FALSE(table.Find(7).ok());
}

TEST(NumberTableTest, AClosedTableGivesUpWhatItHasAndTakesNothing) {
  Table table("tensor");
  const auto thing = Put(table, 1);
  auto claim = *table.Take(2);
  const auto given_up = table.Close();
  ASSERT_EQ(given_up.size(), 1u);
  EXPECT_EQ(given_up[0], thing);
  EXPECT_FALSE(claim.Fill(std::make_shared<Thing>()));
  EXPECT_FALSE(table.Find(1).ok());
  EXPECT_FALSE(table.Find(2).ok());
  const absl::Status closed = table.Take(3).status();
  EXPECT_EQ(closed.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Reason(closed), "SPACE_NOT_FOUND");
  EXPECT_TRUE(table.Close().empty());
}

// An object may come back to the table as it ends.
TEST(NumberTableTest, ObjectsEndOutsideTheLock) {
  Table table("tensor");
  int ended = 0;
  const auto put = [&](uint64_t number) {
    auto thing = Put(table, number);
    thing->at_end = [&ended, &table, number] {
      ++ended;
      EXPECT_FALSE(table.Find(number).ok());
    };
    return thing.get();
  };
  put(1);
  ASSERT_TRUE(table.Remove(1).ok());
  EXPECT_EQ(ended, 1);
  table.RemoveIf(2, put(2));
  EXPECT_EQ(ended, 2);
  put(3);
  table.Close();
  EXPECT_EQ(ended, 3);
}

TEST(NumberTableTest, AnObjectIsReplacedByOneThatFollowsIt) {
  Table table("tensor");
  const auto first = Put(table, 1);
  const auto second = std::make_shared<Thing>();
  const auto is_first = [&](const Thing& now) { return &now == first.get(); };
  EXPECT_EQ(table.ReplaceIf(1, is_first, second), first);
  EXPECT_EQ(*table.Find(1), second);
  EXPECT_EQ(table.ReplaceIf(1, is_first, first), nullptr);
  EXPECT_EQ(*table.Find(1), second);
  EXPECT_EQ(table.ReplaceIf(2, is_first, first), nullptr) << "there is none";
  auto claim = table.Take(2);
  EXPECT_EQ(table.ReplaceIf(2, is_first, first), nullptr) << "it is claimed";
}

TEST(NumberTableTest, ThoseThatEndAreTakenAtOnce) {
  Table table("context");
  const auto first = Put(table, 1);
  const auto second = Put(table, 2);
  auto claim = table.Take(3);
  const auto taken =
      table.TakeIf([](uint64_t number, const std::shared_ptr<Thing>&) {
        return number != 1;
      });
  EXPECT_EQ(taken, std::vector<std::shared_ptr<Thing>>{second});
  EXPECT_TRUE(table.Find(1).ok());
  EXPECT_FALSE(table.Find(2).ok());
  EXPECT_TRUE(table.Take(2).ok());
  EXPECT_TRUE(claim->Fill(first)) << "what is claimed stays so";
}

TEST(NumberTableTest, OfThreadsThatWantANumberOneGetsIt) {
  Table table("tensor");
  std::atomic<int> got{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (uint64_t number = 1; number <= 500; ++number) {
        auto claim = table.Take(number);
        if (!claim.ok()) continue;
        EXPECT_TRUE(claim->Fill(std::make_shared<Thing>()));
        ++got;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(got, 500);
  EXPECT_EQ(table.Close().size(), 500u);
}

}  // namespace
}  // namespace weir
