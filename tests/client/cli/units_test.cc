#include "client/cli/units.h"

#include <gtest/gtest.h>

#include <limits>

namespace weir::client {
namespace {

TEST(UnitsTest, TimesHaveThreeDigits) {
  EXPECT_EQ(DurationText(0), "0 ns");
  EXPECT_EQ(DurationText(999), "999 ns");
  EXPECT_EQ(DurationText(1000), "1 us");
  EXPECT_EQ(DurationText(784'625), "785 us");
  EXPECT_EQ(DurationText(999'499), "999 us");
  EXPECT_EQ(DurationText(999'600), "1 ms");
  EXPECT_EQ(DurationText(7'976'836), "7.98 ms");
  EXPECT_EQ(DurationText(12'000'000'000), "12 s");
  EXPECT_EQ(DurationText(86'400'000'000'000), "86400 s");
  EXPECT_EQ(DurationText(-1500), "-1.5 us");
}

TEST(UnitsTest, BytesHavePowersOf1024) {
  EXPECT_EQ(ByteText(0), "0 B");
  EXPECT_EQ(ByteText(1023), "1023 B");
  EXPECT_EQ(ByteText(1024), "1 KiB");
  EXPECT_EQ(ByteText(3 << 19), "1.5 MiB");
  EXPECT_EQ(ByteText(1 << 30), "1 GiB");
  EXPECT_EQ(ByteText((uint64_t{1} << 30) + 1), "1 GiB");
  EXPECT_EQ(ByteText(std::numeric_limits<uint64_t>::max()), "16777216 TiB");
}

TEST(UnitsTest, PointsInTimeAreOfUtc) {
  EXPECT_EQ(TimeText(0), "1970-01-01T00:00:00.000000Z");
  EXPECT_EQ(TimeText(1'795'788'841'500'089'000), "2026-11-27T14:14:01.500089Z");
}

}  // namespace
}  // namespace weir::client
