// What a failed call tells. Where the server said nothing, gRPC's words are put
// into ours: which address, how long, and what to do. Pure; any thread.
#pragma once

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cpp/tls.h"

namespace weir::client {

// Of a call that has ended.
struct CallSite {
  std::string address;     // HOST:PORT or unix:PATH
  absl::Duration timeout;  // that it was given
  bool connected = false;  // whether its channel was ready when it ended
  const TlsOptions& tls;
};

// The server's own code, message and details as they are. DEADLINE_EXCEEDED and
// UNAVAILABLE of gRPC's own, such as where nobody listens or TLS fails, keep
// their code and name the address and the remedy.
absl::Status CallFailure(const grpc::Status& status, const CallSite& site);

}  // namespace weir::client
