// Completion records and fault slots of a device's streams. The memory lives
// until the device goes, because a stream may still be told to wait on the
// record of one that is gone: a record is used again only after every work that
// was enqueued before its release has completed. Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/mutex.h"
#include "kernels/device/completion.h"
#include "kernels/device/cuda/fault_slot.cuh"
#include "kernels/device/point.h"

namespace weir {

struct StreamRecord {
  CompletionRecord* host = nullptr;      // pinned and mapped
  uint64_t device_sequence = 0;          // device address of host->sequence
  uint64_t device_mark = 0;              // and of host->mark
  CudaFaultSlot* fault_slots = nullptr;  // device memory, kSlots of them
};

class RecordSlab {
 public:
  RecordSlab() = default;
  ~RecordSlab();

  // REQUIRES: the calling thread has set the device.
  absl::StatusOr<StreamRecord> Acquire(
      const std::shared_ptr<Timeline>& timeline);

  // `last_sequence` of each stream, read when a record is released.
  void SetLastSequence(const Timeline* timeline,
                       const std::atomic<uint64_t>* last_sequence);
  void Release(const Timeline* timeline);

  // Calls `use` with the record of a stream that lives, under the lock, so that
  // what it enqueues is seen by a later Release. False if there is none.
  bool WithRecord(const Timeline* timeline,
                  absl::FunctionRef<void(const StreamRecord&)> use);

  // (timeline, last sequence) of every living stream.
  std::vector<std::pair<std::shared_ptr<Timeline>, uint64_t>> Snapshot() const;

 private:
  static constexpr size_t kRecordsPerBlock = 32;

  struct Live {
    std::shared_ptr<Timeline> timeline;
    const std::atomic<uint64_t>* last_sequence = nullptr;
    StreamRecord record;
  };
  struct Retired {
    StreamRecord record;
    std::vector<std::pair<std::shared_ptr<Timeline>, uint64_t>> before;
  };

  absl::Status Grow() WEIR_REQUIRES(mu_);
  std::vector<std::pair<std::shared_ptr<Timeline>, uint64_t>> SnapshotLocked()
      const WEIR_REQUIRES(mu_);

  mutable Mutex mu_;
  std::vector<void*> host_blocks_ WEIR_GUARDED_BY(mu_);
  std::vector<void*> device_blocks_ WEIR_GUARDED_BY(mu_);
  std::vector<StreamRecord> free_ WEIR_GUARDED_BY(mu_);
  std::deque<Retired> retired_ WEIR_GUARDED_BY(mu_);
  absl::flat_hash_map<const Timeline*, Live> live_ WEIR_GUARDED_BY(mu_);
};

}  // namespace weir
