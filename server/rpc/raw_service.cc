#include "server/rpc/raw_service.h"

#include <grpcpp/impl/rpc_service_method.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace weir {

std::vector<std::unique_ptr<RawService>> RawService::FromTable(
    const MethodTable& table) {
  std::vector<std::unique_ptr<RawService>> services;
  for (const Method& method : table.methods()) {
    auto found = std::find_if(services.begin(), services.end(),
                              [&](const std::unique_ptr<RawService>& service) {
                                return service->name() == method.service;
                              });
    if (found == services.end()) {
      found = services.insert(
          services.end(),
          std::make_unique<RawService>(method.service, table.observer()));
    }
    (*found)->Add(method);
  }
  return services;
}

void RawService::Add(const Method& method) {
  paths_.push_back(std::make_unique<const std::string>(
      absl::StrCat("/", method.service, "/", method.name)));
  AddMethod(new grpc::internal::RpcServiceMethod(
      paths_.back()->c_str(), grpc::internal::RpcMethod::NORMAL_RPC, nullptr));
  MarkMethodRaw(static_cast<int>(methods_.size()));
  methods_.push_back(method);
}

}  // namespace weir
