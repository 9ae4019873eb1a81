// Whole models: ResNet-50, MobileNetV2, BERT-base and a MiniLM-sized encoder,
// made with seeded weights by tests/bench/models, each checked against ONNX
// Runtime's fp32 answer and then timed in this process and over gRPC, beside
// ONNX Runtime (CPU) or torch (GPU), in turn. See --help.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/backend/devices.h"
#include "kernels/ops/registry.h"
#include "tests/bench/model_case.h"
#include "tests/bench/model_contenders.h"
#include "tests/bench/model_limits.h"
#include "tests/bench/piped_process.h"

namespace weir::bench {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kModels = {"resnet50", "mobilenetv2",
                                          "bert-base", "minilm"};

// Of an output from the reference, over the reference's standard deviation. In
// fp16 every layer rounds to 11 bits.
constexpr double kMaxError32 = 1e-3;
constexpr double kMaxError16 = 5e-2;

struct Options {
  Settings settings;
  std::vector<std::string> models = kModels;
  std::vector<std::string> precisions;
  std::vector<int64_t> batches;
  std::vector<std::string> rivals;
  double seconds = 3;
  int rounds = 3;
  bool grpc = true;
  std::string json;
  std::vector<std::string> must;
  bool no_limits = false;
};

[[noreturn]] void Fail(const std::string& why) {
  std::fprintf(stderr, "model_bench: %s\n", why.c_str());
  std::exit(1);
}

// `relative` beside this program's folder, in a build tree or in a bundle.
std::string Find(const std::string& relative) {
  const fs::path self = fs::read_symlink("/proc/self/exe").parent_path();
  for (const fs::path& root :
       {self.parent_path(), self.parent_path().parent_path()}) {
    if (fs::exists(root / relative)) return root / relative;
  }
  Fail(absl::StrCat("there is no ", relative, " above ", self.string()));
}

// Of deploy/setup.sh; else the machine's.
std::string FindPython() {
  const char* tools = std::getenv("WEIR_TEST_TOOLS");
  const fs::path installed =
      fs::path(tools == nullptr ? "/opt/weir/test-tools" : tools) /
      "bench-python/bin/python";
  return fs::exists(installed) ? installed.string() : "python3";
}

Options ParseOptions(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Times ResNet-50, MobileNetV2, BERT-base and a MiniLM-sized encoder in\n"
      "this process and over gRPC, beside their rivals, in turn. Models and\n"
      "inputs are made on demand (hundreds of MB, seconds), never fetched.\n"
      "Each answer is checked against ONNX Runtime's fp32 answer on the CPU\n"
      "first: a wrong one ends the run. Needs Python with numpy, onnx and\n"
      "onnxruntime, which deploy/setup.sh installs.\n\n"
      "Exit codes: 0; 1: a wrong answer, a limit that does not hold, or\n"
      "something is missing; 106 and others: a wrong command line.");
  app.option_defaults()->delimiter(',');
  auto& s = options.settings;
  app.add_option("--device", s.device, "cpu, cuda or cuda:N")
      ->default_val("cpu");
  app.add_option("--models", options.models,
                 "which models, separated by commas, or all")
      ->check(CLI::IsMember([] {
        auto words = kModels;
        words.push_back("all");
        return words;
      }()));
  app.add_option("--precision", options.precisions,
                 "fp32 (default on the CPU), fp16 or both (default on a GPU)")
      ->check(CLI::IsMember({"fp32", "fp16"}));
  app.add_option("--batch", options.batches,
                 "batch sizes; default 1,8 on the CPU, 1,8,32 on a GPU")
      ->check(CLI::Range(1, 1024));
  app.add_option("--threads", s.threads, "CPU threads of every contender")
      ->default_val(2)
      ->check(CLI::Range(1, 1024));
  app.add_option("--seconds", options.seconds,
                 "of each contender in each case, over all rounds")
      ->default_val(3)
      ->check(CLI::Range(0.01, 600.0));
  app.add_option("--rounds", options.rounds, "turns of each contender")
      ->default_val(3)
      ->check(CLI::Range(1, 100));
  app.add_option("--rivals", options.rivals,
                 "onnxruntime (default on the CPU), torch-eager, torch-compile "
                 "(default on a GPU, where torch is installed) or none; ratios "
                 "are to the fastest that runs")
      ->check(CLI::IsMember(
          {"onnxruntime", "torch-eager", "torch-compile", "none"}));
  app.add_flag("!--no-grpc", options.grpc, "leave weir-server out");
  app.add_option("--must", options.must,
                 "MODEL/PRECISION/BATCH=LIMIT, such as bert-base/fp32/1=1.3x "
                 "(times the fastest rival) or resnet50/fp16/1=2.5ms, of weir "
                 "in process, by medians. Replaces the targets of "
                 "docs/benchmarks.md, which hold for batch 1 with two CPU "
                 "threads and on an H200");
  app.add_flag("--no-limits", options.no_limits,
               "measure alone: no limit has to hold");
  app.add_option("--json", options.json, "writes every figure to this file");
  app.add_option("--python", s.python,
                 "which Python; default: the one of deploy/setup.sh if "
                 "there is one, else python3");
  app.add_option("--folder", s.folder,
                 "where models and cases are kept; default bench-models beside "
                 "bench-bin");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error));
  }
  const bool cpu = s.device == "cpu";
  if (std::count(options.models.begin(), options.models.end(), "all") > 0) {
    options.models = kModels;
  }
  if (options.precisions.empty()) {
    options.precisions = {"fp32"};
    if (!cpu) options.precisions.push_back("fp16");
  }
  if (options.batches.empty()) {
    options.batches = {1, 8};
    if (!cpu) options.batches.push_back(32);
  }
  if (options.rivals.empty()) {
    options.rivals = {"onnxruntime"};
    if (!cpu) options.rivals = {"torch-eager", "torch-compile"};
  }
  if (options.rivals == std::vector<std::string>{"none"}) {
    options.rivals.clear();
  }
  if (s.python.empty()) s.python = FindPython();
  s.scripts = Find("tests/bench/models");
  s.server = Find("bin/weir-server");
  if (s.folder.empty()) {
    const fs::path self = fs::read_symlink("/proc/self/exe").parent_path();
    s.folder = self.parent_path() / "bench-models";
  }
  return options;
}

