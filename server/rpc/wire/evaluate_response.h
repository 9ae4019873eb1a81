// weir.v1.EvaluateResponse without a protobuf object: it references the memory
// where the results are. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <variant>

#include "server/bytes/foreign_bytes.h"
#include "server/rpc/reply_buffer.h"
#include "server/rpc/wire/wire_tensor.h"

namespace weir {

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
