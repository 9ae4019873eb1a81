#include "server/models/onnx_import.h"

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/fingerprint.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/stop_token.h"
#include "kernels/graph/names.h"
#include "kernels/graph/opsets.h"
#include "server/models/model_file.h"
#include "server/models/onnx_tensor.h"
#include "server/models/parsed_size.h"

namespace weir {
namespace {

// Sized so that a hostile opset number cannot wrap an int.
constexpr int64_t kAbsurdOpset = 1'000'000;

std::string DomainOf(const std::string& domain) {
  return domain == "ai.onnx" ? "" : domain;
}

class Importer {
 public:
  Importer(onnx::ModelProto& model, const OnnxImportOptions& options)
      : model_(model), external_(options.folder, options.stop) {}

  absl::StatusOr<Graph> Run() {
    WEIR_RETURN_IF_ERROR(CheckNames());
    WEIR_RETURN_IF_ERROR(CheckModel());
    WEIR_RETURN_IF_ERROR(ReadOpsets());
    onnx::GraphProto& graph = *model_.mutable_graph();
    ExpectTensors(graph);
    for (onnx::TensorProto& tensor : *graph.mutable_initializer()) {
      WEIR_RETURN_IF_ERROR(AddConstant(tensor.name(), tensor));
    }
    for (const onnx::ValueInfoProto& input : graph.input()) {
      WEIR_RETURN_IF_ERROR(ReadInput(input));
    }
    for (const onnx::ValueInfoProto& output : graph.output()) {
      WEIR_RETURN_IF_ERROR(ReadOutput(output));
    }
    for (int i = 0; i < graph.node_size(); ++i) {
      WEIR_RETURN_IF_ERROR(ReadNode(*graph.mutable_node(i)));
    }
    return std::move(graph_);
  }

