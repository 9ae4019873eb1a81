#include "server/rpc/socket_cork.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace weir {
namespace {

struct Cork {
  bool holds = false;  // there is a Scope
  int held = 0;
  int sockets = 0;
  std::array<int, SocketCork::kMost> fds = {};
};
thread_local Cork cork;

void Remember(int fd) {
  ++cork.held;
  const auto end = cork.fds.begin() + cork.sockets;
  if (std::find(cork.fds.begin(), end, fd) != end) return;
  cork.fds[static_cast<size_t>(cork.sockets++)] = fd;
}

}  // namespace

SocketCork::Scope::Scope(bool holds) { cork.holds = holds; }

SocketCork::Scope::~Scope() { cork.holds = false; }

int SocketCork::held() { return cork.held; }

// TCP_NODELAY sends what waits, see tcp(7); it is on already. A descriptor that
// was closed meanwhile may be another socket's by now, which loses nothing.
void SocketCork::Pull() {
  constexpr int kOn = 1;
  for (int i = 0; i < cork.sockets; ++i) {
    setsockopt(cork.fds[static_cast<size_t>(i)], IPPROTO_TCP, TCP_NODELAY, &kOn,
               sizeof(kOn));
  }
  cork.held = cork.sockets = 0;
}

}  // namespace weir

extern "C" __attribute__((visibility("default"))) ssize_t sendmsg(
    int fd, const msghdr* message, int flags) {
  if (!weir::cork.holds) return syscall(SYS_sendmsg, fd, message, flags);
  if (weir::cork.held == weir::SocketCork::kMost) weir::SocketCork::Pull();
  const ssize_t sent = syscall(SYS_sendmsg, fd, message, flags | MSG_MORE);
  if (sent > 0) weir::Remember(fd);
  return sent;
}
