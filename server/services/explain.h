// weir.v1.Catalog/Explain: compiles as Evaluate does and tells what would run.
#pragma once

#include "server/rpc/server_call.h"
#include "server/services/service_context.h"

namespace weir {

// A method handler: answers the call, now or once a compile thread is done with
// it. `context` outlives the call.
void Explain(ServiceContext* context, ServerCall& call);

}  // namespace weir
