#include "server/rpc/lingering_sockets.h"

#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace weir {
namespace {

// How often the times are looked at while something lingers.
constexpr Nanos kShortestLook = 1'000'000;
constexpr Nanos kLongestLook = 250'000'000;

// Bytes that the far end's kernel has not acknowledged.
bool HasUnsent(int fd) {
  int bytes = 0;
  return ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

absl::Status NoRoom(int error, const char* what) {
  return absl::ErrnoToStatus(
      error, absl::StrCat("cannot watch connections that end; raise the "
                          "limits of open files and of processes: ",
                          what));
}

}  // namespace

LingeringSockets::LingeringSockets(const Bounds& bounds)
    : idle_(absl::ToInt64Nanoseconds(bounds.idle)),
      limit_(absl::ToInt64Nanoseconds(bounds.limit)) {}

absl::StatusOr<std::unique_ptr<LingeringSockets>> LingeringSockets::Start(
    const Bounds& bounds) {
  std::unique_ptr<LingeringSockets> sockets(new LingeringSockets(bounds));
  WEIR_RETURN_IF_ERROR(sockets->Open());
  return sockets;
}

absl::Status LingeringSockets::Open() {
  poller_ = epoll_create1(EPOLL_CLOEXEC);
  if (poller_ < 0) return NoRoom(errno, "epoll_create1");
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_ < 0) return NoRoom(errno, "eventfd");
  epoll_event waking = {};
  waking.events = EPOLLIN;
  waking.data.fd = wake_;
  if (epoll_ctl(poller_, EPOLL_CTL_ADD, wake_, &waking) != 0) {
    return NoRoom(errno, "epoll_ctl");
  }
  try {
    thread_ = Thread("weir-linger", [this] { Run(); });
  } catch (const std::system_error& error) {
    return NoRoom(error.code().value(), "a thread");
  }
  return absl::OkStatus();
}

LingeringSockets::~LingeringSockets() {
  if (thread_.Joinable()) {
    {
      const MutexLock lock(&mu_);
      stop_ = true;
    }
    Wake();
    thread_.Join();
  }
  const MutexLock lock(&mu_);
  for (const auto& [fd, times] : sockets_) close(fd);
  for (const int fd : {poller_, wake_}) {
    if (fd >= 0) close(fd);
  }
}

void LingeringSockets::Wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t rc = write(wake_, &one, sizeof(one));
}

void LingeringSockets::Add(int fd) {
  const Nanos now = NowNanos();
  {
    const MutexLock lock(&mu_);
    sockets_[fd] = {now, now};
    epoll_event event = {};
    event.events = EPOLLIN | EPOLLRDHUP;
    event.data.fd = fd;
    if (epoll_ctl(poller_, EPOLL_CTL_ADD, fd, &event) != 0) {
      sockets_.erase(fd);
      close(fd);
      return;
    }
  }
  Wake();
}

void LingeringSockets::Run() {
  const Nanos look = std::clamp(idle_ / 8, kShortestLook, kLongestLook);
  std::array<epoll_event, 64> events;
  Nanos looked = 0;
  int wait_ms = -1;
  for (;;) {
    const int count = epoll_wait(poller_, events.data(),
                                 static_cast<int>(events.size()), wait_ms);
    const MutexLock lock(&mu_);
    if (stop_) return;
    for (int i = 0; i < count; ++i) {
      const int fd = events[static_cast<size_t>(i)].data.fd;
      if (fd == wake_) {
        uint64_t rings = 0;
        [[maybe_unused]] const ssize_t rc = read(wake_, &rings, sizeof(rings));
      } else if (!Discard(fd)) {
        sockets_.erase(fd);
        Close(fd);
      }
    }
    if (const Nanos now = NowNanos(); now - looked >= look) {
      looked = now;
      Sweep(now);
    }
    wait_ms = sockets_.empty() ? -1 : static_cast<int>(look / 1'000'000);
  }
}

// gRPC's descriptor of the socket may be open still, so that the poller would
// go on with a number that is another's by then.
void LingeringSockets::Close(int fd) {
  epoll_ctl(poller_, EPOLL_CTL_DEL, fd, nullptr);
  close(fd);
}

bool LingeringSockets::Discard(int fd) {
  std::array<char, 16384> bytes;
  const ssize_t got = recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (got > 0) return true;
  return got < 0 && (errno == EAGAIN || errno == EINTR);
}

void LingeringSockets::Sweep(Nanos now) {
  for (auto at = sockets_.begin(); at != sockets_.end();) {
    const auto here = at++;
    Times& times = here->second;
    if (HasUnsent(here->first)) times.taken = now;
    if (now - times.taken < idle_ && now - times.begun < limit_) continue;
    Close(here->first);
    sockets_.erase(here);
  }
}

}  // namespace weir
