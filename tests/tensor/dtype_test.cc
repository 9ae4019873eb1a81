#include "kernels/tensor/dtype.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(DTypeTest, NamesAndNumbersGoBothWays) {
  int known = 0;
  for (int64_t number = -1; number < 40; ++number) {
    const auto dtype = DTypeFromOnnx(number);
    if (!dtype.has_value()) continue;
    ++known;
    EXPECT_EQ(static_cast<int64_t>(*dtype), number);
    EXPECT_EQ(DTypeFromKServe(KServeName(*dtype)), dtype);
    EXPECT_GT(SizeOf(*dtype), 0u);
    EXPECT_TRUE(kAllTypes.Has(*dtype)) << DTypeName(*dtype);
  }
  EXPECT_EQ(known, 14);
  EXPECT_EQ(DTypeName(DType::kBfloat16), "bfloat16");
  EXPECT_EQ(KServeName(DType::kString), "BYTES");
  EXPECT_EQ(SizeOf(DType::kInvalid), 0u);
  EXPECT_EQ(DTypeFromKServe("fp32"), std::nullopt);
  EXPECT_FALSE(kAllTypes.Has(DType::kInvalid));
}

// A half's value by its definition.
double HalfValue(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) {
    return mantissa == 0 ? sign * INFINITY : std::nan("");
  }
  return sign * (exponent == 0 ? std::ldexp(mantissa, -24)
                               : std::ldexp(1024 + mantissa, exponent - 25));
}

TEST(Float16Test, EveryHalfToFloatAndBack) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    Float16 half;
    half.bits = static_cast<uint16_t>(bits);
    const double exact = HalfValue(half.bits);
    const float value = half;
    if (std::isnan(exact)) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      EXPECT_TRUE(std::isnan(static_cast<float>(Float16(value)))) << bits;
      continue;
    }
    ASSERT_EQ(static_cast<double>(value), exact) << bits;
    ASSERT_EQ(Float16(value).bits, half.bits);
  }
}

TEST(Float16Test, RoundsToNearestEven) {
  for (uint16_t bits = 0; bits < 0x7BFF; ++bits) {
    const double low = HalfValue(bits);
    const double high = HalfValue(static_cast<uint16_t>(bits + 1));
    const float middle = static_cast<float>((low + high) / 2);
    const uint16_t even =
        bits % 2 == 0 ? bits : static_cast<uint16_t>(bits + 1);
    ASSERT_EQ(Float16(middle).bits, even) << bits;
    ASSERT_EQ(Float16(std::nextafter(middle, 0.0f)).bits, bits);
    ASSERT_EQ(Float16(std::nextafter(middle, 1e9f)).bits, bits + 1);
    ASSERT_EQ(Float16(-middle).bits, even | 0x8000);
  }
  EXPECT_EQ(Float16(65519.996f).bits, 0x7BFF);
  EXPECT_EQ(Float16(65520.0f).bits, 0x7C00);
  EXPECT_EQ(Float16(std::numeric_limits<float>::max()).bits, 0x7C00);
  EXPECT_EQ(Float16(-INFINITY).bits, 0xFC00);
  EXPECT_EQ(Float16(std::numeric_limits<float>::denorm_min()).bits, 0);
}

TEST(Bfloat16Test, RoundsToNearestEven) {
  EXPECT_EQ(Bfloat16(1.0f).bits, 0x3F80);
  EXPECT_EQ(Bfloat16(1.0f + 0x1p-8f).bits, 0x3F80);            // tie
  EXPECT_EQ(Bfloat16(1.0f + 0x1p-7f + 0x1p-8f).bits, 0x3F82);  // tie
  EXPECT_EQ(Bfloat16(1.0f + 0x1p-8f + 0x1p-20f).bits, 0x3F81);
  EXPECT_EQ(Bfloat16(std::numeric_limits<float>::max()).bits, 0x7F80);
  EXPECT_EQ(Bfloat16(-INFINITY).bits, 0xFF80);
  EXPECT_TRUE(std::isnan(static_cast<float>(Bfloat16(std::nanf("")))));
  // A NaN whose upper bits are zero stays one.
  EXPECT_TRUE(std::isnan(
      static_cast<float>(Bfloat16(std::bit_cast<float>(0x7F800001u)))));
}

}  // namespace
}  // namespace weir
