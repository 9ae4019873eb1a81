#include "kernels/ops/parallel_for.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace weir {
namespace {

// Does all in the caller, and keeps how many threads it might have used.
class RecordingTeam : public CpuTeam {
 public:
  int size() const override { return 64; }
  void Run(int64_t n, int64_t grain,
           absl::FunctionRef<void(int64_t, int64_t)> fn) override {
    threads = n / grain;
    fn(0, n);
  }
  int64_t threads = 1;
};

TEST(ParallelForTest, EveryPieceMayHaveAThread) {
  for (const int64_t n : {1, 2, 3, 8, 33}) {
    RecordingTeam team;
    std::vector<int> calls(static_cast<size_t>(n));
    ParallelFor(&team, n, [&](int64_t i) { ++calls[static_cast<size_t>(i)]; });
    EXPECT_EQ(team.threads, n);
    EXPECT_EQ(calls, std::vector<int>(static_cast<size_t>(n), 1));
  }
}

TEST(ParallelForTest, PartsOfARangeCoverIt) {
  for (const int64_t grain : {1, 4}) {
    for (int64_t n = 0; n <= 40; ++n) {
      SCOPED_TRACE(n);
      RecordingTeam team;
      std::vector<int> calls(static_cast<size_t>(n));
      ParallelRange(&team, n, grain, [&](int64_t begin, int64_t end) {
        EXPECT_GE(end - begin, std::min(n, grain));
        for (; begin < end; ++begin) ++calls[static_cast<size_t>(begin)];
      });
      EXPECT_EQ(calls, std::vector<int>(static_cast<size_t>(n), 1));
    }
  }
}

TEST(ParallelForTest, TheErrorOfTheFirstPieceWins) {
  RecordingTeam team;
  int calls = 0;
  const absl::Status status = ParallelForStatus(&team, 4, [&](int64_t i) {
    ++calls;
    return i % 2 == 0 ? absl::OkStatus()
                      : absl::InternalError(std::to_string(i));
  });
  EXPECT_EQ(status, absl::InternalError("1"));
  EXPECT_EQ(calls, 4);
}

// Memory was short: a piece that fails now may not fail again.
TEST(ParallelForTest, AnErrorThatPassesIsTold) {
  RecordingTeam team;
  std::vector<int> calls(4);
  const absl::Status status = ParallelForStatus(&team, 4, [&](int64_t i) {
    const bool again = ++calls[static_cast<size_t>(i)] > 1;
    return i == 0 || again ? absl::OkStatus()
                           : absl::ResourceExhaustedError(std::to_string(i));
  });
  EXPECT_EQ(status, absl::ResourceExhaustedError("1"));
}

}  // namespace
}  // namespace weir
