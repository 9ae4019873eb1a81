// What an operator is: its definition (documentation, signature, shape
// inference) and, per device, a factory for its kernels. Definitions and
// kernels are immutable once registered and may be used from any thread.
//
// Adding an operator: one line in ops.def, its code in <family>.cc and, where
// its CUDA kernel is not generated, kernels/ops/cuda/<family>.{cc,cuh}; one
// reference in tests/ops. CONTRIBUTING.md goes through it step by step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/base/export.h"
#include "kernels/device/cpu_team.h"
#include "kernels/device/device.h"
#include "kernels/ops/cost.h"
#include "kernels/ops/digest_budget.h"
#include "kernels/ops/shared_hold.h"
#include "kernels/tensor/shape.h"
#include "kernels/tensor/tensor.h"

namespace weir {

// A constant tensor that owns its bytes (or shares them with others).
struct Constant {
  HostTensor tensor;
  std::shared_ptr<const void> owner;
};

// -- Attributes --------------------------------------------------------------

using AttributeValue =
    std::variant<int64_t, float, std::string, std::vector<int64_t>,
                 std::vector<float>, std::vector<std::string>,
                 std::shared_ptr<const Constant>>;

// Small and ordered by insertion; names are unique (checked by validation).
class WEIR_EXPORT Attributes {
 public:
  void Set(std::string name, AttributeValue value);
  const AttributeValue* Find(std::string_view name) const;
  bool Has(std::string_view name) const { return Find(name) != nullptr; }

  // `fallback` if absent. The type was checked against the definition.
  int64_t Int(std::string_view name, int64_t fallback) const;
  float Float(std::string_view name, float fallback) const;
  std::string String(std::string_view name, std::string_view fallback) const;
  std::vector<int64_t> Ints(std::string_view name) const;  // empty if absent
  std::vector<float> Floats(std::string_view name) const;  // empty if absent
  std::vector<std::string> Strings(std::string_view name) const;
  std::shared_ptr<const Constant> Tensor(std::string_view name) const;

  const std::vector<std::pair<std::string, AttributeValue>>& all() const {
    return values_;
  }

 private:
  std::vector<std::pair<std::string, AttributeValue>> values_;
};

enum class AttributeType : uint8_t {
  kInt,
  kFloat,
  kString,
  kInts,
  kFloats,
  kStrings,
  kTensor  // as in the variant
};

// -- What a node looks like to its operator ----------------------------------

// Compile-time view of one node. A missing optional input has dtype kInvalid.
struct NodeInfo {
  std::string name;
  std::string domain;  // "" (ONNX) or "weir"
  std::string op;
  int opset = 0;  // of the node's domain
  Attributes attributes;
  std::vector<DType> input_types;
  int num_outputs = 1;

  bool HasInput(size_t i) const {
    return i < input_types.size() && input_types[i] != DType::kInvalid;
  }
};

// -- Shape inference ----------------------------------------------------------

// Given to OpDef::infer, both when a program is compiled (dims may be symbols,
// host values may be missing) and when a plan is made (everything is known). A
// function that cannot tell leaves the output's shape empty.
class WEIR_EXPORT InferContext {
 public:
  virtual ~InferContext() = default;
  virtual const NodeInfo& node() const = 0;
  // Empty if the rank is unknown or the input is missing.
  virtual const SymbolicShape& input_shape(size_t i) const = 0;
  // For inputs in OpDef::host_inputs: the digest, or the values as int64. Empty
  // while unknown.
  virtual std::optional<absl::Span<const int64_t>> HostInts(size_t i) const = 0;
  virtual void SetOutput(size_t i, DType dtype, SymbolicShape shape) = 0;
};

// -- Kernels ------------------------------------------------------------------

// How the elements of a dense tensor lie. Callers see kRowMajor alone; between
// the steps of a program there may be others (kernels/graph/passes/layout.h).
enum class Layout : uint8_t {
  kRowMajor,
  kChannelsLast,  // N x C x spatial, with the elements of a pixel together
};

struct TensorMeta {
  DType dtype = DType::kInvalid;
  Dims dims;  // the same in every layout
  int64_t elements = 0;
  size_t bytes = 0;
  Layout layout = Layout::kRowMajor;
};

class PackedConstants;

struct PlanArgs {
  absl::Span<const TensorMeta> inputs;  // dtype kInvalid where missing
  absl::Span<const TensorMeta> outputs;
  // As InferContext::HostInts; always known for host inputs here.
  absl::Span<const std::vector<int64_t>> host_ints;
  // Where inputs that are constants lie on the device; null for others. Empty:
  // none is known to be one.
  absl::Span<const void* const> constants = {};
  // Where a plan keeps them in another form; null where `constants` is empty.
  PackedConstants* packed = nullptr;
  // The plan runs once, and costs are of that: what takes longer to make than
  // to do without, such as a library's code, is not made.
  bool once = false;

