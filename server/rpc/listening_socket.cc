#include "server/rpc/listening_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/base/status_macros.h"

namespace weir {
namespace {

constexpr char kUnixPrefix[] = "unix:";

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
  return absl::Status(code, absl::StrCat("cannot ", doing, " ", address, ": ",
                                         std::strerror(error), remedy));
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

absl::StatusOr<ListeningSocket> ListeningSocket::Open(
    const std::string& address) {
  ListeningSocket socket;
  WEIR_RETURN_IF_ERROR(absl::StartsWith(address, kUnixPrefix)
                           ? socket.ListenOnPath(address)
                           : socket.ListenOnTcp(address));
  return socket;
}

ListeningSocket::~ListeningSocket() {
  if (!path_.empty()) unlink(path_.c_str());
  if (fd_ >= 0) close(fd_);
}

absl::Status ListeningSocket::ListenOnPath(const std::string& address) {
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
    if (!S_ISSOCK(info.st_mode)) {
      return absl::AlreadyExistsError(absl::StrCat(
          "cannot listen on ", address,
          ": a file that is no socket is there (remove it or choose another "
          "path)"));
    }
    // A socket that nobody serves is left from a process that died.
    if (IsLive(where)) return SystemError("listen on", address, EADDRINUSE);
    unlink(path.c_str());
  }
  fd_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd_ < 0) return SystemError("listen on", address, errno);
  if (bind(fd_, reinterpret_cast<const sockaddr*>(&where), sizeof(where)) !=
      0) {
    return SystemError("listen on", address, errno);
  }
  path_ = path;
  if (listen(fd_, kBacklog) != 0) {
    return SystemError("listen on", address, errno);
  }
  address_ = address;
  return absl::OkStatus();
}

absl::Status ListeningSocket::ListenOnTcp(const std::string& address) {
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
  fd_ = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd_ < 0) return SystemError("listen on", address, errno);
  // Lets a restarted server bind while old connections linger; two live
  // listeners on one port stay impossible.
  const int on = 1;
  setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (bind(fd_, found->ai_addr, found->ai_addrlen) != 0 ||
      listen(fd_, kBacklog) != 0) {
    return SystemError("listen on", address, errno);
  }
  address_ =
      absl::StrCat(address.substr(0, address.rfind(':')), ":", PortOf(fd_));
  return absl::OkStatus();
}

}  // namespace weir
