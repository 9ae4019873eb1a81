#include "server/options.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <cctype>
#include <regex>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/device_list.h"
#include "server/environment.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

std::variant<ServerOptions, ExitNow> Parse(std::vector<std::string> arguments) {
  std::vector<const char*> argv = {"weir-server"};
  for (const std::string& argument : arguments) {
    argv.push_back(argument.c_str());
  }
  return ParseServerOptions(static_cast<int>(argv.size()), argv.data());
}

ServerOptions Parsed(std::vector<std::string> arguments) {
  auto parsed = Parse(std::move(arguments));
  EXPECT_TRUE(std::holds_alternative<ServerOptions>(parsed));
  const auto* options = std::get_if<ServerOptions>(&parsed);
  return options == nullptr ? ServerOptions{} : *options;
}

// A usage error in one line that has `part` in it.
void ExpectUsageError(std::vector<std::string> arguments,
                      const std::string& part) {
  ::testing::internal::CaptureStderr();
  const auto parsed = Parse(arguments);
  const std::string text = ::testing::internal::GetCapturedStderr();
  SCOPED_TRACE(::testing::PrintToString(arguments));
  ASSERT_TRUE(std::holds_alternative<ExitNow>(parsed));
  EXPECT_EQ(std::get<ExitNow>(parsed).code, 2);
  EXPECT_THAT(text, HasSubstr(part));
  EXPECT_EQ(text.find('\n'), text.size() - 1) << text;
}

class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    setenv(name, value, 1);
  }
  ~Environment() { unsetenv(name_); }

 private:
  const char* name_;
};

