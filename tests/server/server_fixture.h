// A real server in this process: on free ports of the loopback interface and a
// unix socket, on the CPU, with two lanes and the test operators, and stubs
// connected to it. Each test makes its own.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "proto/inference/grpc_service.grpc.pb.h"
#include "proto/weir/v1/admin.grpc.pb.h"
#include "proto/weir/v1/catalog.grpc.pb.h"
#include "proto/weir/v1/evaluator.grpc.pb.h"
#include "server/options.h"
#include "server/server.h"
#include "tests/base/eventually.h"
#include "tests/models/temp_folder.h"
#include "tests/observe/stream_sink.h"

namespace weir::testing {

// The device under test: "cpu", or what WEIR_TEST_DEVICE names.
std::string TestDevice();

ServerOptions TestOptions();

// When a server is there for the test.
enum class Models { kLoaded, kLoading };

class TestServer {
 public:
  explicit TestServer(
      const std::function<void(ServerOptions&)>& change = nullptr,
      std::ostream& log = std::cerr, Models models = Models::kLoaded);
  ~TestServer();
  TestServer(const TestServer&) = delete;
  TestServer& operator=(const TestServer&) = delete;

  Server& server() { return *server_; }
  const std::string& address() const { return address_; }
  // Where the operator calls: "unix:PATH".
  const std::string& admin_address() const { return admin_address_; }
  // A connection of its own, to address() or another.
  std::shared_ptr<grpc::Channel> Connect() const { return Connect(address_); }
  std::shared_ptr<grpc::Channel> Connect(const std::string& address) const;

  v1::Admin::Stub& admin() { return *admin_; }
  v1::Evaluator::Stub& evaluator() { return *evaluator_; }
  v1::Catalog::Stub& catalog() { return *catalog_; }
  inference::GRPCInferenceService::Stub& kserve() { return *kserve_; }

  // Body of a GET on the HTTP port; `code` gets the status, -1 for no answer.
  std::string HttpGet(const std::string& path, int* code = nullptr) const;
  // The value of a series of /metrics, by its whole name with labels. One that
  // is not there ends the test program: nothing is known of it, not even that
  // it is 0.
  double Metric(const std::string& series) const;
  // weir_requests_total of an RPC and a code, and weir_requests_refused_total
  // of an RPC and a reason.
  double Requests(const std::string& method, const std::string& code) const;
  double Refused(const std::string& method, const std::string& reason) const;
  // The same of the default device; `labels` are those beside `device`.
  double DeviceMetric(const std::string& name,
                      const std::string& labels = "") const;
  // Times that a lane of the default device was handed out.
  double Leases() const;

  // A call is counted and logged when its answer was sent, and so after its
  // client has that. Waits until that is so of every call; false if it is not.
  bool Settles() const;

  // Any message's bytes to any unary method.
  grpc::Status CallRaw(const std::string& method, const std::string& request);

 private:
  TempFolder folder_;
  StreamSink log_;
  std::unique_ptr<Server> server_;
  std::string address_;
  std::string admin_address_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Admin::Stub> admin_;
  std::unique_ptr<v1::Evaluator::Stub> evaluator_;
  std::unique_ptr<v1::Catalog::Stub> catalog_;
  std::unique_ptr<inference::GRPCInferenceService::Stub> kserve_;
};

// The same on any connection.
grpc::Status CallRaw(const std::shared_ptr<grpc::Channel>& channel,
                     const std::string& method, const std::string& request);

// A deadline that a passing test never reaches.
void SetPatience(grpc::ClientContext* context);

template <typename Response>
struct Answer {
  grpc::Status status;
  Response response;
};
using EvaluateAnswer = Answer<v1::EvaluateResponse>;
using InferAnswer = Answer<inference::ModelInferResponse>;

EvaluateAnswer Evaluate(TestServer& server, const v1::EvaluateRequest& request);
InferAnswer Infer(TestServer& server,
                  const inference::ModelInferRequest& request);

// A call that runs meanwhile.
class PendingEvaluate {
 public:
  PendingEvaluate(TestServer& server, v1::EvaluateRequest request,
                  std::chrono::nanoseconds timeout = kPatience);
  ~PendingEvaluate();
  PendingEvaluate(const PendingEvaluate&) = delete;
  PendingEvaluate& operator=(const PendingEvaluate&) = delete;
  void Cancel() { context_.TryCancel(); }
  const EvaluateAnswer& Wait();

 private:
  grpc::ClientContext context_;
  v1::EvaluateRequest request_;
  EvaluateAnswer answer_;
  std::thread thread_;
};

// Requests.

// A weir.v1.GraphDefinition in text format.
v1::EvaluateRequest Program(const std::string& text);
void AddInput(v1::EvaluateRequest* request, const std::string& name,
              v1::DataType dtype, const std::vector<int64_t>& shape,
              const std::string& bytes);
void AddInput(inference::ModelInferRequest* request, const std::string& name,
              const std::string& datatype, const std::vector<int64_t>& shape,
              const std::string& bytes);
// y = x, for x float [4].
v1::EvaluateRequest IdentityRequest();
// y = x after a lane was held for so long.
v1::EvaluateRequest SpinRequest(std::chrono::microseconds duration);

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()),
                     values.size() * sizeof(T));
}

template <typename T>
std::vector<T> Values(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  // Where there is nothing there is no place to copy to.
  if (!values.empty()) {
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  }
  return values;
}

// KServe's form of BYTES: a length before each.
std::string BytesElements(const std::vector<std::string>& elements);

// Whether a call failed with `code` and `part` in its message.
::testing::AssertionResult Refused(const grpc::Status& status,
                                   grpc::StatusCode code,
                                   const std::string& part);

// Whether the server still answers rightly.
::testing::AssertionResult ServesOn(TestServer& server);

// `status` as a client of ours reads it, for Reason, Field, Metadata and
// RetryAfter (kernels/base/error_info.h).
absl::Status FromGrpcStatus(const grpc::Status& status);

// The report among the details of a failed call.
std::optional<v1::SyncReport> ReportOf(const grpc::Status& status);

// tests/NAME.
std::string TestData(const std::string& name);
std::string ReadTestFile(const std::string& path);

}  // namespace weir::testing
