// The memory of one run: copies of its inputs, what is staged for the device,
// scratch and results in the lane's arena, and what the caller gets. All of it
// is taken before the launch; what cannot be had without waiting is taken by a
// thread that may (Reserve).
//
// Part of Work; no thread rules of its own.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/base/export.h"
#include "kernels/device/pageable_buffer.h"
#include "kernels/device/pinned_pool.h"
#include "kernels/device/stream_pool.h"
#include "kernels/eval/run_result.h"
#include "kernels/eval/sync_report.h"
#include "kernels/eval/work_request.h"
#include "kernels/graph/plan.h"

namespace weir {

class Engine;
class MemoryPool;

class WEIR_EXPORT WorkMemory {
 public:
  // All outlive it. What is copied is noted in `report`.
  WorkMemory(WorkRequest* request, RunResult* result, SyncReport* report)
      : request_(*request), result_(*result), report_(*report) {}

  // Gives everything back, for the next run.
  void Reset();
  // The bytes of the request's inputs stay until the run is done.
  void BytesStay() { bytes_stay_ = true; }
  // What the run needed itself; the result stays.
  void ReleaseInputs();

  // Copies the inputs' bytes as they are, for a caller who does not leave them
  // there until there is a plan. Waits for nobody.
  absl::Status OwnInputs(PinnedPool& pool);

  // -- With a plan, which stays.
  void SetPlan(const Plan* plan, bool host_addressable);

  // Copies the inputs for a caller who does not leave them there until the
  // launch: to where the plan wants them, or as they are if there is no memory
  // at hand for that. Waits for nobody.
  absl::Status KeepInputs(PinnedPool& pool);

  // Whether StageInputs would keep a thread for long.
  bool StagesMuch() const;
  // Copies inputs to where the plan wants them, in memory that TakeAtHand or
  // Reserve took. Idempotent.
  void StageInputs();

  // What the run needs and is there or quick to make (Device::quick_bytes):
  // false if something is missing. Reserve takes it, and may take long.
  absl::StatusOr<bool> TakeAtHand(Engine& engine, Lane& lane);
  absl::Status Reserve(Engine& engine, Lane& lane);

  // Puts to use what TakeAtHand took. The run is the next on the lane's stream.
  void Assign(const Lane& lane);

  // So many CopyIn and CopyOut put on the stream, with what TakeAtHand took.
  size_t copies() const;

  // -- In the launch.
  absl::Status CopyIn(Stream& stream) const;
  // After the run, at whose pace it copies too.
  absl::Status CopyOut(const ProgramRun& run);
  absl::Span<const void* const> inputs() const { return addresses_; }
  std::byte* outputs() const { return device_outputs_; }
  std::byte* arena() const { return arena_; }

 private:
  // Of results from an output's first byte on.
  using CopyResults =
      absl::FunctionRef<absl::Status(size_t output, size_t bytes)>;

  bool Borrows(size_t i) const;
  bool Stages() const;        // some input is copied
  bool NeedsResults() const;  // in pinned memory
  // False: it would have to wait.
  absl::StatusOr<bool> TakeKept(MemoryPool& pool, bool may_wait);
  bool CopiesIn() const;
  absl::Status EachCopyOut(CopyResults copy) const;
  size_t StagingBytes() const;
  size_t ArenaBytes() const;

  WorkRequest& request_;
  RunResult& result_;
  SyncReport& report_;
  const Plan* plan_ = nullptr;
  bool host_addressable_ = false;
  bool bytes_stay_ = false;
  bool staged_ = false;  // the inputs are where they have to be
  absl::InlinedVector<const void*, 8> addresses_;  // of the inputs
  PageableBuffer owned_inputs_;
  PinnedBuffer staging_;
  // In the lane's arena; outputs of a host-addressable device in the result.
  std::byte* device_inputs_ = nullptr;
  std::byte* device_outputs_ = nullptr;
  std::byte* arena_ = nullptr;
};

}  // namespace weir
