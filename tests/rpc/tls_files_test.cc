#include "server/rpc/tls_files.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <string>

#include "absl/time/clock.h"
#include "tests/models/temp_folder.h"
#include "tests/rpc/test_certificates.h"

namespace weir {
namespace {

using ::testing::HasSubstr;
using testing::IssuedCertificate;
using testing::TestAuthority;

class TlsFilesTest : public ::testing::Test {
 protected:
  TlsFilesTest() {
    files_.certificate = folder_.Write("tls.crt", pair_.certificate);
    files_.key = folder_.Write("tls.key", pair_.key);
    files_.client_ca = folder_.Write("ca.crt", authority_.certificate());
  }

  void ExpectFault(const std::string& flag, const std::string& path,
                   const std::string& cause = "") {
    const auto material = ReadTlsMaterial(files_);
    ASSERT_FALSE(material.ok());
    EXPECT_EQ(material.status().code(), absl::StatusCode::kFailedPrecondition);
    const std::string message(material.status().message());
    EXPECT_THAT(message, ::testing::StartsWith(flag + ": " + path + ": "));
    EXPECT_THAT(message, HasSubstr(cause));
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }

  const TestAuthority authority_{"authority"};
  const IssuedCertificate pair_ = authority_.Issue("server");
  testing::TempFolder folder_;
  TlsFiles files_;
};

TEST_F(TlsFilesTest, ReadsWhatFits) {
  auto material = ReadTlsMaterial(files_);
  ASSERT_TRUE(material.ok()) << material.status();
  EXPECT_EQ(material->certificate, pair_.certificate);
  EXPECT_EQ(material->key, pair_.key);
  EXPECT_EQ(material->client_ca, authority_.certificate());
  // Issued for a day.
  const int64_t now = absl::ToUnixSeconds(absl::Now());
  EXPECT_GT(material->chain_expires_at, now);
  EXPECT_LE(material->chain_expires_at, now + 24 * 3600);
  // A chain, with comments between, as tools write it.
  folder_.Write("tls.crt", "subject=server\n" + pair_.certificate + "issuer\n" +
                               authority_.certificate());
  files_.client_ca.clear();
  material = ReadTlsMaterial(files_);
  ASSERT_TRUE(material.ok()) << material.status();
  EXPECT_EQ(material->client_ca, "");
}

// Wherever in its file the first to end stands.
TEST_F(TlsFilesTest, TellsWhenTheFirstOfEachFileEnds) {
  constexpr int64_t kDay = 24 * 3600;
  const int64_t now = absl::ToUnixSeconds(absl::Now());
  const testing::TestAuthority lasting("lasting", 9);
  const testing::TestAuthority ending("ending", 5);
  folder_.Write("tls.crt", pair_.certificate + lasting.certificate());
  folder_.Write("ca.crt", lasting.certificate() + ending.certificate() +
                              lasting.certificate());
  auto material = ReadTlsMaterial(files_);
  ASSERT_TRUE(material.ok()) << material.status();
  EXPECT_NEAR(material->chain_expires_at, now + kDay, kDay / 2);
  EXPECT_NEAR(material->client_ca_expires_at, now + 5 * kDay, kDay / 2);

  const testing::TestAuthority gone("gone", 0);
  folder_.Write("tls.crt",
                pair_.certificate + lasting.certificate() + gone.certificate());
  files_.client_ca.clear();
  material = ReadTlsMaterial(files_);
  ASSERT_TRUE(material.ok()) << material.status();
  EXPECT_NEAR(material->chain_expires_at, now, kDay / 2);
  EXPECT_EQ(material->client_ca_expires_at, 0);
}

TEST_F(TlsFilesTest, NamesTheFileAtFault) {
  for (std::string TlsFiles::*file :
       {&TlsFiles::certificate, &TlsFiles::key, &TlsFiles::client_ca}) {
    const std::string flag = file == &TlsFiles::certificate ? "--tls-cert"
                             : file == &TlsFiles::key       ? "--tls-key"
                                                            : "--tls-client-ca";
    const std::string good = files_.*file;
    for (const std::string& path :
         {std::string("/no/such/file"), folder_.path().string(),
          folder_.Write("empty", ""), folder_.Write("garbage", "garbage"),
          folder_.Write("large", std::string(2 << 20, 'x'))}) {
      files_.*file = path;
      ExpectFault(flag, path);
    }
    // Nobody writes to it: no waiting.
    const std::string pipe = (folder_.path() / ("pipe" + flag)).string();
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    files_.*file = pipe;
    ExpectFault(flag, pipe, "not a file");
    files_.*file = good;
  }
}

TEST_F(TlsFilesTest, RefusesAKeyThatIsNotTheCertificates) {
  folder_.Write("tls.key", authority_.Issue("other").key);
  ExpectFault("--tls-key", files_.key, files_.certificate);
  // The files swapped by mistake.
  std::swap(files_.certificate, files_.key);
  ExpectFault("--tls-cert", files_.certificate, "no PEM certificate");
}

TEST_F(TlsFilesTest, RefusesAKeyUnderAPassphrase) {
  folder_.Write("tls.key", testing::EncryptedKey(pair_.key, "secret"));
  ExpectFault("--tls-key", files_.key, "passphrase");
}

TEST_F(TlsFilesTest, RefusesHalfAFile) {
  const std::string& whole = pair_.certificate;
  folder_.Write("tls.crt", whole.substr(0, whole.size() / 2));
  ExpectFault("--tls-cert", files_.certificate);
  folder_.Write("tls.crt", whole + whole.substr(0, whole.size() / 2));
  ExpectFault("--tls-cert", files_.certificate, "broken");
}

TEST_F(TlsFilesTest, RefusesWhatOpenSslFindsTooWeak) {
  const IssuedCertificate weak = authority_.Issue("weak", "DNS:weak", 512);
  folder_.Write("tls.crt", weak.certificate);
  folder_.Write("tls.key", weak.key);
  ExpectFault("--tls-cert", files_.certificate, "too small");
}

// OpenSSL would find it in each handshake, and gRPC does not ask before.
TEST_F(TlsFilesTest, RefusesAChainWithWhatOpenSslFindsTooWeak) {
  const IssuedCertificate weak = authority_.Issue("weak", "DNS:weak", 512);
  folder_.Write("tls.crt", pair_.certificate + weak.certificate);
  ExpectFault("--tls-cert", files_.certificate, "too small");
}

}  // namespace
}  // namespace weir
