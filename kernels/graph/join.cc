#include "kernels/graph/join.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/status_macros.h"
#include "kernels/graph/node_error.h"

namespace weir {
namespace {

class Joiner {
 public:
  explicit Joiner(absl::Span<const JoinPart> parts) : parts_(parts) {}

  absl::StatusOr<Graph> Run() {
    for (size_t part = 0; part < parts_.size(); ++part) {
      WEIR_RETURN_IF_ERROR(AddOpsets(part));
      WEIR_RETURN_IF_ERROR(AddInputs(part));
      AddConstants(part);
      AddNodes(part);
      AddOutputs(part);
    }
    return std::move(joined_);
  }

 private:
  using Names = std::map<std::string, std::string, std::less<>>;

  const Graph& graph(size_t part) const { return *parts_[part].graph; }

  // What a part's value is called in the joined graph.
  std::string Name(size_t part, std::string_view name) const {
    if (name.empty()) return "";
    if (const auto linked = linked_.find(name); linked != linked_.end()) {
      return linked->second;
    }
    return absl::StrCat(part, "/", AbslView(name));
  }

  // Also what goes without saying, for the other parts may say otherwise.
  absl::Status AddOpsets(size_t part) {
    auto opsets = graph(part).opsets;
    for (const GraphNode& node : graph(part).nodes) {
      opsets.emplace(node.domain, OpsetOf(graph(part), node.domain));
    }
    for (const auto& [domain, version] : opsets) {
      const auto [it, inserted] = joined_.opsets.emplace(domain, version);
      if (inserted || it->second == version) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("domain \"", domain, "\" is used at opsets ", it->second,
                       " and ", version));
    }
    return absl::OkStatus();
  }

  // Whether every value made as `made` is one declared as `wanted`.
  static bool Fits(const ValueDecl& made, const ValueDecl& wanted) {
    if (made.dtype != wanted.dtype) return false;
    if (!wanted.shape.has_value()) return true;
    if (!made.shape.has_value() || made.shape->size() != wanted.shape->size()) {
      return false;
    }
    return std::none_of(wanted.shape->begin(), wanted.shape->end(),
                        [](Dim dim) { return dim.known(); });
  }

  absl::Status AddInputs(size_t part) {
    const int first_symbol = static_cast<int>(joined_.symbols.size());
    for (const std::string& symbol : graph(part).symbols) {
      joined_.symbols.push_back(absl::StrCat(part, "/", symbol));
    }
    Names linked;
    for (size_t i = 0; i < graph(part).inputs.size(); ++i) {
      ValueDecl input = graph(part).inputs[i];
      const std::optional<PartValue>& link = parts_[part].links[i];
      if (link.has_value()) {
        if (!Fits((*parts_[link->part].outputs)[link->index], input)) {
          return absl::FailedPreconditionError(
              absl::StrCat("input \"", input.name, "\" of part ", part,
                           " declares what a joined graph would not check"));
        }
        linked[input.name] = outputs_[link->part][link->index];
        continue;
      }
      input.name = absl::StrCat(part, "/", input.name);
      if (input.shape.has_value()) {
        for (Dim& dim : *input.shape) {
          if (dim.symbolic()) dim = Dim::Symbol(first_symbol + dim.symbol());
        }
      }
      joined_.inputs.push_back(std::move(input));
    }
    linked_ = std::move(linked);
    return absl::OkStatus();
  }

  void AddConstants(size_t part) {
    for (const auto& [name, constant] : graph(part).constants) {
      joined_.constants.emplace(absl::StrCat(part, "/", name), constant);
    }
  }

  void AddNodes(size_t part) {
    for (const GraphNode& node : graph(part).nodes) {
      GraphNode copy = node;
      for (std::string& name : copy.inputs) name = Name(part, name);
      for (std::string& name : copy.outputs) name = Name(part, name);
      joined_.nodes.push_back(std::move(copy));
    }
  }

  void AddOutputs(size_t part) {
    std::vector<std::string>& names = outputs_.emplace_back();
    for (const std::string& output : graph(part).outputs) {
      names.push_back(Name(part, output));
      if (parts_[part].wanted[names.size() - 1]) {
        joined_.outputs.push_back(names.back());
      }
    }
  }

  const absl::Span<const JoinPart> parts_;
  Graph joined_;
  std::vector<std::vector<std::string>> outputs_;  // per part, in joined names
  // Inputs of the part at hand that read another part's value.
  Names linked_;
};

}  // namespace

JoinedInterface JoinInterfaces(absl::Span<const JoinPart> parts) {
  JoinedInterface interface;
  for (size_t part = 0; part < parts.size(); ++part) {
    for (size_t i = 0; i < parts[part].links.size(); ++i) {
      if (!parts[part].links[i].has_value()) {
        interface.inputs.push_back({part, i});
      }
    }
    for (size_t i = 0; i < parts[part].wanted.size(); ++i) {
      if (parts[part].wanted[i]) interface.outputs.push_back({part, i});
    }
  }
  return interface;
}

absl::StatusOr<Graph> JoinGraphs(absl::Span<const JoinPart> parts) {
  return Joiner(parts).Run();
}

}  // namespace weir
