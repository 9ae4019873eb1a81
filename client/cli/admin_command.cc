// weir admin: what the operator of a server asks of it.
#include <cstdint>
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
#include "client/cli/plain_text.h"
#include "client/cli/tensor_argument.h"
#include "client/cli/units.h"

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

// Asks the server by `ask(client, token)`, and prints the answer: as JSON, or
// the text that `tell` makes of it.
template <typename Ask, typename Tell>
int Operate(const GlobalFlags& global, const std::string& token_file,
            const Ask& ask, const Tell& tell) {
  auto token = ReadToken(token_file);
  if (!token.ok()) return Report(global, token.status());
  Client client(global.options());
  const auto response = ask(client, *token);
  if (!response.ok()) return Report(global, response.status());
  if (global.json) {
    PrintJson(MessageJson(*response));
  } else {
    std::cout << tell(*response);
  }
  return 0;
}

std::string DrainText(const v1::DrainResponse& response) {
  return absl::StrFormat(
      "%s; takes new connections for %g s, cuts what is left after %g s%s; %d "
      "requests in flight\n",
      response.started() ? "draining" : "draining already",
      static_cast<double>(response.delay_ns()) * 1e-9,
      static_cast<double>(response.limit_ns()) * 1e-9,
      response.started() ? "" : ", both from the beginning of the drain",
      response.requests_in_flight());
}

std::string PoolText(const v1::StreamPool& pool) {
  return absl::StrFormat(
      "%-28s %3d of %3d streams: %d idle, %d leased, %d draining, %d retired; "
      "%d ended before; %d works wait; %s of scratch\n",
      OneLine(pool.name()),
      pool.idle() + pool.leased() + pool.draining() + pool.retired(),
      pool.max(), pool.idle(), pool.leased(), pool.draining(), pool.retired(),
      pool.destroyed_total(), pool.waiting(), ByteText(pool.arena_bytes()));
}

std::string PoolsText(const v1::GetPoolsResponse& response) {
  std::string text;
  for (const v1::StreamPool& pool : response.pools()) text += PoolText(pool);
  return text;
}

}  // namespace

Command AddAdmin(CLI::App& app, const GlobalFlags& global) {
  auto token_file = std::make_shared<std::string>();
  auto level = std::make_shared<std::string>();
  CLI::App* admin = app.add_subcommand(
      "admin",
      "Operate a server: drain it, change its log level and its pools of "
      "streams");
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
  CLI::App* pools =
      admin->add_subcommand("pools", "List the pools of streams and their use");
  CLI::App* configure = admin->add_subcommand(
      "configure-pool", "Change how many streams a pool may have");
  CLI::App* trim = admin->add_subcommand(
      "trim-pool", "End streams of a pool that nobody uses");
  auto pool = std::make_shared<std::string>();
  for (CLI::App* command : {configure, trim}) {
    command
        ->add_option("pool", *pool, "Its name, as \"weir admin pools\" has it")
        ->required()
        ->check(Name());
  }
  auto max = std::make_shared<uint32_t>(0);
  auto keep = std::make_shared<uint32_t>(0);
  const auto count = CLI::Range(0, 1 << 16);
  configure->add_option("max", *max, "Streams that it may have")
      ->required()
      ->check(count);
  trim->add_option("--keep", *keep, "Idle streams that stay")->check(count);
  return {admin, [=, &global] {
            const auto operate = [&](const auto& ask, const auto& tell) {
              return Operate(global, *token_file, ask, tell);
            };
            if (drain->parsed()) {
              return operate(
                  [](Client& client, const std::string& token) {
                    return client.Drain(token);
                  },
                  DrainText);
            }
            if (log_level->parsed()) {
              return operate(
                  [&](Client& client, const std::string& token) {
                    return client.SetLogLevel(Levels().at(*level), token);
                  },
                  [&](const v1::SetLogLevelResponse& response) {
                    return absl::StrCat("log level ", *level, ", was ",
                                        LevelName(response.previous()), "\n");
                  });
            }
            if (pools->parsed()) {
              return operate(
                  [](Client& client, const std::string& token) {
                    return client.GetPools(token);
                  },
                  PoolsText);
            }
            if (configure->parsed()) {
              return operate(
                  [&](Client& client, const std::string& token) {
                    return client.ConfigurePool(*pool, *max, token);
                  },
                  [](const v1::ConfigurePoolResponse& response) {
                    return absl::StrCat(PoolText(response.pool()), "it had ",
                                        response.previous_max(),
                                        " at most before\n");
                  });
            }
            return operate(
                [&](Client& client, const std::string& token) {
                  return client.TrimPool(*pool, *keep, token);
                },
                [](const v1::TrimPoolResponse& response) {
                  return absl::StrCat(response.destroyed(), " streams end\n",
                                      PoolText(response.pool()));
                });
          }};
}

}  // namespace weir::client
