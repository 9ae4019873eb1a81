// TLS connections of a transport, and what they do when the files change.
#include "server/rpc/tls_credentials.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "kernels/base/mutex.h"
#include "server/rpc/peer.h"
#include "tests/models/temp_folder.h"
#include "tests/rpc/raw_http2.h"
#include "tests/rpc/test_certificates.h"
#include "tests/rpc/test_transport.h"

namespace weir {
namespace {

using grpc::StatusCode;
using ::testing::HasSubstr;
using testing::IssuedCertificate;
using testing::RawHttp2;
using testing::TestAuthority;

// Events of a watcher, in order.
class Events {
 public:
  void Add(const std::string& event) {
    const MutexLock lock(&mu_);
    events_.push_back(event);
    changed_.NotifyAll();
  }
  // Waits for an event with `part` in it, past others: between two looks at
  // the files a pair may be seen half replaced.
  std::string Await(const std::string& part) {
    const MutexLock lock(&mu_);
    for (;;) {
      while (taken_ == events_.size()) changed_.Wait(&mu_);
      const std::string& event = events_[taken_++];
      if (event.find(part) != std::string::npos) return event;
    }
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<std::string> events_ WEIR_GUARDED_BY(mu_);
  size_t taken_ WEIR_GUARDED_BY(mu_) = 0;
};

class TlsCredentialsTest : public ::testing::Test {
 protected:
  TlsCredentialsTest() { Publish(authority_.Issue("server")); }
  ~TlsCredentialsTest() override { transport_.reset(); }

  // As Kubernetes renews a secret: the files are links through "..data", a link
  // to a folder, which is replaced in one step.
  void Publish(const IssuedCertificate& pair) {
    const std::string version = "version" + std::to_string(++versions_);
    folder_.Write(version + "/tls.crt", pair.certificate);
    folder_.Write(version + "/tls.key", pair.key);
    folder_.Write(version + "/ca.crt", client_authority_.certificate());
    const auto& root = folder_.path();
    std::filesystem::create_directory_symlink(version, root / "..next");
    std::filesystem::rename(root / "..next", root / "..data");
    for (const char* name : {"tls.crt", "tls.key", "ca.crt"}) {
      if (!std::filesystem::exists(root / name)) {
        std::filesystem::create_symlink("..data/" + std::string(name),
                                        root / name);
      }
    }
  }

  std::string Path(const std::string& name) const {
    return (folder_.path() / name).string();
  }

  void Start(bool mutual = false) {
    TlsOptions tls;
    tls.files = {Path("tls.crt"), Path("tls.key"),
                 mutual ? Path("ca.crt") : ""};
    tls.state = &state_;
    tls.report = [this](bool, const std::string& event) { events_.Add(event); };
    tls.refresh = absl::Milliseconds(5);
    auto credentials = MakeTlsCredentials(std::move(tls));
    ASSERT_TRUE(credentials.ok()) << credentials.status();
    transport_ = StartTransport(
        EchoCall, {.addresses = {"127.0.0.1:0", "unix:" + Path("socket")},
                   .credentials = *std::move(credentials)});
  }

  std::string address() const { return transport_->addresses()[0]; }

  // A client that trusts `authority` and shows `own` if it is given.
  std::unique_ptr<InferStub> Trusting(const TestAuthority& authority,
                                      const IssuedCertificate& own = {}) {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = authority.certificate();
    options.pem_cert_chain = own.certificate;
    options.pem_private_key = own.key;
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return std::make_unique<InferStub>(grpc::CreateCustomChannel(
        address(), grpc::SslCredentials(options), arguments));
  }

  // Whether a new connection of a client that trusts `authority` is served.
  bool Serves(const TestAuthority& authority,
              const IssuedCertificate& own = {}) {
    const grpc::Status status = Infer(*Trusting(authority, own), "x").status;
    EXPECT_TRUE(status.ok() || status.error_code() == StatusCode::UNAVAILABLE)
        << status.error_message();
    return status.ok();
  }