 private:
  // Before any is repeated in an error.
  absl::Status CheckNames() const {
    const onnx::GraphProto& graph = model_.graph();
    if (model_.functions_size() > 0) {
      WEIR_RETURN_IF_ERROR(CheckNameLength(model_.functions(0).name()));
    }
    for (const onnx::OperatorSetIdProto& opset : model_.opset_import()) {
      WEIR_RETURN_IF_ERROR(CheckNameLength(opset.domain()));
    }
    for (const onnx::TensorProto& tensor : graph.initializer()) {
      WEIR_RETURN_IF_ERROR(CheckNameLength(tensor.name()));
    }
    for (const auto* values : {&graph.input(), &graph.output()}) {
      for (const onnx::ValueInfoProto& value : *values) {
        WEIR_RETURN_IF_ERROR(CheckNameLength(value.name()));
      }
    }
    for (const onnx::NodeProto& node : graph.node()) {
      for (const std::string* name :
           {&node.name(), &node.domain(), &node.op_type()}) {
        WEIR_RETURN_IF_ERROR(CheckNameLength(*name));
      }
      for (const auto* names : {&node.input(), &node.output()}) {
        for (const std::string& name : *names) {
          WEIR_RETURN_IF_ERROR(CheckNameLength(name));
        }
      }
      for (const onnx::AttributeProto& attribute : node.attribute()) {
        WEIR_RETURN_IF_ERROR(CheckNameLength(attribute.name()));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckModel() const {
    if (!model_.has_graph()) {
      return absl::InvalidArgumentError("the model has no graph");
    }
    if (model_.ir_version() <= 0) {
      return absl::InvalidArgumentError("the model has no IR version");
    }
    if (model_.functions_size() > 0) {
      return absl::UnimplementedError(absl::StrCat(
          "the model defines functions (\"", model_.functions(0).name(),
          "\"), which are not supported"));
    }
    if (model_.training_info_size() > 0) {
      return absl::UnimplementedError(
          "the model has training information, which is not supported");
    }
    if (model_.graph().sparse_initializer_size() > 0) {
      return absl::UnimplementedError(
          "the model has sparse initializers, which are not supported");
    }
    return CheckNodes();
  }

  // Constant nodes leave the graph.
  absl::Status CheckNodes() const {
    const auto& nodes = model_.graph().node();
    const auto stay = std::count_if(nodes.begin(), nodes.end(), [](auto& node) {
      return node.op_type() != "Constant" || !DomainOf(node.domain()).empty();
    });
    return CheckNodeCount(static_cast<size_t>(stay));
  }

  absl::Status ReadOpsets() {
    for (const onnx::OperatorSetIdProto& opset : model_.opset_import()) {
      if (opset.version() < 1 || opset.version() > kAbsurdOpset) {
        std::string what =
            absl::StrCat("opset ", opset.version(), " of domain \"",
                         opset.domain(), "\" makes no sense");
        if (DomainOf(opset.domain()).empty()) {
          absl::StrAppend(&what, "; this server knows ", kOldestOnnxOpset,
                          " to ", kNewestOnnxOpset);
        }
        return absl::InvalidArgumentError(what);
      }
      const int version = static_cast<int>(opset.version());
      const auto [it, fresh] =
          graph_.opsets.emplace(DomainOf(opset.domain()), version);
      if (!fresh && it->second != version) {
        return absl::InvalidArgumentError(
            absl::StrCat("the model imports opsets ", it->second, " and ",
                         version, " of domain \"", opset.domain(), "\""));
      }
    }
    return absl::OkStatus();
  }

  void ExpectTensors(const onnx::GraphProto& graph) {
    for (const onnx::TensorProto& tensor : graph.initializer()) {
      ExpectTensor(tensor, external_);
    }
    for (const onnx::NodeProto& node : graph.node()) {
      for (const onnx::AttributeProto& attribute : node.attribute()) {
        if (attribute.has_t()) ExpectTensor(attribute.t(), external_);
      }
    }
  }

  absl::Status AddConstant(const std::string& name, onnx::TensorProto& tensor) {
    auto constant = ImportTensor(tensor, external_);
    if (!constant.ok()) {
      return Annotate(constant.status(),
                      absl::StrCat("constant \"", name, "\": "));
    }
    return AddConstant(name, *std::move(constant));
  }

  absl::Status AddConstant(const std::string& name,
                           std::shared_ptr<const Constant> constant) {
    if (!graph_.constants.emplace(name, std::move(constant)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("constant \"", name, "\" is defined twice"));
    }
    return absl::OkStatus();
  }

  absl::Status ReadInput(const onnx::ValueInfoProto& from) {
    if (graph_.constants.count(from.name()) > 0) return absl::OkStatus();
    auto decl = ReadDeclaration(from);
    if (!decl.ok()) {
      return Annotate(decl.status(),
                      absl::StrCat("input \"", from.name(), "\": "));
    }
    graph_.inputs.push_back(*std::move(decl));
    return absl::OkStatus();
  }

  absl::Status ReadOutput(const onnx::ValueInfoProto& from) {
    if (!output_names_.insert(from.name()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("output \"", from.name(), "\" is listed twice"));
    }
    graph_.outputs.push_back(from.name());
    // What cannot be read is left to inference.
    auto decl = ReadDeclaration(from);
    graph_.declared_outputs.push_back(
        decl.ok() ? *std::move(decl) : ValueDecl{from.name(), {}, {}});
    return absl::OkStatus();
  }

  absl::StatusOr<ValueDecl> ReadDeclaration(const onnx::ValueInfoProto& from) {
    if (!from.has_type() || !from.type().has_tensor_type()) {
      return absl::UnimplementedError("its type is not a tensor");
    }
    const onnx::TypeProto::Tensor& type = from.type().tensor_type();
    const auto dtype = DTypeFromOnnx(type.elem_type());
    if (type.elem_type() == onnx::TensorProto::UNDEFINED) {
      return absl::InvalidArgumentError("its element type is undefined");
    }
    if (!dtype.has_value()) {
      return absl::UnimplementedError(
          absl::StrCat("element type ", type.elem_type(), " is not supported"));
    }
    ValueDecl decl;
    decl.name = from.name();
    decl.dtype = *dtype;
    if (!type.has_shape()) return decl;
    SymbolicDims dims;
    for (const auto& dim : type.shape().dim()) {
      if (dim.has_dim_value()) {
        if (dim.dim_value() < -1) {
          return absl::InvalidArgumentError(
              absl::StrCat("a dimension is negative (", dim.dim_value(), ")"));
        }
        // Exporters write -1 for what they do not know.
        dims.push_back(dim.dim_value() < 0 ? Dim() : Dim(dim.dim_value()));
      } else if (dim.has_dim_param() && !dim.dim_param().empty()) {
        dims.push_back(Dim::Symbol(SymbolNumber(dim.dim_param())));
      } else {
        dims.push_back(Dim());
      }
    }
    decl.shape = std::move(dims);
    return decl;
  }

  int SymbolNumber(const std::string& name) {
    const auto [it, fresh] =
        symbols_.emplace(name, static_cast<int>(graph_.symbols.size()));
    if (fresh) graph_.symbols.push_back(name);
    return it->second;
  }

  absl::Status ReadNode(onnx::NodeProto& from) {
    GraphNode node;
    // Constant nodes leave the graph, so that positions change.
    node.name =
        from.name().empty() ? absl::StrCat("#", node_count_) : from.name();
    ++node_count_;
    node.domain = DomainOf(from.domain());
    node.op = from.op_type();
    node.inputs.assign(from.input().begin(), from.input().end());
    node.outputs.assign(from.output().begin(), from.output().end());
    const std::string label = NodeLabel(node, 0) + ": ";
    if (!node.domain.empty() && node.domain != "weir") {
      return absl::UnimplementedError(
          absl::StrCat(label, "operators of domain \"", node.domain,
                       "\" are not supported"));
    }
    if (node.domain.empty() && graph_.opsets.count("") == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(label, "the model does not say which opset it is of"));
    }
    if (node.domain.empty() && node.op == "Constant") {
      return Annotate(ReadConstantNode(from), label);
    }
    if (from.attribute_size() > kMaxAttributes) {
      return absl::InvalidArgumentError(
          absl::StrCat(label, from.attribute_size(),
                       " attributes, more than a node has, which is at most ",
                       kMaxAttributes));
    }
    for (onnx::AttributeProto& attribute : *from.mutable_attribute()) {
      const absl::Status status = ReadAttribute(attribute, &node.attributes);
      if (!status.ok()) {
        return Annotate(status, absl::StrCat(label, "attribute \"",
                                             attribute.name(), "\": "));
      }
    }
    graph_.nodes.push_back(std::move(node));
    return absl::OkStatus();
  }

  absl::Status ReadAttribute(onnx::AttributeProto& from, Attributes* to) {
    if (from.has_ref_attr_name()) {
      return absl::UnimplementedError(
          "refers to an attribute of a function, which is not supported");
    }
    switch (from.type()) {
      case onnx::AttributeProto::INT:
        to->Set(from.name(), static_cast<int64_t>(from.i()));
        return absl::OkStatus();
      case onnx::AttributeProto::FLOAT:
        to->Set(from.name(), from.f());
        return absl::OkStatus();
      case onnx::AttributeProto::STRING:
        to->Set(from.name(), from.s());
        return absl::OkStatus();
      case onnx::AttributeProto::INTS:
        to->Set(from.name(),
                std::vector<int64_t>(from.ints().begin(), from.ints().end()));
        return absl::OkStatus();
      case onnx::AttributeProto::FLOATS:
        to->Set(from.name(),
                std::vector<float>(from.floats().begin(), from.floats().end()));
        return absl::OkStatus();
      case onnx::AttributeProto::STRINGS:
        to->Set(from.name(), std::vector<std::string>(from.strings().begin(),
                                                      from.strings().end()));
        return absl::OkStatus();
      case onnx::AttributeProto::TENSOR: {
        WEIR_ASSIGN_OR_RETURN(std::shared_ptr<const Constant> tensor,
                              ImportTensor(*from.mutable_t(), external_));
        to->Set(from.name(), std::move(tensor));
        return absl::OkStatus();
      }
      case onnx::AttributeProto::GRAPH:
      case onnx::AttributeProto::GRAPHS:
        return absl::UnimplementedError("subgraphs are not supported");
      case onnx::AttributeProto::SPARSE_TENSOR:
      case onnx::AttributeProto::SPARSE_TENSORS:
        return absl::UnimplementedError("sparse tensors are not supported");
      default:
        return absl::UnimplementedError(absl::StrCat(
            "attributes of type ", from.type(), " are not supported"));
    }
  }

  // Exactly one of its attributes holds the value.
  absl::Status ReadConstantNode(onnx::NodeProto& from) {
    if (from.output_size() != 1 || from.input_size() != 0 ||
        from.attribute_size() != 1) {
      return absl::InvalidArgumentError(
          "needs one value, one output and no inputs");
    }
    onnx::AttributeProto& value = *from.mutable_attribute(0);
    const std::string& name = from.output(0);
    if (name.empty()) return absl::OkStatus();
    if (value.has_ref_attr_name() || value.name() == "sparse_value") {
      return absl::UnimplementedError(
          absl::StrCat("attribute \"", value.name(), "\" is not supported"));
    }
    if (value.name() == "value" &&
        value.type() == onnx::AttributeProto::TENSOR) {
      return AddConstant(name, *value.mutable_t());
    }
    // The short forms are tensors of rank 0 or 1 in their typed fields.
    using Type = onnx::AttributeProto;
    static const auto* const types =
        new absl::flat_hash_map<std::string, Type::AttributeType>{
            {"value", Type::TENSOR},         {"value_int", Type::INT},
            {"value_ints", Type::INTS},      {"value_float", Type::FLOAT},
            {"value_floats", Type::FLOATS},  {"value_string", Type::STRING},
            {"value_strings", Type::STRINGS}};
    const auto type = types->find(value.name());
    if (type != types->end() && value.type() != type->second) {
      return absl::InvalidArgumentError(
          absl::StrCat("attribute \"", value.name(), "\" is of type ",
                       value.type(), ", not ", static_cast<int>(type->second)));
    }
    onnx::TensorProto tensor;
    if (value.name() == "value_int") {
      tensor.set_data_type(onnx::TensorProto::INT64);
      tensor.add_int64_data(value.i());
    } else if (value.name() == "value_float") {
      tensor.set_data_type(onnx::TensorProto::FLOAT);
      tensor.add_float_data(value.f());
    } else if (value.name() == "value_string") {
      tensor.set_data_type(onnx::TensorProto::STRING);
      tensor.add_string_data(value.s());
    } else if (value.name() == "value_ints") {
      tensor.set_data_type(onnx::TensorProto::INT64);
      tensor.add_dims(value.ints_size());
      tensor.mutable_int64_data()->Swap(value.mutable_ints());
    } else if (value.name() == "value_floats") {
      tensor.set_data_type(onnx::TensorProto::FLOAT);
      tensor.add_dims(value.floats_size());
      tensor.mutable_float_data()->Swap(value.mutable_floats());
    } else if (value.name() == "value_strings") {
      tensor.set_data_type(onnx::TensorProto::STRING);
      tensor.add_dims(value.strings_size());
      tensor.mutable_string_data()->Swap(value.mutable_strings());
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown attribute \"", value.name(), "\""));
    }
    return AddConstant(name, tensor);
  }

