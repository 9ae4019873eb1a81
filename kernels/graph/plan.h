// A plan: a program with concrete shapes. It knows where every value lies and
// runs its steps on a stream it is given. Immutable, shared by concurrent runs;
// everything of one run comes in ProgramRun. It keeps the program's kernels and
// constants alive, and must itself live until the last run has completed.
//
// Memory of a run, three blocks at addresses the caller chooses:
//   inputs   every input that the device reads, at input(i).offset
//   outputs  every graph output, dense, at output(i).offset
//   arena    intermediate values and scratch, offsets planned by liveness
// Offsets are multiples of 256.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/base/atomic.h"
#include "kernels/base/byte_account.h"
#include "kernels/base/export.h"
#include "kernels/graph/outline.h"
#include "kernels/ops/op.h"

namespace weir {

struct ProgramCore;

struct ProgramRun {
  Stream& stream;
  CpuTeam* team = nullptr;
  // Address of each input: device memory, or host memory where on_host. On a
  // host-addressable device any naturally aligned address will do.
  absl::Span<const void* const> inputs;
  std::byte* outputs = nullptr;  // device memory
  std::byte* arena = nullptr;    // device memory
  RandomKey random;
  // Asked before every step but the first, and from any thread between the
  // pieces of long steps; an error ends the run with it, and what it has made
  // is incomplete. For devices whose steps run in this thread, and for threads
  // that may wait: whether somebody still waits.
  std::optional<absl::FunctionRef<absl::Status()>> go_on = std::nullopt;
  // Called between steps whenever `pace_launches` launches or more were made
  // since it was; an error ends the run with it. For a thread that may wait
  // until the device has caught up.
  std::optional<absl::FunctionRef<absl::Status()>> pace = std::nullopt;
  size_t pace_launches = 0;
};

class WEIR_EXPORT Plan {
 public:
  struct Value {
    TensorMeta meta;
    size_t offset = 0;     // in its block
    bool on_host = false;  // inputs only: Run reads host memory, no device copy
  };

  absl::Span<const Value> inputs() const { return inputs_; }
  absl::Span<const Value> outputs() const { return outputs_; }
  size_t input_bytes() const { return input_bytes_; }  // device part
  size_t output_bytes() const { return output_bytes_; }
  size_t arena_bytes() const { return arena_bytes_; }
  // About what the plan itself holds, beside its program.
  size_t held_bytes() const { return held_bytes_; }
  // About how many calls of the device's driver a run makes.
  size_t launches() const { return launches_; }
  // Run computes on the host and may wait, though the device is another.
  bool computes_on_host() const { return computes_on_host_; }
  // What was measured of runs says nothing of the next: one of its kernels is
  // KernelPlan::time_varies, or an input is text, an element of which may have
  // any length.
  bool time_varies() const { return time_varies_; }
  size_t steps() const;
  // REQUIRES: i < steps().
  StepOutline Step(size_t i) const;

  // Its first nodes, as errors name them.
  std::string Describe() const;

  // Called from StreamTask::Launch. An error names the node (label and call
  // site). Allocates nothing for nodes of up to 16 inputs.
  absl::Status Run(const ProgramRun& run) const;

  // The status of a fault that a kernel of this plan reported; `node` is
  // Completion::fault_node. The same as Run gives on the CPU.
  absl::Status FaultAt(uint32_t node, FaultCode code) const;

  // Smoothed duration of a run, in nanoseconds; 0 until measured. On the CPU
  // short plans run inline on the calling thread, unless their time_varies.
  int64_t measured_ns() const {
    return measured_ns_.load(std::memory_order_relaxed);
  }
  // What a run takes at most: the longest of late, forgotten over some hundred
  // runs. Before the first a guess, which no device that works should exceed.
  // StreamTask::expected.
  int64_t longest_ns() const { return MeasuredOrGuessed(longest_ns_); }
  // The same of Completion::device_time.
  int64_t longest_device_ns() const {
    return MeasuredOrGuessed(longest_device_ns_);
  }
  void RecordDuration(int64_t ns, int64_t device_ns) const;

  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

 private:
  friend class Planner;
  struct Body;
  Plan();

  int64_t MeasuredOrGuessed(const Atomic<int64_t>& ns) const {
    const int64_t measured = ns.load(std::memory_order_relaxed);
    return measured > 0 ? measured : guessed_ns_;
  }

  // Kernels and constants of the program; not the program, whose cache holds
  // this plan.
  std::shared_ptr<const ProgramCore> core_;
  ByteCharge charge_;  // of held_bytes_, for the program
  std::vector<Value> inputs_;
  std::vector<Value> outputs_;
  size_t input_bytes_ = 0;
  size_t output_bytes_ = 0;
  size_t arena_bytes_ = 0;
  size_t held_bytes_ = 0;
  size_t launches_ = 0;
  bool computes_on_host_ = false;
  bool time_varies_ = false;
  std::unique_ptr<Body> body_;
  int64_t guessed_ns_ = 0;
  mutable Atomic<int64_t> measured_ns_{0};
  mutable Atomic<int64_t> longest_ns_{0};
  mutable Atomic<int64_t> longest_device_ns_{0};
};

}  // namespace weir
