#include "tests/ops/op_test.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <random>

#include "absl/strings/str_cat.h"
#include "kernels/backend/devices.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "tests/device/test_task.h"
#include "tests/ops/image/every_target.h"

namespace weir {
namespace {

constexpr size_t kGuard = 256;
// NaN, -1 and true; and 2e17 (float), 0x5C5C... and a boolean that is none.
constexpr uint8_t kPoisons[] = {0xFF, 0x5C};

// The devices of this process, made once: a CUDA context is not made twice.
struct Machine {
  std::unique_ptr<OpRegistry> registry;
  std::unique_ptr<Device> device;
  absl::Status status;
};

Machine& MachineFor(const std::string& name) {
  static auto& machines = *new std::map<std::string, Machine>();
  const auto [it, added] = machines.try_emplace(name);
  Machine& machine = it->second;
  if (added) {
    machine.registry = MakeOpRegistry({.test_operators = true});
    auto device = MakeDevice(name, {.cpu_threads = 3}, *machine.registry);
    machine.status = device.status();
    if (device.ok()) machine.device = *std::move(device);
  }
  return machine;
}

class Inference final : public InferContext {
 public:
  Inference(const NodeInfo& node, std::vector<SymbolicShape> shapes,
            std::vector<std::optional<std::vector<int64_t>>> host_ints)
      : node_(node),
        shapes_(std::move(shapes)),
        host_ints_(std::move(host_ints)),
        types_(static_cast<size_t>(node.num_outputs)),
        outputs_(static_cast<size_t>(node.num_outputs)) {}

  const NodeInfo& node() const override { return node_; }
  const SymbolicShape& input_shape(size_t i) const override {
    return i < shapes_.size() ? shapes_[i] : none_;
  }
  std::optional<absl::Span<const int64_t>> HostInts(size_t i) const override {
    if (i >= host_ints_.size() || !host_ints_[i].has_value()) {
      return std::nullopt;
    }
    return absl::MakeConstSpan(*host_ints_[i]);
  }
  void SetOutput(size_t i, DType dtype, SymbolicShape shape) override {
    types_.at(i) = dtype;
    outputs_.at(i) = std::move(shape);
  }

  DType type(size_t i) const { return types_[i]; }
  const SymbolicShape& output(size_t i) const { return outputs_[i]; }

