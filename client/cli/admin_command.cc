// weir admin: what the operator of a server asks of it.
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/commands.h"
#include "client/cli/json_output.h"
#include "client/cli/tensor_argument.h"

namespace weir::client {
namespace {

const std::map<std::string, v1::LogLevel>& Levels() {
  static const auto* levels = new std::map<std::string, v1::LogLevel>{
      {"debug", v1::LOG_LEVEL_DEBUG},
      {"info", v1::LOG_LEVEL_INFO},
      {"warning", v1::LOG_LEVEL_WARNING},
      {"error", v1::LOG_LEVEL_ERROR}};
  return *levels;
}

std::string LevelName(v1::LogLevel level) {
  for (const auto& [name, value] : Levels()) {
    if (value == level) return name;
  }
  return "unknown";
}

constexpr char kTokenFlag[] = "--token-file";
constexpr char kTokenVariable[] = "WEIR_ADMIN_TOKEN_FILE";

// The first word of the file that the flag names, or else the variable; none
// without either. The variable is not the flag's own, which the parser would
// look at for every command.
absl::StatusOr<std::string> ReadToken(const std::string& flag) {
  const char* const variable = std::getenv(kTokenVariable);
  const bool given = !flag.empty() || variable == nullptr;
  const std::string path = given ? flag : variable;
  std::string token;
  if (path.empty()) return token;
  const char* const source = given ? kTokenFlag : kTokenVariable;
  auto content = ReadFile(path);
  if (!content.ok()) {
    return absl::Status(content.status().code(),
                        absl::StrCat(source, ": ", content.status().message()));
  }
  if (!(std::istringstream(*std::move(content)) >> token)) {
    return absl::FailedPreconditionError(
        absl::StrCat(source, ": ", path, " holds no token"));
  }
  return token;
}

int Drain(const GlobalFlags& global, const std::string& token_file) {
  auto token = ReadToken(token_file);
  if (!token.ok()) return Report(global, token.status());
  Client client(global.options());
  auto response = client.Drain(*token);
  if (!response.ok()) return Report(global, response.status());
  if (global.json) {
    PrintJson(MessageJson(*response));
    return 0;
  }
  std::cout << absl::StrFormat(
      "%s; takes new connections for %g s, cuts what is left after %g s%s; %d "
      "requests in flight\n",
      response->started() ? "draining" : "draining already",
      static_cast<double>(response->delay_ns()) * 1e-9,
      static_cast<double>(response->limit_ns()) * 1e-9,
      response->started() ? "" : ", both from the beginning of the drain",
      response->requests_in_flight());
  return 0;
}

int SetLevel(const GlobalFlags& global, const std::string& token_file,
             const std::string& level) {
  auto token = ReadToken(token_file);
  if (!token.ok()) return Report(global, token.status());
  Client client(global.options());
  auto response = client.SetLogLevel(Levels().at(level), *token);
  if (!response.ok()) return Report(global, response.status());
  if (global.json) {
    PrintJson(MessageJson(*response));
    return 0;
  }
  std::cout << "log level " << level << ", was "
            << LevelName(response->previous()) << "\n";
  return 0;
}

}  // namespace

Command AddAdmin(CLI::App& app, const GlobalFlags& global) {
  auto token_file = std::make_shared<std::string>();
  auto level = std::make_shared<std::string>();
  CLI::App* admin = app.add_subcommand(
      "admin", "Operate a server: drain it, change its log level");
  admin->require_subcommand(1);
  admin->add_option(
      kTokenFlag, *token_file,
      absl::StrCat("File with the token of the server's --admin-token-file (or "
                   "what ",
                   kTokenVariable,
                   " names); over a unix socket none is needed"));
  CLI::App* drain = admin->add_subcommand(
      "drain", "End the server without losing a request, as SIGTERM does");
  CLI::App* log_level =
      admin->add_subcommand("log-level", "Write log lines from this level on");
  log_level->add_option("level", *level, "debug, info, warning or error")
      ->required()
      ->check(CLI::IsMember(Levels()));
  return {admin, [=, &global] {
            return drain->parsed() ? Drain(global, *token_file)
                                   : SetLevel(global, *token_file, *level);
          }};
}

}  // namespace weir::client
