// weir load: the load generator.
#include <unistd.h>

#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/commands.h"
#include "client/cli/requests.h"
#include "client/cpp/load.h"

namespace weir::client {
namespace {

struct LoadFlags {
  std::string model;
  std::string program;
  std::vector<std::string> inputs;
  LoadOptions load;
  bool json = false;
};

// In flight, where --concurrency does not say.
constexpr int kClosedLoop = 8;
constexpr int kOpenLoop = 1024;

constexpr const char* kCodeNames[] = {"OK",
                                      "CANCELLED",
                                      "UNKNOWN",
                                      "INVALID_ARGUMENT",
                                      "DEADLINE_EXCEEDED",
                                      "NOT_FOUND",
                                      "ALREADY_EXISTS",
                                      "PERMISSION_DENIED",
                                      "RESOURCE_EXHAUSTED",
                                      "FAILED_PRECONDITION",
                                      "ABORTED",
                                      "OUT_OF_RANGE",
                                      "UNIMPLEMENTED",
                                      "INTERNAL",
                                      "UNAVAILABLE",
                                      "DATA_LOSS",
                                      "UNAUTHENTICATED"};

const char* CodeName(int code) {
  return code >= 0 && code < 17 ? kCodeNames[code] : "?";
}

absl::Status FillRequest(const std::vector<TensorArgument>& inputs,
                         LoadFlags* flags) {
  if (!flags->model.empty()) {
    flags->load.method = "/inference.GRPCInferenceService/ModelInfer";
    flags->load.request =
        MakeInferRequest(flags->model, "", inputs).SerializeAsString();
    return absl::OkStatus();
  }
  auto graph = ReadProgram(flags->program);
  if (!graph.ok()) return graph.status();
  v1::EvaluateRequest request = MakeEvaluateRequest(*std::move(graph), inputs);
  request.set_mode(v1::EVAL_MODE_SYNC_FULL);
  flags->load.method = "/weir.v1.Evaluator/Evaluate";
  flags->load.request = request.SerializeAsString();
  return absl::OkStatus();
}

void PrintJson(const LoadOptions& load, const LoadResult& result) {
  nlohmann::json json = {{"requests", result.calls},
                         {"requests_per_second", result.PerSecond()},
                         {"seconds", result.seconds},
                         {"callers", load.callers},
                         {"rate", load.rate},
                         {"skipped", result.skipped},
                         {"latency_us",
                          {{"p50", result.Quantile(0.5)},
                           {"p90", result.Quantile(0.9)},
                           {"p99", result.Quantile(0.99)},
                           {"p99.9", result.Quantile(0.999)},
                           {"max", result.Quantile(1)}}}};
  json["errors"] = nlohmann::json::object();
  for (const auto& [code, count] : result.errors) {
    json["errors"][CodeName(code)] = count;
  }
  std::cout << json.dump(2) << "\n";
}

void PrintTable(const LoadResult& result) {
  std::cout << absl::StrFormat("%d requests in %.1f s: %.0f/s\n", result.calls,
                               result.seconds, result.PerSecond());
  std::cout << "latency (us)     p50       p90       p99     p99.9       max\n"
            << absl::StrFormat("          %10.0f%10.0f%10.0f%10.0f%10.0f\n",
                               result.Quantile(0.5), result.Quantile(0.9),
                               result.Quantile(0.99), result.Quantile(0.999),
                               result.Quantile(1));
  for (const auto& [code, count] : result.errors) {
    std::cout << absl::StrFormat("errors    %10d  %s\n", count, CodeName(code));
  }
  if (!result.first_error.empty()) {
    std::cout << "first error: " << result.first_error << "\n";
  }
}

// The open loop was none: what its callers would have seen is not in the
// figures.
int ReportSkipped(const LoadOptions& load, const LoadResult& result) {
  const int64_t due = result.calls + result.error_count() + result.skipped;
  return Report(absl::ResourceExhaustedError(absl::StrFormat(
      "%d of %d requests (%.1f %%) did not leave when they were due, because "
      "%d were in flight: callers would have seen longer times than these. "
      "Raise --concurrency, or lower --rate if the server cannot do more",
      result.skipped, due,
      100 * static_cast<double>(result.skipped) / static_cast<double>(due),
      load.callers)));
}

int Run(const GlobalFlags& global, LoadFlags* flags) {
  if (flags->model.empty() == flags->program.empty()) {
    return ReportUsage("give either --model or --program, to say what to send");
  }
  auto inputs = ParseInputs(flags->inputs);
  if (!inputs.ok()) return ReportArgument(inputs.status());
  if (absl::Status status = FillRequest(*inputs, flags); !status.ok()) {
    return Report(status);
  }
  flags->load.address = global.server;
  flags->load.tls = global.tls;
  flags->load.timeout_seconds = global.timeout_seconds;
  if (flags->load.callers == 0) {
    flags->load.callers = flags->load.rate > 0 ? kOpenLoop : kClosedLoop;
  }
  if (flags->load.threads == 0) {
    flags->load.threads = flags->load.callers >= 8 ? 2 : 1;
  }
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const LoadResult result =
      RunLoad(flags->load, [terminal](const LoadProgress& progress) {
        // One line that is written over on a terminal, a line each elsewhere.
        std::cerr << absl::StrFormat("%s%5.1f s  %d requests  %d errors%s",
                                     terminal ? "\r" : "", progress.seconds,
                                     progress.calls, progress.errors,
                                     terminal ? " " : "\n");
      });
  if (terminal) std::cerr << "\n";
  if (flags->json) {
    PrintJson(flags->load, result);
  } else {
    PrintTable(result);
  }
  if (result.skipped > 0) return ReportSkipped(flags->load, result);
  return result.calls > 0 && result.error_count() == 0 ? 0 : 1;
}

}  // namespace

Command AddLoad(CLI::App& app, const GlobalFlags& global) {
  auto flags = std::make_shared<LoadFlags>();
  flags->load.threads = 0;
  flags->load.callers = 0;
  CLI::App* load = app.add_subcommand(
      "load", "Send one request over and over and measure it");
  load->add_option("--model", flags->model, "A served model (KServe v2)");
  load->add_option("--program", flags->program, "A program (weir.v1 Evaluate)")
      ->check(CLI::ExistingFile);
  load->add_option("--input,-i", flags->inputs,
                   "NAME=@FILE | NAME=@FILE:DTYPE:DIMS | NAME=DTYPE:DIMS:V,V");
  load->add_option(
          "--concurrency,-c", flags->load.callers,
          absl::StrCat("Callers of the closed loop (by default ", kClosedLoop,
                       "); most in flight of the open one (by default ",
                       kOpenLoop, ")"))
      ->check(CLI::Range(1, 100'000));
  load->add_option("--rate", flags->load.rate,
                   "Open loop: requests per second, Poisson; a request that "
                   "cannot leave when it is due makes the exit code 1")
      ->check(Within(kMinLoadRate, kMaxLoadRate));
  load->add_option("--duration", flags->load.seconds, "Seconds")
      ->check(Within(0.1, 86400))
      ->capture_default_str();
  load->add_option("--warmup", flags->load.warmup_seconds,
                   "Seconds before, not counted")
      ->check(Within(0, 3600))
      ->capture_default_str();
  load->add_option("--connections", flags->load.threads,
                   "Connections, a thread each; 0: 1, or 2 from 8 callers on")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
  load->add_flag("--json", flags->json, "Print the result as JSON");
  return {load, [flags, &global] { return Run(global, flags.get()); }};
}

}  // namespace weir::client
