// model_bench must not pass on a wrong answer or a missed limit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/bench/model_case.h"
#include "tests/bench/model_limits.h"

namespace weir::bench {
namespace {

std::string Bytes(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(float)};
}

CaseTensor Reference(const std::vector<float>& values) {
  return {.name = "y",
          .datatype = "FP32",
          .dtype = DType::kFloat,
          .dims = {static_cast<int64_t>(values.size())},
          .bytes = Bytes(values)};
}

TEST(ModelJudge, TheErrorIsTheLargestDeviationOverTheSpread) {
  const CaseTensor reference = Reference({-2, 2, -2, 2});  // deviation 2
  const auto error = [&](const std::vector<float>& values) {
    return RelativeError(reference, DType::kFloat, {4}, Bytes(values));
  };
  EXPECT_EQ(error({-2, 2, -2, 2}), 0);
  EXPECT_DOUBLE_EQ(error({-2, 2, -2, 2.5f}), .25);
  EXPECT_DOUBLE_EQ(error({-2, 1.5f, -3, 2}), .5);
}

TEST(ModelJudge, HalvesAreComparedAsNumbers) {
  const CaseTensor reference = Reference({-2, 2, -2, 2});
  const Float16 halves[] = {Float16(-2), Float16(2), Float16(-2), Float16(3)};
  EXPECT_DOUBLE_EQ(
      RelativeError(reference, DType::kFloat16, {4},
                    {reinterpret_cast<const char*>(halves), sizeof(halves)}),
      .5);
}

TEST(ModelJudge, AnotherShapeOrNoNumberIsInfinitelyWrong) {
  const CaseTensor reference = Reference({-2, 2, -2, 2});
  const double kWrong = std::numeric_limits<double>::infinity();
  const std::string bytes = reference.bytes;
  EXPECT_EQ(RelativeError(reference, DType::kFloat, {2, 2}, bytes), kWrong);
  EXPECT_EQ(RelativeError(reference, DType::kFloat, {4}, bytes.substr(4)),
            kWrong);
  for (const float bad :
       {std::nanf(""), std::numeric_limits<float>::max() * 2}) {
    EXPECT_EQ(
        RelativeError(reference, DType::kFloat, {4}, Bytes({-2, 2, bad, 2})),
        kWrong);
  }
}

TEST(ModelJudge, ALimitIsATimeOrARatio) {
  const auto ratio = ParseModelLimit("resnet50/fp32/1=1.5x");
  ASSERT_TRUE(ratio.ok()) << ratio.status();
  EXPECT_EQ(ratio->which, "resnet50/fp32/1");
  EXPECT_EQ(Missed(*ratio, 15, 10), std::nullopt);
  EXPECT_EQ(Missed(*ratio, 16, 10), "resnet50/fp32/1=1.5x: 1.60x");
  const auto time = ParseModelLimit("bert-base/fp16/8=2.5ms");
  ASSERT_TRUE(time.ok()) << time.status();
  EXPECT_EQ(Missed(*time, 2.5, std::nullopt), std::nullopt);
  EXPECT_EQ(Missed(*time, 2.6, std::nullopt),
            "bert-base/fp16/8=2.5ms: 2.600 ms");
}

TEST(ModelJudge, ARatioWithoutARivalDoesNotHold) {
  const auto limit = ParseModelLimit("resnet50/fp32/1=1.5x");
  ASSERT_TRUE(limit.ok()) << limit.status();
  EXPECT_EQ(Missed(*limit, .1, std::nullopt),
            "resnet50/fp32/1=1.5x: no rival ran");
}

TEST(ModelJudge, AMistypedLimitIsRefused) {
  for (const char* text :
       {"", "resnet50=1.5x", "resnet50/fp32/1=1.5", "resnet50/fp32/1=x",
        "resnet50/fp32/1=-1ms", "resnet50/fp32/1=0x", "resnet50/fp32/1"}) {
    EXPECT_FALSE(ParseModelLimit(text).ok()) << text;
  }
}

TEST(ModelJudge, TheTargetsAreForTwoThreadsAndTheH200) {
  EXPECT_EQ(DefaultModelLimits(true, "Xeon", 2).size(), 3u);
  EXPECT_TRUE(DefaultModelLimits(true, "Xeon", 4).empty());
  EXPECT_EQ(DefaultModelLimits(false, "NVIDIA H200", 2).size(), 3u);
  EXPECT_TRUE(DefaultModelLimits(false, "NVIDIA H100 80GB HBM3", 2).empty());
}

}  // namespace
}  // namespace weir::bench
