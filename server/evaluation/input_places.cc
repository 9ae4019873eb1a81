#include "server/evaluation/input_places.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"

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

void InputPlaces::Begin(const std::vector<ValueDecl>& declared, size_t given,
                        const ServedModel* model) {
  declared_ = &declared;
  model_ = model;
  places_.assign(declared.size(), kNotGiven);
  finder_.emplace(declared, given);
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
