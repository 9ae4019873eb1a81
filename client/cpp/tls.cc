#include "client/cpp/tls.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace weir::client {
namespace {

absl::Status ReadPem(absl::string_view flag, const std::string& path,
                     absl::string_view what, std::string* text) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  // An empty file fails too, but with no cause.
  if ((!file || !(bytes << file.rdbuf())) && errno != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(flag, ": ", path, ": ", std::strerror(errno)));
  }
  *text = bytes.str();
  if (!absl::StrContains(*text, absl::StrCat(what, "-----"))) {
    return absl::FailedPreconditionError(
        absl::StrCat(flag, ": ", path, ": no PEM block of a ", what, " in it"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TlsOptions> ReadTlsFiles(const TlsFiles& files) {
  if (files.cert.empty() != files.key.empty()) {
    return absl::InvalidArgumentError(
        "--tls-cert and --tls-key need each other");
  }
  const bool more = !files.cert.empty() || !files.server_name.empty();
  if (files.ca.empty() && more) {
    return absl::InvalidArgumentError(
        "--tls-cert, --tls-key and --tls-server-name need --tls-ca");
  }
  TlsOptions tls;
  tls.server_name = files.server_name;
  absl::Status status;
  if (!files.ca.empty()) {
    status.Update(ReadPem("--tls-ca", files.ca, "CERTIFICATE", &tls.ca));
  }
  if (!files.cert.empty()) {
    status.Update(
        ReadPem("--tls-cert", files.cert, "CERTIFICATE", &tls.certificate));
    status.Update(ReadPem("--tls-key", files.key, "PRIVATE KEY", &tls.key));
  }
  if (!status.ok()) return status;
  return tls;
}

absl::Status WithTlsRemedy(const absl::Status& status, const TlsOptions& tls) {
  if (!absl::IsUnavailable(status)) return status;
  const absl::string_view message = status.message();
  absl::string_view remedy;
  if (absl::StrContains(message, "certificate verify failed")) {
    remedy = "the server's certificate is not of an authority in --tls-ca";
  } else if (absl::StrContains(message, "is not in peer certificate")) {
    remedy = "give a name of the server's certificate as --tls-server-name";
  } else if (absl::StrContains(message, "wrong version number")) {
    remedy = "the server talks without TLS here: leave --tls-ca out";
  } else if (tls.enabled() &&
             absl::StrContains(message, "empty address list")) {
    remedy =
        "--tls-ca, --tls-cert or --tls-key has a broken PEM block, or the key "
        "is not the certificate's";
  } else if (absl::StrContains(message, "failed to connect") &&
             absl::StrContains(message, "Socket closed")) {
    remedy = !tls.enabled() ? "the server may want TLS: give --tls-ca"
             : tls.certificate.empty()
                 ? "the server may want a client's certificate: give "
                   "--tls-cert and --tls-key"
                 : "the server may not trust the authority of --tls-cert";
  }
  if (remedy.empty()) return status;
  absl::Status told(status.code(), absl::StrCat(message, "; ", remedy));
  status.ForEachPayload(
      [&told](absl::string_view url, const absl::Cord& bytes) {
        told.SetPayload(url, bytes);
      });
  return told;
}

}  // namespace weir::client
