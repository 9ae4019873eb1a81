// The PEM files of a TLS server, read and checked as OpenSSL will check them
// when it uses them, so that a fault is found before anybody connects. Pure;
// any thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace weir {

// Paths, named in errors by the flags they come from.
struct TlsFiles {
  std::string
      certificate;        // --tls-cert: the server's own first, then its chain
  std::string key;        // --tls-key: without passphrase
  std::string client_ca;  // --tls-client-ca; empty: clients need none
};

// What the files hold.
struct TlsMaterial {
  std::string certificate;
  std::string key;
  std::string client_ca;
  // When the first certificate of each file ends, in seconds of Unix time; 0
  // without a client CA.
  int64_t chain_expires_at = 0;
  int64_t client_ca_expires_at = 0;

  bool operator==(const TlsMaterial&) const = default;
};

// FAILED_PRECONDITION, naming flag, file and cause: a file that is missing,
// unreadable or no PEM, a key that is not the certificate's, or what this
// machine's OpenSSL finds too weak to serve with.
absl::StatusOr<TlsMaterial> ReadTlsMaterial(const TlsFiles& files);

}  // namespace weir
