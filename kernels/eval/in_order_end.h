// The timeline of a context's works: value n is reached when work number n is
// over. Works may end out of order (one in the queue is cancelled while an
// earlier one runs); the timeline moves in order. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

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

  // Number `number`, from 1, each once, ended with `status`. When this returns
  // the timeline has reached it if everything before it ended, or another
  // thread is about to move it there.
  void End(uint64_t number, absl::Status status);

 private:
  const std::shared_ptr<Timeline> timeline_;
  Mutex mu_;
  std::map<uint64_t, absl::Status> ended_ WEIR_GUARDED_BY(mu_);
  uint64_t next_ WEIR_GUARDED_BY(mu_) = 1;
  bool advancing_ WEIR_GUARDED_BY(mu_) = false;
};

}  // namespace weir
