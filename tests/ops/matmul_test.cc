// MatMul and Gemm against sums in double. Bound: half a unit in the last place
// of the type plus (k + 2) * 2^-24 (2^-53 for double) of the sum of magnitudes,
// whatever the order of the sum; integers are exact.
#include "kernels/ops/matmul.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/base/saturating.h"
#include "tests/ops/op_test.h"

namespace weir {
namespace {

WEIR_OP_TEST(MatMulTest);

double Epsilon(DType dtype) {
  return dtype == DType::kDouble ? 0x1p-53 : 0x1p-24;
}

Bound SumBound(DType dtype, int64_t k, double magnitude) {
  return {.ulps = 0.51,
          .absolute = static_cast<double>(k + 2) * Epsilon(dtype) *
                      static_cast<double>(k) * magnitude};
}

// What rounding to a half type may change a number by, as a part of it.
double HalfUnit(DType dtype) {
  if (dtype == DType::kFloat16) return 0x1p-11;
  return dtype == DType::kBfloat16 ? 0x1p-8 : 0;
}

// op(A) * op(B) of row-major matrices.
std::vector<double> Multiply(const double* a, const double* b, int64_t m,
                             int64_t n, int64_t k, bool trans_a = false,
                             bool trans_b = false) {
  std::vector<double> c(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < k; ++l) {
        sum += a[trans_a ? l * m + i : i * k + l] *
               b[trans_b ? j * k + l : l * n + j];
      }
      c[static_cast<size_t>(i * n + j)] = sum;
    }
  }
  return c;
}

// Sums so long that cuBLASLt makes them on a GPU; shorter ones are ours.
constexpr int64_t kLong = 300;

constexpr DType kFloating[] = {DType::kFloat, DType::kDouble, DType::kFloat16,
                               DType::kBfloat16};

TEST_P(MatMulTest, MultipliesMatricesOfEveryFloatingType) {
  for (const DType dtype : kFloating) {
    for (const int64_t k : {int64_t{131}, kLong}) {
      SCOPED_TRACE(std::string(DTypeName(dtype)) + " " + std::to_string(k));
      const int64_t m = 37, n = 70;
      const Value a = Rounded(dtype, {m, k}, Spread(m * k, -1, 1, 1));
      const Value b = Rounded(dtype, {k, n}, Spread(k * n, -1, 1, 2));
      ExpectClose(RunOne(Node("MatMul"), {a, b}),
                  Multiply(ToDoubles(a).data(), ToDoubles(b).data(), m, n, k),
                  SumBound(dtype, k, 1));
    }
  }
}

// Large enough to be cut into pieces along rows and columns.
TEST_P(MatMulTest, MultipliesLargeMatrices) {
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{5, 1700, 700},
                                {900, 40, 300},
                                {300, 400, 310}}) {
    const Value a = Rounded(DType::kFloat, {m, k}, Spread(m * k, -1, 1, 3));
    const Value b = Rounded(DType::kFloat, {k, n}, Spread(k * n, -1, 1, 4));
    const Value first = RunOne(Node("MatMul"), {a, b});
    ExpectClose(first,
                Multiply(ToDoubles(a).data(), ToDoubles(b).data(), m, n, k),
                SumBound(DType::kFloat, k, 1));
    // Bit for bit, whichever threads computed it.
    for (int i = 0; i < 3; ++i) {
      ExpectEqual(RunOne(Node("MatMul"), {a, b}), first);
    }
  }
}

template <typename T>
void CheckWrapping(
    const std::function<Value(const Value&, const Value&)>& run) {
  using U = std::make_unsigned_t<T>;
  const int64_t m = 3, n = 67, k = 66;
  std::vector<T> a, b;
  for (int64_t i = 0; i < m * k; ++i) {
    a.push_back(static_cast<T>(static_cast<U>(i) * 0x9E3779B97F4A7C15u));
  }
  for (int64_t i = 0; i < k * n; ++i) {
    b.push_back(static_cast<T>(static_cast<U>(i) * 0xC2B2AE3D27D4EB4Fu));
  }
  std::vector<T> c;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      U sum = 0;
      for (int64_t l = 0; l < k; ++l) {
        sum += static_cast<U>(a[static_cast<size_t>(i * k + l)]) *
               static_cast<U>(b[static_cast<size_t>(l * n + j)]);
      }
      c.push_back(static_cast<T>(sum));
    }
  }
  ExpectEqual(run(Of<T>({m, k}, a), Of<T>({k, n}, b)), Of<T>({m, n}, c));
}

