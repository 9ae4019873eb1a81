#include "kernels/ops/convolution_spec.h"

namespace weir::onednn {
namespace {

// oneDNN's own activations turn NaN into a number.
using Activation = ConvolutionSpec::Activation;

template <Activation kActivation>
float Activate(float x, float low, float high) {
  // Each line is one instruction, which gives x where x is NaN.
  if constexpr (kActivation == Activation::kRelu) {
    return 0.0f > x ? 0.0f : x;
  } else if constexpr (kActivation == Activation::kClip) {
    x = low > x ? low : x;
    return high < x ? high : x;
  } else {
    return x;
  }
}

template <Activation kActivation>
void FinishRow(const ConvolutionSpec& spec, const float* from,
               const float* __restrict residual, float* to, int64_t n) {
  const float low = spec.low, high = spec.high;
  // In place and out of it apart: each vectorizes.
  if (from == to) {
    float* __restrict both = to;
    if (residual == nullptr) {
      for (int64_t i = 0; i < n; ++i) {
        both[i] = Activate<kActivation>(both[i], low, high);
      }
    } else {
      for (int64_t i = 0; i < n; ++i) {
        both[i] = Activate<kActivation>(both[i] + residual[i], low, high);
      }
    }
    return;
  }
  const float* __restrict in = from;
  float* __restrict out = to;
  if (residual == nullptr) {
    for (int64_t i = 0; i < n; ++i) {
      out[i] = Activate<kActivation>(in[i], low, high);
    }
  } else {
    for (int64_t i = 0; i < n; ++i) {
      out[i] = Activate<kActivation>(in[i] + residual[i], low, high);
    }
  }
}

}  // namespace

void Finish(const ConvolutionSpec& spec, const float* from,
            const float* residual, float* to, int64_t n) {
  switch (spec.activation) {
    case Activation::kNone:
      return FinishRow<Activation::kNone>(spec, from, residual, to, n);
    case Activation::kRelu:
      return FinishRow<Activation::kRelu>(spec, from, residual, to, n);
    case Activation::kClip:
      return FinishRow<Activation::kClip>(spec, from, residual, to, n);
  }
}

void Finish(const ConvolutionSpec& spec, const float* residual, float* sums,
            int64_t n) {
  Finish(spec, sums, residual, sums, n);
}

}  // namespace weir::onednn
