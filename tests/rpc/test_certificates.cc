#include "tests/rpc/test_certificates.h"

#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>

#include <atomic>
#include <cstdlib>

namespace weir::testing {
namespace {

void Check(bool done) {
  if (!done) std::abort();
}

// What `write` puts into a BIO.
template <typename Write>
std::string Pem(Write write) {
  BIO* const bio = BIO_new(BIO_s_mem());
  Check(write(bio) == 1);
  char* data = nullptr;
  const auto size = static_cast<size_t>(BIO_get_mem_data(bio, &data));
  std::string text(data, size);
  BIO_free(bio);
  return text;
}

std::string KeyPem(EVP_PKEY* key) {
  return Pem([key](BIO* bio) {
    return PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr,
                                    nullptr);
  });
}

std::string CertificatePem(X509* certificate) {
  return Pem(
      [certificate](BIO* bio) { return PEM_write_bio_X509(bio, certificate); });
}

EVP_PKEY* NewKey(int rsa_bits) {
  return rsa_bits > 0 ? EVP_RSA_gen(static_cast<unsigned>(rsa_bits))
                      : EVP_EC_gen("P-256");
}

void Extend(X509* certificate, int kind, const std::string& value) {
  X509_EXTENSION* const extension =
      X509V3_EXT_conf_nid(nullptr, nullptr, kind, value.c_str());
  Check(extension != nullptr && X509_add_ext(certificate, extension, -1) == 1);
  X509_EXTENSION_free(extension);
}

// Unsigned.
X509* NewCertificate(const std::string& common_name, EVP_PKEY* key,
                     const X509* issuer, int days) {
  static std::atomic<int> serial = 1;
  X509* const certificate = X509_new();
  X509_set_version(certificate, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), serial++);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate), days * 24L * 3600);
  X509_set_pubkey(certificate, key);
  X509_NAME* const name = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(
      name, "CN", MBSTRING_ASC,
      reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1, 0);
  X509_set_issuer_name(
      certificate, issuer == nullptr ? name : X509_get_subject_name(issuer));
  return certificate;
}

}  // namespace

struct TestAuthority::Pair {
  EVP_PKEY* key = nullptr;
  X509* certificate = nullptr;
  ~Pair() {
    X509_free(certificate);
    EVP_PKEY_free(key);
  }
};

TestAuthority::TestAuthority(const std::string& name, int days)
    : own_(std::make_unique<Pair>()) {
  own_->key = NewKey(0);
  own_->certificate = NewCertificate(name, own_->key, nullptr, days);
  Extend(own_->certificate, NID_basic_constraints, "critical,CA:TRUE");
  Check(X509_sign(own_->certificate, own_->key, EVP_sha256()) > 0);
}

TestAuthority::~TestAuthority() = default;

std::string TestAuthority::certificate() const {
  return CertificatePem(own_->certificate);
}

IssuedCertificate TestAuthority::Issue(const std::string& common_name,
                                       const std::string& names,
                                       int rsa_bits) const {
  Pair pair;
  pair.key = NewKey(rsa_bits);
  pair.certificate =
      NewCertificate(common_name, pair.key, own_->certificate, /*days=*/1);
  Extend(pair.certificate, NID_subject_alt_name, names);
  Check(X509_sign(pair.certificate, own_->key, EVP_sha256()) > 0);
  return {CertificatePem(pair.certificate), KeyPem(pair.key)};
}

std::string EncryptedKey(const std::string& key,
                         const std::string& passphrase) {
  BIO* const in = BIO_new_mem_buf(key.data(), static_cast<int>(key.size()));
  EVP_PKEY* const parsed =
      PEM_read_bio_PrivateKey(in, nullptr, nullptr, nullptr);
  BIO_free(in);
  std::string text = Pem([&](BIO* bio) {
    return PEM_write_bio_PKCS8PrivateKey(
        bio, parsed, EVP_aes_128_cbc(), passphrase.data(),
        static_cast<int>(passphrase.size()), nullptr, nullptr);
  });
  EVP_PKEY_free(parsed);
  return text;
}

}  // namespace weir::testing
