// Transpose, Slice, Expand, Concat, Split, Pad and Gather: elements are moved
// as words of their size.
#include "kernels/ops/movement.h"

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops/cuda/codegen.h"
#include "kernels/ops/cuda/elementwise.h"
#include "kernels/ops/cuda/node_kernel.h"
#include "kernels/ops/gather.h"
#include "kernels/ops/merged_loop.h"

namespace weir::cuda {
namespace {

std::string Text(std::string_view s) { return std::string(s); }

absl::StatusOr<PlannedRun> PlanView(CudaDevice* device, DType dtype,
                                    StridedView view) {
  ElementwiseSpec spec;
  spec.expression = "x0";
  spec.moves = true;
  spec.output = dtype;
  spec.dims = std::move(view.dims);
  spec.inputs = {{spec.output, std::move(view.strides), view.offset}};
  WEIR_ASSIGN_OR_RETURN(std::shared_ptr<const ElementwiseLoop> loop,
                        ElementwiseLoop::Make(device, spec));
  return PlannedRun{[loop](const RunArgs& run) {
                      return loop->Run(run.stream, run.inputs.subspan(0, 1),
                                       run.outputs[0], run.node_index);
                    },
                    {loop->hold()}};
}

// -- Transpose ----------------------------------------------------------------

struct MatrixSwap {
  uint64_t batch = 1, rows = 0, columns = 0;
};

// A transposition that swaps the last two of at most three merged dims: the
// input's matrices lie dense.
std::optional<MatrixSwap> AsMatrixSwap(const StridedView& transposed) {
  MergedLoop loop(1);
  for (size_t d = 0; d < transposed.dims.size(); ++d) {
    loop.Append(transposed.dims[d], {&transposed.strides[d], 1});
  }
  const Dims& strides = loop.strides[0];
  const size_t rank = loop.dims.size();
  if (rank < 2 || rank > 3) return std::nullopt;
  const int64_t columns = loop.dims[rank - 2], rows = loop.dims[rank - 1];
  if (strides[rank - 2] != 1 || strides[rank - 1] != columns ||
      (rank == 3 && strides[0] != rows * columns)) {
    return std::nullopt;
  }
  return MatrixSwap{rank == 3 ? static_cast<uint64_t>(loop.dims[0]) : 1,
                    static_cast<uint64_t>(rows),
                    static_cast<uint64_t>(columns)};
}

absl::StatusOr<PlannedRun> SwapMatrices(CudaDevice* device, DType dtype,
                                        const MatrixSwap& swap) {
  WEIR_ASSIGN_OR_RETURN(
      GeneratedKernel kernel,
      GeneratedKernel::Make(device, Text(PreludeSource()) +
                                        Define("E", WordType(SizeOf(dtype))) +
                                        Text(TransposeSource())));
  const uint64_t row_tiles = (swap.rows + 31) / 32;
  const uint64_t column_tiles = (swap.columns + 31) / 32;
  Grid grid;
  grid.x = swap.batch * row_tiles * column_tiles;
  return PlannedRun{[=](const RunArgs& run) {
                      Words words;
                      words.Add(run.inputs[0]).Add(run.outputs[0]);
                      words.Add(swap.batch).Add(swap.rows).Add(swap.columns);
                      words.Add(row_tiles).Add(column_tiles);
                      return kernel.Launch(run.stream, grid, words);
                    },
                    {kernel.hold()}};
}

// Output dim d is input dim perm[d].
absl::StatusOr<PlannedRun> PlanTranspose(CudaDevice* device, DType dtype,
                                         const Dims& in,
                                         const std::vector<size_t>& perm) {
  if (SaturatingProduct(in) == 0) {
    return PlannedRun{[](const RunArgs&) { return absl::OkStatus(); }};
  }
  StridedView view = TransposeViewOf(in, perm);
  const std::optional<MatrixSwap> swap = AsMatrixSwap(view);
  if (swap.has_value() && swap->rows >= 16 && swap->columns >= 16) {
    return SwapMatrices(device, dtype, *swap);
  }
  return PlanView(device, dtype, std::move(view));
}

absl::StatusOr<PlanFunction> CompileTranspose(const NodeInfo& node,
                                              CudaDevice* device) {
  WEIR_RETURN_IF_ERROR(RefuseStrings(node));
  return PlanFunction(
      [node, device](const PlanArgs& args) -> absl::StatusOr<PlannedRun> {
        const TensorMeta& in = args.inputs[0];
        WEIR_ASSIGN_OR_RETURN(const std::vector<size_t> perm,
                              PermutationOf(node, in.dims.size()));
        return PlanTranspose(device, in.dtype, in.dims, perm);
      });
}

// The matrix of channels and pixels of each image, transposed.
absl::StatusOr<PlanFunction> CompileRelayout(const NodeInfo&,
                                             CudaDevice* device) {
  return PlanFunction([device](const PlanArgs& args) {
    const TensorMeta& x = args.inputs[0];
    return PlanTranspose(device, x.dtype, RelayoutDims(x.dims, x.layout),
                         {0, 2, 1});
  });
}

// -- Slice, Expand ------------------------------------------------------------

absl::StatusOr<PlanFunction> CompileSlice(const NodeInfo& node,
                                          CudaDevice* device) {
  WEIR_RETURN_IF_ERROR(RefuseStrings(node));
  return PlanFunction(
      [node, device](const PlanArgs& args) -> absl::StatusOr<PlannedRun> {
        WEIR_ASSIGN_OR_RETURN(StridedView view, SliceViewOf(node, args));
        return PlanView(device, args.inputs[0].dtype, std::move(view));
      });
}

absl::StatusOr<PlanFunction> CompileExpand(const NodeInfo& node,
                                           CudaDevice* device) {
  WEIR_RETURN_IF_ERROR(RefuseStrings(node));
  return PlanFunction([device](
                          const PlanArgs& args) -> absl::StatusOr<PlannedRun> {
    return PlanView(device, args.inputs[0].dtype,
                    ExpandViewOf(args.inputs[0].dims, args.outputs[0].dims));
  });
}

// -- Concat, Split ------------------------------------------------------------

// Copies between a matrix and any number of operands that lie side by side in
// its columns: into it (Concat) or out of it (Split).
class ColumnCopy {
 public:
  static absl::StatusOr<ColumnCopy> Make(CudaDevice* device, bool join,
                                         const SideBySide& operands) {
    ColumnCopy copy;
    if (operands.empty()) return copy;
    copy.rows_ = static_cast<uint64_t>(operands.rows);
    uint64_t bits = 0;
    for (const int64_t width : operands.widths) {
      copy.widths_.push_back(static_cast<uint64_t>(width));
      bits |= copy.widths_.back();
      if (width > 0) ++copy.filled_;
    }
    while (copy.word_ > 1 && bits % copy.word_ != 0) copy.word_ /= 2;
    for (uint64_t& width : copy.widths_) width /= copy.word_;
    copy.pitch_ = static_cast<uint64_t>(operands.pitch) / copy.word_;
    while (copy.most_ < kMostColumns && copy.most_ < copy.filled_) {
      copy.most_ *= kColumnsStep;
    }
    WEIR_ASSIGN_OR_RETURN(
        copy.kernel_,
        GeneratedKernel::Make(
            device,
            Text(PreludeSource()) +
                Define("E", copy.word_ == 16 ? "uint4" : WordType(copy.word_)) +
                Define("MOVE_COLUMNS", "1") + Define("JOIN", join ? "1" : "0") +
                Define("COLUMNS", absl::StrCat(copy.most_)) +
                Text(MovementSource())));
    return copy;
  }

