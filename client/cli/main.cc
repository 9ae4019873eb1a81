// weir: the command line of a weir server. Exit code 0, 1 for a failure, 2 for
// wrong usage.
#include <CLI/CLI.hpp>
#include <iostream>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/version.h"

namespace weir::client {

namespace {

int Main(int argc, char** argv) {
  GlobalFlags flags;
  CLI::App app("Talks to a weir server.", "weir");
  app.set_version_flag("--version", std::string("weir ") + kClientVersion);
  app.require_subcommand(1);
  app.fallthrough();
  app.add_option("--server,-s", flags.server, "HOST:PORT or unix:PATH")
      ->envname("WEIR_SERVER")
      ->capture_default_str();
  app.add_option("--timeout", flags.timeout_seconds, "Seconds a call may take")
      ->check(CLI::Range(0.001, 86400.0))
      ->capture_default_str();
  const std::vector<Command> commands = {
      AddEval(app, flags),    AddInfer(app, flags), AddModels(app, flags),
      AddDevices(app, flags), AddOps(app, flags),   AddLoad(app, flags),
      AddStatus(app, flags)};
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::cerr << "weir: " << error.what() << "; see weir --help\n";
    return 2;
  }
  for (const Command& command : commands) {
    if (command.app->parsed()) return command.run();
  }
  return 2;
}

}  // namespace
}  // namespace weir::client

int main(int argc, char** argv) { return weir::client::Main(argc, argv); }
