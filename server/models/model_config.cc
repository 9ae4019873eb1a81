#include "server/models/model_config.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"
#include "proto/inference/model_config.pb.h"

namespace weir {
namespace {

constexpr std::string_view kPlatforms[] = {"", "onnxruntime_onnx", "onnx",
                                           "weir", kModelPlatform};
constexpr std::string_view kBackends[] = {"", "onnxruntime", "weir"};
constexpr char kDefaultFile[] = "model.onnx";
// Fields of Triton's that mean something which is not here.
struct TritonField {
  std::string_view message;
  std::string_view name;
};
constexpr TritonField kNotOffered[] = {
    {"ModelConfig", "ensemble_scheduling"},
    {"ModelConfig", "sequence_batching"},
    {"ModelConfig", "batch_input"},
    {"ModelConfig", "batch_output"},
    {"ModelConfig", "model_operations"},
    {"ModelConfig", "model_metrics"},
    {"ModelConfig", "model_repository_agents"},
    {"ModelInstanceGroup", "secondary_devices"},
    {"ModelInput", "is_non_linear_format_io"},
    {"ModelOutput", "is_non_linear_format_io"}};

struct TypePair {
  DType dtype;
  inference::DataType type;
};
constexpr TypePair kTypes[] = {
    {DType::kBool, inference::TYPE_BOOL},
    {DType::kUint8, inference::TYPE_UINT8},
    {DType::kUint16, inference::TYPE_UINT16},
    {DType::kUint32, inference::TYPE_UINT32},
    {DType::kUint64, inference::TYPE_UINT64},
    {DType::kInt8, inference::TYPE_INT8},
    {DType::kInt16, inference::TYPE_INT16},
    {DType::kInt32, inference::TYPE_INT32},
    {DType::kInt64, inference::TYPE_INT64},
    {DType::kFloat16, inference::TYPE_FP16},
    {DType::kFloat, inference::TYPE_FP32},
    {DType::kDouble, inference::TYPE_FP64},
    {DType::kString, inference::TYPE_STRING},
    {DType::kBfloat16, inference::TYPE_BF16},
};

inference::DataType ConfigType(DType dtype) {
  for (const TypePair& pair : kTypes) {
    if (pair.dtype == dtype) return pair.type;
  }
  return inference::TYPE_INVALID;
}

// Keeps the first error; columns and lines are counted from zero.
class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (!text_.empty()) return;
    text_ =
        absl::StrCat("line ", line + 1, ", column ", column + 1, ": ", message);
  }
  void AddWarning(int, google::protobuf::io::ColumnNumber,
                  const std::string&) override {}
  const std::string& text() const { return text_; }
  // Whether it is about this field, which is not known.
  bool Names(const TritonField& field) const {
    return absl::StrContains(
        text_,
        absl::StrCat("\"inference.", AbslView(field.message),
                     "\" has no field named \"", AbslView(field.name), "\""));
  }

 private:
  std::string text_;
};

// The first string in `message` that is not UTF-8, which clients could not
// read; null if there is none. Text format may bring any byte as an escape.
const std::string* NotUtf8(const google::protobuf::Message& message) {
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const int count =
        field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      const std::string* found = nullptr;
      if (field->type() == FieldDescriptor::TYPE_STRING) {
        std::string unused;
        const std::string& text =
            field->is_repeated()
                ? reflection.GetRepeatedStringReference(message, field, i,
                                                        &unused)
                : reflection.GetStringReference(message, field, &unused);
        if (!IsUtf8(text)) found = &text;
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        found = NotUtf8(field->is_repeated()
                            ? reflection.GetRepeatedMessage(message, field, i)
                            : reflection.GetMessage(message, field));
      }
      if (found != nullptr) return found;
    }
  }
  return nullptr;
}

template <size_t n>
bool Contains(const std::string_view (&list)[n], std::string_view item) {
  return std::find(std::begin(list), std::end(list), item) != std::end(list);
}

