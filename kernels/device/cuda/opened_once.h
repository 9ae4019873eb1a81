// Something that is opened when it is first asked for, which may take long, and
// then stays. Who asks meanwhile waits; who asks for another one does not. A
// failure is told and forgotten: the next one tries again. Thread-safe.
#pragma once

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/base/mutex.h"

namespace weir::cuda {

template <typename T>
class OpenedOnce {
 public:
  // `open` returns a StatusOr of a unique_ptr<T>.
  template <typename Open>
  absl::StatusOr<T*> Get(const Open& open) {
    MutexLock lock(&mu_);
    if (opened_ == nullptr) {
      absl::StatusOr<std::unique_ptr<T>> made = open();
      if (!made.ok()) return std::move(made).status();
      opened_ = *std::move(made);
    }
    return opened_.get();
  }

 private:
  Mutex mu_;
  std::unique_ptr<T> opened_ WEIR_GUARDED_BY(mu_);
};

}  // namespace weir::cuda
