// inference.ModelInferRequest and ModelInferResponse without protobuf objects:
// tensor data stays in the received slices, and replies reference the memory
// where the results are. Everything parsed lives in the call's arena or slices.
// Pure functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

#include "absl/status/status.h"
#include "kernels/tensor/dtype.h"
#include "server/rpc/byte_view.h"
#include "server/rpc/call_arena.h"
#include "server/rpc/reply_buffer.h"

namespace weir {

// An InferParameter with its name; monostate if no value was chosen.
struct InferParameter {
  std::string_view name;
  std::variant<std::monostate, bool, int64_t, std::string_view, double,
               uint64_t>
      value;
};

struct InferInput {
  std::string_view name;
  std::string_view datatype;
  std::span<const int64_t> shape;
  std::span<const InferParameter> parameters;
  // An InferTensorContents message; see DecodeContents.
  std::optional<ByteView> contents;
};

struct InferRequestedOutput {
  std::string_view name;
  std::span<const InferParameter> parameters;
};

struct InferRequest {
  std::string_view model_name;
  std::string_view model_version;
  std::string_view id;
  std::span<const InferParameter> parameters;
  std::span<const InferInput> inputs;
  std::span<const InferRequestedOutput> outputs;
  std::span<const ByteView> raw_contents;
};

// What one request may have of each repeated thing; more is INVALID_ARGUMENT.
inline constexpr size_t kMaxWireTensors = 1024;
inline constexpr size_t kMaxWireParameters = 1024;
inline constexpr size_t kMaxTensorParameters = 64;
// Of a string_param.
inline constexpr size_t kMaxStringParameterBytes = 1024;

// INVALID_ARGUMENT for what is no such message. Says nothing about whether the
// request makes sense.
absl::Status ParseInferRequest(const ByteView& bytes, CallArena* arena,
                               InferRequest* request);

// Writes the elements of `contents` as they lie in memory to `out`, which has
// room for `count` of them (StringRefs into slices or arena for kString).
// INVALID_ARGUMENT unless exactly `count` stand in the field of this type, all
// in range, and none in another.
absl::Status DecodeContents(const ByteView& contents, DType dtype, size_t count,
                            CallArena* arena, std::byte* out);

// Splits the raw form of BYTES (4-byte little-endian length, bytes) into
// exactly out.size() elements that point into `raw` or the arena.
absl::Status SplitStrings(const ByteView& raw, CallArena* arena,
                          std::span<StringRef> out);

// Memory that a reply references until it is sent.
struct ForeignBytes {
  const void* data = nullptr;
  size_t size = 0;
  ReplyBuffer::ReleaseFn release = nullptr;
  void* arg = nullptr;
  size_t beside = 0;  // see ReplyBuffer::AppendForeign
};

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

// Outputs up to this size are copied: cheaper than a slice of their own.
inline constexpr size_t kCopiedReplyBytes = 1024;

}  // namespace weir
