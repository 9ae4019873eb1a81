// grpc.health.v1.Health, on the transport's own terms: gRPC's own service has
// no bound on messages, on the time that they take, or on streams. Owned by the
// transport; registered before that starts, outlives the I/O threads. Its calls
// are theirs, as all are: a thread of its own would be woken for others'
// messages, since in gRPC whoever waits for events may have to read any
// connection. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "kernels/base/mutex.h"
#include "server/rpc/key_counts.h"
#include "server/rpc/method_table.h"

namespace weir {

class HealthService {
 public:
  // Open Watch streams; those of one peer (PeerKey), and of one of its TCP
  // connections. Unix sockets are bounded by the first alone.
  static constexpr size_t kMaxWatches = 2048;
  static constexpr size_t kMaxPeerWatches = 1024;
  static constexpr size_t kMaxConnectionWatches = 64;
  // Of a request: it holds a name.
  static constexpr size_t kMaxMessageBytes = size_t{16} << 10;

  void Register(MethodTable* table);

  // What Check and Watch say of `service` from now on.
  void SetServing(const std::string& service, bool serving);

  // Ends all Watch streams with UNAVAILABLE, and those that come.
  void Stop();

 private:
  class Watch;
  // HealthCheckResponse.ServingStatus.
  enum class State : uint8_t {
    kNone = 0,
    kServing = 1,
    kNotServing = 2,
    kUnknown = 3,
  };

  static ReplyBuffer Message(State state);
  void Check(ServerCall& call);
  void BeginWatch(ServerCall& call);
  absl::Status Add(Watch* watch) WEIR_REQUIRES(mu_);
  void Remove(Watch* watch) WEIR_REQUIRES(mu_);
  State StateOf(const std::string& service) const WEIR_REQUIRES(mu_);

  Mutex mu_;
  std::map<std::string, State> states_ WEIR_GUARDED_BY(mu_);
  // By their names, which are the streams' own.
  std::multimap<std::string_view, Watch*> watches_ WEIR_GUARDED_BY(mu_);
  // Of TCP: how many there are, where there is one.
  KeyCounts of_peer_ WEIR_GUARDED_BY(mu_);
  KeyCounts of_connection_ WEIR_GUARDED_BY(mu_);
  bool stopped_ WEIR_GUARDED_BY(mu_) = false;
};

}  // namespace weir