TEST(OptionsTest, ObservationHasItsFlags) {
  EXPECT_EQ(Parsed({}).log_format, LogFormat::kText);
  EXPECT_EQ(Parsed({}).log_level, LogLevel::kInfo);
  EXPECT_FALSE(Parsed({}).triton_metrics);
  EXPECT_EQ(Parsed({}).admin_token_file, "");
  // Whether it is there, this machine tells, not the command line.
  EXPECT_EQ(Parsed({"--admin-token-file=/no/such/file"}).admin_token_file,
            "/no/such/file");
  EXPECT_EQ(Parsed({"--log-format=json"}).log_format, LogFormat::kJson);
  EXPECT_EQ(Parsed({"--log-level=error"}).log_level, LogLevel::kError);
  EXPECT_TRUE(Parsed({"--triton-metrics"}).triton_metrics);
  EXPECT_EQ(Parsed({}).metrics_models, 100u);
  EXPECT_EQ(Parsed({"--metrics-models=0"}).metrics_models, 0u);
  EXPECT_EQ(Parsed({"--metrics-models=100000"}).metrics_models, 100'000u);
  EXPECT_THAT(Parsed({"--metrics-models=0"}).notes, ElementsAre());
  EXPECT_THAT(Parsed({"--metrics-models=0", "--triton-metrics"}).notes,
              ElementsAre(HasSubstr("--triton-metrics has no effect")));
  ExpectUsageError({"--metrics-models=100001"}, "--metrics-models: \"100001\"");
  ExpectUsageError({"--metrics-models=-1"}, "--metrics-models: \"-1\"");
  ExpectUsageError({"--metrics-models=all"}, "from 0 to 100000");
  const Environment level("WEIR_LOG_LEVEL", "debug");
  EXPECT_EQ(Parsed({}).log_level, LogLevel::kDebug);
  ExpectUsageError({"--log-level=loud"}, "--log-level");
  ExpectUsageError({"--log-format=xml"}, "--log-format");
}

TEST(OptionsTest, HasTheDocumentedDefaults) {
  const ServerOptions options = Parsed({});
  EXPECT_THAT(options.grpc, ElementsAre("127.0.0.1:8001"));
  EXPECT_EQ(options.http, "127.0.0.1:8002");
  EXPECT_EQ(options.model_control, "none");
  EXPECT_THAT(options.devices, ElementsAre("auto"));
  EXPECT_EQ(options.max_message_bytes, size_t{256} << 20);
  EXPECT_EQ(options.max_connection_age, absl::Seconds(15));
  EXPECT_LT(options.max_connection_age, options.drain_timeout);
  EXPECT_FALSE(options.insecure);
  EXPECT_FALSE(options.enable_test_operators);
}

TEST(OptionsTest, TakesEveryDocumentedFlag) {
  const ServerOptions options =
      Parsed({"--grpc=127.0.0.1:0,unix:/tmp/weir.sock",
              "--http=localhost:0",
              "--model-repository=/tmp",
              "--model-control=none",
              "--device=cpu",
              "--streams=3",
              "--queue-length=4",
              "--queue-bytes=65536",
              "--max-message-bytes=2048",
              "--max-connections=7",
              "--max-peer-connections=0",
              "--max-output-bytes=1000",
              "--max-scratch-bytes=2000",
              "--max-operations=3000",
              "--max-spaces=11",
              "--space-lease=12",
              "--space-tensor-bytes=13",
              "--space-tensors=14",
              "--space-contexts=15",
              "--space-timelines=16",
              "--space-works=17",
              "--space-sessions=18",
              "--linger=19",
              "--cache-dir=/tmp/cache",
              "--drain-delay=1.5",
              "--drain-timeout=2",
              "--max-connection-age=0",
              "--io-threads=5",
              "--cpu-threads=6"});
  EXPECT_THAT(options.grpc, ElementsAre("127.0.0.1:0", "unix:/tmp/weir.sock"));
  EXPECT_EQ(options.http, "localhost:0");
  EXPECT_EQ(options.model_repository, "/tmp");
  EXPECT_THAT(options.devices, ElementsAre("cpu"));
  EXPECT_EQ(options.streams, 3);
  EXPECT_EQ(options.queue_length, 4u);
  EXPECT_EQ(options.queue_bytes, 65536u);
  EXPECT_EQ(options.max_message_bytes, 2048u);
  EXPECT_EQ(options.max_connections, 7u);
  EXPECT_EQ(options.max_peer_connections, 0u);
  EXPECT_EQ(options.max_output_bytes, 1000u);
  EXPECT_EQ(options.max_scratch_bytes, 2000u);
  EXPECT_EQ(options.max_operations, 3000);
  EXPECT_EQ(options.max_spaces, 11u);
  EXPECT_EQ(options.space_lease, absl::Seconds(12));
  EXPECT_EQ(options.space_tensor_bytes, 13u);
  EXPECT_EQ(options.space_tensors, 14u);
  EXPECT_EQ(options.space_contexts, 15u);
  EXPECT_EQ(options.space_timelines, 16u);
  EXPECT_EQ(options.space_works, 17u);
  EXPECT_EQ(options.space_sessions, 18u);
  EXPECT_EQ(options.linger, absl::Seconds(19));
  EXPECT_EQ(options.cache_dir, "/tmp/cache");
  EXPECT_TRUE(options.cache_dir_given);
  EXPECT_EQ(options.drain_delay, absl::Seconds(1.5));
  EXPECT_EQ(options.drain_timeout, absl::Seconds(2));
  EXPECT_EQ(options.max_connection_age, absl::InfiniteDuration());
  EXPECT_EQ(options.io_threads, 5);
  EXPECT_EQ(options.cpu_threads, 6);
  EXPECT_THAT(Parsed({"--device=cuda:3"}).devices, ElementsAre("cuda:3"));
  EXPECT_EQ(Parsed({"--http=off"}).http, "");
  EXPECT_EQ(Parsed({"--http", "off", "--streams", "9"}).streams, 9);
}

TEST(OptionsTest, ADeviceListNamesEachDeviceOnce) {
  const auto names = [](const char* list) {
    const auto parsed = ParseDeviceList(list);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    return parsed.value_or(std::vector<std::string>());
  };
  EXPECT_THAT(names("auto"), ElementsAre("auto"));
  EXPECT_THAT(names("cpu"), ElementsAre("cpu"));
  EXPECT_THAT(names("cuda"), ElementsAre("cuda:0"));
  EXPECT_THAT(names("cuda:0,1"), ElementsAre("cuda:0", "cuda:1"));
  EXPECT_THAT(names("cuda:3,1,cuda:2,0"),
              ElementsAre("cuda:3", "cuda:1", "cuda:2", "cuda:0"));
  EXPECT_THAT(names("cuda,1"), ElementsAre("cuda:0", "cuda:1"));
  EXPECT_THAT(names("cuda:0,cpu"), ElementsAre("cuda:0", "cpu"));
  EXPECT_THAT(names("cpu,cuda:1"), ElementsAre("cpu", "cuda:1"));
  for (const char* bad : {"", ",", "cpu,", ",cpu", "cuda:0,,1", "gpu", "cuda:",
                          "cuda:x", "cuda:0,x", "cuda:99999", "cuda:-1", "0",
                          "cpu,0", "cpu, cuda:0", "cuda:all", "cpu:1"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseDeviceList(bad).status())) << bad;
  }
  for (const char* twice : {"cpu,cpu", "cuda,cuda:0", "cuda:1,1", "cuda:1,01",
                            "cuda:0,cpu,cuda:0"}) {
    EXPECT_THAT(std::string(ParseDeviceList(twice).status().message()),
                HasSubstr("twice"))
        << twice;
  }
  for (const char* among : {"auto,cpu", "cuda:0,auto"}) {
    EXPECT_THAT(std::string(ParseDeviceList(among).status().message()),
                HasSubstr("auto alone"))
        << among;
  }
}

