// The commands of `weir`. Each adds its flags to the app; run() is called after
// parsing if the command was given, and returns the exit code: 0, 1 for a
// run-time failure, 2 for wrong usage.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "client/cpp/client.h"

namespace weir::client {

struct Command {
  CLI::App* app = nullptr;
  std::function<int()> run;
};

// Shared by all commands; filled before they run.
struct GlobalFlags {
  const CLI::App* app = nullptr;  // what they and all commands were parsed by
  std::string server = "127.0.0.1:8001";
  double timeout_seconds = 30;
  bool timeout_given = false;
  bool json = false;  // the answer is for programs: see json_output.h

  TlsFiles tls_files;
  TlsOptions tls;  // what the files hold

  ClientOptions options() const;
};

Command AddEval(CLI::App& app, const GlobalFlags& flags);
Command AddInfer(CLI::App& app, const GlobalFlags& flags);
Command AddModels(CLI::App& app, const GlobalFlags& flags);
Command AddDevices(CLI::App& app, const GlobalFlags& flags);
Command AddOps(CLI::App& app, const GlobalFlags& flags);
Command AddLoad(CLI::App& app, const GlobalFlags& flags);
Command AddSpaces(CLI::App& app, const GlobalFlags& flags);
Command AddAdmin(CLI::App& app, const GlobalFlags& flags);
Command AddStatus(CLI::App& app, const GlobalFlags& flags);

// A number within both. CLI::Range lets a NaN pass, which is never outside.
CLI::Validator Within(double least, double most);

// Text that becomes a name on the wire, which must be UTF-8.
CLI::Validator Name();

// Print a failure on standard error and give the exit code. With --json it is
// one object on one line, as json_output.h says, else one line of text
//
// "weir: CODE: message [details]", exit code 1;
int Report(const GlobalFlags& flags, const absl::Status& status);
// "weir: what; see weir load --help", the exit code of wrong usage. The page is
// that of the command, or of the one above it that has the flag or the variable
// with which `what` begins;
int ReportUsage(const GlobalFlags& flags, const std::string& what);
// the latter for INVALID_ARGUMENT, the former for all else: of what a command
// line says, and of files that it names.
int ReportArgument(const GlobalFlags& flags, const absl::Status& status);

// What --help says of inputs below the flags.
std::string InputHelp();

}  // namespace weir::client
