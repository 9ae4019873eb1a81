// Softmax, LayerNormalization and BatchNormalization against double. Bounds, in
// units in the last place of the compute type (float for half types, which are
// then rounded once more):
//   Softmax             8 ulp + (n + 40) * 2^-24, n the length of the axis,
//                       relative to results of at most 1
//   LayerNormalization  (n + 16) * 2^-24 of max(1, |x - mean|max / deviation)
//                       times the largest scale
//   BatchNormalization  4 * 2^-24 of the terms
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "tests/ops/op_test.h"

namespace weir {
namespace {

WEIR_VECTOR_OP_TEST(NormalizationTest);

constexpr DType kFloating[] = {DType::kFloat, DType::kDouble, DType::kFloat16,
                               DType::kBfloat16};

double Epsilon(DType dtype) {
  return dtype == DType::kDouble ? 0x1p-53 : 0x1p-24;
}

SymbolicShape Shape(std::vector<Dim> dims) {
  return SymbolicDims(dims.begin(), dims.end());
}

std::vector<double> Softmax(const std::vector<double>& x, int64_t outer,
                            int64_t length, int64_t stride) {
  std::vector<double> y(x.size());
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t s = 0; s < stride; ++s) {
      const auto at = [&](int64_t i) {
        return static_cast<size_t>((o * length + i) * stride + s);
      };
      double largest = -INFINITY, sum = 0;
      for (int64_t i = 0; i < length; ++i) {
        largest = std::max(largest, x[at(i)]);
      }
      for (int64_t i = 0; i < length; ++i) sum += std::exp(x[at(i)] - largest);
      for (int64_t i = 0; i < length; ++i) {
        y[at(i)] = std::exp(x[at(i)] - largest) / sum;
      }
    }
  }
  return y;
}

Bound SoftmaxBound(DType dtype, int64_t length) {
  return {.ulps = dtype == DType::kFloat || dtype == DType::kDouble ? 8 : 0.6,
          .relative = static_cast<double>(length + 40) * Epsilon(dtype)};
}

TEST_P(NormalizationTest, SoftmaxAlongEachAxis) {
  const Dims dims = {3, 5, 37};
  for (const DType dtype : kFloating) {
    const Value x = Rounded(dtype, dims, Spread(3 * 5 * 37, -9, 9, 1));
    const int64_t shapes[3][3] = {{1, 3, 185}, {3, 5, 37}, {15, 37, 1}};
    for (int64_t axis = 0; axis < 3; ++axis) {
      SCOPED_TRACE(std::string(DTypeName(dtype)) + " axis " +
                   std::to_string(axis));
      const auto& s = shapes[axis];
      const auto exact = Softmax(ToDoubles(x), s[0], s[1], s[2]);
      for (const int64_t given : {axis, axis - 3}) {
        ExpectClose(RunOne(Node("Softmax", Attrs({{"axis", given}})), {x}),
                    exact, SoftmaxBound(dtype, s[1]));
      }
    }
  }
}

TEST_P(NormalizationTest, SoftmaxFlattensBeforeOpset13) {
  const Value x = Rounded(DType::kFloat, {2, 3, 4}, Spread(24, -3, 3, 2));
  ExpectClose(RunOne(Node("Softmax", {}, 11), {x}),
              Softmax(ToDoubles(x), 2, 12, 1), SoftmaxBound(DType::kFloat, 12));
  ExpectClose(RunOne(Node("Softmax", Attrs({{"axis", int64_t{2}}}), 12), {x}),
              Softmax(ToDoubles(x), 6, 4, 1), SoftmaxBound(DType::kFloat, 4));
  ExpectClose(RunOne(Node("Softmax", {}, 13), {x}),
              Softmax(ToDoubles(x), 6, 4, 1), SoftmaxBound(DType::kFloat, 4));
}

TEST_P(NormalizationTest, SoftmaxOfWhatIsFarBelow) {
  const Value x = Rounded(DType::kFloat, {4, 37}, Spread(4 * 37, -80, 0, 4));
  ExpectClose(RunOne(Node("Softmax"), {x}), Softmax(ToDoubles(x), 4, 37, 1),
              {.ulps = 8, .relative = (37 + 80) * 0x1p-24});
}

