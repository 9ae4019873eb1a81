#include "tests/bench/raw_echo_server.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/inference/grpc_service.grpc.pb.h"

namespace weir {
namespace {

constexpr int kRequestsPerQueue = 64;

void SetArguments(grpc::ServerBuilder* builder, int* port) {
  builder->SetMaxReceiveMessageSize(-1);
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder->AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                            port);
}

using inference::GRPCInferenceService;

// Each has the service, the messages and the answer of an AsyncCall.
struct Parsed {
  using Service = GRPCInferenceService::WithAsyncMethod_ModelInfer<
      GRPCInferenceService::Service>;
  using Request = inference::ModelInferRequest;
  using Reply = inference::ModelInferResponse;

  static const Reply& Answer(Request& request, Reply* reply) {
    reply->set_model_name(request.model_name());
    reply->set_id(request.id());
    for (const auto& input : request.inputs()) {
      auto* output = reply->add_outputs();
      output->set_name(input.name());
      output->set_datatype(input.datatype());
      *output->mutable_shape() = input.shape();
    }
    reply->mutable_raw_output_contents()->Swap(
        request.mutable_raw_input_contents());
    return *reply;
  }
};

struct Bytes {
  using Service = GRPCInferenceService::WithRawMethod_ModelInfer<
      GRPCInferenceService::Service>;
  using Request = grpc::ByteBuffer;
  using Reply = grpc::ByteBuffer;

  static const Reply& Answer(Request& request, Reply*) { return request; }
};

template <typename Kind>
class AsyncCall {
 public:
  // `calls` counts those that there are.
  AsyncCall(typename Kind::Service* service, grpc::ServerCompletionQueue* queue,
            int* calls)
      : service_(service), queue_(queue), calls_(calls), writer_(&context_) {
    ++*calls_;
    service_->RequestModelInfer(&context_, &request_, &writer_, queue_, queue_,
                                this);
  }

  ~AsyncCall() { --*calls_; }

  void Proceed(bool ok) {
    if (finishing_ || !ok) {
      delete this;
      return;
    }
    new AsyncCall(service_, queue_, calls_);
    finishing_ = true;
    writer_.Finish(Kind::Answer(request_, &reply_), grpc::Status::OK, this);
  }

 private:
  typename Kind::Service* const service_;
  grpc::ServerCompletionQueue* const queue_;
  int* const calls_;
  grpc::ServerContext context_;
  typename Kind::Request request_;
  typename Kind::Reply reply_;
  grpc::ServerAsyncResponseWriter<typename Kind::Reply> writer_;
  bool finishing_ = false;
};

template <typename Kind>
class AsyncServer final : public bench::LocalServer {
 public:
  explicit AsyncServer(int threads) {
    grpc::ServerBuilder builder;
    SetArguments(&builder, &port_);
    builder.RegisterService(&service_);
    for (int i = 0; i < threads; ++i) {
      queues_.push_back(builder.AddCompletionQueue());
    }
    server_ = builder.BuildAndStart();
    for (const auto& queue : queues_) {
      threads_.emplace_back([this, queue = queue.get()] {
        int calls = 0;
        while (calls < kRequestsPerQueue) {
          new AsyncCall<Kind>(&service_, queue, &calls);
        }
        void* tag = nullptr;
        bool ok = false;
        // Each asks for another until the server is shut down.
        while (calls > 0 && queue->Next(&tag, &ok)) {
          static_cast<AsyncCall<Kind>*>(tag)->Proceed(ok);
        }
      });
    }
  }

  ~AsyncServer() override {
    server_->Shutdown(std::chrono::system_clock::now());
    for (std::thread& thread : threads_) thread.join();
    for (const auto& queue : queues_) {
      queue->Shutdown();
      void* tag = nullptr;
      bool ok = false;
      while (queue->Next(&tag, &ok)) {
      }
    }
  }

  std::string address() const override {
    return absl::StrCat("127.0.0.1:", port_);
  }

 private:
  int port_ = 0;
  typename Kind::Service service_;
  std::vector<std::unique_ptr<grpc::ServerCompletionQueue>> queues_;
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::thread> threads_;
};

class CallbackService final
    : public GRPCInferenceService::WithRawCallbackMethod_ModelInfer<
          GRPCInferenceService::Service> {
  grpc::ServerUnaryReactor* ModelInfer(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* reply) override {
    *reply = *request;
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

class CallbackServer final : public bench::LocalServer {
 public:
  CallbackServer() {
    grpc::ServerBuilder builder;
    SetArguments(&builder, &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
  }

  ~CallbackServer() override {
    server_->Shutdown(std::chrono::system_clock::now());
  }

  std::string address() const override {
    return absl::StrCat("127.0.0.1:", port_);
  }

 private:
  int port_ = 0;
  CallbackService service_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

std::unique_ptr<bench::LocalServer> StartRawEcho(const std::string& name,
                                                 int threads) {
  if (name == kRawEcho) return std::make_unique<AsyncServer<Parsed>>(threads);
  if (name == kRawAsyncBytes) {
    return std::make_unique<AsyncServer<Bytes>>(threads);
  }
  if (name == kRawCallbackBytes) return std::make_unique<CallbackServer>();
  return nullptr;
}

}  // namespace weir
