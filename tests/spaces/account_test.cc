#include "server/spaces/account.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/base/error_info.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

Amounts Of(Holding what, uint64_t amount) {
  Amounts amounts;
  amounts[what] = amount;
  return amounts;
}

std::shared_ptr<Account> OfTensors(std::string whose, uint64_t limit,
                                   std::shared_ptr<Account> parent = nullptr) {
  return Account::Create(std::move(whose), Of(Holding::kTensors, limit),
                         std::move(parent));
}

TEST(AccountTest, AShareCountsAsLongAsSomebodyHasIt) {
  const auto account = OfTensors("the space", 5);
  {
    auto share = account->Take(Holding::kTensors, 3);
    ASSERT_TRUE(share.ok()) << share.status();
    EXPECT_EQ(share->amount(), 3u);
    EXPECT_EQ(account->held(Holding::kTensors), 3u);
    const Account::Share moved = *std::move(share);
    EXPECT_EQ(account->held(Holding::kTensors), 3u);
    EXPECT_EQ(account->held()[Holding::kTensors], 3u);
    EXPECT_EQ(account->held()[Holding::kWorks], 0u);
  }
  EXPECT_EQ(account->held(Holding::kTensors), 0u);
}

TEST(AccountTest, AShareThatTakesAnothersPlaceGivesBackItsOwn) {
  const auto account = OfTensors("the space", 5);
  auto share = *account->Take(Holding::kTensors, 3);
  share = *account->Take(Holding::kTensors, 2);
  EXPECT_EQ(account->held(Holding::kTensors), 2u);
  share = {};
  EXPECT_EQ(account->held(Holding::kTensors), 0u);
}

TEST(AccountTest, MoreThanTheLimitIsRefusedAndSaysWhoseAndHowMuch) {
  const auto account = OfTensors("identity \"x\"", 5);
  const auto most = account->Take(Holding::kTensors, 5);
  ASSERT_TRUE(most.ok()) << most.status();
  const absl::Status full = account->Take(Holding::kTensors).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Reason(full), "SPACE_QUOTA");
  EXPECT_THAT(std::string(full.message()),
              HasSubstr("identity \"x\" has 5 of at most 5 tensors"));
  EXPECT_THAT(Metadata(full),
              ElementsAre(Pair("held", "5"), Pair("limit", "5")));
  EXPECT_TRUE(RetryAfter(full).has_value());
  EXPECT_EQ(account->held(Holding::kTensors), 5u);
  // Another kind has a bound of its own, and none of it is allowed here.
  EXPECT_FALSE(account->Take(Holding::kWorks).ok());
}

TEST(AccountTest, WhatCanNeverFitIsNotToBeTriedAgain) {
  const auto account = OfTensors("the space", 5);
  for (const uint64_t amount :
       {uint64_t{6}, std::numeric_limits<uint64_t>::max()}) {
    const auto one = account->Take(Holding::kTensors);
    const absl::Status never =
        account->Take(Holding::kTensors, amount).status();
    EXPECT_EQ(Reason(never), "SPACE_QUOTA");
    EXPECT_FALSE(RetryAfter(never).has_value());
    EXPECT_EQ(account->held(Holding::kTensors), 1u);
  }
}

TEST(AccountTest, WhatAnAccountHoldsItsParentsHold) {
  const auto server = OfTensors("the server", 10);
  const auto identity = OfTensors("the identity", 10, server);
  const auto a = OfTensors("a", 10, identity);
  const auto b = OfTensors("b", 10, identity);
  {
    const auto of_a = a->Take(Holding::kTensors, 2);
    const auto of_b = b->Take(Holding::kTensors, 3);
    EXPECT_EQ(a->held(Holding::kTensors), 2u);
    EXPECT_EQ(b->held(Holding::kTensors), 3u);
    EXPECT_EQ(identity->held(Holding::kTensors), 5u);
    EXPECT_EQ(server->held(Holding::kTensors), 5u);
  }
  EXPECT_EQ(identity->held(Holding::kTensors), 0u);
  EXPECT_EQ(server->held(Holding::kTensors), 0u);
}

TEST(AccountTest, WhatAParentRefusesIsTakenNowhere) {
  const auto server = OfTensors("the server", 4);
  const auto identity = OfTensors("the identity", 10, server);
  const auto space = OfTensors("the space", 10, identity);
  const auto share = space->Take(Holding::kTensors, 3);
  const absl::Status full = space->Take(Holding::kTensors, 2).status();
  EXPECT_THAT(std::string(full.message()), HasSubstr("the server has 3"));
  for (const auto& each : {server, identity, space}) {
    EXPECT_EQ(each->held(Holding::kTensors), 3u);
  }
}

TEST(AccountTest, AShareKeepsItsAccount) {
  auto account = OfTensors("the space", 1);
  const std::weak_ptr<Account> seen = account;
  {
    const auto share = account->Take(Holding::kTensors);
    account = nullptr;
    EXPECT_FALSE(seen.expired());
  }
  EXPECT_TRUE(seen.expired());
}

TEST(AccountTest, ThreadsNeverHaveMoreThanTheLimitTogether) {
  constexpr uint64_t kLimit = 3;
  const auto server = OfTensors("the server", kLimit);
  std::atomic<uint64_t> most{0};
  std::atomic<uint64_t> here{0};
  std::atomic<uint64_t> taken{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, space = OfTensors("a space", 10, server)] {
      for (int k = 0; k < 5000; ++k) {
        const auto share = space->Take(Holding::kTensors);
        if (!share.ok()) continue;
        const uint64_t now = ++here;
        uint64_t before = most;
        while (before < now && !most.compare_exchange_weak(before, now)) {
        }
        ++taken;
        --here;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(taken, 0u);
  EXPECT_LE(most, kLimit);
  EXPECT_EQ(server->held(Holding::kTensors), 0u);
}

}  // namespace
}  // namespace weir
