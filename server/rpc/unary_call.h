// A unary call over gRPC's completion queues: the one implementation of
// ServerCall. Objects are reused by their I/O thread, so that a call costs no
// heap block of ours. Used by its I/O thread only, but for Resume.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/async_unary_call.h>
#include <grpcpp/support/byte_buffer.h>

#include <optional>
#include <string>
#include <string_view>

#include "server/rpc/io_thread.h"
#include "server/rpc/server_call.h"

namespace weir {

class UnaryCall final : public ServerCall {
 public:
  explicit UnaryCall(IoThread* io);
  ~UnaryCall() override = default;

  // Waits for a call of the service's method number `index`.
  void Request(RawService* service, int index);

  // Forgets the call, ready for the next Request.
  void Clear();

  void Resume(ResumeFn fn, void* arg) override;
  std::string Peer() const override;
  std::optional<std::string_view> Header(std::string_view name) const override;
  void Reply(ReplyBuffer reply) override;
  void Fail(const absl::Status& error) override;

 private:
  // What one call needs of gRPC, made anew for each.
  struct Exchange {
    Exchange() : writer(&context) {}
    grpc::ServerContext context;
    grpc::ByteBuffer request;
    grpc::ServerAsyncResponseWriter<grpc::ByteBuffer> writer;
  };

  struct ResumeNode : InboxNode {
    UnaryCall* call = nullptr;
    ResumeFn fn = nullptr;
    void* arg = nullptr;
  };

  // Every way into the call; the last one out gives the object back.
  class Entry {
   public:
    explicit Entry(UnaryCall* call) : call_(call) { ++call_->depth_; }
    ~Entry() { call_->Leave(); }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    UnaryCall* const call_;
  };

  void OnArrived(bool ok);
  void OnDone();
  void OnFinished();
  void OnResume();
  void Leave();
  void ViewRequest();
  const Method& method() const;
  // Tells the observer. False if the caller has gone already and nothing is to
  // be sent.
  bool BeginAnswer(const absl::Status& status);

  IoThread* const io_;
  RawService* service_ = nullptr;
  int index_ = 0;
  int depth_ = 0;
  bool answered_ = false;  // Reply or Fail was called
  bool finished_ = false;  // gRPC has sent the answer, or cannot
  bool done_ = false;      // gRPC says that the call is over
  std::optional<Exchange> exchange_;
  IoEvent arrived_event_;
  IoEvent done_event_;
  IoEvent finished_event_;
  ResumeNode resume_;
};

}  // namespace weir