TEST_P(NormalizationTest, SoftmaxOfExtremes) {
  const float infinity = INFINITY;
  const Value x =
      Of<float>({4, 2}, {1000, 1000, -1e30f, 0, -infinity, 3, infinity, 0});
  const std::vector<float> y = RunOne(Node("Softmax"), {x}).As<float>();
  ASSERT_EQ(y.size(), 8u);
  EXPECT_EQ(y[0], 0.5f);
  EXPECT_EQ(y[1], 0.5f);
  EXPECT_EQ(y[2], 0.0f);
  EXPECT_EQ(y[3], 1.0f);
  EXPECT_EQ(y[4], 0.0f);
  EXPECT_EQ(y[5], 1.0f);
  EXPECT_TRUE(std::isnan(y[6]));
  const std::vector<float> nan =
      RunOne(Node("Softmax"), {Of<float>({20}, std::vector<float>(20, NAN))})
          .As<float>();
  for (const float value : nan) EXPECT_TRUE(std::isnan(value));
  EXPECT_EQ(RunOne(Node("Softmax"), {Of<float>({2, 0}, {})}).dims,
            Dims({2, 0}));
}

// Long enough for several threads; the same bits each time.
TEST_P(NormalizationTest, SoftmaxIsReproducible) {
  const Value x = Rounded(DType::kFloat, {97, 301}, Spread(97 * 301, -5, 5, 3));
  const Value first = RunOne(Node("Softmax"), {x});
  ExpectClose(first, Softmax(ToDoubles(x), 97, 301, 1),
              SoftmaxBound(DType::kFloat, 301));
  ExpectEqual(RunOne(Node("Softmax"), {x}), first);
}

struct Moments {
  std::vector<double> mean, inverse_deviation, unit;
};

Moments MomentsOf(const std::vector<double>& x, int64_t length,
                  double epsilon) {
  Moments m;
  const double n = static_cast<double>(length);
  for (size_t first = 0; first < x.size();
       first += static_cast<size_t>(length)) {
    double sum = 0, square = 0;
    for (size_t i = 0; i < static_cast<size_t>(length); ++i) {
      sum += x[first + i];
    }
    const double mean = sum / n;
    for (size_t i = 0; i < static_cast<size_t>(length); ++i) {
      square += (x[first + i] - mean) * (x[first + i] - mean);
    }
    const double factor = 1 / std::sqrt(square / n + epsilon);
    m.mean.push_back(mean);
    m.inverse_deviation.push_back(factor);
    for (size_t i = 0; i < static_cast<size_t>(length); ++i) {
      m.unit.push_back((x[first + i] - mean) * factor);
    }
  }
  return m;
}

TEST_P(NormalizationTest, LayerNormalizationOfEveryType) {
  const int64_t rows = 6, length = 91;
  for (const DType dtype : kFloating) {
    SCOPED_TRACE(std::string(DTypeName(dtype)));
    const Value x =
        Rounded(dtype, {2, 3, length}, Spread(rows * length, -2, 3, 4));
    const Value scale = Rounded(dtype, {length}, Spread(length, -2, 2, 5));
    const Value bias = Rounded(dtype, {length}, Spread(length, -1, 1, 6));
    NodeInfo node = Node("LayerNormalization", Attrs({{"epsilon", 1e-3f}}), 17);
    node.num_outputs = 3;
    const auto outputs = Run(node, {x, scale, bias});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    const Moments m =
        MomentsOf(ToDoubles(x), length, static_cast<double>(1e-3f));
    std::vector<double> exact = m.unit;
    const std::vector<double> s = ToDoubles(scale), b = ToDoubles(bias);
    for (size_t i = 0; i < exact.size(); ++i) {
      exact[i] = exact[i] * s[i % s.size()] + b[i % b.size()];
    }
    const double error = static_cast<double>(length + 16) * Epsilon(dtype);
    ExpectClose((*outputs)[0], exact, {.ulps = 0.6, .absolute = 8 * error});
    EXPECT_EQ((*outputs)[1].dims, Dims({2, 3, 1}));
    EXPECT_EQ((*outputs)[1].dtype, DType::kFloat);
    const double stored =
        static_cast<double>(length + 16) * Epsilon(DType::kFloat);
    ExpectClose((*outputs)[1], m.mean, {.ulps = 1, .absolute = 3 * stored});
    ExpectClose((*outputs)[2], m.inverse_deviation,
                {.ulps = 1, .absolute = 3 * stored});
  }
}

