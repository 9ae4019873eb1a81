// Graphs come from strangers: nothing here recurses, indexes or allocates by
// what the graph claims before it was checked.
#include <algorithm>
#include <functional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"
#include "kernels/graph/graph.h"
#include "kernels/graph/names.h"
#include "kernels/graph/node_error.h"
#include "kernels/graph/opsets.h"

namespace weir {
namespace {

constexpr size_t kCycleNodesShown = 8;

// Who defines a value: a node's index, or one of these.
constexpr int64_t kGiven = -1;

class Validator {
 public:
  Validator(const Graph& graph, const OpRegistry& registry,
            const GraphLimits& limits)
      : graph_(graph), registry_(registry), limits_(limits) {}

  absl::StatusOr<std::vector<size_t>> Run() {
    WEIR_RETURN_IF_ERROR(CheckCounts());
    WEIR_RETURN_IF_ERROR(CheckNames());
    WEIR_RETURN_IF_ERROR(DefineGiven());
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      WEIR_RETURN_IF_ERROR(CheckNode(i));
    }
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      WEIR_RETURN_IF_ERROR(DefineOutputs(i));
    }
    WEIR_RETURN_IF_ERROR(CheckUses());
    return Order();
  }

 private:
  absl::Status CheckCounts() const {
    WEIR_RETURN_IF_ERROR(CheckNodeCount(graph_.nodes.size(), limits_));
    size_t values =
        graph_.inputs.size() + graph_.constants.size() + graph_.outputs.size();
    for (const GraphNode& node : graph_.nodes) {
      values += node.inputs.size() + node.outputs.size();
    }
    WEIR_RETURN_IF_ERROR(CheckValueCount(values, limits_));
    if (graph_.outputs.empty()) {
      return absl::InvalidArgumentError("the graph has no outputs");
    }
    return absl::OkStatus();
  }

  // Names end up in error messages and in what is told about a model.
  absl::Status CheckNames() const {
    std::string_view longest;
    absl::Status flaw;
    const auto see = [&](const char* kind, const std::string& name) {
      if (name.size() > longest.size()) longest = name;
      if (name.size() > kMaxNameBytes) return;
      if (!flaw.ok() || IsUtf8(name)) return;
      flaw = absl::InvalidArgumentError(absl::StrCat(
          "the ", kind, " \"", EscapeNonUtf8(name), "\" is not UTF-8"));
    };
    for (const ValueDecl& input : graph_.inputs) see("input", input.name);
    for (const auto& entry : graph_.constants) see("constant", entry.first);
    for (const std::string& name : graph_.outputs) see("output", name);
    for (const std::string& name : graph_.symbols) see("dimension", name);
    for (const GraphNode& node : graph_.nodes) {
      see("node", node.name);
      see("domain", node.domain);
      see("operator", node.op);
      for (const auto& attribute : node.attributes.all()) {
        see("attribute", attribute.first);
      }
      for (const std::string& name : node.inputs) see("value", name);
      for (const std::string& name : node.outputs) see("value", name);
    }
    WEIR_RETURN_IF_ERROR(CheckNameLength(longest));
    return flaw;
  }

