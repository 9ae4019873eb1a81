#include "server/services/catalog.h"

#include <map>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/graph/opsets.h"
#include "kernels/ops/output_types.h"
#include "proto/weir/v1/catalog.pb.h"
#include "server/rpc/typed_method.h"
#include "server/services/explain.h"
#include "server/services/page.h"

namespace weir {
namespace {

constexpr char kService[] = "weir.v1.Catalog";

void FillServerInfo(const ServiceContext& context,
                    v1::GetServerInfoResponse* info) {
  info->set_name("weir");
  info->set_version(Version());
  info->set_started_ns(context.started_unix_ns);
  info->set_incarnation(context.incarnation);
  info->set_ready(context.readiness.ready());
  info->set_reason(context.readiness.why_not());
  v1::ServerLimits* limits = info->mutable_limits();
  limits->set_max_message_bytes(context.options.max_message_bytes);
  limits->set_queue_length(context.options.queue_length);
  limits->set_queue_bytes(context.options.queue_bytes);
  limits->set_streams(static_cast<uint32_t>(context.options.streams));
  if (context.spaces != nullptr) info->add_modes(v1::EVAL_MODE_DEFERRED);
  for (v1::EvalMode mode :
       {v1::EVAL_MODE_EAGER, v1::EVAL_MODE_SYNC_CPU, v1::EVAL_MODE_SYNC_FULL}) {
    info->add_modes(mode);
  }
  info->add_precisions(v1::PRECISION_STRICT);
}

v1::DeviceType DeviceTypeOf(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCpu:
      return v1::DEVICE_TYPE_CPU;
    case DeviceKind::kCuda:
      return v1::DEVICE_TYPE_CUDA;
  }
  return v1::DEVICE_TYPE_UNSPECIFIED;
}

v1::Device Describe(const ServiceContext& context, Engine& engine) {
  Device& from = engine.device();
  const DeviceInfo& info = from.info();
  v1::Device described;
  v1::Device* const device = &described;
  device->set_uuid(info.uuid);
  device->set_name(DeviceName(info));
  device->set_type(DeviceTypeOf(info.kind));
  device->set_product(info.name);
  device->set_failure(std::string(from.health().status().message()));
  device->set_memory_bytes(static_cast<uint64_t>(info.total_memory));
  device->set_memory_free_bytes(
      static_cast<uint64_t>(context.engines.free_bytes(engine).value_or(0)));
  device->set_compute_units(static_cast<uint32_t>(info.multiprocessors));
  if (info.compute_capability > 0) {
    device->set_capability(absl::StrCat(info.compute_capability / 10, ".",
                                        info.compute_capability % 10));
  }
  device->set_driver_version(info.driver);
  device->set_runtime_version(info.runtime);
  device->set_is_default(&engine == &context.engines.main());
  return described;
}

// Up to the first point that ends a sentence.
std::string FirstSentence(std::string_view text) {
  const size_t end = text.find(". ");
  return std::string(end == text.npos ? text : text.substr(0, end + 1));
}

void FillSummary(const OpDef& def, const OpRegistry& registry,
                 v1::OperatorSummary* summary) {
  summary->set_domain(std::string(def.domain));
  summary->set_name(std::string(def.name));
  summary->set_summary(FirstSentence(def.doc));
  for (int k = 0; k < kDeviceKinds; ++k) {
    const auto kind = static_cast<DeviceKind>(k);
    if (registry.HasKernel(kind, def.domain, def.name)) {
      summary->add_devices(DeviceTypeOf(kind));
    }
  }
}

v1::OperatorAttribute::Kind KindOf(AttributeType type) {
  switch (type) {
    case AttributeType::kInt:
      return v1::OperatorAttribute::KIND_INT;
    case AttributeType::kFloat:
      return v1::OperatorAttribute::KIND_FLOAT;
    case AttributeType::kString:
      return v1::OperatorAttribute::KIND_STRING;
    case AttributeType::kInts:
      return v1::OperatorAttribute::KIND_INTS;
    case AttributeType::kFloats:
      return v1::OperatorAttribute::KIND_FLOATS;
    case AttributeType::kStrings:
      return v1::OperatorAttribute::KIND_STRINGS;
    case AttributeType::kTensor:
      return v1::OperatorAttribute::KIND_TENSOR;
  }
  return v1::OperatorAttribute::KIND_UNSPECIFIED;
}

v1::OperatorArgument::Presence PresenceOf(bool optional, bool variadic) {
  if (variadic) return v1::OperatorArgument::PRESENCE_VARIADIC;
  return optional ? v1::OperatorArgument::PRESENCE_OPTIONAL
                  : v1::OperatorArgument::PRESENCE_REQUIRED;
}

// Numbers the groups of one element type, from 1 on, that have several members.
void FillTypeGroups(const OpDef& def, absl::Span<const OutputTypes> outputs,
                    v1::OperatorDescription* description) {
  const auto same_group = [&](size_t i, size_t k) {
    return i == k || (def.inputs[i].group >= 0 &&
                      def.inputs[i].group == def.inputs[k].group);
  };
  uint32_t groups = 0;
  for (size_t i = 0; i < def.inputs.size(); ++i) {
    if (description->inputs(static_cast<int>(i)).type_group() != 0) continue;
    std::vector<v1::OperatorArgument*> members;
    for (size_t k = i; k < def.inputs.size(); ++k) {
      if (same_group(i, k)) {
        members.push_back(description->mutable_inputs(static_cast<int>(k)));
      }
    }
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (outputs[o].like_input < 0 ||
          !same_group(i, static_cast<size_t>(outputs[o].like_input))) {
        continue;
      }
      v1::OperatorArgument* output =
          description->mutable_outputs(static_cast<int>(o));
      *output->mutable_types() =
          description->inputs(static_cast<int>(i)).types();
      members.push_back(output);
    }
    if (members.size() < 2) continue;
    ++groups;
    for (v1::OperatorArgument* member : members) {
      member->set_type_group(groups);
    }
  }
}

