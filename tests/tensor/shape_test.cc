#include "kernels/tensor/shape.h"

#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

constexpr int64_t kHuge = int64_t{1} << 62;

TEST(NumElementsTest, CountsAndRefuses) {
  EXPECT_EQ(NumElements({}).value(), 1);
  EXPECT_EQ(NumElements({2, 3, 4}).value(), 24);
  EXPECT_EQ(NumElements({2, 0, 4}).value(), 0);
  EXPECT_EQ(NumElements({kHuge, kHuge, 0}).value(), 0);
  EXPECT_FALSE(NumElements({2, -1}).ok());
  EXPECT_FALSE(NumElements({0, -1}).ok());
  EXPECT_FALSE(NumElements({kHuge, 2}).ok());
  EXPECT_FALSE(NumElements({1, 1, 1, 1, 1, 1, 1, 1, 1}).ok());
}

TEST(ByteSizeTest, HasALimit) {
  EXPECT_EQ(ByteSize(DType::kDouble, {2, 3}).value(), 48);
  EXPECT_EQ(ByteSize(DType::kUint8, {kMaxTensorBytes}).value(),
            kMaxTensorBytes);
  EXPECT_FALSE(ByteSize(DType::kUint8, {kMaxTensorBytes + 1}).ok());
  EXPECT_FALSE(ByteSize(DType::kDouble, {kHuge}).ok());
}

TEST(DimsStringTest, ShowsHowALongListBegins) {
  EXPECT_EQ(DimsString({}), "[]");
  EXPECT_EQ(DimsString({2, 3}), "[2,3]");
  EXPECT_EQ(DimsString(std::vector<int64_t>(16, 1)),
            "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]");
  EXPECT_EQ(DimsString(std::vector<int64_t>(17, 1)),
            "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,...]");
}

TEST(DimTest, ArithmeticWithSizes) {
  EXPECT_EQ(Dim(2) + Dim(3), Dim(5));
  EXPECT_EQ(Dim(5) - Dim(3), Dim(2));
  EXPECT_EQ(Dim(5) * Dim(3), Dim(15));
  EXPECT_EQ(Dim(7) / Dim(2), Dim(3));
  EXPECT_TRUE((Dim(2) - Dim(3)).invalid());
  EXPECT_TRUE((Dim(kHuge) + Dim(kHuge)).invalid());
  EXPECT_TRUE((Dim(kHuge) * Dim(2)).invalid());
  EXPECT_TRUE((Dim(1) / Dim(0)).invalid());
  EXPECT_TRUE(Dim(-5).invalid());
  EXPECT_TRUE((Dim(-5) + Dim(9)).invalid());
  EXPECT_FALSE(Dim(-1).known());
  EXPECT_FALSE(Dim(-1).invalid());
}

TEST(DimTest, ArithmeticWithSymbols) {
  const Dim n = Dim::Symbol(0);
  const Dim m = Dim::Symbol(1);
  EXPECT_TRUE(n.symbolic());
  EXPECT_EQ(m.symbol(), 1);
  EXPECT_EQ(n + Dim(0), n);
  EXPECT_EQ(Dim(0) + n, n);
  EXPECT_EQ(n - Dim(0), n);
  EXPECT_EQ(n - n, Dim(0));
  EXPECT_EQ(n * Dim(1), n);
  EXPECT_EQ(n * Dim(0), Dim(0));
  EXPECT_EQ(n / Dim(1), n);
  EXPECT_EQ(n + m, Dim());
  EXPECT_EQ(n * Dim(2), Dim());
  EXPECT_EQ(n / Dim(2), Dim());
  EXPECT_TRUE(n.SurelyEquals(n));
  EXPECT_FALSE(n.SurelyEquals(m));
  EXPECT_FALSE(n.SurelyDiffers(m));
  EXPECT_FALSE(Dim().SurelyEquals(Dim()));
  EXPECT_TRUE(Dim(2).SurelyDiffers(3));
}

