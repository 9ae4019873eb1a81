#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops/copy_kernel.h"
#include "kernels/ops/infer.h"
#include "kernels/ops/registry.h"

namespace weir {
namespace {

// -- Reshape ------------------------------------------------------------------

// `target` as the node asks for it, with -1 at `missing`.
std::string RequestedString(const SymbolicDims& target, size_t missing) {
  return absl::StrCat(
      "[",
      absl::StrJoin(target, ",",
                    [&, i = size_t{0}](std::string* out, Dim dim) mutable {
                      if (i++ == missing) {
                        out->append("-1");
                      } else if (dim.known()) {
                        absl::StrAppend(out, dim.value());
                      } else {
                        out->append("?");
                      }
                    }),
      "]");
}

// What `target[missing]` must be for it to hold as many elements as `input`:
// symbols that stand on both sides cancel.
absl::StatusOr<Dim> MissingDim(const SymbolicDims& input,
                               const SymbolicDims& target, size_t missing) {
  SymbolicDims open, closed;  // factors of the input
  for (Dim dim : input) (dim.known() ? closed : open).push_back(dim);
  const Dim have = Product(closed);
  Dim taken(1);
  bool cancelled = true;
  for (size_t i = 0; i < target.size(); ++i) {
    if (i == missing) continue;
    const Dim dim = target[i];
    if (dim.known()) {
      taken = taken * dim;
      continue;
    }
    const auto same = std::find_if(open.begin(), open.end(), [dim](Dim other) {
      return dim.SurelyEquals(other);
    });
    if (same == open.end()) {
      cancelled = false;
    } else {
      open.erase(same);
    }
  }
  if (taken == Dim(0)) {
    return absl::InvalidArgumentError(
        "-1 stands beside a dimension of 0: it could be any size");
  }
  if (taken.invalid()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "shape ", RequestedString(target, missing), " is too large"));
  }
  if (!cancelled || !have.known()) return Dim();
  if (open.empty()) {
    if (have.value() % taken.value() != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape ", ShapeString(input), " cannot become ",
                       RequestedString(target, missing)));
    }
    return have / taken;
  }
  return open.size() == 1 && have == taken ? open[0] : Dim();
}

absl::Status InferReshape(InferContext& context) {
  const NodeInfo& node = context.node();
  const DType dtype = node.input_types[0];
  const SymbolicShape& input = context.input_shape(0);
  WEIR_RETURN_IF_ERROR(CheckRank(context, 1, 1));
  const auto requested = context.HostInts(1);
  if (!requested.has_value()) {
    SymbolicShape shape;
    if (const auto rank = KnownElements(context, 1);
        rank.has_value() && *rank <= kMaxRank) {
      shape = SymbolicDims(static_cast<size_t>(*rank));
    }
    context.SetOutput(0, dtype, std::move(shape));
    return absl::OkStatus();
  }
  if (requested->size() > size_t{kMaxRank}) {
    return absl::InvalidArgumentError(
        absl::StrCat("shape ", DimsString(*requested), " has ",
                     requested->size(), " dimensions, more than ", kMaxRank));
  }
  const bool zero_copies = node.attributes.Int("allowzero", 0) == 0;
  SymbolicDims target;
  std::optional<size_t> missing;
  for (size_t i = 0; i < requested->size(); ++i) {
    const int64_t size = (*requested)[i];
    if (size < -1 || (size == -1 && missing.has_value())) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape ", DimsString(*requested),
                       " may hold one -1 and nothing less"));
    }
    if (size == -1) {
      missing = i;
      target.push_back(Dim());
    } else if (size == 0 && zero_copies) {
      if (!input.has_value()) {
        target.push_back(Dim());
      } else if (i < input->size()) {
        target.push_back((*input)[i]);
      } else {
        return absl::InvalidArgumentError(
            absl::StrCat("shape ", DimsString(*requested), " copies dimension ",
                         i, " of ", ShapeString(input)));
      }
    } else {
      target.push_back(size);
    }
  }
  if (input.has_value()) {
    if (missing.has_value()) {
      WEIR_ASSIGN_OR_RETURN(target[*missing],
                            MissingDim(*input, target, *missing));
    } else if (const Dim product = Product(target);
               product.invalid() || Product(*input).SurelyDiffers(product)) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape ", ShapeString(input), " cannot become ",
                       ShapeString(target)));
    }
  }
  context.SetOutput(0, dtype, std::move(target));
  return absl::OkStatus();
}

// -- Flatten ------------------------------------------------------------------

absl::Status InferFlatten(InferContext& context) {
  const DType dtype = context.node().input_types[0];
  const SymbolicShape& input = context.input_shape(0);
  SymbolicDims dims(2);
  if (input.has_value()) {
    const int rank = static_cast<int>(input->size());
    const int64_t axis = context.node().attributes.Int("axis", 1);
    if (axis < -rank || axis > rank) {
      return absl::InvalidArgumentError(
          absl::StrCat("axis ", axis, " is out of range for rank ", rank));
    }
    const size_t split = static_cast<size_t>(axis < 0 ? axis + rank : axis);
    const absl::Span<const Dim> all(*input);
    dims = {Product(all.subspan(0, split)), Product(all.subspan(split))};
  }
  context.SetOutput(0, dtype, std::move(dims));
  return absl::OkStatus();
}

// -- Squeeze, Unsqueeze -------------------------------------------------------