TEST_P(MatMulTest, IntegersWrap) {
  const auto run = [this](const Value& a, const Value& b) {
    return RunOne(Node("MatMul"), {a, b});
  };
  CheckWrapping<int32_t>(run);
  CheckWrapping<uint32_t>(run);
  CheckWrapping<int64_t>(run);
  CheckWrapping<uint64_t>(run);
}

TEST_P(MatMulTest, BroadcastsBatches) {
  for (const int64_t k : {int64_t{4}, kLong}) {
    // [2,1,3,k] x [5,k,2] -> [2,5,3,2]
    const Value a =
        Rounded(DType::kFloat, {2, 1, 3, k}, Spread(6 * k, -1, 1, 5));
    const Value b = Rounded(DType::kFloat, {5, k, 2}, Spread(10 * k, -1, 1, 6));
    std::vector<double> expected;
    const std::vector<double> x = ToDoubles(a), y = ToDoubles(b);
    for (int64_t i = 0; i < 2; ++i) {
      for (int64_t j = 0; j < 5; ++j) {
        const auto part =
            Multiply(x.data() + i * 3 * k, y.data() + j * 2 * k, 3, 2, k);
        expected.insert(expected.end(), part.begin(), part.end());
      }
    }
    const Value c = RunOne(Node("MatMul"), {a, b});
    EXPECT_EQ(c.dims, Dims({2, 5, 3, 2}));
    ExpectClose(c, expected, SumBound(DType::kFloat, k, 1));
  }
}

TEST_P(MatMulTest, ManySmallMatrices) {
  const Value a = Rounded(DType::kFloat, {48, 8, 16}, Spread(6144, -1, 1, 7));
  const Value b = Rounded(DType::kFloat, {48, 16, 8}, Spread(6144, -1, 1, 8));
  std::vector<double> expected;
  const std::vector<double> x = ToDoubles(a), y = ToDoubles(b);
  for (size_t i = 0; i < 48; ++i) {
    const auto part = Multiply(&x[i * 128], &y[i * 128], 8, 8, 16);
    expected.insert(expected.end(), part.begin(), part.end());
  }
  ExpectClose(RunOne(Node("MatMul"), {a, b}), expected,
              SumBound(DType::kFloat, 16, 1));
}

// A CUDA grid has 65,535 planes, and calls of a library cost too much where
// there would be one for every few matrices.
TEST_P(MatMulTest, MoreMatricesThanOneLaunchTakes) {
  constexpr int64_t kCount = 70'000, kOuter = 300, kDepth = 16;
  std::vector<double> x(kDepth * kCount), y(kDepth * kCount);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<double>(i % 7);
    y[i] = static_cast<double>(i % 5) - 2;
  }
  const auto product = [&](int64_t i, int64_t j) {
    double sum = 0;
    for (int64_t l = 0; l < kDepth; ++l) {
      sum += x[static_cast<size_t>(i * kDepth + l)] *
             y[static_cast<size_t>(j * kDepth + l)];
    }
    return sum;
  };
  std::vector<double> products, outer;
  for (int64_t i = 0; i < kCount; ++i) products.push_back(product(i, i));
  for (int64_t i = 0; i < kOuter; ++i) {
    for (int64_t j = 0; j < kOuter; ++j) outer.push_back(product(i, j));
  }
  for (const DType dtype : {DType::kFloat, DType::kFloat16, DType::kBfloat16,
                            DType::kDouble, DType::kInt64}) {
    SCOPED_TRACE(std::string(DTypeName(dtype)));
    ExpectEqual(
        RunOne(Node("MatMul"), {Rounded(dtype, {kCount, 1, kDepth}, x),
                                Rounded(dtype, {kCount, kDepth, 1}, y)}),
        Rounded(dtype, {kCount, 1, 1}, products));
    const std::vector<double> some_x(x.begin(), x.begin() + kDepth * kOuter);
    const std::vector<double> some_y(y.begin(), y.begin() + kDepth * kOuter);
    ExpectEqual(RunOne(Node("MatMul"),
                       {Rounded(dtype, {kOuter, 1, 1, kDepth}, some_x),
                        Rounded(dtype, {1, kOuter, kDepth, 1}, some_y)}),
                Rounded(dtype, {kOuter, kOuter, 1, 1}, outer));
  }
}

