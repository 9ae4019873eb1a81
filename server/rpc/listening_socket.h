// A socket that listens, on TCP or on a unix path. Owned by whoever accepts
// from it; no thread of its own.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace weir {

class ListeningSocket {
 public:
  // Connections that wait to be accepted, at most.
  static constexpr int kBacklog = 4096;

  // "127.0.0.1:8001", "[::1]:0", "localhost:0", "unix:/path". Port 0 takes a
  // free one. A port in use, or a path with a live server behind it, is an
  // error that names the address.
  static absl::StatusOr<ListeningSocket> Open(const std::string& address);

  ListeningSocket(ListeningSocket&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)),
        address_(std::move(other.address_)),
        path_(std::move(other.path_)) {}
  ListeningSocket& operator=(ListeningSocket&&) = delete;
  // Stops listening; removes the path of a unix socket.
  ~ListeningSocket();

  int fd() const { return fd_; }  // does not block
  // As given, with the real port.
  const std::string& address() const { return address_; }
  bool is_unix() const { return !path_.empty(); }

 private:
  ListeningSocket() = default;
  absl::Status ListenOnPath(const std::string& address);
  absl::Status ListenOnTcp(const std::string& address);

  int fd_ = -1;
  std::string address_;
  std::string path_;  // of a unix socket, once it is bound
};

}  // namespace weir