absl::Status InferSqueeze(InferContext& context) {
  const DType dtype = context.node().input_types[0];
  const SymbolicShape& input = context.input_shape(0);
  WEIR_ASSIGN_OR_RETURN(const IntList axes,
                        AttributeOrInput(context, "axes", 1));
  if (!input.has_value() || axes.state == IntList::State::kUnknown) {
    SymbolicShape shape;
    const auto count = KnownElements(context, 1);
    if (input.has_value() && count.has_value() &&
        *count <= static_cast<int64_t>(input->size())) {
      shape = SymbolicDims(input->size() - static_cast<size_t>(*count));
    }
    context.SetOutput(0, dtype, std::move(shape));
    return absl::OkStatus();
  }
  std::vector<int> removed;
  if (axes.known()) {
    const int rank = static_cast<int>(input->size());
    WEIR_ASSIGN_OR_RETURN(removed, NormalizeAxes(axes.values, rank));
  }
  SymbolicDims dims;
  for (size_t i = 0; i < input->size(); ++i) {
    const Dim dim = (*input)[i];
    const bool named =
        std::binary_search(removed.begin(), removed.end(), static_cast<int>(i));
    if (named && dim.SurelyDiffers(1)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "axis ", i, " of shape ", ShapeString(input), " is not 1"));
    }
    if (!axes.known() && !dim.known()) {  // it may be 1
      context.SetOutput(0, dtype, std::nullopt);
      return absl::OkStatus();
    }
    const bool gone = axes.known() ? named : dim == Dim(1);
    if (!gone) dims.push_back(dim);
  }
  context.SetOutput(0, dtype, std::move(dims));
  return absl::OkStatus();
}

absl::Status InferUnsqueeze(InferContext& context) {
  const DType dtype = context.node().input_types[0];
  const SymbolicShape& input = context.input_shape(0);
  WEIR_ASSIGN_OR_RETURN(const IntList axes,
                        AttributeOrInput(context, "axes", 1));
  if (axes.absent()) return absl::InvalidArgumentError("\"axes\" are missing");
  if (!input.has_value() || !axes.known()) {
    SymbolicShape shape;
    const auto count = KnownElements(context, 1);
    if (input.has_value() && count.has_value() && *count <= kMaxRank) {
      shape = SymbolicDims(input->size() + static_cast<size_t>(*count));
    }
    context.SetOutput(0, dtype, std::move(shape));
    return absl::OkStatus();
  }
  const size_t rank = input->size() + axes.values.size();
  if (rank > static_cast<size_t>(kMaxRank)) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, " is more than ", kMaxRank));
  }
  WEIR_ASSIGN_OR_RETURN(const std::vector<int> added,
                        NormalizeAxes(axes.values, static_cast<int>(rank)));
  SymbolicDims dims(input->begin(), input->end());
  for (int axis : added) dims.insert(dims.begin() + axis, Dim(1));
  context.SetOutput(0, dtype, std::move(dims));
  return absl::OkStatus();
}

OpDef ReshapeDef(std::string_view name, std::string_view doc) {
  OpDef def;
  def.name = name;
  def.doc = doc;
  def.inputs = {{.name = "data", .types = kAllTypes}};
  def.outputs = {{.name = "reshaped"}};
  def.aliases_input = true;
  return def;
}

constexpr InputDef kAxesInput = {
    .name = "axes", .types = {DType::kInt64}, .group = 1, .optional = true};

}  // namespace

absl::Status Register_onnx_Reshape(OpRegistry& registry) {
  OpDef def = ReshapeDef("Reshape", "The same elements in another shape.");
  def.inputs.push_back({.name = "shape", .types = {DType::kInt64}, .group = 1});
  def.attributes = {
      {"allowzero", AttributeType::kInt, false,
       "0 (default): a 0 in the shape copies the input's dimension; 1: it is a "
       "size."}};
  def.host_inputs = 1u << 1;
  def.infer = InferReshape;
  def.cost = OutputCost;
  return registry.Register(std::move(def), MakeCopyKernel);
}

absl::Status Register_onnx_Flatten(OpRegistry& registry) {
  OpDef def = ReshapeDef(
      "Flatten", "A matrix: the dimensions before the axis, and the others.");
  def.attributes = {
      {"axis", AttributeType::kInt, false, "In [-rank, rank], default 1."}};
  def.infer = InferFlatten;
  def.cost = OutputCost;
  return registry.Register(std::move(def), MakeCopyKernel);
}

absl::Status Register_onnx_Squeeze(OpRegistry& registry) {
  OpDef def = ReshapeDef("Squeeze", "Without dimensions of size 1.");
  def.inputs.push_back(kAxesInput);
  def.attributes = {{"axes", AttributeType::kInts, false,
                     "Or an input, in every opset; default: every dimension of "
                     "size 1."}};
  def.host_inputs = 1u << 1;
  def.infer = InferSqueeze;
  def.cost = OutputCost;
  return registry.Register(std::move(def), MakeCopyKernel);
}

absl::Status Register_onnx_Unsqueeze(OpRegistry& registry) {
  OpDef def = ReshapeDef("Unsqueeze",
                         "With dimensions of size 1 at these axes of the "
                         "result.");
  def.inputs.push_back(kAxesInput);
  def.attributes = {
      {"axes", AttributeType::kInts, false, "Or an input, in every opset."}};
  def.host_inputs = 1u << 1;
  def.infer = InferUnsqueeze;
  def.cost = OutputCost;
  return registry.Register(std::move(def), MakeCopyKernel);
}

}  // namespace weir
