// Any text as a config.pbtxt, and what it says of a small model: it is read, or
// refused for a reason, and what was read is read alike once more.
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "proto/inference/model_config.pb.h"
#include "server/models/model_config.h"

namespace weir {
namespace {

void Check(bool holds) {
  if (!holds) std::abort();
}

void CheckStatus(const absl::Status& status) {
  Check(status.ok() || absl::IsInvalidArgument(status) ||
        absl::IsUnimplemented(status) || absl::IsFailedPrecondition(status));
}

ValueDecl Decl(const char* name, DType dtype, std::vector<Dim> dims) {
  ValueDecl decl;
  decl.name = name;
  decl.dtype = dtype;
  decl.shape = SymbolicDims(dims.begin(), dims.end());
  return decl;
}

DeviceInfo Info(DeviceKind kind) {
  DeviceInfo info;
  info.kind = kind;
  return info;
}

// Batches of rows and of text.
Graph Model() {
  Graph graph;
  graph.symbols = {"N"};
  graph.inputs = {Decl("x", DType::kFloat, {Dim::Symbol(0), Dim(3)}),
                  Decl("words", DType::kString, {Dim::Symbol(0), Dim()})};
  graph.outputs = {"y", "class"};
  return graph;
}

void Run(std::string_view text) {
  const auto read = ReadModelConfig(text, "m");
  CheckStatus(read.status());
  if (!read.ok()) return;
  std::string printed;
  Check(google::protobuf::TextFormat::PrintToString(*read, &printed));
  const auto again = ReadModelConfig(printed, "m");
  Check(again.ok());
  Check(google::protobuf::util::MessageDifferencer::Equals(*again, *read));

  Check(ChooseVersions(*read, {}).size() <= text.size());
  (void)ChooseVersions(*read, {1, 2, 10});
  for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kCuda}) {
    const DeviceInfo device = Info(kind);
    (void)WantsCpu(*read);
    (void)FieldsWithoutEffect(*read, device);
    for (const bool has_host : {false, true}) {
      CheckStatus(CheckInstances(*read, device, has_host));
    }
    inference::ModelConfig config = *read;
    Graph graph = Model();
    ChooseOutputs(config, &graph);
    std::vector<ValueDecl> outputs;
    for (const std::string& name : graph.outputs) {
      outputs.push_back(Decl(name.c_str(), DType::kInt64, {Dim::Symbol(0)}));
    }
    const auto found =
        CompleteModelConfig(graph.inputs, outputs, outputs, &config);
    CheckStatus(found.status());
    if (!found.ok()) continue;
    Check(found->inputs.size() == graph.inputs.size());
    Check(found->outputs.size() == outputs.size());
    CompleteInstances(device, &config);
    Check(config.instance_group_size() > 0);
  }
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weir::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}
