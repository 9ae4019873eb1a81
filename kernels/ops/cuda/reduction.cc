// ReduceSum, ReduceMean, ReduceMax, ReduceMin and ArgMax. Results do not depend
// on the order in which blocks run: parts are combined in a second kernel,
// never by atomics.
#include "kernels/ops/reduction.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/alignment.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops/cuda/codegen.h"
#include "kernels/ops/cuda/node_kernel.h"
#include "kernels/ops/infer.h"
#include "kernels/ops/merged_loop.h"

namespace weir::cuda {
namespace {

enum Op { kSum = 0, kMax = 1, kMin = 2, kArgMaxFirst = 3, kArgMaxLast = 4 };

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
  ReductionShape shape;
  bool by_block = false;
  uint64_t chunk = 1;
  uint64_t splits = 1;

  uint64_t outputs() const { return static_cast<uint64_t>(shape.outputs); }
  uint64_t count() const { return static_cast<uint64_t>(shape.count); }

  Grid LaunchGrid() const {
    Grid grid;
    if (by_block) {
      grid.x = std::min<uint64_t>(outputs(), 1u << 20);
    } else {
      grid = GridFor(outputs());
    }
    grid.y = static_cast<unsigned>(splits);
    return grid;
  }

  Words Arguments(const void* in, void* out, void* partial, void* partial_index,
                  bool mean, uint64_t divisor) const {
    Words words;
    words.Add(in).Add(out).Add(partial).Add(partial_index);
    words.Add(outputs()).Add(count()).Add(chunk).Add(splits);
    words.Add(uint64_t{shape.kept.dims.size()});
    words.Add(uint64_t{shape.reduced.dims.size()});
    for (const MergedLoop* loop : {&shape.kept, &shape.reduced}) {
      words.AddArray(loop->dims, 8).AddArray(loop->strides[0], 8);
    }
    words.Add(mean ? 1 : 0).Add(divisor);
    return words;
  }
};

constexpr uint64_t kMaxSplits = 1024;

// Splits the elements of an output so that the whole GPU takes part.
void ChooseSplits(const CudaDevice& device, Stage* stage) {
  const uint64_t outputs = stage->outputs(), count = stage->count();
  const uint64_t processors =
      static_cast<uint64_t>(std::max(device.info().multiprocessors, 1));
  const uint64_t wanted = stage->by_block ? 4 * processors : 1024 * processors;
  const uint64_t least = stage->by_block ? 4096 : 64;  // elements of a split
  uint64_t splits = 1;
  if (outputs > 0 && outputs < wanted && count >= 2 * least) {
    splits = std::min({wanted / outputs, count / least, kMaxSplits});
  }
  splits = std::max<uint64_t>(splits, 1);
  stage->chunk = std::max<uint64_t>((count + splits - 1) / splits, 1);
  stage->splits =
      std::max<uint64_t>((count + stage->chunk - 1) / stage->chunk, 1);
}

absl::StatusOr<PlannedRun> PlanReduction(CudaDevice* device, Op op, bool mean,
                                         const ReductionShape& shape, DType in,
                                         DType out) {
  if (shape.outputs == 0) {
    return PlannedRun{[](const RunArgs&) { return absl::OkStatus(); }};
  }
  Stage first;
  first.shape = shape;
  first.by_block = shape.inner_reduced && shape.count >= 64;
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

  const uint64_t divisor = first.count();
  if (first.splits == 1) {
    return PlannedRun{
        [=](const RunArgs& run) {
          Words words = first.Arguments(run.inputs[0], run.outputs[0], nullptr,
                                        nullptr, mean, divisor);
          return first.kernel.Launch(run.stream, first.LaunchGrid(), words);
        },
        {first.kernel.hold()}};
  }
  Stage second;
  // Parts of the outputs, one split after the other.
  second.shape = ReductionShapeOf(
      {static_cast<int64_t>(first.splits), shape.outputs}, {true, false});
  second.chunk = first.splits;
  variant.in = variant.accumulator;
  variant.by_block = false;
  variant.indexed_input = op == kArgMaxFirst || op == kArgMaxLast;
  WEIR_ASSIGN_OR_RETURN(second.kernel,
                        GeneratedKernel::Make(device, Source(variant)));
  const size_t part = AlignUp(first.outputs() * first.splits * 8);
  PlannedRun planned;
  planned.scratch_bytes = 2 * part;
  planned.launches = 2;
  planned.shared_holds = {first.kernel.hold(), second.kernel.hold()};
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
    return PlanFunction([node, device, op, mean](const PlanArgs& args)
                            -> absl::StatusOr<PlannedRun> {
      const TensorMeta& in = args.inputs[0];
      const auto axes = AttributeOrInput(node, args, "axes", 1);
      absl::Span<const int64_t> given;
      if (axes.has_value()) given = *axes;
      WEIR_ASSIGN_OR_RETURN(const std::vector<bool> reduced,
                            ReducedDims(node, given, in.dims.size()));
      return PlanReduction(device, op, mean, ReductionShapeOf(in.dims, reduced),
                           in.dtype, args.outputs[0].dtype);
    });
  };
}

// The mean of every axis after the first two.
absl::StatusOr<PlanFunction> CompileGlobalAveragePool(const NodeInfo&,
                                                      CudaDevice* device) {
  return PlanFunction([device](
                          const PlanArgs& args) -> absl::StatusOr<PlannedRun> {
    const TensorMeta& in = args.inputs[0];
    std::vector<bool> reduced(in.dims.size(), true);
    for (size_t d = 0; d < 2 && d < reduced.size(); ++d) reduced[d] = false;
    return PlanReduction(device, kSum, true, ReductionShapeOf(in.dims, reduced),
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
                             false, ReductionShapeOf(in.dims, reduced),
                             in.dtype, DType::kInt64);
      });
}

}  // namespace

absl::Status RegisterReductions(OpRegistry& registry) {
  const std::pair<const char*, CompileFunction> all[] = {
      {"ReduceSum", Reduce(kSum, false)},
      {"ReduceMean", Reduce(kSum, true)},
      {"ReduceMax", Reduce(kMax, false)},
      {"ReduceMin", Reduce(kMin, false)},
      {"GlobalAveragePool", CompileGlobalAveragePool},
      {"ArgMax", CompileArgMax}};
  for (const auto& [name, compile] : all) {
    WEIR_RETURN_IF_ERROR(RegisterNode(registry, "", name, compile,
                                      {.scratch_bytes = PartialResults}));
  }
  return absl::OkStatus();
}

}  // namespace weir::cuda
