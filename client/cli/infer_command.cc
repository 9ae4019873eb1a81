// weir infer: one request to a served model through KServe v2.
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client/cli/commands.h"
#include "client/cli/json_output.h"
#include "client/cli/message_text.h"
#include "client/cli/output_printer.h"
#include "client/cli/requests.h"

namespace weir::client {
namespace {

struct InferFlags {
  std::string model;
  std::string version;
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  std::string labels;
  double at_least = 0;
  std::string report;
};

constexpr char kLabelsForm[] =
    "whole numbers from 0 on, one for each row, divided by line ends or blanks";

// No row's label.
constexpr int64_t kNoClass = -1;

// The largest of each row of a float output [n, classes]; kNoClass of one that
// has a NaN, which is neither more nor less than the others.
std::vector<int64_t> Classes(const std::string& raw, int64_t rows,
                             int64_t classes) {
  std::vector<int64_t> best;
  std::vector<float> row(static_cast<size_t>(classes));
  const size_t row_bytes = row.size() * sizeof(float);
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(row.data(), raw.data() + static_cast<size_t>(r) * row_bytes,
                row_bytes);
    const bool numbers = std::none_of(
        row.begin(), row.end(), [](float score) { return std::isnan(score); });
    best.push_back(numbers
                       ? std::max_element(row.begin(), row.end()) - row.begin()
                       : kNoClass);
  }
  return best;
}

struct Accuracy {
  size_t right = 0;
  size_t rows = 0;
  size_t nan_rows = 0;  // with a NaN: never right
  double share() const {
    return static_cast<double>(right) / static_cast<double>(rows);
  }
};

// The classes that a file names, divided by blanks or line ends.
absl::StatusOr<std::vector<int64_t>> ReadLabels(const std::string& path) {
  auto text = ReadFile(path);
  if (!text.ok()) {
    return absl::Status(text.status().code(),
                        absl::StrCat("--labels: ", text.status().message()));
  }
  std::vector<int64_t> labels;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    ++number;
    for (absl::string_view word :
         absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty())) {
      int64_t label = 0;
      if (!absl::SimpleAtoi(word, &label) || label < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("--labels: ", path, ":", number, ": \"",
                         absl::CEscape(word.substr(0, 40)),
                         "\" is no class: the file has ", kLabelsForm));
      }
      labels.push_back(label);
    }
  }
  // Without any, an output of no rows might say any number of classes.
  if (labels.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--labels: ", path, " holds no labels"));
  }
  return labels;
}

// Compares the classes of the first float [n, classes] output with the labels.
absl::StatusOr<Accuracy> CheckLabels(
    const std::vector<int64_t>& labels,
    const inference::ModelInferResponse& response) {
  for (int i = 0; i < response.outputs_size(); ++i) {
    const auto& output = response.outputs(i);
    if (output.datatype() != "FP32" || output.shape_size() != 2 ||
        output.shape(1) == 0) {
      continue;
    }
    if (static_cast<size_t>(output.shape(0)) != labels.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--labels has ", labels.size(), " labels for ",
                       output.shape(0), " rows of '", output.name(), "'"));
    }
    const std::vector<int64_t> classes = Classes(
        response.raw_output_contents(i), output.shape(0), output.shape(1));
    Accuracy accuracy = {.rows = labels.size()};
    for (size_t r = 0; r < labels.size(); ++r) {
      if (classes[r] == labels[r]) ++accuracy.right;
      if (classes[r] == kNoClass) ++accuracy.nan_rows;
    }
    return accuracy;
  }
  return absl::InvalidArgumentError(
      "--labels: the model has no FP32 output [rows, classes]");
}

// As eval shows it; as it came where it is none that this program knows.
std::string ReportText(const std::string& json) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  v1::SyncReport report;
  return google::protobuf::util::JsonStringToMessage(json, &report, options)
                 .ok()
             ? absl::StrCat("SyncReport\n", MessageText(report))
             : absl::StrCat(json, "\n");
}

// The report that came with the reply, if one did.
const std::string* ReportOf(const inference::ModelInferResponse& response) {
  const auto report = response.parameters().find("weir_sync_report");
  return report == response.parameters().end() ? nullptr
                                               : &report->second.string_param();
}

