// weir-server as a process: its ready line, its exit codes, its signals.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "client/cpp/client.h"
#include "kernels/backend/devices.h"
#include "tests/models/temp_folder.h"
#include "tests/rpc/raw_http2.h"
#include "tests/rpc/test_certificates.h"
#include "tests/server/child_process.h"
#include "tests/server/model_folder.h"
#include "tests/server/raw_socket.h"
#include "tests/server/raw_stream.h"
#include "tests/server/server_fixture.h"

namespace weir::testing {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> ServerCommand(std::vector<std::string> more = {}) {
  std::vector<std::string> command = {BuiltProgram("weir-server"),
                                      "--device=cpu", "--cpu-threads=1",
                                      "--io-threads=1"};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

struct Addresses {
  std::string grpc;
  std::string http;
};

Addresses ReadAddresses(std::string line) {
  // With --log-format=json, as every line.
  if (const auto json = nlohmann::json::parse(line, nullptr, false);
      json.is_object()) {
    EXPECT_EQ(json["level"], "info");
    EXPECT_TRUE(json.contains("time"));
    line = json["message"];
  }
  std::smatch match;
  const std::regex form(
      "weir-server [0-9.]+ ready: grpc=(\\S+) http=(\\S+) device=cpu "
      "models=[0-9]+ after [0-9]+ ms");
  EXPECT_TRUE(std::regex_match(line, match, form)) << line;
  if (match.size() < 3) return {};
  return {match[1], match[2]};
}

TEST(ProcessTest, SaysWhenItIsReadyAndEndsWithZeroAfterSigterm) {
  for (int number : {SIGTERM, SIGINT}) {
    ChildProcess process(
        ServerCommand({"--grpc=127.0.0.1:0", "--http=127.0.0.1:0",
                       "--drain-delay=0", "--max-connection-age=0"}));
    const Addresses addresses = ReadAddresses(process.ReadLine());
    EXPECT_THAT(addresses.grpc, ::testing::Not(HasSubstr(":0")));
    const auto serving =
        client::Client({.address = addresses.grpc}).IsServing();
    ASSERT_TRUE(serving.ok()) << serving.status();
    EXPECT_TRUE(*serving);
    process.Signal(number);
    EXPECT_EQ(process.Wait(), 0);
    EXPECT_THAT(process.err(), HasSubstr("draining"));
  }
}

TEST(ProcessTest, DrainsInOrderAfterSigterm) {
  ChildProcess process(
      ServerCommand({"--grpc=127.0.0.1:0", "--http=127.0.0.1:0",
                     "--drain-delay=600", "--enable-test-operators"}));
  const Addresses addresses = ReadAddresses(process.ReadLine());
  client::Client client({.address = addresses.grpc});
  ASSERT_TRUE(*client.IsServing());
  process.Signal(SIGTERM);
  // Unready, and serving on, on new connections too.
  EXPECT_TRUE(Eventually([&] { return !*client.IsServing(); }));
  EXPECT_TRUE(client.Evaluate(IdentityRequest()).ok());
  client::Client late({.address = addresses.grpc});
  EXPECT_TRUE(late.Evaluate(IdentityRequest()).ok());
  // Once more: no more waiting.
  process.Signal(SIGTERM);
  for (client::Client* each : {&client, &late}) {
    EXPECT_TRUE(Eventually([&] {
      return each->IsServing().status().code() ==
             absl::StatusCode::kUnavailable;
    }));
  }
  EXPECT_EQ(process.Wait(), 0);
}

// As an operator sees it: the command, the log, the exit code.
TEST(ProcessTest, DrainsWhenTheOperatorAsks) {
  const TempFolder folder;
  ChildProcess process(ServerCommand(
      {"--grpc=unix:" + (folder.path() / "socket").string(),
       "--http=127.0.0.1:0", "--drain-delay=0", "--max-connection-age=0",
       "--log-format=json", "--log-level=debug"}));
  const std::string ready = process.ReadLine();
  EXPECT_TRUE(nlohmann::json::accept(ready)) << ready;
  const Addresses addresses = ReadAddresses(ready);
  ChildProcess quiet({BuiltProgram("weir"), "--server=" + addresses.grpc,
                      "admin", "log-level", "info"});
  EXPECT_EQ(quiet.Wait(), 0);
  EXPECT_EQ(quiet.out(), "log level info, was debug\n");
  ChildProcess drain(
      {BuiltProgram("weir"), "--server=" + addresses.grpc, "admin", "drain"});
  EXPECT_EQ(drain.Wait(), 0) << drain.err();
  EXPECT_THAT(drain.out(), HasSubstr("draining; "));
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_EQ(process.out(), "");
  std::vector<std::string> messages;
  std::istringstream lines(process.err());
  for (std::string line; std::getline(lines, line);) {
    const auto event = nlohmann::json::parse(line);
    EXPECT_EQ(event["level"], "info");
    messages.push_back(event["message"]);
  }
  EXPECT_THAT(messages, ::testing::ElementsAre("draining", "drained"));
}

// Kubernetes sends SIGTERM after its preStop hook: not a reason to hurry.
TEST(ProcessTest, OneSigtermDoesNotHurryADrainThatTheOperatorAskedFor) {
  const TempFolder folder;
  ChildProcess process(
      ServerCommand({"--grpc=127.0.0.1:0", "--http=127.0.0.1:0",
                     "--admin-token-file=" + folder.Write("token", "word"),
                     "--drain-delay=3600", "--drain-timeout=3600",
                     "--max-connection-age=0"}));
  const Addresses addresses = ReadAddresses(process.ReadLine());
  client::Client client({.address = addresses.grpc});
  EXPECT_TRUE(absl::IsUnauthenticated(client.Drain().status()));
  const auto drained = client.Drain("word");
  ASSERT_TRUE(drained.ok()) << drained.status();
  EXPECT_TRUE(drained->started());
  EXPECT_TRUE(Eventually([&] { return !*client.IsServing(); }));
  // Whoever asks once more is not told that it begins now.
  ChildProcess again({BuiltProgram("weir"), "--server=" + addresses.grpc,
                      "admin", "--token-file=" + folder.Write("token", "word"),
                      "drain"});
  EXPECT_EQ(again.Wait(), 0) << again.err();
  EXPECT_EQ(again.out(),
            "draining already; takes new connections for 3600 s, cuts what is "
            "left after 7200 s, both from the beginning of the drain; 0 "
            "requests in flight\n");
  process.Signal(SIGTERM);
  EXPECT_TRUE(process.AwaitErr("draining already"));
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(client.IsServing().ok());
  process.Signal(SIGINT);
  EXPECT_EQ(process.Wait(), 0);
}

TEST(ProcessTest, ListensOnAUnixSocket) {
  TempFolder folder;
  const std::string path = (folder.path() / "socket").string();
  ChildProcess process(
      ServerCommand({"--grpc=unix:" + path, "--http=127.0.0.1:0",
                     "--drain-delay=0", "--max-connection-age=0"}));
  EXPECT_EQ(ReadAddresses(process.ReadLine()).grpc, "unix:" + path);
  EXPECT_TRUE(*client::Client({.address = "unix:" + path}).IsServing());
  // A second server must not take the path from the first.
  ChildProcess second(
      ServerCommand({"--grpc=unix:" + path, "--http=127.0.0.1:0"}));
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_THAT(second.err(), HasSubstr(path));
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_FALSE(std::filesystem::exists(path));
}

// One line with cause and remedy.
void ExpectRunTimeFailure(ChildProcess& process, const std::string& part,
                          int code = 1) {
  EXPECT_EQ(process.Wait(), code);
  EXPECT_EQ(process.out(), "");
  EXPECT_THAT(process.err(), HasSubstr(part));
  EXPECT_EQ(process.err().find('\n'), process.err().size() - 1)
      << process.err();
}

TEST(ProcessTest, APortInUseIsAnError) {
  TestServer first;
  ChildProcess grpc(ServerCommand({"--grpc=" + first.address(), "--http=off"}));
  ExpectRunTimeFailure(grpc, first.address());
  ChildProcess http(ServerCommand(
      {"--grpc=127.0.0.1:0", "--http=" + first.server().http_address()}));
  ExpectRunTimeFailure(http, first.server().http_address());
  EXPECT_TRUE(ServesOn(first));
}

// Whoever collects the log as JSON reads there why a pod does not start.
TEST(ProcessTest, AFailedStartIsLoggedAsItsFormatSays) {
  ChildProcess process(
      ServerCommand({"--grpc=127.0.0.1:0", "--http=off", "--log-format=json",
                     "--model-repository=/no/such/folder"}));
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_EQ(process.out(), "");
  std::istringstream lines(process.err());
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  const auto event =
      nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  ASSERT_FALSE(event.is_discarded()) << line;
  EXPECT_EQ(event["level"], "error");
  EXPECT_EQ(event["message"], "the server does not start");
  EXPECT_THAT(event["error"].get<std::string>(),
              HasSubstr("--model-repository: /no/such/folder"));
  EXPECT_FALSE(std::getline(lines, line)) << line;
}

// The flag, what it names, and why not.
void ExpectBadStart(const std::string& flag, const std::string& value,
                    const std::string& cause,
                    const std::vector<std::string>& more = {}) {
  std::vector<std::string> flags = {"--grpc=127.0.0.1:0", "--http=off"};
  if (flag == "--grpc") flags.erase(flags.begin());
  flags.push_back(flag + "=" + value);
  flags.insert(flags.end(), more.begin(), more.end());
  ChildProcess process(ServerCommand(flags));
  ExpectRunTimeFailure(process, cause);
  EXPECT_THAT(process.err(), HasSubstr("weir-server: " + flag + ": "));
  EXPECT_THAT(process.err(), HasSubstr(value.substr(value.find(':') + 1)));
}

TEST(ProcessTest, AFolderThatCannotBeUsedIsAnError) {
  const TempFolder folder;
  const std::string file = folder.Write("file", "");
  ExpectBadStart("--model-repository", "/no/such/folder", "No such file");
  ExpectBadStart("--model-repository", file, "Not a directory");
  ExpectBadStart("--cache-dir", file, "Not a directory");
  ExpectBadStart("--cache-dir", file + "/below", "Not a directory");
  ExpectBadStart("--cache-dir", "/proc/weir", "No such file");
}

TEST(ProcessTest, ASocketThatCannotBeUsedIsAnError) {
  const TempFolder folder;
  ExpectBadStart("--grpc", "unix:/no/such/folder/socket", "No such file");
  ExpectBadStart("--grpc", "unix:" + folder.Write("file", ""),
                 "a file that is no socket is there");
  ExpectBadStart("--grpc", "unix:/tmp/" + std::string(120, 'x'), "107 bytes");
}

// Nothing is compiled for it.
TEST(ProcessTest, ACpuServerNeedsNoCacheFolder) {
  const TempFolder folder;
  for (const std::string& cache :
       {folder.path().string(), folder.Write("file", "")}) {
    setenv("XDG_CACHE_HOME", cache.c_str(), 1);
    ChildProcess process(
        ServerCommand({"--grpc=127.0.0.1:0", "--http=127.0.0.1:0",
                       "--drain-delay=0", "--max-connection-age=0"}));
    unsetenv("XDG_CACHE_HOME");
    const Addresses addresses = ReadAddresses(process.ReadLine());
    EXPECT_TRUE(*client::Client({.address = addresses.grpc}).IsServing());
    process.Signal(SIGTERM);
    EXPECT_EQ(process.Wait(), 0);
    EXPECT_THAT(process.err(), ::testing::Not(HasSubstr("cache")));
  }
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "weir"));
}

