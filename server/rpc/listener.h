// Listening sockets and the thread that accepts from them. gRPC 1.51 cannot
// close its listeners and keep its connections, so we listen ourselves and hand
// accepted sockets over. Open, Start and Close from one thread;
// open_connections from any.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "server/rpc/listening_socket.h"

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

  // Open connections, of all addresses together.
  static constexpr size_t kMaxConnections = 4096;

  // Listens on every address, as ListeningSocket::Open does. Beyond
  // `max_connections` those over TCP are closed as they come; over unix sockets
  // come the operators.
  static absl::StatusOr<std::unique_ptr<Listener>> Open(
      const std::vector<std::string>& addresses,
      size_t max_connections = kMaxConnections);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // As given, with the real port.
  const std::vector<std::string>& addresses() const { return names_; }

  // From now on accepts and calls `accept` on a thread of its own.
  void Start(AcceptFn accept);

  // Accepts what has already connected, then refuses new connections. A client
  // whose handshake ends in the microseconds between the two is reset.
  void Close();

  // Accepted connections whose socket is still open.
  size_t open_connections() const;

 private:
  struct Connection {
    int fd = -1;
    ino_t inode = 0;
  };

  explicit Listener(size_t max_connections)
      : max_connections_(max_connections) {}
  void Run();
  // Forgets connections that have ended, but not all the time.
  bool HasRoom();
  // False if accepting must pause because the process is out of descriptors.
  bool AcceptAll(const ListeningSocket& socket);
  static bool IsOpen(const Connection& connection);

  const size_t max_connections_;
  std::vector<ListeningSocket> sockets_;
  std::vector<std::string> names_;
  AcceptFn accept_;
  int stop_fd_ = -1;
  std::thread thread_;
  Nanos looked_at_ = 0;  // by HasRoom

  mutable Mutex mu_;
  std::vector<Connection> connections_ WEIR_GUARDED_BY(mu_);
  size_t prune_at_ WEIR_GUARDED_BY(mu_) = 64;
};

}  // namespace weir
