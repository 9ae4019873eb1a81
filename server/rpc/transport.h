// The gRPC server: listening sockets, I/O threads, health and reflection. It
// serves the methods of a MethodTable. Owned by the server's main thread; the
// gauges, SetServing and addresses may be used from any thread.
//
// Draining without losing a request, in this order:
//   1. SetServing(..., false), and wait for load balancers to notice;
//   2. CloseListeners(): no new connections, those that exist are served on,
//      but for streams of health, which nothing else would end;
//   3. wait until open_connections() is 0: gRPC sends GOAWAY in two steps to
//      connections older than max_connection_age, which loses nothing;
//   4. Shutdown(deadline). Connections that are left get a GOAWAY; a call that
//      arrives at that moment ends with CANCELLED or UNAVAILABLE.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/rpc/call_policy.h"
#include "server/rpc/frame_guard.h"
#include "server/rpc/health_service.h"
#include "server/rpc/listener.h"
#include "server/rpc/method_table.h"
#include "server/scheduling/admission.h"

namespace grpc::experimental {
class ExternalConnectionAcceptor;
}

namespace weir {

class IoThread;
class RawService;

struct TransportOptions {
  // See Listener::Open.
  std::vector<std::string> addresses;
  // 0: as DefaultIoThreads has it for the CPUs that the process may use.
  int io_threads = 0;
  // Of one message, either way.
  int max_message_bytes = 256 << 20;
  // Decides at a call's headers, and again when its message is whole. Outlives
  // the transport; null: every call is taken.
  Admission* admission = nullptr;
  // How long a call may wait for the rest of its message, and its reply, beside
  // a second for each MiB, for the caller to take it. Longer, and it is cut.
  absl::Duration receive_timeout = absl::Minutes(2);
  absl::Duration send_timeout = absl::Seconds(30);
  // Calls whose message is not whole; more end those that wait longest, of the
  // peer that has most. This and the next are shared out among the I/O threads,
  // of which each has 256 at least, where all have as many.
  size_t max_receiving = 4096;
  // Calls that were refused before they counted anywhere, and whose error is
  // not sent yet. A peer may have as many as are left, so alone half of them;
  // further ones of it are reset. A client that takes its answers never has so
  // many.
  size_t max_refusals = 4096;
  // Open connections; of one peer (IPv4 address, IPv6 /64).
  Listener::Bounds max_connections = {};
  // A connection has so long for its handshakes, of TLS and of HTTP/2 together.
  absl::Duration handshake_timeout = absl::Seconds(10);
  // Of the headers of a call, names and values, with 32 bytes for each. Stock
  // clients are told and keep to it; others' calls are refused.
  int max_header_bytes = 8 << 10;
  // Calls that one connection may have open; its client holds back more. Of one
  // that does not, twice as many are taken on each I/O thread.
  int max_streams = 1024;
  // A connection on which nothing has come for so long is asked whether it is
  // there, and closed if it does not say so in time.
  absl::Duration ask_after = absl::Minutes(1);
  absl::Duration answer_within = absl::Seconds(20);
  // A client, with calls or without, may ask the same so often. What is sent to
  // it allows one ping more at once, and two may come early; at the third the
  // connection ends with all its calls (GOAWAY, ENHANCE_YOUR_CALM).
  absl::Duration min_ping_interval = absl::Seconds(5);
  // By which the timeouts of calls are measured; deadlines and time stamps are
  // of it too. Those of connections are gRPC's.
  Nanos (*now)() = &NowNanos;
  // What gRPC may hold for all connections together: received bytes until they
  // are let go. Beyond it gRPC ends calls, whichever it meets first.
  size_t memory_bytes = size_t{2} << 30;
  // gRPC's reflection service: a thread for each stream, and messages that
  // nothing but memory_bytes bounds.
  bool reflection = false;
  // Connections are asked to leave after this long (gRPC adds or takes away up
  // to 10 %); their open calls may end.
  std::optional<absl::Duration> max_connection_age = std::nullopt;
  // Of TCP connections; not set: no TLS. Unix sockets are always plain: who may
  // open the file is the file system's to say.
  std::shared_ptr<grpc::ServerCredentials> credentials = nullptr;
};

class Transport {
 public:
  // Binds, then serves. Health says NOT_SERVING for "" and "live" until
  // SetServing.
  static absl::StatusOr<std::unique_ptr<Transport>> Start(
      TransportOptions options, const MethodTable& table);
  // Shuts down at once if nobody did.
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  // Where it listens, with real ports.
  const std::vector<std::string>& addresses() const;

  // What grpc.health.v1 answers for `service`: "", "live", "model/NAME", or a
  // gRPC service's full name.
  void SetServing(const std::string& service, bool serving);

  void CloseListeners();

  // Ends all connections. Calls that are open may end for `grace`, then they
  // are cancelled, and their handlers have `patience` to answer them. Until
  // calls have ended `cut` is called again and again, so it waits a little each
  // time; when it returns true they are cancelled at once. Returns
  // when every call was answered and all I/O threads have ended. If
  // open_calls() says that handlers were left, the process must end without
  // destroying the transport. False if, kHangPatience later, a thread is still
  // in something: then too, or destroying the transport waits for it.
  using CutFn = std::function<bool()>;
  bool Shutdown(absl::Duration grace,
                absl::Duration patience = absl::InfiniteDuration(),
                const CutFn& cut = nullptr);
  static constexpr absl::Duration kHangPatience = absl::Seconds(1);

  // Asks every I/O thread to show that it runs; see IoThread::Pulse. Of the one
  // that has missed most. For one asking thread.
  int Pulse();

  size_t open_connections() const;
  Listener::Closed closed_connections() const { return listener_->closed(); }
  // Streams and connections that were ended for what they sent: a message in
  // too many pieces, or headers of which there was no end.
  FrameGuard::Cuts cuts() const { return guard_.cuts(); }
  // Of a header block as it is sent, for each byte that headers may have.
  static constexpr size_t kHeaderBlockFactor = 4;
  // Calls since the start, and those of them that are not answered yet.
  int64_t taken_calls() const;
  int64_t open_calls() const;
  // Calls whose message is not whole; calls whose answer is not sent.
  size_t receiving() const;
  size_t sending() const;
  const CallCounts& counts() const { return counts_; }
  int io_threads() const { return static_cast<int>(threads_.size()); }

 private:
  explicit Transport(CallPolicy policy);
  // Returns when every call was answered or cancelled.
  void EndCalls(absl::Duration grace, const CutFn& cut);

  const CallPolicy policy_;
  CallCounts counts_;
  // Of health alone, so that probes are answered however much others hold, and
  // the other way round.
  Admission health_admission_;
  HealthService health_;
  FrameGuard guard_;
  std::unique_ptr<Listener> listener_;
  std::vector<std::unique_ptr<RawService>> services_;
  // Has gRPC's C++ classes leave calls that no service has to ours: theirs
  // answer each, however many of their answers nobody reads.
  grpc::AsyncGenericService rest_;
  // gRPC calls back into the credentials for as long as the server lives.
  std::shared_ptr<grpc::ServerCredentials> credentials_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor>
      unix_acceptor_;
  std::vector<std::unique_ptr<IoThread>> threads_;
  std::unique_ptr<grpc::Server> server_;
  bool shut_down_ = false;
};

}  // namespace weir
