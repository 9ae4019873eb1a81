#include "server/rpc/transport.h"

#include <grpc/grpc.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/impl/server_builder_plugin.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <utility>

#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/steady_time.h"
#include "kernels/base/thread.h"
#include "kernels/device/cpu/host_limits.h"
#include "server/rpc/default_io_threads.h"
#include "server/rpc/io_thread.h"
#include "server/rpc/raw_service.h"

namespace weir {
namespace {

using grpc::experimental::ExternalConnectionAcceptor;

// What a client may send of a message before it is read: HTTP/2's window of a
// stream. It grows while the message is read, to 1 MiB ahead of what is there.
constexpr int kStreamWindow = 64 << 10;

// What is read from a connection at once, at most, into one block, which stays
// while anything that came in it does: gRPC would take up to 4 MiB.
constexpr int kReadBytes = 256 << 10;

// Pings that may come sooner than TransportOptions::min_ping_interval.
constexpr int kEarlyPings = 2;

// gRPC's own service, reflection, holds a thread for every open stream.
constexpr int kMaxServiceThreads = 16;

// Of bounds that the I/O threads share, each has so many at least. Calls that
// come together are one thread's, and it takes 64 of each method before it
// learns that the first one's message is there, or its error sent; of errors
// one peer has half.
constexpr size_t kLeastOfAThread = 256;

// What calls of health hold, beside Admission::kSmallCallRoom: as much as all
// streams that there may be.
constexpr size_t kHealthBytes =
    HealthService::kMaxWatches *
    (kCallBytes + 2 * HealthService::kMaxMessageBytes);

// How often, while calls end, to look whether they have.
constexpr absl::Duration kLookForEnd = absl::Milliseconds(1);
// What is on its way to a client when its call is cancelled has so long.
constexpr absl::Duration kCancelledGoWithin = absl::Seconds(1);

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

Nanos Timeout(absl::Duration duration) {
  return duration == absl::InfiniteDuration()
             ? kNoDeadline
             : absl::ToInt64Nanoseconds(duration);
}

// A reader may leave what gRPC has written to the socket unread too, and only
// the kernel can tell: it ends a connection whose other side has taken nothing
// for so long.
void BoundUnacknowledged(int fd, absl::Duration timeout) {
  if (timeout == absl::InfiniteDuration()) return;
  // 0 would be the kernel's own, of many minutes.
  const auto milliseconds = static_cast<unsigned>(std::clamp<int64_t>(
      absl::ToInt64Milliseconds(timeout), 1, std::numeric_limits<int>::max()));
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds,
             sizeof(milliseconds));
}

// A client has as long to take what gRPC has written as for a reply.
LingeringSockets::Bounds LingerBounds(const TransportOptions& options) {
  LingeringSockets::Bounds bounds;
  bounds.limit = std::min(options.send_timeout, bounds.limit);
  return bounds;
}

size_t ShareOf(size_t all, int threads) {
  return std::max(all / static_cast<size_t>(threads),
                  std::min(all, kLeastOfAThread));
}

CallPolicy MakePolicy(const TransportOptions& options, int threads) {
  CallPolicy policy;
  policy.now = options.now;
  policy.admission = options.admission;
  policy.max_message_bytes = static_cast<size_t>(options.max_message_bytes);
  policy.receive_timeout = Timeout(options.receive_timeout);
  policy.send_timeout = Timeout(options.send_timeout);
  policy.max_receiving = ShareOf(options.max_receiving, threads);
  policy.max_refusals = ShareOf(options.max_refusals, threads);
  policy.max_header_bytes = static_cast<size_t>(options.max_header_bytes);
  // A call's end is known here later than to its client, who may have begun
  // another by then.
  policy.max_connection_calls = 2 * static_cast<size_t>(options.max_streams);
  return policy;
}

void SetBounds(const TransportOptions& options, grpc::ServerBuilder* builder) {
  // A message's size is ours to judge: gRPC looks at it when it has read it.
  builder->SetMaxReceiveMessageSize(-1);
  builder->SetMaxSendMessageSize(-1);
  // So is decompression. Replies are not compressed.
  builder->AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  builder->AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0);
  // A deadline ends what waits for something of ours, and an upload has a time
  // of its own: gRPC would set a timer for each call besides.
  builder->AddChannelArgument(GRPC_ARG_ENABLE_DEADLINE_CHECKS, 0);
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                              Milliseconds(options.handshake_timeout));
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE,
                              options.max_header_bytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                              options.max_streams);
  // The window stays what it is: gRPC would make it larger where it sees a fast
  // network, up to 16 MiB for each stream.
  builder->AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES,
                              kStreamWindow);
  builder->AddChannelArgument(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kReadBytes);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS,
                              Milliseconds(options.ask_after));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                              Milliseconds(options.answer_within));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder->AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
      Milliseconds(options.min_ping_interval));
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, kEarlyPings);
  grpc::ResourceQuota quota("weir");
  quota.Resize(options.memory_bytes);
  quota.SetMaxThreads(kMaxServiceThreads);
  builder->SetResourceQuota(quota);
}

