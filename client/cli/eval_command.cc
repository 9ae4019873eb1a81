// weir eval: one evaluation of a program.
#include <iostream>
#include <map>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/json_output.h"
#include "client/cli/message_text.h"
#include "client/cli/output_printer.h"
#include "client/cli/requests.h"
#include "client/cpp/status_details.h"

namespace weir::client {
namespace {

struct EvalFlags {
  std::string program;
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  std::string mode = "sync_full";
  std::string device;
  std::string label;
  std::string report = "brief";
  bool seed_given = false;
  uint64_t seed = 0;
};

const std::map<std::string, v1::EvalMode>& Modes() {
  static const auto& modes = *new std::map<std::string, v1::EvalMode>{
      {"eager", v1::EVAL_MODE_EAGER},
      {"sync_cpu", v1::EVAL_MODE_SYNC_CPU},
      {"sync_full", v1::EVAL_MODE_SYNC_FULL}};
  return modes;
}

int Run(const GlobalFlags& global, const EvalFlags& flags) {
  auto inputs = ParseInputs(flags.inputs);
  if (!inputs.ok()) return ReportArgument(global, inputs.status());
  auto graph = ReadProgram(flags.program);
  if (!graph.ok()) return Report(global, graph.status());
  v1::EvaluateRequest request = MakeEvaluateRequest(*std::move(graph), *inputs);
  request.set_mode(Modes().at(flags.mode));
  request.set_device(flags.device);
  request.set_label(flags.label);
  request.set_report(flags.report == "full" ? v1::REPORT_LEVEL_FULL
                                            : v1::REPORT_LEVEL_BRIEF);
  request.set_report_settings(flags.report == "full");
  if (flags.seed_given) request.set_rng_seed(flags.seed);
  absl::Status fits = CheckRequestBytes(request.ByteSizeLong());
  if (!fits.ok()) return Report(global, fits);

  Client client(global.options());
  auto response = client.Evaluate(request);
  if (!response.ok()) {
    const ErrorDetails error = DetailsOf(response.status());
    if (flags.report == "full" && error.report.has_value()) {
      if (global.json) {
        PrintJson({{"report", MessageJson(*error.report)}});
      } else {
        std::cout << "SyncReport\n" << MessageText(*error.report);
      }
    }
    return Report(global, response.status());
  }
  std::vector<std::string> names;
  for (const v1::NamedTensor& output : response->outputs()) {
    names.push_back(output.name());
  }
  const auto files = OutputFiles(flags.outputs, names, "the program");
  if (!files.ok()) return Report(global, files.status());
  OutputPrinter printer(global.json, *files);
  for (const v1::NamedTensor& output : response->outputs()) {
    const v1::TensorSpec& spec = output.value().spec();
    const std::vector<int64_t> shape(spec.shape().begin(), spec.shape().end());
    absl::Status sound =
        CheckTensorBytes(spec.dtype(), shape, output.value().raw().size());
    if (!sound.ok()) return Report(global, sound);
    absl::Status written =
        printer.Add(output.name(), spec.dtype(), shape, output.value().raw());
    if (!written.ok()) return Report(global, written);
  }
  if (global.json) {
    Json json = {{"outputs", printer.TakeJson()},
                 {"report", MessageJson(response->report())}};
    if (response->has_settings()) {
      json["settings"] = MessageJson(response->settings());
    }
    PrintJson(json);
    return 0;
  }
  std::cout << "SyncReport\n" << MessageText(response->report());
  if (response->has_settings()) {
    std::cout << "ResolvedSettings\n" << MessageText(response->settings());
  }
  return 0;
}

}  // namespace

Command AddEval(CLI::App& app, const GlobalFlags& global) {
  auto flags = std::make_shared<EvalFlags>();
  CLI::App* eval = app.add_subcommand(
      "eval", "Evaluate a program: protobuf text format, or ONNX for *.onnx");
  eval->add_option("program", flags->program, "File with the program")
      ->required();
  eval->add_option("--input,-i", flags->inputs,
                   "An input, as x=float:3:1,2,3, once for each; see below");
  eval->add_option("--output,-o", flags->outputs,
                   "NAME=FILE: write an output (a picture for *.png);\n"
                   "once for each")
      ->check(CheckOutputFile);
  eval->add_option("--mode", flags->mode,
                   "When the call returns: the work was accepted (eager), was\n"
                   "launched (sync_cpu), or its completion was seen "
                   "(sync_full)")
      ->check(CLI::IsMember(Modes()))
      ->capture_default_str();
  eval->add_option("--device", flags->device, "Device by name or UUID")
      ->check(Name());
  eval->add_option("--label", flags->label,
                   "Shown in the server's log lines about the call")
      ->check(Name());
  eval->add_option("--report", flags->report, "brief or full")
      ->check(CLI::IsMember({"brief", "full"}))
      ->capture_default_str();
  // Of a negative one CLI11 makes a large one.
  CLI::Option* seed =
      eval->add_option("--seed", flags->seed, "Seed of random operators")
          ->check([](const std::string& text) -> std::string {
            uint64_t parsed = 0;
            return absl::SimpleAtoi(text, &parsed)
                       ? ""
                       : "\"" + text +
                             "\" is not a whole number from 0 to 2^64-1";
          });
  eval->footer(InputHelp());
  return {eval, [flags, &global, seed] {
            flags->seed_given = seed->count() > 0;
            return Run(global, *flags);
          }};
}

}  // namespace weir::client
