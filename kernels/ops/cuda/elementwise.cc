#include "kernels/ops/cuda/elementwise.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops/cuda/codegen.h"
#include "kernels/ops/cuda/node_kernel.h"
#include "kernels/ops/fused_elementwise.h"
#include "kernels/ops/registry.h"

namespace weir::cuda {
namespace {

// Beyond this, 32-bit offsets and prepared divisions would not hold.
constexpr int64_t kNarrowLimit = (int64_t{1} << 31) - 65536;
constexpr size_t kVectorBytes = 16;
// An operator's inputs are part of the kernel's parameters, which are bounded.
constexpr size_t kMaxInputs = 128;

absl::string_view View(std::string_view s) { return {s.data(), s.size()}; }

// One run in which every operand is as dense as the output, or one element.
bool AllDense(const ElementwiseLayout& layout) {
  if (layout.dims.size() != 1) return false;
  for (const Dims& strides : layout.strides) {
    if (strides[0] != 0 && strides[0] != 1) return false;
  }
  return true;
}

// The largest distance of an operand's element from its first.
int64_t Reach(const ElementwiseLayout& layout, size_t input) {
  int64_t reach = 0;
  for (size_t d = 0; d < layout.dims.size(); ++d) {
    reach += std::abs(layout.strides[input][d]) * (layout.dims[d] - 1);
  }
  return reach;
}

int VectorLength(const ElementwiseSpec& spec, const ElementwiseLayout& layout) {
  size_t widest = SizeOf(spec.output);
  for (const Operand& input : spec.inputs) {
    widest = std::max(widest, SizeOf(input.dtype));
  }
  int length = static_cast<int>(kVectorBytes / widest);
  const size_t inner = layout.dims.size() - 1;
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    const int64_t stride = layout.strides[i][inner];
    if (stride != 0 && stride != 1) return 1;
  }
  if (AllDense(layout)) {
    // The tail is handled apart, but a vector must begin on its boundary.
    for (size_t i = 0; i < spec.inputs.size(); ++i) {
      if (layout.strides[i][inner] == 0) continue;
      while (length > 1 && layout.offsets[i] % length != 0) length /= 2;
    }
    return length;
  }
  while (length > 1) {
    bool fits = layout.dims[inner] % length == 0;
    for (size_t i = 0; fits && i < spec.inputs.size(); ++i) {
      if (layout.strides[i][inner] == 0) continue;
      fits = layout.offsets[i] % length == 0;
      for (size_t d = 0; fits && d < inner; ++d) {
        fits = layout.strides[i][d] % length == 0;
      }
    }
    if (fits) break;
    length /= 2;
  }
  return length;
}

}  // namespace

ElementwiseLayout LayOut(const ElementwiseSpec& spec) {
  ElementwiseLayout layout;
  const size_t inputs = spec.inputs.size();
  for (const Operand& input : spec.inputs) {
    layout.offsets.push_back(input.offset);
  }
  MergedLoop loop(inputs);
  Dims of_each(inputs);
  for (size_t d = 0; d < spec.dims.size(); ++d) {
    for (size_t i = 0; i < inputs; ++i) of_each[i] = spec.inputs[i].strides[d];
    loop.Append(spec.dims[d], of_each);
  }
  loop.AtLeastOne(0);
  layout.dims = std::move(loop.dims);
  layout.strides = std::move(loop.strides);
  const int64_t elements = SaturatingProduct(layout.dims);
  layout.wide = elements > kNarrowLimit;
  for (size_t i = 0; elements > 0 && i < inputs; ++i) {
    layout.wide |= Reach(layout, i) > kNarrowLimit;
  }
  layout.vector = VectorLength(spec, layout);
  return layout;
}