TEST(ProcessTest, TheSocketOfADeadServerIsTakenOver) {
  const TempFolder folder;
  const std::string address = "unix:" + (folder.path() / "socket").string();
  for (int number : {SIGKILL, SIGTERM}) {
    ChildProcess process(
        ServerCommand({"--grpc=" + address, "--http=127.0.0.1:0",
                       "--drain-delay=0", "--max-connection-age=0"}));
    EXPECT_EQ(ReadAddresses(process.ReadLine()).grpc, address);
    EXPECT_TRUE(*client::Client({.address = address, .own_connection = true})
                     .IsServing());
    process.Signal(number);
    EXPECT_EQ(process.Wait(), number == SIGKILL ? -1 : 0);
  }
}

TEST(ProcessTest, ATlsFileThatCannotBeUsedIsAnError) {
  const TempFolder folder;
  const TestAuthority authority("authority");
  const IssuedCertificate pair = authority.Issue("server");
  const std::string certificate = folder.Write("tls.crt", pair.certificate);
  const std::string key = folder.Write("tls.key", pair.key);
  ExpectBadStart("--tls-cert", "/no/such/file", "No such file",
                 {"--tls-key=" + key});
  ExpectBadStart("--tls-key", "/no/such/file", "No such file",
                 {"--tls-cert=" + certificate});
  ExpectBadStart("--tls-key",
                 folder.Write("other.key", authority.Issue("other").key),
                 "not the key", {"--tls-cert=" + certificate});
  ExpectBadStart("--tls-client-ca", folder.Write("garbage", "garbage"),
                 "no PEM certificate",
                 {"--tls-cert=" + certificate, "--tls-key=" + key});
}

