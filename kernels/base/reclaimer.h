// Ends shared objects on a thread of its own: whose end may wait for a device
// (its memory, loaded kernels) or takes long must not end on a thread that may
// not wait, and who drops the last reference nobody can tell beforehand.
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "kernels/base/export.h"
#include "kernels/base/mutex.h"
#include "kernels/base/stop_token.h"
#include "kernels/base/thread.h"

namespace weir {

// What objects know of their reclaimer. They may outlive it: then they end
// where they are dropped.
class WEIR_EXPORT ReclaimQueue {
 public:
  // Above so many objects that wait for their end whoever makes new ones
  // should wait, by AwaitRoom.
  static constexpr size_t kMaxWaiting = 64;

  // Owns `object`; its last holder hands it over. What it holds and shares in
  // the same way ends with it. `queue` null: it ends where it is dropped.
  template <typename T>
  static std::shared_ptr<T> Share(std::unique_ptr<T> object,
                                  std::shared_ptr<ReclaimQueue> queue) {
    if (queue == nullptr) return object;
    return std::shared_ptr<T>(
        object.release(), [queue = std::move(queue)](T* dropped) {
          queue->HandOver({dropped, [](const void* ended) {
                             delete static_cast<const T*>(ended);
                           }});
        });
  }

  // Runs `task` on the same thread, after the end of all that was dropped
  // before; here if the reclaimer has stopped, or this is its thread.
  void Post(absl::AnyInvocable<void()> task);

  // Waits until everything that was dropped or posted before has ended; false
  // if `stop` was requested first. Not for the end of an object, and not for
  // threads that may not wait.
  bool Flush(const StopToken& stop = {});
  // The same, until no more than kMaxWaiting objects wait.
  bool AwaitRoom(const StopToken& stop = {});

 private:
  friend class Reclaimer;
  struct Dropped {
    const void* object;
    void (*end)(const void* object);
  };

  void HandOver(Dropped dropped);
  void Wake();
  void Run();
  void Stop();

  Mutex mu_;
  CondVar changed_;
  ThreadId runner_ WEIR_GUARDED_BY(mu_);
  bool stopping_ WEIR_GUARDED_BY(mu_) = false;
  bool stopped_ WEIR_GUARDED_BY(mu_) = false;
  std::deque<Dropped> waiting_ WEIR_GUARDED_BY(mu_);
  uint64_t handed_over_ WEIR_GUARDED_BY(mu_) = 0;
  uint64_t ended_ WEIR_GUARDED_BY(mu_) = 0;
};

class WEIR_EXPORT Reclaimer {
 public:
  Reclaimer();
  ~Reclaimer();  // ends what was dropped, then stops
  Reclaimer(const Reclaimer&) = delete;
  Reclaimer& operator=(const Reclaimer&) = delete;

  const std::shared_ptr<ReclaimQueue>& queue() const { return queue_; }

 private:
  const std::shared_ptr<ReclaimQueue> queue_;
  Thread thread_;
};

}  // namespace weir
