// A small registry for the tests of this layer: operators with the shapes of
// trouble (hosts inputs, aliases, digests, faults), float and int64 only, with
// the same kernels for the CPU and for a pretended GPU.
#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/graph/graph.h"
#include "kernels/ops/op.h"
#include "kernels/ops/registry.h"

namespace weir::testing {

// How often a kernel ran, by all tests of one registry.
struct RunCounts {
  std::atomic<int> add{0};
  std::atomic<int> neg{0};
};

inline absl::Status SameShape(InferContext& c) {
  c.SetOutput(0, c.node().input_types[0], c.input_shape(0));
  return absl::OkStatus();
}

inline absl::Status Broadcast(InferContext& c) {
  SymbolicShape shape;
  if (c.input_shape(0).has_value() && c.input_shape(1).has_value()) {
    auto dims = BroadcastShapes(*c.input_shape(0), *c.input_shape(1));
    if (!dims.ok()) return dims.status();
    shape = *std::move(dims);
  }
  c.SetOutput(0, c.node().input_types[0], std::move(shape));
  return absl::OkStatus();
}

inline absl::Status ReshapeShape(InferContext& c) {
  const auto wanted = c.HostInts(1);
  SymbolicShape shape;
  if (wanted.has_value()) shape = ToSymbolic(*wanted);
  const auto from = ToConcrete(c.input_shape(0));
  const auto to = ToConcrete(shape);
  if (from.has_value() && to.has_value()) {
    const auto before = NumElements(*from);
    const auto after = NumElements(*to);
    if (!after.ok()) return after.status();
    if (*before != *after) {
      return absl::InvalidArgumentError("cannot reshape " + DimsString(*from) +
                                        " to " + DimsString(*to));
    }
  }
  c.SetOutput(0, c.node().input_types[0], std::move(shape));
  return absl::OkStatus();
}

inline absl::Status RankShape(InferContext& c) {
  SymbolicShape shape;
  if (c.input_shape(0).has_value()) {
    shape = SymbolicDims{Dim(static_cast<int64_t>(c.input_shape(0)->size()))};
  }
  c.SetOutput(0, DType::kInt64, std::move(shape));
  return absl::OkStatus();
}

inline absl::Status ConcatShape(InferContext& c) {
  Dim total(0);
  for (size_t i = 0; i < c.node().input_types.size(); ++i) {
    if (!c.input_shape(i).has_value()) {
      c.SetOutput(0, c.node().input_types[0], std::nullopt);
      return absl::OkStatus();
    }
    total = total + (*c.input_shape(i))[0];
  }
  c.SetOutput(0, c.node().input_types[0], SymbolicDims{total});
  return absl::OkStatus();
}

// Gather(data [n], indices) along axis 0.
inline absl::Status GatherShape(InferContext& c) {
  c.SetOutput(0, c.node().input_types[0], c.input_shape(1));
  return absl::OkStatus();
}

// Fill(shape): zeros.
inline absl::Status FillShape(InferContext& c) {
  const auto wanted = c.HostInts(0);
  c.SetOutput(
      0, DType::kFloat,
      wanted.has_value() ? SymbolicShape(ToSymbolic(*wanted)) : std::nullopt);
  return absl::OkStatus();
}

// Decode(bytes): the first byte says how many floats come out; each is the byte
// after it.
inline absl::Status DecodeShape(InferContext& c) {
  const auto digest = c.HostInts(0);
  c.SetOutput(0, DType::kFloat,
              digest.has_value() ? SymbolicShape(ToSymbolic(*digest))
                                 : SymbolicShape(SymbolicDims{Dim()}));
  return absl::OkStatus();
}

// How often any Decode was asked for its digest, to which each byte is a part.
inline std::atomic<int> decode_digests{0};

inline absl::StatusOr<std::vector<int64_t>> DecodeDigest(
    const HostTensor& value, DigestBudget& budget) {
  ++decode_digests;
  if (!value.dims.empty() && !budget.Take(value.dims[0])) {
    return absl::ResourceExhaustedError("the picture has too many parts");
  }
  if (value.dims.empty() || value.dims[0] < 2) {
    return absl::InvalidArgumentError("the picture is truncated");
  }
  return std::vector<int64_t>{value.as<uint8_t>()[0]};
}

// As much scratch memory as input.
inline NodeCost ScratchCost(const NodeInfo& node, Pace pace,
                            const PlanArgs& args) {
  NodeCost cost = LinearCost(node, pace, args);
  cost.scratch_bytes = static_cast<int64_t>(args.inputs[0].bytes);
  return cost;
}

inline absl::Status RandomShape(InferContext& c) {
  c.SetOutput(0, DType::kFloat, SymbolicDims{Dim(4)});
  return absl::OkStatus();
}

template <typename T>
RunFunction BroadcastSum(const PlanArgs& args) {
  const int64_t n = args.outputs[0].elements;
  const int64_t a = args.inputs[0].elements;
  const int64_t b = args.inputs[1].elements;
  return [n, a, b](const RunArgs& run) {
    const T* x = static_cast<const T*>(run.inputs[0]);
    const T* y = static_cast<const T*>(run.inputs[1]);
    T* z = static_cast<T*>(run.outputs[0]);
    for (int64_t i = 0; i < n; ++i) z[i] = x[i % a] + y[i % b];
    return absl::OkStatus();
  };
}

inline KernelFactory Factory(PlanFunction plan) {
  return [plan](const NodeInfo&, Device&) { return MakeKernel(plan); };
}

class TestOperators {
 public:
  TestOperators() {
    const TypeSet types = {DType::kFloat, DType::kInt64};
    const TypeSet ints = {DType::kInt64};
    Define(Def("Add", {{"A", types}, {"B", types}}, Broadcast),
           [this](const PlanArgs& args) -> absl::StatusOr<RunFunction> {
             RunFunction sum = args.outputs[0].dtype == DType::kFloat
                                   ? BroadcastSum<float>(args)
                                   : BroadcastSum<int64_t>(args);
             return RunFunction([this, sum](const RunArgs& run) {
               ++counts.add;
               return sum(run);
             });
           });
    Define(Def("Neg", {{"X", types}}, SameShape),
           [this](const PlanArgs& args) -> absl::StatusOr<RunFunction> {
             const int64_t n = args.outputs[0].elements;
             return RunFunction([this, n](const RunArgs& run) {
               ++counts.neg;
               const auto* x = static_cast<const float*>(run.inputs[0]);
               auto* y = static_cast<float*>(run.outputs[0]);
               for (int64_t i = 0; i < n; ++i) y[i] = -x[i];
               return absl::OkStatus();
             });
           });
    Define(Aliasing(Def("Reshape", {{"data", types}, {"shape", ints, 1}},
                        ReshapeShape, /*host_inputs=*/2)),
           nullptr);
    Define(
        ShapeOnly(Def("Shape", {{"data", kAllTypes}}, RankShape)),
        [](const PlanArgs& args) -> absl::StatusOr<RunFunction> {
          return RunFunction([dims = args.inputs[0].dims](const RunArgs& run) {
            std::copy(dims.begin(), dims.end(),
                      static_cast<int64_t*>(run.outputs[0]));
            return absl::OkStatus();
          });
        });
    Define(Def("Concat", {{"X", types, 0, false, true}}, ConcatShape),
           [](const PlanArgs& args) -> absl::StatusOr<RunFunction> {
             std::vector<size_t> bytes;
             for (const TensorMeta& input : args.inputs) {
               bytes.push_back(input.bytes);
             }
             return RunFunction([bytes](const RunArgs& run) {
               auto* to = static_cast<std::byte*>(run.outputs[0]);
               for (size_t i = 0; i < bytes.size(); ++i) {
                 std::memcpy(to, run.inputs[i], bytes[i]);
                 to += bytes[i];
               }
               return absl::OkStatus();
             });
           });
    Define(Def("Gather", {{"data", types}, {"indices", ints, 1}}, GatherShape),
           [](const PlanArgs& args) -> absl::StatusOr<RunFunction> {
             const int64_t limit = args.inputs[0].dims[0];
             const int64_t n = args.outputs[0].elements;
             const size_t size = SizeOf(args.outputs[0].dtype);
             return RunFunction([limit, n, size](const RunArgs& run) {
               const auto* data = static_cast<const std::byte*>(run.inputs[0]);
               const auto* index = static_cast<const int64_t*>(run.inputs[1]);
               auto* to = static_cast<std::byte*>(run.outputs[0]);
               for (int64_t i = 0; i < n; ++i) {
                 if (index[i] < 0 || index[i] >= limit) {
                   return FaultStatus(FaultCode::kIndexOutOfRange);
                 }
                 std::memcpy(to + static_cast<size_t>(i) * size,
                             data + static_cast<size_t>(index[i]) * size, size);
               }
               return absl::OkStatus();
             });
           });
    Define(
        Def("ConstantOfShape", {{"shape", ints}}, FillShape, /*host_inputs=*/1),
        [](const PlanArgs& args) -> absl::StatusOr<RunFunction> {
          return RunFunction(
              [bytes = args.outputs[0].bytes](const RunArgs& run) {
                std::memset(run.outputs[0], 0, bytes);
                return absl::OkStatus();
              });
        });
    OpDef decode;
    decode.domain = "weir";
    decode.name = "Decode";
    decode.inputs = {{"bytes", {DType::kUint8}}};
    decode.outputs = {{"Y"}};
    decode.host_inputs = 1;
    decode.digest = DecodeDigest;
    decode.infer = DecodeShape;
    decode.cost = LinearCost;
    Define(decode, [](const PlanArgs& args) -> absl::StatusOr<RunFunction> {
      return RunFunction([n = args.outputs[0].elements](const RunArgs& run) {
        const auto* bytes = static_cast<const uint8_t*>(run.inputs[0]);
        auto* to = static_cast<float*>(run.outputs[0]);
        for (int64_t i = 0; i < n; ++i) to[i] = bytes[1];
        return absl::OkStatus();
      });
    });
    OpDef random;
    random.domain = "weir";
    random.name = "Random";
    random.outputs = {{"Y"}};
    random.random = true;
    random.infer = RandomShape;
    random.cost = LinearCost;
    Define(random, [](const PlanArgs&) -> absl::StatusOr<RunFunction> {
      return RunFunction([](const RunArgs& run) {
        auto* to = static_cast<float*>(run.outputs[0]);
        for (int i = 0; i < 4; ++i) {
          to[i] = static_cast<float>(run.random.seed);
        }
        return absl::OkStatus();
      });
    });
    OpDef scratch;
    scratch.domain = "weir";
    scratch.name = "Scratch";
    scratch.inputs = {{"X", {DType::kFloat}}};
    scratch.outputs = {{"Y"}};
    scratch.infer = SameShape;
    scratch.cost = ScratchCost;
    Check(registry.Register(scratch));
    for (DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kCuda}) {
      Check(registry.RegisterKernel(
          kind, "weir", "Scratch",
          [](const NodeInfo&,
             Device&) -> absl::StatusOr<std::unique_ptr<const Kernel>> {
            return std::make_unique<ScratchKernel>();
          }));
    }
    // Known, but without a kernel anywhere.
    Check(registry.Register(Def("Erf", {{"X", types}}, SameShape)));
  }

