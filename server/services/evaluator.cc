#include "server/services/evaluator.h"

#include <google/protobuf/message_lite.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "proto/weir/v1/evaluator.pb.h"
#include "server/evaluation/input_bytes.h"
#include "server/evaluation/request_fields.h"
#include "server/rpc/wire/evaluate_request.h"
#include "server/rpc/wire/evaluate_response.h"
#include "server/services/evaluation_call.h"
#include "server/services/graph_source.h"
#include "server/services/request_checks.h"
#include "server/services/space_header.h"

namespace weir {
namespace {

constexpr char kReportDetail[] = "type.googleapis.com/weir.v1.SyncReport";

// What needs a space on the server, which this server does not offer yet.
absl::Status NeedsSpace(std::string field, std::string what) {
  return WithField(
      absl::UnimplementedError(absl::StrCat(
          what, " needs a space, which this server does not offer; leave ",
          field, " unset")),
      field);
}

}  // namespace

// A call of Evaluate.
class EvaluatorService::Call final : public EvaluationCall {
 public:
  Call(ServiceContext* context, ServerCall& call)
      : EvaluationCall(context, call) {}

 private:
  absl::Status Read() override {
    WEIR_RETURN_IF_ERROR(
        ParseEvaluateRequest(call().request(), &call().arena(), &request_));
    call().set_label(request_.label);
    WEIR_RETURN_IF_ERROR(CheckGraph(request_.graph));
    WEIR_RETURN_IF_ERROR(CheckSpecs(request_.inputs, "value.spec"));
    return CheckSettings();
  }