void FillDescription(const OpDef& def, const OpRegistry& registry,
                     v1::OperatorDescription* description) {
  FillSummary(def, registry, description->mutable_summary());
  description->set_description(std::string(def.doc));
  for (const InputDef& input : def.inputs) {
    v1::OperatorArgument* argument = description->add_inputs();
    argument->set_name(std::string(input.name));
    argument->set_presence(PresenceOf(input.optional, input.variadic));
    for (int number = 1; number <= v1::DataType_MAX; ++number) {
      const std::optional<DType> dtype = DTypeFromOnnx(number);
      if (dtype.has_value() && input.types.Has(*dtype)) {
        argument->add_types(static_cast<v1::DataType>(number));
      }
    }
  }
  const std::vector<OutputTypes> output_types = OutputTypesOf(def);
  for (size_t i = 0; i < def.outputs.size(); ++i) {
    const OutputDef& output = def.outputs[i];
    v1::OperatorArgument* argument = description->add_outputs();
    argument->set_name(std::string(output.name));
    argument->set_presence(PresenceOf(output.optional, output.variadic));
    for (const DType dtype : output_types[i].types) {
      argument->add_types(static_cast<v1::DataType>(dtype));
    }
    argument->set_type_attribute(std::string(output_types[i].attribute));
  }
  FillTypeGroups(def, output_types, description);
  for (const OpsetRange& range : OpsetsOf(def)) {
    v1::OpsetRange* opsets = description->add_opsets();
    opsets->set_first(range.first);
    opsets->set_last(range.last);
  }
  for (const AttributeDef& from : def.attributes) {
    v1::OperatorAttribute* attribute = description->add_attributes();
    attribute->set_name(std::string(from.name));
    attribute->set_kind(KindOf(from.type));
    attribute->set_description(std::string(from.doc));
    attribute->set_required(from.required);
  }
}

void FillSpec(const std::string& name, DType dtype,
              absl::Span<const int64_t> shape, v1::NamedTensorSpec* spec) {
  spec->set_name(name);
  spec->mutable_spec()->set_dtype(static_cast<v1::DataType>(dtype));
  for (int64_t extent : shape) spec->mutable_spec()->add_shape(extent);
}

v1::ModelState StateOf(ModelState state) {
  switch (state) {
    case ModelState::kLoading:
      return v1::MODEL_STATE_LOADING;
    case ModelState::kReady:
      return v1::MODEL_STATE_READY;
    case ModelState::kUnavailable:
      return v1::MODEL_STATE_UNAVAILABLE;
  }
  return v1::MODEL_STATE_UNSPECIFIED;
}

void FillModel(const ServedModel& served, v1::Model* model) {
  model->set_max_batch_size(served.max_batch_size);
  for (const ModelTensor& input : served.inputs) {
    FillSpec(input.name, input.dtype, input.shape, model->add_inputs());
  }
  for (const ModelTensor& output : served.outputs) {
    FillSpec(output.name, output.dtype, output.shape, model->add_outputs());
  }
}

absl::Status ListModels(const ServiceContext& context,
                        const v1::ListModelsRequest& request,
                        v1::ListModelsResponse* response) {
  WEIR_ASSIGN_OR_RETURN(
      Page page, Page::Read(request.page_size(), request.page_token(),
                            request.ready() ? "models ready" : "models"));
  std::map<std::string, v1::Model> models;
  std::map<std::string, bool> ready;
  for (const ModelIndexEntry& entry : context.models.Index()) {
    if (page.Had(entry.name)) continue;
    v1::Model& model = models[entry.name];
    model.set_name(entry.name);
    v1::ModelVersion* version = model.add_versions();
    int64_t number = 0;
    if (absl::SimpleAtoi(entry.version, &number)) version->set_version(number);
    version->set_state(StateOf(entry.state));
    version->set_reason(entry.reason);
    if (auto served = context.models.Find(entry.name, entry.version);
        served.ok()) {
      version->set_device_uuid((*served)->program->device().info().uuid);
    }
    ready[entry.name] |= entry.state == ModelState::kReady;
  }
  for (auto& [name, model] : models) {
    if (request.ready() && !ready[name]) continue;
    if (auto served = context.models.Find(name, ""); served.ok()) {
      FillModel(**served, &model);
    }
    if (!AddToPage(name, std::move(model), &page, response->mutable_models())) {
      break;
    }
  }
  response->set_next_page_token(page.next_token());
  return absl::OkStatus();
}

