// The stream pools of one device: one for each priority, and one of a single
// lane, the server's default stream. The pool of the first priority is there
// from the beginning, the others are made when somebody asks for them: of a
// further priority with a quarter of the first one's lanes (two, where that has
// as many). Their arenas are bounded together.
//
// Thread-safe. A pool that was made stays as long as this does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/atomic.h"
#include "kernels/base/export.h"
#include "kernels/base/mutex.h"
#include "kernels/base/timer_queue.h"
#include "kernels/device/stream_pool.h"

namespace weir {

class Device;

class WEIR_EXPORT StreamPools {
 public:
  // `options` of the first priority's pool, which is theirs; `device` and
  // `timers` outlive the pools.
  static absl::StatusOr<std::unique_ptr<StreamPools>> Create(
      Device* device, TimerQueue* timers, const StreamPoolOptions& options,
      const StreamPoolThreads& threads);
  // REQUIRES: no lease and no waiter is left.
  ~StreamPools() = default;
  StreamPools(const StreamPools&) = delete;
  StreamPools& operator=(const StreamPools&) = delete;

  StreamPool& main() const { return *main_; }

  // INVALID_ARGUMENT, with the range, for a priority that the device does not
  // have.
  absl::StatusOr<StreamPool*> OfPriority(int priority);

  // The server's default stream. Where its priority is changed another one is
  // it from then on. `version` counts the changes, from 1.
  struct Default {
    StreamPool* pool = nullptr;
    uint64_t version = 0;
  };
  absl::StatusOr<Default> ServerDefault();
  absl::StatusOr<Default> SetServerDefault(int priority);

  // Those that there are, the first priority's first.
  std::vector<StreamPool*> all() const;
  // By StreamPoolOptions::name. NOT_FOUND, reason POOL_NOT_FOUND, with those
  // that there are.
  absl::StatusOr<StreamPool*> Find(std::string_view name) const;

  // As StreamPool::SetMax.
  absl::Status SetMax(StreamPool& pool, size_t max);
  // How many lanes there may be in all pools that there are.
  size_t max_lanes() const { return max_lanes_.load(); }
  // The same of all that there can be.
  size_t most_lanes() const;

  // Summed up.
  StreamPoolStats stats() const;

  void Stop();  // all of them

 private:
  StreamPools(Device* device, TimerQueue* timers,
              const StreamPoolOptions& options,
              const StreamPoolThreads& threads);
  absl::Status CheckPriority(int priority) const;
  absl::StatusOr<std::unique_ptr<StreamPool>> Make(StreamPoolOptions options);
  absl::StatusOr<StreamPool*> DefaultOf(int priority) WEIR_REQUIRES(mu_);

  Device* const device_;
  TimerQueue* const timers_;
  const StreamPoolOptions options_;  // of the first
  const StreamPoolThreads threads_;
  Atomic<size_t> arena_bytes_{0};
  Atomic<size_t> max_lanes_{0};
  std::unique_ptr<StreamPool> main_;

  mutable Mutex mu_;
  bool stopped_ WEIR_GUARDED_BY(mu_) = false;
  int default_priority_ WEIR_GUARDED_BY(mu_);
  uint64_t default_version_ WEIR_GUARDED_BY(mu_) = 1;
  std::map<int, std::unique_ptr<StreamPool>> further_ WEIR_GUARDED_BY(mu_);
  std::map<int, std::unique_ptr<StreamPool>> defaults_ WEIR_GUARDED_BY(mu_);
};

}  // namespace weir
