#include "server/services/kserve_info.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "proto/inference/grpc_service.pb.h"
#include "server/rpc/typed_method.h"

namespace weir {
namespace {

constexpr char kService[] = "inference.GRPCInferenceService";

void FillTensor(const ModelTensor& from,
                inference::ModelMetadataResponse::TensorMetadata* to) {
  to->set_name(from.name);
  to->set_datatype(std::string(KServeName(from.dtype)));
  for (int64_t extent : from.shape) to->add_shape(extent);
}

// A model that the request names.
absl::StatusOr<std::shared_ptr<const ServedModel>> FindNamed(
    const ServiceContext& context, const std::string& name,
    const std::string& version) {
  if (name.empty()) return InvalidField("name", "name is not set");
  return context.models.Find(name, version);
}

absl::Status FillMetadata(const ServiceContext& context,
                          const inference::ModelMetadataRequest& request,
                          inference::ModelMetadataResponse* response) {
  WEIR_ASSIGN_OR_RETURN(auto model,
                        FindNamed(context, request.name(), request.version()));
  response->set_name(model->name);
  response->set_platform(model->platform);
  for (const ModelIndexEntry& entry : context.models.Index()) {
    if (entry.name == model->name && entry.state == ModelState::kReady) {
      response->add_versions(entry.version);
    }
  }
  for (const ModelTensor& input : model->inputs) {
    FillTensor(input, response->add_inputs());
  }
  for (const ModelTensor& output : model->outputs) {
    FillTensor(output, response->add_outputs());
  }
  return absl::OkStatus();
}

void FillDuration(uint64_t count, uint64_t ns,
                  inference::StatisticDuration* duration) {
  duration->set_count(count);
  duration->set_ns(ns);
}

// In Triton's words.
const char* MemoryType(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCpu:
      return "CPU";
    case DeviceKind::kCuda:
      return "GPU";
  }
  return "";
}

void FillModelStatistics(const ServiceContext& context,
                         const ServedModel& model,
                         inference::ModelStatistics* statistics) {
  const ModelCounts counts = context.model_metrics.Read(model);
  statistics->set_name(model.name);
  statistics->set_version(model.version);
  if (counts.last_executed_at != 0) {
    statistics->set_last_inference(static_cast<uint64_t>(
        (counts.last_executed_at + context.unix_minus_steady_ns) / 1'000'000));
  }
  statistics->set_inference_count(counts.inferences);
  statistics->set_execution_count(counts.executions);
  inference::InferStatistics* infer = statistics->mutable_inference_stats();
  const uint64_t success = counts.success;
  FillDuration(success, counts.request_ns, infer->mutable_success());
  FillDuration(counts.failures(), counts.failure_ns, infer->mutable_fail());
  FillDuration(success, counts.queue_ns, infer->mutable_queue());
  FillDuration(success, counts.input_ns, infer->mutable_compute_input());
  FillDuration(success, counts.infer_ns, infer->mutable_compute_infer());
  FillDuration(success, counts.output_ns, infer->mutable_compute_output());
  infer->mutable_cache_hit();
  infer->mutable_cache_miss();
  for (const auto& [rows, from] : counts.batches) {
    inference::InferBatchStatistics* batch = statistics->add_batch_stats();
    batch->set_batch_size(static_cast<uint64_t>(rows));
    FillDuration(from.executions, from.input_ns,
                 batch->mutable_compute_input());
    FillDuration(from.executions, from.infer_ns,
                 batch->mutable_compute_infer());
    FillDuration(from.executions, from.output_ns,
                 batch->mutable_compute_output());
  }
  const DeviceInfo& device = model.program->device().info();
  inference::MemoryUsage* memory = statistics->add_memory_usage();
  memory->set_type(MemoryType(device.kind));
  memory->set_id(device.ordinal);
  memory->set_byte_size(model.program->constant_bytes());
}

absl::Status FillStatistics(const ServiceContext& context,
                            const inference::ModelStatisticsRequest& request,
                            inference::ModelStatisticsResponse* response) {
  if (!request.version().empty() || !request.name().empty()) {
    WEIR_ASSIGN_OR_RETURN(const auto model, FindNamed(context, request.name(),
                                                      request.version()));
    if (!request.version().empty()) {
      FillModelStatistics(context, *model, response->add_model_stats());
      return absl::OkStatus();
    }
  }
  for (const auto& model : context.models.Served()) {
    if (!request.name().empty() && model->name != request.name()) continue;
    FillModelStatistics(context, *model, response->add_model_stats());
  }
  return absl::OkStatus();
}

const char* StateName(ModelState state) {
  switch (state) {
    case ModelState::kLoading:
      return "LOADING";
    case ModelState::kReady:
      return "READY";
    case ModelState::kUnavailable:
      return "UNAVAILABLE";
  }
  return "";
}

std::string NotOffered(std::string_view name, std::string_view remedy) {
  return absl::StrCat("this server does not offer ", std::string(name), "; ",
                      std::string(remedy));
}

// Extensions that are not offered: an answer that says so beats gRPC's own.
void AddMissing(MethodTable* table, std::string_view name,
                std::string_view remedy) {
  table->Add(kService, name, Traffic::kRare,
             [message = NotOffered(name, remedy)](ServerCall& call) {
               call.Fail(absl::UnimplementedError(message));
             });
}

void AddAllMissing(MethodTable* table) {
  table->Refuse(
      kService, "ModelStreamInfer",
      NotOffered("ModelStreamInfer", "call ModelInfer for each request"));
  for (const char* name : {"RepositoryModelLoad", "RepositoryModelUnload"}) {
    AddMissing(table, name,
               "models are loaded when the server starts: change the "
               "repository and restart it");
  }
  for (const char* name :
       {"SystemSharedMemoryStatus", "SystemSharedMemoryRegister",
        "SystemSharedMemoryUnregister", "CudaSharedMemoryStatus",
        "CudaSharedMemoryRegister", "CudaSharedMemoryUnregister"}) {
    AddMissing(table, name, "send and receive tensors in the messages");
  }
  AddMissing(table, "TraceSetting",
             "ask for a request's times with the parameter weir_sync_report");
  AddMissing(
      table, "LogSettings",
      "weir.v1.Admin.SetLogLevel (weir admin log-level) changes the level; "
      "the rest are flags of weir-server");
}

}  // namespace