TEST(OptionsTest, SeveralDevicesAskForOneProcess) {
  EXPECT_THAT(Parsed({"--device=cuda:0,1", "--isolation=none"}).devices,
              ElementsAre("cuda:0", "cuda:1"));
  EXPECT_EQ(Parsed({"--device=cuda:0", "--isolation=none"}).isolation, "none");
  EXPECT_EQ(Parsed({"--device=cuda:0"}).isolation, "");
  ExpectUsageError({"--device=cuda:0,1"}, "--isolation=none");
  ExpectUsageError({"--device=cpu,cuda:0"}, "--device=cpu,cuda:0");
  // There are no worker processes.
  ExpectUsageError({"--device=cuda:0,1", "--isolation=process"},
                   "--isolation=none");
  ExpectUsageError({"--isolation=process"}, "--isolation=process");
  ExpectUsageError({"--isolation=thread"}, "--isolation");
  ExpectUsageError({"--device=cpu,cpu", "--isolation=none"}, "--device");
  ExpectUsageError({"--device=cuda:0,0", "--isolation=none"}, "--device");
  const Environment device("WEIR_DEVICE", "cuda:0,cpu");
  ExpectUsageError({}, "--isolation=none");
  const Environment isolation("WEIR_ISOLATION", "none");
  EXPECT_THAT(Parsed({}).devices, ElementsAre("cuda:0", "cpu"));
}

TEST(OptionsTest, TheCacheFolderIsWhereTheUserKeepsCaches) {
  const Environment home("HOME", "/home/somebody");
  {
    const Environment xdg("XDG_CACHE_HOME", "/caches");
    EXPECT_EQ(Parsed({}).cache_dir, "/caches/weir");
  }
  EXPECT_EQ(Parsed({}).cache_dir, "/home/somebody/.cache/weir");
  EXPECT_FALSE(Parsed({}).cache_dir_given);
  EXPECT_EQ(Parsed({"--cache-dir=off"}).cache_dir, "");
  const Environment given("WEIR_CACHE_DIR", "/given");
  EXPECT_EQ(Parsed({}).cache_dir, "/given");
  EXPECT_TRUE(Parsed({}).cache_dir_given);
}

TEST(OptionsTest, ReadsTheEnvironmentButFlagsWin) {
  const Environment streams("WEIR_STREAMS", "5");
  const Environment grpc("WEIR_GRPC", "127.0.0.1:0");
  const Environment length("WEIR_QUEUE_LENGTH", "7");
  const Environment insecure("WEIR_INSECURE", "true");
  EXPECT_EQ(Parsed({}).streams, 5);
  EXPECT_THAT(Parsed({}).grpc, ElementsAre("127.0.0.1:0"));
  EXPECT_EQ(Parsed({}).queue_length, 7u);
  EXPECT_TRUE(Parsed({}).insecure);
  EXPECT_EQ(Parsed({"--streams=6"}).streams, 6);
}

