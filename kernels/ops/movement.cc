#include "kernels/ops/movement.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/saturating.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"
#include "kernels/ops/infer.h"
#include "kernels/ops/merged_loop.h"
#include "kernels/ops/registry.h"
#include "kernels/ops/strided_copy.h"

namespace weir {
namespace {

// Split takes num_outputs from here on.
constexpr int kNumOutputsOpset = 18;

RunFunction RunStrided(StridedCopy copy) {
  return [copy = std::move(copy)](const RunArgs& run) {
    copy.Run(run.team, run.inputs[0], run.outputs[0]);
    return absl::OkStatus();
  };
}

// -- Transpose ----------------------------------------------------------------

absl::Status InferTranspose(InferContext& context) {
  const NodeInfo& node = context.node();
  SymbolicShape shape;
  if (const SymbolicShape& input = context.input_shape(0)) {
    WEIR_ASSIGN_OR_RETURN(const std::vector<size_t> perm,
                          PermutationOf(node, input->size()));
    shape.emplace();
    for (size_t axis : perm) shape->push_back((*input)[axis]);
  }
  context.SetOutput(0, node.input_types[0], std::move(shape));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<const Kernel>> MakeTransposeKernel(
    const NodeInfo& node, Device&) {
  return MakeKernel(
      [node](const PlanArgs& args) -> absl::StatusOr<RunFunction> {
        const TensorMeta& input = args.inputs[0];
        WEIR_ASSIGN_OR_RETURN(const std::vector<size_t> perm,
                              PermutationOf(node, input.dims.size()));
        const StridedView view = TransposeViewOf(input.dims, perm);
        return RunStrided(StridedCopy(view, SizeOf(input.dtype)));
      });
}

// -- Expand -------------------------------------------------------------------

absl::Status InferExpand(InferContext& context) {
  WEIR_RETURN_IF_ERROR(CheckRank(context, 1, 1));
  SymbolicShape shape;
  const SymbolicShape& input = context.input_shape(0);
  const auto wanted = context.HostInts(1);
  if (wanted.has_value()) {
    WEIR_RETURN_IF_ERROR(NumElements(*wanted).status());
  }
  if (input.has_value() && wanted.has_value()) {
    WEIR_ASSIGN_OR_RETURN(shape, BroadcastShapes(*input, ToSymbolic(*wanted)));
  } else if (const auto length = KnownElements(context, 1);
             input.has_value() && length.has_value() && *length <= kMaxRank) {
    shape = SymbolicDims(std::max(input->size(), static_cast<size_t>(*length)));
  }
  context.SetOutput(0, context.node().input_types[0], std::move(shape));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<const Kernel>> MakeExpandKernel(const NodeInfo&,
                                                               Device&) {
  return MakeKernel([](const PlanArgs& args) -> absl::StatusOr<RunFunction> {
    const TensorMeta& input = args.inputs[0];
    return RunStrided(StridedCopy(
        ExpandViewOf(input.dims, args.outputs[0].dims), SizeOf(input.dtype)));
  });
}

// -- Slice --------------------------------------------------------------------

struct SliceAxis {
  int axis = 0;
  int64_t start = 0;
  int64_t end = 0;
  int64_t step = 1;
};

// What one axis of size `dim` keeps: the first index and how many. As in ONNX a
// start before the first element is the first one, with a negative step too.
std::pair<int64_t, int64_t> Kept(const SliceAxis& slice, int64_t dim) {
  if (dim == 0) return {0, 0};
  const int64_t step =
      std::max(slice.step, -std::numeric_limits<int64_t>::max());
  const int64_t low = step > 0 ? 0 : -1;
  const int64_t high = step > 0 ? dim : dim - 1;
  const auto clamp = [&](int64_t position, int64_t least) {
    return std::clamp(position < 0 ? position + dim : position, least, high);
  };
  const int64_t start = clamp(slice.start, 0);
  const int64_t end = clamp(slice.end, low);
  const int64_t span = step > 0 ? end - start : start - end;
  if (span <= 0) return {start, 0};
  return {start, (span - 1) / (step > 0 ? step : -step) + 1};
}

using MaybeInts = std::optional<absl::Span<const int64_t>>;

// Empty axes and steps mean 0, 1, ... and 1.
absl::StatusOr<std::vector<SliceAxis>> SliceAxes(
    absl::Span<const int64_t> starts, absl::Span<const int64_t> ends,
    MaybeInts axes, MaybeInts steps, int rank) {
  std::vector<SliceAxis> result(starts.size());
  if (ends.size() != starts.size() ||
      (axes.has_value() && axes->size() != starts.size()) ||
      (steps.has_value() && steps->size() != starts.size())) {
    return absl::InvalidArgumentError(
        "starts, ends, axes and steps differ in length");
  }
  std::vector<bool> seen(static_cast<size_t>(rank), false);
  for (size_t i = 0; i < starts.size(); ++i) {
    const int64_t axis =
        axes.has_value() ? (*axes)[i] : static_cast<int64_t>(i);
    SliceAxis& slice = result[i];
    WEIR_ASSIGN_OR_RETURN(slice.axis, NormalizeAxis(axis, rank));
    const size_t index = static_cast<size_t>(slice.axis);
    if (seen[index]) {
      return absl::InvalidArgumentError(
          absl::StrCat("axis ", slice.axis, " is repeated"));
    }
    seen[index] = true;
    slice.start = starts[i];
    slice.end = ends[i];
    if (steps.has_value()) slice.step = (*steps)[i];
    if (slice.step == 0) {
      return absl::InvalidArgumentError("a step is 0");
    }
  }
  return result;
}

absl::Status InferSlice(InferContext& context) {
  const NodeInfo& node = context.node();
  const DType dtype = node.input_types[0];
  const SymbolicShape& input = context.input_shape(0);
  if (!input.has_value()) {
    context.SetOutput(0, dtype, std::nullopt);
    return absl::OkStatus();
  }
  MaybeInts lists[4];
  bool known = true;
  for (size_t i = 0; i < 4; ++i) {
    WEIR_RETURN_IF_ERROR(CheckRank(context, i + 1, 1));
    if (!node.HasInput(i + 1)) continue;
    lists[i] = context.HostInts(i + 1);
    known &= lists[i].has_value();
  }
  if (!known) {
    context.SetOutput(0, dtype, SymbolicDims(input->size()));
    return absl::OkStatus();
  }
  WEIR_ASSIGN_OR_RETURN(const std::vector<SliceAxis> slices,
                        SliceAxes(*lists[0], *lists[1], lists[2], lists[3],
                                  static_cast<int>(input->size())));
  SymbolicDims dims(input->begin(), input->end());
  for (const SliceAxis& slice : slices) {
    Dim& dim = dims[static_cast<size_t>(slice.axis)];
    const bool whole = slice.start == 0 && slice.step == 1 &&
                       slice.end == std::numeric_limits<int64_t>::max();
    if (dim.known()) {
      dim = Kept(slice, dim.value()).second;
    } else if (!whole) {
      dim = Dim();
    }
  }
  context.SetOutput(0, dtype, std::move(dims));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<const Kernel>> MakeSliceKernel(
    const NodeInfo& node, Device&) {
  return MakeKernel(
      [node](const PlanArgs& args) -> absl::StatusOr<RunFunction> {
        WEIR_ASSIGN_OR_RETURN(const StridedView view, SliceViewOf(node, args));
        return RunStrided(StridedCopy(view, SizeOf(args.inputs[0].dtype)));
      });
}

// -- Pad ----------------------------------------------------------------------

struct Padding {
  int64_t before = 0;
  int64_t after = 0;
};

absl::StatusOr<std::vector<Padding>> Paddings(absl::Span<const int64_t> pads,
                                              MaybeInts axes, size_t rank) {
  std::vector<int> at(rank);
  std::iota(at.begin(), at.end(), 0);
  if (axes.has_value()) {
    WEIR_RETURN_IF_ERROR(NormalizeAxes(*axes, static_cast<int>(rank)).status());
    at.clear();
    for (int64_t axis : *axes) {
      at.push_back(static_cast<int>(axis < 0 ? axis + static_cast<int64_t>(rank)
                                             : axis));
    }
  }
  if (pads.size() != 2 * at.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(pads.size(), " pads are given for ", at.size(), " axes"));
  }
  std::vector<Padding> result(rank);
  for (size_t i = 0; i < at.size(); ++i) {
    const int64_t before = pads[i];
    const int64_t after = pads[i + at.size()];
    if (std::max(std::abs(before / 2), std::abs(after / 2)) > kMaxTensorBytes) {
      return absl::InvalidArgumentError("a pad is too large");
    }
    result[static_cast<size_t>(at[i])] = {before, after};
  }
  return result;
}

absl::Status InferPad(InferContext& context) {
  const NodeInfo& node = context.node();
  const DType dtype = node.input_types[0];
  WEIR_ASSIGN_OR_RETURN(const PadCopy::Mode mode, PadModeOf(node));
  WEIR_RETURN_IF_ERROR(CheckRank(context, 1, 1));
  if (const auto count = KnownElements(context, 2);
      count.has_value() && *count != 1) {
    return absl::InvalidArgumentError("constant_value is not a single element");
  }
  const SymbolicShape& input = context.input_shape(0);
  const MaybeInts pads = context.HostInts(1);
  const MaybeInts axes = context.HostInts(3);
  if (!input.has_value()) {
    context.SetOutput(0, dtype, std::nullopt);
    return absl::OkStatus();
  }
  if (!pads.has_value() || (node.HasInput(3) && !axes.has_value())) {
    context.SetOutput(0, dtype, SymbolicDims(input->size()));
    return absl::OkStatus();
  }
  WEIR_ASSIGN_OR_RETURN(const std::vector<Padding> paddings,
                        Paddings(*pads, axes, input->size()));
  SymbolicDims dims(input->begin(), input->end());
  for (size_t d = 0; d < dims.size(); ++d) {
    const int64_t total = paddings[d].before + paddings[d].after;
    const Dim size = total >= 0 ? dims[d] + Dim(total) : dims[d] - Dim(-total);
    if (size.invalid()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "axis ", d, " of shape ", ShapeString(input), " cannot be padded by ",
          paddings[d].before, " and ", paddings[d].after));
    }
    if (mode != PadCopy::Mode::kConstant && dims[d] == Dim(0) &&
        size.SurelyDiffers(0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("axis ", d, " is empty: nothing to pad it with"));
    }
    dims[d] = size;
  }
  context.SetOutput(0, dtype, std::move(dims));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<const Kernel>> MakePadKernel(
    const NodeInfo& node, Device&) {
  WEIR_ASSIGN_OR_RETURN(const PadCopy::Mode mode, PadModeOf(node));
  const bool has_value = node.HasInput(2);
  return MakeKernel([=](const PlanArgs& args) -> absl::StatusOr<RunFunction> {
    const TensorMeta& input = args.inputs[0];
    const Dims& output = args.outputs[0].dims;
    WEIR_ASSIGN_OR_RETURN(const Dims before, PadsBefore(node, args));
    std::vector<PadCopy::Axis> plan;
    for (size_t d = 0; d < input.dims.size(); ++d) {
      plan.push_back({output[d], before[d], input.dims[d]});
    }
    PadCopy copy(std::move(plan), mode, SizeOf(input.dtype));
    return RunFunction([copy = std::move(copy), has_value](const RunArgs& run) {
      copy.Run(run.team, run.inputs[0], has_value ? run.inputs[2] : nullptr,
               run.outputs[0]);
      return absl::OkStatus();
    });
  });
}

// -- Concat, Split ------------------------------------------------------------

absl::Status InferConcat(InferContext& context) {
  const NodeInfo& node = context.node();
  const DType dtype = node.input_types[0];
  SymbolicShape result;
  size_t axis = 0;
  bool unknown = false;
  for (size_t i = 0; i < node.input_types.size(); ++i) {
    const SymbolicShape& shape = context.input_shape(i);
    if (!shape.has_value()) {
      unknown = true;
      continue;
    }
    if (!result.has_value()) {
      WEIR_ASSIGN_OR_RETURN(axis, AxisOf(node, shape->size()));
      result = shape;
      continue;
    }
    bool fits = shape->size() == result->size();
    for (size_t d = 0; fits && d < shape->size(); ++d) {
      Dim& sum = (*result)[d];
      const Dim dim = (*shape)[d];
      if (d == axis) {
        sum = sum + dim;
      } else if (sum.SurelyDiffers(dim)) {
        fits = false;
      } else if (!sum.known()) {
        sum = dim.known() ? dim : sum;
      }
    }
    if (!fits) {
      return absl::InvalidArgumentError(absl::StrCat(
          "input ", i, " of shape ", ShapeString(shape),
          " does not fit input 0 of shape ",
          ShapeString(context.input_shape(0)), " along axis ", axis));
    }
  }
  if (unknown && result.has_value()) (*result)[axis] = Dim();
  context.SetOutput(0, dtype, std::move(result));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<const Kernel>> MakeConcatKernel(
    const NodeInfo& node, Device&) {
  return MakeKernel(
      [node](const PlanArgs& args) -> absl::StatusOr<RunFunction> {
        WEIR_ASSIGN_OR_RETURN(SideBySide parts,
                              SideBySideOf(node, args.outputs[0], args.inputs));
        return RunFunction([parts = std::move(parts)](const RunArgs& run) {
          if (parts.empty()) return absl::OkStatus();
          std::byte* target = static_cast<std::byte*>(run.outputs[0]);
          for (size_t i = 0; i < parts.widths.size(); ++i) {
            const int64_t width = parts.widths[i];
            CopyRows(run.team, parts.rows, width, run.inputs[i], width, target,
                     parts.pitch);
            target += width;
          }
          return absl::OkStatus();
        });
      });
}

absl::Status BadSplit(int64_t dim, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(
      "an axis of size ", dim, " cannot be split: ", AbslView(why)));
}

// Sizes of the parts along the axis.
absl::StatusOr<std::vector<int64_t>> SplitSizes(const NodeInfo& node,
                                                const MaybeInts& given,
                                                int64_t dim) {
  const int64_t parts = node.num_outputs;
  if (given.has_value()) {
    std::vector<int64_t> sizes(given->begin(), given->end());
    int64_t left = dim;
    for (int64_t size : sizes) {
      if (size < 0 || size > left) return BadSplit(dim, "the sizes differ");
      left -= size;
    }
    if (left != 0) return BadSplit(dim, "the sizes differ");
    return sizes;
  }
  const bool uneven = node.attributes.Has("num_outputs");
  const int64_t size = dim / parts + (dim % parts == 0 ? 0 : 1);
  const int64_t last = dim - size * (parts - 1);
  if (last < 0 || (!uneven && last != size)) {
    return BadSplit(dim, "the parts are uneven");
  }
  std::vector<int64_t> sizes(static_cast<size_t>(parts), size);
  sizes.back() = last;
  return sizes;
}

// Whether the node says what its parts are as ONNX lets it: before opset 18
// their number was that of the outputs.
absl::Status CheckParts(const NodeInfo& node) {
  const bool number = node.attributes.Has("num_outputs");
  const bool list = node.attributes.Has("split") || node.HasInput(1);
  if (number && list) {
    return absl::InvalidArgumentError(
        "\"split\" and attribute \"num_outputs\" both say what the parts are: "
        "give one of them");
  }
  if (number && node.opset < kNumOutputsOpset) {
    return absl::InvalidArgumentError(
        absl::StrCat("attribute \"num_outputs\" begins with opset ",
                     kNumOutputsOpset, ": leave it out"));
  }
  if (!number && !list && node.opset >= kNumOutputsOpset) {
    return absl::InvalidArgumentError(absl::StrCat(
        "from opset ", kNumOutputsOpset,
        " on input \"split\" or attribute \"num_outputs\" must say "
        "what the parts are"));
  }
  const int64_t parts = node.attributes.Int("num_outputs", node.num_outputs);
  if (parts != node.num_outputs) {
    return absl::InvalidArgumentError(
        absl::StrCat("attribute \"num_outputs\" is ", parts,
                     ", and the node has ", node.num_outputs, " outputs"));
  }
  return absl::OkStatus();
}

absl::Status InferSplit(InferContext& context) {
  const NodeInfo& node = context.node();
  WEIR_RETURN_IF_ERROR(CheckParts(node));
  const DType dtype = node.input_types[0];
  const SymbolicShape& input = context.input_shape(0);
  WEIR_ASSIGN_OR_RETURN(const IntList list,
                        AttributeOrInput(context, "split", 1));
  const size_t parts = static_cast<size_t>(node.num_outputs);
  if (list.known() && list.values.size() != parts) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"split\" has ", list.values.size(),
                     " sizes, and the node has ", parts, " outputs"));
  }
  if (!input.has_value()) {
    for (size_t i = 0; i < parts; ++i) {
      context.SetOutput(i, dtype, std::nullopt);
    }
    return absl::OkStatus();
  }
  WEIR_ASSIGN_OR_RETURN(const size_t axis, AxisOf(node, input->size()));
  const Dim dim = (*input)[axis];
  SymbolicDims sizes(parts);
  if (dim.known() && list.state != IntList::State::kUnknown) {
    MaybeInts given;
    if (list.known()) given = absl::MakeConstSpan(list.values);
    WEIR_ASSIGN_OR_RETURN(const std::vector<int64_t> exact,
                          SplitSizes(node, given, dim.value()));
    std::copy(exact.begin(), exact.end(), sizes.begin());
  } else if (list.known()) {
    for (size_t i = 0; i < parts; ++i) {
      if (list.values[i] >= 0) sizes[i] = list.values[i];
    }
  }
  for (size_t i = 0; i < parts; ++i) {
    SymbolicDims dims(input->begin(), input->end());
    dims[axis] = sizes[i];
    context.SetOutput(i, dtype, std::move(dims));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<const Kernel>> MakeSplitKernel(
    const NodeInfo& node, Device&) {
  return MakeKernel([node](
                        const PlanArgs& args) -> absl::StatusOr<RunFunction> {
    WEIR_ASSIGN_OR_RETURN(SideBySide parts,
                          SideBySideOf(node, args.inputs[0], args.outputs));
    return RunFunction([parts = std::move(parts)](const RunArgs& run) {
      if (parts.empty()) return absl::OkStatus();
      const std::byte* source = static_cast<const std::byte*>(run.inputs[0]);
      for (size_t i = 0; i < parts.widths.size(); ++i) {
        const int64_t width = parts.widths[i];
        CopyRows(run.team, parts.rows, width, source, parts.pitch,
                 run.outputs[i], width);
        source += width;
      }
      return absl::OkStatus();
    });
  });
}

// Steps along the last axis that the output has more than one element of.
NodeCost SliceCost(const NodeInfo& node, Pace pace, const PlanArgs& args) {
  NodeCost cost = RowwiseCost(node, pace, args);
  const auto view = SliceViewOf(node, args);
  if (!view.ok()) return cost;
  for (size_t d = view->dims.size(); d-- > 0;) {
    if (view->dims[d] <= 1) continue;
    AddStridedInTurn(pace, args, args.inputs[0], args.outputs[0].elements,
                     view->strides[d], cost);
    break;
  }
  return cost;
}

// PadCopy goes over rows of the last axis, however long that is.
NodeCost PadCost(const NodeInfo& node, Pace pace, const PlanArgs& args) {
  const TensorMeta& output = args.outputs[0];
  const int64_t length = output.dims.empty() ? 1 : output.dims.back();
  return RowsCost(node, pace, args,
                  output.elements / std::max<int64_t>(1, length));
}

// Concat and Split copy a piece of each of the parts for each place of the
// axes before theirs.
NodeCost PiecesCost(Pace pace, const PlanArgs& args,
                    const absl::StatusOr<SideBySide>& parts, NodeCost cost) {
  if (!parts.ok()) return cost;
  const int64_t filled =
      std::count_if(parts->widths.begin(), parts->widths.end(),
                    [](int64_t width) { return width > 0; });
  AddInTurn(pace, args, SaturatingMul(filled, parts->rows), kRowOperations,
            cost);
  return cost;
}

NodeCost ConcatCost(const NodeInfo& node, Pace pace, const PlanArgs& args) {
  return PiecesCost(pace, args,
                    SideBySideOf(node, args.outputs[0], args.inputs),
                    OutputCost(node, pace, args));
}

NodeCost SplitCost(const NodeInfo& node, Pace pace, const PlanArgs& args) {
  return PiecesCost(pace, args,
                    SideBySideOf(node, args.inputs[0], args.outputs),
                    OutputCost(node, pace, args));
}

}  // namespace

absl::StatusOr<std::vector<size_t>> PermutationOf(const NodeInfo& node,
                                                  size_t rank) {
  std::vector<size_t> perm(rank);
  if (!node.attributes.Has("perm")) {
    std::iota(perm.rbegin(), perm.rend(), size_t{0});
    return perm;
  }
  const std::vector<int64_t> given = node.attributes.Ints("perm");
  std::vector<bool> seen(rank, false);
  bool good = given.size() == rank;
  for (size_t i = 0; good && i < rank; ++i) {
    good = given[i] >= 0 && given[i] < static_cast<int64_t>(rank);
    if (!good) break;
    perm[i] = static_cast<size_t>(given[i]);
    good = !seen[perm[i]];
    seen[perm[i]] = true;
  }
  if (!good) {
    return absl::InvalidArgumentError(
        absl::StrCat("attribute \"perm\" ", DimsString(given),
                     " is no permutation of ", rank, " axes"));
  }
  return perm;
}

StridedView TransposeViewOf(const Dims& input,
                            const std::vector<size_t>& permutation) {
  const Dims dense = DenseStrides(input);
  StridedView view;
  for (const size_t axis : permutation) {
    view.dims.push_back(input[axis]);
    view.strides.push_back(dense[axis]);
  }
  return view;
}

StridedView ExpandViewOf(const Dims& input, const Dims& output) {
  return {output, BroadcastStrides(input, output)};
}

Dims RelayoutDims(const Dims& dims, Layout from) {
  Dims in = {dims[0], dims[1],
             SaturatingProduct(absl::MakeConstSpan(dims).subspan(2))};
  if (from == Layout::kChannelsLast) std::swap(in[1], in[2]);
  return in;
}

StridedCopy RelayoutCopy(const Dims& dims, Layout from, size_t element_size) {
  return StridedCopy(TransposeViewOf(RelayoutDims(dims, from), {0, 2, 1}),
                     element_size);
}

absl::StatusOr<StridedView> SliceViewOf(const NodeInfo& node,
                                        const PlanArgs& args) {
  const TensorMeta& input = args.inputs[0];
  const auto optional_list = [&](size_t i) -> MaybeInts {
    if (!node.HasInput(i)) return std::nullopt;
    return absl::MakeConstSpan(args.host_ints[i]);
  };
  WEIR_ASSIGN_OR_RETURN(
      const std::vector<SliceAxis> slices,
      SliceAxes(args.host_ints[1], args.host_ints[2], optional_list(3),
                optional_list(4), static_cast<int>(input.dims.size())));
  if (args.outputs[0].elements == 0) {
    return StridedView{args.outputs[0].dims, Dims(input.dims.size())};
  }
  StridedView view = {args.outputs[0].dims, DenseStrides(input.dims)};
  for (const SliceAxis& slice : slices) {
    const size_t axis = static_cast<size_t>(slice.axis);
    const auto [first, count] = Kept(slice, input.dims[axis]);
    view.offset += first * view.strides[axis];
    // A huge step keeps one element and is never taken.
    view.strides[axis] = count > 1 ? view.strides[axis] * slice.step : 0;
  }
  return view;
}

absl::StatusOr<PadCopy::Mode> PadModeOf(const NodeInfo& node) {
  const std::string mode = node.attributes.String("mode", "constant");
  if (mode == "constant") return PadCopy::Mode::kConstant;
  if (mode == "reflect") return PadCopy::Mode::kReflect;
  if (mode == "edge") return PadCopy::Mode::kEdge;
  if (mode == "wrap") return PadCopy::Mode::kWrap;
  return absl::InvalidArgumentError(
      absl::StrCat("attribute \"mode\" is ", QuoteStart(mode),
                   ", not constant, reflect, edge or wrap"));
}

absl::StatusOr<Dims> PadsBefore(const NodeInfo& node, const PlanArgs& args) {
  MaybeInts axes;
  if (node.HasInput(3)) axes = absl::MakeConstSpan(args.host_ints[3]);
  WEIR_ASSIGN_OR_RETURN(
      const std::vector<Padding> paddings,
      Paddings(args.host_ints[1], axes, args.inputs[0].dims.size()));
  Dims before;
  for (const Padding& padding : paddings) before.push_back(padding.before);
  return before;
}

absl::StatusOr<SideBySide> SideBySideOf(const NodeInfo& node,
                                        const TensorMeta& matrix,
                                        absl::Span<const TensorMeta> parts) {
  const absl::Span<const int64_t> dims = matrix.dims;
  WEIR_ASSIGN_OR_RETURN(const size_t axis, AxisOf(node, dims.size()));
  const int64_t step =
      SaturatingMul(SaturatingProduct(dims.subspan(axis + 1)),
                    static_cast<int64_t>(SizeOf(matrix.dtype)));
  SideBySide result;
  result.rows = SaturatingProduct(dims.subspan(0, axis));
  for (const TensorMeta& part : parts) {
    result.widths.push_back(SaturatingMul(part.dims[axis], step));
    result.pitch = SaturatingAdd(result.pitch, result.widths.back());
  }
  return result;
}

absl::Status Register_onnx_Transpose(OpRegistry& registry) {
  OpDef def;
  def.name = "Transpose";
  def.doc = "The axes of the input in another order.";
  def.inputs = {{.name = "data", .types = kFixedTypes}};
  def.outputs = {{.name = "transposed"}};
  def.attributes = {{"perm", AttributeType::kInts, false,
                     "Input axis of each output axis; default: reversed."}};
  def.infer = InferTranspose;
  def.cost = RowwiseCost;
  return registry.Register(std::move(def), MakeTransposeKernel);
}

absl::Status Register_onnx_Expand(OpRegistry& registry) {
  OpDef def;
  def.name = "Expand";
  def.doc = "The input broadcast against a shape.";
  def.inputs = {{.name = "input", .types = kFixedTypes},
                {.name = "shape", .types = {DType::kInt64}, .group = 1}};
  def.outputs = {{.name = "output"}};
  def.host_inputs = 1u << 1;
  def.infer = InferExpand;
  def.cost = RowwiseCost;
  return registry.Register(std::move(def), MakeExpandKernel);
}

absl::Status Register_onnx_Slice(OpRegistry& registry) {
  constexpr TypeSet kIndexTypes = {DType::kInt32, DType::kInt64};
  OpDef def;
  def.name = "Slice";
  def.doc =
      "From start to end (exclusive) by step along some axes. Negative "
      "positions count from the end; positions are clamped.";
  def.inputs = {
      {.name = "data", .types = kFixedTypes},
      {.name = "starts", .types = kIndexTypes, .group = 1},
      {.name = "ends", .types = kIndexTypes, .group = 1},
      {.name = "axes", .types = kIndexTypes, .group = 1, .optional = true},
      {.name = "steps", .types = kIndexTypes, .group = 1, .optional = true}};
  def.outputs = {{.name = "output"}};
  def.host_inputs = 0b11110;
  def.infer = InferSlice;
  def.cost = SliceCost;
  return registry.Register(std::move(def), MakeSliceKernel);
}

absl::Status Register_onnx_Pad(OpRegistry& registry) {
  OpDef def;
  def.name = "Pad";
  def.doc = "The input with padding around it; negative padding crops.";
  def.inputs = {
      {.name = "data", .types = kFixedTypes},
      {.name = "pads", .types = {DType::kInt64}, .group = 1},
      {.name = "constant_value", .types = kFixedTypes, .optional = true},
      {.name = "axes",
       .types = {DType::kInt32, DType::kInt64},
       .group = 2,
       .optional = true}};
  def.outputs = {{.name = "output"}};
  def.attributes = {{"mode", AttributeType::kString, false,
                     "\"constant\" (default), \"reflect\", \"edge\" or "
                     "\"wrap\"."}};
  def.host_inputs = 0b1010;
  def.infer = InferPad;
  def.cost = PadCost;
  return registry.Register(std::move(def), MakePadKernel);
}

absl::Status Register_onnx_Concat(OpRegistry& registry) {
  OpDef def;
  def.name = "Concat";
  def.doc = "The inputs one after the other along an axis.";
  def.inputs = {{.name = "inputs", .types = kFixedTypes, .variadic = true}};
  def.outputs = {{.name = "concat_result"}};
  def.attributes = {{"axis", AttributeType::kInt, true, "In [-rank, rank)."}};
  def.infer = InferConcat;
  def.cost = ConcatCost;
  return registry.Register(std::move(def), MakeConcatKernel);
}

absl::Status Register_onnx_Split(OpRegistry& registry) {
  OpDef def;
  def.name = "Split";
  def.doc = "Parts of the input along an axis.";
  def.inputs = {{.name = "input", .types = kFixedTypes},
                {.name = "split",
                 .types = {DType::kInt64},
                 .group = 1,
                 .optional = true}};
  def.outputs = {{.name = "outputs", .variadic = true}};
  def.attributes = {
      {"axis", AttributeType::kInt, false, "In [-rank, rank), default 0."},
      {"split", AttributeType::kInts, false,
       "Sizes of the parts, in place of the input of that name."},
      {"num_outputs", AttributeType::kInt, false,
       "From opset 18 on, instead of split: how many equal parts, the last one "
       "smaller where they do not come out even."}};
  def.host_inputs = 1u << 1;
  def.infer = InferSplit;
  def.cost = SplitCost;
  return registry.Register(std::move(def), MakeSplitKernel);
}

}  // namespace weir
