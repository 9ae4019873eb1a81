#include "server/options.h"

#include <arpa/inet.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kernels/backend/devices.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/build_info.h"
#include "server/device_list.h"
#include "server/environment.h"

namespace weir {
namespace {

// "--queue-length" is read from WEIR_QUEUE_LENGTH as well.
std::string EnvironmentName(const std::string& flag) {
  std::string name = "WEIR_";
  for (char c : flag.substr(2)) {
    name +=
        c == '-'
            ? '_'
            : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

template <typename T>
CLI::Option* AddFlag(CLI::App& app, const std::string& flag, T& value,
                     const std::string& doc) {
  return app.add_option(flag, value, doc)
      ->envname(EnvironmentName(flag))
      ->capture_default_str();
}

// The parser itself takes any number, and signs.
std::string CheckSwitch(const std::string& text) {
  if (text == "true" || text == "false" || text == "1" || text == "0") {
    return "";
  }
  return "\"" + text + "\" is not true or false (1 or 0)";
}

void AddSwitch(CLI::App& app, const std::string& flag, bool& value,
               const std::string& group, const std::string& doc) {
  app.add_flag(flag, value, doc)
      ->envname(EnvironmentName(flag))
      ->check(CheckSwitch)
      ->group(group);
}

// "8002" style mistakes are found before anything is bound.
std::string CheckAddress(const std::string& address) {
  if (address.rfind("unix:", 0) == 0) {
    return address.size() > 5 ? "" : "unix: needs a path";
  }
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) {
    return "\"" + address + "\" is not HOST:PORT or unix:PATH";
  }
  if (address[0] != '[' && address.find(':') != colon) {
    return "\"" + address + "\" has several colons; write an IPv6 address as " +
           "[ADDRESS]:PORT";
  }
  int port = -1;
  if (!CLI::detail::lexical_cast(address.substr(colon + 1), port) || port < 0 ||
      port > 65535) {
    return "\"" + address + "\" has no port between 0 and 65535";
  }
  return "";
}

// Addresses divided by commas.
std::vector<std::string> AddressList(const std::string& list) {
  return absl::StrSplit(list, ',');
}

std::string CheckAddressList(const std::string& list) {
  for (const std::string& address : AddressList(list)) {
    std::string flaw = CheckAddress(address);
    if (!flaw.empty()) return flaw;
  }
  return "";
}

// There are no worker processes yet; empty if none are wanted.
std::string CheckIsolation(const ServerOptions& options) {
  constexpr char kRemedy[] =
      "; or start a server for each device, which outlives the faults of the "
      "others";
  if (options.isolation == "process") {
    return absl::StrCat(
        "--isolation=process: this version has no worker processes; give "
        "--isolation=none, with which the fault of one device ends the whole "
        "process",
        kRemedy);
  }
  if (options.devices.size() < 2 || options.isolation == "none") return "";
  return absl::StrCat("--device=", absl::StrJoin(options.devices, ","),
                      ": several devices in one process, where the fault of "
                      "one ends all, need --isolation=none as well",
                      kRemedy);
}

// Of TCP alone.
std::string CheckHttp(const std::string& address) {
  if (address == "off") return "";
  if (address.rfind("unix:", 0) == 0) return "HTTP is served over TCP only";
  return CheckAddress(address);
}

// A NaN passes every comparison that CLI::Range makes.
CLI::Validator Seconds(double most, int64_t least = 0) {
  return CLI::Validator(
      [most, least](const std::string& text) -> std::string {
        double seconds = 0;
        if (CLI::detail::lexical_cast(text, seconds) &&
            seconds >= static_cast<double>(least) && seconds <= most) {
          return "";
        }
        return "\"" + text + "\" is not a number of seconds from " +
               std::to_string(least) + " to " +
               std::to_string(static_cast<int64_t>(most));
      },
      "SECONDS");
}

// CLI::Range says neither what was given nor in what it counts.
CLI::Validator Whole(int64_t least, int64_t most,
                     const std::string& unit = "") {
  return CLI::Validator(
      [=](const std::string& text) -> std::string {
        int64_t number = 0;
        if (CLI::detail::lexical_cast(text, number) && number >= least &&
            number <= most) {
          return "";
        }
        return "\"" + text + "\" is not a whole number from " +
               std::to_string(least) + " to " + std::to_string(most) +
               (unit.empty() ? "" : " (" + unit + ")");
      },
      "in [" + std::to_string(least) + " - " + std::to_string(most) + "]");
}

CLI::Validator Bytes(int64_t least, int64_t most) {
  return Whole(least, most, "bytes");
}

// By its text: names other than localhost are anybody's.
bool IsLoopback(const std::string& address) {
  if (address.rfind("unix:", 0) == 0) return true;
  const std::string host = address.substr(0, address.rfind(':'));
  if (host == "localhost" || host == "[::1]") return true;
  in_addr parsed;
  return inet_pton(AF_INET, host.c_str(), &parsed) == 1 &&
         host.rfind("127.", 0) == 0;
}

// $XDG_CACHE_HOME/weir, or .cache/weir at home; "" for somebody without either.
std::string DefaultCacheFolder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (const std::string xdg = variable("XDG_CACHE_HOME"); !xdg.empty()) {
    return xdg + "/weir";
  }
  const std::string home = variable("HOME");
  return home.empty() ? "" : home + "/.cache/weir";
}

absl::Duration SecondsOrNever(double seconds) {
  return seconds > 0 ? absl::Seconds(seconds) : absl::InfiniteDuration();
}

// What would be reachable from other machines without protection, or wanted
// protection that has a part missing; empty if all is well.
std::string CheckExposure(const ServerOptions& options) {
  if (options.tls_cert.empty() != options.tls_key.empty()) {
    return options.tls_key.empty() ? "--tls-cert needs --tls-key as well"
                                   : "--tls-key needs --tls-cert as well";
  }
  const bool tls = !options.tls_cert.empty();
  if (!options.tls_client_ca.empty() && !tls) {
    return "--tls-client-ca needs --tls-cert and --tls-key as well";
  }
  // HTTP stays plain under TLS: probes and metrics, which kubelets and scrapers
  // must reach.
  if (options.insecure || tls) return "";
  std::vector<std::pair<const char*, std::string>> addresses;
  for (const std::string& address : options.grpc) {
    addresses.emplace_back("--grpc: ", address);
  }
  if (!options.http.empty()) addresses.emplace_back("--http: ", options.http);
  for (const auto& [flag, address] : addresses) {
    if (IsLoopback(address)) continue;
    return flag + address +
           " is reachable from other machines and there is no TLS; listen on "
           "127.0.0.1, give --tls-cert and --tls-key, or give --insecure";
  }
  return "";
}

// Calls from other machines would send the token for everybody to read.
bool ShowsToken(const ServerOptions& options) {
  return !options.admin_token_file.empty() && options.tls_cert.empty() &&
         !std::all_of(options.grpc.begin(), options.grpc.end(), IsLoopback);
}

// The variable whose value an error about a flag is about; empty if the flag
// was given on the command line. Names of flags are in CLI11's messages.
std::string VariableAtFault(const CLI::App& app, const std::string& error,
                            int argc, const char* const* argv) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string& variable = option->get_envname();
    std::string flag = option->get_name();
    if (variable.empty() || std::getenv(variable.c_str()) == nullptr) continue;
    const size_t at = error.find(flag);
    if (at == std::string::npos) continue;
    const size_t end = at + flag.size();
    if (end < error.size() && (std::isalnum(error[end]) || error[end] == '-')) {
      continue;  // a longer flag
    }
    const bool given = std::any_of(argv + 1, argv + argc, [&](const char* arg) {
      const std::string_view text = arg;
      return text.substr(0, text.find('=')) == flag;
    });
    if (!given) return variable;
  }
  return "";
}

