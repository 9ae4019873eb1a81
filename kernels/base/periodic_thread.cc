#include "kernels/base/periodic_thread.h"

#include <pthread.h>

#include <chrono>
#include <utility>

namespace weir {

PeriodicThread::PeriodicThread(const char* name, absl::Duration interval,
                               absl::AnyInvocable<void()> run)
    : interval_(interval), run_(std::move(run)), thread_([this] {
        while (Pause()) run_();
      }) {
  pthread_setname_np(thread_.native_handle(), name);
}

PeriodicThread::~PeriodicThread() {
  {
    const MutexLock lock(&mu_);
    stopping_ = true;
  }
  stop_.NotifyAll();
  thread_.join();
}

bool PeriodicThread::Pause() {
  const auto until =
      std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(interval_);
  const MutexLock lock(&mu_);
  while (!stopping_ && stop_.WaitUntil(&mu_, until)) {
  }
  return !stopping_;
}

}  // namespace weir
