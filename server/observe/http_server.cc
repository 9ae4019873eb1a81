#include "server/observe/http_server.h"

#include <microhttpd.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/thread.h"
#include "server/rpc/listening_socket.h"
#include "server/rpc/peer.h"

namespace weir {
namespace {

constexpr char kText[] = "text/plain; charset=utf-8";

// Whoever opens the port in a browser wants to know where they are.
constexpr char kIndex[] =
    "weir-server: what probes and scrapers ask. Tensors go over gRPC.\n"
    "\n"
    "/healthz  200 while the process lives; 503 and why if its device is lost "
    "or a\n"
    "          thread hangs, so that it should be restarted\n"
    "/readyz   200 if it should get requests; 503 and why if not\n"
    "/metrics  counters and gauges in Prometheus' text format\n";
constexpr char kMetricsText[] = "text/plain; version=0.0.4; charset=utf-8";

// So many connections are taken before those that exist get their turn.
constexpr int kAcceptsAtOnce = 32;
// How long to wait for descriptors to become free.
constexpr Nanos kAcceptPause = 20'000'000;
// So many calls of a handler the library takes for a part of reading a request.
constexpr int kCallsThatRead = 2;
// The library's own bound is never met: what we close it closes a little later.
constexpr size_t kSpareConnections = 64;

// Connections that send it keep a reference of the library's own.
using Response = std::shared_ptr<MHD_Response>;

Response MakeResponse(std::string body, const char* type) {
  auto* owned = new std::string(std::move(body));
  Response response(
      MHD_create_response_from_buffer_with_free_callback_cls(
          owned->size(), owned->data(),
          [](void* text) { delete static_cast<std::string*>(text); }, owned),
      MHD_destroy_response);
  MHD_add_response_header(response.get(), MHD_HTTP_HEADER_CONTENT_TYPE, type);
  MHD_add_response_header(response.get(), MHD_HTTP_HEADER_CONNECTION, "close");
  return response;
}

}  // namespace

// Everything but `mu_` and what it guards belongs to the serving thread.
class HttpServer::Impl {
 public:
  Impl(ListeningSocket socket, Callbacks callbacks, const Limits& limits)
      : socket_(std::move(socket)),
        callbacks_(std::move(callbacks)),
        limits_(limits),
        time_(absl::ToInt64Nanoseconds(limits.time)) {}
  ~Impl();

  absl::Status Start();
  const std::string& address() const { return socket_.address(); }

 private:
  struct Connection {
    int fd = -1;
    std::string peer;
    Nanos close_at = 0;
    MHD_Connection* handle = nullptr;  // null until the library has taken it
    bool cut = false;                  // its end was asked for
    bool answered = false;
    int asked = 0;           // calls of the handler, for /metrics
    bool suspended = false;  // waits for its text
    bool in_the_making = false;
    Response text;
  };
  // Oldest first.
  using Connections = std::list<Connection>;

  void Serve();
  int TimeoutMs();
  void AcceptSome();
  void Admit(int fd, const sockaddr_storage& from, socklen_t size);
  void Forget(int fd);
  template <typename Predicate>
  size_t Count(Predicate among) const;
  template <typename Predicate>
  bool CutSome(Predicate among);
  bool MakeRoom(const std::string& newcomer);
  void Cut(Connection& connection);
  void Resume(Connection& connection);
  void CutLate();

  // The library's callbacks.
  static void Notify(void* self, MHD_Connection* handle, void** context,
                     MHD_ConnectionNotificationCode what);
  static MHD_Result Handle(void* self, MHD_Connection* handle, const char* url,
                           const char* method, const char* version,
                           const char* upload, size_t* upload_size,
                           void** request);
  void OnStarted(MHD_Connection* handle, void** context);
  MHD_Result Answer(Connection& connection, std::string_view path,
                    std::string_view method);
  MHD_Result Reply(Connection& connection, unsigned status, std::string body);
  MHD_Result Probe(Connection& connection, const std::string& problem);
  MHD_Result Metrics(Connection& connection);