TEST_P(MatMulTest, SharesTheSecondMatrix) {
  for (const int64_t k : {int64_t{4}, kLong}) {
    const Value a =
        Rounded(DType::kFloat, {3, 2, 5, k}, Spread(30 * k, -1, 1, 9));
    const Value b = Rounded(DType::kFloat, {k, 6}, Spread(6 * k, -1, 1, 10));
    const Value c = RunOne(Node("MatMul"), {a, b});
    EXPECT_EQ(c.dims, Dims({3, 2, 5, 6}));
    ExpectClose(c, Multiply(ToDoubles(a).data(), ToDoubles(b).data(), 30, 6, k),
                SumBound(DType::kFloat, k, 1));
  }
}

TEST_P(MatMulTest, FusedAddsItsRow) {
  int ran = 0;
  for (const DType dtype : kFloating) {
    for (const int64_t k : {int64_t{0}, int64_t{1}, int64_t{7}, kLong}) {
      SCOPED_TRACE(std::string(DTypeName(dtype)) + " " + std::to_string(k));
      const int64_t n = 24;
      const Value a = Rounded(dtype, {2, 3, k}, Spread(6 * k, -1, 1, 1));
      const Value b = Rounded(dtype, {k, n}, Spread(k * n, -1, 1, 2));
      const Value row = Rounded(dtype, {n}, Spread(n, -1, 1, 3));
      NodeInfo node = WeirNode("FusedMatMul");
      node.input_types = {dtype, dtype, dtype};
      if (!registry().Takes(device().info(), node)) continue;
      ++ran;
      std::vector<double> exact =
          Multiply(ToDoubles(a).data(), ToDoubles(b).data(), 6, n, k);
      const std::vector<double> added = ToDoubles(row);
      double largest = 0;
      for (size_t i = 0; i < exact.size(); ++i) {
        largest = std::max(largest, std::abs(exact[i]));
        exact[i] += added[i % static_cast<size_t>(n)];
      }
      const Value y = RunOne(node, {a, b, row});
      EXPECT_EQ(y.dims, Dims({2, 3, n}));
      Bound bound = SumBound(dtype, k + 1, 1);
      // The library may round a product before it adds the row.
      if (on_cuda() && k == kLong) bound.absolute += HalfUnit(dtype) * largest;
      ExpectClose(y, exact, bound);
    }
  }
  EXPECT_EQ(ran, on_cuda() ? 16 : 4);
}

TEST_P(MatMulTest, TakesVectors) {
  const Value v = Of<float>({3}, {1, 2, 3});
  const Value m = Of<float>({3, 2}, {1, 2, 3, 4, 5, 6});
  ExpectEqual(RunOne(Node("MatMul"), {v, v}), Of<float>({}, {14}));
  ExpectEqual(RunOne(Node("MatMul"), {v, m}), Of<float>({2}, {22, 28}));
  const Value t = Of<float>({2, 1, 3}, {1, 2, 3, 4, 5, 6});
  ExpectEqual(RunOne(Node("MatMul"), {t, v}), Of<float>({2, 1}, {14, 32}));
  const Value batch = Of<float>({2, 3, 1}, {1, 2, 3, 4, 5, 6});
  ExpectEqual(RunOne(Node("MatMul"), {v, batch}), Of<float>({2, 1}, {14, 32}));
}