  absl::Status DefineGiven() {
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      const ValueDecl& input = graph_.inputs[i];
      const auto refuse = [&](std::string_view what) {
        return InvalidField(
            absl::StrCat("inputs[", i, "]"),
            absl::StrCat("input \"", input.name, "\": ", AbslView(what)));
      };
      if (input.name.empty()) return refuse("an input needs a name");
      if (SizeOf(input.dtype) == 0) {
        return refuse("its element type is unknown");
      }
      const std::string flaw = ShapeFlaw(input);
      if (!flaw.empty()) return refuse(flaw);
      if (!producers_.emplace(input.name, kGiven).second) {
        return refuse("declared twice");
      }
    }
    for (const auto& entry : graph_.constants) {
      const std::string& name = entry.first;
      const std::shared_ptr<const Constant>& constant = entry.second;
      const auto refuse = [&](std::string_view what) {
        return absl::InvalidArgumentError(
            absl::StrCat("constant \"", name, "\": ", AbslView(what)));
      };
      if (name.empty()) return refuse("a constant needs a name");
      if (constant == nullptr) return refuse("it has no value");
      const HostTensor& tensor = constant->tensor;
      if (SizeOf(tensor.dtype) == 0) return refuse("unknown element type");
      const auto bytes = ByteSize(tensor.dtype, tensor.dims);
      if (!bytes.ok()) {
        return Annotate(bytes.status(),
                        absl::StrCat("constant \"", name, "\": "));
      }
      if (*bytes > 0 && tensor.data == nullptr) return refuse("it has no data");
      if (!producers_.emplace(name, kGiven).second) {
        return refuse("there is an input of this name");
      }
    }
    return absl::OkStatus();
  }

  // Empty if the declared shape makes sense.
  std::string ShapeFlaw(const ValueDecl& input) const {
    if (!input.shape.has_value()) return "";
    Dims known;
    for (Dim dim : *input.shape) {
      if (dim.invalid()) return "a dimension is negative";
      if (dim.symbolic() &&
          static_cast<size_t>(dim.symbol()) >= graph_.symbols.size()) {
        return "a dimension is an unknown symbol";
      }
      known.push_back(dim.known() ? dim.value() : 1);
    }
    const auto bytes = ByteSize(input.dtype, known);
    return bytes.ok() ? "" : std::string(bytes.status().message());
  }

  absl::Status Refuse(size_t i, std::string_view what) const {
    return NodeError(absl::InvalidArgumentError(AbslView(what)),
                     graph_.nodes[i], i);
  }

  // What to do about a name that is no operator's: often only its domain or
  // its case keeps it from being one.
  std::string Remedy(const std::string& domain, const std::string& name) const {
    if (const char* by = registry_.HiddenBy(domain, name); by != nullptr) {
      return absl::StrCat("it is one for tests, which ", by, " offers");
    }
    for (const OpDef* def : registry_.List()) {
      if (!absl::EqualsIgnoreCase(AbslView(def->name), name)) continue;
      return absl::StrCat("did you mean ", AbslView(def->domain),
                          def->domain.empty() ? "" : ".", AbslView(def->name),
                          "?");
    }
    return "ListOperators, or \"weir ops\", lists those that there are";
  }

  absl::Status CheckNode(size_t i) const {
    const GraphNode& node = graph_.nodes[i];
    const int opset = OpsetOf(graph_, node.domain);
    const OpDef* def = registry_.Find(node.domain, node.op);
    if (def == nullptr) {
      const bool known_domain = node.domain.empty() || node.domain == "weir";
      return NodeError(
          absl::UnimplementedError(
              known_domain
                  ? absl::StrCat("this server has no such operator (opset ",
                                 opset, "); ", Remedy(node.domain, node.op))
                  : absl::StrCat("there is no domain \"", node.domain,
                                 "\": use \"\" (ONNX) or \"weir\"")),
          node, i);
    }
    const absl::Status known = CheckOpset(*def, opset);
    if (!known.ok()) return NodeError(known, node, i);
    WEIR_RETURN_IF_ERROR(CheckInputCount(i, *def));
    return CheckOutputCount(i, *def);
  }

  absl::Status CheckInputCount(size_t i, const OpDef& def) const {
    const GraphNode& node = graph_.nodes[i];
    const bool variadic = !def.inputs.empty() && def.inputs.back().variadic;
    size_t given = node.inputs.size();
    while (given > 0 && node.inputs[given - 1].empty()) --given;
    if (given > def.inputs.size() && !variadic) {
      return Refuse(i, absl::StrCat("takes at most ", def.inputs.size(),
                                    " inputs, not ", given));
    }
    for (size_t k = 0; k < std::max(given, def.inputs.size()); ++k) {
      if (k < given && !node.inputs[k].empty()) continue;
      const InputDef& input = def.inputs[std::min(k, def.inputs.size() - 1)];
      if (input.optional) continue;
      return Refuse(i, absl::StrCat("input ", k, " (",
                                    absl::string_view(input.name.data(),
                                                      input.name.size()),
                                    ") is missing"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckOutputCount(size_t i, const OpDef& def) const {
    const size_t given = graph_.nodes[i].outputs.size();
    size_t least = 0;
    for (const OutputDef& output : def.outputs) least += !output.optional;
    const bool variadic = !def.outputs.empty() && def.outputs.back().variadic;
    if (given < least || (given > def.outputs.size() && !variadic)) {
      return Refuse(i, absl::StrCat("cannot have ", given, " outputs"));
    }
    return absl::OkStatus();
  }

  absl::Status DefineOutputs(size_t i) {
    for (const std::string& name : graph_.nodes[i].outputs) {
      if (name.empty()) continue;
      const auto [it, inserted] =
          producers_.emplace(name, static_cast<int64_t>(i));
      if (inserted) continue;
      const std::string other =
          it->second == kGiven
              ? "an input or a constant"
              : NodeLabel(graph_.nodes[static_cast<size_t>(it->second)],
                          static_cast<size_t>(it->second));
      return Refuse(i, absl::StrCat("makes \"", name,
                                    "\", which is made already by ", other));
    }
    return absl::OkStatus();
  }

  absl::Status CheckUses() const {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const GraphNode& node = graph_.nodes[i];
      for (size_t k = 0; k < node.inputs.size(); ++k) {
        if (node.inputs[k].empty() || producers_.contains(node.inputs[k])) {
          continue;
        }
        return Refuse(i, absl::StrCat("input ", k, " is \"", node.inputs[k],
                                      "\", which nothing makes"));
      }
    }
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      if (producers_.contains(graph_.outputs[i])) continue;
      return InvalidField(absl::StrCat("outputs[", i, "]"),
                          absl::StrCat("output \"", graph_.outputs[i],
                                       "\" is made by nothing"));
    }
    return absl::OkStatus();
  }

  // Kahn's algorithm, lowest index first: a graph that is in order stays so.
  absl::StatusOr<std::vector<size_t>> Order() {
    const size_t n = graph_.nodes.size();
    std::vector<std::vector<uint32_t>> users(n);
    std::vector<uint32_t> missing(n, 0);
    for (size_t i = 0; i < n; ++i) {
      for (const std::string& name : graph_.nodes[i].inputs) {
        if (name.empty()) continue;
        const int64_t producer = producers_.find(name)->second;
        if (producer == kGiven) continue;
        users[static_cast<size_t>(producer)].push_back(
            static_cast<uint32_t>(i));
        ++missing[i];
      }
    }
    std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ready;
    for (uint32_t i = 0; i < n; ++i) {
      if (missing[i] == 0) ready.push(i);
    }
    std::vector<size_t> order;
    order.reserve(n);
    while (!ready.empty()) {
      const uint32_t next = ready.top();
      ready.pop();
      order.push_back(next);
      for (uint32_t user : users[next]) {
        if (--missing[user] == 0) ready.push(user);
      }
    }
    if (order.size() < n) return CycleError(missing);
    return order;
  }

  // Walks producers that wait for each other until one comes up again.
  absl::Status CycleError(const std::vector<uint32_t>& missing) const {
    const auto start = std::find_if(missing.begin(), missing.end(),
                                    [](uint32_t m) { return m > 0; });
    size_t at = static_cast<size_t>(start - missing.begin());
    std::vector<size_t> path;
    std::vector<bool> seen(missing.size(), false);
    while (!seen[at]) {
      seen[at] = true;
      path.push_back(at);
      for (const std::string& name : graph_.nodes[at].inputs) {
        if (name.empty()) continue;
        const int64_t producer = producers_.find(name)->second;
        if (producer == kGiven || missing[static_cast<size_t>(producer)] == 0) {
          continue;
        }
        at = static_cast<size_t>(producer);
        break;
      }
    }
    path.erase(path.begin(), std::find(path.begin(), path.end(), at));
    std::reverse(path.begin(), path.end());
    const size_t shown = std::min(path.size(), kCycleNodesShown);
    std::vector<std::string> labels;
    for (size_t i = 0; i < shown; ++i) {
      labels.push_back(NodeLabel(graph_.nodes[path[i]], path[i]));
    }
    if (shown < path.size()) {
      labels.push_back(absl::StrCat(path.size() - shown, " more"));
    }
    return absl::InvalidArgumentError(
        absl::StrCat("the graph has a cycle: ", absl::StrJoin(labels, " -> "),
                     " -> back to the first"));
  }

  const Graph& graph_;
  const OpRegistry& registry_;
  const GraphLimits& limits_;
  absl::flat_hash_map<absl::string_view, int64_t> producers_;
};

}  // namespace

