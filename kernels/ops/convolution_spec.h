// What a convolution on the CPU is: its shapes, and what follows its sums.
// Pure.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/base/export.h"

namespace weir::onednn {

// A convolution of dense tensors, N x C x spatial, row-major or with channels
// last. Arrays hold the spatial axes in order; unused ones have size 1, kernel
// 1, stride 1, no padding.
struct ConvolutionSpec {
  enum class Activation { kNone, kRelu, kClip };

  int64_t batch = 1;
  int64_t in_channels = 0;
  int64_t out_channels = 0;
  int64_t groups = 1;
  bool bias = false;
  bool channels_last = false;                 // input, output and residual
  bool residual = false;                      // one is added to the result
  Activation activation = Activation::kNone;  // after that
  float low = 0, high = 0;                    // of kClip
  std::array<int64_t, 3> in = {1, 1, 1};
  std::array<int64_t, 3> out = {1, 1, 1};
  std::array<int64_t, 3> kernel = {1, 1, 1};
  std::array<int64_t, 3> stride = {1, 1, 1};
  std::array<int64_t, 3> dilation = {1, 1, 1};
  std::array<int64_t, 3> pad_begin = {0, 0, 0};
};

// What `spec` does with `n` sums in the end, in place: `residual` of as many is
// added, if it is not null, and the activation applied.
WEIR_EXPORT void Finish(const ConvolutionSpec& spec, const float* residual,
                        float* sums, int64_t n);
// The same, from `sums` to `to`, which may be one place and else do not meet.
WEIR_EXPORT void Finish(const ConvolutionSpec& spec, const float* sums,
                        const float* residual, float* to, int64_t n);

}  // namespace weir::onednn
