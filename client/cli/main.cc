// weir: the command line of a weir server. Exit code 0, 1 for a failure, 2 for
// wrong usage.
#include <sys/un.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "client/cli/commands.h"
#include "client/cli/version.h"

namespace weir::client {

namespace {

constexpr char kEmpty[] = "the value is empty";

// The flag or variable that is there without a value, where the parser would
// take the next argument for it or pass it by: an empty WEIR_TLS_CA must not
// mean plain text. Empty if none is.
std::string WithoutValue(const CLI::App& app, int argc, char** argv) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string& variable = option->get_envname();
    const char* value =
        variable.empty() ? nullptr : std::getenv(variable.c_str());
    if (value != nullptr && *value == '\0') return variable;
    for (const std::string& name : option->get_lnames()) {
      std::string flag = absl::StrCat("--", name);
      for (int i = 1; i < argc; ++i) {
        if (argv[i] == flag + "=") return flag;
      }
    }
  }
  for (const CLI::App* command :
       app.get_subcommands([](const CLI::App*) { return true; })) {
    std::string flag = WithoutValue(*command, argc, argv);
    if (!flag.empty()) return flag;
  }
  return "";
}

// What goes for every argument of every command: it is not empty, and a flag
// takes one value each time that it is there, so that it leaves the model or
// the program behind it alone.
void AddRules(CLI::App* app) {
  for (CLI::Option* option : app->get_options()) {
    if (option->get_items_expected_min() == 0) continue;  // a switch
    // A transformation comes before all checks.
    option->transform(CLI::Validator(
        [](const std::string& text) -> std::string {
          return text.empty() ? kEmpty : "";
        },
        ""));
    if (option->get_items_expected_max() > 1) {
      option->allow_extra_args(false)->option_text("TEXT");
    }
  }
  for (CLI::App* command :
       app->get_subcommands([](CLI::App*) { return true; })) {
    AddRules(command);
  }
}

// As the server's own addresses, so that a slip is told before anything waits
// for it. What gRPC's resolvers take besides ("dns:///HOST:PORT") passes.
std::string CheckServer(const std::string& address) {
  std::string refusal = "\"" + address + "\" is not HOST:PORT or unix:PATH";
  if (address.rfind("unix:", 0) == 0) {
    const size_t begin = address.rfind("unix:///", 0) == 0 ? 7 : 5;
    const size_t bytes = address.size() - begin;
    constexpr size_t kMost = sizeof(sockaddr_un::sun_path) - 1;
    if (bytes >= 1 && bytes <= kMost) return "";
    return absl::StrCat(refusal, ": a socket's path has 1 to ", kMost,
                        " bytes, and this one ", bytes);
  }
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) return refusal;
  uint32_t port = 0;
  if (!absl::SimpleAtoi(address.substr(colon + 1), &port) || port > 65535) {
    return refusal;
  }
  if (address[0] != '[' && address.find(':') != colon &&
      address.find(":///") == std::string::npos) {
    return refusal + " (an IPv6 address is [ADDRESS]:PORT)";
  }
  return "";
}

// A flag that stands more than once where it may have one value, of the
// commands given; null if none does.
const CLI::Option* GivenTwice(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() == 1 && option->count() > 1) {
      return option;
    }
  }
  for (const CLI::App* command : app.get_subcommands()) {
    if (const CLI::Option* option = GivenTwice(*command)) return option;
  }
  return nullptr;
}

// Whether a flag is on the command line, in one of its forms.
bool IsGiven(const CLI::Option& option, int argc, char** argv) {
  return std::any_of(argv + 1, argv + argc, [&](const char* argument) {
    const std::string_view text = argument;
    for (const std::string& name : option.get_lnames()) {
      if (text.substr(0, text.find('=')) == "--" + name) return true;
    }
    for (const std::string& name : option.get_snames()) {
      if (text.rfind("-" + name, 0) == 0) return true;
    }
    return false;
  });
}

// An error about a flag that was not given is about its variable, and says so.
std::string OfItsVariable(const CLI::App& app, std::string error, int argc,
                          char** argv) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string prefix = option->get_name() + ":";
    if (!option->get_envname().empty() && error.rfind(prefix, 0) == 0 &&
        !IsGiven(*option, argc, argv)) {
      return error.replace(0, prefix.size(), option->get_envname() + ":");
    }
  }
  return error;
}

