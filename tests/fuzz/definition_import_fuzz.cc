// Any bytes as a GraphDefinition: a graph with all that the message has, or a
// status; what imports passes or fails validation and inference. The first byte
// says for which of its inputs the request gives types.
#include <google/protobuf/stubs/logging.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "kernels/base/error_info.h"
#include "kernels/graph/graph.h"
#include "kernels/graph/infer.h"
#include "kernels/ops/registry.h"
#include "proto/weir/v1/graph.pb.h"
#include "server/models/bad_text.h"
#include "server/models/definition_import.h"

namespace weir {
namespace {

void Check(bool holds) {
  if (!holds) std::abort();
}

// Constants are taken out of the definition, so it is compared with what it
// was.
void Compare(const v1::GraphDefinition& from, const Graph& graph) {
  Check(graph.inputs.size() == static_cast<size_t>(from.inputs_size()));
  Check(graph.outputs.size() == static_cast<size_t>(from.outputs_size()));
  Check(graph.nodes.size() == static_cast<size_t>(from.nodes_size()));
  Check(graph.constants.size() == static_cast<size_t>(from.constants_size()));
  for (const v1::NamedTensor& constant : from.constants()) {
    const HostTensor& tensor = graph.constants.at(constant.name())->tensor;
    Check(tensor.dims.size() ==
          static_cast<size_t>(constant.value().spec().shape_size()));
    const auto bytes = ByteSize(tensor.dtype, tensor.dims);
    Check(bytes.ok());
    if (tensor.dtype == DType::kString) {
      size_t total = 0;
      const auto* strings = static_cast<const StringRef*>(tensor.data);
      for (size_t i = 0; i < static_cast<size_t>(*bytes) / sizeof(StringRef);
           ++i) {
        total += sizeof(uint32_t) + strings[i].size;
      }
      Check(total == constant.value().raw().size());
    } else {
      Check(static_cast<size_t>(*bytes) == constant.value().raw().size());
    }
  }
  for (int i = 0; i < from.nodes_size(); ++i) {
    const GraphNode& node = graph.nodes[static_cast<size_t>(i)];
    for (const v1::Attribute& attribute : from.nodes(i).attributes()) {
      Check(node.attributes.Has(attribute.name()));
    }
  }
}

void Run(std::string_view bytes, unsigned which) {
  static const auto& registry = *MakeOpRegistry().release();
  // Which has a line for each text of a broken message.
  [[maybe_unused]] static const auto log =
      google::protobuf::SetLogHandler(nullptr);
  // Those are refused by what comes before it.
  if (FindBadText(*v1::GraphDefinition::descriptor(), bytes).has_value())
    return;
  v1::GraphDefinition definition;
  if (!definition.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return;
  std::vector<GivenInput> given;
  for (int i = 0; i < definition.inputs_size() && i < 6; ++i) {
    if ((which >> i & 1) == 0) continue;
    given.push_back({definition.inputs(i).name(), DType::kFloat, i % 3});
  }
  if ((which & 0xC0) == 0xC0) given.push_back({"nobody", DType::kInt64, 1});
  const auto graph = ImportDefinition(definition, given);
  if (!graph.ok()) {
    return Check(absl::IsInvalidArgument(graph.status()) ||
                 absl::IsUnimplemented(graph.status()) ||
                 absl::IsResourceExhausted(graph.status()));
  }
  Compare(definition, *graph);
  const auto order = Validate(*graph, registry);
  if (!order.ok()) return;
  (void)InferShapes(*graph, *order, registry);
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  weir::Run({reinterpret_cast<const char*>(data) + 1, size - 1}, data[0]);
  return 0;
}
