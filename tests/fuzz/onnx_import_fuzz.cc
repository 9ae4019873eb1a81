// Any bytes as an ONNX model, as a caller may send them: a graph or a status;
// what imports must pass or fail validation and inference the same quiet way.
// And any bytes as a definition whose names are looked at.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/graph/graph.h"
#include "kernels/graph/infer.h"
#include "kernels/ops/registry.h"
#include "proto/weir/v1/graph.pb.h"
#include "server/models/bad_text.h"
#include "server/models/onnx_import.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto& registry = *weir::MakeOpRegistry().release();
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  (void)weir::FindBadText(*weir::v1::GraphDefinition::descriptor(), bytes);
  const auto graph = weir::ImportOnnx(bytes);
  if (!graph.ok()) return 0;
  const auto order = weir::Validate(*graph, registry);
  if (!order.ok()) return 0;
  (void)weir::InferShapes(*graph, *order, registry);
  return 0;
}