  size_t launches() const { return (filled_ + most_ - 1) / most_; }

  std::vector<SharedHold> holds() const {
    if (widths_.empty()) return {};
    return {kernel_.hold()};
  }

  absl::Status Run(Stream& stream, const void* matrix,
                   absl::Span<const void* const> operands) const {
    if (rows_ == 0) return absl::OkStatus();
    auto* first = static_cast<const std::byte*>(matrix);
    Dims ends;
    absl::InlinedVector<const void*, kFewColumns> filled;
    uint64_t columns = 0;
    for (size_t i = 0; i < widths_.size(); ++i) {
      if (widths_[i] > 0) {
        columns += widths_[i];
        ends.push_back(static_cast<int64_t>(columns));
        filled.push_back(operands[i]);
      }
      const bool last = i + 1 == widths_.size();
      if (filled.empty() || (filled.size() < most_ && !last)) continue;
      Words words;
      words.Add(first).Add(rows_).Add(pitch_).Add(uint64_t{filled.size()});
      words.AddArray(ends, most_);
      for (size_t k = 0; k < most_; ++k) {
        words.Add(k < filled.size() ? filled[k] : nullptr);
      }
      Grid grid = GridFor(rows_ * columns);
      grid.x = std::min(grid.x, kMostBlocks);
      WEIR_RETURN_IF_ERROR(kernel_.Launch(stream, grid, words));
      first += columns * word_;
      ends.clear();
      filled.clear();
      columns = 0;
    }
    return absl::OkStatus();
  }

