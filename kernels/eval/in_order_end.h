// The places in a context's order: numbers from 1, handed out in order, and the
// timeline whose value n is reached when number n is over. Works may end out of
// order (one in the queue is cancelled while an earlier one runs); the timeline
// moves in order. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "kernels/base/export.h"
#include "kernels/base/mutex.h"
#include "kernels/device/point.h"

namespace weir {

class WEIR_EXPORT InOrderEnd {
 public:
  explicit InOrderEnd(std::shared_ptr<Timeline> timeline)
      : timeline_(std::move(timeline)) {}

  const std::shared_ptr<Timeline>& timeline() const { return timeline_; }

  // The first of `count` new numbers; 0 if more than `limit` would be
  // unfinished then.
  uint64_t Take(size_t count, size_t limit);
  uint64_t last() const;      // number taken
  size_t unfinished() const;  // taken and not ended

  // Number `number` ended with `status`, each once. When this returns the
  // timeline has reached it if everything before it ended, unless somebody is
  // moving the timeline meanwhile, who goes on to it: another thread, or this
  // one further up. An error is known there at once (Timeline::FailAhead).
  void End(uint64_t number, absl::Status status);

 private:
  const std::shared_ptr<Timeline> timeline_;
  mutable Mutex mu_;
  uint64_t last_ WEIR_GUARDED_BY(mu_) = 0;
  size_t unfinished_ WEIR_GUARDED_BY(mu_) = 0;
  std::map<uint64_t, absl::Status> ended_ WEIR_GUARDED_BY(mu_);
  uint64_t next_ WEIR_GUARDED_BY(mu_) = 1;
  bool advancing_ WEIR_GUARDED_BY(mu_) = false;
};

}  // namespace weir
