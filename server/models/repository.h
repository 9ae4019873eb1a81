// A Triton-style model repository: ROOT/NAME/VERSION/model.onnx, with an
// optional ROOT/NAME/config.pbtxt. What is served is an immutable snapshot that
// is swapped on change; lookups read it without a shared lock. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/graph/program.h"
#include "kernels/tensor/dtype.h"
#include "kernels/tensor/shape.h"

namespace weir {

// As clients see a model's input or output.
struct ModelTensor {
  std::string name;
  DType dtype = DType::kInvalid;
  Dims shape;  // -1 for an extent that the request decides; with batch axis
};

// One version that is served. Immutable.
struct ServedModel {
  // Among all versions that its repository found to load, by name and version,
  // from 0: where its counts are. The same at each start, and in each server,
  // with these models.
  size_t number = 0;
  std::string name;
  std::string version;              // "1"
  std::string platform;             // "onnx_weir"
  int max_batch_size = 0;           // 0: the shapes are as the model has them
  std::vector<ModelTensor> inputs;  // in the order of program->inputs()
  // In the order of program->outputs(): those that the configuration lists, in
  // its order; if it lists none, the model's.
  std::vector<ModelTensor> outputs;
  std::shared_ptr<const Program> program;
  std::string config;  // serialized inference.ModelConfig
  // Fields of config.pbtxt that were read and have no effect, or not that one.
  std::vector<std::string> ignored_fields;
};

// Whether the model, as it is served, takes this shape of input `index`:
// configured dims and the limit of the batch hold whatever the program could
// do. INVALID_ARGUMENT says what was given and what is taken; the caller names
// the input.
absl::Status CheckInputShape(const ServedModel& model, size_t index,
                             absl::Span<const int64_t> shape);
// The same of a shape that is not known whole: kUnknownExtent fits everywhere.
inline constexpr int64_t kUnknownExtent = -1;
absl::Status CheckOpenInputShape(const ServedModel& model, size_t index,
                                 absl::Span<const int64_t> shape);

// With a batch axis, all inputs of a request have the same batch.
// INVALID_ARGUMENT names both. REQUIRES: the shapes fit, as above.
struct GivenShape {
  std::string_view name;
  absl::Span<const int64_t> shape;
};
absl::Status CheckBatch(const ServedModel& model, const GivenShape& first,
                        const GivenShape& other);

enum class ModelState : uint8_t { kLoading, kReady, kUnavailable };

struct ModelIndexEntry {
  std::string name;
  std::string version;
  ModelState state = ModelState::kLoading;
  std::string reason;  // why it is not ready
};

// Folders in a model's folder that are no versions, beside some that are.
struct StrayFolders {
  std::string model;
  std::vector<std::string> folders;  // sorted; readable, whatever their bytes
};

struct RepositoryOptions {
  std::string root;  // empty: no models
  int load_threads = 2;
  EvaluationLimits evaluation = {};  // of one request to a model
  // The CPU beside another device, for models with text that the device cannot
  // run, and for those whose configuration wants the CPU. Null: those are
  // refused. Outlives the repository and its models.
  Device* host = nullptr;
  // As in ProgramOptions: plans come and go while their model is served.
  std::shared_ptr<ReclaimQueue> reclaim = nullptr;
};

class ModelRepository {
 public:
  // Lists what there is, as loading. `device` and `registry` outlive the
  // repository and its models. NOT_FOUND if the root is no folder.
  static absl::StatusOr<std::unique_ptr<ModelRepository>> Open(
      const RepositoryOptions& options, Device* device,
      const OpRegistry* registry);
  ~ModelRepository();

  // Loads every model (policy of its configuration: by default the highest
  // version); once. Waits until all are ready or refused; a bad model is listed
  // with its reason and does not keep the others from being served.
  void LoadAll();
  // LoadAll returns at the next step of each model that it loads; what is not
  // loaded by then stays so. Any thread.
  void StopLoading();

  // `version` "" is the highest that is ready. NOT_FOUND for a model or version
  // that is not in the repository, or that its version policy leaves out
  // (reason MODEL_NOT_FOUND), or that was refused when it was loaded
  // (MODEL_REFUSED, with why): it stays so. UNAVAILABLE (MODEL_NOT_READY, with
  // when to ask again) while it is being loaded.
  absl::StatusOr<std::shared_ptr<const ServedModel>> Find(
      std::string_view name, std::string_view version) const;

  // As Open found them; by model.
  const std::vector<StrayFolders>& strays() const;
  // The same of files NAME.onnx beside the models' folders: sorted; readable.
  const std::vector<std::string>& loose_files() const;

  // By name, then version.
  std::vector<ModelIndexEntry> Index() const;
  // Those that are ready, in the same order.
  std::vector<std::shared_ptr<const ServedModel>> Served() const;

 private:
  struct State;
  explicit ModelRepository(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace weir
