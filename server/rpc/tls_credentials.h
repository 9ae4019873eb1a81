// TLS for a gRPC server from files that may change while it runs. A thread
// looks at the files; a pair that is whole and fits is used by the connections
// that come after, older ones go on. Anything else on disk (a key without its
// certificate yet, a broken file) leaves the last good pair in use.
//
// gRPC's own file watcher is not enough: in 1.51 it takes a new pair without a
// check and drops the old one, so that a half-written pair refuses everybody.
// This uses gRPC's hook for new credentials instead, asked at each handshake.
//
// TLS 1.2 or newer, HTTP/2 by ALPN. With a client CA, a client must show a
// certificate that one of its authorities signed.
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/rpc/tls_files.h"

namespace weir {

// How often the files are looked at.
inline constexpr absl::Duration kTlsRefresh = absl::Seconds(2);

// What is known of a port's certificates. Thread-safe.
struct TlsState {
  // When the first of those in use ends, in seconds of Unix time: of the
  // server's own with its chain, and of the authorities for clients (0: none).
  std::atomic<int64_t> expires_at{0};
  std::atomic<int64_t> client_ca_expires_at{0};
  // Looks at the files that found them not fit for use.
  std::atomic<uint64_t> reload_failures{0};
  // Handshakes that began.
  std::atomic<uint64_t> handshakes{0};
};

struct TlsOptions {
  TlsFiles files;
  TlsState* state = nullptr;  // outlives the credentials; null: nobody asks
  // Called on the watching thread: what was loaded, or why it was not.
  std::function<void(bool renewed, const std::string& event)> report = nullptr;
  absl::Duration refresh = kTlsRefresh;
};

// For one listening port. Errors are those of ReadTlsMaterial.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeTlsCredentials(
    TlsOptions options);

}  // namespace weir
