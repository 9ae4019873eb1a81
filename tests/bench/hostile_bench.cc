// What hostile requests do to the next honest one, and to the server's memory:
// one weir-server, one request after another, a line for each. See --help.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/bench/piped_process.h"
#include "tests/hostile/hostile_requests.h"
#include "tests/models/temp_folder.h"

namespace weir::bench {
namespace {

using testing::HostileOutcome;
using testing::HostileRequest;
using testing::HostileTarget;

constexpr double kHonestMs = 100;
constexpr double kMiB = 1 << 20;

int Main(int argc, char** argv) {
  CLI::App app(
      "Starts weir-server, sends it each hostile request, and asks an honest\n"
      "caller's ModelInfer, Evaluate and /healthz on new connections while\n"
      "what stalls still does. Prints how long these three took together, and\n"
      "the server's resident memory above what it held before the first one:\n"
      "at most during the attack, and after it.\n\n"
      "Exit codes: 0; 1: an honest caller waited for more than 100 ms or was\n"
      "not served, memory of more than 64 MiB was kept, an answer was wrong,\n"
      "or a request took more memory than it may; 106 and others: a wrong "
      "command line.");
  std::string device;
  std::string only;
  app.add_option("--device", device, "cpu, cuda or cuda:N")->default_val("cpu");
  app.add_option("--only", only, "requests whose name contains this");
  CLI11_PARSE(app, argc, argv);

  const testing::TempFolder models;
  testing::WriteHostileModels(models.path());
  const std::filesystem::path self =
      std::filesystem::read_symlink("/proc/self/exe");
  std::vector<std::string> command = {self.parent_path().parent_path() / "bin" /
                                      "weir-server"};
  for (const std::string& flag :
       testing::HostileServerFlags(device, models.path())) {
    command.push_back(flag);
  }
  PipedProcess server(command);
  const HostileTarget target = HostileTarget::FromReadyLine(server.ReadLine());
  const absl::Status warm =
      target.grpc.empty() ? absl::UnavailableError("the server did not start")
                          : testing::WarmUp(target);
  if (!warm.ok()) {
    std::fprintf(stderr, "hostile_bench: %s\n", warm.ToString().c_str());
    return 1;
  }
  const testing::ResidentMemory baseline = testing::MemoryOf(server.pid());
  std::printf("%s, %.0f MiB resident\n", device.c_str(),
              static_cast<double>(baseline.all) / kMiB);
  std::printf("%-52s %-20s %9s %9s %9s\n", "request", "answer", "next ms",
              "peak MiB", "left MiB");
  int failed = 0;
  double slowest = 0;
  for (const HostileRequest& request : testing::HostileRequests()) {
    if (request.name.find(only) == std::string::npos) continue;
    const HostileOutcome outcome =
        testing::Attack(request, target, server.pid(), baseline);
    const bool holds = outcome.right && outcome.within && outcome.honest.ok() &&
                       outcome.honest_ms <= kHonestMs &&
                       outcome.left_bytes <= testing::kHostileMemoryLeft;
    failed += holds ? 0 : 1;
    slowest = std::max(slowest, outcome.honest_ms);
    std::printf("%-52s %-20s %9.1f %9.1f %9.1f%s\n", request.name.c_str(),
                absl::StatusCodeToString(outcome.answer.code()).c_str(),
                outcome.honest_ms,
                static_cast<double>(outcome.peak_bytes) / kMiB,
                static_cast<double>(outcome.left_bytes) / kMiB,
                holds ? "" : "  DOES NOT HOLD");
    if (outcome.left_bytes > testing::kHostileMemoryLeft) {
      std::printf(
          "    %s\n",
          testing::DescribeMemory(outcome.before, outcome.after).c_str());
    }
    if (!outcome.honest.ok() || !outcome.right) {
      std::printf("    answer: %s\n    honest: %s\n",
                  outcome.answer.ToString().c_str(),
                  outcome.honest.ToString().c_str());
    }
    std::fflush(stdout);
  }
  std::printf("slowest honest answer: %.1f ms; %d do not hold\n", slowest,
              failed);
  server.Terminate();
  return server.Wait() == 0 && failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) { return weir::bench::Main(argc, argv); }
