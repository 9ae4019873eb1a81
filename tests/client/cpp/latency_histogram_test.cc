#include "client/cpp/latency_histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

namespace weir::client {
namespace {

using Duration = LatencyHistogram::Duration;

TEST(LatencyHistogramTest, TellsNothingOfNothing) {
  const LatencyHistogram none;
  EXPECT_EQ(none.count(), 0);
  for (const double q : {0., .5, 1.}) EXPECT_EQ(none.Quantile(q).count(), 0);
  none.ForEach([](Duration, int64_t) { ADD_FAILURE(); });
}

// Of sorted values, the same as the nearest rank, within 0.2 %.
TEST(LatencyHistogramTest, AQuantileIsThatShareOfThem) {
  std::mt19937_64 random(1);
  std::lognormal_distribution<double> of_calls(13, 1.5);  // about 440 us
  std::vector<int64_t> values(100'001);
  LatencyHistogram histogram;
  for (int64_t& value : values) {
    value = static_cast<int64_t>(of_calls(random));
    histogram.Add(Duration(value));
  }
  std::sort(values.begin(), values.end());
  EXPECT_EQ(histogram.count(), 100'001);
  for (const double q : {.001, .1, .5, .9, .99, .999, .9999}) {
    const auto rank =
        static_cast<size_t>(std::ceil(q * static_cast<double>(values.size())));
    const auto exact = static_cast<double>(values[rank - 1]);
    EXPECT_NEAR(static_cast<double>(histogram.Quantile(q).count()), exact,
                .002 * exact)
        << q;
  }
  EXPECT_EQ(histogram.Quantile(0).count(), values.front());
  EXPECT_EQ(histogram.Quantile(1).count(), values.back());
}

// At least that share of them are no more: of few, a high quantile is the most.
TEST(LatencyHistogramTest, OfFewTheRankIsRoundedUp) {
  LatencyHistogram histogram;
  for (int i = 1; i <= 52; ++i) histogram.Add(Duration(i));
  EXPECT_EQ(histogram.Quantile(.001).count(), 1);
  EXPECT_EQ(histogram.Quantile(.5).count(), 26);
  EXPECT_EQ(histogram.Quantile(.51).count(), 27);
  EXPECT_EQ(histogram.Quantile(.9).count(), 47);
  EXPECT_EQ(histogram.Quantile(.98).count(), 51);
  EXPECT_EQ(histogram.Quantile(.99).count(), 52);
  EXPECT_EQ(histogram.Quantile(.999).count(), 52);
}

// A share that has a rank exactly is that rank, however it was rounded: .07 of
// 100 is a little more than 7 in doubles.
TEST(LatencyHistogramTest, AWholeRankIsNotRoundedUp) {
  LatencyHistogram histogram;
  for (int i = 1; i <= 100; ++i) histogram.Add(Duration(i));
  for (int i = 1; i < 100; ++i) {
    EXPECT_EQ(histogram.Quantile(i / 100.).count(), i);
  }
}

// Each by itself, about every power of two and at both ends of what there is.
TEST(LatencyHistogramTest, EveryValueIsTold) {
  std::vector<int64_t> values = {0, std::numeric_limits<int64_t>::max()};
  for (int power = 0; power < 63; ++power) {
    const int64_t at = int64_t{1} << power;
    values.insert(values.end(), {at - 1, at, at + at / 3, at + at / 257});
  }
  for (const int64_t value : values) {
    // With one on each side, so that neither end tells it.
    LatencyHistogram histogram;
    histogram.Add(Duration(0));
    histogram.Add(Duration(value));
    histogram.Add(Duration::max());
    const auto exact = static_cast<double>(value);
    const auto told = static_cast<double>(histogram.Quantile(.5).count());
    EXPECT_NEAR(told, exact, exact / 512) << value;
    EXPECT_TRUE(value >= 512 || told == exact) << value;
  }
}

TEST(LatencyHistogramTest, NoQuantileIsBeyondWhatWasMet) {
  LatencyHistogram histogram;
  for (int i = 0; i < 3; ++i) histogram.Add(Duration(1'000'001));
  for (const double q : {0., .3, .5, .99, 1.}) {
    EXPECT_EQ(histogram.Quantile(q).count(), 1'000'001) << q;
  }
}

// Two clocks may differ.
TEST(LatencyHistogramTest, LessThanNothingIsNothing) {
  LatencyHistogram histogram;
  histogram.Add(Duration(-5));
  EXPECT_EQ(histogram.count(), 1);
  EXPECT_EQ(histogram.Quantile(1).count(), 0);
}

TEST(LatencyHistogramTest, AddsUp) {
  LatencyHistogram low;
  LatencyHistogram high;
  for (int i = 1; i <= 100; ++i) low.Add(Duration(i));
  for (int i = 0; i < 300; ++i) high.Add(Duration(500));
  LatencyHistogram all;
  all.Add(low);
  all.Add(high);
  all.Add(LatencyHistogram());
  EXPECT_EQ(all.count(), 400);
  EXPECT_EQ(all.Quantile(0).count(), 1);
  EXPECT_EQ(all.Quantile(.2).count(), 80);
  EXPECT_EQ(all.Quantile(.3).count(), 500);
  EXPECT_EQ(all.Quantile(1).count(), 500);
}

TEST(LatencyHistogramTest, VisitsWhatItHolds) {
  LatencyHistogram histogram;
  for (const int64_t value : {300, 7, 300, 1'000'000}) {
    histogram.Add(Duration(value));
  }
  std::vector<std::pair<int64_t, int64_t>> seen;
  histogram.ForEach([&seen](Duration latency, int64_t count) {
    seen.emplace_back(latency.count(), count);
  });
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[0], std::make_pair(int64_t{7}, int64_t{1}));
  EXPECT_EQ(seen[1], std::make_pair(int64_t{300}, int64_t{2}));
  EXPECT_NEAR(static_cast<double>(seen[2].first), 1e6, 2e3);
  EXPECT_EQ(seen[2].second, 1);
}

}  // namespace
}  // namespace weir::client
