#include "server/rpc/frame_guard.h"

#include <dlfcn.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/sslerr.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <utility>

#include "kernels/base/mutex.h"
#include "server/rpc/frame_meter.h"
#include "server/rpc/peer.h"
#include "server/rpc/shutdown_hook.h"

namespace weir {

class FrameGuard::Tally {
 public:
  void CountStreams(uint64_t count, std::string peer) {
    const MutexLock lock(&mu_);
    cuts_.streams.count += count;
    cuts_.streams.peer = std::move(peer);
  }
  void CountConnection(FrameMeter::Verdict verdict, std::string peer) {
    const MutexLock lock(&mu_);
    Cut& cut = verdict == FrameMeter::Verdict::kHeadersTooLarge ? cuts_.headers
                                                                : cuts_.pieces;
    ++cut.count;
    cut.peer = std::move(peer);
  }
  Cuts cuts() const {
    const MutexLock lock(&mu_);
    return cuts_;
  }

 private:
  mutable Mutex mu_;
  Cuts cuts_ WEIR_GUARDED_BY(mu_);
};

// What is read from one connection. Its reads follow one another, but
// ThreadSanitizer does not see all that gRPC orders them by.
class MeteredReads {
 public:
  MeteredReads(std::shared_ptr<FrameGuard::Tally> tally, size_t header_bytes)
      : tally_(std::move(tally)), meter_(header_bytes) {}

  // `bytes` of them, one place after another; marks those that end a stream.
  // False once they are too bad for the connection. What peer() says is noted
  // when something ends.
  template <typename Peer>
  bool Take(const iovec* places, size_t bytes, const Peer& peer) {
    const MutexLock lock(&mu_);
    if (verdict_ != FrameMeter::Verdict::kFine) return false;
    const uint64_t ended_before = meter_.ended_streams();
    for (; bytes > 0; ++places) {
      const size_t part = std::min(bytes, places->iov_len);
      verdict_ = meter_.Take(places->iov_base, part);
      bytes -= part;
    }
    const uint64_t ended = meter_.ended_streams() - ended_before;
    if (ended > 0) tally_->CountStreams(ended, peer());
    if (verdict_ == FrameMeter::Verdict::kFine) return true;
    tally_->CountConnection(verdict_, peer());
    return false;
  }

 private:
  const std::shared_ptr<FrameGuard::Tally> tally_;
  Mutex mu_;
  FrameMeter meter_ WEIR_GUARDED_BY(mu_);
  FrameMeter::Verdict verdict_ WEIR_GUARDED_BY(mu_) =
      FrameMeter::Verdict::kFine;
};

struct WatchedSocket {
  bool is_tls() const { return plain == nullptr; }
  // For what TLS makes of it.
  std::unique_ptr<MeteredReads> NewReads() const {
    return std::make_unique<MeteredReads>(tally, header_bytes);
  }

  std::shared_ptr<FrameGuard::Tally> tally;
  size_t header_bytes = 0;
  std::unique_ptr<MeteredReads> plain;  // null: TLS
  std::atomic<bool> cut{false};
};

namespace {

// The watched sockets, by descriptor. Sockets are read and closed until the
// process ends: this is never destroyed.
class Sockets {
 public:
  static Sockets& Get() {
    static auto* sockets = new Sockets;
    return *sockets;
  }

  // Null for one that is not watched. It lasts until its descriptor is closed,
  // which whoever asks, uses it for something and so knows to be open.
  WatchedSocket* Find(int fd) const {
    const auto at = static_cast<size_t>(fd);
    if (fd < 0 || at >= kRow * kRows) return nullptr;
    const Row* const row = rows_[at / kRow].load(std::memory_order_acquire);
    return row == nullptr ? nullptr
                          : (*row)[at % kRow].load(std::memory_order_acquire);
  }

  // For those who do not know: use(socket), before which it may have ended.
  template <typename Use>
  void With(int fd, const Use& use) {
    const MutexLock lock(&mu_);
    if (WatchedSocket* const socket = Find(fd)) use(*socket);
  }