TEST_P(MatMulTest, SumsOfNothingAreZero) {
  ExpectEqual(
      RunOne(Node("MatMul"), {Of<float>({2, 0}, {}), Of<float>({0, 3}, {})}),
      Of<float>({2, 3}, {0, 0, 0, 0, 0, 0}));
  ExpectEqual(RunOne(Node("MatMul"),
                     {Of<int64_t>({1, 0}, {}), Of<int64_t>({0, 2}, {})}),
              Of<int64_t>({1, 2}, {0, 0}));
  EXPECT_EQ(RunOne(Node("MatMul"), {Of<float>({0, 2}, {}),
                                    Of<float>({2, 3}, {1, 2, 3, 4, 5, 6})})
                .dims,
            Dims({0, 3}));
}

// Beside an axis of zero the others may have any product.
TEST_P(MatMulTest, ProductsOfNothingTakeNoTime) {
  constexpr int64_t kHuge = int64_t{1} << 40;
  const auto dims = [&](const NodeInfo& node, Dims a, Dims b) {
    return RunOne(node, {Of<float>(a, {}), Of<float>(b, {})}).dims;
  };
  EXPECT_EQ(dims(Node("MatMul"), {0, kHuge, 8}, {0, 8, kHuge}),
            Dims({0, kHuge, kHuge}));
  EXPECT_EQ(dims(Node("MatMul"), {kHuge, kHuge, kHuge, 0}, {0, 0}),
            Dims({kHuge, kHuge, kHuge, 0}));
  EXPECT_EQ(dims(Node("MatMul"), {0, kHuge, kHuge, 8}, {0, 1, 8, kHuge}),
            Dims({0, kHuge, kHuge, kHuge}));
  EXPECT_EQ(dims(Node("Gemm"), {kHuge, 0}, {0, 0}), Dims({kHuge, 0}));
}

TEST(MatMulShapeTest, MergesBatches) {
  ProductShape p = MatMulShapeOf({2, 3, 4, 5}, {5, 6});
  EXPECT_EQ(p.m, 24);
  EXPECT_EQ(p.k, 5);
  EXPECT_EQ(p.n, 6);
  EXPECT_EQ(p.batch, Dims());
  p = MatMulShapeOf({2, 3, 4, 5}, {1, 1, 5, 6});
  EXPECT_EQ(p.m, 24);
  EXPECT_EQ(p.batch, Dims());
  p = MatMulShapeOf({2, 3, 4, 5}, {2, 3, 5, 6});
  EXPECT_EQ(p.m, 4);
  EXPECT_EQ(p.batch, Dims({6}));
  EXPECT_EQ(p.strides_a, Dims({20}));
  EXPECT_EQ(p.strides_b, Dims({30}));
  p = MatMulShapeOf({5, 1, 2, 3}, {4, 3, 6});
  EXPECT_EQ(p.batch, Dims({5, 4}));
  EXPECT_EQ(p.strides_a, Dims({6, 0}));
  EXPECT_EQ(p.strides_b, Dims({0, 18}));
  p = MatMulShapeOf({3}, {4, 3, 6});
  EXPECT_EQ(p.m, 1);
  EXPECT_EQ(p.batch, Dims({4}));
  EXPECT_EQ(p.strides_a, Dims({0}));
  p = MatMulShapeOf({4, 2, 3}, {3});
  EXPECT_EQ(p.m, 8);
  EXPECT_EQ(p.n, 1);
  constexpr int64_t kHuge = int64_t{1} << 40;
  EXPECT_EQ(MatMulShapeOf({kHuge, kHuge, kHuge, 0}, {0, 0}).m, kSaturated);
}

