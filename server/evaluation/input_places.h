// Which input of a program each of a request's inputs is, by name: one rule,
// with one set of words, for all that a request may give inputs for. For one
// thread at a time, while the program and the model live.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/graph/graph.h"
#include "server/bytes/call_arena.h"
#include "server/evaluation/request_fields.h"
#include "server/evaluation/value_finder.h"
#include "server/models/name_list.h"
#include "server/models/repository.h"

namespace weir {

// Whose inputs and outputs they are, in errors. Null: a graph of the caller's.
std::string OwnerOf(const ServedModel* model);

// INVALID_ARGUMENT: none of those that there are has that name. `kind`:
// "input".
absl::Status NoSuch(std::string_view kind, std::string_view name,
                    const NameList& names, const ServedModel* model,
                    std::string_view field);
NameList NamesOf(const std::vector<ValueDecl>& declared);

class InputPlaces {
 public:
  // The arena outlives it.
  explicit InputPlaces(CallArena* arena) : arena_(arena) {}

  // For a request that gives `given` of the `declared` inputs. The payer's
  // error where there is no room to list them.
  absl::Status Begin(const std::vector<ValueDecl>& declared, size_t given,
                     const ServedModel* model);

  // The position of input i of the request, which is called `name`.
  // INVALID_ARGUMENT, with its field, if there is none or it was given before.
  absl::StatusOr<size_t> Place(size_t i, std::string_view name);

  // Whether the request gave it.
  bool given(size_t position) const { return places_[position] != kNotGiven; }

  // `status` with the request's field where it has the program's.
  absl::Status WithRequestField(const absl::Status& status) const {
    return weir::WithRequestField(status, places_);
  }

 private:
  CallArena* const arena_;
  const std::vector<ValueDecl>* declared_ = nullptr;
  const ServedModel* model_ = nullptr;
  std::optional<ValueFinder> finder_;
  std::span<size_t> places_;  // in the request, of the program's inputs
};

}  // namespace weir
