#include "server/rpc/raw_service.h"

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
          services.end(), std::make_unique<RawService>(method.service, table));
    }
    (*found)->Add(method);
  }
  return services;
}

std::unique_ptr<RawService> RawService::Unknown(const MethodTable& table) {
  auto service = std::make_unique<RawService>("", table);
  service->methods_.push_back(table.unknown());
  return service;
}

const char* RawService::Path(const std::string& method) {
  paths_.push_back(std::make_unique<const std::string>(
      absl::StrCat("/", name_, "/", method)));
  return paths_.back()->c_str();
}

// To gRPC the request is a stream, so that a call is there with its headers and
// its message is read when we ask for it; on the wire there is no difference.
void RawService::Add(const Method& method) {
  auto* registered = new grpc::internal::RpcServiceMethod(
      Path(method.name), grpc::internal::RpcMethod::CLIENT_STREAMING, nullptr);
  AddMethod(registered);
  MarkMethodRaw(static_cast<int>(methods_.size()));
  registered_.push_back(registered);
  methods_.push_back(method);
}

}  // namespace weir