  const void* Constant(size_t i) const {
    return i < constants.size() ? constants[i] : nullptr;
  }
};

// Draws are Philox(seed, stream, index) with stream = ordinal << 44 | row, so
// that a row's numbers do not depend on its neighbors (see
// kernels/base/philox.h).
struct RandomKey {
  uint64_t seed = 0;
  uint64_t first_row = 0;
};

struct RunArgs {
  Stream& stream;
  CpuTeam* team = nullptr;               // the CPU device's; null on CUDA
  absl::Span<const void* const> inputs;  // null where missing; host memory for
                                         // host inputs, else device memory
  absl::Span<void* const> outputs;  // kBlockAlignment, never aliasing inputs
  void* scratch = nullptr;  // KernelPlan::scratch_bytes, aligned as they
  RandomKey random;
  uint32_t node_index = 0;  // for fault reports and streams of random numbers
  // CUDA, where KernelPlan::computes_on_host: to be called between parts of a
  // long run. Waits for room on the stream; an error ends the run, for nobody
  // waits for it any more. Null: nobody asks.
  const absl::FunctionRef<absl::Status()>* pace = nullptr;
  // There, too: whether somebody still waits for it, for what the run itself
  // waits for. Null: go on.
  const absl::FunctionRef<absl::Status()>* go_on = nullptr;
};

// A kernel with concrete shapes: launch sizes, oneDNN primitives, workspace.
// Immutable and shared by concurrent runs. Its size grows with ranks, not with
// extents.
class WEIR_EXPORT KernelPlan {
 public:
  virtual ~KernelPlan() = default;
  virtual size_t scratch_bytes() const { return 0; }
  // What it holds of tables, loaded code and libraries' objects, on host and
  // device, where that is more than a few hundred bytes.
  virtual size_t held_bytes() const { return 0; }
  // The parts of it that other plans may hold, too. Each counts once for the
  // plan of a program, however many of its kernels hold it.
  virtual std::vector<SharedHold> shared_holds() const { return {}; }
  // CUDA: about how many calls of the driver or a library a run makes.
  virtual size_t launches() const { return 1; }
  // CUDA: a run computes on the host before it returns (decodes pictures), and
  // may wait for memory to do so.
  virtual bool computes_on_host() const { return false; }
  // How long a run takes goes by what the inputs hold, not by their shapes and
  // digests alone: a run that was short says nothing of the next.
  virtual bool time_varies() const { return false; }
  // Whose code a run executes, by the library's own names ("brgconv:avx512");
  // empty: weir's.
  virtual std::string implementation() const { return ""; }
  // CUDA: enqueues on args.stream and returns. CPU: computes and returns.
  // Wrong data is FaultStatus(code) on the CPU, a fault report on CUDA.
  virtual absl::Status Run(const RunArgs& args) const = 0;
};

// A node compiled for a device and element types. Immutable and shared.
class WEIR_EXPORT Kernel {
 public:
  virtual ~Kernel() = default;
  // Called off the hot path; may compile (CUDA) and allocate. The kernel
  // outlives its plans.
  virtual absl::StatusOr<std::unique_ptr<const KernelPlan>> Plan(
      const PlanArgs& args) const = 0;
};

// UNIMPLEMENTED if the node (its types, attributes, opset) is not supported on
// this device; the caller adds node, operator, opset and device to the message.
using KernelFactory =
    std::function<absl::StatusOr<std::unique_ptr<const Kernel>>(
        const NodeInfo& node, Device& device)>;

// For kernels without state beyond what a lambda captures, on either device: a
// node is compiled to a PlanFunction, which plans shapes to a PlannedRun, whose
// RunFunction runs.
using RunFunction = std::function<absl::Status(const RunArgs&)>;
// What a KernelPlan answers, said by one who has only a function.
struct PlannedRun {
  PlannedRun() = default;
  // NOLINTNEXTLINE(google-explicit-constructor)
  PlannedRun(RunFunction function, std::vector<SharedHold> holds = {})
      : run(std::move(function)), shared_holds(std::move(holds)) {}

