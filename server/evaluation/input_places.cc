#include "server/evaluation/input_places.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"

namespace weir {

std::string OwnerOf(const ServedModel* model) {
  return model == nullptr ? "the graph"
                          : absl::StrCat("model \"", model->name, "\"");
}

absl::Status NoSuch(std::string_view kind, std::string_view name,
                    const NameList& names, const ServedModel* model,
                    std::string_view field) {
  return InvalidField(
      field, absl::StrCat(OwnerOf(model), " has no ", AbslView(kind), " \"",
                          AbslView(name), "\", but ", names.Text()));
}

NameList NamesOf(const std::vector<ValueDecl>& declared) {
  NameList names;
  for (const ValueDecl& each : declared) names.Add(each.name);
  return names;
}

absl::Status InputPlaces::Begin(const std::vector<ValueDecl>& declared,
                                size_t given, const ServedModel* model) {
  declared_ = &declared;
  model_ = model;
  WEIR_ASSIGN_OR_RETURN(places_,
                        arena_->TryAllocateSpan<size_t>(declared.size()));
  std::fill(places_.begin(), places_.end(), kNotGiven);
  WEIR_RETURN_IF_ERROR(
      arena_->Charge(ValueFinder::Bytes(declared.size(), given)));
  finder_.emplace(declared, given);
  return absl::OkStatus();
}

absl::StatusOr<size_t> InputPlaces::Place(size_t i, std::string_view name) {
  const int at = finder_->Find(name);
  if (at < 0) {
    return NoSuch("input", name, NamesOf(*declared_), model_, InputField(i));
  }
  const size_t position = static_cast<size_t>(at);
  if (given(position)) {
    return InvalidField(InputField(i), absl::StrCat("input \"", AbslView(name),
                                                    "\" is given twice"));
  }
  places_[position] = i;
  return position;
}

}  // namespace weir
