// The sessions of a server, and the streams that have them or are about to: who
// is to be told when the server ends. Thread-safe; outlives the transport.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "kernels/base/mutex.h"
#include "server/services/session/session_peer.h"

namespace weir {

class Session;

class Sessions {
 public:
  // While a stream is here it may be woken.
  void AddStream(SessionPeer* stream);
  void RemoveStream(SessionPeer* stream);

  void Add(Session* key, std::weak_ptr<Session> session);
  void Remove(Session* session);

  // The server ends: streams say so, take nothing more, finish what they have
  // and end; sessions without one are over, and none outlives its stream any
  // more. What is left is cut at this time.
  void Drain(int64_t deadline_unix_ns);
  // The time; 0: it does not end.
  int64_t drain_deadline() const {
    return deadline_.load(std::memory_order_acquire);
  }

  size_t streams() const;
  size_t sessions() const;

 private:
  std::atomic<int64_t> deadline_{0};
  mutable Mutex mu_;
  absl::flat_hash_set<SessionPeer*> streams_ WEIR_GUARDED_BY(mu_);
  absl::flat_hash_map<Session*, std::weak_ptr<Session>> sessions_
      WEIR_GUARDED_BY(mu_);
};

}  // namespace weir
