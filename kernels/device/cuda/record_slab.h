// Completion records and fault slots of a device's streams. The memory lives
// until the device goes, because a stream may still be told to wait on the
// record of one that is gone: a record is used again only after every work that
// was enqueued before its release has completed. Thread-safe; no lock is held
// while the driver is asked.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
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
  static constexpr size_t kRecordsPerBlock = 32;

  // Where records lie, cleared.
  struct Block {
    CompletionRecord* host = nullptr;    // kRecordsPerBlock, pinned and mapped
    CompletionRecord* device = nullptr;  // the same as the device sees it
    CudaFaultSlot* fault_slots = nullptr;  // CompletionRecord::kSlots of each
  };
  // Who makes and frees them. Tests have their own.
  struct Memory {
    std::function<absl::StatusOr<Block>()> make;
    std::function<void(const Block&)> free;
  };
  static Memory CudaMemory();

  explicit RecordSlab(Memory memory = CudaMemory())
      : memory_(std::move(memory)) {}
  ~RecordSlab();

  // May wait for the driver. REQUIRES: the calling thread has set the device.
  absl::StatusOr<StreamRecord> Acquire(
      const std::shared_ptr<Timeline>& timeline);

  // `last_sequence` of each stream, read when a record is released.
  void SetLastSequence(const Timeline* timeline,
                       const std::atomic<uint64_t>* last_sequence);
  void Release(const Timeline* timeline);

  // The record of a stream that lives. Whoever has a work wait on it has set
  // that work's stream's last_sequence to the work before: a later Release sees
  // it, and the record is what it is until the work has completed.
  std::optional<StreamRecord> Find(const Timeline* timeline) const;

  // (timeline, last sequence) of every living stream.
  std::vector<std::pair<std::shared_ptr<Timeline>, uint64_t>> Snapshot() const;

 private:
  struct Live {
    std::shared_ptr<Timeline> timeline;
    const std::atomic<uint64_t>* last_sequence = nullptr;
    StreamRecord record;
  };
  struct Retired {
    StreamRecord record;
    std::vector<std::pair<std::shared_ptr<Timeline>, uint64_t>> before;
  };

  // A free record, if there is one.
  std::optional<StreamRecord> Take(const std::shared_ptr<Timeline>& timeline);
  absl::Status Grow() WEIR_REQUIRES(grow_mu_);
  std::vector<std::pair<std::shared_ptr<Timeline>, uint64_t>> SnapshotLocked()
      const WEIR_REQUIRES(mu_);

  const Memory memory_;
  Mutex grow_mu_;  // before mu_; held while a block is made
  std::vector<Block> blocks_ WEIR_GUARDED_BY(grow_mu_);
  mutable Mutex mu_;
  std::vector<StreamRecord> free_ WEIR_GUARDED_BY(mu_);
  std::deque<Retired> retired_ WEIR_GUARDED_BY(mu_);
  absl::flat_hash_map<const Timeline*, Live> live_ WEIR_GUARDED_BY(mu_);
};

}  // namespace weir
