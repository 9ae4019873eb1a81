// Certificates for one test, made when it runs: an authority and what it signs.
#pragma once

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

namespace weir::testing {

struct IssuedCertificate {
  std::string certificate;  // PEM
  std::string key;          // PEM
};

// Elliptic curves unless bits of RSA are asked for.
class TestAuthority {
 public:
  explicit TestAuthority(const std::string& name, int days = 1);
  ~TestAuthority();
  TestAuthority(const TestAuthority&) = delete;
  TestAuthority& operator=(const TestAuthority&) = delete;

  std::string certificate() const;  // PEM

  // For a day. `names` as in openssl.cnf: "DNS:localhost,IP:127.0.0.1".
  IssuedCertificate Issue(
      const std::string& common_name,
      const std::string& names = "DNS:localhost,DNS:weir.test,IP:127.0.0.1",
      int rsa_bits = 0) const;

 private:
  struct Pair;
  std::unique_ptr<Pair> own_;
};

// The key under a passphrase.
std::string EncryptedKey(const std::string& key, const std::string& passphrase);

}  // namespace weir::testing