// Until the only call that there is holds the one thread: it has a lane, and
// others get no turn.
void AwaitHeldThread(const Addresses& addresses) {
  EXPECT_TRUE(Eventually([&] {
    return HttpGet(addresses.http, "/metrics")
               .body.find(
                   "weir_stream_pool_lanes{device=\"cpu\",state=\"leased\"} "
                   "1\n") != std::string::npos;
  }));
  client::Client other(
      {.address = addresses.grpc, .timeout = absl::Milliseconds(300)});
  EXPECT_TRUE(Eventually([&] {
    return absl::IsDeadlineExceeded(
        other.Evaluate(SpinRequest(std::chrono::milliseconds(2))).status());
  }));
}

// A request that outlasts the drain: it is cut, and the process ends although
// the work cannot be taken back and an HTTP client sends nothing.
TEST(ProcessTest, NothingKeepsItBeyondTheDrainTimeout) {
  ChildProcess process(ServerCommand(
      {"--grpc=127.0.0.1:0", "--http=127.0.0.1:0", "--enable-test-operators",
       "--drain-delay=0", "--drain-timeout=0.2"}));
  const Addresses addresses = ReadAddresses(process.ReadLine());
  const int silent = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in where = {};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  where.sin_port = htons(static_cast<uint16_t>(
      std::stoi(addresses.http.substr(addresses.http.rfind(':') + 1))));
  EXPECT_EQ(connect(silent, reinterpret_cast<sockaddr*>(&where), sizeof(where)),
            0);
  client::Client client({.address = addresses.grpc});
  absl::Status cut;
  std::thread caller([&] {
    cut = client.Evaluate(SpinRequest(std::chrono::seconds(60))).status();
  });
  AwaitHeldThread(addresses);
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
  caller.join();
  EXPECT_FALSE(cut.ok());
  EXPECT_THAT(process.err(), ::testing::ContainsRegex("unanswered=[1-9]"));
  close(silent);
}

