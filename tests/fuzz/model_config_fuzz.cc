// Any text as a config.pbtxt, and what it says of a small model: it is read, or
// refused for a reason, and what was read is read alike once more.
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
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

// Ascending, and of those that exist what the policy says.
void CheckVersions(const inference::ModelConfig& config,
                   const std::vector<int64_t>& existing) {
  const inference::ModelVersionPolicy& policy = config.version_policy();
  std::set<int64_t> wanted;
  if (policy.has_specific()) {
    for (const int64_t version : policy.specific().versions()) {
      wanted.insert(version);
    }
  } else {
    const size_t most = policy.has_all()
                            ? existing.size()
                            : std::max(policy.latest().num_versions(), 1u);
    for (size_t i = existing.size(); i > 0 && wanted.size() < most; --i) {
      wanted.insert(existing[i - 1]);
    }
  }
  const std::vector<int64_t> chosen = ChooseVersions(config, existing);
  Check(std::equal(chosen.begin(), chosen.end(), wanted.begin(), wanted.end()));
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

  CheckVersions(*read, {});
  CheckVersions(*read, {1, 2, 10});
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
