// Any bytes either parse as an EvaluateRequest or are refused with
// INVALID_ARGUMENT, and so for an ExplainRequest and for what carries commands.
// What we accept, protobuf accepts and reads alike, to the last field. The
// first byte says how the message is cut into pieces.
#include <google/protobuf/util/field_comparator.h>
#include <google/protobuf/util/message_differencer.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "proto/weir/v1/evaluator.pb.h"
#include "server/rpc/wire/commands.h"
#include "server/rpc/wire/evaluate_request.h"
#include "server/rpc/wire/evaluate_response.h"
#include "server/rpc/wire/explain_request.h"
#include "tests/bytes/sliced.h"
#include "tests/rpc/reply_bytes.h"
#include "tests/rpc/wire/rebuilt.h"

namespace weir {
namespace {

void Check(bool holds) {
  if (!holds) std::abort();
}

// What we do not look into at once: a graph before it is compiled, a command
// before it is its turn. What is broken there, protobuf alone sees.
template <typename View>
bool MayHoldBroken(const View& view) {
  return std::holds_alternative<WireGraphDefinition>(view.graph);
}
bool MayHoldBroken(const RunRequestView& view) {
  return !view.commands.empty();
}
bool MayHoldBroken(const SessionRequestView& view) {
  return !view.commands.empty();
}
bool MayHoldBroken(const TensorPutView&) { return false; }

template <typename View>
void CompareWithProtobuf(std::string_view bytes, const View& view) {
  auto ours = Rebuilt(view);
  auto theirs = ours;
  theirs.Clear();
  if (!theirs.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Check(MayHoldBroken(view));
  }
  ours.DiscardUnknownFields();
  theirs.DiscardUnknownFields();
  google::protobuf::util::DefaultFieldComparator comparator;
  comparator.set_treat_nan_as_equal(true);
  google::protobuf::util::MessageDifferencer differencer;
  differencer.set_field_comparator(&comparator);
  // A message that is there and empty is as good as none.
  differencer.set_message_field_comparison(
      google::protobuf::util::MessageDifferencer::EQUIVALENT);
  Check(differencer.Compare(theirs, ours));
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

template <typename View>
bool Parse(absl::Status (*parse)(const ByteView&, CallArena*, View*),
           std::string_view bytes, const ByteView& pieces, CallArena* arena,
           View* view) {
  const absl::Status status = parse(pieces, arena, view);
  Check(status.ok() || status.code() == absl::StatusCode::kInvalidArgument);
  if (status.ok()) CompareWithProtobuf(bytes, *view);
  return status.ok();
}

void Run(std::string_view bytes, size_t piece) {
  const Sliced sliced(bytes, piece);
  CallArena arena;
  EvaluateRequestView request;
  if (Parse(&ParseEvaluateRequest, bytes, sliced.view(), &arena, &request)) {
    BuildReply(request);
  }
  ExplainRequestView explain;
  Parse(&ParseExplainRequest, bytes, sliced.view(), &arena, &explain);
  RunRequestView run;
  Parse(&ParseRunRequest, bytes, sliced.view(), &arena, &run);
  SessionRequestView session;
  Parse(&ParseSessionRequest, bytes, sliced.view(), &arena, &session);
  TensorPutView put;
  Parse(&ParseTensorPut, bytes, sliced.view(), &arena, &put);
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