TEST(OptionsTest, RefusesBadValuesInTheEnvironment) {
  const Environment streams("WEIR_STREAMS", "many");
  ExpectUsageError({}, "weir-server: WEIR_STREAMS: ");
  ExpectUsageError({}, "--streams");
  {
    const Environment length("WEIR_QUEUE_LENGTH", "-1");
    ExpectUsageError({"--streams=1"}, "weir-server: WEIR_QUEUE_LENGTH: ");
  }
  ExpectUsageError({"--streams=none"}, "weir-server: ");
  ExpectUsageError({"--streams=1", "--device=gpu"}, "weir-server: --device");
}

// All that --help names and that takes a value.
std::vector<std::string> FlagsWithValues() {
  ::testing::internal::CaptureStdout();
  Parse({"--help"});
  const std::string help = ::testing::internal::GetCapturedStdout();
  const std::regex form("\n  (--[a-z-]+) [A-Z]");
  std::vector<std::string> flags;
  for (std::sregex_iterator it(help.begin(), help.end(), form), end; it != end;
       ++it) {
    flags.push_back((*it)[1]);
  }
  return flags;
}

// Empty would mean "off" for some of them: mutual TLS must not end because a
// variable was meant to be filled in and was not.
TEST(OptionsTest, AnEmptyValueIsAnError) {
  std::vector<std::string> flags = FlagsWithValues();
  EXPECT_THAT(flags, IsSupersetOf({"--grpc", "--http", "--model-repository",
                                   "--tls-client-ca", "--admin-token-file",
                                   "--cache-dir", "--max-connection-age"}));
  for (const std::string& flag : flags) {
    ExpectUsageError({flag + "="}, flag + ": the value is empty");
    ExpectUsageError({flag + "=", "--insecure"}, flag + ": the value is empty");
    ExpectUsageError({flag, ""}, flag + ": the value is empty");
  }
  for (const char* flag :
       {"--insecure", "--enable-test-operators", "--triton-metrics",
        "--strict-readiness", "--reflection"}) {
    flags.emplace_back(flag);
  }
  for (const std::string& flag : flags) {
    std::string variable = "WEIR_" + flag.substr(2);
    for (char& c : variable) {
      c = c == '-' ? '_' : static_cast<char>(std::toupper(c));
    }
    const Environment empty(variable.c_str(), "");
    ExpectUsageError({}, "weir-server: " + variable + ": the value is empty");
  }
}

TEST(OptionsTest, NamesVariablesThatItDoesNotRead) {
  const Environment misspelt("WEIR_STREEMS", "5");
  // They look like those of Kubernetes and of the GPU's scripts.
  const Environment grpc("WEIR_GRPC_PORT", "9000");
  const Environment device("WEIR_CUDA_DEVICE", "1");
  const Environment gpu("WEIR_GPU_MEMORY", "1");
  // Kubernetes, for Services named weir and weir-http.
  const Environment host("WEIR_SERVICE_HOST", "10.0.0.1");
  const Environment named("WEIR_SERVICE_PORT_GRPC", "8001");
  const Environment port("WEIR_PORT", "tcp://10.0.0.1:8001");
  const Environment address("WEIR_HTTP_PORT_8002_TCP_ADDR", "10.0.0.1");
  // The build's, the client's, and one that is read.
  const Environment cuda("WEIR_CUDA", "1");
  const Environment ca("WEIR_TLS_CA", "ca.pem");
  const Environment times("WEIR_SIM_TIMES", "3");
  const Environment programs("WEIR_SIM_PROGRAMS", "3");
  const Environment seed("WEIR_TEST_SEED", "3");
  const Environment fuzz("WEIR_FUZZ_SECONDS", "3");
  const Environment image("WEIR_IMAGE_BUILD_OPTIONS", "--volume=/a:/b");
  const Environment meanings("WEIR_MEANINGS", "1");
  const Environment watched("WEIR_WATCHED_DRIVER", "1");
  const Environment streams("WEIR_STREAMS", "5");
  const ServerOptions options = Parsed({});
  EXPECT_THAT(
      options.notes,
      ElementsAre(HasSubstr("WEIR_CUDA_DEVICE"), HasSubstr("WEIR_GPU_MEMORY"),
                  HasSubstr("WEIR_GRPC_PORT"), HasSubstr("WEIR_STREEMS")));
  EXPECT_EQ(options.streams, 5);
}

