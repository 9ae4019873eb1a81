// Softmax, LayerNormalization and BatchNormalization.
#include "kernels/ops/normalization.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/alignment.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops/cuda/codegen.h"
#include "kernels/ops/cuda/elementwise.h"
#include "kernels/ops/cuda/node_kernel.h"

namespace weir::cuda {
namespace {

struct RowKernel {
  GeneratedKernel kernel;
  uint64_t rows = 0, length = 0, stride = 1;

  absl::Status Launch(const RunArgs& run, const void* scale, const void* bias,
                      void* mean, void* deviation, double epsilon) const {
    // Rows of no length have a mean and a deviation too: NaN.
    if (rows == 0) return absl::OkStatus();
    Grid grid;
    grid.x = std::min<uint64_t>(rows, 1u << 20);
    // About four elements a thread, in whole warps.
    grid.block = static_cast<unsigned>(
        std::clamp<uint64_t>((length / 4 + 31) / 32 * 32, 32, 512));
    Words words;
    words.Add(run.inputs[0]).Add(run.outputs[0]);
    words.Add(rows).Add(length).Add(stride);
    words.Add(scale).Add(bias).Add(mean).Add(deviation).Add(epsilon);
    return kernel.Launch(run.stream, grid, words);
  }
};

absl::StatusOr<RowKernel> MakeRowKernel(CudaDevice* device, DType dtype,
                                        DType scale, DType statistics,
                                        bool layer_norm) {
  RowKernel row;
  WEIR_ASSIGN_OR_RETURN(
      row.kernel,
      GeneratedKernel::Make(
          device,
          absl::StrCat(
              std::string(PreludeSource()), Define("S", StorageType(dtype)),
              Define("A", dtype == DType::kDouble ? "double" : "float"),
              Define("S_SCALE", StorageType(scale)),
              Define("S_STAT", StorageType(statistics)),
              Define("LAYER_NORM", layer_norm ? "1" : "0"),
              std::string(NormalizationSource()))));
  return row;
}

absl::StatusOr<PlanFunction> CompileSoftmax(const NodeInfo& node,
                                            CudaDevice* device) {
  return PlanFunction(
      [node, device](const PlanArgs& args) -> absl::StatusOr<PlannedRun> {
        const TensorMeta& in = args.inputs[0];
        WEIR_ASSIGN_OR_RETURN(const SoftmaxShape shape,
                              SoftmaxShapeOf(node, in.dims));
        WEIR_ASSIGN_OR_RETURN(
            RowKernel row,
            MakeRowKernel(device, in.dtype, in.dtype, in.dtype, false));
        row.length = static_cast<uint64_t>(shape.length);
        row.stride = static_cast<uint64_t>(shape.stride);
        row.rows = static_cast<uint64_t>(shape.rows());
        return PlannedRun{[row](const RunArgs& run) {
                            return row.Launch(run, nullptr, nullptr, nullptr,
                                              nullptr, 0);
                          },
                          {row.kernel.hold()}};
      });
}

// LayerNormalization's scale or bias with one element for each of a row: where
// it is broadcast over the normalized axes, it is written out first.
struct WholeRow {
  size_t input = 0;
  std::shared_ptr<const ElementwiseLoop> expand;  // null: as it is
  size_t scratch_offset = 0, scratch_bytes = 0;

  size_t launches() const { return expand == nullptr ? 0 : 1; }

