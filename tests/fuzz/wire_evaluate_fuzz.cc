// Any bytes either parse as an EvaluateRequest or are refused with
// INVALID_ARGUMENT. What we accept, protobuf accepts and reads alike. The first
// byte says how the message is cut into pieces.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "proto/weir/v1/evaluator.pb.h"
#include "server/rpc/wire_evaluate.h"
#include "tests/rpc/reply_bytes.h"
#include "tests/rpc/sliced.h"

namespace weir {
namespace {

void Check(bool holds) {
  if (!holds) std::abort();
}

void CompareTensor(const v1::NamedTensor& reference, const WireTensor& tensor) {
  Check(reference.name() == tensor.name);
  const v1::TensorSpec& spec = reference.value().spec();
  Check(spec.dtype() == tensor.spec.dtype);
  Check(spec.layout() == tensor.spec.layout);
  Check(std::equal(spec.shape().begin(), spec.shape().end(),
                   tensor.spec.shape.begin(), tensor.spec.shape.end()));
  if (const auto* raw = std::get_if<ByteView>(&tensor.source)) {
    Check(reference.value().raw() == ToString(*raw));
  }
}

void CompareWithProtobuf(std::string_view bytes,
                         const EvaluateRequestView& request) {
  // We do not look into a graph before it is compiled.
  if (std::holds_alternative<WireGraphDefinition>(request.graph)) return;
  v1::EvaluateRequest reference;
  Check(reference.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
  Check(reference.mode() == request.mode);
  Check(reference.label() == request.label);
  Check(reference.has_rng_seed() == request.rng_seed.has_value());
  Check(reference.graph().onnx_model().size() ==
        (std::holds_alternative<WireOnnxModel>(request.graph)
             ? std::get<WireOnnxModel>(request.graph).bytes.size()
             : 0));
  Check(static_cast<size_t>(reference.inputs_size()) == request.inputs.size());
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    CompareTensor(reference.inputs(static_cast<int>(i)), request.inputs[i]);
  }
  Check(static_cast<size_t>(reference.after_size()) == request.after.size());
}

// The inputs, sent back.
void BuildReply(const EvaluateRequestView& request) {
  std::vector<EvaluateOutput> outputs;
  for (const WireTensor& input : request.inputs) {
    outputs.push_back({input.name, input.spec, WireTensorNumber{7}});
  }
  EvaluateReply reply;
  reply.work = request.context;
  reply.outputs = outputs;
  ReplyBuffer buffer = BuildEvaluateReply(reply);
  v1::EvaluateResponse response;
  Check(response.ParseFromString(ReplyBytes(buffer)));
  Check(static_cast<size_t>(response.outputs_size()) == outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    Check(response.outputs(static_cast<int>(i)).name() == outputs[i].name);
  }
}

void Run(std::string_view bytes, size_t piece) {
  const Sliced sliced(bytes, piece);
  CallArena arena;
  EvaluateRequestView request;
  const absl::Status status =
      ParseEvaluateRequest(sliced.view(), &arena, &request);
  Check(status.ok() || status.code() == absl::StatusCode::kInvalidArgument);
  if (!status.ok()) return;
  CompareWithProtobuf(bytes, request);
  BuildReply(request);
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1,
                               size - 1);
  weir::Run(bytes, size_t{data[0]} + 1);
  return 0;
}
