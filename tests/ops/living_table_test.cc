#include "kernels/ops/living_table.h"

#include <gtest/gtest.h>

#include <memory>

namespace weir {
namespace {

// Counts those that live.
struct Made {
  explicit Made(int its_number) : number(its_number) { ++living; }
  Made(Made&& other) noexcept : number(other.number) { ++living; }
  ~Made() { --living; }
  int number;
  static inline int living = 0;
};

TEST(LivingTableTest, WhatIsHeldIsSharedAndWhatIsNotIsForgotten) {
  auto& table = LivingTable<Made>::Get();
  EXPECT_EQ(table.Find({1, 2}), nullptr);
  std::shared_ptr<const Made> first = table.Share({1, 2}, Made(1));
  EXPECT_EQ(table.Find({1, 2}), first);
  EXPECT_EQ(table.Find({2, 1}), nullptr);
  // Who was as quick gets the other's.
  std::shared_ptr<const Made> second = table.Share({1, 2}, Made(2));
  EXPECT_EQ(second, first);
  EXPECT_EQ(table.Find({1, 2}), first);
  EXPECT_EQ(Made::living, 1);
  const std::shared_ptr<const Made> other = table.Share({2, 1}, Made(3));
  EXPECT_NE(other, first);
  first.reset();
  EXPECT_EQ(table.Find({1, 2}), second);
  second.reset();
  EXPECT_EQ(Made::living, 1);
  EXPECT_EQ(table.Find({1, 2}), nullptr);
  EXPECT_EQ(table.Share({1, 2}, Made(4))->number, 4);
}

}  // namespace
}  // namespace weir
