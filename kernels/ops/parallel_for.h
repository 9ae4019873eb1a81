// Spreads independent pieces of one operator over the CPU device's team. The
// pieces are chosen by shapes alone, never by the number of threads, so that
// results do not depend on it. Once the team says that the operator was given
// up, pieces that have not begun are skipped: what is computed from then on is
// never looked at, yet nothing may address memory by what a piece has written.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "kernels/base/mutex.h"
#include "kernels/device/cpu_team.h"

namespace weir {

// For loops of one piece that may be long: asks, every so many elements,
// whether the operator was given up.
class GiveUpQuestion {
 public:
  explicit GiveUpQuestion(CpuTeam* team) : team_(team) {}

  // Whether to end, before `elements` more. Once it is so it stays so.
  bool Asked(int64_t elements) {
    since_ += elements;
    if (since_ < kBetween) return given_up_;
    since_ = 0;
    given_up_ = given_up_ || (team_ != nullptr && team_->GivenUp());
    return given_up_;
  }

  // For a loop over [0, n) in parts: whether there is one after *end, which
  // then is its end. Each of its elements counts as `weight`. Parts end at
  // multiples of 4096.
  bool NextPart(int64_t n, int64_t* end, int64_t weight = 1) {
    if (*end >= n) return false;
    const int64_t part = std::min(kPart, n - *end);
    if (Asked(part * weight)) return false;
    *end += part;
    return true;
  }

  bool given_up() const { return given_up_; }

 private:
  static constexpr int64_t kBetween = int64_t{1} << 20;
  static constexpr int64_t kPart = int64_t{1} << 16;

  CpuTeam* const team_;
  int64_t since_ = 0;
  bool given_up_ = false;
};

// Calls fn(begin, end) over a partition of [0, n) into parts that are worth a
// thread: at least `grain` long. Only for fn whose result does not depend on
// where the parts end.
template <typename Fn>
void ParallelRange(CpuTeam* team, int64_t n, int64_t grain, const Fn& fn) {
  if (n <= 0) return;
  if (team == nullptr || n <= grain) {
    fn(int64_t{0}, n);
  } else {
    team->Run(n, grain, [&](int64_t begin, int64_t end) {
      const int64_t step = std::max<int64_t>(1, grain);
      // What is left over makes the last part longer.
      while (begin < end && !team->GivenUp()) {
        const int64_t past = end - begin < 2 * step ? end : begin + step;
        fn(begin, past);
        begin = past;
      }
    });
  }
}

// Calls fn(i) for every i in [0, n), each exactly once (at most once if it is
// given up), in any order and thread. Each piece is worth a thread. Without a
// team the caller does it all.
template <typename Fn>
void ParallelFor(CpuTeam* team, int64_t n, const Fn& fn) {
  const auto range = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (team != nullptr && team->GivenUp()) return;
      fn(i);
    }
  };
  if (team == nullptr || n < 2) {
    range(0, n);
  } else {
    team->Run(n, /*grain=*/1, range);
  }
}

// The same for pieces that can fail. All are run; the error of the smallest i
// wins, so that the same input gives the same message.
template <typename Fn>
absl::Status ParallelForStatus(CpuTeam* team, int64_t n, const Fn& fn) {
  Mutex mu;
  int64_t first = n;  // that failed
  absl::Status status;
  ParallelFor(team, n, [&](int64_t i) {
    absl::Status one = fn(i);
    if (one.ok()) return;
    const MutexLock lock(&mu);
    if (i >= first) return;
    first = i;
    status = std::move(one);
  });
  return status;
}

// Pieces of about `work_per_piece` units for `total` units, at most `limit`.
inline int64_t PieceCount(int64_t total, int64_t work_per_piece,
                          int64_t limit) {
  const int64_t pieces = total / work_per_piece;
  return pieces < 1 ? 1 : pieces > limit ? limit : pieces;
}

}  // namespace weir