 private:
  // Operands of one launch, whose table is a parameter of the kernel: 4, 64 or
  // 1024. Parameters may have 32,764 bytes.
  static constexpr size_t kFewColumns = 4;
  static constexpr size_t kColumnsStep = 16;
  static constexpr size_t kMostColumns = 1024;
  static constexpr uint64_t kMostBlocks = 0x7fffffff;  // the kernel loops

  GeneratedKernel kernel_;
  uint64_t word_ = 16;  // bytes that are moved at a time
  uint64_t rows_ = 0, pitch_ = 0;
  std::vector<uint64_t> widths_;  // in words, as pitch_
  size_t filled_ = 0;             // operands that are not empty
  size_t most_ = kFewColumns;     // of one launch
};

absl::StatusOr<PlanFunction> CompileConcat(const NodeInfo& node,
                                           CudaDevice* device) {
  WEIR_RETURN_IF_ERROR(RefuseStrings(node));
  return PlanFunction(
      [node, device](const PlanArgs& args) -> absl::StatusOr<PlannedRun> {
        WEIR_ASSIGN_OR_RETURN(const SideBySide inputs,
                              SideBySideOf(node, args.outputs[0], args.inputs));
        WEIR_ASSIGN_OR_RETURN(ColumnCopy made,
                              ColumnCopy::Make(device, /*join=*/true, inputs));
        PlannedRun planned;
        planned.launches = made.launches();
        planned.shared_holds = made.holds();
        planned.run = [copy = std::move(made)](const RunArgs& run) {
          return copy.Run(run.stream, run.outputs[0], run.inputs);
        };
        return planned;
      });
}

absl::StatusOr<PlanFunction> CompileSplit(const NodeInfo& node,
                                          CudaDevice* device) {
  WEIR_RETURN_IF_ERROR(RefuseStrings(node));
  return PlanFunction(
      [node, device](const PlanArgs& args) -> absl::StatusOr<PlannedRun> {
        WEIR_ASSIGN_OR_RETURN(const SideBySide outputs,
                              SideBySideOf(node, args.inputs[0], args.outputs));
        WEIR_ASSIGN_OR_RETURN(
            ColumnCopy made, ColumnCopy::Make(device, /*join=*/false, outputs));
        PlannedRun planned;
        planned.launches = made.launches();
        planned.shared_holds = made.holds();
        planned.run = [copy = std::move(made)](const RunArgs& run) {
          return copy.Run(run.stream, run.inputs[0], run.outputs);
        };
        return planned;
      });
}

// -- Pad ----------------------------------------------------------------------

absl::StatusOr<PlanFunction> CompilePad(const NodeInfo& node,
                                        CudaDevice* device) {
  WEIR_RETURN_IF_ERROR(RefuseStrings(node));
  WEIR_ASSIGN_OR_RETURN(const PadCopy::Mode mode, PadModeOf(node));
  const int mode_number = static_cast<int>(mode);
  return PlanFunction([node, device, mode_number](
                          const PlanArgs& args) -> absl::StatusOr<PlannedRun> {
    const TensorMeta& in = args.inputs[0];
    const TensorMeta& out = args.outputs[0];
    const size_t rank = in.dims.size();
    WEIR_ASSIGN_OR_RETURN(const Dims before, PadsBefore(node, args));
    WEIR_ASSIGN_OR_RETURN(
        GeneratedKernel kernel,
        GeneratedKernel::Make(
            device, Text(PreludeSource()) +
                        Define("E", WordType(SizeOf(in.dtype))) +
                        Define("MOVE_PAD", "1") + Text(MovementSource())));
    const bool has_value = !IsMissing(args, 2);
    return PlannedRun{
        [=, in_dims = in.dims, out_dims = out.dims,
         elements = static_cast<uint64_t>(out.elements)](const RunArgs& run) {
          if (elements == 0) return absl::OkStatus();
          Words words;
          words.Add(run.inputs[0]).Add(run.outputs[0]);
          words.Add(has_value ? run.inputs[2] : nullptr);
          words.Add(elements).Add(uint64_t{rank}).Add(mode_number);
          words.AddArray(out_dims, 8).AddArray(in_dims, 8);
          words.AddArray(DenseStrides(in_dims), 8).AddArray(before, 8);
          return kernel.Launch(run.stream, GridFor(elements), words);
        },
        {kernel.hold()}};
  });
}

// -- Gather -------------------------------------------------------------------

absl::StatusOr<PlanFunction> CompileGather(const NodeInfo& node,
                                           CudaDevice* device) {
  WEIR_RETURN_IF_ERROR(RefuseStrings(node));
  return PlanFunction([node, device](
                          const PlanArgs& args) -> absl::StatusOr<PlannedRun> {
    WEIR_ASSIGN_OR_RETURN(const GatherShape shape, GatherShapeOf(node, args));
    if (shape.elements() == 0) {
      return PlannedRun{[](const RunArgs&) { return absl::OkStatus(); }};
    }
    // Whole rows are moved in the widest words that divide them.
    const uint64_t row =
        SizeOf(args.inputs[0].dtype) * static_cast<uint64_t>(shape.inner);
    uint64_t word = 8;
    while (word > 1 && row % word != 0) word /= 2;
    WEIR_ASSIGN_OR_RETURN(
        GeneratedKernel kernel,
        GeneratedKernel::Make(
            device, Text(PreludeSource()) + Define("E", WordType(word)) +
                        Define("INDEX", StorageType(args.inputs[1].dtype)) +
                        Define("MOVE_GATHER", "1") + Text(MovementSource())));
    const uint64_t inner = row / word;
    const uint64_t elements = static_cast<uint64_t>(shape.rows()) * inner;
    return PlannedRun{
        [=](const RunArgs& run) {
          Words words;
          words.Add(run.inputs[0]).Add(run.inputs[1]).Add(run.outputs[0]);
          words.Add(elements).Add(shape.axis).Add(shape.indices).Add(inner);
          words.Add(run.stream.fault_slot()).Add(uint64_t{run.node_index});
          return kernel.Launch(run.stream, GridFor(elements), words);
        },
        {kernel.hold()}};
  });
}

}  // namespace

absl::Status RegisterMovement(OpRegistry& registry) {
  WEIR_RETURN_IF_ERROR(
      RegisterNode(registry, "", "Transpose", CompileTranspose));
  WEIR_RETURN_IF_ERROR(
      RegisterNode(registry, "weir", "Relayout", CompileRelayout));
  WEIR_RETURN_IF_ERROR(RegisterNode(registry, "", "Slice", CompileSlice));
  WEIR_RETURN_IF_ERROR(RegisterNode(registry, "", "Expand", CompileExpand));
  WEIR_RETURN_IF_ERROR(RegisterNode(registry, "", "Concat", CompileConcat));
  WEIR_RETURN_IF_ERROR(RegisterNode(registry, "", "Split", CompileSplit));
  WEIR_RETURN_IF_ERROR(RegisterNode(registry, "", "Pad", CompilePad));
  return RegisterNode(registry, "", "Gather", CompileGather);
}

}  // namespace weir::cuda
