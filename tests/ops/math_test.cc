// Unary functions and Clip against double precision. Each line states its bound
// in units of the last place of the result's type; half types are computed in
// float, so that 0.51 holds for them wherever float is within a few units.
#include <cmath>
#include <functional>
#include <limits>

#include "tests/ops/op_test.h"

namespace weir {
namespace {

WEIR_VECTOR_OP_TEST(MathTest);

struct Function {
  const char* op;
  std::function<double(double)> f;
  double low;
  double high;
  Bound float_bound;
  Bound double_bound;
  Bound half_bound;
  Attributes attributes = {};
};

double Gelu(double x) { return 0.5 * x * std::erfc(-x * M_SQRT1_2); }
double GeluTanh(double x) {
  const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1 + std::tanh(u));
}

TEST_P(MathTest, FunctionsOfFloatingTypes) {
  const Function functions[] = {
      {"Neg", [](double x) { return -x; }, -9, 9, {}, {}, {}},
      {"Abs", [](double x) { return std::fabs(x); }, -9, 9, {}, {}, {}},
      {"Relu", [](double x) { return x < 0 ? 0 : x; }, -9, 9, {}, {}, {}},
      {"Sqrt", [](double x) { return std::sqrt(x); }, 0, 99, {.5}, {}, {.51}},
      {"Exp", [](double x) { return std::exp(x); }, -20, 10, {2}, {2}, {.51}},
      {"Log", [](double x) { return std::log(x); }, 1e-3, 99, {2}, {2}, {.51}},
      {"Erf", [](double x) { return std::erf(x); }, -4, 4, {2}, {2}, {.51}},
      {"Tanh", [](double x) { return std::tanh(x); }, -9, 9, {3}, {3}, {.51}},
      {"Sigmoid",
       [](double x) { return 1 / (1 + std::exp(-x)); },
       -20,
       20,
       {4},
       {4},
       {.51}},
      // The argument of erfc is rounded: its relative error grows with x^2.
      {"Gelu", Gelu, -6, 6, {64}, {64}, {.6}},
      {"Gelu",
       GeluTanh,
       -6,
       6,
       {.ulps = 64, .absolute = 1e-11},
       {.ulps = 64, .absolute = 1e-15},
       {.ulps = .6, .absolute = 1e-7},
       Attrs({{"approximate", std::string("tanh")}})},
  };
  for (const Function& function : functions) {
    for (DType dtype :
         {DType::kFloat, DType::kDouble, DType::kFloat16, DType::kBfloat16}) {
      SCOPED_TRACE(std::string(function.op) + " " +
                   std::string(DTypeName(dtype)));
      const Value x = Rounded(dtype, {41, 251},
                              Spread(41 * 251, function.low, function.high, 7));
      std::vector<double> exact = ToDoubles(x);
      for (double& value : exact) value = function.f(value);
      const Value y = RunOne(Node(function.op, function.attributes), {x});
      EXPECT_EQ(DimsString(y.dims), "[41,251]");
      ExpectClose(y, exact,
                  dtype == DType::kFloat    ? function.float_bound
                  : dtype == DType::kDouble ? function.double_bound
                                            : function.half_bound);
    }
  }
}

TEST_P(MathTest, CornersOfFloats) {
  const Value x = Of<float>({6}, {0.0f, -0.0f, INFINITY, -INFINITY, NAN, -1});
  const auto check = [&](const char* op, std::vector<double> exact) {
    SCOPED_TRACE(op);
    ExpectClose(RunOne(Node(op), {x}), exact, {.ulps = 2});
  };
  check("Sqrt", {0, -0.0, INFINITY, NAN, NAN, NAN});
  check("Log", {-INFINITY, -INFINITY, INFINITY, NAN, NAN, NAN});
  check("Exp", {1, 1, INFINITY, 0, NAN, std::exp(-1)});
  check("Tanh", {0, 0, 1, -1, NAN, std::tanh(-1.0)});
  check("Erf", {0, 0, 1, -1, NAN, std::erf(-1.0)});
  check("Sigmoid", {.5, .5, 1, 0, NAN, 1 / (1 + std::exp(1))});
  check("Relu", {0, 0, INFINITY, 0, NAN, 0});
  check("Abs", {0, 0, INFINITY, INFINITY, NAN, 1});
}

// Where exp(-x) overflows, the result is as small as a type can tell.
TEST_P(MathTest, SigmoidUnderflowsLate) {
  const auto check = [&](const Value& x) {
    std::vector<double> exact = ToDoubles(x);
    for (double& value : exact) value = std::exp(value);  // over 1 + so much
    ExpectClose(RunOne(Node("Sigmoid"), {x}), exact, {.ulps = 4});
  };
  check(Of<float>({5}, {-87, -89, -95, -103, -120}));
  check(Of<double>({4}, {-700, -709, -720, -745}));
  check(Rounded(DType::kBfloat16, {2}, {-87, -90}));
}

TEST_P(MathTest, ExpOverflowsAndUnderflows) {
  ExpectClose(RunOne(Node("Exp"), {Of<float>({3}, {89, -110, 88})}),
              {INFINITY, 0, std::exp(88.0)}, {.ulps = 2});
  ExpectClose(RunOne(Node("Exp"), {Rounded(DType::kFloat16, {2}, {12, -20})}),
              {INFINITY, 0}, {});
}

TEST_P(MathTest, IntegerTypes) {
  for (DType dtype :
       {DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64}) {
    SCOPED_TRACE(DTypeName(dtype));
    const Value x = Rounded(dtype, {3}, {-5, 0, 7});
    ExpectEqual(RunOne(Node("Neg"), {x}), Rounded(dtype, {3}, {5, 0, -7}));
    ExpectEqual(RunOne(Node("Abs"), {x}), Rounded(dtype, {3}, {5, 0, 7}));
    ExpectEqual(RunOne(Node("Relu"), {x}), Rounded(dtype, {3}, {0, 0, 7}));
    ExpectEqual(RunOne(Node("Erf"), {Rounded(dtype, {3}, {-9, 0, 9})}),
                Rounded(dtype, {3}, {-1, 0, 1}));
  }
  ExpectEqual(RunOne(Node("Abs"), {Of<uint32_t>({2}, {0, UINT32_MAX})}),
              Of<uint32_t>({2}, {0, UINT32_MAX}));
  ExpectEqual(RunOne(Node("Abs"), {Of<int8_t>({1}, {-128})}),
              Of<int8_t>({1}, {-128}));
  EXPECT_EQ(Run(Node("Sqrt"), {Of<int32_t>({1}, {4})}).status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST_P(MathTest, ClipWithEitherBound) {
  const Value none;
  for (int number = 1; number <= 16; ++number) {
    const auto dtype = DTypeFromOnnx(number);
    if (!dtype.has_value() || !kNumericTypes.Has(*dtype)) continue;
    SCOPED_TRACE(DTypeName(*dtype));
    const Value x = Rounded(*dtype, {5}, {0, 1, 2, 3, 100});
    const Value low = Rounded(*dtype, {}, {1});
    const Value high = Rounded(*dtype, {}, {3});
    ExpectEqual(RunOne(Node("Clip"), {x, low, high}),
                Rounded(*dtype, {5}, {1, 1, 2, 3, 3}));
    ExpectEqual(RunOne(Node("Clip"), {x, low}),
                Rounded(*dtype, {5}, {1, 1, 2, 3, 100}));
    ExpectEqual(RunOne(Node("Clip"), {x, none, high}),
                Rounded(*dtype, {5}, {0, 1, 2, 3, 3}));
    ExpectEqual(RunOne(Node("Clip"), {x}), x);
  }
  // The upper bound wins, NaN stays, and a bound may be a list of one.
  const Value x = Of<float>({3}, {NAN, 1, 9});
  ExpectClose(
      RunOne(Node("Clip"), {x, Of<float>({1}, {5}), Of<float>({1}, {2})}),
      {NAN, 2, 2}, {});
  ExpectClose(RunOne(Node("Clip"), {Of<float>({}, {9}), Of<float>({1}, {5}),
                                    Of<float>({1}, {7})}),
              {7}, {});
  EXPECT_FALSE(Run(Node("Clip"), {x, Of<float>({3}, {1, 2, 3})}).ok());
}

TEST_P(MathTest, GeluRefusesAnUnknownApproximation) {
  const auto result =
      Run(Node("Gelu", Attrs({{"approximate", std::string("fast")}})),
          {Of<float>({1}, {1})});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weir
