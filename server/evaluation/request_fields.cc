#include "server/evaluation/request_fields.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"

namespace weir {

std::string InputField(size_t i) { return absl::StrCat("inputs[", i, "]"); }

std::string OutputField(size_t i) { return absl::StrCat("outputs[", i, "]"); }

std::string InputLabel(std::string_view name) {
  return absl::StrCat("input \"", AbslView(name), "\": ");
}

absl::Status WithRequestField(const absl::Status& status,
                              std::span<const size_t> places) {
  const std::string field = Field(status);
  absl::string_view number = field;
  size_t i = 0;
  if (!absl::ConsumePrefix(&number, "inputs[") ||
      !absl::ConsumeSuffix(&number, "]") || !absl::SimpleAtoi(number, &i) ||
      i >= places.size()) {
    return status;
  }
  return WithField(status,
                   places[i] == kNotGiven ? "inputs" : InputField(places[i]));
}

const ValueDecl* FindMissing(
    absl::Span<const ValueDecl> declared, size_t given,
    absl::FunctionRef<std::string_view(size_t i)> name_of) {
  if (given >= declared.size()) return nullptr;
  absl::flat_hash_set<absl::string_view> names;
  for (size_t i = 0; i < given; ++i) names.insert(AbslView(name_of(i)));
  // Among the first so many, one at least.
  const auto missing = std::find_if(
      declared.begin(), declared.end(),
      [&](const ValueDecl& input) { return !names.contains(input.name); });
  return missing == declared.end() ? nullptr : &*missing;
}

absl::Status MissingInput(const ValueDecl& input, std::string_view whose) {
  return InvalidField("inputs", absl::StrCat("input \"", input.name, "\" of ",
                                             AbslView(whose), " is missing"));
}

}  // namespace weir