  OpRegistry registry;
  RunCounts counts;

 private:
  // Copies through its scratch memory.
  class ScratchPlan final : public KernelPlan {
   public:
    explicit ScratchPlan(size_t bytes) : bytes_(bytes) {}
    size_t scratch_bytes() const override { return bytes_; }
    absl::Status Run(const RunArgs& run) const override {
      std::memcpy(run.scratch, run.inputs[0], bytes_);
      std::memcpy(run.outputs[0], run.scratch, bytes_);
      return absl::OkStatus();
    }

   private:
    const size_t bytes_;
  };
  class ScratchKernel final : public Kernel {
   public:
    absl::StatusOr<std::unique_ptr<const KernelPlan>> Plan(
        const PlanArgs& args) const override {
      return std::make_unique<const ScratchPlan>(args.inputs[0].bytes);
    }
  };

  static OpDef Def(std::string_view name, std::vector<InputDef> inputs,
                   absl::Status (*infer)(InferContext&),
                   uint32_t host_inputs = 0) {
    OpDef def;
    def.name = name;
    def.inputs = std::move(inputs);
    def.outputs = {{"Y"}};
    def.infer = infer;
    def.cost = LinearCost;
    def.host_inputs = host_inputs;
    return def;
  }
  static OpDef Aliasing(OpDef def) {
    def.aliases_input = true;
    return def;
  }
  static OpDef ShapeOnly(OpDef def) {
    def.shape_only = true;
    return def;
  }

