#include "kernels/ops/random.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops/convert.h"
#include "kernels/ops/infer.h"
#include "kernels/ops/parallel_for.h"
#include "kernels/ops/registry.h"

namespace weir {
namespace {

constexpr int64_t kWordsPerBlock = 4;
constexpr int64_t kPart = 65536;  // elements worth a thread: whole blocks

absl::StatusOr<DType> OutputType(const NodeInfo& node) {
  const int64_t number = node.attributes.Int("dtype", 1);
  const DType dtype = DTypeFromOnnx(number).value_or(DType::kInvalid);
  if (!kFloatTypes.Has(dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat("dtype ", number, " is not a floating-point type"));
  }
  return dtype;
}

absl::Status InferRandomUniform(InferContext& context) {
  const NodeInfo& node = context.node();
  WEIR_ASSIGN_OR_RETURN(const DType dtype, OutputType(node));
  WEIR_RETURN_IF_ERROR(UniformDrawsOf(node).status());
  const std::string_view attribute = node.HasInput(0) ? "" : "shape";
  WEIR_ASSIGN_OR_RETURN(const IntList shape,
                        AttributeOrInput(context, attribute, 0));
  if (shape.state == IntList::State::kUnknown) {
    SymbolicShape unknown;
    if (const auto rank = KnownElements(context, 0); rank.has_value()) {
      if (*rank > kMaxRank) {
        return absl::InvalidArgumentError(
            absl::StrCat("shape has ", *rank, " axes, more than ", kMaxRank));
      }
      unknown = SymbolicDims(static_cast<size_t>(*rank));
    }
    context.SetOutput(0, dtype, std::move(unknown));
    return absl::OkStatus();
  }
  WEIR_RETURN_IF_ERROR(ByteSize(dtype, shape.values).status());
  context.SetOutput(0, dtype, ToSymbolic(shape.values));
  return absl::OkStatus();
}

// Elements [begin, end) of a row; `begin` is that of a block.
void DrawPart(const UniformDraws& draws, uint64_t seed, uint64_t stream,
              int64_t begin, int64_t end, DType dtype, std::byte* to) {
  const ConvertLoop convert = FindConvertLoop(DType::kFloat, dtype);
  for (int64_t k = begin; k < end; k += kWordsPerBlock) {
    const PhiloxBlock block =
        Philox(seed, stream, static_cast<uint64_t>(k / kWordsPerBlock));
    const int64_t n = std::min(kWordsPerBlock, end - k);
    float values[kWordsPerBlock];
    for (int64_t i = 0; i < n; ++i) {
      values[i] = PhiloxUniform(block.word[i], draws.low, draws.high);
    }
    convert(values, to, n);
    to += static_cast<size_t>(n) * SizeOf(dtype);
  }
}

absl::StatusOr<std::unique_ptr<const Kernel>> MakeRandomUniformKernel(
    const NodeInfo& node, Device&) {
  return MakeKernel([node](
                        const PlanArgs& args) -> absl::StatusOr<RunFunction> {
    const TensorMeta& out = args.outputs[0];
    WEIR_ASSIGN_OR_RETURN(const UniformDraws draws, UniformDrawsOf(node));
    const DType dtype = out.dtype;
    const int64_t rows = out.dims.empty() ? 1 : out.dims[0];
    const int64_t length = rows == 0 ? 0 : out.elements / rows;
    return RunFunction([=](const RunArgs& run) {
      const uint64_t seed = draws.SeedOf(run);
      const uint64_t stream = draws.StreamOf(run);
      auto* to = static_cast<std::byte*>(run.outputs[0]);
      // A long row is drawn in parts.
      const int64_t parts = (length + kPart - 1) / kPart;
      ParallelRange(run.team, rows * parts,
                    std::max<int64_t>(1, kPart / std::max<int64_t>(length, 1)),
                    [&](int64_t first, int64_t past) {
                      for (int64_t i = first; i < past; ++i) {
                        const int64_t r = i / parts;
                        const int64_t begin = i % parts * kPart;
                        const uint64_t row =
                            run.random.first_row + static_cast<uint64_t>(r);
                        DrawPart(draws, seed, stream | row, begin,
                                 std::min(begin + kPart, length), dtype,
                                 to + static_cast<size_t>(r * length + begin) *
                                          SizeOf(dtype));
                      }
                    });
      return absl::OkStatus();
    });
  });
}

}  // namespace

absl::StatusOr<UniformDraws> UniformDrawsOf(const NodeInfo& node) {
  UniformDraws draws;
  if (node.attributes.Has("range")) {
    const std::vector<float> values = node.attributes.Floats("range");
    if (values.size() != 2 || !std::isfinite(values[1] - values[0]) ||
        values[0] > values[1]) {
      return absl::InvalidArgumentError(
          "range must hold two finite numbers in ascending order");
    }
    draws.low = values[0];
    draws.high = values[1];
  }
  if (node.attributes.Has("seed")) {
    draws.seed = static_cast<uint64_t>(node.attributes.Int("seed", 0));
  }
  return draws;
}

absl::Status Register_weir_RandomUniform(OpRegistry& registry) {
  OpDef def;
  def.domain = "weir";
  def.name = "RandomUniform";
  def.doc =
      "Uniform numbers by Philox4x32-10, the same for a seed on every device. "
      "A row (index along the first axis) draws from its own stream.";
  def.inputs = {{.name = "shape", .types = {DType::kInt64}, .optional = true}};
  def.outputs = {{.name = "output"}};
  def.attributes = {
      {"range", AttributeType::kFloats, false,
       "Lower bound, and upper bound that is never drawn, though rounding to a "
       "half type may reach it; default 0, 1."},
      {"shape", AttributeType::kInts, false,
       "Where the input is missing; default a scalar."},
      {"seed", AttributeType::kInt, false,
       "The same numbers at each run; default the request's seed."},
      {"dtype", AttributeType::kInt, false,
       "ONNX's number of a floating-point type; default float (1). Rounded "
       "from float."}};
  def.host_inputs = 1;
  def.random = true;
  def.infer = InferRandomUniform;
  def.cost = OutputCost;
  def.cpu_weight = kFunctionCpuWeight;
  return registry.Register(std::move(def), MakeRandomUniformKernel);
}

}  // namespace weir
