#include "server/rpc/transport.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "kernels/base/status_macros.h"
#include "kernels/device/cpu/host_limits.h"
#include "server/rpc/io_thread.h"
#include "server/rpc/listener.h"
#include "server/rpc/raw_service.h"

namespace weir {
namespace {

using grpc::experimental::ExternalConnectionAcceptor;

void SetArguments(const TransportOptions& options,
                  grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(options.max_message_bytes);
  builder->SetMaxSendMessageSize(options.max_message_bytes);
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  if (options.max_connection_age.has_value()) {
    builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                                static_cast<int>(absl::ToInt64Milliseconds(
                                    *options.max_connection_age)));
  }
  // Only reflection and refused streams are synchronous; they need no more
  // threads.
  builder->SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder->SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder->SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 1);
}

std::unique_ptr<ExternalConnectionAcceptor> AddAcceptor(
    grpc::ServerBuilder* builder,
    std::shared_ptr<grpc::ServerCredentials> credentials) {
  return builder->experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      std::move(credentials));
}

}  // namespace

Transport::Transport() = default;

absl::StatusOr<std::unique_ptr<Transport>> Transport::Start(
    TransportOptions options, const MethodTable& table) {
  std::unique_ptr<Transport> transport(new Transport);
  WEIR_ASSIGN_OR_RETURN(transport->listener_,
                        Listener::Open(options.addresses));
  transport->services_ = RawService::FromTable(table);

  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  SetArguments(options, &builder);
  for (const auto& service : transport->services_) {
    builder.RegisterService(service.get());
  }
  transport->credentials_ = options.credentials != nullptr
                                ? options.credentials
                                : grpc::InsecureServerCredentials();
  transport->acceptor_ = AddAcceptor(&builder, transport->credentials_);
  transport->unix_acceptor_ =
      AddAcceptor(&builder, grpc::InsecureServerCredentials());
  const int threads = options.io_threads > 0 ? options.io_threads : CpuQuota();
  for (int i = 0; i < threads; ++i) {
    transport->threads_.push_back(
        std::make_unique<IoThread>(builder.AddCompletionQueue()));
  }
  transport->server_ = builder.BuildAndStart();
  if (transport->server_ == nullptr) {
    return absl::InternalError("gRPC refused to start the server");
  }
  transport->SetServing("", false);
  transport->SetServing("live", false);
  for (const auto& thread : transport->threads_) {
    thread->Start(transport->services_);
  }
  transport->listener_->Start([tcp = transport->acceptor_.get(),
                               local = transport->unix_acceptor_.get()](
                                  const Listener::Accepted& accepted) {
    ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.listener_fd = accepted.listening_fd;
    connection.fd = accepted.fd;
    (accepted.is_unix ? local : tcp)->HandleNewConnection(&connection);
  });
  return transport;
}

Transport::~Transport() { Shutdown(absl::ZeroDuration()); }

const std::vector<std::string>& Transport::addresses() const {
  return listener_->addresses();
}

void Transport::SetServing(const std::string& service, bool serving) {
  server_->GetHealthCheckService()->SetServingStatus(service, serving);
}

void Transport::CloseListeners() { listener_->Close(); }

void Transport::Shutdown(absl::Duration grace, absl::Duration patience) {
  if (server_ == nullptr || std::exchange(shut_down_, true)) return;
  listener_->Close();
  server_->Shutdown(std::chrono::system_clock::now() +
                    absl::ToChronoMilliseconds(grace));
  for (const auto& thread : threads_) thread->Stop(patience);
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

}  // namespace weir