void KserveInfoService::Register(MethodTable* table) {
  using namespace inference;  // the service's own messages
  ServiceContext* const context = context_;
  AddUnary<ServerLiveRequest, ServerLiveResponse>(
      table, kService, "ServerLive",
      [](const auto&, ServerLiveResponse* reply) {
        reply->set_live(true);
        return absl::OkStatus();
      });
  AddUnary<ServerReadyRequest, ServerReadyResponse>(
      table, kService, "ServerReady",
      [context](const auto&, ServerReadyResponse* reply) {
        reply->set_ready(context->readiness.ready());
        return absl::OkStatus();
      });
  AddUnary<ModelReadyRequest, ModelReadyResponse>(
      table, kService, "ModelReady",
      [context](const ModelReadyRequest& request, ModelReadyResponse* reply) {
        const auto model =
            context->models.Find(request.name(), request.version());
        reply->set_ready(model.ok() && context->readiness.ready());
        return absl::OkStatus();
      });
  AddUnary<ServerMetadataRequest, ServerMetadataResponse>(
      table, kService, "ServerMetadata",
      [](const auto&, ServerMetadataResponse* reply) {
        reply->set_name("weir");
        reply->set_version(Version());
        // Those of which everything is served. Clients act on it.
        reply->add_extensions("model_configuration");
        reply->add_extensions("statistics");
        return absl::OkStatus();
      });
  AddUnary<ModelMetadataRequest, ModelMetadataResponse>(
      table, kService, "ModelMetadata",
      [context](const ModelMetadataRequest& request,
                ModelMetadataResponse* reply) {
        return FillMetadata(*context, request, reply);
      });
  AddUnary<ModelConfigRequest, ModelConfigResponse>(
      table, kService, "ModelConfig",
      [context](const ModelConfigRequest& request,
                ModelConfigResponse* reply) -> absl::Status {
        WEIR_ASSIGN_OR_RETURN(
            auto model, FindNamed(*context, request.name(), request.version()));
        if (!reply->mutable_config()->ParseFromString(model->config)) {
          return absl::InternalError("the model's configuration is malformed");
        }
        return absl::OkStatus();
      });
  AddUnary<ModelStatisticsRequest, ModelStatisticsResponse>(
      table, kService, "ModelStatistics",
      [context](const ModelStatisticsRequest& request,
                ModelStatisticsResponse* reply) {
        return FillStatistics(*context, request, reply);
      });
  AddUnary<RepositoryIndexRequest, RepositoryIndexResponse>(
      table, kService, "RepositoryIndex",
      [context](const RepositoryIndexRequest& request,
                RepositoryIndexResponse* reply) {
        if (!request.repository_name().empty()) {
          return WithField(
              absl::UnimplementedError(absl::StrCat(
                  "repository_name \"", request.repository_name(),
                  "\": this server has one repository, which has no name; "
                  "leave repository_name empty")),
              "repository_name");
        }
        for (const ModelIndexEntry& entry : context->models.Index()) {
          if (request.ready() && entry.state != ModelState::kReady) continue;
          auto* model = reply->add_models();
          model->set_name(entry.name);
          model->set_version(entry.version);
          model->set_state(StateName(entry.state));
          model->set_reason(entry.reason);
        }
        return absl::OkStatus();
      });
  AddAllMissing(table);
}

}  // namespace weir
