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
// there is no file) and does not depend on the device: name, platform, backend,
// file, version policy. INVALID_ARGUMENT names line and column, or the field;
// UNIMPLEMENTED names what weir does not do.
absl::StatusOr<inference::ModelConfig> ReadModelConfig(
    std::string_view text, const std::string& model_name);

// FAILED_PRECONDITION if instance_group wants a device that is not there:
// beside a GPU there is the CPU too if `has_host`.
absl::Status CheckInstances(const inference::ModelConfig& config,
                            const DeviceInfo& device, bool has_host);

// Whether instance_group wants the CPU and nothing else.
bool WantsCpu(const inference::ModelConfig& config);

// Says of each group what it is on the device that runs the model; without any,
// the model is there once.
void CompleteInstances(const DeviceInfo& device,
                       inference::ModelConfig* config);

// The versions to serve out of those that exist (ascending). A specific version
// that does not exist is listed too, so that its absence is reported.
std::vector<int64_t> ChooseVersions(const inference::ModelConfig& config,
                                    const std::vector<int64_t>& existing);

// Fields that are set and change nothing for a model that runs on `device`,
// though they would in Triton. Of a configuration before CompleteInstances.
std::vector<std::string> FieldsWithoutEffect(
    const inference::ModelConfig& config, const DeviceInfo& device);

// Leaves `graph` the outputs that `config` lists, in its order; all if it lists
// none. One that the graph lacks is for CompleteModelConfig to refuse.
void ChooseOutputs(const inference::ModelConfig& config, Graph* graph);

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