// The arguments: n, aligned, fault slot, node, output, then pointers of the
// inputs, then the words of the expression, then (unless everything is one run)
// the divisors of the inner dims and the strides of each input, innermost last.
std::string ElementwiseSource(const ElementwiseSpec& spec,
                              const ElementwiseLayout& layout) {
  const size_t inputs = spec.inputs.size();
  const size_t rank = layout.dims.size();
  const bool dense = AllDense(layout);
  const size_t words = spec.words.size();
  const auto storage = [&](DType dtype) {
    return View(spec.moves && dtype == spec.output ? WordType(SizeOf(dtype))
                                                   : StorageType(dtype));
  };
  std::string s =
      absl::StrCat(View(PreludeSource()), View(ScalarFunctionsSource()));
  absl::StrAppend(&s, "namespace weir {\nusing namespace scalar;\n");
  absl::StrAppend(&s, "constexpr int V = ", layout.vector, ";\n");
  absl::StrAppend(&s, "typedef ", layout.wide ? "int64_t" : "int32_t",
                  " Index;\n");
  absl::StrAppend(&s, "typedef ", storage(spec.output), " SR;\n");
  for (size_t i = 0; i < inputs; ++i) {
    absl::StrAppend(&s, "typedef ", storage(spec.inputs[i].dtype), " S", i,
                    ";\n");
  }
  absl::StrAppend(&s, "typedef ", inputs > 0 ? "Compute<S0>" : "Compute<SR>",
                  " T;\n", "typedef Compute<SR> R;\n");
  absl::StrAppend(&s,
                  "template <typename S> struct alignas(sizeof(S) * V) Vec "
                  "{ S v[V]; };\n",
                  "struct Args {\n  uint64_t n, aligned;\n"
                  "  CudaFaultSlot* fault;\n  uint64_t node;\n  SR* out;\n");
  for (size_t i = 0; i < inputs; ++i) {
    absl::StrAppend(&s, "  const S", i, "* in", i, ";\n");
  }
  if (words > 0) absl::StrAppend(&s, "  uint64_t words[", words, "];\n");
  if (!dense) {
    absl::StrAppend(&s, "  Divisor dim[", rank, "];\n");
    if (inputs > 0) {
      absl::StrAppend(&s, "  int64_t stride[", inputs, "][", rank, "];\n");
    }
  }
  absl::StrAppend(&s, "};\n");

  if (words > 0) {
    absl::StrAppend(&s,
                    "#define WORD(i) (words[i])\n"
                    "#define NUMBER(i) (__longlong_as_double("
                    "static_cast<long long>(words[i])))\n");
  }
  absl::StrAppend(&s,
                  "#define FAULT(code) (ReportFault(fault, node, "
                  "static_cast<unsigned>(code)), R(0))\n",
                  "__device__ __forceinline__ R Apply(");
  for (size_t i = 0; i < inputs; ++i) {
    absl::StrAppend(&s, "Compute<S", i, "> x", i, ", ");
  }
  if (words > 0) absl::StrAppend(&s, "const uint64_t* words, ");
  absl::StrAppend(&s,
                  "CudaFaultSlot* fault, unsigned node) {\n"
                  "  return static_cast<R>(",
                  spec.expression, ");\n}\n");

  absl::StrAppend(
      &s,
      "extern \"C\" __global__ void __launch_bounds__(256) weir_kernel("
      "const __grid_constant__ Args a) {\n"
      "  const uint64_t first = GlobalThread() * V;\n"
      "  if (first >= a.n) return;\n"
      "  const unsigned node = static_cast<unsigned>(a.node);\n");
  for (size_t i = 0; i < inputs; ++i) {
    absl::StrAppend(&s, "  const S", i, "* p", i, " = a.in", i, ";\n");
  }
  const size_t inner = rank - 1;
  auto stride_text = [&](size_t i) -> std::string {
    return absl::StrCat(layout.strides[i][inner] == 0 ? "0" : "1");
  };
  // Inner strides of 0 and 1 are part of the text; others are arguments.
  auto inner_offset = [&](size_t i, const char* k) -> std::string {
    const int64_t stride = layout.strides[i][inner];
    if (stride == 0) return "0";
    if (stride == 1) return k;
    return absl::StrCat(k, " * static_cast<Index>(a.stride[", i, "][", inner,
                        "])");
  };
  if (dense) {
    for (size_t i = 0; i < inputs; ++i) {
      if (layout.strides[i][0] == 1) {
        absl::StrAppend(&s, "  p", i, " += first;\n");
      }
    }
  } else {
    absl::StrAppend(&s, layout.wide ? "  uint64_t rest = first;\n"
                                    : "  uint32_t rest = first;\n");
    for (size_t d = rank; d-- > 0;) {
      absl::StrAppend(&s, "  {\n");
      if (d == 0) {
        absl::StrAppend(&s, "    const Index c = static_cast<Index>(rest);\n");
      } else if (layout.wide) {
        absl::StrAppend(&s, "    const uint64_t q = rest / a.dim[", d,
                        "].divisor;\n    const Index c = static_cast<Index>("
                        "rest - q * a.dim[",
                        d, "].divisor);\n", "    rest = q;\n");
      } else {
        absl::StrAppend(&s, "    const uint32_t q = Divide(rest, a.dim[", d,
                        "]);\n    const Index c = static_cast<Index>("
                        "rest - q * static_cast<uint32_t>(a.dim[",
                        d, "].divisor));\n", "    rest = q;\n");
      }
      for (size_t i = 0; i < inputs; ++i) {
        if (d == inner) {
          if (layout.strides[i][inner] == 0) continue;
          absl::StrAppend(&s, "    p", i, " += ", inner_offset(i, "c"), ";\n");
        } else {
          absl::StrAppend(&s, "    p", i,
                          " += c * static_cast<Index>(a.stride[", i, "][", d,
                          "]);\n");
        }
      }
      absl::StrAppend(&s, "  }\n");
    }
  }

  const char* const rest =
      words > 0 ? "a.words, a.fault, node))" : "a.fault, node))";
  auto call = [&](const char* element) {
    std::string text = "Store<SR>(Apply(";
    for (size_t i = 0; i < inputs; ++i) {
      absl::StrAppend(&text, "Load(", element, i, "), ");
    }
    return absl::StrCat(text, rest);
  };
  if (layout.vector > 1) {
    absl::StrAppend(&s, "  if (a.aligned && first + V <= a.n) {\n");
    for (size_t i = 0; i < inputs; ++i) {
      if (stride_text(i) == "1") {
        absl::StrAppend(&s, "    const Vec<S", i, "> v", i,
                        " = *reinterpret_cast<const Vec<S", i, ">*>(p", i,
                        ");\n");
      } else {
        absl::StrAppend(&s, "    const S", i, " w", i, " = *p", i, ";\n");
      }
    }
    absl::StrAppend(&s,
                    "    Vec<SR> r;\n#pragma unroll\n"
                    "    for (int k = 0; k < V; ++k) {\n      r.v[k] = ");
    std::string text = "Store<SR>(Apply(";
    for (size_t i = 0; i < inputs; ++i) {
      if (stride_text(i) == "1") {
        absl::StrAppend(&text, "Load(v", i, ".v[k]), ");
      } else {
        absl::StrAppend(&text, "Load(w", i, "), ");
      }
    }
    absl::StrAppend(&s, text, rest, ";\n    }\n",
                    "    *reinterpret_cast<Vec<SR>*>(a.out + first) = r;\n"
                    "    return;\n  }\n");
  }
  absl::StrAppend(&s, "  for (int k = 0; k < V && first + k < a.n; ++k) {\n");
  for (size_t i = 0; i < inputs; ++i) {
    absl::StrAppend(&s, "    const S", i, " e", i, " = p", i, "[",
                    inner_offset(i, "k"), "];\n");
  }
  absl::StrAppend(&s, "    a.out[first + k] = ", call("e"), ";\n  }\n}\n",
                  "}  // namespace weir\n");
  return s;
}

