#include "kernels/base/philox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace weir {
namespace {

using ::testing::ElementsAre;

// Known answers of Random123 (kat_vectors, philox4x32 with 10 rounds).
TEST(PhiloxTest, ZeroKeyAndCounter) {
  EXPECT_THAT(Philox(0, 0, 0).word,
              ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
}

TEST(PhiloxTest, AllBitsSet) {
  const uint64_t ones = ~uint64_t{0};
  EXPECT_THAT(Philox(ones, ones, ones).word,
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
}

TEST(PhiloxTest, DigitsOfPiShowTheOrderOfCounterAndKey) {
  // Counter words 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0.
  const uint64_t index = 0x85a308d3243f6a88;
  const uint64_t stream = 0x0370734413198a2e;
  const uint64_t seed = 0x299f31d0a4093822;
  EXPECT_THAT(Philox(seed, stream, index).word,
              ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(PhiloxTest, EveryArgumentMatters) {
  std::set<uint32_t> seen;
  for (uint64_t i = 0; i < 3; ++i) {
    seen.insert(Philox(i, 0, 0).word[0]);
    seen.insert(Philox(0, i, 0).word[0]);
    seen.insert(Philox(0, 0, i).word[0]);
    seen.insert(Philox(i << 32, 0, 0).word[0]);
    seen.insert(Philox(0, i << 32, 0).word[0]);
    seen.insert(Philox(0, 0, i << 32).word[0]);
  }
  EXPECT_EQ(seen.size(), 13u);  // all zero six times, twelve others
}

TEST(PhiloxTest, UniformStaysBelowOne) {
  EXPECT_EQ(PhiloxUniform(0), 0.0f);
  EXPECT_LT(PhiloxUniform(0xffffffff), 1.0f);
  EXPECT_EQ(PhiloxUniform(0x80000000), 0.5f);
}

}  // namespace
}  // namespace weir