absl::Status CheckFeatures(const inference::ModelConfig& config) {
  if (config.model_transaction_policy().decoupled()) {
    return absl::UnimplementedError(
        "model_transaction_policy: decoupled is not supported");
  }
  if (config.response_cache().enable()) {
    return absl::UnimplementedError("response_cache is not supported");
  }
  if (config.version_policy().has_specific() &&
      config.version_policy().specific().versions().empty()) {
    return absl::InvalidArgumentError(
        "version_policy: specific lists no version");
  }
  for (const int64_t version : config.version_policy().specific().versions()) {
    if (version > 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("version_policy: specific lists version ", version,
                     "; versions begin with 1"));
  }
  for (const inference::ModelInput& input : config.input()) {
    const std::string label = absl::StrCat("input \"", input.name(), "\": ");
    if (input.has_reshape()) {
      return absl::UnimplementedError(label + "reshape is not supported");
    }
    if (input.is_shape_tensor()) {
      return absl::UnimplementedError(label +
                                      "is_shape_tensor is not supported");
    }
    if (input.allow_ragged_batch()) {
      return absl::UnimplementedError(label +
                                      "allow_ragged_batch is not supported");
    }
    if (input.optional()) {
      return absl::UnimplementedError(label + "optional is not supported");
    }
  }
  for (const inference::ModelOutput& output : config.output()) {
    const std::string label = absl::StrCat("output \"", output.name(), "\": ");
    if (output.has_reshape()) {
      return absl::UnimplementedError(label + "reshape is not supported");
    }
    if (output.is_shape_tensor()) {
      return absl::UnimplementedError(label +
                                      "is_shape_tensor is not supported");
    }
  }
  return absl::OkStatus();
}

// The shape that clients see; empty if the rank is unknown.
absl::StatusOr<std::optional<Dims>> ClientShape(const ValueDecl& decl,
                                                bool batched) {
  if (!decl.shape.has_value()) return std::optional<Dims>();
  Dims shape;
  for (Dim dim : *decl.shape) shape.push_back(dim.known() ? dim.value() : -1);
  if (batched && (shape.empty() || shape[0] != -1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "max_batch_size is set, but the model's shape ", DimsString(shape),
        " does not begin with a batch axis of any size"));
  }
  return std::optional<Dims>(std::move(shape));
}

// What inference found, with the sizes that only the file tells.
std::vector<ValueDecl> Merge(const std::vector<ValueDecl>& inferred,
                             const std::vector<ValueDecl>& declared,
                             bool batched) {
  std::vector<ValueDecl> merged = inferred;
  for (size_t i = 0; i < std::min(merged.size(), declared.size()); ++i) {
    const SymbolicShape& from = declared[i].shape;
    SymbolicShape& to = merged[i].shape;
    if (!from.has_value()) continue;
    if (!to.has_value()) {
      to = from;
      // The batch's size is the request's, whatever one the file was made with.
      if (batched && !to->empty()) to->front() = Dim();
    }
    if (to->size() != from->size()) continue;
    for (size_t d = batched ? 1 : 0; d < to->size(); ++d) {
      if (!(*to)[d].known()) (*to)[d] = (*from)[d];
    }
  }
  return merged;
}

// Checks dims and type of one configured tensor and narrows `tensor` to them;
// where the rank is not known there is nothing to compare the dims with.
template <typename Configured>
absl::Status Narrow(const Configured& configured, bool batched, bool ranked,
                    ModelTensor* tensor) {
  if (configured.data_type() != ConfigType(tensor->dtype)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data_type is ", inference::DataType_Name(configured.data_type()),
        " where the model has ",
        inference::DataType_Name(ConfigType(tensor->dtype))));
  }
  Dims full(configured.dims().begin(), configured.dims().end());
  if (batched) full.insert(full.begin(), -1);
  for (int64_t dim : full) {
    if (dim < -1) {
      return absl::InvalidArgumentError(
          absl::StrCat("dims hold the negative ", dim));
    }
  }
  bool fits = !ranked || full.size() == tensor->shape.size();
  for (size_t i = 0; ranked && fits && i < full.size(); ++i) {
    fits =
        full[i] == tensor->shape[i] || (tensor->shape[i] == -1 && full[i] >= 0);
  }
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat(
        "dims are ",
        DimsString(Dims(configured.dims().begin(), configured.dims().end())),
        batched ? " behind the batch" : "", " where the model has ",
        DimsString(tensor->shape)));
  }
  tensor->shape = std::move(full);
  return absl::OkStatus();
}

