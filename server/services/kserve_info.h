// inference.GRPCInferenceService apart from ModelInfer: liveness, readiness,
// metadata, configuration, statistics and the repository's index. Extensions
// that this server does not offer answer UNIMPLEMENTED. Used by the I/O
// threads.
#pragma once

#include "server/rpc/method_table.h"
#include "server/services/service_context.h"

namespace weir {

class KserveInfoService {
 public:
  explicit KserveInfoService(ServiceContext* context) : context_(context) {}
  void Register(MethodTable* table);

 private:
  ServiceContext* const context_;
};

}  // namespace weir