void SetArguments(const TransportOptions& options,
                  grpc::ServerBuilder* builder) {
  SetBounds(options, builder);
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  if (options.max_connection_age.has_value()) {
    builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                                Milliseconds(*options.max_connection_age));
  }
  // Only reflection is synchronous; it needs no more threads.
  builder->SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder->SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder->SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 1);
}

// Reflection is a plugin, there for every server once its object is linked.
class NoPlugins final : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>*
                         plugins) override {
    plugins->clear();
  }
};

std::unique_ptr<ExternalConnectionAcceptor> AddAcceptor(
    grpc::ServerBuilder* builder,
    std::shared_ptr<grpc::ServerCredentials> credentials) {
  return builder->experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      std::move(credentials));
}

}  // namespace

Transport::Transport(CallPolicy policy)
    : policy_([&] {
        policy.guard = &guard_;
        return policy;
      }()),
      health_admission_(/*max_requests=*/0, kHealthBytes),
      guard_(kHeaderBlockFactor * policy.max_header_bytes) {}

absl::StatusOr<std::unique_ptr<Transport>> Transport::Start(
    TransportOptions options, const MethodTable& table) {
  const int threads = options.io_threads > 0 ? options.io_threads
                                             : DefaultIoThreads(CpuQuota());
  std::unique_ptr<Transport> transport(
      new Transport(MakePolicy(options, threads)));
  WEIR_ASSIGN_OR_RETURN(
      transport->listener_,
      Listener::Open(options.addresses, options.max_connections,
                     LingerBounds(options)));
  transport->services_ = RawService::FromTable(table);
  MethodTable health;
  health.set_bounds({.admission = &transport->health_admission_,
                     .max_message_bytes = HealthService::kMaxMessageBytes});
  transport->health_.Register(&health);
  for (auto& service : RawService::FromTable(health)) {
    transport->services_.push_back(std::move(service));
  }

  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  if (!options.reflection) builder.SetOption(std::make_unique<NoPlugins>());
  SetArguments(options, &builder);
  for (const auto& service : transport->services_) {
    builder.RegisterService(service.get());
  }
  transport->services_.push_back(RawService::Unknown(table));
  builder.RegisterAsyncGenericService(&transport->rest_);
  transport->credentials_ = options.credentials != nullptr
                                ? options.credentials
                                : grpc::InsecureServerCredentials();
  transport->acceptor_ = AddAcceptor(&builder, transport->credentials_);
  transport->unix_acceptor_ =
      AddAcceptor(&builder, grpc::InsecureServerCredentials());
  for (int i = 0; i < threads; ++i) {
    transport->threads_.push_back(
        std::make_unique<IoThread>(builder.AddCompletionQueue(),
                                   &transport->policy_, &transport->counts_));
  }
  transport->server_ = builder.BuildAndStart();
  if (transport->server_ == nullptr) {
    return absl::InternalError("gRPC refused to start the server");
  }
  transport->SetServing("", false);
  transport->SetServing("live", false);
  for (const auto& thread : transport->threads_) {
    thread->Start(transport->server_->c_server(), transport->services_);
  }
  transport->listener_->Start(
      [tcp = transport->acceptor_.get(),
       local = transport->unix_acceptor_.get(), guard = &transport->guard_,
       tls = options.credentials != nullptr,
       timeout = options.send_timeout](const Listener::Accepted& accepted) {
        if (!accepted.is_unix) BoundUnacknowledged(accepted.fd, timeout);
        if (tls && !accepted.is_unix) {
          guard->WatchTls(accepted.fd);
        } else {
          guard->WatchPlain(accepted.fd);
        }
        ExternalConnectionAcceptor::NewConnectionParameters connection;
        connection.listener_fd = accepted.listening_fd;
        connection.fd = accepted.fd;
        (accepted.is_unix ? local : tcp)->HandleNewConnection(&connection);
      });
  return transport;
}