 private:
  const NodeInfo& node_;
  const std::vector<SymbolicShape> shapes_;
  const std::vector<std::optional<std::vector<int64_t>>> host_ints_;
  const SymbolicShape none_;
  std::vector<DType> types_;
  std::vector<SymbolicShape> outputs_;
};

TensorMeta MetaOf(DType dtype, const Dims& dims) {
  TensorMeta meta;
  if (dtype == DType::kInvalid) return meta;
  meta.dtype = dtype;
  meta.dims = dims;
  meta.elements = NumElements(dims).value();
  meta.bytes = static_cast<size_t>(ByteSize(dtype, dims).value());
  return meta;
}

absl::StatusOr<std::vector<int64_t>> HostIntsOf(const OpDef& def,
                                                const Value& value) {
  if (def.digest != nullptr) {
    DigestBudget budget;
    return def.digest(HostTensor{value.dtype, value.dims, value.bytes.data()},
                      budget);
  }
  if (value.dtype == DType::kInt64) return value.As<int64_t>();
  std::vector<int64_t> ints;
  for (double x : ToDoubles(value)) ints.push_back(static_cast<int64_t>(x));
  return ints;
}

bool IsHostInput(const OpDef& def, size_t i) {
  return i < 32 && ((def.host_inputs >> i) & 1u) != 0;
}

// The smallest normal number and the distance from 1 to the next.
std::pair<double, double> Precision(DType dtype) {
  switch (dtype) {
    case DType::kFloat:
      return {0x1p-126, 0x1p-23};
    case DType::kDouble:
      return {0x1p-1022, 0x1p-52};
    case DType::kFloat16:
      return {0x1p-14, 0x1p-10};
    case DType::kBfloat16:
      return {0x1p-126, 0x1p-7};
    default:
      return {1, 0};
  }
}

// What libraries may ask for on top of a node's cost.
size_t LibraryBytes(const std::string& op, bool on_cuda) {
  if (op == "FusedConv" || op == "Conv")
    return size_t{on_cuda ? 257u : 4u} << 20;
  if (on_cuda && (op == "MatMul" || op == "Gemm" || op == "FusedMatMul")) {
    return size_t{64} << 20;
  }
  return 0;
}

void CheckCost(const NodeInfo& node, const NodeCost& cost, const PlanArgs& args,
               const KernelPlan& plan, bool on_cuda) {
  int64_t elements = 0;
  for (const TensorMeta& output : args.outputs) elements += output.elements;
  EXPECT_GE(cost.operations, elements) << node.op;
  EXPECT_LE(plan.scratch_bytes(), static_cast<size_t>(cost.scratch_bytes) +
                                      LibraryBytes(node.op, on_cuda))
      << node.op;
}

double Largest(DType dtype) {
  switch (dtype) {
    case DType::kFloat:
      return static_cast<double>(std::numeric_limits<float>::max());
    case DType::kFloat16:
      return 65504;
    case DType::kBfloat16:
      return 0x1.FEp127;
    default:
      return std::numeric_limits<double>::max();
  }
}

}  // namespace

Value Rounded(DType dtype, Dims dims, const std::vector<double>& values) {
  Value value;
  DispatchType(FixedTypeList(), dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    value.dtype = dtype;
    value.dims = dims;
    value.bytes.resize(values.size() * sizeof(T));
    for (size_t i = 0; i < values.size(); ++i) {
      T element;
      if constexpr (std::is_same_v<T, bool>) {
        element = values[i] != 0;
      } else if constexpr (std::is_same_v<T, Float16> ||
                           std::is_same_v<T, Bfloat16>) {
        element = T(static_cast<float>(values[i]));
      } else {
        element = static_cast<T>(values[i]);
      }
      std::memcpy(value.bytes.data() + i * sizeof(T), &element, sizeof(T));
    }
  });
  return value;
}

std::vector<double> ToDoubles(const Value& value) {
  std::vector<double> result;
  DispatchType(FixedTypeList(), value.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const T* data = reinterpret_cast<const T*>(value.bytes.data());
    const size_t n = value.bytes.size() / sizeof(T);
    for (size_t i = 0; i < n; ++i) {
      if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, Bfloat16>) {
        result.push_back(static_cast<double>(static_cast<float>(data[i])));
      } else {
        result.push_back(static_cast<double>(data[i]));
      }
    }
  });
  return result;
}

std::vector<double> Spread(int64_t n, double low, double high, uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<double> values(static_cast<size_t>(n));
  for (double& value : values) {
    value = low + (high - low) * (static_cast<double>(generator()) * 0x1p-32);
  }
  return values;
}

NodeInfo Node(std::string op, Attributes attributes, int opset) {
  NodeInfo node;
  node.name = "test";
  node.op = std::move(op);
  node.opset = opset;
  node.attributes = std::move(attributes);
  return node;
}

NodeInfo WeirNode(std::string op, Attributes attributes) {
  NodeInfo node = Node(std::move(op), std::move(attributes), 1);
  node.domain = "weir";
  return node;
}