// What is wrong with a command line. CLI11 lists what nobody expected, values
// of what is wrong among it; and where a command is missing, what stands in its
// place says more.
std::string Flaw(const CLI::App& app, const CLI::ParseError& error, int argc,
                 char** argv) {
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    if (const CLI::Option* twice = GivenTwice(app)) {
      const bool either = twice->get_positional() && twice->nonpositional();
      return absl::StrCat(
          twice->get_name(), ": given ", twice->count(), " times",
          either ? ", with the flag or without it" : "", "; give it once");
    }
  }
  const std::vector<std::string> words = app.remaining(/*recurse=*/true);
  const bool extra = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  const bool lacking =
      dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  if (words.empty() || !(extra || lacking)) {
    return OfItsVariable(app, error.what(), argc, argv);
  }
  const auto flag =
      std::find_if(words.begin(), extra ? words.end() : words.begin() + 1,
                   [](const std::string& word) { return word[0] == '-'; });
  if (flag != words.end() && (*flag)[0] == '-') {
    return absl::StrCat("there is no flag \"", flag->substr(0, flag->find('=')),
                        "\"");
  }
  return lacking ? absl::StrCat("there is no command \"", words[0], "\"")
                 : absl::StrCat("\"", words[0], "\" is one argument too many");
}

// Says on each page of help where the flags stand that the command takes and
// the page does not list.
void AddFooters(CLI::App* command, const std::string& elsewhere) {
  command->footer(command->get_footer() + "\n" + elsewhere);
  std::vector<std::string> own;
  for (const CLI::Option* option : command->get_options()) {
    if (option != command->get_help_ptr()) own.push_back(option->get_name());
  }
  std::string above = elsewhere;
  if (!own.empty()) {
    above = absl::StrCat(absl::StrJoin(own, ", "), ": weir ",
                         command->get_name(), " --help\n", elsewhere);
  }
  for (CLI::App* nested :
       command->get_subcommands([](CLI::App*) { return true; })) {
    AddFooters(nested, above);
  }
}

// The exit code, when what was printed has left: a result that nobody can read
// is none.
int Told(const GlobalFlags& flags, int code) {
  errno = 0;
  if (std::cout.flush().good()) return code;
  const std::string cause =
      errno == 0 ? "" : absl::StrCat(": ", std::strerror(errno));
  Report(flags, absl::DataLossError(
                    absl::StrCat("cannot write to standard output", cause)));
  return code == 0 ? 1 : code;
}

int Main(int argc, char** argv) {
  // gRPC's own log would double what our one line says.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  GlobalFlags flags;
  CLI::App app("Talks to a weir server.", "weir");
  flags.app = &app;
  app.set_version_flag("--version", std::string("weir ") + kClientVersion +
                                        " build " + kBuildId);
  app.require_subcommand(1);
  app.fallthrough();
  app.add_option("--server,-s", flags.server, "HOST:PORT or unix:PATH")
      ->envname("WEIR_SERVER")
      ->check(CheckServer)
      ->capture_default_str();
  const CLI::Option* const timeout =
      app.add_option("--timeout", flags.timeout_seconds,
                     "Seconds a call may take; 1 for status --probe")
          ->check(Within(0.001, 86400))
          ->capture_default_str();
  app.add_flag("--json", flags.json, "Print the answer as JSON, for programs");
  app.add_option("--tls-ca", flags.tls_files.ca,
                 "PEM file: talk TLS to a server that one of these signed")
      ->envname("WEIR_TLS_CA");
  app.add_option("--tls-cert", flags.tls_files.cert,
                 "PEM file: the client's certificate, for mutual TLS");
  app.add_option("--tls-key", flags.tls_files.key,
                 "PEM file: the private key of --tls-cert");
  app.add_option("--tls-server-name", flags.tls_files.server_name,
                 "Name expected in the server's certificate; without it the "
                 "host of --server")
      ->envname("WEIR_TLS_SERVER_NAME");
  const std::vector<Command> commands = {
      AddEval(app, flags),    AddInfer(app, flags), AddModels(app, flags),
      AddDevices(app, flags), AddOps(app, flags),   AddLoad(app, flags),
      AddSpaces(app, flags),  AddAdmin(app, flags), AddStatus(app, flags)};
  app.footer(
      "\nREADME.md shows the commands at work. In docs/ beside it: "
      "operators.md, "
      "errors.md,\nlimits.md, load_testing.md, clients.md (other languages).");
  for (const Command& command : commands) {
    AddFooters(
        command.app,
        "Flags of all commands, --server and --json among them: weir --help");
  }
  AddRules(&app);
  // Also where the command line cannot be read.
  flags.json = std::any_of(argv + 1, argv + argc, [](const char* argument) {
    return std::string_view(argument) == "--json";
  });
  if (const std::string at = WithoutValue(app, argc, argv); !at.empty()) {
    return ReportUsage(flags, absl::StrCat(at, ": ", kEmpty));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return Told(flags, app.exit(error));
    return ReportUsage(flags, Flaw(app, error, argc, argv));
  }
  flags.timeout_given = timeout->count() > 0;
  auto tls = ReadTlsFiles(flags.tls_files);
  if (!tls.ok()) {
    return ReportArgument(flags, tls.status());
  }
  flags.tls = *std::move(tls);
  for (const Command& command : commands) {
    if (command.app->parsed()) return Told(flags, command.run());
  }
  return 2;
}

}  // namespace
}  // namespace weir::client

int main(int argc, char** argv) {
  // Otherwise Debian's Abseil looks for cycles whenever gRPC takes a lock.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  return weir::client::Main(argc, argv);
}
