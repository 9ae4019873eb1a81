// What cuDNN's wrapper refuses by itself. Needs the library, not a GPU.
#include "kernels/device/cuda/cudnn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace weir::cuda {
namespace {

using ::testing::HasSubstr;

ConvolutionSpec Spec(std::vector<int64_t> in, std::vector<int64_t> weights,
                     std::vector<int64_t> out) {
  ConvolutionSpec spec;
  spec.in = std::move(in);
  spec.weights = std::move(weights);
  spec.out = std::move(out);
  spec.pad_begin = spec.pad_end = spec.stride = spec.dilation = {1, 1};
  return spec;
}

// Strides and counts of elements are int there: what does not fit must not
// wrap.
TEST(CudnnTest, TensorsBeyondIntAreRefused) {
  auto cudnn = Cudnn::Open();
  if (absl::IsUnimplemented(cudnn.status())) GTEST_SKIP() << cudnn.status();
  ASSERT_TRUE(cudnn.ok()) << cudnn.status();
  const std::vector<int64_t> small = {1, 1, 8, 8};
  const std::vector<int64_t> large = {1, 3, 1 << 15, 1 << 15};
  const std::vector<int64_t> batch = {3, 1, 1 << 15, 1 << 15};
  const std::vector<int64_t> filter = {1, 1, 3, 3};
  for (const ConvolutionSpec& spec :
       {Spec(large, filter, small), Spec(small, filter, large),
        Spec(batch, filter, small), Spec(small, large, small)}) {
    const absl::Status status = (*cudnn)->Prepare(spec).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("32768,32768"));
  }
}

}  // namespace
}  // namespace weir::cuda
