// inference.ModelInferResponse without a protobuf object: it references the
// memory where the results are. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "server/bytes/foreign_bytes.h"
#include "server/rpc/reply_buffer.h"
#include "server/rpc/wire/infer_parameter.h"

namespace weir {

struct InferOutput {
  std::string_view name;
  std::string_view datatype;
  std::span<const int64_t> shape;
  // Empty for an output in shared memory, which has no raw entry.
  std::optional<ForeignBytes> raw;
};

struct InferReply {
  std::string_view model_name;
  std::string_view model_version;
  std::string_view id;
  std::span<const InferParameter> parameters;
  std::span<const InferOutput> outputs;
};

// A ModelInferResponse. Small outputs are copied and released at once.
ReplyBuffer BuildInferReply(const InferReply& reply);
// How much that copies.
size_t CopiedBytes(const InferReply& reply);

}  // namespace weir
