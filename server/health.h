// What probes and balancers are told: sets the readiness that /readyz and the
// services read, and what grpc.health.v1 answers for "" (ready), "live",
// "model/NAME" and each gRPC service. Thread-safe; what it is made of outlives
// it.
#pragma once

#include <set>
#include <string>

#include "kernels/base/mutex.h"
#include "server/models/repository.h"
#include "server/observe/readiness.h"
#include "server/rpc/transport.h"

namespace weir {

class Health {
 public:
  // `services` are full names.
  Health(Readiness* readiness, const ModelRepository* models,
         Transport* transport, std::set<std::string> services);

  // What keeps traffic away, or no longer does: "".
  void Set(Unready cause, std::string why);
  // Whether restarting the process would help: no.
  void SetLive(bool live);

 private:
  void Publish() WEIR_REQUIRES(mu_);

  Readiness* const readiness_;
  const ModelRepository* const models_;
  Transport* const transport_;
  const std::set<std::string> services_;
  Mutex mu_;  // one change at a time
};

}  // namespace weir
