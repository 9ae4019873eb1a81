// The stream that a session has, as others see it: something to be woken. It is
// on one I/O thread. Whoever wakes it from another knows, by a lock under which
// it would have been taken away before, that it is still there.
#pragma once

#include <atomic>

#include "server/rpc/io_thread.h"
#include "server/rpc/server_stream.h"

namespace weir {

class SessionPeer {
 public:
  explicit SessionPeer(ServerStream* call) : call_(call) {}
  SessionPeer(const SessionPeer&) = delete;
  SessionPeer& operator=(const SessionPeer&) = delete;

  IoThread* thread() const { return &call_->thread(); }

  // Has it look at what there is to do: soon, on its own thread. Any thread.
  void Wake() {
    if (woken_.exchange(true, std::memory_order_acq_rel)) return;
    call_->Resume(
        [](ServerCall&, void* self) {
          auto* const peer = static_cast<SessionPeer*>(self);
          peer->woken_.store(false, std::memory_order_release);
          peer->Work();
        },
        this);
  }
  // The same from its own thread, once what is at hand is done.
  void Schedule() {
    if (scheduled_ || looks_) return;
    scheduled_ = true;
    call_->Defer(
        [](ServerCall&, void* self) {
          auto* const peer = static_cast<SessionPeer*>(self);
          peer->scheduled_ = false;
          peer->Work();
        },
        this);
  }

 protected:
  ~SessionPeer() = default;

  ServerStream& call() const { return *call_; }
  // A Wake is on its way: the call may not be answered before.
  bool woken() const { return woken_.load(std::memory_order_acquire); }

  // On its own thread. May end it.
  virtual void Work() = 0;

  bool looks_ = false;  // at what there is to do: nobody need schedule it

 private:
  ServerStream* const call_;
  bool scheduled_ = false;
  std::atomic<bool> woken_{false};
};

}  // namespace weir