void MakeModels(const Options& options) {
  PipedProcess maker({options.settings.python,
                      options.settings.scripts + "/make_models.py", "--out",
                      options.settings.folder, "--models",
                      absl::StrJoin(options.models, ","), "--precision",
                      absl::StrJoin(options.precisions, ","), "--batch",
                      absl::StrJoin(options.batches, ",")});
  if (maker.Wait() != 0) {
    Fail(absl::StrCat("no models: ", options.settings.python,
                      " needs numpy, onnx and onnxruntime; run "
                      "deploy/setup.sh, or name another with "
                      "--python"));
  }
}

struct Figure {
  std::string contender;
  bool ours = false;
  bool in_process = false;
  double error = 0;
  std::vector<int64_t> ns;  // sorted at the end

  double Ms(double quantile) const {
    const auto at = static_cast<size_t>(
        quantile * static_cast<double>(ns.size() - 1) + 0.5);
    return static_cast<double>(ns[at]) / 1e6;
  }
};

class Bench {
 public:
  explicit Bench(Options options) : options_(std::move(options)) {
    // Opened for its name alone, and so that a missing device is told at once.
    auto registry = MakeOpRegistry();
    auto device =
        MakeDevice(options_.settings.device,
                   {.cpu_threads = options_.settings.threads}, *registry);
    if (!device.ok()) Fail(device.status().ToString());
    const DeviceInfo& info = (*device)->info();
    name_ = info.name;
    std::printf("%s: %s, %d CPU threads\n", DeviceName(info).c_str(),
                name_.c_str(), options_.settings.threads);
    if (options_.no_limits) return;
    limits_ = DefaultModelLimits(info.kind == DeviceKind::kCpu, name_,
                                 options_.settings.threads);
    if (!options_.must.empty()) limits_.clear();
    for (const std::string& text : options_.must) {
      auto limit = ParseModelLimit(text);
      if (!limit.ok()) Fail(std::string(limit.status().message()));
      limits_.push_back(*std::move(limit));
    }
  }

  int Run() {
    MakeModels(options_);
    for (const std::string& model : options_.models) {
      for (const std::string& precision : options_.precisions) {
        RunModel({model, precision});
      }
    }
    // A limit on the command line that no case met was mistyped.
    for (const ModelLimit& limit : limits_) {
      if (options_.must.empty() || judged_.count(limit.which) > 0) continue;
      missed_.push_back(limit.text() + ": no such case ran");
    }
    if (!options_.json.empty()) {
      std::ofstream(options_.json) << json_.dump(1) << "\n";
    }
    for (const std::string& what : missed_) {
      std::printf("MISSED %s\n", what.c_str());
    }
    return missed_.empty() ? 0 : 1;
  }

