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
using AsyncService = GRPCInferenceService::WithRawMethod_ModelInfer<
    GRPCInferenceService::Service>;

class AsyncCall {
 public:
  AsyncCall(AsyncService* service, grpc::ServerCompletionQueue* queue)
      : service_(service), queue_(queue), writer_(&context_) {
    service_->RequestModelInfer(&context_, &message_, &writer_, queue_, queue_,
                                this);
  }

  void Proceed(bool ok) {
    if (finishing_ || !ok) {
      delete this;
      return;
    }
    new AsyncCall(service_, queue_);
    finishing_ = true;
    writer_.Finish(message_, grpc::Status::OK, this);
  }

 private:
  AsyncService* const service_;
  grpc::ServerCompletionQueue* const queue_;
  grpc::ServerContext context_;
  grpc::ByteBuffer message_;
  grpc::ServerAsyncResponseWriter<grpc::ByteBuffer> writer_;
  bool finishing_ = false;
};

class AsyncServer final : public RawEchoServer {
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
        for (int i = 0; i < kRequestsPerQueue; ++i) {
          new AsyncCall(&service_, queue);
        }
        void* tag = nullptr;
        bool ok = false;
        while (queue->Next(&tag, &ok)) {
          static_cast<AsyncCall*>(tag)->Proceed(ok);
        }
      });
    }
  }

  ~AsyncServer() override {
    server_->Shutdown(std::chrono::system_clock::now());
    for (const auto& queue : queues_) queue->Shutdown();
    for (std::thread& thread : threads_) thread.join();
  }

  std::string address() const override {
    return absl::StrCat("127.0.0.1:", port_);
  }

 private:
  int port_ = 0;
  AsyncService service_;
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

class CallbackServer final : public RawEchoServer {
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

std::unique_ptr<RawEchoServer> RawEchoServer::Start(RawEchoKind kind,
                                                    int threads) {
  if (kind == RawEchoKind::kCallback) return std::make_unique<CallbackServer>();
  return std::make_unique<AsyncServer>(threads);
}

}  // namespace weir
