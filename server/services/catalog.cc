#include "server/services/catalog.h"

#include <map>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"
#include "proto/weir/v1/catalog.pb.h"
#include "server/rpc/typed_method.h"
#include "server/services/explain.h"

namespace weir {
namespace {

constexpr char kService[] = "weir.v1.Catalog";

template <typename Request, typename Response, typename Handler>
void Add(MethodTable* table, const char* name, Handler handler) {
  AddUnary<Request, Response>(table, kService, name, std::move(handler));
}

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
  for (v1::EvalMode mode :
       {v1::EVAL_MODE_EAGER, v1::EVAL_MODE_SYNC_CPU, v1::EVAL_MODE_SYNC_FULL}) {
    info->add_modes(mode);
  }
}

v1::DeviceType DeviceTypeOf(DeviceKind kind) {
  return kind == DeviceKind::kCpu ? v1::DEVICE_TYPE_CPU : v1::DEVICE_TYPE_CUDA;
}

void FillDevice(Device& from, v1::Device* device) {
  const DeviceInfo& info = from.info();
  device->set_uuid(info.uuid);
  device->set_name(DeviceName(info));
  device->set_type(DeviceTypeOf(info.kind));
  device->set_product(info.name);
  device->set_failure(std::string(from.health().status().message()));
  device->set_memory_bytes(static_cast<uint64_t>(info.total_memory));
  device->set_compute_units(static_cast<uint32_t>(info.multiprocessors));
  if (info.compute_capability > 0) {
    device->set_capability(absl::StrCat(info.compute_capability / 10, ".",
                                        info.compute_capability % 10));
  }
  device->set_driver_version(info.driver);
  device->set_is_default(true);
}

void FillSummary(const OpDef& def, const OpRegistry& registry,
                 v1::OperatorSummary* summary) {
  summary->set_domain(std::string(def.domain));
  summary->set_name(std::string(def.name));
  summary->set_summary(std::string(def.doc));
  for (DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kCuda}) {
    if (registry.HasKernel(kind, def.domain, def.name)) {
      summary->add_devices(DeviceTypeOf(kind));
    }
  }
}

const char* KindName(AttributeType type) {
  switch (type) {
    case AttributeType::kInt:
      return "int";
    case AttributeType::kFloat:
      return "float";
    case AttributeType::kString:
      return "string";
    case AttributeType::kInts:
      return "ints";
    case AttributeType::kFloats:
      return "floats";
    case AttributeType::kStrings:
      return "strings";
    case AttributeType::kTensor:
      return "tensor";
  }
  return "";
}

std::string TypesText(TypeSet types) {
  std::string text;
  for (int number = 1; number <= 16; ++number) {
    const std::optional<DType> dtype = DTypeFromOnnx(number);
    if (!dtype.has_value() || !types.Has(*dtype)) continue;
    const std::string_view name = DTypeName(*dtype);
    absl::StrAppend(&text, text.empty() ? "" : ", ", AbslView(name));
  }
  return text;
}