TEST(ProcessTest, ASecondSignalCutsCallsThatAreOpen) {
  ChildProcess process(ServerCommand(
      {"--grpc=127.0.0.1:0", "--http=127.0.0.1:0", "--enable-test-operators",
       "--drain-delay=0", "--drain-timeout=600", "--max-connection-age=0"}));
  const Addresses addresses = ReadAddresses(process.ReadLine());
  client::Client client(
      {.address = addresses.grpc, .timeout = absl::Minutes(10)});
  absl::Status cut;
  std::thread caller([&] {
    cut = client.Evaluate(SpinRequest(std::chrono::seconds(60))).status();
  });
  AwaitHeldThread(addresses);
  process.Signal(SIGTERM);
  EXPECT_TRUE(process.AwaitErr("draining"));
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
  caller.join();
  EXPECT_FALSE(cut.ok());
  EXPECT_THAT(process.err(), HasSubstr("draining without further waits"));
}

// Connections do not age here: no call is open any more when it waits for this.
TEST(ProcessTest, ASecondSignalCutsAReplyThatNobodyReads) {
  ChildProcess process(ServerCommand(
      {"--grpc=127.0.0.1:0", "--http=127.0.0.1:0", "--drain-delay=0",
       "--drain-timeout=600", "--max-connection-age=0", "--send-timeout=0"}));
  RawHttp2 client(ReadAddresses(process.ReadLine()).grpc, /*window=*/0);
  const std::string message = IdentityRequest().SerializeAsString();
  client.Begin(1, "/weir.v1.Evaluator/Evaluate");
  client.Send(1, RawHttp2::Prefix(message.size()) + message, /*last=*/true);
  ASSERT_TRUE(client.Await(1));
  process.Signal(SIGTERM);
  ASSERT_TRUE(client.AwaitGoAway());
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_THAT(process.err(), HasSubstr("draining without further waits"));
}

