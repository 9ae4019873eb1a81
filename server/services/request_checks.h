// What Evaluate, Explain and ModelInfer check of their requests alike. Any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/device/device.h"
#include "kernels/eval/engine.h"
#include "kernels/graph/graph.h"
#include "server/models/definition_import.h"
#include "server/rpc/wire/wire_tensor.h"
#include "server/services/service_context.h"

namespace weir {

// The engine whose device has this name or UUID; empty: the default. NOT_FOUND
// if none has.
absl::StatusOr<Engine*> FindEngine(const ServiceContext& context,
                                   std::string_view device);

// UNIMPLEMENTED unless the program, which is there on `device`, was asked for
// there, or nowhere in particular.
absl::Status CheckPlacement(std::string_view wanted, const DeviceInfo& device);

// INVALID_ARGUMENT for a number that is no v1::Precision; UNIMPLEMENTED (reason
// PRECISION_NOT_ALLOWED) for one that the server does not compute in. Nothing
// asked for is ignored.
absl::Status CheckPrecision(int32_t precision);

// Whether every input has an element type, and none is a ragged batch
// (UNIMPLEMENTED). `spec` is the path of a spec in an input.
absl::Status CheckSpecs(std::span<const WireTensor> inputs,
                        std::string_view spec);

// Of the inputs that a program declares, one that a request lacks which gives
// fewer: found before anything is made for each of them, for they may be far
// more than a request can give. Null if it gives as many. name_of(i) is that of
// its input i.
const ValueDecl* FindMissing(
    absl::Span<const ValueDecl> declared, size_t given,
    absl::FunctionRef<std::string_view(size_t i)> name_of);
// INVALID_ARGUMENT, field "inputs". `whose`: e.g. "the graph".
absl::Status MissingInput(const ValueDecl& input, std::string_view whose);

// Elements of all BYTES inputs of one request. For one thread.
class TextElements {
 public:
  // Counts those of an input of this type and shape. RESOURCE_EXHAUSTED if they
  // are more than the request may still have.
  absl::Status Take(DType dtype, std::span<const int64_t> shape);

 private:
  int64_t taken_ = 0;
};

// "inputs[i]", of the request.
std::string InputField(size_t i);

// `status` with the request's field where it has the program's: input i of the
// program is number places[i] of the request, or not given.
inline constexpr size_t kNotGiven = SIZE_MAX;
absl::Status WithRequestField(const absl::Status& status,
                              std::span<const size_t> places);

}  // namespace weir