template <typename Configured>
absl::StatusOr<std::vector<ModelTensor>> Complete(
    std::string_view kind, const std::vector<ValueDecl>& decls, bool batched,
    bool all_needed,
    google::protobuf::RepeatedPtrField<Configured>* configured) {
  const auto fail = [&](const std::string& name, const absl::Status& status) {
    return absl::Status(status.code(),
                        absl::StrCat(std::string(kind), " \"", name,
                                     "\": ", std::string(status.message())));
  };
  // By name: the first that is listed with it, and whether it is the only one.
  struct Listed {
    const Configured* first;
    bool again;
  };
  absl::flat_hash_map<std::string, Listed> listed;
  for (const Configured& c : *configured) {
    const auto [it, added] = listed.try_emplace(c.name(), Listed{&c, false});
    if (!added) it->second.again = true;
  }
  const bool given = !configured->empty();
  std::vector<ModelTensor> tensors;
  for (const ValueDecl& decl : decls) {
    auto shape = ClientShape(decl, batched);
    if (!shape.ok()) return fail(decl.name, shape.status());
    ModelTensor& tensor = tensors.emplace_back();
    tensor.name = decl.name;
    tensor.dtype = decl.dtype;
    const bool ranked = shape->has_value();
    tensor.shape = ranked ? **std::move(shape) : Dims{-1};
    if (const auto found = listed.find(decl.name); found != listed.end()) {
      const absl::Status fits =
          Narrow(*found->second.first, batched, ranked, &tensor);
      if (!fits.ok()) return fail(decl.name, fits);
    } else if (!ranked && (batched || all_needed)) {
      return fail(decl.name, absl::InvalidArgumentError(
                                 "the model does not declare its rank; dims "
                                 "in a config.pbtxt in the model's folder "
                                 "would"));
    } else if (given && all_needed) {
      return fail(decl.name, absl::InvalidArgumentError(
                                 "the configuration does not list it"));
    } else if (!given) {
      Configured& added = *configured->Add();
      added.set_name(tensor.name);
      added.set_data_type(ConfigType(tensor.dtype));
      for (size_t i = batched ? 1 : 0; i < tensor.shape.size(); ++i) {
        added.add_dims(tensor.shape[i]);
      }
    }
  }
  if (!given) return tensors;
  absl::flat_hash_set<absl::string_view> names;
  for (const ValueDecl& decl : decls) names.insert(decl.name);
  for (const Configured& c : *configured) {
    if (!names.contains(c.name())) {
      return fail(c.name(), absl::InvalidArgumentError(
                                "the model has none of this name"));
    }
    if (listed.find(c.name())->second.again) {
      return fail(c.name(), absl::InvalidArgumentError("listed twice"));
    }
  }
  return tensors;
}

}  // namespace

absl::StatusOr<inference::ModelConfig> ReadModelConfig(
    std::string_view text, const std::string& model_name) {
  inference::ModelConfig config;
  google::protobuf::TextFormat::Parser parser;
  FirstError error;
  parser.RecordErrorsTo(&error);
  if (!parser.ParseFromString(std::string(text), &config)) {
    for (const TritonField& field : kNotOffered) {
      if (error.Names(field)) {
        return absl::UnimplementedError(absl::StrCat(
            AbslView(field.name), " is not supported (", error.text(), ")"));
      }
    }
    return absl::InvalidArgumentError(error.text());
  }
  if (const std::string* text_at_fault = NotUtf8(config)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", EscapeNonUtf8(*text_at_fault), "\" is not UTF-8"));
  }
  if (!config.name().empty() && config.name() != model_name) {
    return absl::InvalidArgumentError(absl::StrCat("name is \"", config.name(),
                                                   "\", but the folder is \"",
                                                   model_name, "\""));
  }
  if (!Contains(kPlatforms, config.platform())) {
    return absl::UnimplementedError(absl::StrCat(
        "platform \"", config.platform(),
        "\" is not supported; leave it out, or write \"onnxruntime_onnx\""));
  }
  if (!Contains(kBackends, config.backend())) {
    return absl::UnimplementedError(absl::StrCat(
        "backend \"", config.backend(),
        "\" is not supported; leave it out, or write \"onnxruntime\""));
  }
  if (config.max_batch_size() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_batch_size is ", config.max_batch_size()));
  }
  const std::string& file = config.default_model_filename();
  if (file.find('/') != std::string::npos || file == "..") {
    return absl::InvalidArgumentError(absl::StrCat(
        "default_model_filename \"", file, "\" is not the name of a file"));
  }
  WEIR_RETURN_IF_ERROR(CheckFeatures(config));
  config.set_name(model_name);
  config.set_platform(std::string(kModelPlatform));
  config.set_backend("weir");
  if (file.empty()) config.set_default_model_filename(kDefaultFile);
  if (config.version_policy().policy_choice_case() ==
      inference::ModelVersionPolicy::POLICY_CHOICE_NOT_SET) {
    config.mutable_version_policy()->mutable_latest()->set_num_versions(1);
  }
  return config;
}

