#include "kernels/base/reclaimer.h"

#include "kernels/base/stop_token.h"

namespace weir {

void ReclaimQueue::HandOver(Dropped dropped) {
  {
    MutexLock lock(&mu_);
    if (!stopped_ && ThisThread() != runner_) {
      waiting_.push_back(dropped);
      ++handed_over_;
      changed_.NotifyAll();
      return;
    }
  }
  dropped.end(dropped.object);
}

void ReclaimQueue::Post(absl::AnyInvocable<void()> task) {
  using Task = absl::AnyInvocable<void()>;
  HandOver({new Task(std::move(task)), [](const void* posted) {
              const std::unique_ptr<Task> owned(
                  static_cast<Task*>(const_cast<void*>(posted)));
              (*owned)();
            }});
}

void ReclaimQueue::Wake() {
  MutexLock lock(&mu_);
  changed_.NotifyAll();
}

bool ReclaimQueue::Flush(const StopToken& stop) {
  // It takes the lock, and its end waits for it: not to be held meanwhile.
  const StopCallback wake(stop, [this] { Wake(); });
  MutexLock lock(&mu_);
  const uint64_t wanted = handed_over_;
  while (ended_ < wanted) {
    if (stop.stop_requested()) return false;
    changed_.Wait(&mu_);
  }
  return true;
}

bool ReclaimQueue::AwaitRoom(const StopToken& stop) {
  const StopCallback wake(stop, [this] { Wake(); });
  MutexLock lock(&mu_);
  while (waiting_.size() > kMaxWaiting) {
    if (stop.stop_requested()) return false;
    changed_.Wait(&mu_);
  }
  return true;
}

void ReclaimQueue::Run() {
  mu_.Lock();
  runner_ = ThisThread();
  while (!stopping_ || !waiting_.empty()) {
    if (waiting_.empty()) {
      changed_.Wait(&mu_);
      continue;
    }
    const Dropped dropped = waiting_.front();
    waiting_.pop_front();
    mu_.Unlock();
    dropped.end(dropped.object);
    mu_.Lock();
    ++ended_;
    changed_.NotifyAll();
  }
  stopped_ = true;
  mu_.Unlock();
}

void ReclaimQueue::Stop() {
  MutexLock lock(&mu_);
  stopping_ = true;
  changed_.NotifyAll();
}

Reclaimer::Reclaimer()
    : queue_(std::make_shared<ReclaimQueue>()),
      thread_("weir-reclaim", [queue = queue_.get()] { queue->Run(); }) {}

Reclaimer::~Reclaimer() {
  queue_->Stop();
  thread_.Join();
}

}  // namespace weir