  onnx::ModelProto& model_;
  ExternalData external_;
  Graph graph_;
  std::set<std::string> output_names_;
  std::map<std::string, int> symbols_;
  int node_count_ = 0;
};

absl::Status CheckFileSize(uint64_t bytes) {
  if (bytes == 0) return absl::InvalidArgumentError("the model is empty");
  if (bytes > static_cast<uint64_t>(std::numeric_limits<int>::max())) {
    return absl::InvalidArgumentError(
        absl::StrCat("the model has ", bytes,
                     " bytes: from 2 GiB on, tensors must be external data"));
  }
  return absl::OkStatus();
}

absl::Status NoModel() {
  return absl::InvalidArgumentError(
      "these bytes are no ONNX model (not a protobuf message)");
}

// A file as protobuf reads it, a block at a time: a model is not in memory
// twice. The blocks, and so the fingerprint, depend on nothing but the bytes.
class FileBlocks final : public google::protobuf::io::CopyingInputStream {
 public:
  FileBlocks(const ModelFile& file, StopToken stop)
      : file_(file), stop_(std::move(stop)) {}

  int Read(void* buffer, int size) override {
    const uint64_t left = file_.size() - at_;
    const size_t count = std::min(static_cast<size_t>(size), left);
    if (count == 0) return 0;
    status_ = stop_.stop_requested()
                  ? absl::CancelledError("the server stops")
                  : file_.Read(at_, static_cast<char*>(buffer), count);
    if (!status_.ok()) return -1;
    fingerprint_ =
        Fingerprint(std::string_view(static_cast<const char*>(buffer), count),
                    fingerprint_);
    at_ += count;
    return static_cast<int>(count);
  }