// The flag or variable that is there without a value; empty if none is. Empty
// must not mean "off": a variable that was never filled in would take TLS away.
std::string WithoutValue(const CLI::App& app, int argc,
                         const char* const* argv) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string& variable = option->get_envname();
    if (variable.empty()) continue;
    const char* value = std::getenv(variable.c_str());
    if (value != nullptr && *value == '\0') return variable;
    std::string flag = option->get_name();
    for (int i = 1; i < argc; ++i) {
      if (argv[i] == flag + "=" ||
          (argv[i] == flag && option->get_items_expected_min() > 0 &&
           i + 1 < argc && *argv[i + 1] == '\0')) {
        return flag;
      }
    }
  }
  return "";
}

// What is wrong with a command line: of a flag that is there twice CLI11 says
// only how many values it was given.
std::string Flaw(const CLI::App& app, const CLI::ParseError& error) {
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    for (const CLI::Option* option : app.get_options()) {
      if (option->get_items_expected_max() == 1 && option->count() > 1) {
        return absl::StrCat(option->get_name(), ": given ", option->count(),
                            " times; give it once");
      }
    }
  }
  return error.what();
}

std::vector<std::string> EnvironmentNotes(const CLI::App& app) {
  std::set<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    known.insert(option->get_envname());
  }
  std::vector<std::string> notes;
  for (const std::string& name : UnknownVariables(environ, known)) {
    notes.push_back(name +
                    " in the environment is no setting and has no effect; "
                    "weir-server --help lists the flags");
  }
  return notes;
}

}  // namespace

