// weir.v1.Catalog: what the server is and what it offers. Answers on the I/O
// threads from what is already known, but for Explain, which compiles.
#pragma once

#include "server/rpc/method_table.h"
#include "server/services/service_context.h"

namespace weir {

class CatalogService {
 public:
  explicit CatalogService(ServiceContext* context) : context_(context) {}
  void Register(MethodTable* table);

 private:
  ServiceContext* const context_;
};

}  // namespace weir
