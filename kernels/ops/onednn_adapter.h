// float32 matrix products and convolutions by oneDNN, whose headers only the
// .cc file includes. Every call computes in the calling thread alone; what is
// large is split into pieces over the CPU device's team. Strict float32: no
// reduced-precision products, no Winograd. All of it is thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/export.h"
#include "kernels/device/cpu_team.h"
#include "kernels/ops/convolution_spec.h"
#include "kernels/ops/shared_hold.h"

namespace weir::onednn {

// Row-major C = alpha * op(A) * op(B) + beta * C, where op(A) is m x k and
// op(B) is k x n. `lda`, `ldb`, `ldc` are distances between stored rows. C is
// not read when beta is 0. m, n and k are positive.
absl::Status Sgemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n,
                   int64_t k, float alpha, const float* a, int64_t lda,
                   const float* b, int64_t ldb, float beta, float* c,
                   int64_t ldc);

// A convolution prepared for its shapes. Immutable; runs may overlap. An image
// is cut into pieces by shape, whatever the batch: its result does not depend
// on its neighbors. A piece is one call of oneDNN, of at most 2.5e9 products
// where bands of rows and slices of channels can be that small; before each the
// team is asked whether the operator was given up.
class WEIR_EXPORT Convolution {
 public:
  // Weights in the forms that the pieces want: usually one, since oneDNN
  // chooses it by the channels. What holds constant weights packs them once.
  class Weights;

  // No size may be zero. Null where oneDNN has nothing for it that can be
  // trusted, a call would last for many seconds, one of over 2^36 products, or
  // the code for it would take over 128 MiB: that grows with the length of the
  // kernel's rows, and with AVX-512 of the image's, as far as they cannot be
  // cut.
  static absl::StatusOr<std::unique_ptr<const Convolution>> Create(
      const ConvolutionSpec& spec);
  ~Convolution();

  size_t forms() const;
  // Equal for convolutions that share a packed copy.
  std::string FormName(size_t form) const;
  size_t FormBytes(size_t form) const;
  // `weights` are out_channels x in_channels / groups x kernel; `packed` has
  // FormBytes, aligned to 64.
  absl::Status Pack(size_t form, const float* weights, std::byte* packed) const;
  // One copy for each form. Others may hold them, and read them meanwhile.
  absl::StatusOr<std::shared_ptr<const Weights>> Hold(
      std::vector<std::shared_ptr<const std::byte>> packed) const;

  // Bytes of scratch memory of a run, aligned to 64 bytes; more where weights
  // are packed by the run.
  size_t scratch_bytes(bool packs) const;

  // At most what this object and the Weights that it makes hold, without packed
  // copies. With oneDNN's code, which equal convolutions share as long as one
  // of them lives: the parts that are shared.
  size_t held_bytes() const;
  std::vector<SharedHold> shared_holds() const;

  // The names that oneDNN gives to what computes the pieces.
  std::string implementation() const;

  struct Operands {
    const float* input = nullptr;
    const float* weights = nullptr;  // packed by the run, without:
    const Weights* held = nullptr;
    const float* bias = nullptr;
    const float* residual = nullptr;
    float* output = nullptr;
  };
  // `team` may be null.
  absl::Status Run(CpuTeam* team, const Operands& operands,
                   void* scratch) const;

 private:
  struct State;
  absl::Status PackAsking(CpuTeam* team, size_t form, const float* weights,
                          std::byte* packed) const;
  explicit Convolution(std::unique_ptr<const State> state);
  const std::unique_ptr<const State> state_;
};

}  // namespace weir::onednn
