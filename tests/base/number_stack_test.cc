#include "kernels/base/number_stack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint32_t kNumbers = 8;

class NumberStackTest : public ::testing::Test {
 protected:
  std::array<NumberStack::Link, kNumbers> links_ = {};
  const std::function<NumberStack::Link&(uint32_t)> link_ =
      [this](uint32_t number) -> NumberStack::Link& { return links_[number]; };
  NumberStack stack_;
};

TEST_F(NumberStackTest, TheNewestComesFirst) {
  EXPECT_EQ(stack_.Pop(link_), std::nullopt);
  for (const uint32_t number : {3u, 0u, 7u}) stack_.Push(number, link_);
  EXPECT_EQ(stack_.Pop(link_), 7u);
  stack_.Push(5, link_);
  EXPECT_THAT(stack_.TakeAll(link_), ElementsAre(5, 0, 3));
  EXPECT_THAT(stack_.TakeAll(link_), IsEmpty());
  EXPECT_EQ(stack_.Pop(link_), std::nullopt);
}

// Each number has one owner at a time, who finds what the last one left.
TEST_F(NumberStackTest, ANumberHasOneOwner) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 20'000;
  // Written by owners alone, without any order of their own.
  std::array<int, kNumbers> owned = {};
  std::atomic<int> wrong = 0;
  for (uint32_t number = 0; number < kNumbers; ++number) {
    stack_.Push(number, link_);
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        std::vector<uint32_t> numbers;
        if (t == 0 && i % 16 == 0) {
          numbers = stack_.TakeAll(link_);
        } else if (const auto number = stack_.Pop(link_)) {
          numbers = {*number};
        }
        for (const uint32_t number : numbers) {
          if (++owned[number] % 2 != 1) ++wrong;
        }
        for (const uint32_t number : numbers) {
          ++owned[number];
          stack_.Push(number, link_);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(stack_.TakeAll(link_).size(), kNumbers);
}

}  // namespace
}  // namespace weir
