// What a pool hands out: a stream with its scratch arena. And what the arenas
// of all lanes of a pool hold together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/atomic.h"
#include "kernels/base/clock.h"
#include "kernels/base/export.h"
#include "kernels/device/memory.h"
#include "kernels/device/stream.h"

namespace weir {

// What the arenas of a pool's lanes hold together, and what to do when that is
// too much. Thread-safe once made.
struct LaneArenas {
  Atomic<size_t> bytes{0};
  size_t max = SIZE_MAX;
  const char* max_name = "";  // in errors
  // Frees the arena of a lane that nobody has: one, so that the others are
  // there for whoever comes meanwhile. False if there was none.
  std::function<bool()> drop_idle = [] { return false; };

  absl::Status Full(size_t wanted) const;
};

// A stream with its scratch arena at a fixed address. Used by its owner only.
class WEIR_EXPORT Lane {
 public:
  // `arenas` outlives the lane.
  Lane(std::unique_ptr<Stream> stream, uint64_t number, LaneArenas* arenas);
  ~Lane();

  Stream& stream() const { return *stream_; }
  uint64_t number() const { return number_; }
  // Grows with every lease: a stale lease can be told from the present one.
  uint64_t generation() const { return generation_; }

  // Scratch of at least `bytes`, aligned to kBlockAlignment. The address
  // changes only when it grows; a block that work may still use is kept until
  // the lane is idle. RESOURCE_EXHAUSTED, reason DEVICE_MEMORY_EXHAUSTED, where
  // the lanes' bound or the device leaves no room.
  absl::StatusOr<std::byte*> Arena(size_t bytes);
  // The same for threads that may not wait: null if more than the device's
  // quick_bytes would have to be made or freed, or another lane's be freed, or
  // there is none.
  std::byte* ArenaNow(size_t bytes);
  size_t arena_bytes() const { return arena_.size(); }  // the newest block
  // Whether Arena(bytes) makes no call of the device.
  bool HasArena(size_t bytes) const;

 private:
  friend class LaneTable;
  friend class StreamPool;
  friend class StreamLease;

  size_t ArenaSize(size_t bytes) const;  // of a block that has `bytes`
  // `idle`: nothing uses the blocks that there are. `drop_idle` as LaneArenas'.
  absl::Status GrowArena(size_t bytes, bool idle,
                         absl::FunctionRef<bool()> drop_idle);
  void DropArena();   // REQUIRES: idle
  void CountArena();  // its bytes and those of outgrown blocks, in the sum

  std::unique_ptr<Stream> stream_;
  const uint64_t number_;
  uint32_t place_ = 0;  // in the pool's table
  uint64_t generation_ = 0;
  Nanos idle_since_ = 0;
  bool suspect_ = false;
  DeviceMemory arena_;
  std::vector<DeviceMemory> outgrown_;
  LaneArenas* const arenas_;
  size_t counted_bytes_ = 0;
};

}  // namespace weir
