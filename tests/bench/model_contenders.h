// Who runs a model in model_bench: weir in this process, weir-server over
// gRPC, and rivals in Python. Each takes a case, says how far its answer is
// from the reference, and then runs it over and over. Used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/bench/model_case.h"

namespace weir::bench {

struct Settings {
  std::string device = "cpu";  // as --device of weir-server
  int threads = 2;             // of the CPU
  std::string python;
  std::string scripts;  // tests/bench/models
  std::string folder;   // what make_models.py wrote
  std::string server;   // the program
};

// A model file: "resnet50" in "fp32".
struct ModelFile {
  std::string model;
  std::string precision;

  std::string stem() const { return model + "-" + precision; }
};

class Contender {
 public:
  virtual ~Contender() = default;
  virtual const std::string& name() const = 0;
  // Before Time of the same batch. See RelativeError; of the worst output.
  virtual absl::StatusOr<double> Check(int64_t batch, const ModelCase& of) = 0;
  // Nanoseconds of each run, for about that long.
  virtual absl::StatusOr<std::vector<int64_t>> Time(int64_t batch,
                                                    double seconds) = 0;
};

absl::StatusOr<std::unique_ptr<Contender>> MakeInProcess(
    const Settings& settings, const ModelFile& file);
absl::StatusOr<std::unique_ptr<Contender>> MakeOverGrpc(
    const Settings& settings, const ModelFile& file);
// `kind`: onnxruntime, torch-eager or torch-compile. UNAVAILABLE with the
// reason where it cannot run.
absl::StatusOr<std::unique_ptr<Contender>> MakeRival(const Settings& settings,
                                                     const ModelFile& file,
                                                     const std::string& kind);

}  // namespace weir::bench
