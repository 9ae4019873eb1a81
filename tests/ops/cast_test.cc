#include <cmath>
#include <limits>

#include "tests/ops/op_test.h"

namespace weir {
namespace {

WEIR_OP_TEST(CastTest);

NodeInfo CastTo(DType dtype) {
  return Node("Cast", Attrs({{"to", static_cast<int64_t>(dtype)}}));
}

TEST_P(CastTest, EveryPairOfTypes) {
  for (int from = 1; from <= 16; ++from) {
    const auto source = DTypeFromOnnx(from);
    if (!source.has_value() || !kFixedTypes.Has(*source)) continue;
    for (int to = 1; to <= 16; ++to) {
      const auto target = DTypeFromOnnx(to);
      if (!target.has_value() || !kFixedTypes.Has(*target)) continue;
      SCOPED_TRACE(std::string(DTypeName(*source)) + " to " +
                   std::string(DTypeName(*target)));
      const std::vector<double> values = {0, 1, 2, 100, 127};
      const Value x = Rounded(*source, {5, 1}, values);
      ExpectEqual(RunOne(CastTo(*target), {x}),
                  Rounded(*target, {5, 1}, ToDoubles(x)));
    }
  }
}

TEST_P(CastTest, FloatsTruncateSaturateAndNanIsZero) {
  const Value x = Of<float>(
      {8}, {1.9f, -1.9f, 300.f, -300.f, 1e20f, -1e20f, NAN, INFINITY});
  ExpectEqual(RunOne(CastTo(DType::kInt8), {x}),
              Of<int8_t>({8}, {1, -1, 127, -128, 127, -128, 0, 127}));
  ExpectEqual(RunOne(CastTo(DType::kUint8), {x}),
              Of<uint8_t>({8}, {1, 0, 255, 0, 255, 0, 0, 255}));
  ExpectEqual(
      RunOne(CastTo(DType::kInt64), {x}),
      Of<int64_t>({8}, {1, -1, 300, -300, INT64_MAX, INT64_MIN, 0, INT64_MAX}));
  ExpectEqual(RunOne(CastTo(DType::kUint32),
                     {Of<double>({3}, {4294967295.5, -0.5, 7})}),
              Of<uint32_t>({3}, {4294967295u, 0, 7}));
  ExpectEqual(
      RunOne(CastTo(DType::kBool), {Of<float>({4}, {0, -0.f, 1e-40f, NAN})}),
      Rounded(DType::kBool, {4}, {0, 0, 1, 1}));
}

TEST_P(CastTest, IntegersWrap) {
  ExpectEqual(
      RunOne(CastTo(DType::kInt8), {Of<int32_t>({3}, {128, 257, -129})}),
      Of<int8_t>({3}, {-128, 1, 127}));
  ExpectEqual(RunOne(CastTo(DType::kUint64), {Of<int32_t>({1}, {-1})}),
              Of<uint64_t>({1}, {UINT64_MAX}));
}

// Through float, these would round twice and away from the nearest half.
TEST_P(CastTest, HalvesAreRoundedOnce) {
  const double tie = 1 + 0x1p-11;  // between two float16
  const Value x = Of<double>({4}, {tie, tie + 0x1p-40, tie - 0x1p-40, 65520});
  const double up = 1 + 0x1p-10;
  ExpectClose(RunOne(CastTo(DType::kFloat16), {x}), {1, up, 1, INFINITY}, {});
  const Value i =
      Of<int32_t>({2}, {(1 << 30) + (1 << 22) + 1, (1 << 30) + (1 << 22)});
  ExpectClose(RunOne(CastTo(DType::kBfloat16), {i}), {0x1p30 + 0x1p23, 0x1p30},
              {});
  // Nor through double.
  const int64_t above = (int64_t{1} << 62) + (int64_t{1} << 54) + 1;
  ExpectClose(RunOne(CastTo(DType::kBfloat16),
                     {Of<int64_t>({4}, {above, -above, above - 1, INT64_MAX})}),
              {0x1p62 + 0x1p55, -0x1p62 - 0x1p55, 0x1p62, 0x1p63}, {});
  ExpectClose(RunOne(CastTo(DType::kBfloat16),
                     {Of<uint64_t>({2}, {2 * uint64_t{above}, UINT64_MAX})}),
              {0x1p63 + 0x1p56, 0x1p64}, {});
  ExpectClose(
      RunOne(CastTo(DType::kFloat16),
             {Of<float>({5}, {0x1p-24f, 0x1p-25f, 0x1.8p-25f, -70000, NAN})}),
      {0x1p-24, 0, 0x1p-24, -INFINITY, NAN}, {});
}

TEST_P(CastTest, ManyElements) {
  const Value x =
      Rounded(DType::kFloat, {200001}, Spread(200001, -1e4, 1e4, 3));
  std::vector<double> exact = ToDoubles(x);
  for (double& value : exact) value = std::trunc(value);
  ExpectClose(RunOne(CastTo(DType::kInt16), {x}), exact, {});
}

TEST_P(CastTest, StringsAreUnimplemented) {
  EXPECT_EQ(Run(CastTo(DType::kString), {Of<float>({1}, {1})}).status().code(),
            absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace weir
