// weir.RandomUniform: exact, number by number, on every device.
#include <cmath>

#include "kernels/base/philox.h"
#include "tests/ops/op_test.h"

namespace weir {
namespace {

WEIR_OP_TEST(RandomTest);

using List = std::vector<int64_t>;

Value Draw(const absl::StatusOr<std::vector<Value>>& outputs) {
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  return outputs.ok() ? outputs->at(0) : Value();
}

TEST_P(RandomTest, RowsDrawFromTheirOwnStreams) {
  const RandomKey key = {.seed = 42, .first_row = 7};
  const Value out = Draw(Run(
      WeirNode("RandomUniform", Attrs({{"shape", List{3, 2, 5}}})), {}, key));
  EXPECT_EQ(out.dims, Dims({3, 2, 5}));
  std::vector<float> expected;
  for (uint64_t row = 7; row < 10; ++row) {
    for (uint64_t k = 0; k < 10; ++k) {
      expected.push_back(PhiloxUniform(Philox(42, row, k / 4).word[k % 4]));
    }
  }
  EXPECT_EQ(out.As<float>(), expected);
}

TEST_P(RandomTest, LongRowsAreOneStreamEach) {
  constexpr int64_t kLength = 150'003;
  const Value out =
      Draw(Run(WeirNode("RandomUniform", Attrs({{"shape", List{2, kLength}}})),
               {}, {.seed = 42, .first_row = 7}));
  std::vector<float> expected;
  for (uint64_t row = 7; row < 9; ++row) {
    for (uint64_t k = 0; k < kLength; ++k) {
      expected.push_back(PhiloxUniform(Philox(42, row, k / 4).word[k % 4]));
    }
  }
  EXPECT_EQ(out.As<float>(), expected);
}

TEST_P(RandomTest, BatchingChangesNoRow) {
  const NodeInfo three =
      WeirNode("RandomUniform", Attrs({{"shape", List{3, 5}}}));
  const NodeInfo one =
      WeirNode("RandomUniform", Attrs({{"shape", List{1, 5}}}));
  const std::vector<float> all =
      Draw(Run(three, {}, {.seed = 1, .first_row = 0})).As<float>();
  const std::vector<float> last =
      Draw(Run(one, {}, {.seed = 1, .first_row = 2})).As<float>();
  EXPECT_EQ(std::vector<float>(all.begin() + 10, all.end()), last);
}

TEST_P(RandomTest, SeedsDecide) {
  const NodeInfo node = WeirNode("RandomUniform", Attrs({{"shape", List{64}}}));
  const Value a = Draw(Run(node, {}, {.seed = 1}));
  ExpectEqual(Draw(Run(node, {}, {.seed = 1})), a);
  EXPECT_NE(Draw(Run(node, {}, {.seed = 2})).bytes, a.bytes);
  // A seed of the node's own wins over the request's.
  NodeInfo own = node;
  own.attributes.Set("seed", int64_t{-5});
  const Value b = Draw(Run(own, {}, {.seed = 1}));
  ExpectEqual(Draw(Run(own, {}, {.seed = 2})), b);
}

TEST_P(RandomTest, StaysInsideItsRange) {
  for (const DType dtype : {DType::kFloat, DType::kDouble}) {
    const Attributes attributes =
        Attrs({{"shape", List{20000}},
               {"range", std::vector<float>{-3, 5}},
               {"dtype", static_cast<int64_t>(dtype)}});
    double sum = 0;
    const Value out =
        Draw(Run(WeirNode("RandomUniform", attributes), {}, {.seed = 9}));
    EXPECT_EQ(out.dtype, dtype);
    for (const double value : ToDoubles(out)) {
      EXPECT_GE(value, -3);
      EXPECT_LT(value, 5);
      sum += value;
    }
    // The mean of 20,000 draws of deviation 2.31: six of its deviations.
    EXPECT_NEAR(sum / 20000, 1.0, 6 * 2.31 / std::sqrt(20000.0));
  }
}

TEST_P(RandomTest, ShapeByInputAndDefault) {
  EXPECT_EQ(Draw(Run(WeirNode("RandomUniform"), {Int64s({2, 3})})).dims,
            Dims({2, 3}));
  EXPECT_EQ(Draw(Run(WeirNode("RandomUniform"), {})).dims, Dims());
  // The attribute is for where the input is missing.
  EXPECT_EQ(Draw(Run(WeirNode("RandomUniform", Attrs({{"shape", List{7}}})),
                     {Int64s({2, 3})}))
                .dims,
            Dims({2, 3}));
  EXPECT_EQ(Draw(Run(WeirNode("RandomUniform"), {Int64s({0, 3})})).dims,
            Dims({0, 3}));
}

TEST_P(RandomTest, RefusesBadArguments) {
  const auto refused = [this](Attributes attributes) {
    return Run(WeirNode("RandomUniform", std::move(attributes)), {})
               .status()
               .code() == absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused(Attrs({{"shape", List{-1}}})));
  EXPECT_TRUE(refused(Attrs({{"shape", List{1 << 20, 1 << 20, 1 << 20}}})));
  EXPECT_TRUE(refused(Attrs({{"range", std::vector<float>{1, 0}}})));
  EXPECT_TRUE(refused(Attrs({{"range", std::vector<float>{1}}})));
  EXPECT_TRUE(refused(Attrs({{"range", std::vector<float>{0, INFINITY}}})));
  EXPECT_TRUE(refused(Attrs({{"dtype", int64_t{7}}})));
}

}  // namespace
}  // namespace weir