  // The making of /metrics.
  void MakeTexts();
  Response TextToShare();
  void AskForText();
  void TakeText();
  void Wake() const;

  const ListeningSocket socket_;
  const Callbacks callbacks_;
  const Limits limits_;
  const Nanos time_;
  MHD_Daemon* daemon_ = nullptr;
  int wake_fd_ = -1;
  Thread thread_;
  Thread maker_;

  Connections connections_;
  std::map<int, Connections::iterator> by_fd_;
  Nanos accept_after_ = 0;
  bool making_ = false;
  // Those that somebody has, oldest first; gone with their last reader.
  struct KeptText {
    std::weak_ptr<MHD_Response> response;
    size_t bytes = 0;
  };
  std::vector<KeptText> texts_;

  Mutex mu_;
  CondVar changed_;
  bool stopping_ WEIR_GUARDED_BY(mu_) = false;
  bool wanted_ WEIR_GUARDED_BY(mu_) = false;
  Response made_ WEIR_GUARDED_BY(mu_);
  size_t made_bytes_ WEIR_GUARDED_BY(mu_) = 0;
};

HttpServer::Impl::~Impl() {
  if (thread_.Joinable()) {
    {
      const MutexLock lock(&mu_);
      stopping_ = true;
      changed_.NotifyAll();
    }
    Wake();
    maker_.Join();
    thread_.Join();
  }
  if (wake_fd_ >= 0) close(wake_fd_);
}

absl::Status HttpServer::Impl::Start() {
  wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd_ < 0) return absl::InternalError("eventfd failed");
  // We poll, accept and time ourselves: the library refuses the newest when it
  // is full, and a byte a second keeps its connections alive.
  daemon_ = MHD_start_daemon(
      MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME, 0,
      nullptr, nullptr, &Impl::Handle, this, MHD_OPTION_CONNECTION_LIMIT,
      static_cast<unsigned>(limits_.connections + kSpareConnections),
      MHD_OPTION_CONNECTION_MEMORY_LIMIT, limits_.head_bytes,
      MHD_OPTION_CONNECTION_MEMORY_INCREMENT, size_t{1024},
      MHD_OPTION_NOTIFY_CONNECTION, &Impl::Notify, this, MHD_OPTION_END);
  if (daemon_ == nullptr) {
    return absl::InternalError("--http: libmicrohttpd does not start");
  }
  thread_ = Thread("weir-http", [this] { Serve(); });
  maker_ = Thread("weir-scrape", [this] { MakeTexts(); });
  return absl::OkStatus();
}

void HttpServer::Impl::Serve() {
  const int library_fd =
      MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
  for (;;) {
    const bool accepting = NowNanos() >= accept_after_;
    pollfd polled[] = {{accepting ? socket_.fd() : -1, POLLIN, 0},
                       {wake_fd_, POLLIN, 0},
                       {library_fd, POLLIN, 0}};
    if (poll(polled, 3, TimeoutMs()) < 0 && errno != EINTR) break;
    if (polled[1].revents != 0) {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t rc = read(wake_fd_, &count, sizeof(count));
      {
        const MutexLock lock(&mu_);
        if (stopping_) break;
      }
    }
    if (polled[0].revents != 0) AcceptSome();
    MHD_run(daemon_);
    if (polled[1].revents != 0) {
      // After those who asked before: they have the next.
      TakeText();
      MHD_run(daemon_);
    }
    CutLate();
  }
  for (Connection& connection : connections_) Cut(connection);
  MHD_run(daemon_);
  MHD_stop_daemon(daemon_);
}

