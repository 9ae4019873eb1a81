// A gRPC service whose methods exchange plain bytes, made at run time from the
// entries of a MethodTable that share a service name. Immutable once
// registered.
#pragma once

#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/impl/service_type.h>

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

  // What gRPC's core knows method `index` by, once the server was built.
  void* handle(int index) const {
    return registered_[static_cast<size_t>(index)]->server_tag();
  }

 private:
  void Add(const Method& method);
  const char* Path(const std::string& method);

  const std::string name_;
  CallObserver* const observer_;
  std::vector<Method> methods_;
  std::vector<const grpc::internal::RpcServiceMethod*> registered_;  // gRPC's
  // gRPC keeps pointers to these.
  std::vector<std::unique_ptr<const std::string>> paths_;
};

}  // namespace weir
