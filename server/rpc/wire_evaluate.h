// weir.v1.EvaluateRequest and EvaluateResponse (and ExplainRequest, for the
// graph in it) without protobuf objects: tensor data and the graph stay in the
// received slices, and replies reference the memory where the results are.
// Everything parsed lives in the call's arena or slices. Pure functions, any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

#include "absl/status/status.h"
#include "server/rpc/byte_view.h"
#include "server/rpc/call_arena.h"
#include "server/rpc/reply_buffer.h"
#include "server/rpc/wire_infer.h"

namespace weir {

// Enumerations are their numbers on the wire, not checked.

struct WireRegion {
  std::string_view region;
  uint64_t offset = 0;
  uint64_t byte_size = 0;
  std::span<const int64_t> strides;
};

struct WireTensorSpec {
  int32_t dtype = 0;
  std::span<const int64_t> shape;
  std::string_view layout;
  std::span<const std::span<const int64_t>> sample_shapes;
};

struct WireTensorNumber {
  uint64_t number = 0;
};

struct WireTensor {
  std::string_view name;
  WireTensorSpec spec;
  std::variant<std::monostate, ByteView, WireTensorNumber, WireRegion> source;
};

struct WireOutputRequest {
  std::string_view name;
  // monostate: inline.
  std::variant<std::monostate, WireTensorNumber, WireRegion> destination;
};

struct WireModelReference {
  std::string_view name;
  int64_t version = 0;
  std::string_view version_label;  // if not empty, instead of the number
};

struct WireGraphDefinition {
  ByteView bytes;  // a weir.v1.GraphDefinition
};

struct WireOnnxModel {
  ByteView bytes;  // an onnx.ModelProto
};

using WireGraph = std::variant<std::monostate, WireGraphDefinition,
                               WireOnnxModel, WireModelReference>;

struct WirePoint {
  uint64_t timeline = 0;
  uint64_t value = 0;
};

struct WireStreamPolicy {
  int32_t kind = 0;
  uint64_t stream = 0;
  int32_t priority = 0;
};

struct EvaluateRequestView {
  WireGraph graph;
  std::span<const WireTensor> inputs;
  std::span<const WireOutputRequest> outputs;
  int32_t mode = 0;
  uint64_t context = 0;
  std::string_view device;
  WireStreamPolicy stream_policy;
  std::span<const WirePoint> after;
  std::span<const WirePoint> signal;
  std::optional<uint64_t> rng_seed;
  std::string_view label;
  int32_t precision = 0;
  int32_t report = 0;
  bool report_settings = false;
  int32_t on_conflict = 0;
};

// INVALID_ARGUMENT for what is no such message. Messages that protobuf would
// merge (two graphs, two values of an input, two regions) are refused.
absl::Status ParseEvaluateRequest(const ByteView& bytes, CallArena* arena,
                                  EvaluateRequestView* request);

// Bytes of a page_token: of a key, which is a few names.
inline constexpr size_t kMaxPageTokenBytes = 8192;

// A weir.v1.ExplainRequest: the fields that it shares with EvaluateRequest.
// Tensors have no source; an extent of -1 is open.
struct ExplainRequestView {
  WireGraph graph;
  std::span<const WireTensor> inputs;
  std::string_view device;
  int32_t precision = 0;
  int32_t page_size = 0;
  std::string_view page_token;
};

// As ParseEvaluateRequest.
absl::Status ParseExplainRequest(const ByteView& bytes, CallArena* arena,
                                 ExplainRequestView* request);

struct EvaluateOutput {
  std::string_view name;
  WireTensorSpec spec;
  // Inline bytes, or the number that it is kept under, or neither (region).
  std::variant<std::monostate, ForeignBytes, WireTensorNumber> value;
};

struct EvaluateReply {
  uint64_t work = 0;
  std::span<const EvaluateOutput> outputs;
  // Serialized weir.v1.ResolvedSettings and weir.v1.SyncReport; empty: not
  // sent.
  std::string_view settings;
  std::string_view report;
};

// An EvaluateResponse. Small outputs are copied and released at once.
ReplyBuffer BuildEvaluateReply(const EvaluateReply& reply);
// How much that copies.
size_t CopiedBytes(const EvaluateReply& reply);

}  // namespace weir
