#include "tests/client/cpp/paced_server.h"

#include <grpcpp/alarm.h>
#include <grpcpp/generic/async_generic_service.h>

#include <algorithm>
#include <atomic>
#include <utility>

namespace weir::testing {

class PacedServer::Call final : public grpc::ServerGenericBidiReactor {
 public:
  Call(PacedServer* server, grpc::GenericCallbackServerContext* context)
      : server_(server), context_(context) {
    StartRead(&message_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Finish(grpc::Status(grpc::StatusCode::CANCELLED, "no message"));
      return;
    }
    const auto now = Clock::now();
    const auto timeout =
        context_->deadline() - std::chrono::system_clock::now();
    Answer answer;
    {
      MutexLock lock(&server_->mu_);
      const auto number = static_cast<int64_t>(server_->arrivals_.size());
      server_->arrivals_.push_back({now, context_->peer(), timeout});
      server_->most_ = std::max(server_->most_, ++server_->open_);
      answer = server_->answer_(number, now);
    }
    if (!answer.at.has_value()) return;
    status_ = answer.status;
    alarm_.Set(std::chrono::system_clock::now() + (*answer.at - now),
               [this](bool) { Reply(); });
  }

  // gRPC asks for it of every call; one that waits for nothing else ends here.
  void OnCancel() override {
    alarm_.Cancel();
    if (!replied_.exchange(true)) Leave(grpc::Status::CANCELLED);
  }

  void OnDone() override { delete this; }

 private:
  void Reply() {
    if (replied_.exchange(true)) return;
    if (status_.ok()) {
      Count();
      StartWriteAndFinish(&message_, grpc::WriteOptions(), status_);
    } else {
      Leave(status_);
    }
  }
  void Leave(const grpc::Status& status) {
    Count();
    Finish(status);
  }
  void Count() {
    MutexLock lock(&server_->mu_);
    --server_->open_;
  }

  PacedServer* const server_;
  grpc::GenericCallbackServerContext* const context_;
  grpc::ByteBuffer message_;
  grpc::Status status_;
  grpc::Alarm alarm_;
  std::atomic<bool> replied_{false};
};

class PacedServer::Service final : public grpc::CallbackGenericService {
 public:
  explicit Service(PacedServer* server) : server_(server) {}
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    return new Call(server_, context);
  }

 private:
  PacedServer* const server_;
};

PacedServer::PacedServer(
    std::function<Answer(int64_t, Clock::time_point)> answer)
    : answer_(std::move(answer)), service_(std::make_unique<Service>(this)) {
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(-1);
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  builder.RegisterCallbackGenericService(service_.get());
  server_ = builder.BuildAndStart();
  address_ = "127.0.0.1:" + std::to_string(port);
}

PacedServer::~PacedServer() {
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

std::vector<PacedServer::Arrival> PacedServer::arrivals() const {
  MutexLock lock(&mu_);
  return arrivals_;
}

int64_t PacedServer::most_at_once() const {
  MutexLock lock(&mu_);
  return most_;
}

}  // namespace weir::testing
