// A part of a CPU device's team: no more than so many of its threads work on
// one operator. Lives as long as a run; threads as CpuTeam.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "kernels/device/cpu_team.h"

namespace weir {

class BoundedTeam final : public CpuTeam {
 public:
  // `team` outlives it; `threads` is at least 1.
  BoundedTeam(CpuTeam* team, int threads) : team_(*team), threads_(threads) {}

  int size() const override { return std::min(team_.size(), threads_); }
  void Run(int64_t n, int64_t grain,
           absl::FunctionRef<void(int64_t, int64_t)> fn) override {
    // The team has no more threads than parts of at least `grain`.
    if (threads_ < team_.size()) {
      grain = std::max(grain, n / threads_ + (n % threads_ != 0 ? 1 : 0));
    }
    team_.Run(n, grain, fn);
  }
  bool GivenUp() override { return team_.GivenUp(); }

 private:
  CpuTeam& team_;
  const int threads_;
};

}  // namespace weir