void ExpectClose(const Value& actual, const std::vector<double>& exact,
                 Bound bound) {
  const std::vector<double> values = ToDoubles(actual);
  ASSERT_EQ(values.size(), exact.size());
  const auto [smallest, epsilon] = Precision(actual.dtype);
  const double largest = Largest(actual.dtype);
  int reported = 0;
  for (size_t i = 0; i < values.size() && reported < 5; ++i) {
    const double want = exact[i];
    const double got = values[i];
    if (std::isnan(want) || std::isnan(got)) {
      if (std::isnan(want) == std::isnan(got)) continue;
    } else if (got == want) {
      continue;
    } else if (std::isinf(got)) {
      // Overflow, where the exact result is as large as the type allows.
      if (std::abs(want) > largest * (1 - bound.ulps * epsilon) &&
          std::signbit(got) == std::signbit(want)) {
        continue;
      }
    } else if (!std::isinf(want)) {
      const int exponent = std::ilogb(std::max(std::abs(want), smallest));
      const double ulp = epsilon * std::ldexp(1.0, exponent);
      if (std::abs(got - want) <=
          bound.ulps * ulp + bound.absolute + bound.relative * std::abs(want)) {
        continue;
      }
    }
    ++reported;
    ADD_FAILURE() << DTypeName(actual.dtype) << " element " << i << " of "
                  << values.size() << ": " << got << " instead of " << want
                  << ", off by " << got - want;
  }
}

void ExpectEqual(const Value& actual, const Value& expected) {
  EXPECT_EQ(DTypeName(actual.dtype), DTypeName(expected.dtype));
  EXPECT_EQ(DimsString(actual.dims), DimsString(expected.dims));
  if (actual.bytes == expected.bytes) return;
  EXPECT_EQ(ToDoubles(actual), ToDoubles(expected));
  // NaNs and signed zeros differ only here.
  ADD_FAILURE() << "the bytes of the two tensors differ";
}

absl::StatusOr<std::vector<std::string>> InferShapes(
    const NodeInfo& node, const std::vector<SymbolicShape>& shapes,
    const std::vector<std::optional<std::vector<int64_t>>>& host_ints) {
  const auto registry = MakeOpRegistry({.test_operators = true});
  WEIR_RETURN_IF_ERROR(registry->Check(node));
  Inference inference(node, shapes, host_ints);
  WEIR_RETURN_IF_ERROR(
      registry->FindInternal(node.domain, node.op)->infer(inference));
  std::vector<std::string> result;
  for (int i = 0; i < node.num_outputs; ++i) {
    const size_t k = static_cast<size_t>(i);
    result.push_back(std::string(DTypeName(inference.type(k))) +
                     ShapeString(inference.output(k)));
  }
  return result;
}

std::vector<std::string> DevicesAndTargets() {
  std::vector<std::string> all = {"cpu", "cuda:0"};
  // Of a target's bit and those above it, this processor has the lowest.
  const int64_t targets = hwy::SupportedTargets();
  for (int64_t left = targets & (targets - 1); left != 0; left &= left - 1) {
    all.push_back(absl::StrCat("cpu/", hwy::TargetName(left & -left)));
  }
  return all;
}

