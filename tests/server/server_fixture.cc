#include "tests/server/server_fixture.h"

#include <google/protobuf/text_format.h>
#include <grpcpp/generic/generic_stub.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/status_details.h"
#include "kernels/base/error_info.h"
#include "kernels/base/thread_role.h"
#include "tests/rpc/connect.h"
#include "tests/server/raw_socket.h"

namespace weir::testing {
namespace {

// Of the test program: whoever waits for a value would do so for long.
[[noreturn]] void End(const std::string& why) {
  std::cerr << why << std::endl;
  std::abort();
}

}  // namespace

std::string TestDevice() {
  const char* device = std::getenv("WEIR_TEST_DEVICE");
  return device == nullptr ? "cpu" : device;
}

ServerOptions TestOptions() {
  ServerOptions options;
  options.grpc = {"127.0.0.1:0"};
  options.http = "127.0.0.1:0";
  options.devices = {TestDevice()};
  options.streams = 2;
  options.io_threads = 2;
  options.cpu_threads = 2;
  options.drain_delay = absl::ZeroDuration();
  options.log_level = LogLevel::kError;
  options.enable_test_operators = true;
  return options;
}

TestServer::TestServer(const std::function<void(ServerOptions&)>& change,
                       std::ostream& log, Models models)
    : log_(log) {
  ServerOptions options = TestOptions();
  if (change) change(options);
  options.grpc.push_back("unix:" + (folder_.path() / "socket").string());
  auto server = models == Models::kLoaded ? Server::Start(options, &log_)
                                          : Server::Open(options, &log_);
  if (!server.ok()) {
    ADD_FAILURE() << server.status();
    std::abort();  // a test without its server can only crash later
  }
  server_ = *std::move(server);
  address_ = server_->grpc_addresses()[0];
  admin_address_ = server_->grpc_addresses().back();
  channel_ = Connect();
  admin_ = v1::Admin::NewStub(Connect(admin_address_));
  evaluator_ = v1::Evaluator::NewStub(channel_);
  catalog_ = v1::Catalog::NewStub(channel_);
  kserve_ = inference::GRPCInferenceService::NewStub(channel_);
}

TestServer::~TestServer() {
  server_ = nullptr;
  const MisplacedWaits misplaced = CountMisplacedWaits();
  EXPECT_EQ(misplaced.count, 0u) << misplaced.first;
}

std::shared_ptr<grpc::Channel> TestServer::Connect(
    const std::string& address) const {
  return weir::testing::Connect(address);
}

std::string TestServer::HttpGet(const std::string& path, int* code) const {
  const std::string address = server_->http_address();
  const HttpReply reply =
      address.empty() ? HttpReply() : weir::testing::HttpGet(address, path);
  if (code != nullptr) *code = reply.status == 0 ? -1 : reply.status;
  return reply.body;
}

double TestServer::Metric(const std::string& series) const {
  int code = 0;
  std::istringstream lines(HttpGet("/metrics", &code));
  if (code != 200) {
    End(absl::StrCat("no metrics but the status ", code));
  }
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(series + " ", 0) == 0) {
      return std::strtod(line.c_str() + series.size(), nullptr);
    }
  }
  End(absl::StrCat("no series ", series));
}

double TestServer::Requests(const std::string& method,
                            const std::string& code) const {
  return Metric(absl::StrCat("weir_requests_total{method=\"", method,
                             "\",code=\"", code, "\"}"));
}

double TestServer::Refused(const std::string& method,
                           const std::string& reason) const {
  return Metric(absl::StrCat("weir_requests_refused_total{method=\"", method,
                             "\",reason=\"", reason, "\"}"));
}

double TestServer::DeviceMetric(const std::string& name,
                                const std::string& labels) const {
  return Metric(name + "{device=\"" + server_->device_names() + "\"" +
                (labels.empty() ? "" : ",") + labels + "}");
}

bool TestServer::Settles() const {
  return Eventually(
      [this] { return Metric("weir_request_bytes_in_flight") == 0; });
}

double TestServer::Leases() const {
  return DeviceMetric("weir_stream_pool_leases_total");
}

grpc::Status TestServer::CallRaw(const std::string& method,
                                 const std::string& request) {
  return testing::CallRaw(channel_, method, request);
}

