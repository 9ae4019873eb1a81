// config.pbtxt: how a model of the repository is served. Read as protobuf text
// format with the names and numbers of Triton's ModelConfig, checked against
// the ONNX model, and completed from it. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device/device.h"
#include "kernels/graph/graph.h"
#include "server/models/repository.h"

namespace inference {
class ModelConfig;
}  // namespace inference

namespace weir {

// What weir says about its models, in metadata and configurations.
inline constexpr std::string_view kModelPlatform = "onnx_weir";

// The configuration with the defaults of what `text` leaves out (all of it if
// there is no file): name, platform, backend, file, version policy, instances.
// INVALID_ARGUMENT names line and column, or the field; UNIMPLEMENTED names
// what weir does not do.
absl::StatusOr<inference::ModelConfig> ReadModelConfig(
    std::string_view text, const std::string& model_name,
    const DeviceInfo& device);

// The versions to serve out of those that exist (ascending). A specific version
// that does not exist is listed too, so that its absence is reported.
std::vector<int64_t> ChooseVersions(const inference::ModelConfig& config,
                                    const std::vector<int64_t>& existing);

// Fields that are set and change nothing here, though they would in Triton.
std::vector<std::string> FieldsWithoutEffect(
    const inference::ModelConfig& config);

// Checks `config` against what the program found, fills in the inputs and
// outputs that it leaves out, and gives them in the program's order as clients
// see them: with max_batch_size > 0 dims in the configuration exclude the
// batch, which must be the first axis of every input and output, of any size.
// `declared` (the file's outputs) serves where inference knows less; an output
// of which nobody knows the rank is shown as [-1].
struct ModelInterface {
  std::vector<ModelTensor> inputs;
  std::vector<ModelTensor> outputs;
};
absl::StatusOr<ModelInterface> CompleteModelConfig(
    const std::vector<ValueDecl>& inputs, const std::vector<ValueDecl>& outputs,
    const std::vector<ValueDecl>& declared, inference::ModelConfig* config);

}  // namespace weir