TEST_P(NormalizationTest, LayerNormalizationStashesItsStatistics) {
  const int64_t rows = 5, length = 40;
  const Value x =
      Rounded(DType::kFloat, {rows, length}, Spread(rows * length, -2, 3, 4));
  const Value scale = Rounded(DType::kFloat, {length}, Spread(length, 1, 2, 5));
  NodeInfo node =
      Node("LayerNormalization", Attrs({{"stash_type", int64_t{16}}}));
  const Value y = RunOne(Node("LayerNormalization"), {x, scale});
  ExpectEqual(RunOne(node, {x, scale}), y);
  node.num_outputs = 3;
  const auto outputs = Run(node, {x, scale});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  ExpectEqual((*outputs)[0], y);
  const Moments m = MomentsOf(ToDoubles(x), length, static_cast<double>(1e-5f));
  for (const size_t i : {size_t{1}, size_t{2}}) {
    EXPECT_EQ((*outputs)[i].dtype, DType::kBfloat16);
    ExpectClose((*outputs)[i], i == 1 ? m.mean : m.inverse_deviation,
                {.ulps = 0.6, .absolute = 3 * 56 * Epsilon(DType::kFloat)});
  }
  node.attributes = Attrs({{"stash_type", int64_t{10}}});
  EXPECT_EQ(Run(node, {x, scale}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Of rows without elements there may be more than anyone can count.
TEST_P(NormalizationTest, RowsOfNothingTakeNoTime) {
  const Dims dims = {int64_t{1} << 40, 0};
  const Value x = Of<float>(dims, {});
  EXPECT_EQ(RunOne(Node("Softmax"), {x}).dims, dims);
  const Value scale = Of<float>({1}, {2});
  EXPECT_EQ(RunOne(Node("LayerNormalization"), {x, scale, scale}).dims, dims);
}

TEST_P(NormalizationTest, LayerNormalizationOverSeveralAxes) {
  const Value x = Rounded(DType::kFloat, {4, 3, 10}, Spread(120, -1, 1, 7));
  const Value scale = Rounded(DType::kFloat, {3, 10}, Spread(30, 1, 2, 8));
  std::vector<double> exact = MomentsOf(ToDoubles(x), 30, 1e-5).unit;
  const std::vector<double> s = ToDoubles(scale);
  for (size_t i = 0; i < exact.size(); ++i) exact[i] *= s[i % 30];
  ExpectClose(RunOne(Node("LayerNormalization", Attrs({{"axis", int64_t{1}}})),
                     {x, scale}),
              exact, {.ulps = 2, .absolute = 8 * 46 * 0x1p-24});
}

TEST_P(NormalizationTest, LayerNormalizationBroadcastsScaleAndBias) {
  const NodeInfo node =
      Node("LayerNormalization", Attrs({{"axis", int64_t{1}}}));
  for (const DType dtype : kFloating) {
    SCOPED_TRACE(std::string(DTypeName(dtype)));
    const Value x = Rounded(dtype, {4, 3, 10}, Spread(120, -1, 1, 7));
    const Value scale = Rounded(dtype, {3, 1}, {1, 2, -0.5});
    const Value bias = Rounded(dtype, {10}, Spread(10, -1, 1, 8));
    std::vector<double> exact =
        MomentsOf(ToDoubles(x), 30, static_cast<double>(1e-5f)).unit;
    const std::vector<double> s = ToDoubles(scale), b = ToDoubles(bias);
    std::vector<double> scaled = exact;
    for (size_t i = 0; i < exact.size(); ++i) {
      exact[i] = exact[i] * s[i / 10 % 3] + b[i % 10];
      scaled[i] *= s[1];
    }
    const double error = 8 * 46 * Epsilon(dtype);
    ExpectClose(RunOne(node, {x, scale, bias}), exact,
                {.ulps = 0.6, .absolute = error});
    ExpectClose(RunOne(node, {x, Rounded(dtype, {}, {2})}), scaled,
                {.ulps = 0.6, .absolute = error});
  }
}

// Longer than what one thread writes out, and not a multiple of it.
TEST_P(NormalizationTest, LayerNormalizationBroadcastsWithinLongRows) {
  const NodeInfo node =
      Node("LayerNormalization", Attrs({{"axis", int64_t{1}}}));
  constexpr int64_t kA = 41, kB = 3, kC = 1001, kLength = kA * kB * kC;
  const std::vector<double> a = Spread(kA, -1, 1, 3);
  const std::vector<double> bc = Spread(kB * kC, -1, 1, 4);
  std::vector<double> scale, bias;
  for (size_t i = 0; i < kLength; ++i) {
    scale.push_back(a[i / (kB * kC)]);
    bias.push_back(bc[i % (kB * kC)]);
  }
  const Dims dims = {kA, kB, kC};
  for (const DType dtype : kFloating) {
    SCOPED_TRACE(std::string(DTypeName(dtype)));
    const Value x =
        Rounded(dtype, {2, kA, kB, kC}, Spread(2 * kLength, -1, 1, 7));
    ExpectEqual(RunOne(node, {x, Rounded(dtype, {kA, 1, 1}, a),
                              Rounded(dtype, {1, 1, kB, kC}, bc)}),
                RunOne(node, {x, Rounded(dtype, dims, scale),
                              Rounded(dtype, dims, bias)}));
  }
}

TEST_P(NormalizationTest, LayerNormalizationBroadcastsToTheRankOfX) {
  const Value x = Rounded(DType::kFloat, {2, 3, 4}, Spread(24, -1, 1, 7));
  const std::vector<double> factors = {1, 2, -0.5, 4};
  const Value row = Rounded(DType::kFloat, {4}, factors);
  const Value whole = Rounded(DType::kFloat, {1, 1, 4}, factors);
  const NodeInfo node = Node("LayerNormalization");
  ExpectClose(RunOne(node, {x, whole, whole}),
              ToDoubles(RunOne(node, {x, row, row})), {});
  // What differs between rows is the server's limit, what fits nowhere is the
  // caller's fault.
  const Value per_row = Rounded(DType::kFloat, {3, 1}, {1, 2, 3});
  EXPECT_EQ(Run(node, {x, per_row}).status().code(),
            absl::StatusCode::kUnimplemented);
  const Value elsewhere = Rounded(DType::kFloat, {5, 1}, {1, 2, 3, 4, 5});
  EXPECT_EQ(Run(node, {x, elsewhere}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(NormalizationTest, LayerNormalizationFarFromZero) {
  // The mean is subtracted before squares are summed.
  std::vector<double> values = Spread(256, -1, 1, 9);
  for (double& value : values) value += 1000;
  const Value x = Rounded(DType::kFloat, {1, 256}, values);
  const Value one =
      Rounded(DType::kFloat, {256}, std::vector<double>(256, 1.0));
  // The mean itself is known to an ulp of 1000 or so: 2^-14.
  ExpectClose(RunOne(Node("LayerNormalization"), {x, one}),
              MomentsOf(ToDoubles(x), 256, 1e-5).unit,
              {.ulps = 2, .absolute = 8 * 0x1p-14});
}

TEST_P(NormalizationTest, BatchNormalizationOfEveryType) {
  for (const DType dtype : kFloating) {
    for (const Dims& dims :
         {Dims{2, 3, 5, 7}, Dims{4, 3}, Dims{2, 3, 33}, Dims{1, 3, 2, 2, 2}}) {
      SCOPED_TRACE(std::string(DTypeName(dtype)) + " " + DimsString(dims));
      const int64_t n = NumElements(dims).value();
      const int64_t plane = n / (dims[0] * 3);
      const Value x = Rounded(dtype, dims, Spread(n, -3, 3, 10));
      const Value scale = Rounded(dtype, {3}, {0.5, -2, 1});
      const Value bias = Rounded(dtype, {3}, {0.25, 1, -1});
      const Value mean = Rounded(dtype, {3}, {0.5, -0.125, 2});
      const Value variance = Rounded(dtype, {3}, {1, 0.25, 4});
      const std::vector<double> v = ToDoubles(x), s = ToDoubles(scale),
                                b = ToDoubles(bias), m = ToDoubles(mean),
                                d = ToDoubles(variance);
      std::vector<double> exact;
      for (int64_t i = 0; i < n; ++i) {
        const auto c = static_cast<size_t>(i / plane % 3);
        exact.push_back((v[static_cast<size_t>(i)] - m[c]) * s[c] /
                            std::sqrt(d[c] + static_cast<double>(1e-5f)) +
                        b[c]);
      }
      // On CUDA epsilon is added in the compute type.
      ExpectClose(RunOne(Node("BatchNormalization", {}, 15),
                         {x, scale, bias, mean, variance}),
                  exact, {.ulps = 0.6, .absolute = 4 * 12 * Epsilon(dtype)});
    }
  }
}

// Longer than what is computed between two questions whether anybody wants it.
// What comes later is larger, and decides.
TEST_P(NormalizationTest, SoftmaxOfLongRows) {
  constexpr int64_t kLength = 70'001;
  std::vector<double> rows = Spread(2 * kLength, -4, 0, 20);
  for (size_t i = 1; i < 10; ++i) {
    rows[kLength - i] = 1000;  // its exponential is infinite
    rows[rows.size() - 11 * i] = 6.5;
  }
  std::vector<double> columns;
  for (size_t i = 0; i < kLength; ++i) {
    columns.insert(columns.end(), {rows[i], rows[kLength + i]});
  }
  for (const DType dtype : kFloating) {
    SCOPED_TRACE(DTypeName(dtype));
    const Value across = Rounded(dtype, {2, kLength}, rows);
    ExpectClose(RunOne(Node("Softmax"), {across}),
                Softmax(ToDoubles(across), 2, kLength, 1),
                SoftmaxBound(dtype, kLength));
    const Value down = Rounded(dtype, {kLength, 2}, columns);
    ExpectClose(RunOne(Node("Softmax", Attrs({{"axis", int64_t{0}}})), {down}),
                Softmax(ToDoubles(down), 1, kLength, 2),
                SoftmaxBound(dtype, kLength));
  }
}

TEST_P(NormalizationTest, LayerNormalizationOfLongRows) {
  constexpr int64_t kLength = 123'123;
  std::vector<double> values = Spread(2 * kLength, -1, 1, 21);
  for (size_t i = 0; i < values.size(); ++i) {
    if (i % kLength > 66'000) values[i] = 3 * values[i] + 2;
  }
  NodeInfo node = Node("LayerNormalization");
  node.num_outputs = 3;
  for (const DType dtype : kFloating) {
    SCOPED_TRACE(DTypeName(dtype));
    const Value x = Rounded(dtype, {2, kLength}, values);
    const Value scale = Rounded(dtype, {kLength}, Spread(kLength, -2, 2, 22));
    const Value bias = Rounded(dtype, {kLength}, Spread(kLength, -1, 1, 23));
    const auto outputs = Run(node, {x, scale, bias});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    const Moments m =
        MomentsOf(ToDoubles(x), kLength, static_cast<double>(1e-5f));
    std::vector<double> exact = m.unit;
    const std::vector<double> s = ToDoubles(scale), b = ToDoubles(bias);
    for (size_t i = 0; i < exact.size(); ++i) {
      exact[i] = exact[i] * s[i % s.size()] + b[i % b.size()];
    }
    constexpr double kTerms = kLength + 16;
    ExpectClose((*outputs)[0], exact,
                {.ulps = 0.6, .absolute = 8 * kTerms * Epsilon(dtype)});
    const Bound stored = {.ulps = 1,
                          .absolute = 3 * kTerms * Epsilon(DType::kFloat)};
    ExpectClose((*outputs)[1], m.mean, stored);
    ExpectClose((*outputs)[2], m.inverse_deviation, stored);
  }
}

// On CUDA a block has several of them.
TEST_P(NormalizationTest, MoreRowsThanAGridHasBlocks) {
  constexpr int64_t kRows = 1'100'000;
  const Value x =
      Rounded(DType::kFloat, {kRows, 2}, Spread(2 * kRows, -3, 3, 24));
  ExpectClose(RunOne(Node("Softmax"), {x}), Softmax(ToDoubles(x), kRows, 2, 1),
              SoftmaxBound(DType::kFloat, 2));
}

// From opset 15 on scale, B, mean and variance may be wider than X. What they
// make together is within X's range, what they are alone is not.
TEST_P(NormalizationTest, BatchNormalizationByWiderParameters) {
  const NodeInfo node =
      Node("BatchNormalization", Attrs({{"epsilon", 0.0f}}), 15);
  const Value scale = Of<double>({4}, {1e-24, 1e30, 1e-50, 2});
  const Value bias = Of<double>({4}, {0, 1, -1, 0.5});
  const Value mean = Of<double>({4}, {0.5, 0, 1, -1});
  const Value variance = Of<double>({4}, {1e-50, 1e58, 1e-100, 4});
  for (const DType dtype : kFloating) {
    SCOPED_TRACE(DTypeName(dtype));
    const Value x = Rounded(dtype, {2, 4}, {1, 2, 3, 4, -1, -2, -3, -4});
    const double epsilon = Epsilon(dtype);
    ExpectClose(RunOne(node, {x, scale, bias, mean, variance}),
                {5, 21, 1, 5.5, -15, -19, -5, -2.5},
                {.ulps = 0.6, .absolute = 32 * epsilon});
    // Either of two alone.
    const Value zero = Of<float>({4}, {0, 0, 0, 0});
    const Value one = Of<float>({4}, {1, 1, 1, 1});
    const Value wide_zero = Of<double>({4}, {0, 0, 0, 0});
    const std::vector<double> exact = {10, 1, 3, 1, -10, -1, -3, -1};
    const Value variances = Of<double>({4}, {1e-2, 4, 1, 16});
    ExpectClose(RunOne(node, {x, one, zero, wide_zero, variances}), exact,
                {.ulps = 0.6, .absolute = 32 * epsilon});
    const Value scales = Of<double>({4}, {10, 0.5, 1, 0.25});
    ExpectClose(RunOne(node, {x, scales, wide_zero, zero, one}), exact,
                {.ulps = 0.6, .absolute = 32 * epsilon});
  }
}

TEST_P(NormalizationTest, BatchNormalizationInTrainingIsUnimplemented) {
  const Value x = Of<float>({1, 1}, {1});
  const Value c = Of<float>({1}, {1});
  const absl::Status refused =
      Run(Node("BatchNormalization", Attrs({{"training_mode", int64_t{1}}})),
          {x, c, c, c, c})
          .status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(refused.message(), testing::HasSubstr("weir runs inference"));
}

TEST(NormalizationInferTest, RefusesShapesThatDoNotFit) {
  NodeInfo node = Node("LayerNormalization");
  node.input_types = {DType::kFloat, DType::kFloat};
  EXPECT_EQ(InferShapes(node, {Shape({Dim::Symbol(0), 4}), Shape({4})})->at(0),
            "float[s0,4]");
  EXPECT_FALSE(InferShapes(node, {Shape({2, 4}), Shape({3})}).ok());
  EXPECT_FALSE(InferShapes(node, {Shape({2, 4}), Shape({2, 4})}).ok());
  node.attributes = Attrs({{"axis", int64_t{2}}});
  EXPECT_FALSE(InferShapes(node, {Shape({2, 4}), Shape({4})}).ok());
  NodeInfo softmax = Node("Softmax", Attrs({{"axis", int64_t{-3}}}));
  softmax.input_types = {DType::kFloat};
  EXPECT_FALSE(InferShapes(softmax, {Shape({2, 4})}).ok());
  NodeInfo batch = Node("BatchNormalization");
  batch.input_types.assign(5, DType::kFloat);
  EXPECT_FALSE(InferShapes(batch, {Shape({2, 4}), Shape({3}), Shape({4}),
                                   Shape({4}), Shape({4})})
                   .ok());
}

}  // namespace
}  // namespace weir
