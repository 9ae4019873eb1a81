// A program: a graph compiled for a device, element types and ranks; shapes are
// arguments. Immutable and shared by all who evaluate it; thread-safe. It keeps
// a bounded cache of plans, one per set of input shapes (and of values that
// shapes depend on).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/base/clock.h"
#include "kernels/base/export.h"
#include "kernels/base/stop_token.h"
#include "kernels/device/device.h"
#include "kernels/graph/evaluation_limits.h"
#include "kernels/graph/graph.h"
#include "kernels/graph/outline.h"
#include "kernels/graph/plan.h"
#include "kernels/graph/program_room.h"

namespace weir {

struct ProgramOptions {
  // Plans that are kept; the least recently used go first. The bytes are those
  // of their tables, of libraries' objects and loaded code, of which plans may
  // share some that count with each, and of what was computed on the host,
  // beside some for each node.
  size_t max_plans = 64;
  size_t max_plan_bytes = size_t{256} << 20;
  // The same of plans that live, kept or in use: beyond it those that nobody
  // uses go, and while those in use have more, none is made.
  size_t max_used_plan_bytes = size_t{512} << 20;
  GraphLimits limits;
  EvaluationLimits evaluation = {};
  // Fingerprint of what the graph was made from; see Program::id.
  uint64_t identity = 0;
  // Where the program, its plans and what they share lie and end. It counts
  // Program::held_bytes until the last plan is gone, which may hold constants
  // for longer than anybody holds the program. Null: a room of its own, without
  // a bound, where all ends where its last holder drops it, which frees memory
  // of the device and may wait for it.
  std::shared_ptr<ProgramRoom> room = nullptr;
  // Requested when nobody wants the program any more: compiling ends at the
  // next node with CANCELLED.
  StopToken stop = {};
  // A CPU device, for graphs with text that the device cannot run: they are
  // compiled for this one, whole. Null: they are refused.
  Device* text_device = nullptr;
};

class WEIR_EXPORT Program {
 public:
  // Validates, infers shapes, folds constants, chooses kernels and uploads
  // constants. Takes milliseconds to seconds (kernel compilation) and waits for
  // the upload: never on an I/O thread. Errors name the node. UNIMPLEMENTED
  // names node, operator, opset, type and device. RESOURCE_EXHAUSTED where the
  // evaluation is too large whatever its inputs are. device() tells which
  // device it became.
  static absl::StatusOr<std::shared_ptr<const Program>> Compile(
      Graph graph, Device& device, const OpRegistry& registry,
      const ProgramOptions& options = {});

  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Of this object: unique in the process, never used again.
  uint64_t number() const;
  Device& device() const;
  // 16 hexadecimal digits made from ProgramOptions::identity and the device's
  // UUID: equal in every process for the same graph on the same device.
  const std::string& id() const;
  const std::vector<ValueDecl>& inputs() const;
  // As far as inference could tell without shapes.
  const std::vector<ValueDecl>& outputs() const;
  const std::vector<std::string>& symbols() const;
  // Bit i: input i is read on the host when a plan is made.
  bool InputOnHost(size_t i) const;
  bool random() const;   // some node draws numbers
  size_t nodes() const;  // of the graph as it was compiled
  // With the copies that plans keep of them in other forms, so it may grow.
  size_t constant_bytes() const;
  // About all that it holds on host and device: constants with their copies,
  // the graph with its kernels, and every plan that lives; so it changes.
  size_t held_bytes() const;
  // Whether somebody else holds or makes a plan, and so all that it needs: then
  // to drop the program frees little. The next moment it may be otherwise.
  bool has_plans_in_use() const;
  // Copies of constants in other forms, ever made.
  size_t packed_constants() const;

  // What it took to make the plan that was made last; 0: none was.
  Nanos last_plan_ns() const;
  // The longest that one took since, of which nothing came; 0: none did.
  Nanos failed_plan_ns() const;

  // What an evaluation of inputs with these shapes does, as far as it can be
  // told without their elements. An empty shape or an unknown dim leaves what
  // is declared. INVALID_ARGUMENT and RESOURCE_EXHAUSTED as MakePlan, as far as
  // shapes are known. Its time grows with outline_work().
  absl::StatusOr<ProgramOutline> Outline(
      absl::Span<const SymbolicShape> inputs) const;

  // What Outline takes of the host's memory: what it returns, and a shape of
  // each value until then. Not less than the first, and at most twice that
  // where values come of steps; but for shapes of more than six dims that only
  // the caller gives.
  size_t outline_bytes() const;
  // What Outline writes, in bytes: that, and of each node its operands, which
  // are there for one node at a time.
  size_t outline_work() const;

  // The cached plan for these inputs, or null. Takes no shared lock that a
  // compilation holds. Inputs are in the order of inputs(); data is read only
  // where InputOnHost, and so much of it as a thread may that others wait for:
  // what is not found for that reason MakePlan finds.
  std::shared_ptr<const Plan> FindPlan(
      absl::Span<const HostTensor> inputs) const;

  // Makes and caches it: microseconds for each node on the CPU, a kernel
  // compilation at worst, once the program's room lets it (ProgramRoom::Admit),
  // which may be later. What must go for it goes afterwards. INVALID_ARGUMENT
  // for a type, rank or shape that does not fit the declaration (naming the
  // input, with field "inputs[i]") or that some node refuses (naming the node).
  // RESOURCE_EXHAUSTED, before anything is planned: reason EVALUATION_TOO_LARGE
  // beyond ProgramOptions::evaluation, or for inputs of which there is more
  // than kMaxDigestParts to read; PROGRAM_MEMORY_EXHAUSTED while what is in use
  // of the room or of this program's plans has too many bytes. Ends its wait,
  // or at the next node, with CANCELLED once `stop` is requested.
  absl::StatusOr<std::shared_ptr<const Plan>> MakePlan(
      absl::Span<const HostTensor> inputs, const StopToken& stop = {}) const;

  // Lets go of the plan that was not used for longest of those which nobody
  // uses; false: there is none.
  bool DropIdlePlan() const;

 private:
  struct Impl;
  explicit Program(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weir