// Until something is due; -1 if nothing is.
int HttpServer::Impl::TimeoutMs() {
  const Nanos now = NowNanos();
  Nanos due = kNoDeadline;
  if (accept_after_ > now) due = accept_after_;
  const auto next = std::find_if(
      connections_.begin(), connections_.end(),
      [](const Connection& connection) { return !connection.cut; });
  if (next != connections_.end()) due = std::min(due, next->close_at);
  MHD_UNSIGNED_LONG_LONG library_ms = 0;
  if (MHD_get_timeout(daemon_, &library_ms) == MHD_YES) {
    due =
        std::min<Nanos>(due, now + static_cast<Nanos>(library_ms) * 1'000'000);
  }
  if (due == kNoDeadline) return -1;
  return static_cast<int>((std::max<Nanos>(due - now, 0) + 999'999) /
                          1'000'000);
}

void HttpServer::Impl::AcceptSome() {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    sockaddr_storage from = {};
    socklen_t size = sizeof(from);
    const int fd = accept4(socket_.fd(), reinterpret_cast<sockaddr*>(&from),
                           &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      Admit(fd, from, size);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno != EINTR && errno != ECONNABORTED) {
      // Out of descriptors: what we hold may help.
      MakeRoom("");
      accept_after_ = NowNanos() + kAcceptPause;
      return;
    }
  }
}

void HttpServer::Impl::Admit(int fd, const sockaddr_storage& from,
                             socklen_t size) {
  Connection connection;
  connection.fd = fd;
  connection.peer = PeerKey(from);
  connection.close_at = NowNanos() + time_;
  const auto any = [](const Connection&) { return true; };
  const auto of_peer = [&](const Connection& other) {
    return other.peer == connection.peer;
  };
  bool cut = false;
  if (Count(of_peer) >= limits_.connections_per_peer) {
    cut = CutSome(of_peer);
  } else if (Count(any) >= limits_.connections) {
    cut = MakeRoom(connection.peer);
  }
  if (cut) MHD_run(daemon_);
  connections_.push_back(connection);
  by_fd_[fd] = std::prev(connections_.end());
  // Refused, it is closed, and was perhaps never announced.
  if (MHD_add_connection(daemon_, fd, reinterpret_cast<const sockaddr*>(&from),
                         size) != MHD_YES) {
    Forget(fd);
  }
}

void HttpServer::Impl::Forget(int fd) {
  const auto found = by_fd_.find(fd);
  if (found == by_fd_.end()) return;
  connections_.erase(found->second);
  by_fd_.erase(found);
}

// Of those that are to live on.
template <typename Predicate>
size_t HttpServer::Impl::Count(Predicate among) const {
  return static_cast<size_t>(
      std::count_if(connections_.begin(), connections_.end(),
                    [&](const Connection& c) { return !c.cut && among(c); }));
}

// Those whose other end has left: they read no answer, and the library does not
// look at those that wait for one. (Who has only said that no more requests
// come looks like that.) If there is none, the oldest.
template <typename Predicate>
bool HttpServer::Impl::CutSome(Predicate among) {
  std::vector<pollfd> polled;
  std::vector<Connection*> of;
  for (Connection& connection : connections_) {
    if (connection.cut || !among(connection)) continue;
    polled.push_back({connection.fd, POLLRDHUP, 0});
    of.push_back(&connection);
  }
  if (of.empty()) return false;
  if (poll(polled.data(), polled.size(), 0) <= 0) {
    Cut(*of[0]);
    return true;
  }
  for (size_t i = 0; i < polled.size(); ++i) {
    if (polled[i].revents != 0) Cut(*of[i]);
  }
  return true;
}

// For a connection of `newcomer`, which counts as one that it has. Of several
// that have as many, all are asked who has left.
bool HttpServer::Impl::MakeRoom(const std::string& newcomer) {
  std::map<std::string_view, size_t> counts = {{newcomer, 1}};
  size_t most = 0;
  for (const Connection& connection : connections_) {
    if (!connection.cut) most = std::max(most, ++counts[connection.peer]);
  }
  return CutSome([&](const Connection& c) { return counts[c.peer] == most; });
}

