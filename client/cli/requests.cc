#include "client/cli/requests.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/name_list.h"

namespace weir::client {
namespace {

// Keeps the first error of the parser, with its place.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (text.empty()) {
      text = absl::StrCat(line + 1, ":", column + 1, ": ", message);
    }
  }
  std::string text;
};

}  // namespace

absl::StatusOr<v1::Graph> ReadProgram(const std::string& path) {
  auto bytes = ReadFile(path);
  if (!bytes.ok()) return bytes.status();
  v1::Graph graph;
  if (path.size() > 5 && path.substr(path.size() - 5) == ".onnx") {
    graph.set_onnx_model(*std::move(bytes));
    return graph;
  }
  FirstError error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  if (!parser.ParseFromString(*bytes, &graph)) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ":", error.text, " (a weir.v1.Graph in protobuf text format)"));
  }
  return graph;
}

absl::StatusOr<std::vector<TensorArgument>> ParseInputs(
    const std::vector<std::string>& texts) {
  std::vector<TensorArgument> inputs;
  std::set<std::string> names;
  for (const std::string& text : texts) {
    auto input = ParseTensorArgument(text);
    if (!input.ok()) return input.status();
    if (!names.insert(input->name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("--input: '", input->name, "' is given twice"));
    }
    inputs.push_back(*std::move(input));
  }
  return inputs;
}

std::string CheckOutputFile(const std::string& text) {
  const size_t equals = text.find('=');
  return equals == std::string::npos || equals + 1 == text.size()
             ? "'" + text + "' is not NAME=FILE"
             : "";
}

absl::StatusOr<std::map<std::string, std::string>> OutputFiles(
    const std::vector<std::string>& texts,
    const std::vector<std::string>& names, const std::string& whose) {
  std::map<std::string, std::string> files;
  std::map<std::string, std::string> writers;  // by their files
  for (const std::string& text : texts) {
    const std::string* name = nullptr;
    for (const std::string& each : names) {
      if (text.size() > each.size() + 1 && text[each.size()] == '=' &&
          text.compare(0, each.size(), each) == 0 &&
          (name == nullptr || each.size() > name->size())) {
        name = &each;
      }
    }
    if (name == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--output: ", whose, " has no output '",
          text.substr(0, text.find('=')), "', but ", NameList(names)));
    }
    const std::string file = text.substr(name->size() + 1);
    if (!files.emplace(*name, file).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("--output: '", *name, "' is given twice"));
    }
    std::error_code unknown;
    if (std::filesystem::is_character_file(file, unknown)) {
      continue;  // "/dev/null" takes any number
    }
    std::string& writer =
        writers[std::filesystem::path(file).lexically_normal().string()];
    if (!writer.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--output: '", writer, "' and '", *name,
                       "' would be written to one file, ", file));
    }
    writer = *name;
  }
  return files;
}

v1::EvaluateRequest MakeEvaluateRequest(
    v1::Graph graph, const std::vector<TensorArgument>& inputs) {
  v1::EvaluateRequest request;
  *request.mutable_graph() = std::move(graph);
  for (const TensorArgument& input : inputs) {
    v1::NamedTensor* tensor = request.add_inputs();
    tensor->set_name(input.name);
    v1::TensorSpec* spec = tensor->mutable_value()->mutable_spec();
    spec->set_dtype(static_cast<v1::DataType>(input.dtype));
    for (int64_t extent : input.shape) spec->add_shape(extent);
    tensor->mutable_value()->set_raw(input.bytes);
  }
  return request;
}

inference::ModelInferRequest MakeInferRequest(
    const std::string& model, const std::string& version,
    const std::vector<TensorArgument>& inputs) {
  inference::ModelInferRequest request;
  request.set_model_name(model);
  request.set_model_version(version);
  for (const TensorArgument& input : inputs) {
    auto* tensor = request.add_inputs();
    tensor->set_name(input.name);
    tensor->set_datatype(KserveDatatype(input.dtype));
    for (int64_t extent : input.shape) tensor->add_shape(extent);
    request.add_raw_input_contents(input.bytes);
  }
  return request;
}

absl::Status CheckRequestBytes(size_t bytes) {
  constexpr size_t kMost = std::numeric_limits<int32_t>::max();
  if (bytes <= kMost) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the request takes ", bytes,
                   " bytes; a message can carry at most ", kMost));
}

absl::Status CheckInferReply(const inference::ModelInferResponse& response) {
  if (response.outputs_size() != response.raw_output_contents_size()) {
    return absl::InternalError(absl::StrCat(
        "the server sent ", response.raw_output_contents_size(),
        " raw contents for ", response.outputs_size(), " outputs"));
  }
  for (int i = 0; i < response.outputs_size(); ++i) {
    const auto& output = response.outputs(i);
    const absl::Status fits =
        CheckTensorBytes(DtypeFromKserve(output.datatype()),
                         {output.shape().begin(), output.shape().end()},
                         response.raw_output_contents(i).size());
    if (!fits.ok()) {
      return absl::Status(fits.code(), absl::StrCat("output '", output.name(),
                                                    "': ", fits.message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace weir::client
