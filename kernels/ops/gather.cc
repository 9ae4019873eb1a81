#include "kernels/ops/gather.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "kernels/base/status_macros.h"
#include "kernels/ops/infer.h"
#include "kernels/ops/merged_loop.h"
#include "kernels/ops/parallel_for.h"
#include "kernels/ops/registry.h"
#include "kernels/ops/type_dispatch.h"

namespace weir {
namespace {

constexpr int64_t kGrainBytes = 128 << 10;

absl::Status InferGather(InferContext& context) {
  const NodeInfo& node = context.node();
  const DType dtype = node.input_types[0];
  const SymbolicShape& data = context.input_shape(0);
  const SymbolicShape& indices = context.input_shape(1);
  SymbolicShape shape;
  if (data.has_value()) {
    WEIR_ASSIGN_OR_RETURN(const size_t axis, AxisOf(node, data->size()));
    if (indices.has_value()) {
      shape = SymbolicDims(data->begin(), data->begin() + axis);
      shape->insert(shape->end(), indices->begin(), indices->end());
      shape->insert(shape->end(), data->begin() + axis + 1, data->end());
    }
  }
  context.SetOutput(0, dtype, std::move(shape));
  return absl::OkStatus();
}

// An index into what no cache holds waits for the memory.
NodeCost GatherCost(const NodeInfo& node, Pace pace, const PlanArgs& args) {
  constexpr int64_t kUncachedOperations = 80;
  NodeCost cost = OutputCost(node, pace, args);
  const auto shape = GatherShapeOf(node, args);
  if (!shape.ok() || args.inputs[0].bytes <= kCachedBytes) return cost;
  AddInTurn(pace, args, shape->rows(), kUncachedOperations, cost);
  return cost;
}

template <typename T, typename Index>
absl::Status RunGather(const GatherShape& shape, const RunArgs& run) {
  const int64_t inner = shape.inner;
  const T* data = static_cast<const T*>(run.inputs[0]);
  const Index* indices = static_cast<const Index*>(run.inputs[1]);
  T* out = static_cast<T*>(run.outputs[0]);
  std::atomic<bool> bad{false};
  const int64_t bytes = inner * static_cast<int64_t>(sizeof(T));
  ParallelRange(run.team, shape.rows(),
                std::max<int64_t>(1, kGrainBytes / std::max<int64_t>(bytes, 1)),
                [&](int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) {
                    int64_t index =
                        static_cast<int64_t>(indices[i % shape.indices]);
                    if (index < 0) index += shape.axis;
                    if (index < 0 || index >= shape.axis) {
                      bad = true;
                      std::memset(static_cast<void*>(out + i * inner), 0,
                                  static_cast<size_t>(bytes));
                      continue;
                    }
                    const T* row =
                        data + (i / shape.indices * shape.axis + index) * inner;
                    if (inner == 1) {
                      out[i] = *row;
                    } else {
                      std::memcpy(static_cast<void*>(out + i * inner), row,
                                  static_cast<size_t>(bytes));
                    }
                  }
                });
  return bad ? FaultStatus(FaultCode::kIndexOutOfRange) : absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<const Kernel>> MakeGatherKernel(
    const NodeInfo& node, Device&) {
  return MakeKernel([node](
                        const PlanArgs& args) -> absl::StatusOr<RunFunction> {
    WEIR_ASSIGN_OR_RETURN(const GatherShape shape, GatherShapeOf(node, args));
    const size_t element = SizeOf(args.inputs[0].dtype);
    const bool wide = args.inputs[1].dtype == DType::kInt64;
    return RunFunction([shape, element, wide](const RunArgs& run) {
      absl::Status status;
      if (shape.elements() == 0) return status;
      DispatchSize(element, [&](auto tag) {
        using T = typename decltype(tag)::Type;
        status = wide ? RunGather<T, int64_t>(shape, run)
                      : RunGather<T, int32_t>(shape, run);
      });
      return status;
    });
  });
}

}  // namespace

absl::StatusOr<GatherShape> GatherShapeOf(const NodeInfo& node,
                                          const PlanArgs& args) {
  const absl::Span<const int64_t> dims = args.inputs[0].dims;
  WEIR_ASSIGN_OR_RETURN(const size_t axis, AxisOf(node, dims.size()));
  GatherShape shape;
  shape.blocks = SaturatingProduct(dims.subspan(0, axis));
  shape.axis = dims[axis];
  shape.indices = args.inputs[1].elements;
  shape.inner = SaturatingProduct(dims.subspan(axis + 1));
  return shape;
}

absl::Status Register_onnx_Gather(OpRegistry& registry) {
  OpDef def;
  def.name = "Gather";
  def.doc =
      "Slices of the data at the indices along an axis. Negative indices count "
      "from the end; one out of range is an error.";
  def.inputs = {
      {.name = "data", .types = kAllTypes},
      {.name = "indices", .types = {DType::kInt32, DType::kInt64}, .group = 1}};
  def.outputs = {{.name = "output"}};
  def.attributes = {
      {"axis", AttributeType::kInt, false, "In [-rank, rank), default 0."}};
  def.infer = InferGather;
  def.cost = GatherCost;
  return registry.Register(std::move(def), MakeGatherKernel);
}

}  // namespace weir
