// ReduceSum, ReduceMean, ReduceMax, ReduceMin and ArgMax. Results do not depend
// on the order in which blocks run: parts are combined in a second kernel,
// never by atomics.
#include "kernels/ops/reduction.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops/cuda/codegen.h"
#include "kernels/ops/cuda/node_kernel.h"
#include "kernels/ops/infer.h"
#include "kernels/ops/merged_loop.h"

namespace weir::cuda {
namespace {

enum Op { kSum = 0, kMax = 1, kMin = 2, kArgMaxFirst = 3, kArgMaxLast = 4 };

// What to reduce over: dims and strides of the elements that stay and of those
// that go, merged where they follow each other.
struct Geometry {
  Dims kept_dims, kept_strides, reduced_dims, reduced_strides;
  uint64_t outputs = 1;
  uint64_t count = 1;
  bool inner_reduced = false;
};

Geometry MakeGeometry(const Dims& dims, const std::vector<bool>& reduced) {
  Geometry g;
  MergedLoop kept_loop(1), reduced_loop(1);
  const Dims strides = DenseStrides(dims);
  for (size_t d = 0; d < dims.size(); ++d) {
    (reduced[d] ? reduced_loop : kept_loop).Append(dims[d], {strides[d]});
    (reduced[d] ? g.count : g.outputs) *= static_cast<uint64_t>(dims[d]);
    if (dims[d] != 1) g.inner_reduced = reduced[d];
  }
  kept_loop.AtLeastOne(0);
  reduced_loop.AtLeastOne(0);
  g.kept_dims = std::move(kept_loop.dims);
  g.kept_strides = std::move(kept_loop.strides[0]);
  g.reduced_dims = std::move(reduced_loop.dims);
  g.reduced_strides = std::move(reduced_loop.strides[0]);
  return g;
}

std::string Accumulator(Op op, DType dtype) {
  // Sums of float are added up in double, as on the CPU.
  if (IsFloating(dtype)) {
    return op == kSum || dtype == DType::kDouble ? "double" : "float";
  }
  if (op != kSum) {
    return dtype == DType::kBool ? "int32_t" : std::string(StorageType(dtype));
  }
  return kUnsignedIntTypes.Has(dtype) ? "uint64_t" : "int64_t";
}

// What the largest or smallest of no elements is.
std::string EmptyValue(Op op, DType dtype) {
  if (IsFloating(dtype)) {
    return op == kMax ? "(-__int_as_float(0x7f800000))"
                      : "__int_as_float(0x7f800000)";
  }
  if (dtype == DType::kBool) return op == kMax ? "0" : "1";
  return op == kMax ? "scalar::Limits<A>::min" : "scalar::Limits<A>::max";
}

struct Variant {
  Op op;
  std::string in, out, accumulator, empty;
  bool by_block, indexed_input;
};

std::string Source(const Variant& v) {
  return absl::StrCat(
      std::string(PreludeSource()), std::string(ScalarFunctionsSource()),
      Define("S_IN", v.in), Define("S_OUT", v.out), Define("A", v.accumulator),
      Define("OP", absl::StrCat(v.op)), Define("EMPTY", v.empty),
      Define("BY_BLOCK", v.by_block ? "1" : "0"),
      v.indexed_input ? "#define INDEXED_INPUT 1\n" : "",
      v.out == "Float16" || v.out == "Bfloat16" ? "#define HALF_OUT 1\n" : "",
      std::string(ReductionSource()));
}

struct Stage {
  GeneratedKernel kernel;
  Geometry geometry;
  bool by_block = false;
  uint64_t chunk = 1;
  uint64_t splits = 1;

  Grid LaunchGrid() const {
    Grid grid;
    if (by_block) {
      grid.x = std::min<uint64_t>(geometry.outputs, 1u << 20);
    } else {
      grid = GridFor(geometry.outputs);
    }
    grid.y = static_cast<unsigned>(splits);
    return grid;
  }

