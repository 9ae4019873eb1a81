#include <cmath>

#include "tests/ops/op_test.h"

namespace weir {
namespace {

WEIR_OP_TEST(LogicTest);

Value Bools(Dims dims, const std::vector<double>& values) {
  return Rounded(DType::kBool, std::move(dims), values);
}

TEST_P(LogicTest, ComparesEveryType) {
  for (int number = 1; number <= 16; ++number) {
    const auto dtype = DTypeFromOnnx(number);
    if (!dtype.has_value() || !kNumericTypes.Has(*dtype)) continue;
    SCOPED_TRACE(DTypeName(*dtype));
    const Value a = Rounded(*dtype, {2, 3}, {1, 2, 3, 4, 5, 6});
    const Value b = Rounded(*dtype, {3}, {2, 2, 6});
    ExpectEqual(RunOne(Node("Equal"), {a, b}),
                Bools({2, 3}, {0, 1, 0, 0, 0, 1}));
    ExpectEqual(RunOne(Node("Less"), {a, b}),
                Bools({2, 3}, {1, 0, 1, 0, 0, 0}));
    ExpectEqual(RunOne(Node("Greater"), {a, b}),
                Bools({2, 3}, {0, 0, 0, 1, 1, 0}));
  }
  ExpectEqual(RunOne(Node("Equal"), {Bools({2}, {1, 0}), Bools({2}, {1, 1})}),
              Bools({2}, {1, 0}));
}

TEST_P(LogicTest, NanIsUnequalToItself) {
  const Value x = Of<float>({2}, {NAN, 0.0f});
  const Value y = Of<float>({2}, {NAN, -0.0f});
  ExpectEqual(RunOne(Node("Equal"), {x, y}), Bools({2}, {0, 1}));
  ExpectEqual(RunOne(Node("Less"), {x, y}), Bools({2}, {0, 0}));
}

TEST_P(LogicTest, BooleanOperators) {
  const Value a = Bools({4}, {0, 0, 1, 1});
  const Value b = Bools({4}, {0, 1, 0, 1});
  ExpectEqual(RunOne(Node("And"), {a, b}), Bools({4}, {0, 0, 0, 1}));
  ExpectEqual(RunOne(Node("Or"), {a, b}), Bools({4}, {0, 1, 1, 1}));
  ExpectEqual(RunOne(Node("Not"), {a}), Bools({4}, {1, 1, 0, 0}));
  ExpectEqual(RunOne(Node("And"), {Bools({2, 1}, {0, 1}), Bools({}, {1})}),
              Bools({2, 1}, {0, 1}));
}

TEST_P(LogicTest, WhereSelectsBytesOfEveryType) {
  const Value condition = Bools({2, 1}, {1, 0});
  for (int number = 1; number <= 16; ++number) {
    const auto dtype = DTypeFromOnnx(number);
    if (!dtype.has_value() || !kFixedTypes.Has(*dtype)) continue;
    SCOPED_TRACE(DTypeName(*dtype));
    const Value x = Rounded(*dtype, {3}, {1, 0, 1});
    const Value y = Rounded(*dtype, {2, 3}, {9, 8, 7, 0, 1, 0});
    ExpectEqual(RunOne(Node("Where"), {condition, x, y}),
                Rounded(*dtype, {2, 3}, {1, 0, 1, 0, 1, 0}));
    ExpectEqual(RunOne(Node("Where"), {condition, Rounded(*dtype, {}, {1}), y}),
                Rounded(*dtype, {2, 3}, {1, 1, 1, 0, 1, 0}));
  }
  const int64_t n = 100000;
  std::vector<double> flags(n);
  std::vector<double> expected(n);
  for (size_t i = 0; i < flags.size(); ++i) {
    flags[i] = i % 3 == 0;
    expected[i] = i % 3 == 0 ? static_cast<double>(i) : -1;
  }
  std::vector<double> ramp(n);
  for (size_t i = 0; i < ramp.size(); ++i) ramp[i] = static_cast<double>(i);
  ExpectEqual(RunOne(Node("Where"),
                     {Bools({n}, flags), Rounded(DType::kFloat, {n}, ramp),
                      Of<float>({}, {-1})}),
              Rounded(DType::kFloat, {n}, expected));
}

}  // namespace
}  // namespace weir
