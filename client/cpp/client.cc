#include "client/cpp/client.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <map>
#include <utility>

#include "client/cpp/call_failure.h"
#include "client/cpp/channel.h"
#include "client/cpp/status_details.h"
#include "proto/inference/grpc_service.grpc.pb.h"
#include "proto/weir/v1/admin.grpc.pb.h"
#include "proto/weir/v1/catalog.grpc.pb.h"
#include "proto/weir/v1/evaluator.grpc.pb.h"
#include "proto/weir/v1/spaces.grpc.pb.h"

namespace weir::client {
namespace {

// Of a call: none, or one.
using Metadata = std::map<std::string, std::string>;

Metadata Bearer(const std::string& token) {
  if (token.empty()) return {};
  return {{"authorization", "Bearer " + token}};
}

Metadata InSpace(const std::string& token) {
  return {{"weir-space-bin", token}};
}

}  // namespace

struct Client::Impl {
  explicit Impl(ClientOptions o)
      : options(std::move(o)),
        channel(MakeChannel(options)),
        admin(v1::Admin::NewStub(channel)),
        evaluator(v1::Evaluator::NewStub(channel)),
        catalog(v1::Catalog::NewStub(channel)),
        spaces(v1::Spaces::NewStub(channel)),
        kserve(inference::GRPCInferenceService::NewStub(channel)) {}

  static std::shared_ptr<grpc::Channel> MakeChannel(
      const ClientOptions& options) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(options.max_message_bytes);
    arguments.SetMaxSendMessageSize(options.max_message_bytes);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL,
                     options.own_connection ? 1 : 0);
    return client::MakeChannel(options.address, options.tls, arguments);
  }

  // One call of `method` of `stub`, with the metadata and the deadline.
  template <typename Response, typename Stub, typename Method, typename Request>
  absl::StatusOr<Response> Call(Stub& stub, Method method,
                                const Request& request,
                                const Metadata& metadata = {},
                                absl::Duration patience = {}) {
    const absl::Duration timeout = options.timeout + patience;
    grpc::ClientContext context;
    for (const auto& [name, value] : metadata) context.AddMetadata(name, value);
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    Response response;
    const grpc::Status status = (stub.*method)(&context, request, &response);
    if (!status.ok()) return Failure(status, timeout);
    return response;
  }

  // A list, all its pages in one; in smaller ones where the server may not send
  // them.
  template <typename Request, typename Response, typename Stub, typename Method>
  absl::StatusOr<Response> CallForPages(Stub& stub, Method method) {
    Request request;
    Response pages;
    while (true) {
      absl::StatusOr<Response> page = Call<Response>(stub, method, request);
      if (DetailsOf(page.status()).reason == "REPLY_TOO_LARGE" &&
          request.page_size() != 1) {
        request.set_page_size(
            request.page_size() == 0 ? 256 : request.page_size() / 2);
        continue;
      }
      if (!page.ok()) return page.status();
      const std::string next = page->next_page_token();
      pages.MergeFrom(*page);
      pages.clear_next_page_token();
      if (next.empty()) return pages;
      if (next == request.page_token()) {
        return absl::InternalError(
            "the server gives the same page token twice");
      }
      request.set_page_token(next);
    }
  }

  absl::Status Failure(const grpc::Status& status,
                       absl::Duration timeout) const {
    const bool connected =
        channel->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY;
    return CallFailure(status, {.address = options.address,
                                .timeout = timeout,
                                .connected = connected,
                                .tls = options.tls});
  }

  const ClientOptions options;
  const std::shared_ptr<grpc::Channel> channel;
  const std::unique_ptr<v1::Admin::Stub> admin;
  const std::unique_ptr<v1::Evaluator::Stub> evaluator;
  const std::unique_ptr<v1::Catalog::Stub> catalog;
  const std::unique_ptr<v1::Spaces::Stub> spaces;
  const std::unique_ptr<inference::GRPCInferenceService::Stub> kserve;
};

Client::Client(ClientOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
Client::~Client() = default;

absl::StatusOr<v1::EvaluateResponse> Client::Evaluate(
    const v1::EvaluateRequest& request) {
  return impl_->Call<v1::EvaluateResponse>(
      *impl_->evaluator, &v1::Evaluator::Stub::Evaluate, request);
}

absl::StatusOr<v1::GetServerInfoResponse> Client::GetServerInfo() {
  return impl_->Call<v1::GetServerInfoResponse>(
      *impl_->catalog, &v1::Catalog::Stub::GetServerInfo,
      v1::GetServerInfoRequest());
}

absl::StatusOr<v1::ListDevicesResponse> Client::ListDevices() {
  return impl_->CallForPages<v1::ListDevicesRequest, v1::ListDevicesResponse>(
      *impl_->catalog, &v1::Catalog::Stub::ListDevices);
}

absl::StatusOr<v1::ListOperatorsResponse> Client::ListOperators() {
  return impl_
      ->CallForPages<v1::ListOperatorsRequest, v1::ListOperatorsResponse>(
          *impl_->catalog, &v1::Catalog::Stub::ListOperators);
}

absl::StatusOr<v1::OperatorDescription> Client::DescribeOperator(
    const std::string& domain, const std::string& name) {
  v1::DescribeOperatorRequest request;
  request.set_domain(domain);
  request.set_name(name);
  auto response = impl_->Call<v1::DescribeOperatorResponse>(
      *impl_->catalog, &v1::Catalog::Stub::DescribeOperator, request);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_operator_description());
}

