// A gRPC service whose methods exchange plain bytes, made at run time from the
// entries of a MethodTable that share a service name; streams that are not
// offered are refused. Immutable once registered.
#pragma once

#include <grpcpp/impl/service_type.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/async_unary_call.h>
#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <string>
#include <vector>

#include "server/rpc/method_table.h"

namespace weir {

class RawService final : public grpc::Service {
 public:
  // One service for each name in `table`, in the order of first mention.
  static std::vector<std::unique_ptr<RawService>> FromTable(
      const MethodTable& table);

  RawService(std::string name, CallObserver* observer)
      : name_(std::move(name)), observer_(observer) {}

  const std::string& name() const { return name_; }
  const std::vector<Method>& methods() const { return methods_; }
  CallObserver* observer() const { return observer_; }

  void RequestCall(int index, grpc::ServerContext* context,
                   grpc::ByteBuffer* request,
                   grpc::ServerAsyncResponseWriter<grpc::ByteBuffer>* writer,
                   grpc::ServerCompletionQueue* queue, void* tag) {
    RequestAsyncUnary(index, context, request, writer, queue, queue, tag);
  }

 private:
  void Add(const Method& method);
  void Refuse(const RefusedStream& stream);
  const char* Path(const std::string& method);

  const std::string name_;
  CallObserver* const observer_;
  std::vector<Method> methods_;
  // gRPC keeps pointers to these.
  std::vector<std::unique_ptr<const std::string>> paths_;
};

}  // namespace weir
