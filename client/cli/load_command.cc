// weir load: the load generator.
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/commands.h"
#include "client/cli/json_output.h"
#include "client/cli/made_inputs.h"
#include "client/cli/plain_text.h"
#include "client/cli/requests.h"
#include "client/cpp/load.h"
#include "client/cpp/status_details.h"

namespace weir::client {
namespace {

struct LoadFlags {
  std::string model;
  std::string version;
  std::string program;
  std::vector<std::string> inputs;
  std::vector<std::string> shapes;
  int64_t free_extent = 0;  // 0: not given
  LoadOptions load;
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

// Says which inputs were made up, on standard error: standard output is for
// the result.
void SayMade(const MadeInputs& made, bool given) {
  for (const std::string& note : made.notes) std::cerr << note << "\n";
  if (made.chose_extents && !given) {
    std::cerr << "extents that the model leaves open are 1; --free N or "
                 "--shape NAME=DIMS sets others\n";
  }
}

// One request goes first, by itself: a wrong one is told as what it is, not as
// thousands of errors. What the server may take later, which it says, is for
// the run to meet.
absl::Status Tried(const absl::Status& status) {
  return DetailsOf(status).retry_after.has_value() ? absl::OkStatus() : status;
}

// What is sent over and over.
struct Payload {
  const char* method;
  std::string request;
  std::vector<TensorArgument> inputs;
};

absl::StatusOr<Payload> ModelPayload(const GlobalFlags& global,
                                     const LoadFlags& flags,
                                     const NamedShapes& shapes,
                                     std::vector<TensorArgument> inputs) {
  Client client(global.options());
  auto metadata = client.ModelMetadata(flags.model, flags.version);
  if (!metadata.ok()) return metadata.status();
  auto made = MakeInputs(*metadata, std::move(inputs), shapes,
                         std::max<int64_t>(1, flags.free_extent));
  if (!made.ok()) return made.status();
  SayMade(*made, flags.free_extent > 0);
  const inference::ModelInferRequest request =
      MakeInferRequest(flags.model, flags.version, made->inputs);
  absl::Status fits = CheckRequestBytes(request.ByteSizeLong());
  if (!fits.ok()) return fits;
  absl::Status tried = Tried(client.ModelInfer(request).status());
  if (!tried.ok()) return tried;
  return Payload{"/inference.GRPCInferenceService/ModelInfer",
                 request.SerializeAsString(), std::move(made->inputs)};
}

absl::StatusOr<Payload> ProgramPayload(const GlobalFlags& global,
                                       const std::string& program,
                                       std::vector<TensorArgument> inputs) {
  auto graph = ReadProgram(program);
  if (!graph.ok()) return graph.status();
  v1::EvaluateRequest request = MakeEvaluateRequest(*std::move(graph), inputs);
  request.set_mode(v1::EVAL_MODE_SYNC_FULL);
  absl::Status fits = CheckRequestBytes(request.ByteSizeLong());
  if (!fits.ok()) return fits;
  absl::Status tried =
      Tried(Client(global.options()).Evaluate(request).status());
  if (!tried.ok()) return tried;
  return Payload{"/weir.v1.Evaluator/Evaluate", request.SerializeAsString(),
                 std::move(inputs)};
}

// The quantiles that are shown, by their names.
constexpr std::pair<const char*, double> kQuantiles[] = {
    {"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p99.9", 0.999}, {"max", 1}};

Json ResultJson(const LoadOptions& load, const LoadResult& result) {
  Json json = {
      {"requests", result.calls}, {"requests_per_second", result.PerSecond()},
      {"answers", result.rated},  {"seconds", result.seconds},
      {"callers", load.callers},  {"rate", load.rate},
      {"skipped", result.skipped}};
  // Of no calls there are none: null.
  for (const auto& [name, q] : kQuantiles) {
    Json& latency = json["latency_us"][name] = nullptr;
    if (result.calls > 0) latency = result.Quantile(q);
  }
  json["errors"] = Json::object();
  for (const auto& [code, count] : result.errors) {
    json["errors"][CodeName(code)] = count;
  }
  json["first_error"] = result.first_error;
  return json;
}

void PrintTable(const LoadResult& result) {
  const double rate = result.PerSecond();
  std::cout << absl::StrFormat("%d requests; %d answers in %.3f s: %.*f/s\n",
                               result.calls, result.rated, result.seconds,
                               rate < 100 ? 3 : 0, rate);
  std::string names = "latency (us)";
  std::string figures(names.size(), ' ');
  for (const auto& [name, q] : kQuantiles) {
    absl::StrAppendFormat(&names, "%10s", name);
    absl::StrAppendFormat(
        &figures, "%10s",
        result.calls > 0 ? absl::StrFormat("%.0f", result.Quantile(q)) : "-");
  }
  std::cout << names << "\n" << figures << "\n";
  for (const auto& [code, count] : result.errors) {
    std::cout << absl::StrFormat("errors    %10d  %s\n", count, CodeName(code));
  }
  if (!result.first_error.empty()) {
    std::cout << "first error: " << OneLine(result.first_error) << "\n";
  }
}

// The open loop was none: what its callers would have seen is not in the
// figures.
int ReportSkipped(const GlobalFlags& global, const LoadOptions& load,
                  const LoadResult& result) {
  const int64_t due = result.calls + result.error_count() + result.skipped;
  return Report(
      global,
      absl::ResourceExhaustedError(absl::StrFormat(
          "%d of %d requests (%.1f %%) did not leave when they were due, "
          "because "
          "%d were in flight: callers would have seen longer times than these. "
          "Raise --concurrency, or lower --rate if the server cannot do more",
          result.skipped, due,
          100 * static_cast<double>(result.skipped) / static_cast<double>(due),
          load.callers)));
}

// Some requests failed, or none was answered, or none was due.
int ReportErrors(const GlobalFlags& global, bool open_loop,
                 const LoadResult& result) {
  if (result.errors.empty()) {
    return Report(
        global,
        open_loop
            ? absl::FailedPreconditionError(absl::StrFormat(
                  "no request was due within %g s: raise --rate or --duration",
                  result.seconds))
            : absl::DeadlineExceededError(absl::StrFormat(
                  "no request was answered within %g s", result.seconds)));
  }
  const auto most = std::max_element(
      result.errors.begin(), result.errors.end(),
      [](const auto& a, const auto& b) { return a.second < b.second; });
  return Report(
      global,
      absl::Status(static_cast<absl::StatusCode>(most->first),
                   absl::StrFormat("%d of %d requests failed, the first: %s",
                                   result.error_count(),
                                   result.calls + result.error_count(),
                                   result.first_error)));
}

int Run(const GlobalFlags& global, LoadFlags* flags) {
  if (flags->model.empty() == flags->program.empty()) {
    return ReportUsage(global,
                       "give either a model or --program, to say what to send");
  }
  const bool model = !flags->model.empty();
  if (!model && (!flags->shapes.empty() || flags->free_extent > 0 ||
                 !flags->version.empty())) {
    return ReportUsage(global,
                       "--shape, --free and --model-version are for models: "
                       "give the inputs of a program with --input");
  }
  auto inputs = ParseInputs(flags->inputs);
  if (!inputs.ok()) return ReportArgument(global, inputs.status());
  auto shapes = ParseShapes(flags->shapes);
  if (!shapes.ok()) return ReportArgument(global, shapes.status());
  auto payload =
      model ? ModelPayload(global, *flags, *shapes, *std::move(inputs))
            : ProgramPayload(global, flags->program, *std::move(inputs));
  if (!payload.ok()) return Report(global, payload.status());
  flags->load.request = std::move(payload->request);
  flags->load.method = payload->method;
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
  if (global.json) {
    Json json = ResultJson(flags->load, result);
    Json& sent = json["inputs"] = Json::array();
    for (const TensorArgument& input : payload->inputs) {
      sent.push_back(SpecJson(input.name, input.dtype, input.shape));
    }
    PrintJson(json);
  } else {
    PrintTable(result);
  }
  if (result.skipped > 0) return ReportSkipped(global, flags->load, result);
  const bool good = result.calls > 0 && result.error_count() == 0;
  return good ? 0 : ReportErrors(global, flags->load.rate > 0, result);
}

}  // namespace

Command AddLoad(CLI::App& app, const GlobalFlags& global) {
  auto flags = std::make_shared<LoadFlags>();
  flags->load.threads = 0;
  flags->load.callers = 0;
  CLI::App* load = app.add_subcommand(
      "load", "Send one request over and over and measure it");
  load->add_option("model,--model", flags->model,
                   "A served model (KServe v2); inputs that are not given are\n"
                   "made from what it says of itself")
      ->check(Name());
  load->add_option("--model-version", flags->version,
                   "Version of the model; without it the newest")
      ->check(Name());
  load->add_option("--program", flags->program, "A program (weir.v1 Evaluate)");
  load->add_option("--input,-i", flags->inputs,
                   "An input, as x=float:3:1,2,3, once for each; see below");
  load->add_option("--shape", flags->shapes,
                   "NAME=DIMS: the shape of an input that is made, as x=8x3;\n"
                   "once for each");
  load->add_option(
          "--free", flags->free_extent,
          "Every extent that the model leaves open, of inputs without\n"
          "--shape; without it 1")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  load->add_option(
          "--concurrency,-c", flags->load.callers,
          absl::StrCat("Callers of the closed loop (by default ", kClosedLoop,
                       ");\nmost in flight of the open one (by default ",
                       kOpenLoop, ")"))
      ->check(CLI::Range(1, 100'000));
  load->add_option("--rate", flags->load.rate,
                   "Open loop: requests per second, Poisson; a request that\n"
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
  load->footer(InputHelp());
  return {load, [flags, &global] { return Run(global, flags.get()); }};
}

}  // namespace weir::client