TEST_P(MatMulTest, GemmScalesTransposesAndAdds) {
  for (const DType dtype : kFloating) {
    for (const bool trans_a : {false, true}) {
      for (const bool trans_b : {false, true}) {
        const int64_t m = 9, n = 13, k = trans_a == trans_b ? 21 : kLong;
        const Value a = Rounded(dtype, trans_a ? Dims{k, m} : Dims{m, k},
                                Spread(m * k, -1, 1, 11));
        const Value b = Rounded(dtype, trans_b ? Dims{n, k} : Dims{k, n},
                                Spread(k * n, -1, 1, 12));
        for (const Dims& shape :
             {Dims{m, n}, Dims{1, n}, Dims{m, 1}, Dims{n}, Dims{1}, Dims{}}) {
          SCOPED_TRACE(std::string(DTypeName(dtype)) + " C " +
                       DimsString(shape) + (trans_a ? " A^T" : "") +
                       (trans_b ? " B^T" : ""));
          const Value c = Rounded(
              dtype, shape, Spread(NumElements(shape).value(), -1, 1, 13));
          std::vector<double> expected =
              Multiply(ToDoubles(a).data(), ToDoubles(b).data(), m, n, k,
                       trans_a, trans_b);
          const std::vector<double> addend = ToDoubles(c);
          for (int64_t i = 0; i < m * n; ++i) {
            const int64_t column =
                shape.empty() || shape.back() == 1 ? 0 : i % n;
            const int64_t row =
                shape.size() < 2 || shape[0] == 1 ? 0 : i / n * shape[1];
            double& value = expected[static_cast<size_t>(i)];
            value =
                0.5 * value + 2.0 * addend[static_cast<size_t>(row + column)];
          }
          ExpectClose(
              RunOne(Node("Gemm", Attrs({{"alpha", 0.5f},
                                         {"beta", 2.0f},
                                         {"transA", int64_t{trans_a}},
                                         {"transB", int64_t{trans_b}}})),
                     {a, b, c}),
              expected, SumBound(dtype, k, 2));
        }
      }
    }
  }
}

TEST_P(MatMulTest, GemmOfIntegersIsExact) {
  const Value a = Of<int32_t>({2, 2}, {1, 2, 3, 4});
  const Value b = Of<int32_t>({2, 2}, {5, 6, 7, 8});
  const Value c = Of<int32_t>({2}, {10, 20});
  ExpectEqual(RunOne(Node("Gemm"), {a, b, c}),
              Of<int32_t>({2, 2}, {29, 42, 53, 70}));
  ExpectEqual(
      RunOne(Node("Gemm", Attrs({{"alpha", 2.0f}, {"beta", 3.0f}})), {a, b, c}),
      Of<int32_t>({2, 2}, {68, 104, 116, 160}));
  // A fraction truncates toward zero.
  ExpectEqual(RunOne(Node("Gemm", Attrs({{"alpha", -0.5f}})), {a, b}),
              Of<int32_t>({2, 2}, {-9, -11, -21, -25}));
  const Value none = Of<int64_t>({2, 0}, {});
  ExpectEqual(
      RunOne(Node("Gemm", Attrs({{"beta", 0.5f}})),
             {none, Of<int64_t>({0, 2}, {}), Of<int64_t>({2, 1}, {7, -9})}),
      Of<int64_t>({2, 2}, {3, 3, -4, -4}));
}