absl::Status ListDevices(const ServiceContext& context,
                         const v1::ListDevicesRequest& request,
                         v1::ListDevicesResponse* response) {
  WEIR_ASSIGN_OR_RETURN(Page page, Page::Read(request.page_size(),
                                              request.page_token(), "devices"));
  std::map<std::string, Engine*> engines;
  for (Engine* engine : context.engines.all()) {
    engines[DeviceName(engine->device().info())] = engine;
  }
  for (const auto& [name, engine] : engines) {
    if (page.Had(name)) continue;
    if (!AddToPage(name, Describe(context, *engine), &page,
                   response->mutable_devices())) {
      break;
    }
  }
  response->set_next_page_token(page.next_token());
  return absl::OkStatus();
}

// The domain of ONNX's operators has two names, as Node.domain.
std::string_view DomainOf(const std::string& domain) {
  return domain == "ai.onnx" ? std::string_view() : domain;
}

absl::Status ListOperators(const ServiceContext& context,
                           const v1::ListOperatorsRequest& request,
                           v1::ListOperatorsResponse* response) {
  WEIR_ASSIGN_OR_RETURN(
      Page page,
      Page::Read(request.page_size(), request.page_token(),
                 request.has_domain()
                     ? absl::StrCat("operators of ",
                                    AbslView(DomainOf(request.domain())))
                     : "operators"));
  const OpRegistry& registry = context.engines.main().registry();
  for (const OpDef* def : registry.List()) {
    if (request.has_domain() && DomainOf(request.domain()) != def->domain) {
      continue;
    }
    std::string key(def->domain);
    key += '\0';  // orders as the pair does
    key += def->name;
    if (page.Had(key)) continue;
    v1::OperatorSummary summary;
    FillSummary(*def, registry, &summary);
    if (!AddToPage(key, std::move(summary), &page,
                   response->mutable_operators())) {
      break;
    }
  }
  response->set_next_page_token(page.next_token());
  return absl::OkStatus();
}

absl::Status DescribeOperator(const ServiceContext& context,
                              const v1::DescribeOperatorRequest& request,
                              v1::DescribeOperatorResponse* response) {
  const OpRegistry& registry = context.engines.main().registry();
  const OpDef* def = registry.Find(DomainOf(request.domain()), request.name());
  if (def == nullptr) {
    const char* const by =
        registry.HiddenBy(DomainOf(request.domain()), request.name());
    return WithField(
        absl::NotFoundError(absl::StrCat(
            "no operator \"", request.name(), "\" in domain \"",
            request.domain(), "\"; ",
            by == nullptr
                ? "ListOperators, or \"weir ops\", lists them"
                : absl::StrCat("it is one for tests, which ", by, " offers"))),
        "name");
  }
  FillDescription(*def, registry, response->mutable_operator_description());
  return absl::OkStatus();
}

}  // namespace

void CatalogService::Register(MethodTable* table) {
  ServiceContext* const context = context_;
  AddUnary<v1::GetServerInfoRequest, v1::GetServerInfoResponse>(
      table, kService, "GetServerInfo",
      [context](const auto&, v1::GetServerInfoResponse* response) {
        FillServerInfo(*context, response);
        return absl::OkStatus();
      });
  AddUnary<v1::ListDevicesRequest, v1::ListDevicesResponse>(
      table, kService, "ListDevices",
      [context](const auto& request, auto* response) {
        return ListDevices(*context, request, response);
      });
  AddUnary<v1::ListOperatorsRequest, v1::ListOperatorsResponse>(
      table, kService, "ListOperators",
      [context](const auto& request, auto* response) {
        return ListOperators(*context, request, response);
      });
  AddUnary<v1::DescribeOperatorRequest, v1::DescribeOperatorResponse>(
      table, kService, "DescribeOperator",
      [context](const auto& request, auto* response) {
        return DescribeOperator(*context, request, response);
      });
  AddUnary<v1::ListModelsRequest, v1::ListModelsResponse>(
      table, kService, "ListModels",
      [context](const auto& request, auto* response) {
        return ListModels(*context, request, response);
      });
  table->Add(kService, "Explain", Traffic::kHeavy,
             [context](ServerCall& call) { Explain(context, call); });
}

}  // namespace weir
