// weir.v1.ExplainRequest without a protobuf object, for the graph in it, which
// stays in the received slices. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "server/bytes/byte_view.h"
#include "server/bytes/call_arena.h"
#include "server/rpc/wire/wire_graph.h"
#include "server/rpc/wire/wire_tensor.h"

namespace weir {

// Bytes of a page_token: of a key, which is a few names.
inline constexpr size_t kMaxPageTokenBytes = 8192;

// The fields that it shares with EvaluateRequest are read alike. Tensors have
// no source; an extent of -1 is open.
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

}  // namespace weir