  absl::Status CheckSettings() {
    if (call().Header(kSpaceHeader).has_value()) {
      return absl::UnimplementedError(
          absl::StrCat("this server offers no spaces; call without ",
                       AbslView(kSpaceHeader)));
    }
    if (!v1::EvalMode_IsValid(request_.mode)) {
      return InvalidField(
          "mode", absl::StrCat(request_.mode,
                               " is not an evaluation mode; there are "
                               "EVAL_MODE_EAGER, EVAL_MODE_SYNC_CPU and "
                               "EVAL_MODE_SYNC_FULL"));
    }
    if (request_.mode == v1::EVAL_MODE_DEFERRED) {
      return NeedsSpace("mode", "DEFERRED evaluation");
    }
    if (request_.context != 0) return NeedsSpace("context", "a context");
    if (!request_.after.empty()) return NeedsSpace("after", "a point");
    if (!request_.signal.empty()) return NeedsSpace("signal", "a point");
    WEIR_ASSIGN_OR_RETURN(engine_, context().engines.Find(request_.device));
    WEIR_RETURN_IF_ERROR(CheckStreamPolicy(request_.stream_policy));
    WEIR_RETURN_IF_ERROR(CheckPrecision(request_.precision));
    if (!v1::ReportLevel_IsValid(request_.report)) {
      return InvalidField(
          "report", absl::StrCat(request_.report,
                                 " is not a report level; there are "
                                 "REPORT_LEVEL_BRIEF and REPORT_LEVEL_FULL"));
    }
    if (!v1::ContextConflict_IsValid(request_.on_conflict)) {
      return InvalidField(
          "on_conflict",
          absl::StrCat(request_.on_conflict,
                       " is not a way to meet a context that is in use"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckStreamPolicy(const WireStreamPolicy& policy) const {
    if (!v1::StreamPolicy::Kind_IsValid(policy.kind)) {
      return InvalidField(
          "stream_policy.kind",
          absl::StrCat(policy.kind, " is not a kind of stream policy"));
    }
    if (policy.kind != v1::StreamPolicy::KIND_UNSPECIFIED &&
        policy.kind != v1::StreamPolicy::KIND_POOLED) {
      return NeedsSpace("stream_policy.kind", "a stream of one's own");
    }
    if (policy.stream != 0) {
      return InvalidField("stream_policy.stream",
                          "only KIND_NAMED has a stream");
    }
    const StreamPoolOptions& pool = engine_->options().streams;
    if (policy.priority != pool.priority) {
      return InvalidField(
          "stream_policy.priority",
          absl::StrCat("there is one pool, of priority ", pool.priority));
    }
    return absl::OkStatus();
  }

  void FindProgram() override {
    if (const auto* model = std::get_if<WireModelReference>(&request_.graph)) {
      return FindModel(*model);
    }
    search_.emplace(&call(), &engine_->programs(), &context().long_steps);
    search_->Run(
        request_.graph, request_.inputs,
        [](ProgramRequest::Result result, void* self) {
          static_cast<Call*>(self)->Found(std::move(result));
        },
        this);
  }

  void FindModel(const WireModelReference& reference) {
    auto model = FindServedModel(context().models, reference);
    if (!model.ok()) return Fail(model.status());
    set_model(*model);
    program_cached_ = true;
    Start((*model)->program);
  }

  void Found(ProgramRequest::Result result) {
    if (!result.program.ok()) return Fail(result.program.status());
    program_cached_ = result.cached;
    Start(*std::move(result.program));
  }

  void Start(std::shared_ptr<const Program> program) {
    const absl::Status there =
        CheckPlacement(request_.device, program->device().info());
    if (!there.ok()) return Fail(there);
    Evaluate(std::move(program),
             {.mode = request_.mode == 0 ? EvalMode::kEager
                                         : static_cast<EvalMode>(request_.mode),
              .seed = request_.rng_seed,
              .label = request_.label});
  }

  // -- Its tensors ------------------------------------------------------------

  size_t input_count() const override { return request_.inputs.size(); }

  GivenShape Input(size_t i) const override {
    const WireTensor& input = request_.inputs[i];
    return {input.name, {input.spec.shape.data(), input.spec.shape.size()}};
  }

  absl::StatusOr<DType> ReadInput(size_t i, DType) override {
    const WireTensor& input = request_.inputs[i];
    if (std::holds_alternative<ByteView>(input.source)) {
      return DTypeFromOnnx(input.spec.dtype).value();
    }
    const absl::Status status =
        std::holds_alternative<std::monostate>(input.source)
            ? absl::InvalidArgumentError("it has no bytes (value.raw)")
            : absl::UnimplementedError(
                  "tensors kept on the server and shared regions are not "
                  "offered by this server; send the bytes in value.raw");
    return WithField(Annotate(status, InputLabel(input.name)), InputField(i));
  }

  absl::Status FillElements(size_t i, DType dtype, bool on_host,
                            InputSource* source) override {
    const WireTensor& input = request_.inputs[i];
    return FillInput(dtype, input.spec.shape, std::get<ByteView>(input.source),
                     on_host, &call().arena(), source);
  }

  std::string ShapeField(size_t i) const override { return InputField(i); }
  std::string ElementsField(size_t i) const override { return InputField(i); }

  size_t output_count() const override { return request_.outputs.size(); }

  std::string_view OutputName(size_t i) const override {
    return request_.outputs[i].name;
  }

  absl::StatusOr<OutputWish> ReadOutput(size_t i) override {
    const auto& destination = request_.outputs[i].destination;
    if (std::holds_alternative<std::monostate>(destination)) {
      return OutputWish::kInline;
    }
    const bool kept = std::holds_alternative<WireTensorNumber>(destination);
    return NeedsSpace(OutputField(i) + (kept ? ".tensor" : ".region"),
                      "a destination other than the reply");
  }

  // -- Its answer -------------------------------------------------------------

  void Describe(absl::Status* error) const override {
    v1::SyncReport report;
    FillReport(work().report(), Frame(/*full=*/true), &report);
    error->SetPayload(kReportDetail, absl::Cord(report.SerializeAsString()));
  }

  v1::ResolvedSettings Resolved() const {
    v1::ResolvedSettings settings;
    settings.set_device_uuid(program().device().info().uuid);
    settings.set_stream_id(work().report().stream_id);
    settings.set_mode(static_cast<v1::EvalMode>(work().mode()));
    settings.set_precision(v1::PRECISION_STRICT);
    settings.set_program(program().id());
    settings.set_program_cached(program_cached_);
    settings.set_rng_seed(work().seed());
    return settings;
  }

  // In the arena.
  absl::StatusOr<std::string_view> Serialized(
      const google::protobuf::MessageLite& message) {
    const size_t size = message.ByteSizeLong();
    WEIR_ASSIGN_OR_RETURN(const std::span<char> bytes,
                          call().arena().TryAllocateSpan<char>(size));
    message.SerializeToArray(bytes.data(), static_cast<int>(size));
    return std::string_view(bytes.data(), size);
  }

  absl::StatusOr<ReplyBuffer> Write(std::span<const size_t> wanted,
                                    ResultBytes& bytes) override {
    v1::SyncReport report;
    FillReport(work().report(), Frame(request_.report == v1::REPORT_LEVEL_FULL),
               &report);
    EvaluateReply reply;
    WEIR_ASSIGN_OR_RETURN(reply.report, Serialized(report));
    if (request_.report_settings) {
      WEIR_ASSIGN_OR_RETURN(reply.settings, Serialized(Resolved()));
    }
    // While it may still be refused: what Prepare shares must be taken.
    WEIR_ASSIGN_OR_RETURN(
        const std::span<EvaluateOutput> outputs,
        call().arena().TryAllocateSpan<EvaluateOutput>(wanted.size()));
    for (size_t at = 0; at < wanted.size(); ++at) {
      const TensorMeta& meta = work().OutputMeta(wanted[at]);
      EvaluateOutput& output = *new (&outputs[at]) EvaluateOutput();
      output.name = program().outputs()[wanted[at]].name;
      output.spec.dtype = static_cast<int32_t>(meta.dtype);
      output.spec.shape = {meta.dims.data(), meta.dims.size()};
    }
    reply.outputs = outputs;
    WEIR_RETURN_IF_ERROR(bytes.Prepare(CopiedBytes(reply), *this));
    for (size_t at = 0; at < wanted.size(); ++at) {
      outputs[at].value = bytes.Take(wanted[at]);
    }
    return BuildEvaluateReply(reply);
  }

  EvaluateRequestView request_;
  Engine* engine_ = nullptr;  // whose programs are asked
  std::optional<ProgramRequest> search_;
  bool program_cached_ = false;
};

void EvaluatorService::Register(MethodTable* table) {
  table->Add("weir.v1.Evaluator", "Evaluate", Traffic::kHeavy,
             [this](ServerCall& call) {
               EvaluationCall::Handle<Call>(context_, call);
             });
}

}  // namespace weir