namespace {

// What a group is on this kind of device.
inference::ModelInstanceGroup::Kind InstanceKind(const DeviceInfo& device) {
  switch (device.kind) {
    case DeviceKind::kCpu:
      return inference::ModelInstanceGroup::KIND_CPU;
    case DeviceKind::kCuda:
      return inference::ModelInstanceGroup::KIND_GPU;
  }
  return inference::ModelInstanceGroup::KIND_AUTO;
}

}  // namespace

absl::Status CheckInstances(const inference::ModelConfig& config,
                            const DeviceInfo& device, bool has_host) {
  const auto here = InstanceKind(device);
  for (const inference::ModelInstanceGroup& group : config.instance_group()) {
    const bool gpu = group.kind() == inference::ModelInstanceGroup::KIND_GPU;
    const bool cpu = group.kind() == inference::ModelInstanceGroup::KIND_CPU;
    if (group.count() < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("instance_group: count is ", group.count()));
    }
    if (cpu && !group.gpus().empty()) {
      return absl::InvalidArgumentError(
          "instance_group: gpus are listed for KIND_CPU");
    }
    if ((gpu || (cpu && !has_host)) && group.kind() != here) {
      return absl::FailedPreconditionError(
          absl::StrCat("instance_group wants ", gpu ? "a GPU" : "the CPU",
                       "; this server's models are on ", DeviceName(device)));
    }
    for (const int32_t number : group.gpus()) {
      const bool there = here == inference::ModelInstanceGroup::KIND_GPU &&
                         number == device.ordinal;
      if (there) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("instance_group: gpus lists ", number,
                       "; this server's models are on ", DeviceName(device)));
    }
  }
  return absl::OkStatus();
}

bool WantsCpu(const inference::ModelConfig& config) {
  const auto& groups = config.instance_group();
  return !groups.empty() &&
         std::all_of(groups.begin(), groups.end(), [](const auto& group) {
           return group.kind() == inference::ModelInstanceGroup::KIND_CPU;
         });
}

void CompleteInstances(const DeviceInfo& device,
                       inference::ModelConfig* config) {
  using Group = inference::ModelInstanceGroup;
  if (config->instance_group().empty()) config->add_instance_group();
  for (int i = 0; i < config->instance_group_size(); ++i) {
    Group& group = *config->mutable_instance_group(i);
    if (group.name().empty()) {
      group.set_name(absl::StrCat(config->name(), "_", i));
    }
    if (group.count() == 0) group.set_count(1);
    if (group.kind() == Group::KIND_MODEL) continue;
    group.set_kind(InstanceKind(device));
    if (group.kind() != Group::KIND_GPU) {
      group.clear_gpus();
    } else if (group.gpus().empty()) {
      group.add_gpus(device.ordinal);
    }
  }
}