// Whatever others put there: patterns take stack for each character.
TEST(OptionsTest, VariablesMayBeLong) {
  const std::string megabyte(size_t{1} << 20, 'x');
  const std::set<std::string> known = {"WEIR_KNOWN"};
  const std::vector<std::string> variables = {"WEIR_SERVER=" + megabyte,
                                              "WEIR_KNOWN=" + megabyte,
                                              "WEIR_X_PORT=tcp://" + megabyte,
                                              "WEIR_OTHER=" + megabyte,
                                              "WEIR_NOVALUE",
                                              "WEIR_" + megabyte + "=1"};
  std::vector<const char*> environment;
  for (const std::string& variable : variables) {
    environment.push_back(variable.c_str());
  }
  environment.push_back(nullptr);
  const auto unknown = UnknownVariables(environment.data(), known);
  EXPECT_THAT(unknown, ElementsAre("WEIR_NOVALUE", "WEIR_OTHER",
                                   "WEIR_" + megabyte.substr(0, 507) + "..."));
}

TEST(OptionsTest, SaysWhenTheTokenCanBeRead) {
  const std::string token = "--admin-token-file=/token";
  const char* const open = "--grpc=unix:/tmp/s,0.0.0.0:8001";
  EXPECT_THAT(Parsed({token, open, "--insecure"}).notes,
              ElementsAre(HasSubstr("clear text")));
  EXPECT_THAT(
      Parsed({token, open, "--http=off", "--tls-cert=/c", "--tls-key=/k"})
          .notes,
      ElementsAre());
  EXPECT_THAT(Parsed({open, "--insecure"}).notes, ElementsAre());
  EXPECT_THAT(Parsed({token, "--grpc=unix:/tmp/s,127.0.0.1:0"}).notes,
              ElementsAre());
}

TEST(OptionsTest, NamesTheFlagAtFault) {
  ExpectUsageError({"--cache-dir=/a", "--cache-dir=/b"},
                   "weir-server: --cache-dir: given 2 times; give it once");
  ExpectUsageError({"--streams=1", "--streams", "2", "--streams=3"},
                   "weir-server: --streams: given 3 times; give it once");
  ExpectUsageError({"--colour=red"}, "--colour");
  ExpectUsageError({"serve"}, "serve");
  ExpectUsageError({"--streams=many"}, "--streams");
  ExpectUsageError({"--streams=0"}, "--streams");
  ExpectUsageError({"--streams=-1"}, "--streams");
  ExpectUsageError({"--streams=1.5"}, "--streams");
  ExpectUsageError({"--queue-length=-1"}, "--queue-length");
  ExpectUsageError({"--queue-length=99999999999999999999"}, "--queue-length");
  ExpectUsageError({"--queue-bytes=1"}, "--queue-bytes");
  ExpectUsageError({"--max-message-bytes=4294967296"}, "--max-message-bytes");
  ExpectUsageError({"--max-operations=-1"}, "--max-operations");
  ExpectUsageError({"--max-scratch-bytes=-1"}, "--max-scratch-bytes");
  ExpectUsageError({"--device=gpu"}, "--device");
  ExpectUsageError({"--device=cuda:"}, "--device");
  ExpectUsageError({"--device=cuda:x"}, "--device");
  ExpectUsageError({"--grpc=8001"}, "--grpc");
  ExpectUsageError({"--grpc=127.0.0.1:port"}, "--grpc");
  ExpectUsageError({"--grpc=127.0.0.1:65536"}, "--grpc");
  ExpectUsageError({"--grpc=127.0.0.1:-1"}, "--grpc");
  ExpectUsageError({"--grpc=unix:"}, "--grpc");
  ExpectUsageError({"--grpc="}, "--grpc");
  for (const char* list : {"127.0.0.1:0,", ",127.0.0.1:0", ","}) {
    ExpectUsageError({"--grpc", list}, "--grpc: \"\" is not HOST:PORT");
  }
  ExpectUsageError({"--grpc=127.0.0.1:0,8001"}, "--grpc: \"8001\" is not");
  ExpectUsageError({"--grpc=127.0.0.1:0", "--grpc=127.0.0.1:1"},
                   "--grpc: given 2 times; give it once");
  ExpectUsageError({"--http=8002"}, "--http");
  ExpectUsageError({"--http=unix:/tmp/http"}, "--http");
  ExpectUsageError({"--model-control=explicit"}, "--model-control");
  ExpectUsageError({"--drain-delay=soon"}, "--drain-delay");
  ExpectUsageError({"--drain-timeout=-1"}, "--drain-timeout");
  ExpectUsageError({"--drain-delay=nan"}, "--drain-delay");
}

