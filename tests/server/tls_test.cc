// TLS from flags to command line: weir-server and weir as processes, the C++
// client and its advice when something does not fit.
#include <gmock/gmock.h>
#include <signal.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "client/cpp/client.h"
#include "client/cpp/load.h"
#include "tests/models/temp_folder.h"
#include "tests/rpc/test_certificates.h"
#include "tests/server/child_process.h"
#include "tests/server/raw_socket.h"
#include "tests/server/server_fixture.h"

namespace weir::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TlsTest : public ::testing::Test {
 protected:
  TlsTest() {
    Write("server", authority_.Issue("server"));
    Write("client", clients_.Issue("client"));
    Write("stranger", authority_.Issue("stranger"));
    folder_.Write("ca.crt", authority_.certificate());
    folder_.Write("clients.crt", clients_.certificate());
  }

  void Write(const std::string& name, const IssuedCertificate& pair) {
    folder_.Write(name + ".crt", pair.certificate);
    folder_.Write(name + ".key", pair.key);
  }

  std::string Path(const std::string& name) const {
    return (folder_.path() / name).string();
  }

  // A server on all addresses of the machine: with TLS that needs no
  // --insecure.
  void Start(const std::vector<std::string>& more = {}) {
    std::vector<std::string> command = {
        BuiltProgram("weir-server"),
        "--device=cpu",
        "--cpu-threads=1",
        "--io-threads=2",
        "--drain-delay=0",
        "--max-connection-age=1",
        "--grpc=0.0.0.0:0,unix:" + Path("socket"),
        "--http=0.0.0.0:0",
        "--model-repository=" + TestData("data"),
        "--tls-cert=" + Path("server.crt"),
        "--tls-key=" + Path("server.key")};
    command.insert(command.end(), more.begin(), more.end());
    server_ = std::make_unique<ChildProcess>(command);
    const std::string ready = server_->ReadLine();
    address_ = AddressIn(ready, "grpc=");
    http_ = AddressIn(ready, "http=");
  }

  // Of the port that the ready line tells after `before`, on this machine.
  static std::string AddressIn(const std::string& ready,
                               const std::string& before) {
    const size_t port = ready.find(':', ready.find(before)) + 1;
    return "127.0.0.1:" +
           ready.substr(port, ready.find_first_of(", ", port) - port);
  }

  std::vector<std::string> ExpirySeries() const {
    const std::string name = "weir_tls_certificate_expiry_timestamp_seconds{";
    std::vector<std::string> found;
    std::istringstream text(HttpGet(http_, "/metrics").body);
    for (std::string line; std::getline(text, line);) {
      if (line.rfind(name, 0) == 0) found.push_back(line);
    }
    return found;
  }

  client::ClientOptions Options(const client::TlsFiles& files) const {
    auto tls = client::ReadTlsFiles(files);
    EXPECT_TRUE(tls.ok()) << tls.status();
    return {.address = address_, .tls = tls.value_or(client::TlsOptions())};
  }

  // Why a call with these files fails; "" if it does not.
  std::string Fault(const client::TlsFiles& files) const {
    const auto serving = client::Client(Options(files)).IsServing();
    if (serving.ok()) return "";
    EXPECT_EQ(serving.status().code(), absl::StatusCode::kUnavailable);
    return std::string(serving.status().message());
  }

  struct Ran {
    int code;
    std::string out;
    std::string err;
  };
  Ran Weir(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(),
                     {BuiltProgram("weir"), "--server=" + address_});
    ChildProcess process(arguments);
    const int code = process.Wait();
    return {code, process.out(), process.err()};
  }

  const TestAuthority authority_{"authority"};
  const TestAuthority clients_{"clients"};
  TempFolder folder_;
  std::unique_ptr<ChildProcess> server_;
  std::string address_ = "127.0.0.1:1";  // nobody
  std::string http_;
};

