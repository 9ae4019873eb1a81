// A gRPC service whose methods exchange plain bytes, made at run time from the
// entries of a MethodTable that share a service name; or, not to be registered,
// what stands for all methods that no service has. Immutable once registered.
#pragma once

#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/impl/service_type.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/rpc/method_table.h"

namespace weir {

class RawService final : public grpc::Service {
 public:
  // One service for each name in `table`, in the order of first mention.
  static std::vector<std::unique_ptr<RawService>> FromTable(
      const MethodTable& table);
  // Has the one method table.unknown(), without a handle.
  static std::unique_ptr<RawService> Unknown(const MethodTable& table);

  RawService(std::string name, const MethodTable& table)
      : name_(std::move(name)),
        observer_(table.observer()),
        bounds_(table.bounds()) {}

  const std::string& name() const { return name_; }
  const std::vector<Method>& methods() const { return methods_; }
  CallObserver* observer() const { return observer_; }
  const std::optional<TableBounds>& bounds() const { return bounds_; }

  // What gRPC's core knows method `index` by, once the server was built; null
  // for those that it does not know.
  void* handle(int index) const {
    const size_t at = static_cast<size_t>(index);
    return at < registered_.size() ? registered_[at]->server_tag() : nullptr;
  }

 private:
  void Add(const Method& method);
  const char* Path(const std::string& method);

  const std::string name_;
  CallObserver* const observer_;
  const std::optional<TableBounds> bounds_;
  std::vector<Method> methods_;
  std::vector<const grpc::internal::RpcServiceMethod*> registered_;  // gRPC's
  // gRPC keeps pointers to these.
  std::vector<std::unique_ptr<const std::string>> paths_;
};

}  // namespace weir
