// Any bytes either parse as a ModelInferRequest or are refused with
// INVALID_ARGUMENT. What we accept, protobuf accepts and reads alike, to the
// last field. The first byte says how the message is cut into pieces.
#include <google/protobuf/util/field_comparator.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "proto/inference/grpc_service.pb.h"
#include "server/bytes/bytes_elements.h"
#include "server/rpc/wire/infer_contents.h"
#include "server/rpc/wire/infer_request.h"
#include "server/rpc/wire/infer_response.h"
#include "tests/bytes/sliced.h"
#include "tests/rpc/reply_bytes.h"
#include "tests/rpc/wire/rebuilt.h"

namespace weir {
namespace {

void Check(bool holds) {
  if (!holds) std::abort();
}

void CheckStatus(const absl::Status& status) {
  Check(status.ok() || status.code() == absl::StatusCode::kInvalidArgument);
}

constexpr size_t kMaxElements = 4096;

// Decodes contents into exactly as much room as the shape asks for.
void DecodeInput(const InferInput& input, CallArena* arena) {
  const auto dtype = DTypeFromKServe(input.datatype);
  if (!dtype.has_value() || !input.contents.has_value()) return;
  uint64_t count = 1;
  for (int64_t dim : input.shape) {
    if (dim < 0 || dim > 64) return;
    count *= static_cast<uint64_t>(dim);
    if (count > kMaxElements) return;
  }
  std::vector<std::byte> room(count * SizeOf(*dtype));
  CheckStatus(
      DecodeContents(*input.contents, *dtype, count, arena, room.data()));
}

void SplitRaw(const ByteView& raw, CallArena* arena) {
  std::vector<StringRef> strings(std::min<size_t>(raw.size(), 3));
  const absl::Status status = SplitStrings(raw, arena, strings);
  CheckStatus(status);
  if (!status.ok()) return;
  size_t total = 0;
  for (const StringRef& s : strings) {
    total += 4 + s.size;
    // Touches every byte.
    Check(std::count(s.data, s.data + s.size, '\0') >= 0);
  }
  Check(total == raw.size());
}

// The request's names, sent back.
void BuildReply(const InferRequest& request) {
  std::vector<InferOutput> outputs;
  for (const InferInput& input : request.inputs) {
    outputs.push_back({input.name, input.datatype, input.shape, std::nullopt});
  }
  InferReply reply;
  reply.model_name = request.model_name;
  reply.id = request.id;
  reply.parameters = request.parameters;
  reply.outputs = outputs;
  ReplyBuffer buffer = BuildInferReply(reply);
  inference::ModelInferResponse response;
  Check(response.ParseFromString(ReplyBytes(buffer)));
  Check(response.id() == request.id);
  Check(static_cast<size_t>(response.outputs_size()) == outputs.size());
}

void CompareWithProtobuf(std::string_view bytes, const InferRequest& request) {
  inference::ModelInferRequest theirs;
  if (!theirs.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    // We do not look into contents before they are decoded.
    return Check(std::any_of(
        request.inputs.begin(), request.inputs.end(),
        [](const InferInput& input) { return input.contents.has_value(); }));
  }
  inference::ModelInferRequest ours = Rebuilt(request);
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

void Run(std::string_view bytes, size_t piece) {
  const Sliced sliced(bytes, piece);
  CallArena arena;
  InferRequest request;
  const absl::Status status =
      ParseInferRequest(sliced.view(), &arena, &request);
  CheckStatus(status);
  if (!status.ok()) return;
  CompareWithProtobuf(bytes, request);
  for (const InferInput& input : request.inputs) DecodeInput(input, &arena);
  for (const ByteView& raw : request.raw_contents) SplitRaw(raw, &arena);
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