// Its output is read by nobody: a pipe holds 64 KiB.
TEST(ProcessTest, AReaderOfItsLogThatHangsHoldsNothingUp) {
  ChildProcess process(ServerCommand(
      {"--grpc=127.0.0.1:0", "--http=127.0.0.1:0", "--log-level=debug",
       "--drain-delay=0", "--max-connection-age=0"}));
  const Addresses addresses = ReadAddresses(process.ReadLine());
  client::Client client(
      {.address = addresses.grpc, .timeout = absl::Seconds(10)});
  for (int i = 0; i < 2000; ++i) {
    const auto answer = client.Evaluate(IdentityRequest());
    ASSERT_TRUE(answer.ok()) << i << " " << answer.status();
  }
  EXPECT_EQ(HttpGet(addresses.http, "/healthz").status, 200);
  process.Signal(SIGTERM);
  EXPECT_EQ(process.WaitUnread(), 0);
}

// As where a service manager bounds the size of files (LimitFSIZE), or a disk
// its user's part.
TEST(ProcessTest, AFileThatMayNotGrowCostsLinesOfTheLogAlone) {
  const TempFolder folder;
  const std::string file = folder.Write("log", "");
  // One block of 512 bytes; standard output is a pipe.
  std::vector<std::string> command = {
      "/bin/sh", "-c", "ulimit -f 1 && exec \"$@\" 2>\"$0\"", file};
  for (std::string& word : ServerCommand(
           {"--grpc=127.0.0.1:0", "--http=127.0.0.1:0", "--log-level=debug",
            "--drain-delay=0", "--max-connection-age=0"})) {
    command.push_back(std::move(word));
  }
  ChildProcess process(command);
  const Addresses addresses = ReadAddresses(process.ReadLine());
  client::Client client({.address = addresses.grpc});
  EXPECT_TRUE(Eventually([&] {
    const auto answer = client.Evaluate(IdentityRequest());
    EXPECT_TRUE(answer.ok()) << answer.status();
    if (!answer.ok()) return true;
    const std::string page = HttpGet(addresses.http, "/metrics").body;
    return std::regex_search(
        page, std::regex("\nweir_log_lines_dropped_total [1-9]"));
  }));
  EXPECT_EQ(std::filesystem::file_size(file), 512u);
  const auto answer = client.Evaluate(IdentityRequest());
  EXPECT_TRUE(answer.ok()) << answer.status();
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
}

// Nor do libraries write around it: protobuf has a line for each text that is
// not UTF-8, and these are more than the pipe holds.
TEST(ProcessTest, NothingButItsLogIsOnStandardError) {
  ChildProcess process(ServerCommand(
      {"--grpc=127.0.0.1:0", "--http=127.0.0.1:0", "--log-format=json",
       "--drain-delay=0", "--max-connection-age=0"}));
  const Addresses addresses = ReadAddresses(process.ReadLine());
  auto channel =
      grpc::CreateChannel(addresses.grpc, grpc::InsecureChannelCredentials());
  for (int i = 0; i < 600; ++i) {
    const grpc::Status status =
        CallRaw(channel, "/inference.GRPCInferenceService/ModelReady",
                WithField(1, "\xff"));
    ASSERT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT)
        << i << " " << status.error_message();
  }
  channel.reset();
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
  std::istringstream lines(process.err());
  for (std::string line; std::getline(lines, line);) {
    EXPECT_TRUE(nlohmann::json::accept(line)) << line;
  }
}

// As after a loss that no new process can mend.
TEST(ProcessTest, AStartWithoutTheDeviceEndsWithThree) {
  ChildProcess process({"/usr/bin/env",
                        "CUDA_VISIBLE_DEVICES=", BuiltProgram("weir-server"),
                        "--device=cuda", "--grpc=127.0.0.1:0", "--http=off"});
  ExpectRunTimeFailure(process, "--device=cuda", 3);
}

