// Inputs of a served model that nobody gave, made from what the model says of
// itself: for load, where any elements will do. Pure; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/tensor_argument.h"
#include "proto/inference/grpc_service.pb.h"

namespace weir::client {

using NamedShapes = std::map<std::string, std::vector<int64_t>>;

struct MadeInputs {
  // All of the model's, in its order, the given ones as they are.
  std::vector<TensorArgument> inputs;
  // One line for each that was made, for people: "image: float [1,1,8,8] of
  // random numbers from 0 to 1".
  std::vector<std::string> notes;
  // An extent that the model leaves open was chosen by `free`.
  bool chose_extents = false;
};

// The flags of shapes: NAME=DIMS each, once for a name.
absl::StatusOr<NamedShapes> ParseShapes(const std::vector<std::string>& texts);

// Reals are random from 0 to 1, the same in every run; integers are ones (an
// index that nearly any table has), bools true. `shapes` says the extents of an
// input, `free` those that the model leaves open in others. INVALID_ARGUMENT
// says what the model has where a name or a shape does not fit, for text, which
// cannot be made up, and for more than a message can carry.
absl::StatusOr<MadeInputs> MakeInputs(
    const inference::ModelMetadataResponse& model,
    std::vector<TensorArgument> given, const NamedShapes& shapes, int64_t free);

}  // namespace weir::client