  static void Check(const absl::Status& status) {
    if (!status.ok()) std::abort();
  }

  void Define(const OpDef& def, PlanFunction plan) {
    Check(registry.Register(def));
    if (plan == nullptr) return;
    for (DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kCuda}) {
      Check(registry.RegisterKernel(kind, def.domain, def.name, Factory(plan)));
    }
  }
};

// -- Graphs by hand -----------------------------------------------------------

template <typename T>
std::shared_ptr<const Constant> MakeConstant(DType dtype, Dims dims,
                                             std::vector<T> values) {
  auto owner = std::make_shared<const std::vector<T>>(std::move(values));
  auto constant = std::make_shared<Constant>();
  constant->tensor = {dtype, std::move(dims), owner->data()};
  constant->owner = owner;
  return constant;
}

inline std::shared_ptr<const Constant> Floats(Dims dims,
                                              std::vector<float> values) {
  return MakeConstant(DType::kFloat, std::move(dims), std::move(values));
}

inline std::shared_ptr<const Constant> Ints(std::vector<int64_t> values) {
  Dims dims = {static_cast<int64_t>(values.size())};
  return MakeConstant(DType::kInt64, std::move(dims), std::move(values));
}

inline GraphNode Node(std::string op, std::vector<std::string> inputs,
                      std::vector<std::string> outputs, std::string name = "") {
  GraphNode node;
  node.name = std::move(name);
  const size_t dot = op.find('.');
  if (dot != std::string::npos) {
    node.domain = op.substr(0, dot);
    op = op.substr(dot + 1);
  }
  node.op = std::move(op);
  node.inputs = std::move(inputs);
  node.outputs = std::move(outputs);
  return node;
}

inline ValueDecl Input(std::string name, SymbolicShape shape,
                       DType dtype = DType::kFloat) {
  return {std::move(name), dtype, std::move(shape)};
}

}  // namespace weir::testing