struct ElementwiseLoop::State {
  GeneratedKernel kernel;
  ElementwiseLayout layout;
  Words words;  // of the expression
  std::vector<size_t> element_sizes;
  size_t output_size = 0;
  uint64_t elements = 0;
};

absl::StatusOr<std::unique_ptr<const ElementwiseLoop>> ElementwiseLoop::Make(
    CudaDevice* device, const ElementwiseSpec& spec) {
  if (spec.inputs.size() > kMaxInputs) {
    return absl::UnimplementedError(
        absl::StrCat("more than ", kMaxInputs, " inputs"));
  }
  bool storable = !StorageType(spec.output).empty();
  for (const Operand& input : spec.inputs) {
    storable &= !StorageType(input.dtype).empty();
  }
  if (!storable) return absl::UnimplementedError("strings on a CUDA device");
  auto state = std::make_shared<State>();
  state->layout = LayOut(spec);
  state->words = spec.words;
  state->elements =
      static_cast<uint64_t>(SaturatingProduct(state->layout.dims));
  WEIR_ASSIGN_OR_RETURN(
      state->kernel,
      GeneratedKernel::Make(device, ElementwiseSource(spec, state->layout)));
  for (const Operand& input : spec.inputs) {
    state->element_sizes.push_back(SizeOf(input.dtype));
  }
  state->output_size = SizeOf(spec.output);
  return std::unique_ptr<const ElementwiseLoop>(
      new ElementwiseLoop(std::move(state)));
}