TEST(OptionsTest, SaysWhatAValueMustBe) {
  ExpectUsageError({"--queue-bytes=1GiB"},
                   "--queue-bytes: \"1GiB\" is not a whole number from 65536 "
                   "to 1125899906842624 (bytes); see");
  // No pool of pinned memory holds more.
  EXPECT_EQ(Parsed({"--host-bytes=4398046511104"}).host_bytes, size_t{4} << 40);
  ExpectUsageError({"--host-bytes=4398046511105"},
                   "--host-bytes: \"4398046511105\" is not a whole number from "
                   "1048576 to 4398046511104 (bytes)");
  for (const char* lease : {"0", "0.5", "1000001", "nan"}) {
    ExpectUsageError({absl::StrCat("--space-lease=", lease)},
                     "\" is not a number of seconds from 1 to 1000000;");
  }
  ExpectUsageError({"--streams=257"},
                   "--streams: \"257\" is not a whole number from 1 to 256;");
  for (const char* flag :
       {"--insecure", "--enable-test-operators", "--triton-metrics",
        "--strict-readiness", "--reflection"}) {
    ExpectUsageError({std::string(flag) + "=maybe"},
                     std::string(flag) + ": \"maybe\" is not true or false");
  }
  // A number is none, but for the two that everybody writes.
  for (const char* value : {"2", "9", "-1", "-", "+", "y", "10", "yes", "on"}) {
    ExpectUsageError({absl::StrCat("--insecure=", value)},
                     absl::StrCat("--insecure: \"", value,
                                  "\" is not true or false (1 or 0)"));
    const Environment insecure("WEIR_INSECURE", value);
    ExpectUsageError({}, absl::StrCat("weir-server: WEIR_INSECURE: "));
  }
  for (const char* value : {"1", "true"}) {
    EXPECT_TRUE(Parsed({absl::StrCat("--insecure=", value)}).insecure);
    const Environment insecure("WEIR_INSECURE", value);
    EXPECT_TRUE(Parsed({}).insecure);
  }
  for (const char* value : {"0", "false"}) {
    EXPECT_FALSE(Parsed({absl::StrCat("--insecure=", value)}).insecure);
    const Environment insecure("WEIR_INSECURE", value);
    EXPECT_FALSE(Parsed({}).insecure);
  }
  const Environment insecure("WEIR_INSECURE", "maybe");
  ExpectUsageError({}, "\"maybe\" is not true or false");
  EXPECT_FALSE(Parsed({"--insecure=false"}).insecure);
  EXPECT_TRUE(Parsed({"--insecure"}).insecure);
}

TEST(OptionsTest, SaysWhenADrainMayCutConnections) {
  EXPECT_THAT(
      Parsed({"--max-connection-age=30", "--drain-timeout=20"}).notes,
      ElementsAre("--max-connection-age=30, give or take a tenth, is not below "
                  "--drain-timeout=20: a drain may cut connections"));
  // gRPC lets a connection live for up to a tenth longer.
  EXPECT_THAT(Parsed({"--drain-timeout=16"}).notes,
              ElementsAre(HasSubstr("--max-connection-age=15, give or take")));
  EXPECT_THAT(Parsed({"--drain-timeout=17"}).notes, ElementsAre());
  // Whoever wants no age has said so.
  EXPECT_THAT(Parsed({"--max-connection-age=0"}).notes, ElementsAre());
}