std::string NodeLabel(const GraphNode& node, size_t index) {
  const std::string name =
      node.name.empty() ? absl::StrCat("#", index) : node.name;
  const std::string op =
      node.domain.empty() ? node.op : absl::StrCat(node.domain, ".", node.op);
  return absl::StrCat("node \"", name, "\" (", op, ")");
}

absl::Status CheckNodeCount(size_t nodes, const GraphLimits& limits) {
  if (nodes <= limits.max_nodes) return absl::OkStatus();
  return WithReason(
      absl::ResourceExhaustedError(absl::StrCat(
          "the graph has ", nodes, " nodes; the limit is ", limits.max_nodes)),
      "GRAPH_TOO_LARGE");
}

absl::Status CheckValueCount(size_t values, const GraphLimits& limits) {
  if (values <= limits.max_values) return absl::OkStatus();
  return WithReason(absl::ResourceExhaustedError(absl::StrCat(
                        "the graph names ", values, " values; the limit is ",
                        limits.max_values)),
                    "GRAPH_TOO_LARGE");
}

absl::StatusOr<std::vector<size_t>> Validate(const Graph& graph,
                                             const OpRegistry& registry,
                                             const GraphLimits& limits) {
  return Validator(graph, registry, limits).Run();
}

}  // namespace weir
