#include "server/models/definition_import.h"

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/graph/names.h"
#include "kernels/graph/opsets.h"
#include "proto/weir/v1/graph.pb.h"
#include "server/bytes/bytes_elements.h"

namespace weir {
namespace {

// Owns a constant's bytes, and the views of its strings.
struct ConstantBytes {
  std::string raw;
  std::vector<StringRef> strings;
};

// What is left of kMaxTextElements.
class TextLeft {
 public:
  // Before anything is made of `count` elements, which `field` asks for.
  absl::Status Take(int64_t count, const std::string& field) {
    if (count > left_) {
      return WithField(WithReason(absl::ResourceExhaustedError(absl::StrCat(
                                      "has ", count,
                                      " elements of text; all constants and "
                                      "attributes of a graph may have ",
                                      kMaxTextElements, " of them")),
                                  "GRAPH_TOO_LARGE"),
                       field);
    }
    left_ -= count;
    return absl::OkStatus();
  }

 private:
  int64_t left_ = kMaxTextElements;
};

absl::Status ReadStrings(ConstantBytes* bytes, size_t count,
                         std::string_view path) {
  bytes->strings.reserve(count);
  std::string_view rest = bytes->raw;
  for (size_t i = 0; i < count; ++i) {
    uint32_t size = 0;
    if (rest.size() < sizeof(size)) {
      return InvalidField(path, absl::StrCat("string ", i, " has no length"));
    }
    std::memcpy(&size, rest.data(), sizeof(size));
    rest.remove_prefix(sizeof(size));
    if (rest.size() < size) {
      return InvalidField(
          path, absl::StrCat("string ", i, " claims ", size, " bytes; ",
                             rest.size(), " are left"));
    }
    bytes->strings.push_back({rest.data(), size});
    rest.remove_prefix(size);
  }
  if (!rest.empty()) {
    return InvalidField(path,
                        absl::StrCat(rest.size(), " bytes are left over"));
  }
  return absl::OkStatus();
}

// What a spec may say of a batch whose samples differ.
absl::Status CheckNotRagged(const v1::TensorSpec& spec,
                            const std::string& path) {
  if (spec.sample_shapes().empty()) return absl::OkStatus();
  return WithField(absl::UnimplementedError("ragged batches are not supported"),
                   path + ".sample_shapes");
}

absl::StatusOr<std::shared_ptr<const Constant>> ImportConstant(
    v1::TensorValue& value, const std::string& path, TextLeft* text) {
  const std::string spec = path + ".spec";
  const std::string raw = path + ".raw";
  if (value.source_case() != v1::TensorValue::kRaw) {
    return InvalidField(raw, "a constant needs its elements in `raw`");
  }
  WEIR_RETURN_IF_ERROR(CheckNotRagged(value.spec(), spec));
  auto constant = std::make_shared<Constant>();
  auto bytes = std::make_shared<ConstantBytes>();
  HostTensor& tensor = constant->tensor;
  WEIR_ASSIGN_OR_RETURN(tensor.dtype,
                        ImportDType(value.spec().dtype(), spec + ".dtype"));
  tensor.dims.assign(value.spec().shape().begin(), value.spec().shape().end());
  absl::StatusOr<int64_t> elements = NumElements(tensor.dims);
  absl::StatusOr<int64_t> expected = ByteSize(tensor.dtype, tensor.dims);
  if (!expected.ok()) return WithField(expected.status(), spec + ".shape");
  bytes->raw = std::move(*value.mutable_raw());
  if (tensor.dtype == DType::kString) {
    WEIR_RETURN_IF_ERROR(text->Take(*elements, spec + ".shape"));
    // Each has its length.
    if (static_cast<uint64_t>(*elements) >
        bytes->raw.size() / sizeof(uint32_t)) {
      return InvalidField(raw, absl::StrCat("its shape asks for ", *elements,
                                            " strings; the ", bytes->raw.size(),
                                            " bytes given cannot hold them"));
    }
    WEIR_RETURN_IF_ERROR(
        ReadStrings(bytes.get(), static_cast<size_t>(*elements), raw));
    tensor.data = bytes->strings.data();
  } else if (bytes->raw.size() != static_cast<size_t>(*expected)) {
    return InvalidField(
        raw, absl::StrCat("has ", bytes->raw.size(),
                          " bytes; its type and shape need ", *expected));
  } else {
    if (tensor.dtype == DType::kBool) {
      for (char& byte : bytes->raw) byte = byte == 0 ? '\0' : '\1';
    }
    tensor.data = bytes->raw.data();
  }
  constant->owner = std::move(bytes);
  return std::shared_ptr<const Constant>(std::move(constant));
}

absl::Status ImportAttribute(v1::Attribute& attribute, Attributes* to,
                             const std::string& path, TextLeft* text) {
  const std::string& name = attribute.name();
  if (name.empty()) return InvalidField(path, "an attribute has no name");
  if (to->Has(name)) {
    return InvalidField(
        path, absl::StrCat("attribute \"", name, "\" is given twice"));
  }
  switch (attribute.value_case()) {
    case v1::Attribute::kI:
      to->Set(name, attribute.i());
      return absl::OkStatus();
    case v1::Attribute::kF:
      to->Set(name, attribute.f());
      return absl::OkStatus();
    case v1::Attribute::kS:
      to->Set(name, attribute.s());
      return absl::OkStatus();
    case v1::Attribute::kInts:
      to->Set(name, std::vector<int64_t>(attribute.ints().values().begin(),
                                         attribute.ints().values().end()));
      return absl::OkStatus();
    case v1::Attribute::kFloats:
      to->Set(name, std::vector<float>(attribute.floats().values().begin(),
                                       attribute.floats().values().end()));
      return absl::OkStatus();
    case v1::Attribute::kStrings:
      WEIR_RETURN_IF_ERROR(
          text->Take(attribute.strings().values_size(), path + ".strings"));
      to->Set(name,
              std::vector<std::string>(attribute.strings().values().begin(),
                                       attribute.strings().values().end()));
      return absl::OkStatus();
    case v1::Attribute::kTensor: {
      auto constant =
          ImportConstant(*attribute.mutable_tensor(), path + ".tensor", text);
      if (!constant.ok()) {
        return Annotate(constant.status(),
                        absl::StrCat("attribute \"", name, "\": "));
      }
      to->Set(name, *std::move(constant));
      return absl::OkStatus();
    }
    case v1::Attribute::VALUE_NOT_SET:
      break;
  }
  return InvalidField(path,
                      absl::StrCat("attribute \"", name, "\" has no value"));
}

absl::StatusOr<GraphNode> ImportNode(v1::Node& from, const std::string& path,
                                     TextLeft* text) {
  GraphNode node;
  node.name = from.name();
  node.domain = from.domain() == "ai.onnx" ? "" : from.domain();
  node.op = from.op();
  node.inputs.assign(from.inputs().begin(), from.inputs().end());
  node.outputs.assign(from.outputs().begin(), from.outputs().end());
  if (from.attributes_size() > kMaxAttributes) {
    return InvalidField(
        absl::StrCat(path, ".attributes"),
        absl::StrCat(from.attributes_size(),
                     " attributes, more than a node has, which is at most ",
                     kMaxAttributes));
  }
  for (int i = 0; i < from.attributes_size(); ++i) {
    WEIR_RETURN_IF_ERROR(
        ImportAttribute(*from.mutable_attributes(i), &node.attributes,
                        absl::StrCat(path, ".attributes[", i, "]"), text));
  }
  return node;
}

absl::Status CheckNames(const v1::Node& node, const std::string& path) {
  for (const std::string* name : {&node.name(), &node.domain(), &node.op()}) {
    WEIR_RETURN_IF_ERROR(WithField(CheckNameLength(*name), path));
  }
  for (const auto* names : {&node.inputs(), &node.outputs()}) {
    for (const std::string& name : *names) {
      WEIR_RETURN_IF_ERROR(WithField(CheckNameLength(name), path));
    }
  }
  for (int i = 0; i < node.attributes_size(); ++i) {
    const std::string& name = node.attributes(i).name();
    if (name.size() <= kMaxNameBytes) continue;
    return WithField(CheckNameLength(name),
                     absl::StrCat(path, ".attributes[", i, "].name"));
  }
  return absl::OkStatus();
}

// Before any is repeated in an error.
absl::Status CheckNames(const v1::GraphDefinition& definition) {
  const auto check = [](const std::string& name, const char* list, int i) {
    if (name.size() <= kMaxNameBytes) return absl::OkStatus();
    return WithField(CheckNameLength(name),
                     absl::StrCat("graph.definition.", list, "[", i, "]"));
  };
  for (int i = 0; i < definition.inputs_size(); ++i) {
    WEIR_RETURN_IF_ERROR(check(definition.inputs(i).name(), "inputs", i));
  }
  for (int i = 0; i < definition.outputs_size(); ++i) {
    WEIR_RETURN_IF_ERROR(check(definition.outputs(i), "outputs", i));
  }
  for (int i = 0; i < definition.constants_size(); ++i) {
    WEIR_RETURN_IF_ERROR(check(definition.constants(i).name(), "constants", i));
  }
  for (int i = 0; i < definition.nodes_size(); ++i) {
    WEIR_RETURN_IF_ERROR(CheckNames(
        definition.nodes(i), absl::StrCat("graph.definition.nodes[", i, "]")));
  }
  return absl::OkStatus();
}

// Of domain "": 0 is the newest.
absl::StatusOr<int> ImportOpset(int64_t opset) {
  constexpr char kField[] = "graph.definition.opset";
  if (opset == 0) return kNewestOnnxOpset;
  if (opset < 0) {
    return InvalidField(
        kField,
        absl::StrCat("opset ", opset, " makes no sense; this server knows ",
                     kOldestOnnxOpset, " to ", kNewestOnnxOpset,
                     " (0 is the newest)"));
  }
  const absl::Status known = CheckOnnxOpset(opset);
  if (!known.ok()) return WithField(known, kField);
  return static_cast<int>(opset);
}

// Of a name, the first. Both the graph and what is given may have many.
using GivenByName = absl::flat_hash_map<absl::string_view, const GivenInput*>;

absl::StatusOr<ValueDecl> ImportInput(const v1::GraphInput& from,
                                      const GivenByName& given,
                                      const std::string& path) {
  ValueDecl input;
  input.name = from.name();
  if (from.has_spec()) {
    WEIR_RETURN_IF_ERROR(CheckNotRagged(from.spec(), path + ".spec"));
    const auto dtype = ImportDType(from.spec().dtype(), path + ".spec.dtype");
    if (!dtype.ok()) {
      return Annotate(dtype.status(),
                      absl::StrCat("input \"", input.name, "\": "));
    }
    input.dtype = *dtype;
    SymbolicDims dims;
    for (int64_t extent : from.spec().shape()) {
      if (extent < -1) {
        return InvalidField(
            path + ".spec.shape",
            absl::StrCat("extent ", extent, " is neither a size nor -1"));
      }
      dims.push_back(extent < 0 ? Dim() : Dim(extent));
    }
    input.shape = std::move(dims);
    return input;
  }
  const auto it = given.find(input.name);
  if (it == given.end()) {
    return InvalidField(
        absl::StrCat(kRequestField, "inputs"),
        absl::StrCat("input \"", input.name,
                     "\" is missing: the graph declares no spec for "
                     "it, so the request must give one"));
  }
  input.dtype = it->second->dtype;
  input.shape = SymbolicDims(static_cast<size_t>(it->second->rank), Dim());
  return input;
}

absl::Status CheckCounts(const v1::GraphDefinition& definition) {
  WEIR_RETURN_IF_ERROR(
      CheckNodeCount(static_cast<size_t>(definition.nodes_size())));
  size_t values = static_cast<size_t>(definition.inputs_size()) +
                  static_cast<size_t>(definition.outputs_size()) +
                  static_cast<size_t>(definition.constants_size());
  for (const auto& node : definition.nodes()) {
    values += static_cast<size_t>(node.inputs_size()) +
              static_cast<size_t>(node.outputs_size());
  }
  return CheckValueCount(values);
}

}  // namespace

absl::StatusOr<DType> ImportDType(int number, std::string_view path) {
  if (number == v1::DATA_TYPE_UNSPECIFIED) {
    return InvalidField(
        path, "dtype is not set; it is required (DATA_TYPE_FLOAT, ...)");
  }
  const std::optional<DType> dtype = DTypeFromOnnx(number);
  if (!dtype.has_value()) {
    return InvalidField(path, absl::StrCat("element type ", number,
                                           " is not one that weir knows"));
  }
  return *dtype;
}

absl::StatusOr<Graph> ImportDefinition(v1::GraphDefinition definition,
                                       absl::Span<const GivenInput> given) {
  WEIR_RETURN_IF_ERROR(CheckCounts(definition));
  WEIR_RETURN_IF_ERROR(CheckNames(definition));
  Graph graph;
  WEIR_ASSIGN_OR_RETURN(graph.opsets[""], ImportOpset(definition.opset()));
  graph.opsets["weir"] = kWeirOpset;
  GivenByName by_name;
  for (const GivenInput& input : given) {
    by_name.emplace(AbslView(input.name), &input);
  }
  absl::flat_hash_set<absl::string_view> outputs;
  for (int i = 0; i < definition.inputs_size(); ++i) {
    WEIR_ASSIGN_OR_RETURN(
        ValueDecl input,
        ImportInput(definition.inputs(i), by_name,
                    absl::StrCat("graph.definition.inputs[", i, "]")));
    graph.inputs.push_back(std::move(input));
  }
  for (int i = 0; i < definition.outputs_size(); ++i) {
    const std::string& name = definition.outputs(i);
    if (!outputs.insert(name).second) {
      return InvalidField(
          absl::StrCat("graph.definition.outputs[", i, "]"),
          absl::StrCat("output \"", name, "\" is listed twice"));
    }
    graph.outputs.push_back(name);
  }
  TextLeft text;
  for (int i = 0; i < definition.nodes_size(); ++i) {
    WEIR_ASSIGN_OR_RETURN(
        GraphNode node,
        ImportNode(*definition.mutable_nodes(i),
                   absl::StrCat("graph.definition.nodes[", i, "]"), &text));
    graph.nodes.push_back(std::move(node));
  }
  for (int i = 0; i < definition.constants_size(); ++i) {
    v1::NamedTensor& from = *definition.mutable_constants(i);
    const std::string path =
        absl::StrCat("graph.definition.constants[", i, "]");
    auto constant =
        ImportConstant(*from.mutable_value(), path + ".value", &text);
    if (!constant.ok()) {
      return Annotate(constant.status(),
                      absl::StrCat("constant \"", from.name(), "\": "));
    }
    if (!graph.constants.emplace(from.name(), *std::move(constant)).second) {
      return InvalidField(path, absl::StrCat("constant \"", from.name(),
                                             "\" is defined twice"));
    }
  }
  return graph;
}

}  // namespace weir
