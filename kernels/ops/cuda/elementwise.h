// Elementwise and broadcast kernels generated from an operator's scalar
// expression. Shapes are arguments, and so are values of attributes (see
// ElementwiseSpec::words). The text depends on expression and element types,
// and on what LayOut makes of a shape: the rank once axes are merged (up to the
// node's), the elements a thread handles side by side (1, 2, 4, 8 or 16), the
// width of an index, and of each input whether it stands still along the last
// axis, is dense or steps. Shapes alike in these share a text, whatever their
// sizes. Any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/device/cuda/cuda_device.h"
#include "kernels/ops/cuda/codegen.h"
#include "kernels/ops/merged_loop.h"
#include "kernels/ops/op.h"
#include "kernels/tensor/dtype.h"
#include "kernels/tensor/shape.h"

namespace weir::cuda {

// One operand of a strided loop: element strides over the loop's dims, which
// may be 0 or negative, and the element where it begins.
struct Operand {
  DType dtype = DType::kInvalid;
  Dims strides;
  int64_t offset = 0;
};

// out[i] = expression(in0[...], in1[...], ...) for every index i of `dims`. The
// output is dense.
struct ElementwiseSpec {
  std::string expression;
  std::vector<Operand> inputs;
  DType output = DType::kInvalid;
  Dims dims;
  // Arguments of the kernel: the expression reads element i as WORD(i), an
  // unsigned integer, or as NUMBER(i), the double whose bits it holds.
  Words words = {};
  // The value is bits, not a number: an input of the output's type, or a
  // pattern. The output and the inputs of its type stand in the text as
  // unsigned integers of their size, so that nothing can convert them.
  bool moves = false;
};

// Where the generated text differs; exposed for tests.
struct ElementwiseLayout {
  // Coalesced, outermost first; at least one.
  Dims dims;
  std::vector<Dims> strides;  // per input
  std::vector<int64_t> offsets;
  int vector = 1;     // elements a thread handles side by side
  bool wide = false;  // 64-bit index arithmetic
};
ElementwiseLayout LayOut(const ElementwiseSpec& spec);
std::string ElementwiseSource(const ElementwiseSpec& spec,
                              const ElementwiseLayout& layout);

// A loop compiled for one device and shape. Immutable; runs may overlap.
class ElementwiseLoop {
 public:
  static absl::StatusOr<std::unique_ptr<const ElementwiseLoop>> Make(
      CudaDevice* device, const ElementwiseSpec& spec);

  absl::Status Run(Stream& stream, absl::Span<const void* const> inputs,
                   void* output, uint32_t node_index) const;

  SharedHold hold() const;  // GeneratedKernel::hold

 private:
  struct State;
  explicit ElementwiseLoop(std::shared_ptr<const State> state)
      : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

}  // namespace weir::cuda