  // use(fd, socket) for each, which stays open meanwhile.
  template <typename Use>
  void ForEach(const Use& use) {
    const MutexLock lock(&mu_);
    for (size_t i = 0; i < kRows; ++i) {
      const Row* const row = rows_[i].load(std::memory_order_relaxed);
      if (row == nullptr) continue;
      for (size_t j = 0; j < kRow; ++j) {
        WatchedSocket* const socket = (*row)[j].load(std::memory_order_relaxed);
        if (socket != nullptr) use(static_cast<int>(i * kRow + j), *socket);
      }
    }
  }

  void Add(int fd, std::unique_ptr<WatchedSocket> socket) {
    const auto at = static_cast<size_t>(fd);
    if (fd < 0 || at >= kRow * kRows) return;
    const MutexLock lock(&mu_);
    std::atomic<Row*>& row = rows_[at / kRow];
    if (row.load(std::memory_order_relaxed) == nullptr) {
      row.store(new Row{}, std::memory_order_release);
    }
    const std::unique_ptr<WatchedSocket> before(
        (*row)[at % kRow].exchange(socket.release()));
  }

  void Remove(int fd) {
    if (Find(fd) == nullptr) return;
    const auto at = static_cast<size_t>(fd);
    const MutexLock lock(&mu_);
    const std::unique_ptr<WatchedSocket> before(
        (*rows_[at / kRow])[at % kRow].exchange(nullptr));
  }

 private:
  // Together more descriptors than a process has.
  static constexpr size_t kRow = 4096;
  static constexpr size_t kRows = 4096;
  using Row = std::array<std::atomic<WatchedSocket*>, kRow>;

  Mutex mu_;  // of whoever changes what Find finds
  std::array<std::atomic<Row*>, kRows> rows_ = {};
};

// Of no family if it is not connected.
sockaddr_storage AddressOf(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return {};
  }
  return address;
}

std::string PeerOf(int fd) {
  const sockaddr_storage address = AddressOf(fd);
  return address.ss_family == AF_UNSPEC ? "" : PeerName(address);
}

bool HasRoom(int fd) {
  pollfd polled = {fd, POLLOUT, 0};
  return poll(&polled, 1, 0) > 0;
}

// -- Plain connections --------------------------------------------------------

// The watched socket of TLS that this thread has read last. gRPC decrypts what
// it has read at once, on the same thread.
thread_local int last_tls_read = -1;

bool MayRead(int fd, const msghdr& message, size_t bytes) {
  WatchedSocket* const socket = Sockets::Get().Find(fd);
  if (socket == nullptr) return true;
  if (socket->is_tls()) {
    last_tls_read = fd;
    return true;
  }
  if (socket->plain->Take(message.msg_iov, bytes, [&] { return PeerOf(fd); })) {
    return true;
  }
  socket->cut = true;
  // gRPC passes over an error where it has just read something in front of it.
  // It finds the end in any case.
  ShutdownHook::ShutDown(fd, SHUT_RDWR);
  return false;
}

// -- TLS ----------------------------------------------------------------------

// What gRPC has decrypted of one connection; belongs to OpenSSL's object.
struct TlsReads {
  int fd = -1;
  std::unique_ptr<MeteredReads> reads;
};

int TlsIndex() {
  static const int index = SSL_get_ex_new_index(
      0, nullptr, nullptr, nullptr,
      // NOLINTNEXTLINE(google-runtime-int): the library's type
      [](void*, void* reads, CRYPTO_EX_DATA*, int, long, void*) {
        delete static_cast<TlsReads*>(reads);
      });
  return index;
}

// Null for connections of clients, and of servers that nobody guards.
TlsReads* TlsReadsOf(SSL* ssl) {
  if (void* const known = SSL_get_ex_data(ssl, TlsIndex())) {
    return static_cast<TlsReads*>(known);
  }
  if (SSL_is_server(ssl) == 0) return nullptr;
  std::unique_ptr<MeteredReads> metered;
  Sockets::Get().With(last_tls_read, [&](const WatchedSocket& socket) {
    if (socket.is_tls()) metered = socket.NewReads();
  });
  if (metered == nullptr) return nullptr;
  auto* const reads = new TlsReads{last_tls_read, std::move(metered)};
  SSL_set_ex_data(ssl, TlsIndex(), reads);
  return reads;
}

bool MayDecrypt(SSL* ssl, void* bytes, size_t size) {
  TlsReads* const tls = TlsReadsOf(ssl);
  if (tls == nullptr) return true;
  // Its socket, unless this thread has read another's since.
  const int fd = tls->fd == last_tls_read ? tls->fd : -1;
  const iovec place = {bytes, size};
  if (tls->reads->Take(&place, size, [&] { return PeerOf(fd); })) return true;
  Sockets::Get().With(fd, [](WatchedSocket& socket) { socket.cut = true; });
  return false;
}

}  // namespace