void PrintAll(Json outputs, const std::string* report,
              const std::optional<Accuracy>& accuracy) {
  Json json = {{"outputs", std::move(outputs)}};
  if (report != nullptr) {
    json["report"] = Json::parse(*report, nullptr, /*allow_exceptions=*/false);
  }
  if (accuracy.has_value()) {
    json["accuracy"] = accuracy->share();
    json["right"] = accuracy->right;
    json["rows"] = accuracy->rows;
    json["nan_rows"] = accuracy->nan_rows;
  }
  PrintJson(json);
}

int Run(const GlobalFlags& global, const InferFlags& flags) {
  auto inputs = ParseInputs(flags.inputs);
  if (!inputs.ok()) return ReportArgument(global, inputs.status());
  std::vector<int64_t> labels;
  if (!flags.labels.empty()) {
    auto read = ReadLabels(flags.labels);
    if (!read.ok()) return Report(global, read.status());
    labels = *std::move(read);
  }
  inference::ModelInferRequest request =
      MakeInferRequest(flags.model, flags.version, *inputs);
  if (!flags.report.empty()) {
    (*request.mutable_parameters())["weir_sync_report"].set_string_param(
        flags.report);
  }
  absl::Status fits = CheckRequestBytes(request.ByteSizeLong());
  if (!fits.ok()) return Report(global, fits);
  Client client(global.options());
  auto response = client.ModelInfer(request);
  if (!response.ok()) return Report(global, response.status());
  if (absl::Status sound = CheckInferReply(*response); !sound.ok()) {
    return Report(global, sound);
  }
  std::vector<std::string> names;
  for (const auto& output : response->outputs()) {
    names.push_back(output.name());
  }
  const auto files = OutputFiles(flags.outputs, names, "the model");
  if (!files.ok()) return Report(global, files.status());
  OutputPrinter printer(global.json, *files);
  for (int i = 0; i < response->outputs_size(); ++i) {
    const auto& output = response->outputs(i);
    absl::Status written =
        printer.Add(output.name(), DtypeFromKserve(output.datatype()),
                    {output.shape().begin(), output.shape().end()},
                    response->raw_output_contents(i));
    if (!written.ok()) return Report(global, written);
  }
  const std::string* const report = ReportOf(*response);
  if (!global.json && report != nullptr) std::cout << ReportText(*report);
  std::optional<Accuracy> accuracy;
  if (!labels.empty()) {
    auto checked = CheckLabels(labels, *response);
    if (!checked.ok()) return Report(global, checked.status());
    accuracy = *checked;
    if (!global.json) {
      std::cout << "accuracy " << accuracy->share() << " (" << accuracy->right
                << " of " << accuracy->rows << ")\n";
      if (accuracy->nan_rows > 0) {
        std::cout << "  of these rows " << accuracy->nan_rows
                  << " have a NaN among their scores, and are wrong\n";
      }
    }
  }
  if (global.json) PrintAll(printer.TakeJson(), report, accuracy);
  if (!accuracy.has_value() || accuracy->share() >= flags.at_least) return 0;
  return Report(global, absl::FailedPreconditionError(
                            absl::StrCat("accuracy ", accuracy->share(),
                                         " is below ", flags.at_least)));
}

}  // namespace

Command AddInfer(CLI::App& app, const GlobalFlags& global) {
  auto flags = std::make_shared<InferFlags>();
  CLI::App* infer =
      app.add_subcommand("infer", "Send one request to a served model");
  infer->add_option("model", flags->model, "Name of the model")
      ->required()
      ->check(Name());
  infer
      ->add_option("--model-version", flags->version,
                   "Version; without it the newest")
      ->check(Name());
  infer->add_option("--input,-i", flags->inputs,
                    "An input, as x=float:3:1,2,3, once for each; see below");
  infer
      ->add_option("--output,-o", flags->outputs,
                   "NAME=FILE: write an output; once for each")
      ->check(CheckOutputFile);
  CLI::Option* const labels = infer->add_option(
      "--labels", flags->labels,
      absl::StrCat("File of the right classes: prints the accuracy. It has\n",
                   kLabelsForm));
  infer
      ->add_option("--at-least", flags->at_least,
                   "Fail if the accuracy is lower (with --labels)")
      ->check(Within(0, 1))
      ->needs(labels);
  infer
      ->add_option("--report", flags->report,
                   "Print the sync report: brief or full")
      ->check(CLI::IsMember({"brief", "full"}));
  infer->footer(InputHelp());
  return {infer, [flags, &global] { return Run(global, *flags); }};
}

}  // namespace weir::client