// A server whose start is held, see held_start.cc.
std::vector<std::string> HeldServerCommand(const std::string& at,
                                           std::vector<std::string> more) {
  std::vector<std::string> command = ServerCommand(std::move(more));
  const std::string held = BuiltProgram("../test-bin/weir_held_start.so");
  command.insert(command.begin(),
                 {"/usr/bin/env", "HELD=" + at, "LD_PRELOAD=" + held});
  return command;
}

// Whatever it waits for: it has nothing to drain.
TEST(ProcessTest, ASignalEndsAStartThatHangs) {
  for (const bool json : {false, true}) {
    ChildProcess server(HeldServerCommand(
        "bind", {json ? "--log-format=json" : "--log-format=text"}));
    ASSERT_TRUE(server.AwaitErr("the start is held\n"));
    server.Signal(SIGTERM);
    EXPECT_EQ(server.Wait(), 0) << server.err();
    EXPECT_EQ(server.out(), "");
    EXPECT_THAT(server.err(),
                HasSubstr(json ? R"("cause":"SIGTERM")"
                               : "SIGTERM before the server is open\n"));
  }
}

// Calls may have come by then, before the start is over.
TEST(ProcessTest, ASignalWhileThePortsAreOpenedDrains) {
  ChildProcess server(HeldServerCommand(
      "listen", {"--grpc=127.0.0.1:0", "--http=off", "--drain-delay=0"}));
  ASSERT_TRUE(server.AwaitErr("the start is held\n"));
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0) << server.err();
  EXPECT_THAT(server.err(), HasSubstr("drained"));
  EXPECT_THAT(server.err(), ::testing::Not(HasSubstr("before the server")));
}

TEST(ProcessTest, ASignalWhileModelsLoadEndsItAtOnce) {
  ModelFolder models;
  WriteManySlowModels(models);
  for (int number : {SIGTERM, SIGINT}) {
    const TempFolder folder;
    const std::string address = "unix:" + (folder.path() / "socket").string();
    ChildProcess process(ServerCommand({"--grpc=" + address, "--http=off",
                                        "--model-repository=" + models.path(),
                                        "--drain-delay=600"}));
    EXPECT_TRUE(Eventually([&] {
      return client::Client({.address = address, .own_connection = true})
          .IsServing("live")
          .value_or(false);
    }));
    process.Signal(number);
    EXPECT_EQ(process.Wait(), 0);
    EXPECT_EQ(process.out(), "");  // it never was ready
    EXPECT_THAT(process.err(), HasSubstr("drained"));
  }
}

TEST(ProcessTest, SaysThatItIsNotReadyWithoutItsModels) {
  const TempFolder empty;
  ChildProcess process(ServerCommand(
      {"--grpc=127.0.0.1:0", "--http=127.0.0.1:0", "--drain-delay=0",
       "--max-connection-age=0", "--strict-readiness",
       "--model-repository=" + empty.path().string()}));
  const std::string line = process.ReadLine();
  EXPECT_THAT(line, HasSubstr(" unready: grpc="));
  EXPECT_THAT(line, HasSubstr("--strict-readiness: there is no model in " +
                              empty.path().string()));
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
}

// Whoever evaluates it loses the device.
v1::EvaluateRequest DeviceFaultRequest() {
  v1::EvaluateRequest fault = Program(R"(
      inputs { name: "x" }
      nodes { domain: "weir" op: "Fault" inputs: "x" outputs: "y"
              attributes { name: "mode" s: "trap" } }
      outputs: "y")");
  AddInput(&fault, "x", v1::DATA_TYPE_FLOAT, {1}, Bytes<float>({1}));
  return fault;
}

void ExpectEndAfterLoss(ChildProcess& process) {
  EXPECT_EQ(process.Wait(), 3);
  EXPECT_THAT(process.err(), HasSubstr("weir.Fault"));
  EXPECT_THAT(process.err(),
              HasSubstr("so that a new one can take the device"));
  EXPECT_THAT(process.err(), HasSubstr("what ran when it was lost"));
}