Transport::~Transport() {
  Shutdown(absl::ZeroDuration());
  for (const auto& thread : threads_) {
    thread->AwaitEnd(absl::InfiniteDuration());
  }
}

const std::vector<std::string>& Transport::addresses() const {
  return listener_->addresses();
}

void Transport::SetServing(const std::string& service, bool serving) {
  health_.SetServing(service, serving);
}

void Transport::CloseListeners() {
  listener_->Close();
  health_.Stop();
}

void Transport::EndCalls(absl::Duration grace, const CutFn& cut) {
  const absl::Duration limit = SteadyNow() + grace;
  const auto grpc_limit =
      std::chrono::system_clock::now() + absl::ToChronoMilliseconds(grace);
  std::atomic<bool> ended = false;
  Thread waits("weir-drain", [&] {
    server_->Shutdown(grpc_limit);
    ended = true;
  });
  absl::Duration cancelled = absl::InfiniteDuration();
  while (!ended) {
    const bool is_cut = cut != nullptr && cut();
    if (cut == nullptr) absl::SleepFor(kLookForEnd);
    // More than once: a connection may have ended its handshake in between.
    if (is_cut) grpc_server_cancel_all_calls(server_->c_server());
    if (is_cut || SteadyNow() >= limit) {
      cancelled = std::min(cancelled, SteadyNow());
    }
    // gRPC ends no connection to whose socket it writes.
    if (SteadyNow() - cancelled >= kCancelledGoWithin) guard_.EndUnread();
  }
  waits.Join();
}

bool Transport::Shutdown(absl::Duration grace, absl::Duration patience,
                         const CutFn& cut) {
  if (server_ == nullptr || std::exchange(shut_down_, true)) return true;
  CloseListeners();
  for (const auto& thread : threads_) thread->EndRequests();
  EndCalls(grace, cut);
  for (const auto& thread : threads_) thread->BeginStop(patience);
  const absl::Duration limit = SteadyNow() + patience + kHangPatience;
  bool ended = true;
  for (const auto& thread : threads_) {
    ended &= thread->AwaitEnd(
        patience == absl::InfiniteDuration()
            ? patience
            : std::max(limit - SteadyNow(), absl::ZeroDuration()));
  }
  return ended;
}

int Transport::Pulse() {
  int missed = 0;
  for (const auto& thread : threads_) {
    missed = std::max(missed, thread->Pulse());
  }
  return missed;
}

size_t Transport::open_connections() const {
  return listener_->open_connections();
}

int64_t Transport::taken_calls() const {
  int64_t calls = 0;
  for (const auto& thread : threads_) calls += thread->taken_calls();
  return calls;
}

int64_t Transport::open_calls() const {
  int64_t calls = 0;
  for (const auto& thread : threads_) calls += thread->open_calls();
  return calls;
}

size_t Transport::receiving() const {
  size_t calls = 0;
  for (const auto& thread : threads_) calls += thread->receiving();
  return calls;
}

size_t Transport::sending() const {
  size_t calls = 0;
  for (const auto& thread : threads_) calls += thread->sending();
  return calls;
}

}  // namespace weir