// The library sees the end of the connection and closes it in its next run.
void HttpServer::Impl::Cut(Connection& connection) {
  if (connection.handle == nullptr || std::exchange(connection.cut, true)) {
    return;
  }
  shutdown(connection.fd, SHUT_RDWR);
  Resume(connection);
}

void HttpServer::Impl::Resume(Connection& connection) {
  if (!std::exchange(connection.suspended, false)) return;
  connection.in_the_making = false;
  MHD_resume_connection(connection.handle);
}

void HttpServer::Impl::CutLate() {
  const Nanos now = NowNanos();
  for (auto it = connections_.begin();
       it != connections_.end() && it->close_at <= now;) {
    Connection& late = *it++;
    if (late.handle == nullptr) {
      Forget(late.fd);  // the library never took it
    } else {
      Cut(late);
    }
  }
}

void HttpServer::Impl::Notify(void* self, MHD_Connection* handle,
                              void** context,
                              MHD_ConnectionNotificationCode what) {
  Impl& impl = *static_cast<Impl*>(self);
  if (what == MHD_CONNECTION_NOTIFY_STARTED) {
    impl.OnStarted(handle, context);
  } else if (auto* connection = static_cast<Connection*>(*context)) {
    // Its descriptor is closed after this and may be another's then.
    impl.Forget(connection->fd);
  }
}

void HttpServer::Impl::OnStarted(MHD_Connection* handle, void** context) {
  const int fd =
      MHD_get_connection_info(handle, MHD_CONNECTION_INFO_CONNECTION_FD)
          ->connect_fd;
  Connection& connection = *by_fd_.at(fd);
  connection.handle = handle;
  *context = &connection;
}

MHD_Result HttpServer::Impl::Handle(void* self, MHD_Connection* handle,
                                    const char* url, const char* method,
                                    const char*, const char*,
                                    size_t* upload_size, void** request) {
  auto& connection = *static_cast<Connection*>(
      MHD_get_connection_info(handle, MHD_CONNECTION_INFO_SOCKET_CONTEXT)
          ->socket_context);
  if (connection.cut) return MHD_NO;
  *request = self;  // anything but null
  // What comes after the head is thrown away: the answer is on its way.
  *upload_size = 0;
  if (connection.answered) return MHD_YES;
  return static_cast<Impl*>(self)->Answer(connection, url, method);
}

MHD_Result HttpServer::Impl::Answer(Connection& connection,
                                    std::string_view path,
                                    std::string_view method) {
  if (method != MHD_HTTP_METHOD_GET && method != MHD_HTTP_METHOD_HEAD) {
    return Reply(connection, MHD_HTTP_METHOD_NOT_ALLOWED,
                 "only GET and HEAD are taken\n");
  }
  const auto header = [&](const char* name) {
    const char* value =
        MHD_lookup_connection_value(connection.handle, MHD_HEADER_KIND, name);
    return std::string_view(value == nullptr ? "" : value);
  };
  const std::string_view length = header(MHD_HTTP_HEADER_CONTENT_LENGTH);
  if (!header(MHD_HTTP_HEADER_TRANSFER_ENCODING).empty() ||
      (!length.empty() && length != "0")) {
    return Reply(connection, MHD_HTTP_CONTENT_TOO_LARGE, "no body is taken\n");
  }
  if (path == "/healthz") return Probe(connection, callbacks_.unhealthy());
  if (path == "/readyz") return Probe(connection, callbacks_.unready());
  if (path == "/metrics") return Metrics(connection);
  if (path == "/") return Reply(connection, MHD_HTTP_OK, kIndex);
  return Reply(connection, MHD_HTTP_NOT_FOUND,
               "there are /, /healthz, /readyz and /metrics\n");
}