TEST_F(TlsTest, EveryCommandTalksTls) {
  const std::string token = folder_.Write("token", "word");
  Start({"--admin-token-file=" + token});
  const std::string ca = "--tls-ca=" + Path("ca.crt");
  const std::string input =
      "image=@" + TestData("data/digits_samples.f32") + ":float:360x1x8x8";
  const std::string program =
      folder_.Write("identity.textproto", R"(definition {
    inputs { name: "x" }
    nodes { op: "Identity" inputs: "x" outputs: "y" }
    outputs: "y" })");
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{
           {"status"},
           {"status", "--probe"},
           {"models"},
           {"devices"},
           {"ops"},
           {"admin", "--token-file=" + token, "log-level", "info"},
           {"eval", program, "--input=x=float:1:1"},
           {"infer", "digits", "--input=" + input},
           {"load", "--program=" + program, "--input=x=float:1:1",
            "--duration=0.2", "--warmup=0"}}) {
    std::vector<std::string> with = {ca};
    with.insert(with.end(), command.begin(), command.end());
    const Ran secure = Weir(with);
    EXPECT_EQ(secure.code, 0) << command[0] << ": " << secure.err;
    const Ran plain = Weir(command);
    EXPECT_EQ(plain.code, 1) << command[0];
    EXPECT_THAT(plain.out + plain.err, HasSubstr("--tls-ca")) << command[0];
  }
  // Beside it the unix socket is plain.
  address_ = "unix:" + Path("socket");
  EXPECT_EQ(Weir({"status", "--probe"}).out, "SERVING\n");
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait(), 0);
}

TEST_F(TlsTest, AFaultSaysWhichFlagMendsIt) {
  Start({"--tls-client-ca=" + Path("clients.crt")});
  const client::TlsFiles good = {.ca = Path("ca.crt"),
                                 .cert = Path("client.crt"),
                                 .key = Path("client.key"),
                                 .server_name = ""};
  EXPECT_EQ(Fault(good), "");
  client::TlsFiles files = good;
  files.server_name = "weir.test";
  EXPECT_EQ(Fault(files), "");
  files.server_name = "other.test";
  EXPECT_THAT(Fault(files), HasSubstr("--tls-server-name"));
  files = good;
  files.ca = Path("clients.crt");
  EXPECT_THAT(Fault(files), HasSubstr("--tls-ca"));
  files = good;
  files.cert = files.key = "";
  EXPECT_THAT(Fault(files), HasSubstr("give --tls-cert and --tls-key"));
  files.cert = Path("stranger.crt");
  files.key = Path("stranger.key");
  EXPECT_THAT(Fault(files), HasSubstr("authority of --tls-cert"));
  files.key = Path("client.key");
  EXPECT_THAT(Fault(files), HasSubstr("not the certificate's"));
  EXPECT_THAT(Fault({}), HasSubstr("give --tls-ca"));
  address_ = "unix:" + Path("socket");
  EXPECT_THAT(Fault(good), HasSubstr("without TLS"));
}

TEST_F(TlsTest, WrongFilesOfAClientAreFoundBeforeTheCall) {
  const std::string ca = "--tls-ca=" + Path("ca.crt");
  const auto expect = [&](std::vector<std::string> flags, int code,
                          const std::string& part) {
    flags.push_back("status");
    const Ran ran = Weir(flags);
    EXPECT_EQ(ran.code, code) << ran.err;
    EXPECT_THAT(ran.err, HasSubstr(part));
    EXPECT_EQ(ran.err.find('\n'), ran.err.size() - 1) << ran.err;
  };
  expect({ca, "--tls-cert=" + Path("client.crt")}, 2, "--tls-key");
  expect({ca, "--tls-key=" + Path("client.key")}, 2, "--tls-cert");
  expect({"--tls-server-name=weir.test"}, 2, "--tls-ca");
  expect(
      {"--tls-cert=" + Path("client.crt"), "--tls-key=" + Path("client.key")},
      2, "--tls-ca");
  expect({"--tls-ca=/no/such/ca"}, 1, "--tls-ca: /no/such/ca: ");
  expect({"--tls-ca=" + folder_.path().string()}, 1, "--tls-ca: ");
  const std::string empty = folder_.Write("empty", "");
  expect({"--tls-ca=" + empty}, 1, "--tls-ca: " + empty + ": no PEM");
  expect({ca, "--tls-cert=" + Path("client.key"),
          "--tls-key=" + Path("client.key")},
         1, "--tls-cert: ");
}

