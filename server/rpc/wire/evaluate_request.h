// weir.v1.EvaluateRequest without a protobuf object: tensor data and the graph
// stay in the received slices. Everything parsed lives there or in the call's
// arena. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

#include "absl/status/status.h"
#include "server/bytes/byte_view.h"
#include "server/bytes/call_arena.h"
#include "server/rpc/wire/wire_graph.h"
#include "server/rpc/wire/wire_tensor.h"

namespace weir {

// Enumerations are their numbers on the wire, not checked.

// A tensor that is there, whose number stands for the output from then on.
struct WireTensorInto {
  uint64_t number = 0;
};

struct WireOutputRequest {
  std::string_view name;
  // monostate: inline.
  std::variant<std::monostate, WireTensorNumber, WireRegion, WireTensorInto>
      destination;
};

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
  std::span<WireTensor> inputs;
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
  uint64_t work = 0;
};

// INVALID_ARGUMENT for what is no such message. Messages that protobuf would
// merge (two graphs, two values of an input, two regions) are refused.
absl::Status ParseEvaluateRequest(const ByteView& bytes, CallArena* arena,
                                  EvaluateRequestView* request);

}  // namespace weir
