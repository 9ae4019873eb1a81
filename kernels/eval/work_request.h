// What a caller asks of one evaluation: the program, where its inputs come
// from, which results are wanted and how, and what it waits for. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/container/inlined_vector.h"
#include "kernels/base/clock.h"
#include "kernels/device/point.h"
#include "kernels/eval/eval_mode.h"
#include "kernels/graph/call_sites.h"
#include "kernels/graph/program.h"
#include "kernels/tensor/tensor.h"

namespace weir {

class Work;

// Where an input comes from. Exactly one of the three.
struct InputSource {
  // Host bytes in one or more pieces (slices of a message); dense, row-major.
  // For kString one piece of StringRef. They stay until the work has returned;
  // one that returns before it is done has copied them by then.
  DType dtype = DType::kInvalid;
  Dims dims;
  absl::InlinedVector<std::string_view, 1> pieces;
  // Or a tensor on the engine's device; the work is ordered after its writer.
  Tensor tensor;
  // Or an output of an earlier work, done or not, of whichever context of the
  // engine; kept until this work is done. It was submitted before. One that is
  // deferred is run first, in its context.
  std::shared_ptr<Work> producer;
  size_t producer_output = 0;
};

enum class OutputWish : uint8_t {
  kDrop,    // not wanted
  kInline,  // bytes in pinned host memory: Work::OutputBytes
  kKeep,    // a tensor on the device: Work::OutputTensor
};

// A timeline that the work moves when it is done. A failed work fails that
// value; one that was refused for want of room (CONTEXT_FULL,
// HOST_MEMORY_EXHAUSTED) before it had a place leaves it to the next attempt.
struct Signal {
  std::shared_ptr<Timeline> timeline;
  uint64_t value = 0;
};

// Belongs to the work until it is done; inputs are to be set anew for the next
// use.
struct WorkRequest {
  std::shared_ptr<const Program> program;
  // What the program was compiled from. Optional: with it a deferred work can
  // be joined with its neighbors at Flush.
  std::shared_ptr<const Graph> graph;
  absl::InlinedVector<InputSource, 4> inputs;  // as Program::inputs()
  absl::InlinedVector<OutputWish, 4> outputs;  // as Program::outputs();
                                               // empty: all kInline
  std::optional<EvalMode> mode;                // empty: the context's
  absl::InlinedVector<Point, 2> after;
  absl::InlinedVector<Signal, 1> signal;
  std::optional<uint64_t> seed;  // empty: the context's RNG
  Nanos deadline = kNoDeadline;  // not launched after it; on the CPU no step
                                 // begins after it
  // Of a CPU device's threads, how many work on one operator at most; 0: all.
  int cpu_threads = 0;
  std::string label;  // for errors and reports
  // Of the graph's nodes, which errors of the work tell. Null: none.
  std::shared_ptr<const CallSites> call_sites;
  uint64_t tag = 0;  // by which whoever asks knows it, as Flush tells
  // Who asks: owners take turns where plans are made, and share the room there.
  // Stays until the work is done. Empty: nobody.
  std::string_view owner;

  bool Reads(OutputWish wish) const;  // whether some output is wanted so
};

}  // namespace weir
