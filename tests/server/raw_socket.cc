#include "tests/server/raw_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace weir::testing {
namespace {

sockaddr_in Address(const std::string& host, int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) std::abort();
  return address;
}

}  // namespace

RawSocket::RawSocket(const std::string& address, const std::string& from,
                     int receive_buffer)
    : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const size_t colon = address.rfind(':');
  const sockaddr_in to =
      Address(address.substr(0, colon), std::stoi(address.substr(colon + 1)));
  if (receive_buffer > 0) {
    setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer,
               sizeof(receive_buffer));
  }
  if (!from.empty()) {
    const sockaddr_in source = Address(from, 0);
    if (bind(fd_, reinterpret_cast<const sockaddr*>(&source), sizeof(source)) !=
        0) {
      std::abort();
    }
  }
  if (connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0) {
    std::perror("RawSocket");
    std::abort();
  }
}

RawSocket::~RawSocket() {
  if (fd_ >= 0) close(fd_);
}

RawSocket::RawSocket(RawSocket&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)) {}

bool RawSocket::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

void RawSocket::SendNoMore() { shutdown(fd_, SHUT_WR); }

std::string RawSocket::ReadToEnd() {
  std::string bytes;
  char buffer[65536];
  for (;;) {
    const ssize_t got = recv(fd_, buffer, sizeof(buffer), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return bytes;
    bytes.append(buffer, static_cast<size_t>(got));
  }
}

bool RawSocket::Closed() {
  char buffer[65536];
  for (;;) {
    const ssize_t got = recv(fd_, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got > 0) continue;
    return got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  }
}

HttpReply ParseHttpReply(const std::string& bytes) {
  HttpReply reply;
  const size_t end = bytes.find("\r\n\r\n");
  if (end == std::string::npos) return reply;
  reply.head = bytes.substr(0, end);
  reply.body = bytes.substr(end + 4);
  if (bytes.rfind("HTTP/1.1 ", 0) == 0) {
    reply.status = std::atoi(bytes.c_str() + 9);
  }
  return reply;
}

HttpReply HttpRequest(const std::string& address, const std::string& head) {
  RawSocket socket(address);
  socket.Send(head + "\r\n\r\n");
  return ParseHttpReply(socket.ReadToEnd());
}

HttpReply HttpGet(const std::string& address, const std::string& path) {
  return HttpRequest(address, "GET " + path + " HTTP/1.1\r\nHost: weir");
}

}  // namespace weir::testing