std::vector<std::string> FieldsWithoutEffect(
    const inference::ModelConfig& config, const DeviceInfo& device) {
  using Group = inference::ModelInstanceGroup;
  std::vector<std::string> fields;
  const auto other = InstanceKind(device) == Group::KIND_CPU ? Group::KIND_GPU
                                                             : Group::KIND_CPU;
  for (const Group& group : config.instance_group()) {
    if (group.kind() != other) continue;
    fields.push_back(absl::StrCat("instance_group.kind ",
                                  Group::Kind_Name(other), " (it runs on ",
                                  DeviceName(device), ")"));
    break;
  }
  const auto add = [&fields](const std::string& field) {
    if (std::find(fields.begin(), fields.end(), field) == fields.end()) {
      fields.push_back(field);
    }
  };
  for (const inference::ModelInstanceGroup& group : config.instance_group()) {
    if (group.count() > 1) {
      add(absl::StrCat("instance_group.count ", group.count()));
    }
    if (group.kind() == inference::ModelInstanceGroup::KIND_MODEL) {
      add("instance_group.kind KIND_MODEL");
    }
    if (!group.profile().empty()) add("instance_group.profile");
    if (group.has_rate_limiter()) add("instance_group.rate_limiter");
    if (group.passive()) add("instance_group.passive");
    if (!group.host_policy().empty()) add("instance_group.host_policy");
  }
  for (const inference::ModelInput& input : config.input()) {
    if (input.format() != inference::ModelInput::FORMAT_NONE) {
      add("input.format");
    }
  }
  for (const inference::ModelOutput& output : config.output()) {
    if (!output.label_filename().empty()) add("output.label_filename");
  }
  if (config.has_optimization()) fields.push_back("optimization");
  if (!config.runtime().empty()) fields.push_back("runtime");
  if (config.has_dynamic_batching()) fields.push_back("dynamic_batching");
  if (config.model_warmup_size() > 0) fields.push_back("model_warmup");
  if (!config.cc_model_filenames().empty()) {
    fields.push_back("cc_model_filenames");
  }
  if (!config.metric_tags().empty()) fields.push_back("metric_tags");
  if (!config.parameters().empty()) fields.push_back("parameters");
  return fields;
}

std::vector<int64_t> ChooseVersions(const inference::ModelConfig& config,
                                    const std::vector<int64_t>& existing) {
  const inference::ModelVersionPolicy& policy = config.version_policy();
  if (policy.has_all()) return existing;
  if (policy.has_specific()) {
    std::vector<int64_t> versions(policy.specific().versions().begin(),
                                  policy.specific().versions().end());
    std::sort(versions.begin(), versions.end());
    versions.erase(std::unique(versions.begin(), versions.end()),
                   versions.end());
    return versions;
  }
  const size_t wanted =
      std::max<size_t>(policy.latest().num_versions(), size_t{1});
  const size_t count = std::min(wanted, existing.size());
  return {existing.end() - static_cast<ptrdiff_t>(count), existing.end()};
}

void ChooseOutputs(const inference::ModelConfig& config, Graph* graph) {
  absl::flat_hash_map<absl::string_view, size_t> places;  // not chosen yet
  for (size_t i = 0; i < graph->outputs.size(); ++i) {
    places.try_emplace(graph->outputs[i], i);
  }
  std::vector<std::string> outputs;
  std::vector<ValueDecl> declared;
  for (const inference::ModelOutput& output : config.output()) {
    const auto found = places.find(output.name());
    if (found == places.end()) continue;
    outputs.push_back(output.name());
    if (!graph->declared_outputs.empty()) {
      declared.push_back(graph->declared_outputs[found->second]);
    }
    places.erase(found);
  }
  if (outputs.empty()) return;
  graph->outputs = std::move(outputs);
  graph->declared_outputs = std::move(declared);
}

absl::StatusOr<ModelInterface> CompleteModelConfig(
    const std::vector<ValueDecl>& inputs, const std::vector<ValueDecl>& outputs,
    const std::vector<ValueDecl>& declared, inference::ModelConfig* config) {
  const bool batched = config->max_batch_size() > 0;
  ModelInterface interface;
  WEIR_ASSIGN_OR_RETURN(
      interface.inputs,
      Complete("input", inputs, batched, true, config->mutable_input()));
  WEIR_ASSIGN_OR_RETURN(interface.outputs,
                        Complete("output", Merge(outputs, declared, batched),
                                 batched, false, config->mutable_output()));
  return interface;
}

}  // namespace weir
