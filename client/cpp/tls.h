// What a client needs for TLS. Read once, when the client is made; a program
// that runs for long makes a new client when its certificate is renewed.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weir::client {

// PEM texts. Without `ca` the connection is plain.
struct TlsOptions {
  std::string ca;           // authorities, one of which signed the server's
  std::string certificate;  // the client's own with its chain, for mutual TLS
  std::string key;
  // Expected in the server's certificate; empty: the host of the address.
  std::string server_name;

  bool enabled() const { return !ca.empty(); }
};

// Paths; empty: not given. The names are those of weir's flags, and errors use
// them.
struct TlsFiles {
  std::string ca;    // --tls-ca
  std::string cert;  // --tls-cert
  std::string key;   // --tls-key
  std::string server_name;
};

// INVALID_ARGUMENT for a wrong combination: a certificate without its key, or
// anything without the CA. FAILED_PRECONDITION for a file that cannot be read
// or holds no PEM of its kind; names flag and file.
absl::StatusOr<TlsOptions> ReadTlsFiles(const TlsFiles& files);

// `status` as it is, or with the likely remedy where an UNAVAILABLE comes from
// TLS: an authority that did not sign, another name, a client certificate that
// is missing, or a plain client at a server that wants TLS.
absl::Status WithTlsRemedy(const absl::Status& status, const TlsOptions& tls);

}  // namespace weir::client
