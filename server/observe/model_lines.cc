#include "server/observe/model_lines.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"

namespace weir {
namespace {

// So many of a kind a message names.
constexpr size_t kMostNamed = 5;

// "a, b, c", with "..." for those behind the first ones.
std::string NameSome(absl::Span<const std::string> names) {
  std::string text =
      absl::StrJoin(names.first(std::min(names.size(), kMostNamed)), ", ");
  if (names.size() > kMostNamed) text += ", ...";
  return text;
}

std::string NameOf(const ModelIndexEntry& entry) {
  std::string name = absl::StrCat("model ", entry.name);
  if (!entry.version.empty()) {
    absl::StrAppend(&name, " version ", entry.version);
  }
  return name;
}

}  // namespace

void WriteModels(const ModelRepository& models, const std::string& root,
                 Logger* logger) {
  if (!root.empty() && models.Index().empty()) {
    logger->Log(LogLevel::kWarning,
                absl::StrCat("--model-repository=", root,
                             ": no models in it; it must hold folders "
                             "NAME/VERSION/model.onnx"));
  }
  const auto quote = [](const std::vector<std::string>& names) {
    std::vector<std::string> quoted;
    quoted.reserve(names.size());
    for (const std::string& name : names) {
      quoted.push_back(absl::StrCat("\"", name, "\""));
    }
    return quoted;
  };
  if (!models.loose_files().empty()) {
    logger->Log(LogLevel::kWarning,
                absl::StrCat("--model-repository=", root,
                             ": files beside the models' folders are not "
                             "served, which must be NAME/VERSION/model.onnx: ",
                             NameSome(quote(models.loose_files()))));
  }
  for (const StrayFolders& stray : models.strays()) {
    logger->Log(
        LogLevel::kWarning,
        absl::StrCat("model ", stray.model,
                     ": folders that are no version (\"1\", \"2\", ...) "
                     "and not served: ",
                     NameSome(quote(stray.folders))));
  }
  for (const ModelIndexEntry& entry : models.Index()) {
    if (entry.state != ModelState::kReady) {
      logger->Log(
          LogLevel::kWarning,
          absl::StrCat(NameOf(entry), " is not served: ", entry.reason));
      continue;
    }
    const auto model = models.Find(entry.name, entry.version);
    if (model.ok() && !(*model)->ignored_fields.empty()) {
      logger->Log(
          LogLevel::kWarning,
          absl::StrCat(NameOf(entry),
                       ": no effect in this version, in its config.pbtxt: ",
                       absl::StrJoin((*model)->ignored_fields, ", ")));
    }
  }
}

std::string ModelsAtFault(const ModelRepository& models,
                          const std::string& root) {
  const std::vector<ModelIndexEntry> index = models.Index();
  if (index.empty()) {
    return absl::StrCat("--strict-readiness: there is no model in ", root);
  }
  std::vector<std::string> refused;
  for (const ModelIndexEntry& entry : index) {
    if (entry.state != ModelState::kReady) refused.push_back(NameOf(entry));
  }
  if (refused.empty()) return "";
  return absl::StrCat("--strict-readiness: ", refused.size(), " of ",
                      index.size(),
                      " model versions are not served: ", NameSome(refused));
}

}  // namespace weir
