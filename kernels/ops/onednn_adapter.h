// float32 matrix products and convolutions by oneDNN, whose headers only the
// .cc file includes. Every call computes in the calling thread alone; what is
// large is split into pieces over the CPU device's team. Strict float32: no
// reduced-precision products, no Winograd. All of it is thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device/cpu_team.h"

namespace weir::onednn {

// Row-major C = alpha * op(A) * op(B) + beta * C, where op(A) is m x k and
// op(B) is k x n. `lda`, `ldb`, `ldc` are distances between stored rows. C is
// not read when beta is 0. m, n and k are positive.
absl::Status Sgemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n,
                   int64_t k, float alpha, const float* a, int64_t lda,
                   const float* b, int64_t ldb, float beta, float* c,
                   int64_t ldc);

// A convolution of dense tensors, N x C x spatial. Arrays hold the spatial axes
// in order; unused ones have size 1, kernel 1, stride 1, no padding.
struct ConvolutionSpec {
  int64_t batch = 1;
  int64_t in_channels = 0;
  int64_t out_channels = 0;
  int64_t groups = 1;
  bool bias = false;
  std::array<int64_t, 3> in = {1, 1, 1};
  std::array<int64_t, 3> out = {1, 1, 1};
  std::array<int64_t, 3> kernel = {1, 1, 1};
  std::array<int64_t, 3> stride = {1, 1, 1};
  std::array<int64_t, 3> dilation = {1, 1, 1};
  std::array<int64_t, 3> pad_begin = {0, 0, 0};
};

// A convolution prepared for its shapes. Immutable; runs may overlap.
class Convolution {
 public:
  // No size may be zero.
  static absl::StatusOr<std::unique_ptr<const Convolution>> Create(
      const ConvolutionSpec& spec);
  ~Convolution();

  // Bytes of scratch memory of a run, aligned to 64 bytes.
  size_t scratch_bytes() const;

  // `weights` are out_channels x in_channels / groups x kernel. `team` may be
  // null.
  absl::Status Run(CpuTeam* team, const float* input, const float* weights,
                   const float* bias, float* output, void* scratch) const;

 private:
  struct State;
  explicit Convolution(std::unique_ptr<const State> state);
  const std::unique_ptr<const State> state_;
};

}  // namespace weir::onednn
