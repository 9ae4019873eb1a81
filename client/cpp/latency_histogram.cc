#include "client/cpp/latency_histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace weir::client {
namespace {

// Below 2^(kBits + 1) each value has a bucket; from there on each power of two
// has 2^kBits.
constexpr int kBits = 8;
constexpr size_t kOfAPower = size_t{1} << kBits;
// Up to the largest signed value.
constexpr size_t kBuckets = (63 - kBits + 1) * kOfAPower;

}  // namespace

LatencyHistogram::LatencyHistogram() : counts_(kBuckets) {}

size_t LatencyHistogram::BucketOf(uint64_t ns) {
  const int shift =
      std::max(0, static_cast<int>(std::bit_width(ns)) - kBits - 1);
  return static_cast<size_t>(shift) * kOfAPower +
         static_cast<size_t>(ns >> shift);
}

LatencyHistogram::Duration LatencyHistogram::Middle(size_t bucket) const {
  const size_t shift = bucket < kOfAPower ? 0 : bucket / kOfAPower - 1;
  const uint64_t low = static_cast<uint64_t>(bucket - shift * kOfAPower)
                       << shift;
  const uint64_t half = (uint64_t{1} << shift) / 2;
  return std::clamp(Duration(static_cast<int64_t>(low + half)), least_, most_);
}

void LatencyHistogram::Add(Duration latency) {
  latency = std::max(latency, Duration::zero());
  ++counts_[BucketOf(static_cast<uint64_t>(latency.count()))];
  ++count_;
  least_ = std::min(least_, latency);
  most_ = std::max(most_, latency);
}

void LatencyHistogram::Add(const LatencyHistogram& other) {
  for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
  count_ += other.count_;
  least_ = std::min(least_, other.least_);
  most_ = std::max(most_, other.most_);
}

LatencyHistogram::Duration LatencyHistogram::Quantile(double q) const {
  if (count_ == 0) return Duration::zero();
  if (q <= 0) return least_;
  if (q >= 1) return most_;
  // The double before `q`: a product that was rounded up is not the next rank.
  const auto rank = static_cast<int64_t>(
      std::ceil(std::nextafter(q, 0.) * static_cast<double>(count_)));
  int64_t before = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    before += counts_[i];
    if (before >= rank) return Middle(i);
  }
  return most_;
}

}  // namespace weir::client