grpc::Status CallRaw(const std::shared_ptr<grpc::Channel>& channel,
                     const std::string& method, const std::string& request) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  SetPatience(&context);
  grpc::CompletionQueue queue;
  const grpc::Slice slice(request);
  const auto call = stub.PrepareUnaryCall(&context, method,
                                          grpc::ByteBuffer(&slice, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer reply;
  grpc::Status status;
  call->Finish(&reply, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  return status;
}

void SetPatience(grpc::ClientContext* context) {
  context->set_deadline(std::chrono::system_clock::now() + kPatience);
}

EvaluateAnswer Evaluate(TestServer& server,
                        const v1::EvaluateRequest& request) {
  grpc::ClientContext context;
  SetPatience(&context);
  EvaluateAnswer answer;
  answer.status =
      server.evaluator().Evaluate(&context, request, &answer.response);
  return answer;
}

InferAnswer Infer(TestServer& server,
                  const inference::ModelInferRequest& request) {
  grpc::ClientContext context;
  SetPatience(&context);
  InferAnswer answer;
  answer.status =
      server.kserve().ModelInfer(&context, request, &answer.response);
  return answer;
}

PendingEvaluate::PendingEvaluate(TestServer& server,
                                 v1::EvaluateRequest request,
                                 std::chrono::nanoseconds timeout)
    : request_(std::move(request)) {
  context_.set_deadline(
      std::chrono::system_clock::now() +
      std::chrono::duration_cast<std::chrono::system_clock::duration>(timeout));
  thread_ = std::thread([this, &server] {
    answer_.status =
        server.evaluator().Evaluate(&context_, request_, &answer_.response);
  });
}

PendingEvaluate::~PendingEvaluate() { Wait(); }

const EvaluateAnswer& PendingEvaluate::Wait() {
  if (thread_.joinable()) thread_.join();
  return answer_;
}

v1::EvaluateRequest Program(const std::string& text) {
  v1::EvaluateRequest request;
  if (!google::protobuf::TextFormat::ParseFromString(
          text, request.mutable_graph()->mutable_definition())) {
    ADD_FAILURE() << "no graph: " << text;
  }
  return request;
}

void AddInput(v1::EvaluateRequest* request, const std::string& name,
              v1::DataType dtype, const std::vector<int64_t>& shape,
              const std::string& bytes) {
  v1::NamedTensor* input = request->add_inputs();
  input->set_name(name);
  v1::TensorSpec* spec = input->mutable_value()->mutable_spec();
  spec->set_dtype(dtype);
  for (int64_t extent : shape) spec->add_shape(extent);
  input->mutable_value()->set_raw(bytes);
}

void AddInput(inference::ModelInferRequest* request, const std::string& name,
              const std::string& datatype, const std::vector<int64_t>& shape,
              const std::string& bytes) {
  auto* input = request->add_inputs();
  input->set_name(name);
  input->set_datatype(datatype);
  for (int64_t extent : shape) input->add_shape(extent);
  request->add_raw_input_contents(bytes);
}

v1::EvaluateRequest IdentityRequest() {
  v1::EvaluateRequest request = Program(R"(
      inputs { name: "x" }
      nodes { op: "Identity" inputs: "x" outputs: "y" }
      outputs: "y")");
  AddInput(&request, "x", v1::DATA_TYPE_FLOAT, {4}, Bytes<float>({1, 2, 3, 4}));
  return request;
}

v1::EvaluateRequest SpinRequest(std::chrono::microseconds duration) {
  v1::EvaluateRequest request = Program(R"(
      inputs { name: "x" }
      nodes { name: "spin" domain: "weir" op: "Spin" inputs: "x" outputs: "y"
              attributes { name: "microseconds" i: )" +
                                        std::to_string(duration.count()) +
                                        R"( } }
      outputs: "y")");
  AddInput(&request, "x", v1::DATA_TYPE_FLOAT, {4}, Bytes<float>({1, 2, 3, 4}));
  request.set_mode(v1::EVAL_MODE_SYNC_FULL);
  return request;
}

std::string BytesElements(const std::vector<std::string>& elements) {
  std::string bytes;
  for (const std::string& element : elements) {
    bytes += Bytes<uint32_t>({static_cast<uint32_t>(element.size())});
    bytes += element;
  }
  return bytes;
}

::testing::AssertionResult Refused(const grpc::Status& status,
                                   grpc::StatusCode code,
                                   const std::string& part) {
  if (status.error_code() == code &&
      status.error_message().find(part) != std::string::npos) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure()
         << "code " << status.error_code() << ", '" << status.error_message()
         << "' instead of code " << code << " with '" << part << "'";
}

::testing::AssertionResult ServesOn(TestServer& server) {
  const EvaluateAnswer answer = Evaluate(server, IdentityRequest());
  if (!answer.status.ok()) {
    return ::testing::AssertionFailure() << answer.status.error_code() << " "
                                         << answer.status.error_message();
  }
  if (answer.response.outputs_size() != 1 ||
      answer.response.outputs(0).value().raw() != Bytes<float>({1, 2, 3, 4})) {
    return ::testing::AssertionFailure() << answer.response.ShortDebugString();
  }
  return ::testing::AssertionSuccess();
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  absl::Status result = client::ToStatus(status);
  const client::ErrorDetails details = client::DetailsOf(result);
  if (!details.reason.empty()) {
    result = WithReason(std::move(result), details.reason,
                        {details.metadata.begin(), details.metadata.end()});
  }
  if (details.retry_after.has_value()) {
    result = WithRetryAfter(std::move(result), *details.retry_after);
  }
  if (!details.field().empty()) {
    result = WithField(std::move(result), details.field());
  }
  return result;
}

std::optional<v1::SyncReport> ReportOf(const grpc::Status& status) {
  return client::DetailsOf(client::ToStatus(status)).report;
}

std::string TestData(const std::string& name) {
  const char* folder = std::getenv("WEIR_TEST_DATA");
  return std::string(folder == nullptr ? "tests" : folder) + "/" + name;
}

std::string ReadTestFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  EXPECT_TRUE(file.good() && !bytes.str().empty()) << path;
  return bytes.str();
}

}  // namespace weir::testing