  Words Arguments(const void* in, void* out, void* partial, void* partial_index,
                  bool mean, uint64_t divisor) const {
    Words words;
    words.Add(in).Add(out).Add(partial).Add(partial_index);
    words.Add(geometry.outputs).Add(geometry.count).Add(chunk).Add(splits);
    words.Add(uint64_t{geometry.kept_dims.size()});
    words.Add(uint64_t{geometry.reduced_dims.size()});
    words.AddArray(geometry.kept_dims, 8).AddArray(geometry.kept_strides, 8);
    words.AddArray(geometry.reduced_dims, 8);
    words.AddArray(geometry.reduced_strides, 8);
    words.Add(mean ? 1 : 0).Add(divisor);
    return words;
  }
};

constexpr uint64_t kMaxSplits = 1024;

// Splits the elements of an output so that the whole GPU takes part.
void ChooseSplits(const CudaDevice& device, Stage* stage) {
  const Geometry& g = stage->geometry;
  const uint64_t processors =
      static_cast<uint64_t>(std::max(device.info().multiprocessors, 1));
  const uint64_t wanted = stage->by_block ? 4 * processors : 1024 * processors;
  const uint64_t least = stage->by_block ? 4096 : 64;  // elements of a split
  uint64_t splits = 1;
  if (g.outputs > 0 && g.outputs < wanted && g.count >= 2 * least) {
    splits = std::min({wanted / g.outputs, g.count / least, kMaxSplits});
  }
  splits = std::max<uint64_t>(splits, 1);
  stage->chunk = std::max<uint64_t>((g.count + splits - 1) / splits, 1);
  stage->splits =
      std::max<uint64_t>((g.count + stage->chunk - 1) / stage->chunk, 1);
}

absl::StatusOr<PlannedRun> PlanReduction(CudaDevice* device, Op op, bool mean,
                                         const Geometry& geometry, DType in,
                                         DType out) {
  if (geometry.outputs == 0) {
    return PlannedRun{[](const RunArgs&) { return absl::OkStatus(); }};
  }
  Stage first;
  first.geometry = geometry;
  first.by_block = geometry.inner_reduced && geometry.count >= 64;
  ChooseSplits(*device, &first);
  Variant variant{op,
                  std::string(StorageType(in)),
                  std::string(StorageType(out)),
                  Accumulator(op, in),
                  op == kMax || op == kMin ? EmptyValue(op, in) : "0",
                  first.by_block,
                  false};
  WEIR_ASSIGN_OR_RETURN(first.kernel,
                        GeneratedKernel::Make(device, Source(variant)));

  const uint64_t divisor = geometry.count;
  if (first.splits == 1) {
    return PlannedRun{[=](const RunArgs& run) {
      Words words = first.Arguments(run.inputs[0], run.outputs[0], nullptr,
                                    nullptr, mean, divisor);
      return first.kernel.Launch(run.stream, first.LaunchGrid(), words);
    }};
  }
  Stage second;
  second.geometry.outputs = geometry.outputs;
  second.geometry.count = first.splits;
  second.geometry.kept_dims = {static_cast<int64_t>(geometry.outputs)};
  second.geometry.kept_strides = {1};
  second.geometry.reduced_dims = {static_cast<int64_t>(first.splits)};
  second.geometry.reduced_strides = {static_cast<int64_t>(geometry.outputs)};
  second.chunk = first.splits;
  variant.in = variant.accumulator;
  variant.by_block = false;
  variant.indexed_input = op == kArgMaxFirst || op == kArgMaxLast;
  WEIR_ASSIGN_OR_RETURN(second.kernel,
                        GeneratedKernel::Make(device, Source(variant)));
  const size_t part = (geometry.outputs * first.splits * 8 + 255) / 256 * 256;
  PlannedRun planned;
  planned.scratch_bytes = 2 * part;
  planned.launches = 2;
  planned.run = [=](const RunArgs& run) -> absl::Status {
    std::byte* partial = static_cast<std::byte*>(run.scratch);
    void* index = partial + part;
    Words words =
        first.Arguments(run.inputs[0], nullptr, partial, index, false, 0);
    WEIR_RETURN_IF_ERROR(
        first.kernel.Launch(run.stream, first.LaunchGrid(), words));
    words = second.Arguments(partial, run.outputs[0], nullptr, index, mean,
                             divisor);
    return second.kernel.Launch(run.stream, second.LaunchGrid(), words);
  };
  return planned;
}

CompileFunction Reduce(Op op, bool mean) {
  return [op, mean](const NodeInfo& node,
                    CudaDevice* device) -> absl::StatusOr<PlanFunction> {
    return PlanFunction(
        [node, device, op,
         mean](const PlanArgs& args) -> absl::StatusOr<PlannedRun> {
          const TensorMeta& in = args.inputs[0];
          const auto axes = AttributeOrInput(node, args, "axes", 1);
          absl::Span<const int64_t> given;
          if (axes.has_value()) given = *axes;
          WEIR_ASSIGN_OR_RETURN(const std::vector<bool> reduced,
                                ReducedDims(node, given, in.dims.size()));
          return PlanReduction(device, op, mean, MakeGeometry(in.dims, reduced),
                               in.dtype, args.outputs[0].dtype);
        });
  };
}

// The mean of every axis after the first two.
absl::StatusOr<PlanFunction> CompileGlobalAveragePool(const NodeInfo&,
                                                      CudaDevice* device) {
  return PlanFunction(
      [device](const PlanArgs& args) -> absl::StatusOr<PlannedRun> {
        const TensorMeta& in = args.inputs[0];
        std::vector<bool> reduced(in.dims.size(), true);
        for (size_t d = 0; d < 2 && d < reduced.size(); ++d) reduced[d] = false;
        return PlanReduction(device, kSum, true, MakeGeometry(in.dims, reduced),
                             in.dtype, args.outputs[0].dtype);
      });
}

absl::StatusOr<PlanFunction> CompileArgMax(const NodeInfo& node,
                                           CudaDevice* device) {
  return PlanFunction(
      [node, device](const PlanArgs& args) -> absl::StatusOr<PlannedRun> {
        const TensorMeta& in = args.inputs[0];
        WEIR_ASSIGN_OR_RETURN(const ArgMaxSearch search,
                              ArgMaxSearchOf(node, in.dims.size()));
        std::vector<bool> reduced(in.dims.size(), false);
        reduced[search.axis] = true;
        return PlanReduction(device, search.last ? kArgMaxLast : kArgMaxFirst,
                             false, MakeGeometry(in.dims, reduced), in.dtype,
                             DType::kInt64);
      });
}

}  // namespace

absl::Status RegisterReductions(OpRegistry& registry) {
  WEIR_RETURN_IF_ERROR(
      RegisterNode(registry, "", "ReduceSum", Reduce(kSum, false)));
  WEIR_RETURN_IF_ERROR(
      RegisterNode(registry, "", "ReduceMean", Reduce(kSum, true)));
  WEIR_RETURN_IF_ERROR(
      RegisterNode(registry, "", "ReduceMax", Reduce(kMax, false)));
  WEIR_RETURN_IF_ERROR(
      RegisterNode(registry, "", "ReduceMin", Reduce(kMin, false)));
  WEIR_RETURN_IF_ERROR(RegisterNode(registry, "", "GlobalAveragePool",
                                    CompileGlobalAveragePool));
  return RegisterNode(registry, "", "ArgMax", CompileArgMax);
}

}  // namespace weir::cuda
