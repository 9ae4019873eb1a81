#include "kernels/base/turn_queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace weir {
namespace {

using Turns = TurnQueue<std::string>;

// Takes them out one after the other, each done before the next.
template <typename Queue>
std::string All(Queue& turns) {
  std::string order;
  while (!turns.empty()) {
    auto [value, owner] = turns.Take();
    order += value + " ";
    turns.Done(owner);
  }
  return order;
}

TEST(TurnQueueTest, OwnersGoInTurn) {
  Turns turns;
  for (const char* item : {"a1", "a2", "a3", "b1", "b2", "c1"}) {
    turns.Push(std::string(item, 1), item);
  }
  EXPECT_EQ(turns.size(), 6u);
  EXPECT_EQ(All(turns), "a1 b1 c1 a2 b2 a3 ");
  EXPECT_EQ(turns.size(), 0u);
}

// Whoever has the fewest out, however long others wait.
TEST(TurnQueueTest, WhoHasNothingOutGoesFirst) {
  Turns turns;
  for (const char* item : {"a1", "a2", "a3"}) turns.Push("a", item);
  const auto first = turns.Take();
  turns.Push("b", "b1");
  turns.Push("b", "b2");
  const auto second = turns.Take();
  EXPECT_EQ(second.first, "b1");
  turns.Push("c", "c1");
  EXPECT_EQ(turns.Take().first, "c1");
  // All have one out: who came first.
  EXPECT_EQ(turns.Take().first, "a2");
  turns.Done(second.second);
  turns.Done(first.second);
  EXPECT_EQ(turns.Take().first, "b2");
  EXPECT_EQ(turns.Take().first, "a3");
}

// One whose last was done goes behind those who have waited meanwhile.
TEST(TurnQueueTest, WhoHadATurnWaitsForTheNext) {
  Turns turns;
  for (const char* item : {"a1", "a2"}) turns.Push("a", item);
  const auto first = turns.Take();
  turns.Push("b", "b1");
  turns.Done(first.second);
  EXPECT_EQ(All(turns), "b1 a2 ");
}

TEST(TurnQueueTest, WhatIsRemovedIsNobodysTurn) {
  Turns turns;
  const Turns::Place a1 = turns.Push("a", "a1", 10);
  const Turns::Place a2 = turns.Push("a", "a2", 20);
  const Turns::Place b1 = turns.Push("b", "b1", 30);
  EXPECT_EQ(turns.owner(a2), "a");
  EXPECT_EQ(turns.Rank(a1), 0u);
  EXPECT_EQ(turns.Rank(a2), 1u);
  EXPECT_EQ(turns.ShareOf("a").items, 2u);
  EXPECT_EQ(turns.ShareOf("a").weight, 30u);
  EXPECT_EQ(turns.Remove(a1), "a1");
  EXPECT_EQ(turns.Rank(a2), 0u);
  EXPECT_EQ(turns.ShareOf("a").items, 1u);
  EXPECT_EQ(turns.ShareOf("a").weight, 20u);
  turns.SetWeight(a2, 5);
  EXPECT_EQ(turns.ShareOf("a").weight, 5u);
  EXPECT_EQ(turns.Remove(a2), "a2");
  EXPECT_EQ(turns.ShareOf("a").items, 0u);
  EXPECT_EQ(turns.Remove(b1), "b1");
  EXPECT_TRUE(turns.empty());
}

TEST(TurnQueueTest, WhatIsFirstIsTheFirstOfItsOwner) {
  Turns turns;
  turns.Push("a", "a1");
  turns.Push("b", "b1");
  turns.PushFirst("b", "b0");
  turns.PushFirst("a", "a0");
  EXPECT_EQ(All(turns), "a0 b0 a1 b1 ");
}

// There may be any number of owners in the course of time.
TEST(TurnQueueTest, KnowsThoseWhoHaveSomethingAlone) {
  Turns turns;
  const Turns::Place waits = turns.Push("waits", "w");
  turns.Push("taken", "t1");
  EXPECT_EQ(turns.owners(), 2u);
  turns.Remove(waits);
  EXPECT_EQ(turns.owners(), 1u);
  const auto taken = turns.Take();
  EXPECT_EQ(turns.owners(), 1u);
  turns.Push("taken", "t2");
  turns.Done(taken.second);
  EXPECT_EQ(turns.owners(), 1u);
  const auto last = turns.Take();
  turns.Done(last.second);
  EXPECT_EQ(turns.owners(), 0u);
}

TEST(TurnQueueTest, NobodyTakesMoreThanTheLimit) {
  Turns turns;
  for (const char* item : {"a1", "a2", "a3"}) turns.Push("a", item);
  const auto first = turns.TakeIf({.taken = 2});
  ASSERT_TRUE(first.has_value());
  EXPECT_TRUE(turns.TakeIf({.taken = 2}).has_value());
  EXPECT_FALSE(turns.TakeIf({.taken = 2}).has_value());
  turns.Push("b", "b1");
  EXPECT_EQ(turns.TakeIf({.taken = 2})->first, "b1");
  turns.Done(first->second);
  EXPECT_EQ(turns.TakeIf({.taken = 2})->first, "a3");
}

TEST(TurnQueueTest, WhatMayNotBeTakenIsPassedOver) {
  Turns turns;
  for (const char* item : {"a1", "a2", "b1"}) {
    turns.Push(std::string(item, 1), item);
  }
  const auto but = [](const char* item) {
    return [item](const std::string& value) { return value != item; };
  };
  const auto first = turns.TakeIf({}, but("a1"));
  EXPECT_EQ(first->first, "a2");
  EXPECT_FALSE(
      turns.TakeIf({}, [](const std::string& value) { return value.empty(); })
          .has_value());
  EXPECT_EQ(turns.TakeIf({}, but("b1"))->first, "a1");
  EXPECT_EQ(turns.Take().first, "b1");
}

TEST(TurnQueueTest, TakesOfTheFirstKinds) {
  TurnQueue<std::string, 3> turns;
  turns.Push("a", "a dear", 1, 2);
  turns.Push("a", "a new", 1, 1);
  turns.Push("b", "b new", 1, 1);
  turns.Push("a", "a quick", 1, 0);
  EXPECT_EQ(turns.ShareOf("a").items, 3u);
  EXPECT_EQ(turns.ShareOf("a").weight, 3u);
  const auto quick = turns.TakeIf({.kinds = 1});
  ASSERT_TRUE(quick.has_value());
  EXPECT_EQ(quick->first, "a quick");
  EXPECT_FALSE(turns.TakeIf({.kinds = 1}).has_value());
  // What an owner has out counts, of whichever kind it is.
  EXPECT_EQ(turns.TakeIf({.kinds = 2})->first, "b new");
  turns.Done(quick->second);
  // In the order in which they came.
  EXPECT_EQ(turns.TakeIf({.kinds = 3})->first, "a dear");
  EXPECT_EQ(turns.TakeIf({.kinds = 3})->first, "a new");
}

TEST(TurnQueueTest, WhatIsOfAnotherKindKeepsItsTurn) {
  TurnQueue<std::string, 2> turns;
  turns.Push("a", "a1", 1, 1);
  auto place = turns.Push("a", "a2", 1, 0);
  turns.Push("a", "a3", 1, 1);
  turns.Push("b", "b1", 1, 1);
  turns.SetKind(place, 1);
  EXPECT_EQ(place.kind, 1u);
  EXPECT_EQ(turns.Rank(place), 1u);
  EXPECT_FALSE(turns.TakeIf({.kinds = 1}).has_value());
  EXPECT_EQ(All(turns), "a1 b1 a2 a3 ");
}

TEST(TurnQueueTest, HoldsWhatCanOnlyBeMoved) {
  TurnQueue<std::unique_ptr<int>> turns;
  turns.Push("a", std::make_unique<int>(7));
  auto [value, owner] = turns.Take();
  EXPECT_EQ(*value, 7);
  turns.Done(owner);
}

}  // namespace
}  // namespace weir