// Whom a server asks for a certificate it knows by that.
TEST_F(TlsTest, ASpaceBelongsToTheSubjectOfACertificate) {
  Write("other", clients_.Issue("other"));
  Start({"--tls-client-ca=" + Path("clients.crt")});
  const auto files = [this](const std::string& name) {
    return client::TlsFiles{.ca = Path("ca.crt"),
                            .cert = Path(name + ".crt"),
                            .key = Path(name + ".key"),
                            .server_name = ""};
  };
  client::Client mine(Options(files("client")));
  client::Client others(Options(files("other")));
  // Without a subject another of its names has to do, and is told from one.
  Write("nameless", clients_.Issue("", "DNS:nameless.test"));
  client::Client nameless(Options(files("nameless")));
  client::Client nobodys({.address = "unix:" + Path("socket")});
  v1::OpenSpaceRequest request;
  request.set_label("mine");
  const auto opened = mine.OpenSpace(request);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const auto space = mine.GetSpace(opened->token());
  ASSERT_TRUE(space.ok()) << space.status();
  EXPECT_EQ(space->identity(), "CN=client");
  for (client::Client* stranger : {&others, &nameless, &nobodys}) {
    EXPECT_EQ(stranger->GetSpace(opened->token()).status().code(),
              absl::StatusCode::kNotFound);
    EXPECT_EQ(stranger->CloseSpace(opened->token()).status().code(),
              absl::StatusCode::kNotFound);
    const auto list = stranger->ListSpaces();
    ASSERT_TRUE(list.ok()) << list.status();
    EXPECT_EQ(list->total(), 0u);
  }
  ASSERT_TRUE(mine.OpenSpace(request).ok());
  // On a connection of its own, page by page or at once.
  const auto list = client::Client(Options(files("client"))).ListSpaces();
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_EQ(list->spaces_size(), 2);
  EXPECT_LT(list->spaces(0).id(), list->spaces(1).id());
  EXPECT_EQ(list->spaces(0).label(), "mine");
  EXPECT_GT(list->spaces(0).idle_ns(), 0);
  EXPECT_EQ(list->total(), 2u);
  ASSERT_TRUE(nobodys.OpenSpace(request).ok());
  const auto anonymous = nobodys.ListSpaces();
  ASSERT_TRUE(anonymous.ok()) << anonymous.status();
  EXPECT_EQ(anonymous->spaces_size(), 0);
  EXPECT_EQ(anonymous->total(), 1u);
  EXPECT_TRUE(mine.CloseSpace(opened->token()).ok());
  ASSERT_TRUE(nameless.OpenSpace(request).ok());
  const auto named = nameless.ListSpaces();
  ASSERT_TRUE(named.ok()) << named.status();
  ASSERT_EQ(named->spaces_size(), 1);
  EXPECT_EQ(named->spaces(0).identity(), "SAN=nameless.test");
}

// A certificate renewed on disk while a load runs on old and new connections.
TEST_F(TlsTest, ARenewalUnderLoadLosesNoCall) {
  Start();
  client::TlsFiles files;
  files.ca = Path("ca.crt");
  v1::EvaluateRequest request = IdentityRequest();
  request.set_mode(v1::EVAL_MODE_SYNC_FULL);
  client::LoadOptions load;
  load.address = address_;
  load.tls = Options(files).tls;
  load.method = "/weir.v1.Evaluator/Evaluate";
  load.request = request.SerializeAsString();
  load.callers = 8;
  load.threads = 4;
  load.warmup_seconds = 0;
  load.seconds = 4;
  bool renewed = false;
  const client::LoadResult result =
      client::RunLoad(load, [&](const client::LoadProgress&) {
        if (std::exchange(renewed, true)) return;
        // The key comes after the certificate: half a pair in between.
        const IssuedCertificate next = authority_.Issue("renewed");
        for (const auto& [name, text] :
             {std::pair(Path("server.crt"), next.certificate),
              std::pair(Path("server.key"), next.key)}) {
          folder_.Write("next", text);
          std::filesystem::rename(folder_.path() / "next", name);
        }
      });
  EXPECT_EQ(result.error_count(), 0) << result.first_error;
  EXPECT_GT(result.calls, 0);
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait(), 0);
  EXPECT_THAT(server_->err(), HasSubstr("new certificate in use"));
}