TEST(OptionsTest, LeavesTheMachineOnlyWhenTold) {
  ExpectUsageError({"--grpc=0.0.0.0:8001"},
                   "--grpc: 0.0.0.0:8001 is reachable from other machines");
  ExpectUsageError({"--http=0.0.0.0:8002"},
                   "--http: 0.0.0.0:8002 is reachable from other machines");
  ExpectUsageError({"--grpc=0.0.0.0:8001"}, "--insecure");
  ExpectUsageError({"--grpc=127.0.0.1:0,[::]:0"}, "--insecure");
  ExpectUsageError({"--grpc=example.com:8001"}, "--insecure");
  ExpectUsageError({"--http=0.0.0.0:8002"}, "--insecure");
  // With TLS it may; plain HTTP for probes and scrapers as well.
  const ServerOptions tls =
      Parsed({"--grpc=0.0.0.0:0", "--http=0.0.0.0:0", "--tls-cert=/c",
              "--tls-key=/k", "--tls-client-ca=/a"});
  EXPECT_EQ(tls.tls_cert, "/c");
  EXPECT_EQ(tls.tls_key, "/k");
  EXPECT_EQ(tls.tls_client_ca, "/a");
  EXPECT_FALSE(tls.insecure);
  // A name that begins like the loopback network.
  ExpectUsageError({"--grpc=127.example.com:8001"}, "--insecure");
  EXPECT_TRUE(Parsed({"--grpc=0.0.0.0:0", "--insecure"}).insecure);
  Parsed({"--grpc=127.0.0.2:0,localhost:0,[::1]:0,unix:/tmp/s"});
  ExpectUsageError({"--grpc=::1:8001"}, "[ADDRESS]:PORT");
  ExpectUsageError({"--http=fe80::1:8002"}, "[ADDRESS]:PORT");
}

TEST(OptionsTest, PartsOfTlsNeedEachOther) {
  ExpectUsageError({"--tls-cert=/c"}, "--tls-key");
  ExpectUsageError({"--tls-key=/k"}, "--tls-cert");
  ExpectUsageError({"--tls-client-ca=/a"}, "--tls-cert");
  const Environment key("WEIR_TLS_KEY", "/k");
  EXPECT_EQ(Parsed({"--tls-cert=/c"}).tls_key, "/k");
}

TEST(OptionsTest, StrictReadinessNeedsModels) {
  EXPECT_FALSE(Parsed({}).strict_readiness);
  ExpectUsageError({"--strict-readiness"}, "--model-repository");
  EXPECT_TRUE(Parsed({"--strict-readiness", "--model-repository=/tmp"})
                  .strict_readiness);
}

TEST(OptionsTest, TellsItsVersionAndItsFlags) {
  ::testing::internal::CaptureStdout();
  auto parsed = Parse({"--version"});
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr(std::string("weir-server ") + Version()));
  ASSERT_TRUE(std::holds_alternative<ExitNow>(parsed));
  EXPECT_EQ(std::get<ExitNow>(parsed).code, 0);
  ::testing::internal::CaptureStdout();
  parsed = Parse({"--help"});
  const std::string help = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(std::get<ExitNow>(parsed).code, 0);
  for (const char* flag : {"--grpc",
                           "--http",
                           "--model-repository",
                           "--model-control",
                           "--device",
                           "--isolation",
                           "--streams",
                           "--queue-length",
                           "--queue-bytes",
                           "--max-message-bytes",
                           "--max-connections",
                           "--max-peer-connections",
                           "--max-output-bytes",
                           "--max-scratch-bytes",
                           "--max-operations",
                           "--cache-dir",
                           "--drain-delay",
                           "--drain-timeout",
                           "--max-connection-age",
                           "--metrics-models",
                           "--insecure",
                           "--tls-cert",
                           "--tls-key",
                           "--tls-client-ca",
                           "--version"}) {
    EXPECT_THAT(help, HasSubstr(flag));
  }
  EXPECT_THAT(help, HasSubstr("several divided by commas"));
}

}  // namespace
}  // namespace weir
