#include "server/rpc/listener.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "kernels/base/status_macros.h"
#include "server/rpc/frame_guard.h"
#include "server/rpc/peer.h"

namespace weir {
namespace {

// How long to wait for descriptors to become free.
constexpr int kPauseMs = 100;
// From one address, before the others have their turn.
constexpr int kAcceptsAtOnce = 64;
// How often, where there are too many, to look which connections have ended.
constexpr Nanos kLookEvery = 10'000'000;

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> Listener::Open(
    const std::vector<std::string>& addresses, const Bounds& bounds,
    const LingeringSockets::Bounds& linger) {
  std::unique_ptr<Listener> listener(new Listener(bounds));
  listener->stop_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (listener->stop_fd_ < 0) return absl::ErrnoToStatus(errno, "eventfd");
  WEIR_ASSIGN_OR_RETURN(listener->lingering_, LingeringSockets::Start(linger));
  for (const std::string& address : addresses) {
    WEIR_ASSIGN_OR_RETURN(ListeningSocket socket,
                          ListeningSocket::Open(address));
    listener->names_.push_back(socket.address());
    listener->sockets_.push_back(std::move(socket));
  }
  return listener;
}

Listener::~Listener() {
  Close();
  if (stop_fd_ >= 0) close(stop_fd_);
}

void Listener::Start(AcceptFn accept) {
  accept_ = std::move(accept);
  hook_.emplace([this](int fd) { return Linger(fd); });
  thread_ = Thread("weir-accept", [this] { Run(); });
}

void Listener::Run() {
  std::vector<pollfd> polled;
  for (const ListeningSocket& socket : sockets_) {
    polled.push_back({socket.fd(), POLLIN, 0});
  }
  polled.push_back({stop_fd_, POLLIN, 0});
  const nfds_t stop = polled.size() - 1;
  for (;;) {
    if (poll(polled.data(), polled.size(), -1) < 0) continue;
    const bool stopping = polled[stop].revents != 0;
    bool pause = false;
    for (size_t i = 0; i < stop; ++i) {
      if (stopping || polled[i].revents != 0) {
        pause |= !Accept(sockets_[i],
                         stopping ? ListeningSocket::kBacklog : kAcceptsAtOnce);
      }
    }
    if (stopping) return;
    if (pause) poll(&polled[stop], 1, kPauseMs);
  }
}

bool Listener::Accept(const ListeningSocket& socket, int most) {
  for (int i = 0; i < most; ++i) {
    sockaddr_storage from = {};
    socklen_t size = sizeof(from);
    const int fd = accept4(socket.fd(), reinterpret_cast<sockaddr*>(&from),
                           &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return errno == EAGAIN || errno == EWOULDBLOCK;
    }
    std::string peer;
    if (!socket.is_unix()) {
      peer = PeerKey(from);
      if (!HasRoom(peer)) {
        close(fd);
        continue;
      }
    }
    struct stat info = {};
    fstat(fd, &info);
    {
      const MutexLock lock(&mu_);
      if (connections_.size() >= prune_at_) {
        Prune();
        prune_at_ = std::max<size_t>(64, 2 * connections_.size());
      }
      of_peer_.Add(peer);
      connections_.push_back({fd, info.st_ino, std::move(peer)});
    }
    accept_({socket.fd(), fd, socket.is_unix()});
  }
  return true;
}

uint64_t* Listener::Passed(const std::string& peer) {
  if (connections_.size() >= bounds_.all) return &closed_.all;
  return of_peer_.Of(peer) >= bounds_.of_peer ? &closed_.of_peer : nullptr;
}

bool Listener::HasRoom(const std::string& peer) {
  const MutexLock lock(&mu_);
  uint64_t* passed = Passed(peer);
  const Nanos now = NowNanos();
  if (passed != nullptr && now - looked_at_ >= kLookEvery) {
    looked_at_ = now;
    Prune();
    passed = Passed(peer);
  }
  if (passed != nullptr) ++*passed;
  return passed == nullptr;
}

void Listener::Prune() {
  size_t kept = 0;
  for (Connection& connection : connections_) {
    if (IsOpen(connection)) {
      std::swap(connections_[kept++], connection);
      continue;
    }
    of_peer_.Remove(connection.peer);
  }
  connections_.resize(kept);
}

Listener::Closed Listener::closed() const {
  const MutexLock lock(&mu_);
  return closed_;
}

void Listener::Close() {
  if (thread_.Joinable()) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t rc = write(stop_fd_, &one, sizeof(one));
    thread_.Join();
  }
  sockets_.clear();
}

// gRPC closes its descriptor next: a second one keeps the socket. Its poller
// goes by sockets, and so may tell it of this one under the name of another: it
// takes such a word for what it is, as one may come late anyway.
bool Listener::Linger(int fd) {
  if (FrameGuard::WasCut(fd)) return false;  // a reset will do
  const MutexLock lock(&mu_);
  const auto found = std::find_if(
      connections_.begin(), connections_.end(),
      [&](const Connection& c) { return c.fd == fd && IsOpen(c); });
  if (found == connections_.end()) return false;
  const int kept = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (kept < 0) return false;
  found->fd = kept;
  ShutdownHook::ShutDown(kept, SHUT_WR);
  lingering_->Add(kept);
  return true;
}

// gRPC does not tell when it closes a socket; a descriptor with the same inode
// is still the same socket.
bool Listener::IsOpen(const Connection& connection) {
  struct stat info = {};
  return fstat(connection.fd, &info) == 0 && info.st_ino == connection.inode;
}

size_t Listener::open_connections() const {
  const MutexLock lock(&mu_);
  return static_cast<size_t>(
      std::count_if(connections_.begin(), connections_.end(),
                    [](const Connection& c) { return IsOpen(c); }));
}

}  // namespace weir