  absl::StatusOr<const void*> Get(const RunArgs& run) const {
    if (expand == nullptr) return InputOrNull(run, input);
    void* whole = static_cast<std::byte*>(run.scratch) + scratch_offset;
    WEIR_RETURN_IF_ERROR(expand->Run(run.stream, run.inputs.subspan(input, 1),
                                     whole, run.node_index));
    return whole;
  }
};

absl::StatusOr<WholeRow> MakeWholeRow(CudaDevice* device, const PlanArgs& args,
                                      size_t input, const LayerNormShape& shape,
                                      size_t scratch_offset) {
  WholeRow row;
  row.input = input;
  if (IsMissing(args, input)) return row;
  const TensorMeta& given = args.inputs[input];
  if (given.elements == shape.length) return row;
  ElementwiseSpec copy;
  copy.expression = "x0";
  copy.output = given.dtype;
  copy.dims = shape.normalized;
  copy.inputs = {
      {given.dtype, BroadcastStrides(given.dims, shape.normalized), 0}};
  WEIR_ASSIGN_OR_RETURN(row.expand, ElementwiseLoop::Make(device, copy));
  row.scratch_offset = scratch_offset;
  row.scratch_bytes =
      AlignUp(static_cast<size_t>(shape.length) * SizeOf(given.dtype));
  return row;
}

absl::StatusOr<PlanFunction> CompileLayerNormalization(const NodeInfo& node,
                                                       CudaDevice* device) {
  return PlanFunction(
      [node, device](const PlanArgs& args) -> absl::StatusOr<PlannedRun> {
        const TensorMeta& in = args.inputs[0];
        WEIR_ASSIGN_OR_RETURN(const LayerNormShape shape,
                              LayerNormShapeOf(node, in.dims));
        WEIR_ASSIGN_OR_RETURN(
            RowKernel row, MakeRowKernel(device, in.dtype, args.inputs[1].dtype,
                                         shape.statistics, true));
        row.length = static_cast<uint64_t>(shape.length);
        row.rows = static_cast<uint64_t>(shape.rows);
        PlannedRun planned;
        if (row.rows == 0) {  // nothing is computed, nor charged
          planned.run = [](const RunArgs&) { return absl::OkStatus(); };
          return planned;
        }
        WEIR_ASSIGN_OR_RETURN(const WholeRow scale,
                              MakeWholeRow(device, args, 1, shape, 0));
        WEIR_ASSIGN_OR_RETURN(
            const WholeRow bias,
            MakeWholeRow(device, args, 2, shape, scale.scratch_bytes));
        planned.scratch_bytes = scale.scratch_bytes + bias.scratch_bytes;
        planned.launches = 1 + scale.launches() + bias.launches();
        planned.shared_holds = {row.kernel.hold()};
        for (const WholeRow* whole : {&scale, &bias}) {
          if (whole->expand == nullptr) continue;
          planned.shared_holds.push_back(whole->expand->hold());
        }
        planned.run = [row, scale, bias, epsilon = shape.epsilon](
                          const RunArgs& run) -> absl::Status {
          WEIR_ASSIGN_OR_RETURN(const void* scales, scale.Get(run));
          WEIR_ASSIGN_OR_RETURN(const void* biases, bias.Get(run));
          return row.Launch(run, scales, biases, OutputOrNull(run, 1),
                            OutputOrNull(run, 2), epsilon);
        };
        return planned;
      });
}

// (x - mean) * (scale / sqrt(variance + epsilon)) + bias, per channel.
absl::StatusOr<PlanFunction> CompileBatchNormalization(const NodeInfo& node,
                                                       CudaDevice* device) {
  WEIR_ASSIGN_OR_RETURN(const double epsilon, BatchNormEpsilonOf(node));
  return PlanFunction([epsilon, device](
                          const PlanArgs& args) -> absl::StatusOr<PlannedRun> {
    const Dims& dims = args.outputs[0].dims;
    ElementwiseSpec spec;
    // What is wider than X may make a factor within X's range out of numbers
    // beyond it.
    const bool wider = args.inputs[1].dtype == DType::kDouble ||
                       args.inputs[4].dtype == DType::kDouble;
    const std::string f = wider ? "double" : "T";
    spec.expression = absl::StrCat("(x0 - T(x3)) * T(", f, "(x1) / Sqrt(", f,
                                   "(x4) + ", f, "(NUMBER(0)))) + T(x2)");
    spec.words.Add(epsilon);
    spec.output = args.outputs[0].dtype;
    spec.dims = dims;
    spec.inputs.push_back({args.inputs[0].dtype, DenseStrides(dims), 0});
    for (size_t i = 1; i < 5; ++i) {
      Dims strides(dims.size(), 0);
      if (dims.size() > 1 && dims[1] != 1) strides[1] = 1;
      spec.inputs.push_back({args.inputs[i].dtype, std::move(strides), 0});
    }
    WEIR_ASSIGN_OR_RETURN(std::shared_ptr<const ElementwiseLoop> loop,
                          ElementwiseLoop::Make(device, spec));
    return PlannedRun{[loop](const RunArgs& run) {
                        return loop->Run(run.stream, run.inputs, run.outputs[0],
                                         run.node_index);
                      },
                      {loop->hold()}};
  });
}

// Scale and bias, written out for a row in their own type.
int64_t WholeRows(const NodeInfo& node, const PlanArgs& args) {
  const auto shape = LayerNormShapeOf(node, args.inputs[0].dims);
  if (!shape.ok() || shape->rows == 0) return 0;
  return 2 *
         (shape->length * static_cast<int64_t>(SizeOf(args.inputs[0].dtype)) +
          static_cast<int64_t>(kBlockAlignment));
}

}  // namespace

absl::Status RegisterNormalization(OpRegistry& registry) {
  WEIR_RETURN_IF_ERROR(RegisterNode(registry, "", "Softmax", CompileSoftmax,
                                    {.scratch_bytes = NoScratch}));
  WEIR_RETURN_IF_ERROR(RegisterNode(registry, "", "LayerNormalization",
                                    CompileLayerNormalization,
                                    {.scratch_bytes = WholeRows}));
  return RegisterNode(registry, "", "BatchNormalization",
                      CompileBatchNormalization);
}

}  // namespace weir::cuda
