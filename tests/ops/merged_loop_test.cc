// Dims that merge, and every element where it was before.
#include "kernels/ops/merged_loop.h"

#include <gmock/gmock.h>

#include <vector>

#include "kernels/base/saturating.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

MergedLoop Merge(const Dims& dims, const std::vector<Dims>& strides) {
  MergedLoop loop(strides.size());
  for (size_t d = 0; d < dims.size(); ++d) {
    Dims of_each;
    for (const Dims& each : strides) of_each.push_back(each[d]);
    loop.Append(dims[d], of_each);
  }
  return loop;
}

// The element of one operand at each step of a loop.
std::vector<int64_t> Elements(const Dims& dims, const Dims& strides) {
  std::vector<int64_t> found = {0};
  for (size_t d = 0; d < dims.size(); ++d) {
    std::vector<int64_t> next;
    for (int64_t from : found) {
      for (int64_t i = 0; i < dims[d]; ++i) {
        next.push_back(from + i * strides[d]);
      }
    }
    found = next;
  }
  return found;
}

TEST(MergedLoopTest, DenseOperandsAreOneDim) {
  const MergedLoop loop = Merge({2, 3, 4}, {{12, 4, 1}, {12, 4, 1}});
  EXPECT_THAT(loop.dims, ElementsAre(24));
  EXPECT_THAT(loop.strides[0], ElementsAre(1));
  EXPECT_THAT(loop.strides[1], ElementsAre(1));
}

TEST(MergedLoopTest, OneOperandKeepsThemApart) {
  // The second repeats along the last axis.
  const MergedLoop loop = Merge({2, 3, 4}, {{12, 4, 1}, {3, 1, 0}});
  EXPECT_THAT(loop.dims, ElementsAre(6, 4));
  EXPECT_THAT(loop.strides[0], ElementsAre(4, 1));
  EXPECT_THAT(loop.strides[1], ElementsAre(1, 0));
}

TEST(MergedLoopTest, DimsBesideOneOfZeroMayBeLarge) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  const MergedLoop loop = Merge({kHuge, kHuge, 0}, {{0, 0, 1}});
  EXPECT_THAT(loop.dims, ElementsAre(0));
  EXPECT_THAT(Merge({kHuge, kHuge}, {{0, 0}}).dims, ElementsAre(kSaturated));
}

TEST(MergedLoopTest, ProductsEndAtTheMostThat63BitsCount) {
  constexpr int64_t kHuge = int64_t{1} << 40;
  EXPECT_EQ(SaturatingProduct({}), 1);
  EXPECT_EQ(SaturatingProduct({2, 3, 4}), 24);
  EXPECT_EQ(SaturatingProduct({kHuge, kHuge}), kSaturated);
  EXPECT_EQ(SaturatingProduct({kHuge, 3, kHuge, kHuge}), kSaturated);
  EXPECT_EQ(SaturatingProduct({kHuge, kHuge, 0}), 0);
  EXPECT_EQ(SaturatingProduct({0, kHuge, kHuge}), 0);
}

TEST(MergedLoopTest, DimsOfOneGo) {
  const MergedLoop loop = Merge({1, 5, 1, 2, 1}, {{99, 2, 7, 1, 3}});
  EXPECT_THAT(loop.dims, ElementsAre(10));
  MergedLoop scalar = Merge({1, 1}, {{5, 5}, {0, 0}});
  EXPECT_THAT(scalar.dims, IsEmpty());
  scalar.AtLeastOne(1);
  scalar.AtLeastOne(7);
  EXPECT_THAT(scalar.dims, ElementsAre(1));
  EXPECT_THAT(scalar.strides, ElementsAre(ElementsAre(1), ElementsAre(1)));
}

TEST(MergedLoopTest, StepsThroughTheSameElements) {
  const std::vector<std::pair<Dims, Dims>> cases = {
      {{2, 3, 4}, {1, 2, 6}},  // permuted
      {{3, 4}, {-4, -1}},      // backward
      {{3, 4}, {8, -1}},       // half of it
      {{2, 3, 4}, {0, 0, 1}},  // repeated
      {{2, 3, 4}, {4, 0, 1}},  //
      {{2, 1, 3, 4}, {12, 5, 4, 1}},
      {{2, 0, 3}, {0, 3, 1}},  // nothing
  };
  for (const auto& [dims, strides] : cases) {
    const MergedLoop loop = Merge(dims, {strides});
    EXPECT_EQ(Elements(loop.dims, loop.strides[0]), Elements(dims, strides));
  }
}

TEST(MergedLoopTest, BroadcastsByNumpysRule) {
  EXPECT_THAT(BroadcastStrides({3, 1}, {2, 3, 4}), ElementsAre(0, 1, 0));
  EXPECT_THAT(BroadcastStrides({2, 3, 4}, {2, 3, 4}), ElementsAre(12, 4, 1));
  EXPECT_THAT(BroadcastStrides({}, {2}), ElementsAre(0));
  EXPECT_THAT(BroadcastStrides({1, 1, 3, 1}, {3, 4}), ElementsAre(1, 0));
}

}  // namespace
}  // namespace weir