TEST(ProcessTest, ALostDeviceEndsItWithThree) {
  ChildProcess process(
      ServerCommand({"--grpc=127.0.0.1:0", "--http=127.0.0.1:0",
                     "--enable-test-operators", "--drain-delay=600"}));
  const Addresses addresses = ReadAddresses(process.ReadLine());
  client::Client client({.address = addresses.grpc});
  EXPECT_TRUE(
      absl::IsUnavailable(client.Evaluate(DeviceFaultRequest()).status()));
  ExpectEndAfterLoss(process);
}

// Nobody reads its log, whose last lines it would wait for. A pipe holds 64
// KiB.
TEST(ProcessTest, ALostDeviceEndsItWithThreeWhateverHangs) {
  ChildProcess process(
      ServerCommand({"--grpc=127.0.0.1:0", "--http=127.0.0.1:0",
                     "--enable-test-operators", "--log-level=debug"}));
  const Addresses addresses = ReadAddresses(process.ReadLine());
  client::Client client({.address = addresses.grpc});
  for (int i = 0; i < 2000; ++i) {
    const auto answer = client.Evaluate(IdentityRequest());
    ASSERT_TRUE(answer.ok()) << i << " " << answer.status();
  }
  EXPECT_TRUE(
      absl::IsUnavailable(client.Evaluate(DeviceFaultRequest()).status()));
  EXPECT_EQ(process.WaitUnread(), 3);
}

// Neither the delay nor an idle connection holds a drain whose device is lost.
TEST(ProcessTest, ADeviceLostDuringTheDelayOfADrainEndsItWithThree) {
  ChildProcess process(
      ServerCommand({"--grpc=127.0.0.1:0", "--http=127.0.0.1:0",
                     "--enable-test-operators", "--drain-delay=60"}));
  const Addresses addresses = ReadAddresses(process.ReadLine());
  client::Client client({.address = addresses.grpc});
  ASSERT_TRUE(*client.IsServing());
  process.Signal(SIGTERM);
  EXPECT_TRUE(Eventually([&] { return !*client.IsServing(); }));
  EXPECT_TRUE(
      absl::IsUnavailable(client.Evaluate(DeviceFaultRequest()).status()));
  ExpectEndAfterLoss(process);
  EXPECT_THAT(process.err(), HasSubstr("cause=SIGTERM"));
}

TEST(ProcessTest, ADeviceLostWhileConnectionsAgeEndsItWithThree) {
  ChildProcess process(ServerCommand(
      {"--grpc=127.0.0.1:0", "--http=127.0.0.1:0", "--enable-test-operators",
       "--drain-delay=0", "--max-connection-age=3600", "--drain-timeout=60"}));
  const Addresses addresses = ReadAddresses(process.ReadLine());
  client::Client client({.address = addresses.grpc});
  ASSERT_TRUE(*client.IsServing());
  process.Signal(SIGTERM);
  EXPECT_TRUE(Eventually([&] {
    return absl::IsUnavailable(
        client::Client({.address = addresses.grpc, .own_connection = true})
            .IsServing()
            .status());
  }));
  EXPECT_TRUE(
      absl::IsUnavailable(client.Evaluate(DeviceFaultRequest()).status()));
  ExpectEndAfterLoss(process);
}

TEST(ProcessTest, ExitCodesTellUsageFromFailure) {
  ChildProcess unknown({BuiltProgram("weir-server"), "--no-such-flag"});
  EXPECT_EQ(unknown.Wait(), 2);
  EXPECT_THAT(unknown.err(), HasSubstr("--no-such-flag"));
  EXPECT_EQ(unknown.out(), "");
  ChildProcess exposed({BuiltProgram("weir-server"), "--grpc=0.0.0.0:0"});
  EXPECT_EQ(exposed.Wait(), 2);
  EXPECT_THAT(exposed.err(), HasSubstr("--insecure"));
  ChildProcess version({BuiltProgram("weir-server"), "--version"});
  EXPECT_EQ(version.Wait(), 0);
  EXPECT_EQ(version.out(), std::string("weir-server ") + Version() + " build " +
                               std::string(BuildId()) + "\n");
  // The command line has a copy of its own.
  ChildProcess client({BuiltProgram("weir"), "--version"});
  EXPECT_EQ(client.Wait(), 0);
  EXPECT_THAT(client.out(),
              HasSubstr(" build " + std::string(BuildId()) + "\n"));
}

}  // namespace
}  // namespace weir::testing