std::string DeviceTestName(const testing::TestParamInfo<std::string>& device) {
  std::string name = device.param;
  if (name.rfind("cuda", 0) == 0) return "cuda";
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

void OpTest::SetUp() {
  const std::string device = GetParam().substr(0, GetParam().find('/'));
  if (device != GetParam()) {
    const std::string target = GetParam().substr(device.size() + 1);
    int64_t targets = hwy::SupportedTargets();
    while (hwy::TargetName(targets & -targets) != target) {
      targets &= targets - 1;
    }
    image::UseTarget(targets & -targets);
  }
  Machine& machine = MachineFor(device);
  if (Reason(machine.status) == "NO_CUDA_DEVICE") {
    GTEST_SKIP() << machine.status;
  }
  ASSERT_TRUE(machine.status.ok()) << machine.status;
  device_ = machine.device.get();
  registry_ = machine.registry.get();
}

void OpTest::TearDown() { image::UseTarget(0); }

struct OpTest::Planned {
  const OpDef* definition;
  std::unique_ptr<const KernelPlan> plan;
  std::vector<TensorMeta> outputs;
};

absl::StatusOr<std::vector<Value>> OpTest::Run(NodeInfo node,
                                               const std::vector<Value>& inputs,
                                               RandomKey random) {
  node.input_types.clear();
  for (const Value& input : inputs) node.input_types.push_back(input.dtype);
  WEIR_RETURN_IF_ERROR(registry().Check(node));
  const OpDef& def = *registry().FindInternal(node.domain, node.op);

  // Inference and plan.
  std::vector<SymbolicShape> shapes;
  std::vector<TensorMeta> input_metas;
  std::vector<std::optional<std::vector<int64_t>>> infer_ints(inputs.size());
  std::vector<std::vector<int64_t>> host_ints(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value& input = inputs[i];
    input_metas.push_back(MetaOf(input.dtype, input.dims));
    if (input.dtype == DType::kInvalid) {
      shapes.emplace_back();
      continue;
    }
    shapes.emplace_back(ToSymbolic(input.dims));
    if (IsHostInput(def, i)) {
      WEIR_ASSIGN_OR_RETURN(host_ints[i], HostIntsOf(def, input));
      infer_ints[i] = host_ints[i];
    }
  }
  Inference inference(node, shapes, infer_ints);
  WEIR_RETURN_IF_ERROR(def.infer(inference));
  std::vector<TensorMeta> output_metas;
  for (int k = 0; k < node.num_outputs; ++k) {
    const size_t i = static_cast<size_t>(k);
    const std::optional<Dims> dims = ToConcrete(inference.output(i));
    if (!dims.has_value()) {
      return absl::InternalError(absl::StrCat(
          "output ", k,
          " has no concrete shape: ", ShapeString(inference.output(i))));
    }
    WEIR_RETURN_IF_ERROR(ByteSize(inference.type(i), *dims).status());
    output_metas.push_back(MetaOf(inference.type(i), *dims));
  }
  WEIR_ASSIGN_OR_RETURN(const auto kernel,
                        registry().CreateKernel(node, device()));
  const PlanArgs args = {.inputs = input_metas,
                         .outputs = output_metas,
                         .host_ints = host_ints,
                         .once = once_};
  Planned planned{&def, nullptr, output_metas};
  WEIR_ASSIGN_OR_RETURN(planned.plan, kernel->Plan(args));
  NodeCost cost = def.cost(node, device().info().pace, args);
  const KernelTraits& traits = registry().Traits(device().info(), node);
  if (traits.scratch_bytes != nullptr) {
    cost.scratch_bytes = traits.scratch_bytes(node, args);
  }
  CheckCost(node, cost, args, *planned.plan, on_cuda());
  if (!on_every_target()) image::UseTarget(0);
  auto outputs = RunOver(kPoisons[0], planned, inputs, random);
  if (!outputs.ok()) return outputs;
  // Vector code chooses its instructions when it is first met.
  if (!on_every_target() && hwy::GetChosenTarget().IsInitialized()) {
    ADD_FAILURE() << node.op
                  << " has vector code: WEIR_VECTOR_OP_TEST runs it on every "
                     "instruction set";
  }
  WEIR_ASSIGN_OR_RETURN(const std::vector<Value> again,
                        RunOver(kPoisons[1], planned, inputs, random));
  for (size_t i = 0; i < outputs->size(); ++i) {
    if (outputs->at(i).bytes == again[i].bytes) continue;
    ADD_FAILURE() << "output " << i
                  << " depends on what memory held before: it is not written "
                     "in full, or something was read before it was written";
  }
  return outputs;
}

absl::StatusOr<std::vector<Value>> OpTest::RunOver(
    uint8_t poison, const Planned& planned, const std::vector<Value>& inputs,
    RandomKey random) {
  // Everything in one block on the device, with guards between.
  size_t size = 0;
  const auto place = [&size](size_t bytes) {
    const size_t at = size;
    size += (bytes + kGuard + 255) / 256 * 256;
    return at;
  };
  place(0);
  std::vector<size_t> input_at;
  std::vector<size_t> output_at;
  for (const Value& input : inputs) {
    input_at.push_back(place(input.bytes.size()));
  }
  for (const TensorMeta& meta : planned.outputs) {
    output_at.push_back(place(meta.bytes));
  }
  const size_t scratch_bytes = planned.plan->scratch_bytes();
  const size_t scratch_at = place(scratch_bytes);
  WEIR_ASSIGN_OR_RETURN(PinnedMemory before, device().AllocatePinned(size));
  WEIR_ASSIGN_OR_RETURN(PinnedMemory after, device().AllocatePinned(size));
  WEIR_ASSIGN_OR_RETURN(DeviceMemory memory, device().Allocate(size));
  std::fill_n(before.data(), size, std::byte{poison});
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::copy(inputs[i].bytes.begin(), inputs[i].bytes.end(),
              before.data() + input_at[i]);
  }
  const std::vector<std::byte> expected(before.data(), before.data() + size);

  std::byte* base = static_cast<std::byte*>(memory.data());
  std::vector<const void*> input_pointers;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const void* on_device = base + input_at[i];
    const void* on_host = before.data() + input_at[i];
    input_pointers.push_back(inputs[i].dtype == DType::kInvalid    ? nullptr
                             : IsHostInput(*planned.definition, i) ? on_host
                                                                   : on_device);
  }
  std::vector<void*> output_pointers;
  for (size_t at : output_at) output_pointers.push_back(base + at);

  WEIR_ASSIGN_OR_RETURN(const auto stream, device().CreateStream(0));
  absl::Status ran;
  TestTask task([&](Stream& s) -> absl::Status {
    WEIR_RETURN_IF_ERROR(s.CopyToDevice(base, before.data(), size));
    RunArgs args{.stream = s,
                 .team = device().cpu_team(),
                 .inputs = input_pointers,
                 .outputs = output_pointers,
                 .scratch = base + scratch_at,
                 .random = random};
    ran = planned.plan->Run(args);
    return s.CopyToHost(after.data(), base, size);
  });
  stream->Enqueue(&task);
  const Completion& completion = task.Wait();
  if (completion.fault != FaultCode::kNone) {
    ran.Update(FaultStatus(completion.fault));
  } else {
    WEIR_RETURN_IF_ERROR(completion.status);
  }

  std::vector<Value> outputs;
  std::vector<bool> may_change(size, false);
  const auto release = [&may_change](size_t at, size_t bytes) {
    std::fill_n(may_change.begin() + static_cast<ptrdiff_t>(at), bytes, true);
  };
  for (size_t i = 0; i < planned.outputs.size(); ++i) {
    const std::byte* data = after.data() + output_at[i];
    const size_t bytes = planned.outputs[i].bytes;
    outputs.push_back({planned.outputs[i].dtype, planned.outputs[i].dims,
                       std::vector<std::byte>(data, data + bytes)});
    release(output_at[i], bytes);
  }
  release(scratch_at, scratch_bytes);
  for (size_t i = 0; i < size; ++i) {
    if (!may_change[i] && after.data()[i] != expected[i]) {
      ADD_FAILURE() << "byte " << i << " of the device's " << size
                    << " was changed; inputs begin at "
                    << testing::PrintToString(input_at) << ", outputs at "
                    << testing::PrintToString(output_at) << ", "
                    << scratch_bytes << " bytes of scratch memory at "
                    << scratch_at;
      break;
    }
  }
  if (!std::equal(expected.begin(), expected.end(), before.data())) {
    ADD_FAILURE() << "an input that is read on the host was changed";
  }
  WEIR_RETURN_IF_ERROR(ran);
  return outputs;
}

Value OpTest::RunOne(const NodeInfo& node, const std::vector<Value>& inputs) {
  auto outputs = Run(node, inputs);
  if (!outputs.ok()) {
    ADD_FAILURE() << outputs.status();
    return Value();
  }
  return outputs->at(0);
}

}  // namespace weir
