// What follows a convolution's sums.
#include "kernels/ops/convolution_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace weir::onednn {
namespace {

using Activation = ConvolutionSpec::Activation;
using ::testing::NanSensitiveFloatEq;

constexpr float kNan = NAN;

std::vector<float> Finished(Activation activation, const float* residual,
                            bool in_place) {
  ConvolutionSpec spec;
  spec.activation = activation;
  spec.low = -1;
  spec.high = 2;
  std::vector<float> sums = {-5, -0.5f, 0, 1, 7, kNan};
  const auto n = static_cast<int64_t>(sums.size());
  if (in_place) {
    Finish(spec, residual, sums.data(), n);
    return sums;
  }
  std::vector<float> to(sums.size());
  Finish(spec, sums.data(), residual, to.data(), n);
  return to;
}

auto Floats(const std::vector<float>& values) {
  std::vector<::testing::Matcher<float>> matchers;
  for (const float value : values) {
    matchers.emplace_back(NanSensitiveFloatEq(value));
  }
  return ::testing::ElementsAreArray(matchers);
}

TEST(ConvolutionSpecTest, ActivationsKeepNanAndActInPlaceAsOutOfIt) {
  const float residual[] = {1, 1, 1, 1, 1, 1};
  for (const bool in_place : {true, false}) {
    SCOPED_TRACE(in_place);
    EXPECT_THAT(Finished(Activation::kNone, nullptr, in_place),
                Floats({-5, -0.5f, 0, 1, 7, kNan}));
    EXPECT_THAT(Finished(Activation::kRelu, nullptr, in_place),
                Floats({0, 0, 0, 1, 7, kNan}));
    EXPECT_THAT(Finished(Activation::kClip, nullptr, in_place),
                Floats({-1, -0.5f, 0, 1, 2, kNan}));
    EXPECT_THAT(Finished(Activation::kNone, residual, in_place),
                Floats({-4, 0.5f, 1, 2, 8, kNan}));
    EXPECT_THAT(Finished(Activation::kRelu, residual, in_place),
                Floats({0, 0.5f, 1, 2, 8, kNan}));
    EXPECT_THAT(Finished(Activation::kClip, residual, in_place),
                Floats({-1, 0.5f, 1, 2, 2, kNan}));
  }
}

}  // namespace
}  // namespace weir::onednn
