// How errors name the tensors of a request: an input of one number and place in
// its message has another in the program. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/graph/graph.h"

namespace weir {

// "inputs[i]" and "outputs[i]", of the request.
std::string InputField(size_t i);
std::string OutputField(size_t i);

// "input \"NAME\": ", before what is wrong with it.
std::string InputLabel(std::string_view name);

// `status` with the request's field where it has the program's: input i of the
// program is number places[i] of the request, or not given.
inline constexpr size_t kNotGiven = SIZE_MAX;
absl::Status WithRequestField(const absl::Status& status,
                              std::span<const size_t> places);

// Of the inputs that a program declares, one that a request lacks which gives
// fewer: found before anything is made for each of them, for they may be far
// more than a request can give. Null if it gives as many. name_of(i) is that of
// its input i.
const ValueDecl* FindMissing(
    absl::Span<const ValueDecl> declared, size_t given,
    absl::FunctionRef<std::string_view(size_t i)> name_of);
// INVALID_ARGUMENT, field "inputs". `whose`: e.g. "the graph".
absl::Status MissingInput(const ValueDecl& input, std::string_view whose);

}  // namespace weir
