// Any bytes either parse as a ModelInferRequest or are refused with
// INVALID_ARGUMENT. What we accept, protobuf accepts and reads alike, to the
// last field and element. The first byte says how the message is cut into
// pieces.
#include <google/protobuf/util/field_comparator.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
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

// Elements as they lie in memory, one after the other; of text with nothing
// between. Nothing for contents that a tensor of the type does not take.
using Elements = std::optional<std::string>;

template <typename T, typename Field>
Elements ElementsAs(const Field& field) {
  std::string bytes;
  for (const auto element : field) {
    const auto value = static_cast<T>(element);
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      if (static_cast<decltype(element)>(value) != element) return std::nullopt;
    }
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return bytes;
}

// What protobuf read, as a tensor of `count` elements.
Elements ElementsOf(const inference::InferTensorContents& contents, DType dtype,
                    size_t count) {
  const auto of = [&](const auto& field, auto read) -> Elements {
    const int all =
        contents.bool_contents_size() + contents.int_contents_size() +
        contents.int64_contents_size() + contents.uint_contents_size() +
        contents.uint64_contents_size() + contents.fp32_contents_size() +
        contents.fp64_contents_size() + contents.bytes_contents_size();
    if (field.size() != all || static_cast<size_t>(all) != count) {
      return std::nullopt;
    }
    return read(field);
  };
  switch (dtype) {
    case DType::kBool:
      return of(contents.bool_contents(),
                [](const auto& f) { return ElementsAs<bool>(f); });
    case DType::kInt8:
      return of(contents.int_contents(),
                [](const auto& f) { return ElementsAs<int8_t>(f); });
    case DType::kInt16:
      return of(contents.int_contents(),
                [](const auto& f) { return ElementsAs<int16_t>(f); });
    case DType::kInt32:
      return of(contents.int_contents(),
                [](const auto& f) { return ElementsAs<int32_t>(f); });
    case DType::kInt64:
      return of(contents.int64_contents(),
                [](const auto& f) { return ElementsAs<int64_t>(f); });
    case DType::kUint8:
      return of(contents.uint_contents(),
                [](const auto& f) { return ElementsAs<uint8_t>(f); });
    case DType::kUint16:
      return of(contents.uint_contents(),
                [](const auto& f) { return ElementsAs<uint16_t>(f); });
    case DType::kUint32:
      return of(contents.uint_contents(),
                [](const auto& f) { return ElementsAs<uint32_t>(f); });
    case DType::kUint64:
      return of(contents.uint64_contents(),
                [](const auto& f) { return ElementsAs<uint64_t>(f); });
    case DType::kFloat:
      return of(contents.fp32_contents(),
                [](const auto& f) { return ElementsAs<float>(f); });
    case DType::kDouble:
      return of(contents.fp64_contents(),
                [](const auto& f) { return ElementsAs<double>(f); });
    case DType::kString:
      return of(contents.bytes_contents(), [](const auto& f) -> Elements {
        std::string bytes;
        for (const std::string& element : f) bytes += element;
        return bytes;
      });
    default:
      return std::nullopt;
  }
}

// Decodes contents into exactly as much room as the shape asks for.
Elements Decode(const ByteView& contents, DType dtype, size_t count,
                CallArena* arena) {
  std::vector<std::byte> room(count * SizeOf(dtype));
  const absl::Status status =
      DecodeContents(contents, dtype, count, arena, room.data());
  CheckStatus(status);
  if (!status.ok()) return std::nullopt;
  if (dtype != DType::kString) {
    return std::string(reinterpret_cast<const char*>(room.data()), room.size());
  }
  std::string bytes;
  const auto* strings = reinterpret_cast<const StringRef*>(room.data());
  for (size_t i = 0; i < count; ++i) {
    bytes.append(strings[i].data, strings[i].size);
  }
  return bytes;
}

// `theirs`: what protobuf made of the same bytes; null if it refuses them.
void DecodeInput(const InferInput& input,
                 const inference::InferTensorContents* theirs, size_t piece,
                 CallArena* arena) {
  const auto dtype = DTypeFromKServe(input.datatype);
  if (!dtype.has_value() || !input.contents.has_value()) return;
  uint64_t count = 1;
  for (int64_t dim : input.shape) {
    if (dim < 0 || dim > 64) return;
    count *= static_cast<uint64_t>(dim);
    if (count > kMaxElements) return;
  }
  const Elements ours = Decode(*input.contents, *dtype, count, arena);
  if (theirs == nullptr) return;
  // We are stricter with bytes than with what they say.
  const Elements expected = ElementsOf(*theirs, *dtype, count);
  Check(!ours.has_value() || ours == expected);
  const std::string written = theirs->SerializeAsString();
  const Sliced sliced(written, piece);
  Check(Decode(sliced.view(), *dtype, count, arena) == expected);
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

// Whether protobuf takes it; then it reads it alike, into `theirs`.
bool CompareWithProtobuf(std::string_view bytes, const InferRequest& request,
                         inference::ModelInferRequest& theirs) {
  if (!theirs.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    // We do not look into contents before they are decoded.
    Check(std::any_of(
        request.inputs.begin(), request.inputs.end(),
        [](const InferInput& input) { return input.contents.has_value(); }));
    return false;
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
  return true;
}

void Run(std::string_view bytes, size_t piece) {
  const Sliced sliced(bytes, piece);
  CallArena arena;
  InferRequest request;
  const absl::Status status =
      ParseInferRequest(sliced.view(), &arena, &request);
  CheckStatus(status);
  if (!status.ok()) return;
  inference::ModelInferRequest theirs;
  const bool read = CompareWithProtobuf(bytes, request, theirs);
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    DecodeInput(request.inputs[i],
                read ? &theirs.inputs(static_cast<int>(i)).contents() : nullptr,
                piece, &arena);
  }
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