  RunFunction run;
  size_t scratch_bytes = 0;
  size_t held_bytes = 0;  // without shared_holds, unlike the plan's
  std::vector<SharedHold> shared_holds;
  size_t launches = 1;
  bool computes_on_host = false;
};
using PlanFunction = std::function<absl::StatusOr<PlannedRun>(const PlanArgs&)>;
WEIR_EXPORT std::unique_ptr<const Kernel> MakeKernel(PlanFunction plan);
// For a kernel that plans to a function now and then.
WEIR_EXPORT std::unique_ptr<const KernelPlan> MakePlan(PlannedRun planned);

// -- Definitions --------------------------------------------------------------

struct InputDef {
  std::string_view name;
  TypeSet types;
  // Inputs of the same group (>= 0) have the same element type; each input of
  // group -1 has its own.
  int group = 0;
  bool optional = false;
  bool variadic = false;  // the last one only: one or more
};

struct AttributeDef {
  std::string_view name;
  AttributeType type;
  bool required = false;
  std::string_view doc;  // with default, unit and range
};

struct OutputDef {
  std::string_view name;
  bool optional = false;
  bool variadic = false;
};

// The scalar code of an elementwise operator: an expression in CUDA C++ from
// which broadcast kernels are generated (and fused). Conventions:
//
//   xi      input i of the node, converted to its compute type: float for
//           float16 and bfloat16, bool for bool, else the element type itself.
//           A missing optional input is not mentioned.
//   T, R    types: the compute types of input 0 and of the output. The value of
//           the expression is converted to R, then rounded to the output's
//           type.
//   names   everything in kernels/ops/scalar_functions.h (namespace
//           weir::scalar), which is compiled by NVRTC too and stands before the
//           kernel (ScalarFunctionsSource()); of plain C math only what that
//           header uses.
//   FAULT(FaultCode::kX)   reports a fault and yields R(0). At most one branch
//           of a conditional holds it; an element at fault stays in bounds.
//
// The functions define the corner cases, the same on both devices: integers
// wrap (also INT_MIN / -1), integer division by zero is a fault, Minimum and
// Maximum propagate NaN, Convert saturates and makes NaN 0.
struct ScalarExpression {
  std::string code;
  // The value is that of an input of the output's type, as it is: elements are
  // moved bit for bit. Such inputs stand in `code` as unsigned integers of
  // their size.
  bool moves = false;
};

// The text of kernels/ops/scalar_functions.h.
WEIR_EXPORT std::string_view ScalarFunctionsSource();

struct OpDef {
  std::string_view domain;
  std::string_view name;
  std::string_view doc;  // one or two sentences
  // The opsets of the domain that began a meaning which the code has,
  // ascending; each holds up to the next, the last one up to unknown_from (0:
  // it is the newest). Code that differs from one to the other compares
  // NodeInfo::opset with them. Of the tree's operators ops.def says them.
  std::vector<int> meanings = {1};
  int unknown_from = 0;
  std::vector<InputDef> inputs;
  std::vector<OutputDef> outputs;
  std::vector<AttributeDef> attributes;
  // Bit i: input i must be known on the host when a plan is made (a shape,
  // axes, encoded pictures). Run receives it as a host pointer.
  uint32_t host_inputs = 0;
  // What the plan needs to know of a host input that is not a list of integers
  // (for example the size of an encoded picture); null: the integers
  // themselves, at most kMaxHostInts. Of the value alone: it is asked once,
  // however many nodes of the operator read that. What it reads it takes from
  // `budget`; RESOURCE_EXHAUSTED (reason EVALUATION_TOO_LARGE) if that has
  // less.
  absl::StatusOr<std::vector<int64_t>> (*digest)(
      const HostTensor& value, DigestBudget& budget) = nullptr;
  // Output 0 has exactly the bytes of input 0: the planner may let them share
  // memory and drop the step.
  bool aliases_input = false;
  // Reads its inputs' shapes, never their elements: always computed on the host
  // when a plan is made (Shape).
  bool shape_only = false;
  bool random = false;     // draws numbers: never folded, needs a seed
  bool test_only = false;  // hidden unless RegistryOptions shows it
  // Made by passes over graphs (kernels/graph/passes) for devices that have a
  // kernel for it; callers cannot name it.
  bool internal = false;
  absl::Status (*infer)(InferContext& context) = nullptr;
  // Needed: an evaluation's size is the sum of its nodes'. Loops that are not
  // bounded by the operands (windows, inner sizes of products) are counted
  // here. Called with what inference has accepted.
  NodeCost (*cost)(const NodeInfo& node, Pace pace,
                   const PlanArgs& args) = nullptr;
  // How long one of `cost`'s operations takes a CPU, as a multiple of a
  // product's; kHalfTypeCpuWeight comes on top with half types, which are
  // converted, but for products.
  int64_t cpu_weight = kElementCpuWeight;
  // Set for elementwise operators: CUDA kernels are generated from it.
  absl::StatusOr<ScalarExpression> (*expression)(const NodeInfo& node) =
      nullptr;
};

inline constexpr size_t kMaxHostInts = 1024;
inline constexpr int kMaxAttributes = 64;  // of one node

}  // namespace weir
