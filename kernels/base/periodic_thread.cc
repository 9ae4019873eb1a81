#include "kernels/base/periodic_thread.h"

#include <utility>

#include "kernels/base/clock.h"

namespace weir {

PeriodicThread::PeriodicThread(const char* name, absl::Duration interval,
                               absl::AnyInvocable<void()> run)
    : interval_(interval), run_(std::move(run)), thread_(name, [this] {
        while (Pause()) run_();
      }) {}

PeriodicThread::~PeriodicThread() {
  {
    const MutexLock lock(&mu_);
    stopping_ = true;
  }
  stop_.NotifyAll();
  thread_.Join();
}

bool PeriodicThread::Pause() {
  const auto until =
      ToTimePoint(NowNanos() + absl::ToInt64Nanoseconds(interval_));
  const MutexLock lock(&mu_);
  while (!stopping_ && stop_.WaitUntil(&mu_, until)) {
  }
  return !stopping_;
}

}  // namespace weir
