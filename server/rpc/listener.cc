#include "server/rpc/listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/base/status_macros.h"

namespace weir {
namespace {

constexpr int kBacklog = 4096;
constexpr char kUnixPrefix[] = "unix:";
// How long to wait for descriptors to become free.
constexpr int kPauseMs = 100;

absl::Status SystemError(absl::string_view doing, const std::string& address,
                         int error) {
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
  absl::string_view remedy;
  if (error == EADDRINUSE) {
    code = absl::StatusCode::kAlreadyExists;
    remedy = " (stop the other server or choose another address)";
  } else if (error == EACCES || error == EPERM) {
    code = absl::StatusCode::kPermissionDenied;
  }
  return absl::Status(code,
                      absl::StrCat("cannot ", doing, " ", address, ": ",
                                   std::strerror(error), remedy));  // NOLINT
}

struct HostPort {
  std::string host;
  std::string port;
};

absl::StatusOr<HostPort> SplitAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  HostPort result;
  if (colon != std::string::npos) {
    result.host = address.substr(0, colon);
    result.port = address.substr(colon + 1);
  }
  if (result.host.size() >= 2 && result.host.front() == '[' &&
      result.host.back() == ']') {
    result.host = result.host.substr(1, result.host.size() - 2);
  } else if (result.host.find(':') != std::string::npos) {
    result.host.clear();  // An IPv6 address needs brackets.
  }
  const bool numeric = !result.port.empty() && result.port.size() <= 5 &&
                       std::all_of(result.port.begin(), result.port.end(),
                                   [](char c) { return c >= '0' && c <= '9'; });
  if (result.host.empty() || !numeric || std::stoi(result.port) > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen on '", address,
                     "': not HOST:PORT, [IPV6]:PORT or unix:PATH"));
  }
  return result;
}

int PortOf(int fd) {
  sockaddr_storage bound = {};
  socklen_t size = sizeof(bound);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    return 0;
  }
  if (bound.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port);
  }
  return ntohs(reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
}

// Whether a server still accepts behind the path.
bool IsLive(const sockaddr_un& address) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  const int rc =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const bool live = rc == 0 || errno == EAGAIN;
  close(fd);
  return live;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> Listener::Open(
    const std::vector<std::string>& addresses) {
  std::unique_ptr<Listener> listener(new Listener);
  listener->stop_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (listener->stop_fd_ < 0) return SystemError("watch", "eventfd", errno);
  for (const std::string& address : addresses) {
    WEIR_RETURN_IF_ERROR(listener->Add(address));
  }
  return listener;
}

Listener::~Listener() {
  Close();
  if (stop_fd_ >= 0) close(stop_fd_);
}

absl::Status Listener::Add(const std::string& address) {
  return absl::StartsWith(address, kUnixPrefix) ? AddUnix(address)
                                                : AddTcp(address);
}

absl::Status Listener::AddUnix(const std::string& address) {
  const std::string path(absl::StripPrefix(address, kUnixPrefix));
  sockaddr_un where = {};
  where.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(where.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot listen on '", address, "': a socket's path has 1 to ",
        sizeof(where.sun_path) - 1, " bytes"));
  }
  std::memcpy(where.sun_path, path.data(), path.size());
  struct stat info = {};
  if (lstat(path.c_str(), &info) == 0) {
    // A socket that nobody serves is left from a process that died.
    if (!S_ISSOCK(info.st_mode) || IsLive(where)) {
      return SystemError("listen on", address, EADDRINUSE);
    }
    unlink(path.c_str());
  }
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return SystemError("listen on", address, errno);
  sockets_.push_back({fd, true});
  if (bind(fd, reinterpret_cast<const sockaddr*>(&where), sizeof(where)) != 0) {
    return SystemError("listen on", address, errno);
  }
  paths_.push_back(path);
  if (listen(fd, kBacklog) != 0) {
    return SystemError("listen on", address, errno);
  }
  names_.push_back(address);
  return absl::OkStatus();
}

absl::Status Listener::AddTcp(const std::string& address) {
  WEIR_ASSIGN_OR_RETURN(const HostPort parts, SplitAddress(address));
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int rc =
          getaddrinfo(parts.host.c_str(), parts.port.c_str(), &hints, &found);
      rc != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen on ", address, ": ", gai_strerror(rc)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found,
                                                             freeaddrinfo);
  const int fd =
      socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return SystemError("listen on", address, errno);
  sockets_.push_back({fd, false});
  // Lets a restarted server bind while old connections linger; two live
  // listeners on one port stay impossible.
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (bind(fd, found->ai_addr, found->ai_addrlen) != 0 ||
      listen(fd, kBacklog) != 0) {
    return SystemError("listen on", address, errno);
  }
  names_.push_back(
      absl::StrCat(address.substr(0, address.rfind(':')), ":", PortOf(fd)));
  return absl::OkStatus();
}

void Listener::Start(AcceptFn accept) {
  accept_ = std::move(accept);
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), "weir-accept");
}

void Listener::Run() {
  std::vector<pollfd> polled;
  for (const Socket& socket : sockets_) {
    polled.push_back({socket.fd, POLLIN, 0});
  }
  polled.push_back({stop_fd_, POLLIN, 0});
  const nfds_t stop = polled.size() - 1;
  for (;;) {
    if (poll(polled.data(), polled.size(), -1) < 0) continue;
    const bool stopping = polled[stop].revents != 0;
    bool pause = false;
    for (size_t i = 0; i < stop; ++i) {
      if (stopping || polled[i].revents != 0) {
        pause |= !AcceptAll(sockets_[i]);
      }
    }
    if (stopping) return;
    if (pause) poll(&polled[stop], 1, kPauseMs);
  }
}

bool Listener::AcceptAll(const Socket& socket) {
  for (;;) {
    const int fd =
        accept4(socket.fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return errno == EAGAIN || errno == EWOULDBLOCK;
    }
    struct stat info = {};
    fstat(fd, &info);
    {
      const MutexLock lock(&mu_);
      if (connections_.size() >= prune_at_) {
        std::erase_if(connections_,
                      [](const Connection& c) { return !IsOpen(c); });
        prune_at_ = std::max<size_t>(64, 2 * connections_.size());
      }
      connections_.push_back({fd, info.st_ino});
    }
    accept_({socket.fd, fd, socket.is_unix});
  }
}

void Listener::Close() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t rc = write(stop_fd_, &one, sizeof(one));
    thread_.join();
  }
  CloseSockets();
}

void Listener::CloseSockets() {
  for (const std::string& path : std::exchange(paths_, {})) {
    unlink(path.c_str());
  }
  for (const Socket& socket : std::exchange(sockets_, {})) close(socket.fd);
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