 private:
  void RunModel(const ModelFile& file) {
    std::vector<std::unique_ptr<Contender>> contenders;
    const auto add = [&](absl::StatusOr<std::unique_ptr<Contender>> made,
                         const std::string& what, bool needed) {
      if (made.ok()) {
        contenders.push_back(*std::move(made));
      } else if (needed) {
        Fail(absl::StrCat(file.stem(), ", ", what, ": ",
                          made.status().ToString()));
      } else {
        std::printf("%s, %s: left out: %s\n", file.stem().c_str(), what.c_str(),
                    std::string(made.status().message()).c_str());
      }
    };
    for (const std::string& rival : options_.rivals) {
      add(MakeRival(options_.settings, file, rival), rival, false);
    }
    const size_t rivals = contenders.size();
    add(MakeInProcess(options_.settings, file), "in process", true);
    if (options_.grpc) {
      add(MakeOverGrpc(options_.settings, file), "over gRPC", true);
    }
    for (const int64_t batch : options_.batches) {
      RunCase(file, batch, contenders, rivals);
    }
  }

  void RunCase(const ModelFile& file, int64_t batch,
               const std::vector<std::unique_ptr<Contender>>& contenders,
               size_t rivals) {
    auto read = ReadModelCase(
        absl::StrCat(options_.settings.folder, "/", file.stem(), "-b", batch));
    if (!read.ok()) Fail(read.status().ToString());
    // Kept: contenders refer to it.
    const ModelCase& chosen =
        *cases_.emplace_back(std::make_unique<ModelCase>(*std::move(read)));
    const std::string which =
        absl::StrCat(file.model, "/", file.precision, "/", batch);

    std::vector<Figure> figures;
    std::vector<Contender*> running;
    for (size_t i = 0; i < contenders.size(); ++i) {
      const bool ours = i >= rivals;
      auto error = contenders[i]->Check(batch, chosen);
      const double bound = file.precision == "fp32" ? kMaxError32 : kMaxError16;
      if (error.ok() && !(*error <= bound)) {
        error = absl::DataLossError(absl::StrFormat(
            "its answer is off by %.2g (at most %g)", *error, bound));
      }
      if (!error.ok()) {
        const std::string why =
            absl::StrCat(which, ", ", contenders[i]->name(), ": ",
                         std::string(error.status().message()));
        if (ours) Fail(why);
        std::printf("%s: left out\n", why.c_str());
        continue;
      }
      running.push_back(contenders[i].get());
      figures.push_back({.contender = contenders[i]->name(),
                         .ours = ours,
                         .in_process = i == rivals,
                         .error = *error,
                         .ns = {}});
    }
    for (int round = 0; round < options_.rounds; ++round) {
      for (size_t i = 0; i < running.size(); ++i) {
        auto times =
            running[i]->Time(batch, options_.seconds / options_.rounds);
        if (!times.ok()) {
          Fail(absl::StrCat(which, ", ", figures[i].contender, ": ",
                            times.status().ToString()));
        }
        figures[i].ns.insert(figures[i].ns.end(), times->begin(), times->end());
      }
    }
    Report(which, figures);
  }

  void Report(const std::string& which, std::vector<Figure>& figures) {
    std::optional<double> rival_ms;
    for (Figure& figure : figures) {
      std::sort(figure.ns.begin(), figure.ns.end());
      if (figure.ours) continue;
      rival_ms = std::min(rival_ms.value_or(figure.Ms(0.5)), figure.Ms(0.5));
    }
    std::printf("\n%-28s %10s %10s %8s %8s %9s\n", which.c_str(), "p50 ms",
                "p99 ms", "x rival", "runs", "error");
    for (const Figure& figure : figures) {
      const double p50 = figure.Ms(0.5), p99 = figure.Ms(0.99);
      const std::string ratio =
          rival_ms.has_value() ? absl::StrFormat("%.2f", p50 / *rival_ms) : "";
      std::printf("  %-26s %10.3f %10.3f %8s %8zu %9.1e\n",
                  figure.contender.c_str(), p50, p99, ratio.c_str(),
                  figure.ns.size(), figure.error);
      nlohmann::json row = {{"device", options_.settings.device},
                            {"device_name", name_},
                            {"threads", options_.settings.threads},
                            {"case", which},
                            {"contender", figure.contender},
                            {"p50_ms", p50},
                            {"p99_ms", p99},
                            {"runs", figure.ns.size()},
                            {"error", figure.error}};
      if (rival_ms.has_value()) row["times_rival"] = p50 / *rival_ms;
      json_.push_back(std::move(row));
      if (!figure.in_process) continue;
      for (const ModelLimit& limit : limits_) {
        if (limit.which != which) continue;
        judged_.insert(which);
        if (auto missed = Missed(limit, p50, rival_ms)) {
          missed_.push_back(*std::move(missed));
        }
      }
    }
    std::fflush(stdout);
  }

  const Options options_;
  std::string name_;
  std::vector<ModelLimit> limits_;
  std::vector<std::unique_ptr<ModelCase>> cases_;
  std::set<std::string> judged_;
  std::vector<std::string> missed_;
  nlohmann::json json_ = nlohmann::json::array();
};

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) {
  return weir::bench::Bench(weir::bench::ParseOptions(argc, argv)).Run();
}
