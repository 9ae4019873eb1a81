// weir-server as a process: its ready line, its exit codes, its signals.
#include <gmock/gmock.h>
#include <signal.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "client/cpp/client.h"
#include "tests/models_repo/temp_folder.h"
#include "tests/server/child_process.h"
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

Addresses ReadAddresses(const std::string& line) {
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
  ChildProcess process(ServerCommand(
      {"--grpc=127.0.0.1:0", "--http=127.0.0.1:0", "--drain-delay=0",
       "--max-connection-age=0", "--log-format=json", "--log-level=debug"}));
  const Addresses addresses = ReadAddresses(process.ReadLine());
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
  ChildProcess process(
      ServerCommand({"--grpc=127.0.0.1:0", "--http=127.0.0.1:0",
                     "--drain-delay=600", "--max-connection-age=0"}));
  const Addresses addresses = ReadAddresses(process.ReadLine());
  client::Client client({.address = addresses.grpc});
  const auto drained = client.Drain();
  ASSERT_TRUE(drained.ok()) << drained.status();
  EXPECT_TRUE(drained->started());
  EXPECT_TRUE(Eventually([&] { return !*client.IsServing(); }));
  process.Signal(SIGTERM);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(client.IsServing().ok());
  process.Signal(SIGINT);
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_THAT(process.err(), HasSubstr("draining already"));
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
void ExpectRunTimeFailure(ChildProcess& process, const std::string& part) {
  EXPECT_EQ(process.Wait(), 1);
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

TEST(ProcessTest, ADeviceThatIsNotThereIsAnError) {
  ChildProcess process({BuiltProgram("weir-server"), "--device=cuda:99",
                        "--grpc=127.0.0.1:0", "--http=off"});
  ExpectRunTimeFailure(process, "--device=cuda:99");
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
  EXPECT_EQ(version.out(), std::string("weir-server ") + Version() + "\n");
}

}  // namespace
}  // namespace weir::testing
