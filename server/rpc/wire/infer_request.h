// inference.ModelInferRequest without a protobuf object: tensor data stays in
// the received slices. Everything parsed lives there or in the call's arena.
// Pure functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "server/bytes/byte_view.h"
#include "server/bytes/call_arena.h"
#include "server/rpc/wire/infer_parameter.h"

namespace weir {

struct InferInput {
  std::string_view name;
  std::string_view datatype;
  std::span<const int64_t> shape;
  std::span<const InferParameter> parameters;
  // An InferTensorContents message; see infer_contents.h.
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

// What one request may have of each repeated thing, as of kMaxWireTensors; more
// is INVALID_ARGUMENT.
inline constexpr size_t kMaxWireParameters = 1024;
inline constexpr size_t kMaxTensorParameters = 64;

// INVALID_ARGUMENT for what is no such message. Says nothing about whether the
// request makes sense.
absl::Status ParseInferRequest(const ByteView& bytes, CallArena* arena,
                               InferRequest* request);

}  // namespace weir