void FillDescription(const OpDef& def, const OpRegistry& registry,
                     v1::OperatorDescription* description) {
  FillSummary(def, registry, description->mutable_summary());
  description->set_description(std::string(def.doc));
  for (const InputDef& input : def.inputs) {
    v1::OperatorArgument* argument = description->add_inputs();
    argument->set_name(std::string(input.name));
    argument->set_description(TypesText(input.types));
    argument->set_presence(
        input.variadic   ? v1::OperatorArgument::PRESENCE_VARIADIC
        : input.optional ? v1::OperatorArgument::PRESENCE_OPTIONAL
                         : v1::OperatorArgument::PRESENCE_REQUIRED);
  }
  for (const OutputDef& output : def.outputs) {
    v1::OperatorArgument* argument = description->add_outputs();
    argument->set_name(std::string(output.name));
    argument->set_presence(
        output.variadic   ? v1::OperatorArgument::PRESENCE_VARIADIC
        : output.optional ? v1::OperatorArgument::PRESENCE_OPTIONAL
                          : v1::OperatorArgument::PRESENCE_REQUIRED);
  }
  for (const AttributeDef& from : def.attributes) {
    v1::OperatorAttribute* attribute = description->add_attributes();
    attribute->set_name(std::string(from.name));
    attribute->set_kind(KindName(from.type));
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

void FillModels(const ServiceContext& context, bool only_ready,
                v1::ListModelsResponse* response) {
  std::map<std::string, v1::Model> models;
  std::map<std::string, bool> ready;
  for (const ModelIndexEntry& entry : context.models.Index()) {
    v1::Model& model = models[entry.name];
    model.set_name(entry.name);
    v1::ModelVersion* version = model.add_versions();
    int64_t number = 0;
    if (absl::SimpleAtoi(entry.version, &number)) version->set_version(number);
    version->set_state(StateOf(entry.state));
    version->set_reason(entry.reason);
    ready[entry.name] |= entry.state == ModelState::kReady;
  }
  for (auto& [name, model] : models) {
    if (only_ready && !ready[name]) continue;
    if (auto served = context.models.Find(name, ""); served.ok()) {
      model.set_max_batch_size((*served)->max_batch_size);
      for (const ModelTensor& input : (*served)->inputs) {
        FillSpec(input.name, input.dtype, input.shape, model.add_inputs());
      }
      for (const ModelTensor& output : (*served)->outputs) {
        FillSpec(output.name, output.dtype, output.shape, model.add_outputs());
      }
    }
    *response->add_models() = std::move(model);
  }
}

}  // namespace

void CatalogService::Register(MethodTable* table) {
  ServiceContext* const context = context_;
  Add<v1::GetServerInfoRequest, v1::GetServerInfoResponse>(
      table, "GetServerInfo",
      [context](const auto&, v1::GetServerInfoResponse* response) {
        FillServerInfo(*context, response);
        return absl::OkStatus();
      });
  Add<v1::ListDevicesRequest, v1::ListDevicesResponse>(
      table, "ListDevices",
      [context](const auto&, v1::ListDevicesResponse* response) {
        FillDevice(context->engine.device(), response->add_devices());
        return absl::OkStatus();
      });
  Add<v1::ListOperatorsRequest, v1::ListOperatorsResponse>(
      table, "ListOperators",
      [context](const v1::ListOperatorsRequest& request,
                v1::ListOperatorsResponse* response) {
        const OpRegistry& registry = context->engine.registry();
        for (const OpDef* def : registry.List()) {
          if (request.has_domain() && request.domain() != def->domain) continue;
          FillSummary(*def, registry, response->add_operators());
        }
        return absl::OkStatus();
      });
  Add<v1::DescribeOperatorRequest, v1::DescribeOperatorResponse>(
      table, "DescribeOperator",
      [context](const v1::DescribeOperatorRequest& request,
                v1::DescribeOperatorResponse* response) {
        const OpRegistry& registry = context->engine.registry();
        const OpDef* def = registry.Find(request.domain(), request.name());
        if (def == nullptr) {
          return WithField(
              absl::NotFoundError(absl::StrCat(
                  "no operator \"", request.name(), "\" in domain \"",
                  request.domain(), "\"; ListOperators lists them")),
              "name");
        }
        FillDescription(*def, registry,
                        response->mutable_operator_description());
        return absl::OkStatus();
      });
  Add<v1::ListModelsRequest, v1::ListModelsResponse>(
      table, "ListModels",
      [context](const v1::ListModelsRequest& request,
                v1::ListModelsResponse* response) {
        FillModels(*context, request.ready(), response);
        return absl::OkStatus();
      });
  table->Add(kService, "Explain", Traffic::kRare,
             [context](ServerCall& call) { Explain(context, call); });
}

}  // namespace weir
