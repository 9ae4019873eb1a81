// weir.v1.Spaces: opening, showing, listing and closing what callers keep here.
// Answers on the I/O thread. Not registered where the server offers no spaces.
#pragma once

#include "server/observe/space_recorder.h"
#include "server/rpc/method_table.h"
#include "server/services/service_context.h"

namespace weir {

class SpacesService {
 public:
  // Both outlive it, and the methods. REQUIRES: the context has spaces.
  SpacesService(ServiceContext* context, SpaceRecorder* recorder)
      : context_(context), recorder_(recorder) {}

  void Register(MethodTable* table);

 private:
  ServiceContext* const context_;
  SpaceRecorder* const recorder_;
};

}  // namespace weir
