// Listening sockets and the thread that accepts from them. gRPC 1.51 cannot
// close its listeners and keep its connections, so we listen ourselves and hand
// accepted sockets over. When gRPC ends one of them its clients may still
// write: it is half closed, and read until they close it too
// (LingeringSockets). Open, Start and Close from one thread; open_connections
// from any.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "kernels/base/thread.h"
#include "server/rpc/key_counts.h"
#include "server/rpc/lingering_sockets.h"
#include "server/rpc/listening_socket.h"
#include "server/rpc/shutdown_hook.h"

namespace weir {

class Listener {
 public:
  // A connected socket for the receiver to take over.
  struct Accepted {
    int listening_fd = -1;
    int fd = -1;
    bool is_unix = false;
  };
  using AcceptFn = std::function<void(const Accepted&)>;

  // Open connections of all addresses together, and over TCP those of one peer
  // (see PeerKey). Beyond them those over TCP are closed as they come; over
  // unix sockets come the operators.
  struct Bounds {
    size_t all = 4096;
    size_t of_peer = SIZE_MAX;
  };

  // Listens on every address, as ListeningSocket::Open does. `linger` bounds
  // connections that gRPC has ended.
  static absl::StatusOr<std::unique_ptr<Listener>> Open(
      const std::vector<std::string>& addresses, const Bounds& bounds,
      const LingeringSockets::Bounds& linger);
  static absl::StatusOr<std::unique_ptr<Listener>> Open(
      const std::vector<std::string>& addresses, const Bounds& bounds) {
    return Open(addresses, bounds, LingeringSockets::Bounds());
  }
  static absl::StatusOr<std::unique_ptr<Listener>> Open(
      const std::vector<std::string>& addresses) {
    return Open(addresses, Bounds());
  }
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // As given, with the real port.
  const std::vector<std::string>& addresses() const { return names_; }

  // From now on accepts and calls `accept` on a thread of its own. Once.
  void Start(AcceptFn accept);

  // Accepts what has already connected, then refuses new connections. A client
  // whose handshake ends in the microseconds between the two is reset.
  void Close();

  // Accepted connections whose socket is still open, those that linger too.
  size_t open_connections() const;
  // Those that were closed as they came: there were too many, or too many of
  // their peer.
  struct Closed {
    uint64_t all = 0;
    uint64_t of_peer = 0;
  };
  Closed closed() const;

 private:
  struct Connection {
    int fd = -1;
    ino_t inode = 0;
    std::string peer;
  };

  explicit Listener(const Bounds& bounds) : bounds_(bounds) {}
  void Run();
  // Whether there is room for one more of that peer; counts it if not.
  bool HasRoom(const std::string& peer);
  // The bound that one more would pass: what to count, or null.
  uint64_t* Passed(const std::string& peer) WEIR_REQUIRES(mu_);
  // Forgets connections that have ended.
  void Prune() WEIR_REQUIRES(mu_);
  // What has connected, up to `most`. False if accepting must pause because the
  // process is out of descriptors.
  bool Accept(const ListeningSocket& socket, int most);
  static bool IsOpen(const Connection& connection);
  // Has the connection linger that gRPC ends. False if it is none of ours.
  bool Linger(int fd);

  const Bounds bounds_;
  std::vector<ListeningSocket> sockets_;
  std::vector<std::string> names_;
  AcceptFn accept_;
  int stop_fd_ = -1;
  Thread thread_;
  Nanos looked_at_ = 0;  // by HasRoom

  mutable Mutex mu_;
  std::vector<Connection> connections_ WEIR_GUARDED_BY(mu_);
  KeyCounts of_peer_ WEIR_GUARDED_BY(mu_);
  Closed closed_ WEIR_GUARDED_BY(mu_);
  size_t prune_at_ WEIR_GUARDED_BY(mu_) = 64;
  // The hook, since Start, calls, and ends before what it uses.
  std::unique_ptr<LingeringSockets> lingering_;
  std::optional<ShutdownHook> hook_;
};

}  // namespace weir