// -- The guard ----------------------------------------------------------------

FrameGuard::FrameGuard(size_t header_bytes)
    : header_bytes_(header_bytes), tally_(std::make_shared<Tally>()) {}

void FrameGuard::WatchPlain(int fd) {
  auto socket = std::make_unique<WatchedSocket>();
  socket->tally = tally_;
  socket->plain = std::make_unique<MeteredReads>(tally_, header_bytes_);
  Sockets::Get().Add(fd, std::move(socket));
}

void FrameGuard::WatchTls(int fd) {
  auto socket = std::make_unique<WatchedSocket>();
  socket->tally = tally_;
  socket->header_bytes = header_bytes_;
  Sockets::Get().Add(fd, std::move(socket));
}

FrameGuard::Cuts FrameGuard::cuts() const {
  Cuts cuts = tally_->cuts();
  cuts.header_bytes = header_bytes_;
  return cuts;
}

// gRPC finds the end where it waits to write.
template <typename Ends>
void FrameGuard::EndIf(const Ends& ends) {
  Sockets::Get().ForEach([&](int fd, WatchedSocket& socket) {
    if (socket.tally != tally_ || !ends(fd)) return;
    socket.cut = true;
    ShutdownHook::ShutDown(fd, SHUT_RDWR);
  });
}

void FrameGuard::End(const std::set<std::string>& connections) {
  EndIf([&](int fd) {
    const std::string key = ConnectionKey(AddressOf(fd));
    if (connections.count(key) == 0) return false;
    return key != kUnixPeer || !HasRoom(fd);
  });
}

void FrameGuard::EndUnread() {
  EndIf([](int fd) { return !HasRoom(fd); });
}

bool FrameGuard::WasCut(int fd) {
  const WatchedSocket* const socket = Sockets::Get().Find(fd);
  return socket != nullptr && socket->cut;
}

}  // namespace weir

// -- What gRPC calls ----------------------------------------------------------

extern "C" __attribute__((visibility("default"))) ssize_t recvmsg(
    int fd, msghdr* message, int flags) {
  const ssize_t got = syscall(SYS_recvmsg, fd, message, flags);
  constexpr int kOthers = MSG_ERRQUEUE | MSG_PEEK;  // not the stream's next
  if (got <= 0 || (flags & kOthers) != 0 ||
      weir::MayRead(fd, *message, static_cast<size_t>(got))) {
    return got;
  }
  errno = ECONNRESET;
  return -1;
}

extern "C" __attribute__((visibility("default"))) int close(int fd) {
  weir::Sockets::Get().Remove(fd);
  return static_cast<int>(syscall(SYS_close, fd));
}

extern "C" __attribute__((visibility("default"))) int SSL_read(SSL* ssl,
                                                               void* bytes,
                                                               int size) {
  using Read = int (*)(SSL*, void*, int);
  static const auto read = reinterpret_cast<Read>(dlsym(RTLD_NEXT, "SSL_read"));
  const int got = read(ssl, bytes, size);
  if (got <= 0 || weir::MayDecrypt(ssl, bytes, static_cast<size_t>(got))) {
    return got;
  }
  ERR_raise(ERR_LIB_SSL, SSL_R_EXCESSIVE_MESSAGE_SIZE);
  return -1;
}
