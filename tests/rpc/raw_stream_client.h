// A stock client's stream of messages to a method of any name: one thread may
// send while another receives.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/rpc_method.h>
#include <grpcpp/support/sync_stream.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weir::testing {

class RawStreamClient {
 public:
  RawStreamClient(std::shared_ptr<grpc::Channel> channel, std::string path)
      : channel_(std::move(channel)), path_(std::move(path)) {
    context_.set_deadline(std::chrono::system_clock::now() +
                          std::chrono::seconds(60));
  }
  ~RawStreamClient() { context_.TryCancel(); }

  // Before Start.
  grpc::ClientContext& context() { return context_; }

  void Start() {
    const grpc::internal::RpcMethod method(
        path_.c_str(), grpc::internal::RpcMethod::BIDI_STREAMING, channel_);
    stream_.reset(grpc::internal::ClientReaderWriterFactory<
                  grpc::ByteBuffer, grpc::ByteBuffer>::Create(channel_.get(),
                                                              method,
                                                              &context_));
  }

  // False once the stream is over.
  bool Send(const std::string& message) {
    const grpc::Slice slice(message);
    return stream_->Write(grpc::ByteBuffer(&slice, 1));
  }
  bool EndSending() { return stream_->WritesDone(); }
  // Empty once the stream is over.
  std::optional<std::string> Receive() {
    grpc::ByteBuffer buffer;
    if (!stream_->Read(&buffer)) return std::nullopt;
    std::vector<grpc::Slice> slices;
    std::string message;
    if (!buffer.Dump(&slices).ok()) return std::nullopt;
    for (const grpc::Slice& slice : slices) {
      message.append(reinterpret_cast<const char*>(slice.begin()),
                     slice.size());
    }
    return message;
  }
  grpc::Status Finish() { return stream_->Finish(); }

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  const std::string path_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>>
      stream_;
};

}  // namespace weir::testing
