#include "server/rpc/tls_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <algorithm>
#include <cstddef>
#include <ctime>
#include <limits>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/rpc/small_file.h"

namespace weir {
namespace {

constexpr char kCertificateFlag[] = "--tls-cert";
constexpr char kKeyFlag[] = "--tls-key";
constexpr char kClientCaFlag[] = "--tls-client-ca";
// A bundle of all public authorities has a quarter of this.
constexpr size_t kMaxFileBytes = size_t{1} << 20;

template <typename T, void (*free)(T*)>
struct Free {
  void operator()(T* object) const { free(object); }
};
void FreeBio(BIO* bio) { BIO_free(bio); }
using BioPtr = std::unique_ptr<BIO, Free<BIO, FreeBio>>;
using ContextPtr = std::unique_ptr<SSL_CTX, Free<SSL_CTX, SSL_CTX_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY, EVP_PKEY_free>>;
using CertificatePtr = std::unique_ptr<X509, Free<X509, X509_free>>;

absl::Status Fault(absl::string_view flag, const std::string& path,
                   absl::string_view cause) {
  return absl::FailedPreconditionError(
      absl::StrCat(flag, ": ", path, ": ", cause));
}

// The innermost reason that OpenSSL gives, and an empty queue.
std::string OpenSslReason() {
  const char* reason = ERR_reason_error_string(ERR_peek_error());
  ERR_clear_error();
  return reason == nullptr ? "refused by OpenSSL" : reason;
}

absl::StatusOr<std::string> ReadPem(absl::string_view flag,
                                    const std::string& path) {
  absl::StatusOr<std::string> text = ReadSmallFile(path, kMaxFileBytes);
  if (!text.ok()) return Fault(flag, path, text.status().message());
  return text;
}

BioPtr Reader(const std::string& text) {
  return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// Every certificate of the file; at least one.
absl::StatusOr<std::vector<CertificatePtr>> ParseCertificates(
    absl::string_view flag, const std::string& path, const std::string& text) {
  ERR_clear_error();
  const BioPtr reader = Reader(text);
  std::vector<CertificatePtr> certificates;
  while (X509* next =
             PEM_read_bio_X509(reader.get(), nullptr, nullptr, nullptr)) {
    certificates.emplace_back(next);
  }
  const bool at_end =
      ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  const std::string reason = OpenSslReason();
  if (!at_end) return Fault(flag, path, "a broken certificate: " + reason);
  if (certificates.empty()) {
    return Fault(flag, path, "no PEM certificate in it");
  }
  return certificates;
}

// Passphrases cannot be asked for.
int NoPassphrase(char*, int, int, void*) { return 0; }

absl::StatusOr<KeyPtr> ParseKey(const std::string& path,
                                const std::string& text) {
  ERR_clear_error();
  KeyPtr key(PEM_read_bio_PrivateKey(Reader(text).get(), nullptr, NoPassphrase,
                                     nullptr));
  ERR_clear_error();
  if (key == nullptr) {
    return Fault(kKeyFlag, path, "no PEM private key without passphrase in it");
  }
  return key;
}

// In seconds of Unix time.
int64_t FirstExpiryOf(const std::vector<CertificatePtr>& certificates) {
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const CertificatePtr& certificate : certificates) {
    std::tm time = {};
    ASN1_TIME_to_tm(X509_get0_notAfter(certificate.get()), &time);
    first = std::min<int64_t>(first, timegm(&time));
  }
  return first;
}

}  // namespace

absl::StatusOr<TlsMaterial> ReadTlsMaterial(const TlsFiles& files) {
  TlsMaterial material;
  WEIR_ASSIGN_OR_RETURN(material.certificate,
                        ReadPem(kCertificateFlag, files.certificate));
  WEIR_ASSIGN_OR_RETURN(const std::vector<CertificatePtr> chain,
                        ParseCertificates(kCertificateFlag, files.certificate,
                                          material.certificate));
  WEIR_ASSIGN_OR_RETURN(material.key, ReadPem(kKeyFlag, files.key));
  WEIR_ASSIGN_OR_RETURN(const KeyPtr key, ParseKey(files.key, material.key));
  if (X509_check_private_key(chain[0].get(), key.get()) != 1) {
    ERR_clear_error();
    return Fault(kKeyFlag, files.key,
                 absl::StrCat("not the key of the certificate in ",
                              files.certificate, " (", kCertificateFlag, ")"));
  }
  // What OpenSSL's security level forbids shows only in use.
  const ContextPtr context(SSL_CTX_new(TLS_server_method()));
  if (SSL_CTX_use_certificate(context.get(), chain[0].get()) != 1) {
    return Fault(kCertificateFlag, files.certificate, OpenSslReason());
  }
  for (size_t i = 1; i < chain.size(); ++i) {
    if (SSL_CTX_add1_chain_cert(context.get(), chain[i].get()) != 1) {
      return Fault(
          kCertificateFlag, files.certificate,
          absl::StrCat("certificate ", i + 1, " of it: ", OpenSslReason()));
    }
  }
  if (SSL_CTX_use_PrivateKey(context.get(), key.get()) != 1) {
    return Fault(kKeyFlag, files.key, OpenSslReason());
  }
  if (!files.client_ca.empty()) {
    WEIR_ASSIGN_OR_RETURN(material.client_ca,
                          ReadPem(kClientCaFlag, files.client_ca));
    WEIR_ASSIGN_OR_RETURN(
        const std::vector<CertificatePtr> authorities,
        ParseCertificates(kClientCaFlag, files.client_ca, material.client_ca));
    material.client_ca_expires_at = FirstExpiryOf(authorities);
  }
  material.chain_expires_at = FirstExpiryOf(chain);
  return material;
}

}  // namespace weir