// What an alert of certificates near their end reads.
TEST_F(TlsTest, MetricsTellWhenWhichCertificatesEnd) {
  const std::string lasting = TestAuthority("lasting", 9).certificate();
  folder_.Write("clients.crt", lasting);
  Start();
  EXPECT_THAT(ExpirySeries(), ElementsAre(HasSubstr("{file=\"certificate\"}")));
  Start({"--tls-client-ca=" + Path("clients.crt")});
  const std::vector<std::string> series = ExpirySeries();
  ASSERT_THAT(series, ElementsAre(HasSubstr("{file=\"certificate\"}"),
                                  HasSubstr("{file=\"client_ca\"}")));
  const auto ends = [](const std::string& line) {
    return std::stod(line.substr(line.find(' ')));
  };
  constexpr double kDay = 24 * 3600;
  EXPECT_NEAR(ends(series[1]) - ends(series[0]), 8 * kDay, kDay / 2);
}

// What an alert reads that tells of clients whom nobody lets in, as after a
// renewal with another authority for clients.
TEST_F(TlsTest, MetricsTellOfHandshakesThatFail) {
  Start({"--tls-client-ca=" + Path("clients.crt")});
  const auto metric = [this](const std::string& name) {
    const std::string text = "\n" + HttpGet(http_, "/metrics").body;
    const size_t at = text.find("\n" + name + " ");
    EXPECT_NE(at, std::string::npos) << name;
    return std::stoi(text.substr(at + name.size() + 2));
  };
  const std::string begun = "weir_tls_handshakes_total";
  const std::string failed = "weir_tls_handshake_failures_total";
  EXPECT_EQ(metric(begun), 0);
  EXPECT_EQ(metric(failed), 0);
  client::TlsFiles files = {.ca = Path("ca.crt"),
                            .cert = Path("client.crt"),
                            .key = Path("client.key"),
                            .server_name = ""};
  EXPECT_EQ(Fault(files), "");
  EXPECT_GE(metric(begun), 1);
  EXPECT_EQ(metric(failed), 0);
  const auto fails = [&] {
    const int before = metric(failed);
    EXPECT_NE(Fault(files), "");
    EXPECT_GT(metric(failed), before);
  };
  files.cert = Path("stranger.crt");
  files.key = Path("stranger.key");
  fails();
  files.cert = files.key = "";
  fails();
  {
    RawSocket plain(address_);
    const int before = metric(failed);
    plain.Send("GET / HTTP/1.1\r\nHost: \"weir\"\r\n\r\n");
    plain.ReadToEnd();
    EXPECT_EQ(metric(failed), before + 1);
  }
  EXPECT_GT(metric(begun), metric(failed));
}

// Whoever speaks no TLS causes lines of gRPC's own. They are ours, and few.
TEST_F(TlsTest, PlainConnectionsDoNotFloodTheLog) {
  Start({"--log-format=json"});
  constexpr int kConnections = 500;
  for (int i = 0; i < kConnections; ++i) {
    RawSocket plain(address_);
    plain.Send("GET / HTTP/1.1\r\nHost: \"weir\"\r\n\r\n");
    plain.ReadToEnd();
  }
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait(), 0);
  int lines = 0;
  int64_t left_out = 0;
  std::istringstream err(server_->err());
  for (std::string line; std::getline(err, line);) {
    const auto event = nlohmann::json::parse(line, nullptr, false);
    ASSERT_FALSE(event.is_discarded()) << line;
    if (event["message"] == "gRPC") {
      EXPECT_EQ(event["level"], "warning");
      EXPECT_THAT(event["text"].get<std::string>(), HasSubstr("SSL"));
      ++lines;
    } else if (event["message"] == "lines of gRPC were left out") {
      left_out += event["count"].get<int64_t>();
    }
  }
  EXPECT_GE(lines, 20);
  EXPECT_LT(lines, 100);
  EXPECT_GE(lines + left_out, kConnections);
}

}  // namespace
}  // namespace weir::testing