MHD_Result HttpServer::Impl::Reply(Connection& connection, unsigned status,
                                   std::string body) {
  const Response response = MakeResponse(std::move(body), kText);
  if (status == MHD_HTTP_METHOD_NOT_ALLOWED) {
    MHD_add_response_header(response.get(), MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
  }
  connection.answered = true;
  return MHD_queue_response(connection.handle, status, response.get());
}

MHD_Result HttpServer::Impl::Probe(Connection& connection,
                                   const std::string& problem) {
  return problem.empty() ? Reply(connection, MHD_HTTP_OK, "ok\n")
                         : Reply(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                                 absl::StrCat(problem, "\n"));
}

// Called when the head is there, when the request has ended, once again, and
// when its text is there. A connection that is suspended sooner is read from
// when it is resumed, before the handler is called; and the library closes it
// if the other end has said that it sends no more.
//
// Whoever asks while a text is being made waits for the next: it shall be from
// now on.
MHD_Result HttpServer::Impl::Metrics(Connection& connection) {
  if (connection.asked < kCallsThatRead) {
    ++connection.asked;
    return MHD_YES;
  }
  if (connection.text == nullptr) connection.text = TextToShare();
  if (connection.text != nullptr) {
    connection.answered = true;
    return MHD_queue_response(connection.handle, MHD_HTTP_OK,
                              connection.text.get());
  }
  MHD_suspend_connection(connection.handle);
  connection.suspended = true;
  AskForText();
  return MHD_YES;
}

// The newest text, if there are so many that no other may be made; null while
// one is being made. The others, of which there is one at least, end with
// connections that exist, of which none is older than `time_`: so nor is a text
// that is shared.
Response HttpServer::Impl::TextToShare() {
  std::erase_if(texts_,
                [](const KeptText& text) { return text.response.expired(); });
  if (making_ || texts_.size() < 2) return nullptr;
  size_t bytes = 0;
  for (const KeptText& text : texts_) bytes += text.bytes;
  if (texts_.size() < limits_.texts && bytes < limits_.text_bytes) {
    return nullptr;
  }
  return texts_.back().response.lock();
}

void HttpServer::Impl::AskForText() {
  if (making_) return;
  const Response text = TextToShare();
  bool any = false;
  for (Connection& connection : connections_) {
    if (!connection.suspended) continue;
    if (text != nullptr) {
      connection.text = text;
      Resume(connection);
    } else {
      connection.in_the_making = any = true;
    }
  }
  if (!any) return;
  making_ = true;
  const MutexLock lock(&mu_);
  wanted_ = true;
  changed_.NotifyAll();
}

void HttpServer::Impl::MakeTexts() {
  for (;;) {
    {
      const MutexLock lock(&mu_);
      while (!wanted_ && !stopping_) changed_.Wait(&mu_);
      if (stopping_) return;
      wanted_ = false;
    }
    std::string text = callbacks_.metrics();
    const size_t bytes = text.size();
    Response made = MakeResponse(std::move(text), kMetricsText);
    {
      const MutexLock lock(&mu_);
      made_ = std::move(made);
      made_bytes_ = bytes;
    }
    Wake();
  }
}

void HttpServer::Impl::TakeText() {
  Response text;
  size_t bytes = 0;
  {
    const MutexLock lock(&mu_);
    text.swap(made_);
    bytes = made_bytes_;
  }
  if (text == nullptr) return;
  for (Connection& connection : connections_) {
    if (!connection.in_the_making) continue;
    connection.text = text;
    Resume(connection);
  }
  texts_.push_back({text, bytes});
  text = nullptr;  // it is its readers' alone
  making_ = false;
  AskForText();
}

void HttpServer::Impl::Wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t rc = write(wake_fd_, &one, sizeof(one));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

const std::string& HttpServer::address() const { return impl_->address(); }

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    const std::string& address, Callbacks callbacks, const Limits& limits) {
  auto socket = ListeningSocket::Open(address);
  if (!socket.ok()) {
    return absl::Status(socket.status().code(),
                        absl::StrCat("--http: ", socket.status().message()));
  }
  auto impl =
      std::make_unique<Impl>(*std::move(socket), std::move(callbacks), limits);
  WEIR_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

}  // namespace weir
