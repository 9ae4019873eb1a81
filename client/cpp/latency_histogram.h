// How often each latency was met, in fixed memory however often that was: each
// power of two of nanoseconds has 256 buckets of one width, the layout of
// HdrHistogram, and what is in a bucket counts as its middle. So what it tells
// is wrong by at most 0.2 %. For one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace weir::client {

class LatencyHistogram {
 public:
  using Duration = std::chrono::nanoseconds;

  LatencyHistogram();

  // Less than nothing counts as nothing.
  void Add(Duration latency);
  void Add(const LatencyHistogram& other);

  int64_t count() const { return count_; }
  // What a share `q`, from 0 to 1, of all do not exceed, by the nearest rank,
  // q * count() rounded up, as HdrHistogram has it: 0 is the least and 1 the
  // most, both exactly. 0 if there are none.
  Duration Quantile(double q) const;

  // visit(latency, count) for each bucket that is not empty, from the least.
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    for (size_t i = 0; i < counts_.size(); ++i) {
      if (counts_[i] != 0) visit(Middle(i), counts_[i]);
    }
  }

 private:
  static size_t BucketOf(uint64_t ns);
  // Within what was met.
  Duration Middle(size_t bucket) const;

  std::vector<int64_t> counts_;
  int64_t count_ = 0;
  Duration least_ = Duration::max();
  Duration most_ = Duration::zero();
};

}  // namespace weir::client