TEST(ShapeTest, AreSurelyEqualOnlyWhereEveryDimIs) {
  const SymbolicShape shape = SymbolicDims{2, Dim::Symbol(0)};
  EXPECT_TRUE(SurelyEqual(shape, shape));
  const SymbolicShape scalar(std::in_place);
  EXPECT_TRUE(SurelyEqual(scalar, scalar));
  const auto differs = [&](const SymbolicDims& other) {
    return !SurelyEqual(shape, other) && !SurelyEqual(other, shape);
  };
  EXPECT_TRUE(differs({2}));
  EXPECT_TRUE(differs({2, Dim::Symbol(0), 1}));
  EXPECT_TRUE(differs({2, Dim::Symbol(1)}));
  EXPECT_TRUE(differs({2, 5}));
  EXPECT_TRUE(differs({2, Dim()}));
  EXPECT_TRUE(differs({3, Dim::Symbol(0)}));
  EXPECT_FALSE(SurelyEqual(shape, std::nullopt));
  const SymbolicShape unknown = SymbolicDims{Dim()};
  EXPECT_FALSE(SurelyEqual(unknown, unknown));
  EXPECT_FALSE(SurelyEqual(std::nullopt, std::nullopt));
}

TEST(ShapeTest, StringsAndConversions) {
  const SymbolicShape shape = SymbolicDims{2, Dim::Symbol(4), Dim()};
  EXPECT_EQ(ShapeString(shape), "[2,s4,?]");
  EXPECT_EQ(ShapeString(std::nullopt), "[...]");
  EXPECT_EQ(ToConcrete(shape), std::nullopt);
  EXPECT_EQ(ToConcrete(std::nullopt), std::nullopt);
  EXPECT_EQ(ToConcrete(ToSymbolic({2, 3})), (Dims{2, 3}));
  EXPECT_EQ(DimsString({}), "[]");
  EXPECT_EQ(Product(SymbolicDims{2, 3}), Dim(6));
  EXPECT_EQ(Product(SymbolicDims{}), Dim(1));
  EXPECT_EQ(DenseStrides({2, 3, 4}), (Dims{12, 4, 1}));
}

TEST(BroadcastShapesTest, NumpysRule) {
  const auto broadcast = [](SymbolicDims a, SymbolicDims b) -> std::string {
    const auto result = BroadcastShapes(a, b);
    return result.ok() ? ShapeString(*result) : "refused";
  };
  const Dim n = Dim::Symbol(0);
  EXPECT_EQ(broadcast({}, {}), "[]");
  EXPECT_EQ(broadcast({2, 1, 4}, {3, 1}), "[2,3,4]");
  EXPECT_EQ(broadcast({4}, {2, 3, 4}), "[2,3,4]");
  EXPECT_EQ(broadcast({0}, {1}), "[0]");
  EXPECT_EQ(broadcast({2}, {3}), "refused");
  EXPECT_EQ(broadcast({0}, {2}), "refused");
  EXPECT_EQ(broadcast({n}, {1}), "[s0]");
  EXPECT_EQ(broadcast({n}, {n}), "[s0]");
  EXPECT_EQ(broadcast({n}, {5}), "[5]");
  EXPECT_EQ(broadcast({n}, {Dim::Symbol(1)}), "[?]");
  EXPECT_EQ(broadcast({Dim()}, {Dim()}), "[?]");
  const auto error = BroadcastShapes(SymbolicDims{2}, SymbolicDims{3});
  EXPECT_EQ(error.status().message(), "shapes [2] and [3] do not broadcast");
}

TEST(NormalizeAxisTest, WrapsOnce) {
  EXPECT_EQ(NormalizeAxis(-1, 3).value(), 2);
  EXPECT_EQ(NormalizeAxis(2, 3).value(), 2);
  EXPECT_FALSE(NormalizeAxis(3, 3).ok());
  EXPECT_FALSE(NormalizeAxis(-4, 3).ok());
  EXPECT_FALSE(NormalizeAxis(0, 0).ok());
  EXPECT_FALSE(NormalizeAxis(std::numeric_limits<int64_t>::min(), 3).ok());
}

}  // namespace
}  // namespace weir