TEST_P(MatMulTest, GemmWithoutAddendOrProduct) {
  const Value a = Of<float>({1, 2}, {1, 2});
  const Value b = Of<float>({2, 1}, {3, 4});
  ExpectEqual(RunOne(Node("Gemm"), {a, b}), Of<float>({1, 1}, {11}));
  // beta 0 ignores C, even NaN.
  ExpectEqual(RunOne(Node("Gemm", Attrs({{"beta", 0.0f}})),
                     {a, b, Of<float>({}, {NAN})}),
              Of<float>({1, 1}, {11}));
  ExpectEqual(
      RunOne(Node("Gemm"), {Of<float>({1, 0}, {}), Of<float>({0, 2}, {}),
                            Of<float>({2}, {7, 8})}),
      Of<float>({1, 2}, {7, 8}));
  for (const DType dtype : kFloating) {
    SCOPED_TRACE(std::string(DTypeName(dtype)));
    // alpha 0 ignores A and B.
    const Value nan = Rounded(dtype, {1, 2}, {NAN, INFINITY});
    const Value column = Rounded(dtype, {2, 1}, {3, 4});
    const NodeInfo nothing = Node("Gemm", Attrs({{"alpha", 0.0f}}));
    ExpectEqual(RunOne(nothing, {nan, column}), Rounded(dtype, {1, 1}, {0}));
    ExpectEqual(RunOne(nothing, {nan, column, Rounded(dtype, {1}, {7})}),
                Rounded(dtype, {1, 1}, {7}));
    // Nor what lies where the product goes, of products of the library's.
    constexpr int64_t kSide = 40;
    const Value square =
        Rounded(dtype, {kSide, kSide}, std::vector<double>(kSide * kSide, NAN));
    ExpectEqual(
        RunOne(nothing, {square, square}),
        Rounded(dtype, {kSide, kSide}, std::vector<double>(kSide * kSide, 0)));
    for (const int64_t k : {int64_t{2}, kLong}) {
      const std::vector<double> ones(static_cast<size_t>(k), 1);
      ExpectEqual(
          RunOne(Node("Gemm", Attrs({{"alpha", -0.5f}})),
                 {Rounded(dtype, {1, k}, ones), Rounded(dtype, {k, 1}, ones)}),
          Rounded(dtype, {1, 1}, {-0.5 * static_cast<double>(k)}));
    }
    const Value left = Rounded(dtype, {2, 0}, {});
    const Value right = Rounded(dtype, {0, 2}, {});
    ExpectEqual(RunOne(Node("Gemm", Attrs({{"beta", 3.0f}})),
                       {left, right, Rounded(dtype, {2, 1}, {1, -2})}),
                Rounded(dtype, {2, 2}, {3, 3, -6, -6}));
    ExpectEqual(RunOne(Node("Gemm"), {left, right}),
                Rounded(dtype, {2, 2}, {0, 0, 0, 0}));
    // C without an axis and one column.
    ExpectEqual(RunOne(Node("Gemm"), {Rounded(dtype, {1, 2}, {1, 2}),
                                      Rounded(dtype, {2, 1}, {3, 4}),
                                      Rounded(dtype, {}, {5})}),
                Rounded(dtype, {1, 1}, {16}));
  }
}

SymbolicShape Shape(std::vector<Dim> dims) {
  return SymbolicDims(dims.begin(), dims.end());
}

TEST(MatMulInferTest, ShapesWithSymbols) {
  NodeInfo node = Node("MatMul");
  node.input_types = {DType::kFloat, DType::kFloat};
  const Dim s = Dim::Symbol(0);
  EXPECT_EQ(InferShapes(node, {Shape({s, 4}), Shape({4, 5})})->at(0),
            "float[s0,5]");
  EXPECT_EQ(InferShapes(node, {Shape({4}), Shape({s, 4, 5})})->at(0),
            "float[s0,5]");
  EXPECT_TRUE(InferShapes(node, {std::nullopt, Shape({4, 5})}).ok());
  EXPECT_EQ(InferShapes(node, {Shape({2, 3}), Shape({4, 5})}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(InferShapes(node, {Shape({}), Shape({4, 5})}).ok());
  EXPECT_FALSE(InferShapes(node, {Shape({2, 3, 4}), Shape({5, 4, 6})}).ok());
  NodeInfo gemm = Node("Gemm");
  gemm.input_types = {DType::kFloat, DType::kFloat, DType::kFloat};
  EXPECT_FALSE(
      InferShapes(gemm, {Shape({2, 3}), Shape({3, 5}), Shape({4})}).ok());
  EXPECT_FALSE(
      InferShapes(gemm, {Shape({2, 3, 1}), Shape({3, 5}), Shape({5})}).ok());
}

}  // namespace
}  // namespace weir