  const absl::Status& status() const { return status_; }
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  const ModelFile& file_;
  const StopToken stop_;
  uint64_t at_ = 0;
  uint64_t fingerprint_ = 0;
  absl::Status status_;
};

absl::StatusOr<OnnxFile> ImportFrom(const ModelFile& file,
                                    const OnnxImportOptions& options) {
  constexpr int kBlockBytes = 1 << 20;
  WEIR_RETURN_IF_ERROR(CheckFileSize(file.size()));
  FileBlocks blocks(file, options.stop);
  onnx::ModelProto model;
  {
    google::protobuf::io::CopyingInputStreamAdaptor stream(&blocks,
                                                           kBlockBytes);
    const bool parsed = model.ParseFromZeroCopyStream(&stream);
    WEIR_RETURN_IF_ERROR(blocks.status());
    if (!parsed) return NoModel();
  }
  WEIR_ASSIGN_OR_RETURN(Graph graph, Importer(model, options).Run());
  return OnnxFile{std::move(graph), blocks.fingerprint()};
}

}  // namespace

absl::StatusOr<Graph> ImportOnnx(std::string_view model,
                                 const OnnxImportOptions& options) {
  WEIR_RETURN_IF_ERROR(CheckParsedSize(*onnx::ModelProto::descriptor(), model));
  WEIR_RETURN_IF_ERROR(CheckFileSize(model.size()));
  onnx::ModelProto parsed;
  if (!parsed.ParseFromArray(model.data(), static_cast<int>(model.size()))) {
    return NoModel();
  }
  return Importer(parsed, options).Run();
}

absl::StatusOr<OnnxFile> ImportOnnxFile(const std::string& path,
                                        StopToken stop) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<ModelFile> file,
                        ModelFile::Open(path));
  const size_t slash = path.rfind('/');
  OnnxImportOptions options;
  options.folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  options.stop = std::move(stop);
  auto imported = ImportFrom(*file, options);
  if (!imported.ok()) return Annotate(imported.status(), path + ": ");
  return imported;
}

}  // namespace weir