  const TestAuthority authority_{"first"};
  const TestAuthority renewed_{"second"};
  const TestAuthority client_authority_{"clients"};
  testing::TempFolder folder_;
  int versions_ = 0;
  Events events_;
  TlsState state_;
  std::unique_ptr<Transport> transport_;
};

TEST_F(TlsCredentialsTest, ServesTcpWithTlsAloneAndUnixSocketsPlain) {
  Start();
  EXPECT_TRUE(Serves(authority_));
  EXPECT_FALSE(Serves(renewed_));
  InferStub plain(Connect(address()));
  EXPECT_EQ(Infer(plain, "x").status.error_code(), StatusCode::UNAVAILABLE);
  InferStub local(Connect("unix:" + Path("socket")));
  EXPECT_EQ(Infer(local, "local").response.id(), "local");
  // A client certificate that nobody asked for is no fault.
  EXPECT_TRUE(Serves(authority_, client_authority_.Issue("client")));
}

TEST_F(TlsCredentialsTest, WithAClientCaClientsMustShowACertificateOfIt) {
  Start(/*mutual=*/true);
  EXPECT_TRUE(Serves(authority_, client_authority_.Issue("client")));
  EXPECT_FALSE(Serves(authority_));
  EXPECT_FALSE(Serves(authority_, authority_.Issue("client")));
}

int ConnectTo(const std::string& address) {
  sockaddr_in where = {};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  where.sin_port = htons(
      static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&where), sizeof(where)), 0);
  return fd;
}

// The protocols that a handshake agrees on, or "".
std::string Handshake(const std::string& address, int newest) {
  SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_security_level(context, 0);
  SSL_CTX_set_min_proto_version(context, TLS1_VERSION);
  SSL_CTX_set_max_proto_version(context, newest);
  const unsigned char offered[] = "\x08http/1.1\x02h2";
  SSL_CTX_set_alpn_protos(context, offered, sizeof(offered) - 1);
  const int fd = ConnectTo(address);
  SSL* const ssl = SSL_new(context);
  SSL_set_fd(ssl, fd);
  std::string agreed;
  if (SSL_connect(ssl) == 1) {
    const unsigned char* protocol = nullptr;
    unsigned size = 0;
    SSL_get0_alpn_selected(ssl, &protocol, &size);
    agreed = std::string(SSL_get_version(ssl)) + " " +
             std::string(reinterpret_cast<const char*>(protocol), size);
  }
  SSL_free(ssl);
  close(fd);
  SSL_CTX_free(context);
  return agreed;
}

TEST_F(TlsCredentialsTest, SpeaksTls12AndNewerAndHttp2) {
  Start();
  EXPECT_EQ(Handshake(address(), TLS1_3_VERSION), "TLSv1.3 h2");
  EXPECT_EQ(Handshake(address(), TLS1_2_VERSION), "TLSv1.2 h2");
  EXPECT_EQ(Handshake(address(), TLS1_1_VERSION), "");
}

// What TLS hides is looked at where it is decrypted.
TEST_F(TlsCredentialsTest, FramesAreJudgedBehindTls) {
  constexpr char kInfer[] = "/inference.GRPCInferenceService/ModelInfer";
  signal(SIGPIPE, SIG_IGN);
  Start();
  SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  const unsigned char offered[] = "\x02h2";
  SSL_CTX_set_alpn_protos(context, offered, sizeof(offered) - 1);
  // Beside another, which stays.
  const auto honest = Trusting(authority_);
  ASSERT_TRUE(Infer(*honest, "x").status.ok());
  const int fd = ConnectTo(address());
  SSL* const ssl = SSL_new(context);
  SSL_set_fd(ssl, fd);
  ASSERT_EQ(SSL_connect(ssl), 1);
  const auto send = [&](const std::string& bytes) {
    return SSL_write(ssl, bytes.data(), static_cast<int>(bytes.size())) > 0;
  };
  ASSERT_TRUE(send(RawHttp2::Opening(1 << 16)));
  const std::string text = "the message of the other stream";
  const std::string message = RawHttp2::Prefix(text.size()) + text;
  ASSERT_TRUE(send(RawHttp2::EncodeCall(1, kInfer) +
                   RawHttp2::EncodeData(1, message.substr(0, 5), false, 5)));
  ASSERT_TRUE(
      send(RawHttp2::EncodeCall(3, kInfer) +
           RawHttp2::EncodeData(3, RawHttp2::Prefix(100'000), false, 5)));
  ASSERT_TRUE(Infer(*honest, "x").status.ok());
  EXPECT_EQ(transport_->cuts().streams.count, 0u);
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(
        send(RawHttp2::EncodeData(3, std::string(1000, 'x'), false, 1)));
  }
  ASSERT_TRUE(send(RawHttp2::EncodeData(1, message.substr(5), true, 100)));
  // The call has ended; the connection and its other call go on.
  std::string came;
  char bytes[1024];
  while (came.find(text) == std::string::npos ||
         came.find("too many pieces") == std::string::npos) {
    const int count = SSL_read(ssl, bytes, sizeof(bytes));
    ASSERT_GT(count, 0);
    came.append(bytes, static_cast<size_t>(count));
  }
  sockaddr_storage here = {};
  socklen_t size = sizeof(here);
  getsockname(fd, reinterpret_cast<sockaddr*>(&here), &size);
  FrameGuard::Cuts cuts = transport_->cuts();
  EXPECT_EQ(cuts.streams.count, 1u);
  EXPECT_EQ(cuts.streams.peer, PeerName(here));
  EXPECT_EQ(cuts.pieces.count, 0u);
  EXPECT_EQ(cuts.headers.count, 0u);

  // Headers without an end are the connection's.
  send(RawHttp2::Encode(RawHttp2::kHeaders, /*flags=*/0, 5, ""));
  const std::string more = RawHttp2::Encode(
      RawHttp2::kContinuation, /*flags=*/0, 5, std::string(10'000, '\0'));
  for (int i = 0; i < 10 && send(more); ++i) {
  }
  while (SSL_read(ssl, bytes, sizeof(bytes)) > 0) {
  }
  cuts = transport_->cuts();
  EXPECT_EQ(cuts.headers.count, 1u);
  EXPECT_EQ(cuts.headers.peer, PeerName(here));
  SSL_free(ssl);
  close(fd);
  SSL_CTX_free(context);
  EXPECT_TRUE(Infer(*honest, "x").status.ok());
}

// Calls on one old connection and on ever new ones while the pair is replaced.
TEST_F(TlsCredentialsTest, ANewPairServesNewConnectionsAndLosesNoCall) {
  Start();
  const auto old = Trusting(authority_);
  ASSERT_TRUE(Infer(*old, "x").status.ok());
  std::atomic<bool> stop = false;
  std::atomic<int> answered = 0;
  std::atomic<int> lost = 0;
  const std::string both = authority_.certificate() + renewed_.certificate();
  std::thread on_the_old([&] {
    while (!stop) ++(Infer(*old, "x").status.ok() ? answered : lost);
  });
  std::thread on_new_ones([&] {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = both;
    while (!stop) {
      grpc::ChannelArguments arguments;
      arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
      InferStub stub(grpc::CreateCustomChannel(
          address(), grpc::SslCredentials(options), arguments));
      ++(Infer(stub, "x").status.ok() ? answered : lost);
    }
  });
  Publish(renewed_.Issue("server"));
  events_.Await("new certificate");
  EXPECT_TRUE(Serves(renewed_));
  EXPECT_FALSE(Serves(authority_));
  Publish(authority_.Issue("server"));
  events_.Await("new certificate");
  EXPECT_TRUE(Serves(authority_));
  EXPECT_FALSE(Serves(renewed_));
  stop = true;
  on_the_old.join();
  on_new_ones.join();
  EXPECT_EQ(lost, 0);
  EXPECT_GT(answered, 0);
}

TEST_F(TlsCredentialsTest, ABrokenPairLeavesTheOldOneInUse) {
  Start();
  const IssuedCertificate next = renewed_.Issue("server");
  // Half written: the certificate without its key.
  Publish({next.certificate, authority_.Issue("server").key});
  events_.Await("--tls-key");
  EXPECT_TRUE(Serves(authority_));
  // Not next's key: one look may meet two versions, and those two would fit.
  Publish({"garbage", renewed_.Issue("server").key});
  events_.Await("no PEM certificate");
  EXPECT_TRUE(Serves(authority_));
  std::filesystem::remove(folder_.path() / "..data");
  events_.Await("No such file");
  EXPECT_TRUE(Serves(authority_));
  // And mended.
  Publish(next);
  events_.Await("new certificate");
  EXPECT_TRUE(Serves(renewed_));
  EXPECT_FALSE(Serves(authority_));
}

// The metrics of it: an alert must tell of a certificate before it ends.
TEST_F(TlsCredentialsTest, TellsWhenTheCertificateEndsAndThatNoneCanBeLoaded) {
  Start();
  const int64_t first = state_.expires_at;
  EXPECT_GT(first, absl::ToUnixSeconds(absl::Now()));
  EXPECT_EQ(state_.client_ca_expires_at, 0) << "nobody asks clients";
  EXPECT_EQ(state_.reload_failures, 0u);
  EXPECT_EQ(state_.handshakes, 0u);
  EXPECT_TRUE(Serves(authority_));
  EXPECT_GE(state_.handshakes, 1u);
  Publish({"garbage", renewed_.Issue("server").key});
  events_.Await("no PEM certificate");
  // As long as it is so: once for each look.
  while (state_.reload_failures < 3) std::this_thread::yield();
  EXPECT_EQ(state_.expires_at, first) << "that one is still in use";
  // One whose chain ends a day sooner than it; and a better one after that.
  constexpr int64_t kHalfADay = 12 * 3600;
  const auto publish = [this](const std::string& chain) {
    const IssuedCertificate next = authority_.Issue("server");
    Publish({next.certificate + chain, next.key});
    const std::string event = events_.Await("new certificate");
    EXPECT_THAT(event, HasSubstr(absl::FormatTime(
                           "valid until %Y-%m-%dT%H:%M:%SZ",
                           absl::FromUnixSeconds(state_.expires_at),
                           absl::UTCTimeZone())));
  };
  publish(TestAuthority("ending", 0).certificate());
  EXPECT_LT(state_.expires_at, first - kHalfADay);
  publish("");
  EXPECT_GE(state_.expires_at, first);
}

TEST_F(TlsCredentialsTest, FaultsAreFoundAtTheStart) {
  TlsOptions tls;
  tls.files = {Path("tls.crt"), "/no/such/key", ""};
  EXPECT_THAT(
      std::string(MakeTlsCredentials(std::move(tls)).status().message()),
      HasSubstr("--tls-key: /no/such/key: "));
}

}  // namespace
}  // namespace weir