absl::Status ElementwiseLoop::Run(Stream& stream,
                                  absl::Span<const void* const> inputs,
                                  void* output, uint32_t node_index) const {
  const State& s = *state_;
  if (s.elements == 0) return absl::OkStatus();
  const ElementwiseLayout& layout = s.layout;
  const size_t rank = layout.dims.size();
  const uint64_t vector = static_cast<uint64_t>(layout.vector);
  bool aligned =
      reinterpret_cast<uintptr_t>(output) % (s.output_size * vector) == 0;
  Words words;
  words.Add(s.elements).Add(0).Add(stream.fault_slot());
  words.Add(uint64_t{node_index}).Add(output);
  for (size_t i = 0; i < s.element_sizes.size(); ++i) {
    // Something readable for a missing input, which has stride 0.
    const void* first = inputs[i] != nullptr ? inputs[i] : output;
    const char* p =
        static_cast<const char*>(first) +
        layout.offsets[i] * static_cast<int64_t>(s.element_sizes[i]);
    if (layout.strides[i][rank - 1] == 1) {
      aligned &=
          reinterpret_cast<uintptr_t>(p) % (s.element_sizes[i] * vector) == 0;
    }
    words.Add(p);
  }
  words[1] = aligned ? 1 : 0;
  words.AddWords(s.words);
  if (!AllDense(layout)) {
    for (int64_t d : layout.dims) {
      words.Add(FastDivisor(layout.wide ? 1 : static_cast<uint64_t>(d)));
      if (layout.wide) words[words.size() - 3] = static_cast<uint64_t>(d);
    }
    for (const Dims& strides : layout.strides) {
      words.AddArray(strides, rank);
    }
  }
  return s.kernel.Launch(stream, GridFor((s.elements + vector - 1) / vector),
                         words);
}

SharedHold ElementwiseLoop::hold() const { return state_->kernel.hold(); }

namespace {

class ElementwisePlan final : public KernelPlan {
 public:
  explicit ElementwisePlan(std::unique_ptr<const ElementwiseLoop> loop)
      : loop_(std::move(loop)) {}
  size_t held_bytes() const override { return loop_->hold().bytes; }
  std::vector<SharedHold> shared_holds() const override {
    return {loop_->hold()};
  }
  absl::Status Run(const RunArgs& args) const override {
    return loop_->Run(args.stream, args.inputs, args.outputs[0],
                      args.node_index);
  }

 private:
  const std::unique_ptr<const ElementwiseLoop> loop_;
};

// A missing optional input is passed as one element of the output, which the
// expression does not mention.
class ElementwiseKernel final : public Kernel {
 public:
  ElementwiseKernel(CudaDevice* device, ScalarExpression expression)
      : device_(device), expression_(std::move(expression)) {}

  absl::StatusOr<std::unique_ptr<const KernelPlan>> Plan(
      const PlanArgs& args) const override {
    const TensorMeta& out = args.outputs[0];
    ElementwiseSpec spec;
    spec.expression = expression_.code;
    spec.moves = expression_.moves;
    spec.output = out.dtype;
    spec.dims = out.dims;
    for (const TensorMeta& in : args.inputs) {
      Operand operand;
      if (in.dtype == DType::kInvalid) {
        operand.dtype = DType::kUint8;
        operand.strides = Dims(out.dims.size(), 0);
      } else {
        operand.dtype = in.dtype;
        operand.strides = BroadcastStrides(in.dims, out.dims);
      }
      spec.inputs.push_back(std::move(operand));
    }
    WEIR_ASSIGN_OR_RETURN(std::unique_ptr<const ElementwiseLoop> loop,
                          ElementwiseLoop::Make(device_, spec));
    return std::make_unique<const ElementwisePlan>(std::move(loop));
  }

 private:
  CudaDevice* const device_;
  const ScalarExpression expression_;
};

// Of the operator, which has a scalar expression.
KernelFactory Factory(const OpDef* def) {
  return [def](
             const NodeInfo& node,
             Device& device) -> absl::StatusOr<std::unique_ptr<const Kernel>> {
    if (node.input_types.size() > kMaxInputs) {
      return absl::UnimplementedError(
          absl::StrCat("more than ", kMaxInputs, " inputs"));
    }
    WEIR_RETURN_IF_ERROR(RefuseStrings(node));
    WEIR_ASSIGN_OR_RETURN(CudaDevice * cuda, CudaDevice::From(device));
    WEIR_ASSIGN_OR_RETURN(ScalarExpression expression, def->expression(node));
    return std::make_unique<const ElementwiseKernel>(cuda,
                                                     std::move(expression));
  };
}

}  // namespace

absl::Status RegisterElementwise(OpRegistry& registry) {
  for (const OpDef* def : registry.List()) {
    if (def->expression == nullptr) continue;
    WEIR_RETURN_IF_ERROR(registry.RegisterKernel(DeviceKind::kCuda, def->domain,
                                                 def->name, Factory(def)));
  }
  // Of wider types the compiler would join products with sums.
  return registry.RegisterKernel(
      DeviceKind::kCuda, kFusedElementwiseDomain, kFusedElementwiseName,
      Factory(registry.FindInternal(kFusedElementwiseDomain,
                                    kFusedElementwiseName)),
      {.takes = [](const NodeInfo& node) {
        const DType type = node.input_types[0];
        return type == DType::kFloat16 || type == DType::kBfloat16;
      }});
}

}  // namespace weir::cuda