absl::StatusOr<v1::ListModelsResponse> Client::ListModels() {
  return impl_->CallForPages<v1::ListModelsRequest, v1::ListModelsResponse>(
      *impl_->catalog, &v1::Catalog::Stub::ListModels);
}

absl::StatusOr<v1::OpenSpaceResponse> Client::OpenSpace(
    const v1::OpenSpaceRequest& request) {
  return impl_->Call<v1::OpenSpaceResponse>(*impl_->spaces,
                                            &v1::Spaces::Stub::Open, request);
}

absl::StatusOr<v1::Space> Client::GetSpace(const std::string& token) {
  auto response =
      impl_->Call<v1::GetSpaceResponse>(*impl_->spaces, &v1::Spaces::Stub::Get,
                                        v1::GetSpaceRequest(), InSpace(token));
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_space());
}

absl::StatusOr<v1::ListSpacesResponse> Client::ListSpaces() {
  return impl_->CallForPages<v1::ListSpacesRequest, v1::ListSpacesResponse>(
      *impl_->spaces, &v1::Spaces::Stub::List);
}

absl::StatusOr<v1::CloseSpaceResponse> Client::CloseSpace(
    const std::string& token) {
  return impl_->Call<v1::CloseSpaceResponse>(
      *impl_->spaces, &v1::Spaces::Stub::Close, v1::CloseSpaceRequest(),
      InSpace(token));
}

absl::StatusOr<v1::RunResponse> Client::Run(const std::string& token,
                                            const v1::RunRequest& request,
                                            absl::Duration patience) {
  return impl_->Call<v1::RunResponse>(*impl_->evaluator,
                                      &v1::Evaluator::Stub::Run, request,
                                      InSpace(token), patience);
}

absl::StatusOr<inference::ModelMetadataResponse> Client::ModelMetadata(
    const std::string& model, const std::string& version) {
  inference::ModelMetadataRequest request;
  request.set_name(model);
  request.set_version(version);
  return impl_->Call<inference::ModelMetadataResponse>(
      *impl_->kserve, &inference::GRPCInferenceService::Stub::ModelMetadata,
      request);
}

absl::StatusOr<inference::ModelInferResponse> Client::ModelInfer(
    const inference::ModelInferRequest& request) {
  return impl_->Call<inference::ModelInferResponse>(
      *impl_->kserve, &inference::GRPCInferenceService::Stub::ModelInfer,
      request);
}

absl::StatusOr<v1::DrainResponse> Client::Drain(const std::string& token) {
  return impl_->Call<v1::DrainResponse>(*impl_->admin, &v1::Admin::Stub::Drain,
                                        v1::DrainRequest(), Bearer(token));
}

absl::StatusOr<v1::SetLogLevelResponse> Client::SetLogLevel(
    v1::LogLevel level, const std::string& token) {
  v1::SetLogLevelRequest request;
  request.set_level(level);
  return impl_->Call<v1::SetLogLevelResponse>(
      *impl_->admin, &v1::Admin::Stub::SetLogLevel, request, Bearer(token));
}

absl::StatusOr<bool> Client::IsServing(const std::string& service) {
  // grpc.health.v1.HealthCheckRequest{service = 1} and Response{status = 1}
  // with SERVING = 1, written by hand: gRPC's package ships no message for
  // them.
  std::string request;
  if (!service.empty()) {
    request += '\x0a';
    size_t size = service.size();
    for (; size >= 0x80; size >>= 7) {
      request += static_cast<char>((size & 0x7f) | 0x80);
    }
    request += static_cast<char>(size);
    request += service;
  }
  grpc::GenericStub stub(impl_->channel);
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  context.set_deadline(
      absl::ToChronoTime(absl::Now() + impl_->options.timeout));
  const grpc::Slice slice(request);
  auto reader = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check",
                                      grpc::ByteBuffer(&slice, 1), &queue);
  reader->StartCall();
  grpc::ByteBuffer reply;
  grpc::Status status;
  reader->Finish(&reply, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  if (!status.ok()) return impl_->Failure(status, impl_->options.timeout);
  grpc::Slice bytes;
  if (!reply.DumpToSingleSlice(&bytes).ok() || bytes.size() < 2) return false;
  return bytes.begin()[0] == 0x08 && bytes.begin()[1] == 1;
}

}  // namespace weir::client
