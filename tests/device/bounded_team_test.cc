// A part of a CPU device's team.
#include "kernels/device/bounded_team.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace weir {
namespace {

// What it was asked for.
class AskedTeam final : public CpuTeam {
 public:
  int size() const override { return 8; }
  void Run(int64_t n, int64_t grain,
           absl::FunctionRef<void(int64_t, int64_t)> fn) override {
    grain_ = grain;
    fn(0, n);
  }
  bool GivenUp() override { return given_up; }

  // As WorkerPool: no more threads than parts of `grain`.
  int64_t Threads(int64_t n) const {
    return std::min<int64_t>(size(), std::max<int64_t>(1, n / grain_));
  }

  bool given_up = false;

 private:
  int64_t grain_ = 0;
};

TEST(BoundedTeamTest, UsesNoMoreThreadsThanItMay) {
  AskedTeam team;
  for (int threads = 1; threads <= 10; ++threads) {
    BoundedTeam some(&team, threads);
    EXPECT_EQ(some.size(), std::min(threads, 8));
    for (const int64_t n : {1, 2, 7, 8, 9, 100, 1001}) {
      std::vector<bool> seen(static_cast<size_t>(n));
      some.Run(n, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          seen[static_cast<size_t>(i)] = true;
      });
      EXPECT_EQ(std::count(seen.begin(), seen.end(), true), n);
      EXPECT_LE(team.Threads(n), threads) << n;
      EXPECT_GE(team.Threads(n), std::min<int64_t>({threads, 8, n}) / 2) << n;
    }
  }
}

TEST(BoundedTeamTest, KeepsALargerGrainAndSaysWhenItIsGivenUp) {
  AskedTeam team;
  BoundedTeam some(&team, 4);
  some.Run(100, 60, [](int64_t, int64_t) {});
  EXPECT_EQ(team.Threads(100), 1);
  EXPECT_FALSE(some.GivenUp());
  team.given_up = true;
  EXPECT_TRUE(some.GivenUp());
}

}  // namespace
}  // namespace weir