const char* Version() { return kVersion; }

std::variant<ServerOptions, ExitNow> ParseServerOptions(
    int argc, const char* const* argv) {
  ServerOptions options;
  double drain_delay = absl::ToDoubleSeconds(options.drain_delay);
  double drain_timeout = absl::ToDoubleSeconds(options.drain_timeout);
  double connection_age = absl::ToDoubleSeconds(options.max_connection_age);
  double receive_timeout = absl::ToDoubleSeconds(options.receive_timeout);
  double send_timeout = absl::ToDoubleSeconds(options.send_timeout);

  double space_lease = absl::ToDoubleSeconds(options.space_lease);
  double linger = absl::ToDoubleSeconds(options.linger);

  std::string log_format = "text";
  std::string log_level = LogLevelName(options.log_level);

  CLI::App app(
      "weir-server evaluates tensor programs and ONNX models over gRPC, on an "
      "NVIDIA GPU or the CPU.\nEvery flag is also an environment variable: "
      "--queue-length is WEIR_QUEUE_LENGTH; the flag wins.\n"
      "One without a value is a switch: --insecure, or --insecure=true, false, "
      "1 or 0.\n",
      "weir-server");
  app.set_version_flag(
      "--version",
      absl::StrCat("weir-server ", Version(), " build ", AbslView(BuildId())));

  std::string grpc = absl::StrJoin(options.grpc, ",");
  AddFlag(app, "--grpc", grpc,
          "gRPC addresses, HOST:PORT or unix:PATH, several divided by commas; "
          "port 0 takes a free one")
      ->check(CheckAddressList)
      ->group("Addresses");
  AddFlag(app, "--http", options.http,
          "Address of /healthz, /readyz and /metrics (/ lists them); \"off\" "
          "for none")
      ->check(CheckHttp)
      ->group("Addresses");
  AddSwitch(app, "--insecure", options.insecure, "Addresses",
            "Serve without TLS beyond this machine");

  AddSwitch(app, "--reflection", options.reflection, "Addresses",
            "Offer gRPC's reflection service, which takes messages of any "
            "size");

  AddFlag(app, "--tls-cert", options.tls_cert,
          "PEM file: the server's certificate and its chain; reloaded when it "
          "changes")
      ->group("TLS");
  AddFlag(app, "--tls-key", options.tls_key,
          "PEM file: the certificate's private key")
      ->group("TLS");
  AddFlag(app, "--tls-client-ca", options.tls_client_ca,
          "PEM file: clients must show a certificate that one of these signed")
      ->group("TLS");

  AddFlag(app, "--model-repository", options.model_repository,
          "Folder of models: NAME/VERSION/model.onnx")
      ->group("Models");
  AddFlag(app, "--model-control", options.model_control,
          "none: serve every model of the repository")
      ->check(CLI::IsMember({"none"}))
      ->group("Models");

  AddSwitch(app, "--strict-readiness", options.strict_readiness, "Models",
            "Ready only if the repository holds models and all are served");

  std::string device = absl::StrJoin(options.devices, ",");
  AddFlag(app, "--device", device,
          "auto (cuda:0, or the CPU where there is no NVIDIA device), cpu, "
          "cuda, cuda:N; or several of them divided by commas (cuda:0,1,cpu), "
          "the default one first, with --isolation=none: requests choose by "
          "name or UUID, models are on the default one")
      ->check([&options](const std::string& list) {
        auto devices = ParseDeviceList(list);
        if (!devices.ok()) return std::string(devices.status().message());
        options.devices = *std::move(devices);
        return std::string();
      })
      ->group("Execution");
  AddFlag(app, "--isolation", options.isolation,
          "Several devices need none: all in one process, which the fault of "
          "one of them ends; process, a process for each, is not in this "
          "version")
      ->check(CLI::IsMember({"none", "process"}))
      ->group("Execution");
  AddFlag(app, "--streams", options.streams, "Streams of each device")
      ->check(Whole(1, 256))
      ->group("Execution");
  AddFlag(app, "--cpu-threads", options.cpu_threads,
          "Threads of the CPU device; 0: as many as the process has CPUs")
      ->check(Whole(0, 1024))
      ->group("Execution");
  AddFlag(app, "--io-threads", options.io_threads,
          "Threads that read and write calls; 0: as many as there are CPUs "
          "and a quarter more, of those up to 16 in all")
      ->check(Whole(0, 1024))
      ->group("Execution");
  options.cache_dir = DefaultCacheFolder();
  const CLI::Option* const cache_dir =
      AddFlag(app, "--cache-dir", options.cache_dir,
              "Folder for compiled kernels; 'off' keeps them in memory")
          ->group("Execution");
  AddSwitch(app, "--enable-test-operators", options.enable_test_operators,
            "Execution", "Offer weir.Spin and weir.Fault");

  AddFlag(app, "--queue-length", options.queue_length,
          "Admitted requests beyond one per stream, of all devices together; "
          "more are refused")
      ->check(Whole(0, 10'000'000))
      ->group("Limits");
  AddFlag(app, "--queue-bytes", options.queue_bytes,
          "Bytes of admitted requests and of replies that are not sent yet; "
          "more are refused")
      ->check(Bytes(int64_t{1} << 16, int64_t{1} << 50))
      ->group("Limits");
  AddFlag(app, "--max-message-bytes", options.max_message_bytes,
          "Largest message, either way")
      ->check(Bytes(1024, std::numeric_limits<int>::max()))
      ->group("Limits");
  AddFlag(app, "--max-connections", options.max_connections,
          "Open gRPC connections; more over TCP are closed as they come")
      ->check(Whole(1, 1'000'000))
      ->group("Limits");
  AddFlag(app, "--max-peer-connections", options.max_peer_connections,
          "Of those, connections of one peer (IPv4 address, IPv6 /64), which "
          "may be a proxy; 0: any number")
      ->check(Whole(0, 1'000'000))
      ->group("Limits");
  AddFlag(app, "--receive-timeout", receive_timeout,
          "Seconds in which a call's message must have arrived; 0: any time")
      ->check(Seconds(1e6))
      ->group("Limits");
  AddFlag(
      app, "--send-timeout", send_timeout,
      "Seconds, and one more for each MiB, in which a caller must have taken "
      "its reply; 0: any time")
      ->check(Seconds(1e6))
      ->group("Limits");
  AddFlag(app, "--host-bytes", options.host_bytes,
          "Pinned host memory for inputs and replies, of each device")
      ->check(Bytes(int64_t{1} << 20, int64_t{1} << 42))  // a PinnedPool's most
      ->group("Limits");
  AddFlag(app, "--tensor-bytes", options.tensor_bytes,
          "Memory of each device for tensors that callers keep")
      ->check(Bytes(int64_t{1} << 20, int64_t{1} << 50))
      ->group("Limits");
  AddFlag(app, "--arena-bytes", options.arena_bytes,
          "Memory of each device for what works compute on, of all its "
          "streams together; 0: half of the device's")
      ->check(Bytes(0, int64_t{1} << 50))
      ->group("Limits");

  AddFlag(
      app, "--max-spaces", options.max_spaces,
      "Spaces, in which callers keep tensors between calls; an identity may "
      "have a quarter of them; 0: none are offered")
      ->check(Whole(0, 1'000'000))
      ->group("Spaces");
  AddFlag(app, "--space-lease", space_lease,
          "Seconds, at most, that a space lives while no call uses it")
      ->check(Seconds(1e6, /*least=*/1))
      ->group("Spaces");
  AddFlag(app, "--space-tensor-bytes", options.space_tensor_bytes,
          "Bytes of the tensors of one space; 0: a quarter of --tensor-bytes")
      ->check(Bytes(0, int64_t{1} << 50))
      ->group("Spaces");
  AddFlag(
      app, "--space-tensors", options.space_tensors,
      "Tensors of one space. Of these and what follows an identity may hold "
      "4 times as much, and all spaces together 16 times")
      ->check(Whole(1, 100'000'000))
      ->group("Spaces");
  AddFlag(app, "--space-contexts", options.space_contexts,
          "Contexts of one space")
      ->check(Whole(1, 1'000'000))
      ->group("Spaces");
  AddFlag(app, "--space-timelines", options.space_timelines,
          "Timelines of one space")
      ->check(Whole(1, 10'000'000))
      ->group("Spaces");
  AddFlag(app, "--space-works", options.space_works,
          "Works of one space that are not done")
      ->check(Whole(1, 1'000'000))
      ->group("Spaces");

  AddFlag(app, "--space-sessions", options.space_sessions,
          "Sessions of one space")
      ->check(Whole(1, 1'000'000))
      ->group("Spaces");
  AddFlag(app, "--linger", linger,
          "Seconds that a session without a stream can be resumed")
      ->check(Seconds(1e6))
      ->group("Spaces");

  AddFlag(app, "--max-output-bytes", options.max_output_bytes,
          "Outputs of one evaluation; 0: the largest power of two in "
          "--host-bytes")
      ->check(Bytes(0, int64_t{1} << 40))
      ->group("Limits");
  AddFlag(app, "--max-scratch-bytes", options.max_scratch_bytes,
          "Device memory of one evaluation beside inputs and outputs; 0: a "
          "quarter of the device's")
      ->check(Bytes(0, int64_t{1} << 40))
      ->group("Limits");
  AddFlag(app, "--max-operations", options.max_operations,
          "Operations of one evaluation: products summed up, elements computed "
          "or moved (on a CPU by the time they take); 0: 10^14 on a GPU, 10^12 "
          "for each thread of a CPU")
      ->check(Whole(0, std::numeric_limits<int64_t>::max()))
      ->group("Limits");

  AddFlag(app, "--log-format", log_format,
          "Form of the lines on standard error: text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->group("Observation");
  AddFlag(app, "--log-level", log_level,
          "Least level of log lines: debug (every call), info, warning, error")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->group("Observation");
  AddSwitch(app, "--triton-metrics", options.triton_metrics, "Observation",
            "Offer Triton's metric names too (nv_inference_*)");
  AddFlag(app, "--metrics-models", options.metrics_models,
          "Model versions that have series of their own in /metrics, the first "
          "by name; all others are one, of model \"/other\"; 0: all are")
      ->check(Whole(0, 100'000))
      ->group("Observation");
  AddFlag(app, "--admin-token-file", options.admin_token_file,
          "File with the token that Admin calls over TCP must carry; without "
          "it they are taken over unix sockets only. Without TLS it travels in "
          "clear text")
      ->group("Observation");

  AddFlag(app, "--drain-delay", drain_delay,
          "Seconds to serve on after SIGTERM, already unready")
      ->check(Seconds(3600))
      ->group("Shutdown");
  AddFlag(app, "--drain-timeout", drain_timeout,
          "Seconds after the delay until open connections are cut")
      ->check(Seconds(3600))
      ->group("Shutdown");
  AddFlag(app, "--max-connection-age", connection_age,
          "Seconds, give or take a tenth, after which a connection is asked "
          "to leave, so that a drain loses nothing; keep 1.1 times it below "
          "--drain-timeout; 0: never")
      ->check(Seconds(1e6))
      ->group("Shutdown");

  if (const std::string at = WithoutValue(app, argc, argv); !at.empty()) {
    std::cerr << "weir-server: " << at
              << ": the value is empty; give one or leave it out; see "
                 "weir-server --help\n";
    return ExitNow{2};
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return ExitNow{app.exit(error)};
    const std::string variable = VariableAtFault(app, error.what(), argc, argv);
    std::cerr << "weir-server: " << variable << (variable.empty() ? "" : ": ")
              << Flaw(app, error) << "; see weir-server --help\n";
    return ExitNow{2};
  }
  options.grpc = AddressList(grpc);
  options.notes = EnvironmentNotes(app);
  if (ShowsToken(options)) {
    options.notes.push_back(
        "--admin-token-file: without TLS the token travels in clear text; give "
        "--tls-cert and --tls-key, or no token and call on a unix socket");
  }
  if (options.triton_metrics && options.metrics_models == 0) {
    options.notes.push_back(
        "--metrics-models=0: --triton-metrics has no effect, as its series are "
        "those of models that have some of their own");
  }
  // gRPC shortens or lengthens each connection's age by up to a tenth.
  if (connection_age > 0 && 1.1 * connection_age >= drain_timeout) {
    options.notes.push_back(absl::StrCat(
        "--max-connection-age=", connection_age,
        ", give or take a tenth, is not below --drain-timeout=", drain_timeout,
        ": a drain may cut connections"));
  }
  if (options.http == "off") options.http.clear();
  options.log_format =
      log_format == "json" ? LogFormat::kJson : LogFormat::kText;
  options.log_level = *LogLevelFromName(log_level);
  if (options.cache_dir == "off") options.cache_dir.clear();
  options.cache_dir_given = cache_dir->count() > 0;
  options.drain_delay = absl::Seconds(drain_delay);
  options.drain_timeout = absl::Seconds(drain_timeout);
  options.max_connection_age = SecondsOrNever(connection_age);
  options.space_lease = absl::Seconds(space_lease);
  options.linger = absl::Seconds(linger);
  options.receive_timeout = SecondsOrNever(receive_timeout);
  options.send_timeout = SecondsOrNever(send_timeout);
  if (options.strict_readiness && options.model_repository.empty()) {
    std::cerr << "weir-server: --strict-readiness needs --model-repository as "
                 "well\n";
    return ExitNow{2};
  }
  for (const std::string& problem :
       {CheckExposure(options), CheckIsolation(options)}) {
    if (problem.empty()) continue;
    std::cerr << "weir-server: " << problem << "\n";
    return ExitNow{2};
  }
  return options;
}

}  // namespace weir
