// A small C++ client of weir: one object per server address, calls that wait.
// Thread-safe; calls of several threads share the connection. For programs that
// want everything gRPC offers, the generated stubs are as good.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/tls.h"
#include "proto/inference/grpc_service.pb.h"
#include "proto/weir/v1/admin.pb.h"
#include "proto/weir/v1/catalog.pb.h"
#include "proto/weir/v1/evaluator.pb.h"
#include "proto/weir/v1/spaces.pb.h"

namespace weir::client {

struct ClientOptions {
  std::string address = "127.0.0.1:8001";      // HOST:PORT or unix:PATH
  absl::Duration timeout = absl::Seconds(30);  // of each call
  int max_message_bytes = -1;                  // -1: no limit of the client's
  TlsOptions tls = {};                         // without a CA: plain
  // By default, clients of one process and address share a connection.
  bool own_connection = false;
};

// Errors are the server's code and message; reason, fields, retry hint and the
// report of the failed work are read out of them with DetailsOf
// (client/cpp/status_details.h). UNAVAILABLE also when nobody listens at the
// address or TLS fails, DEADLINE_EXCEEDED when nobody answers in time; the
// message then says what to do.
class Client {
 public:
  explicit Client(ClientOptions options = {});
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // weir.v1. A list is whole: all its pages.
  absl::StatusOr<v1::EvaluateResponse> Evaluate(
      const v1::EvaluateRequest& request);
  absl::StatusOr<v1::GetServerInfoResponse> GetServerInfo();
  absl::StatusOr<v1::ListDevicesResponse> ListDevices();
  absl::StatusOr<v1::ListOperatorsResponse> ListOperators();
  absl::StatusOr<v1::OperatorDescription> DescribeOperator(
      const std::string& domain, const std::string& name);
  absl::StatusOr<v1::ListModelsResponse> ListModels();

  // weir.v1.Spaces; `token` is what Open gave. A list is whole.
  absl::StatusOr<v1::OpenSpaceResponse> OpenSpace(
      const v1::OpenSpaceRequest& request);
  absl::StatusOr<v1::Space> GetSpace(const std::string& token);
  absl::StatusOr<v1::ListSpacesResponse> ListSpaces();
  absl::StatusOr<v1::CloseSpaceResponse> CloseSpace(const std::string& token);
  // Commands in that space; one that waits may take `patience` beside the time
  // of any call. client/cpp/space.h has objects for what they make.
  absl::StatusOr<v1::RunResponse> Run(
      const std::string& token, const v1::RunRequest& request,
      absl::Duration patience = absl::ZeroDuration());

  // KServe v2
  absl::StatusOr<inference::ModelMetadataResponse> ModelMetadata(
      const std::string& model, const std::string& version = "");
  absl::StatusOr<inference::ModelInferResponse> ModelInfer(
      const inference::ModelInferRequest& request);

  // weir.v1.Admin; `token` is that of the server's --admin-token-file, or empty
  // over a unix socket.
  absl::StatusOr<v1::DrainResponse> Drain(const std::string& token = "");
  absl::StatusOr<v1::SetLogLevelResponse> SetLogLevel(
      v1::LogLevel level, const std::string& token = "");

  // grpc.health.v1: "" is the server, "live", "model/NAME".
  absl::StatusOr<bool> IsServing(const std::string& service = "");

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weir::client
