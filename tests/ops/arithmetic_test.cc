// Add, Sub, Mul, Div, Pow, Min, Max. Bounds: + - * / of floats are rounded once
// (0.5 ulp; half types twice, see below); Pow in float is the C library's.
#include <cmath>
#include <functional>
#include <limits>

#include "tests/ops/op_test.h"

namespace weir {
namespace {

WEIR_OP_TEST(ArithmeticTest);

using Binary = std::function<double(double, double)>;

struct Shapes {
  Dims a;
  Dims b;
  Dims out;
};

int64_t Count(const Dims& dims) { return NumElements(dims).value(); }

// The element of a broadcast operand at the output's flat index.
double At(const std::vector<double>& values, const Dims& dims, const Dims& out,
          int64_t index) {
  int64_t offset = 0;
  int64_t stride = 1;
  for (size_t d = out.size(); d-- > 0;) {
    const int64_t i = index % out[d];
    index /= out[d];
    const size_t missing = out.size() - dims.size();
    if (d < missing) continue;
    const int64_t size = dims[d - missing];
    offset += (size == 1 ? 0 : i) * stride;
    stride *= size;
  }
  return values[static_cast<size_t>(offset)];
}

std::vector<double> Reference(const Binary& f, const Value& a, const Value& b,
                              const Dims& out) {
  const std::vector<double> x = ToDoubles(a);
  const std::vector<double> y = ToDoubles(b);
  std::vector<double> result;
  for (int64_t i = 0; i < Count(out); ++i) {
    result.push_back(f(At(x, a.dims, out, i), At(y, b.dims, out, i)));
  }
  return result;
}

const std::vector<Shapes>& BroadcastShapesToTry() {
  static const auto& shapes = *new std::vector<Shapes>{
      {{}, {}, {}},
      {{7}, {7}, {7}},
      {{1}, {5}, {5}},
      {{2, 3, 4}, {}, {2, 3, 4}},
      {{}, {2, 3, 4}, {2, 3, 4}},
      {{2, 3, 4}, {4}, {2, 3, 4}},
      {{2, 3, 1}, {1, 1, 4}, {2, 3, 4}},
      {{2, 1, 4}, {3, 1}, {2, 3, 4}},
      {{5, 1, 3, 1, 2}, {1, 4, 1, 6, 2}, {5, 4, 3, 6, 2}},
      {{0, 3}, {1, 3}, {0, 3}},
      {{1, 1, 1, 1, 1, 1, 1, 2},
       {2, 1, 1, 1, 1, 1, 1, 1},
       {2, 1, 1, 1, 1, 1, 1, 2}},
      {{300, 700}, {700}, {300, 700}},  // more than one thread's share
      {{300, 700}, {300, 1}, {300, 700}},
  };
  return shapes;
}

TEST_P(ArithmeticTest, BroadcastsEveryWay) {
  for (const Shapes& shapes : BroadcastShapesToTry()) {
    SCOPED_TRACE(DimsString(shapes.a) + DimsString(shapes.b));
    for (DType dtype : {DType::kFloat, DType::kFloat16, DType::kInt32}) {
      const Value a =
          Rounded(dtype, shapes.a, Spread(Count(shapes.a), -90, 90, 1));
      const Value b =
          Rounded(dtype, shapes.b, Spread(Count(shapes.b), -90, 90, 2));
      const Value sum = RunOne(Node("Sub"), {a, b});
      EXPECT_EQ(DimsString(sum.dims), DimsString(shapes.out));
      ExpectClose(sum, Reference(std::minus<double>(), a, b, shapes.out),
                  {.ulps = 0.5});
    }
  }
}

TEST_P(ArithmeticTest, EveryTypeAddsSubtractsMultipliesDivides) {
  const struct {
    const char* op;
    Binary f;
  } ops[] = {{"Add", std::plus<double>()},
             {"Sub", std::minus<double>()},
             {"Mul", std::multiplies<double>()},
             {"Div", std::divides<double>()}};
  const TypeSet unsigned_types = kUnsignedIntTypes;
  for (int number = 1; number <= 16; ++number) {
    const auto dtype = DTypeFromOnnx(number);
    if (!dtype.has_value() || !kNumericTypes.Has(*dtype)) continue;
    for (const auto& op : ops) {
      SCOPED_TRACE(std::string(op.op) + " " + std::string(DTypeName(*dtype)));
      // No overflow in 8 bits: that is another test.
      const bool positive = unsigned_types.Has(*dtype);
      const Value a =
          Rounded(*dtype, {1000}, Spread(1000, positive ? 10.0 : -11, 11, 3));
      const Value b =
          Rounded(*dtype, {1000}, Spread(1000, positive ? 1.0 : 1.0, 9.9, 4));
      std::vector<double> exact = Reference(op.f, a, b, {1000});
      if (IsInteger(*dtype)) {
        for (double& x : exact) x = std::trunc(x);
      }
      // double itself is the reference's type: equal. Half types are computed
      // in float and rounded again: less than 0.51 ulp.
      ExpectClose(RunOne(Node(op.op), {a, b}), exact, {.ulps = 0.51});
    }
  }
}

TEST_P(ArithmeticTest, IntegersWrap) {
  constexpr int32_t kMin = std::numeric_limits<int32_t>::min();
  constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
  const Value a = Of<int32_t>({3}, {kMin, kMax, kMin});
  const Value b = Of<int32_t>({3}, {-1, 1, kMin});
  ExpectEqual(RunOne(Node("Add"), {a, b}), Of<int32_t>({3}, {kMax, kMin, 0}));
  ExpectEqual(RunOne(Node("Sub"), {a, b}),
              Of<int32_t>({3}, {kMin + 1, kMax - 1, 0}));
  ExpectEqual(RunOne(Node("Mul"), {a, b}), Of<int32_t>({3}, {kMin, kMax, 0}));
  ExpectEqual(RunOne(Node("Div"), {a, b}), Of<int32_t>({3}, {kMin, kMax, 1}));
  ExpectEqual(RunOne(Node("Mul"),
                     {Of<uint16_t>({1}, {65535}), Of<uint16_t>({1}, {65535})}),
              Of<uint16_t>({1}, {1}));
  ExpectEqual(RunOne(Node("Div"), {Of<int64_t>({2}, {INT64_MIN, -7}),
                                   Of<int64_t>({2}, {-1, 2})}),
              Of<int64_t>({2}, {INT64_MIN, -3}));
}

TEST_P(ArithmeticTest, IntegerDivisionByZeroIsAnError) {
  for (DType dtype : {DType::kInt8, DType::kInt32, DType::kUint64}) {
    const auto result = Run(Node("Div"), {Rounded(dtype, {3}, {1, 2, 3}),
                                          Rounded(dtype, {3}, {1, 0, 1})});
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument)
        << result.status();
  }
  const Value quotient = RunOne(
      Node("Div"), {Of<float>({3}, {1, -1, 0}), Of<float>({3}, {0, 0, 0})});
  ExpectClose(quotient, {INFINITY, -INFINITY, NAN}, {});
}

TEST_P(ArithmeticTest, PowOfEveryPairOfTypes) {
  for (DType base : {DType::kFloat, DType::kDouble, DType::kFloat16,
                     DType::kBfloat16, DType::kInt32, DType::kInt64}) {
    for (int number = 1; number <= 16; ++number) {
      const auto exponent = DTypeFromOnnx(number);
      if (!exponent.has_value() || !kNumericTypes.Has(*exponent)) continue;
      SCOPED_TRACE(std::string(DTypeName(base)) + " ^ " +
                   std::string(DTypeName(*exponent)));
      const Value a = Rounded(base, {6}, {1, 2, 3, 4, 5, 0});
      const Value b = Rounded(*exponent, {6}, {3, 4, 2, 0, 1, 5});
      ExpectClose(RunOne(Node("Pow"), {a, b}), {1, 16, 9, 1, 5, 0},
                  {.ulps = 1});
    }
  }
}

TEST_P(ArithmeticTest, PowCorners) {
  ExpectEqual(RunOne(Node("Pow"), {Of<int32_t>({5}, {2, -1, -1, 0, 3}),
                                   Of<int32_t>({5}, {-1, -3, -2, -1, 40})}),
              Of<int32_t>({5}, {0, -1, 1, 0, 689956897}));
  const Value a = Rounded(DType::kFloat, {500}, Spread(500, 0.01, 20, 5));
  const Value b = Rounded(DType::kFloat, {500}, Spread(500, -8, 8, 6));
  ExpectClose(
      RunOne(Node("Pow"), {a, b}),
      Reference([](double x, double y) { return std::pow(x, y); }, a, b, {500}),
      {.ulps = 8});
  // A fraction as the exponent of an integer is computed in double.
  ExpectEqual(RunOne(Node("Pow"),
                     {Of<int64_t>({2}, {9, 2}), Of<float>({2}, {0.5f, 0.5f})}),
              Of<int64_t>({2}, {3, 1}));
  // What is a whole number is not truncated to the one before.
  std::vector<int64_t> squares, fifths, roots, bases;
  for (int64_t i = -300; i <= 300; ++i) {
    bases.push_back(i);
    fifths.push_back(i * i * i * i * i);
    squares.push_back(i * i * i * i);
    roots.push_back(std::abs(i * i * i));
  }
  const Dims dims = {static_cast<int64_t>(bases.size())};
  ExpectEqual(
      RunOne(Node("Pow"), {Of<int64_t>(dims, bases), Of<double>({1}, {5})}),
      Of<int64_t>(dims, fifths));
  ExpectEqual(RunOne(Node("Pow"),
                     {Of<int64_t>(dims, squares), Of<float>({1}, {0.75f})}),
              Of<int64_t>(dims, roots));
}

TEST_P(ArithmeticTest, MinAndMaxOfSeveralInputs) {
  const Value a = Of<float>({2, 2}, {1, 5, -3, 2});
  const Value b = Of<float>({2}, {2, 4});
  const Value c = Of<float>({}, {3});
  ExpectEqual(RunOne(Node("Max"), {a, b, c}), Of<float>({2, 2}, {3, 5, 3, 4}));
  ExpectEqual(RunOne(Node("Min"), {a, b, c}), Of<float>({2, 2}, {1, 3, -3, 2}));
  ExpectEqual(RunOne(Node("Min"), {a}), a);
  ExpectEqual(
      RunOne(Node("Max"), {Of<uint8_t>({2}, {1, 255}), Of<uint8_t>({2}, {2, 3}),
                           Of<uint8_t>({2}, {7, 4}), Of<uint8_t>({2}, {5, 0})}),
      Of<uint8_t>({2}, {7, 255}));
  const Value half = Rounded(DType::kFloat16, {3}, {1, 5, -3});
  ExpectEqual(RunOne(Node("Max"), {half, Rounded(DType::kFloat16, {1}, {0.5}),
                                   Rounded(DType::kFloat16, {3}, {0, 8, -1})}),
              Rounded(DType::kFloat16, {3}, {1, 8, 0.5}));
  const double big = 5000;
  const Value wide =
      Rounded(DType::kFloat, {70000}, Spread(70000, -big, big, 9));
  const Value other =
      Rounded(DType::kFloat, {70000}, Spread(70000, -big, big, 10));
  ExpectClose(RunOne(Node("Max"), {wide, other, c}),
              Reference([](double x,
                           double y) { return std::fmax(std::fmax(x, y), 3); },
                        wide, other, {70000}),
              {});
}

TEST_P(ArithmeticTest, MinAndMaxPropagateNan) {
  const Value a = Of<float>({3}, {NAN, 1, 2});
  const Value b = Of<float>({3}, {1, NAN, 3});
  ExpectClose(RunOne(Node("Max"), {a, b}), {NAN, NAN, 3}, {});
  ExpectClose(RunOne(Node("Min"), {a, b}), {NAN, NAN, 2}, {});
  const Value h = Rounded(DType::kBfloat16, {3}, {NAN, 1, 2});
  const Value k = Rounded(DType::kBfloat16, {3}, {1, NAN, 3});
  ExpectClose(RunOne(Node("Max"), {h, k}), {NAN, NAN, 3}, {});
}

TEST_P(ArithmeticTest, RefusesShapesThatDoNotFit) {
  const auto result =
      Run(Node("Add"), {Of<float>({2}, {1, 2}), Of<float>({3}, {1, 2, 3})});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ArithmeticInferTest, Symbols) {
  NodeInfo node = Node("Add");
  node.input_types = {DType::kFloat, DType::kFloat};
  const Dim n = Dim::Symbol(0);
  const auto shapes = InferShapes(
      node, {SymbolicDims{n, Dim(1), 4}, SymbolicDims{n, Dim(3), 1}});
  ASSERT_TRUE(shapes.ok()) << shapes.status();
  EXPECT_EQ(shapes->at(0), "float[s0,3,4]");
  EXPECT_EQ(InferShapes(node, {std::nullopt, SymbolicDims{3}})->at(0),
            "float[...]");
}

}  // namespace
}  // namespace weir
