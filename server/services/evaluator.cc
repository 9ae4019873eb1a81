#include "server/services/evaluator.h"

#include <memory_resource>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "proto/weir/v1/evaluator.pb.h"
#include "server/rpc/peer.h"
#include "server/rpc/wire/evaluate_request.h"
#include "server/rpc/wire/evaluate_response.h"
#include "server/services/call_evaluation.h"
#include "server/services/graph_source.h"
#include "server/services/long_step.h"
#include "server/services/report_proto.h"
#include "server/services/request_checks.h"
#include "server/services/tensor_io.h"
#include "server/services/value_finder.h"

namespace weir {
namespace {

// The header with a space's token.
constexpr char kSpaceHeader[] = "weir-space-bin";
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

// One call, from its bytes to its answer. Lives in the call's arena.
class EvaluatorService::Request {
 public:
  Request(ServiceContext* context, ServerCall& call)
      : context_(context),
        call_(call),
        places_(&call.arena()),
        wanted_(&call.arena()) {}

  void Run() {
    RunStep<&Request::Read, &Request::WasRead>(call_, context_->long_steps,
                                               ReadingBytes(call_), this);
  }

 private:
  void WasRead(absl::Status status) {
    if (!status.ok()) return Fail(status);
    if (const auto* model = std::get_if<WireModelReference>(&request_.graph)) {
      FindModel(*model);
    } else {
      FindProgram();
    }
  }

  absl::Status Read() {
    WEIR_RETURN_IF_ERROR(
        ParseEvaluateRequest(call_.request(), &call_.arena(), &request_));
    call_.set_label(request_.label);
    WEIR_RETURN_IF_ERROR(CheckGraph(request_.graph));
    WEIR_RETURN_IF_ERROR(CheckSpecs(request_.inputs, "value.spec"));
    return CheckSettings();
  }

  absl::Status CheckSettings() {
    if (call_.Header(kSpaceHeader).has_value()) {
      return absl::UnimplementedError(absl::StrCat(
          "this server offers no spaces; call without ", kSpaceHeader));
    }
    if (!v1::EvalMode_IsValid(request_.mode)) {
      return InvalidField(
          "mode", absl::StrCat(request_.mode, " is not an evaluation mode"));
    }
    if (request_.mode == v1::EVAL_MODE_DEFERRED) {
      return NeedsSpace("mode", "DEFERRED evaluation");
    }
    if (request_.context != 0) return NeedsSpace("context", "a context");
    if (!request_.after.empty()) return NeedsSpace("after", "a point");
    if (!request_.signal.empty()) return NeedsSpace("signal", "a point");
    WEIR_RETURN_IF_ERROR(CheckStreamPolicy(request_.stream_policy));
    WEIR_ASSIGN_OR_RETURN(engine_, FindEngine(*context_, request_.device));
    WEIR_RETURN_IF_ERROR(CheckPrecision(request_.precision));
    if (!v1::ReportLevel_IsValid(request_.report)) {
      return InvalidField(
          "report", absl::StrCat(request_.report, " is not a report level"));
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
    const StreamPoolOptions& pool = context_->engine.options().streams;
    if (policy.priority != pool.priority) {
      return InvalidField(
          "stream_policy.priority",
          absl::StrCat("there is one pool, of priority ", pool.priority));
    }
    return absl::OkStatus();
  }

  void FindModel(const WireModelReference& reference) {
    auto model = FindServedModel(context_->models, reference);
    if (!model.ok()) {
      Fail(model.status());
      return;
    }
    program_cached_ = true;
    model_ = *std::move(model);
    program_ = model_->program;
    Start();
  }

  void FindProgram() {
    search_.emplace(&call_, &engine_->programs(), &context_->long_steps);
    search_->Run(
        request_.graph, request_.inputs,
        [](ProgramSearch::Found found, void* self) {
          static_cast<Request*>(self)->Found(std::move(found));
        },
        this);
  }

  void Found(ProgramSearch::Found found) {
    if (!found.status.ok()) return Fail(found.status);
    if (found.program != nullptr) {
      program_ = std::move(found.program);
      program_cached_ = true;
      Start();
      return;
    }
    // No reference to the key is left here: it may be large.
    auto make_graph = [key = found.key] { return ImportKey(*key); };
    compile_wait_ = engine_->programs().GetOrCompile(
        std::move(found.key), found.hash, std::move(make_graph),
        call_.deadline(),
        [this](ProgramCache::ProgramOr program) {
          compiled_ = std::move(program);
          call_.Resume(
              [](ServerCall&, void* self) {
                static_cast<Request*>(self)->Compiled();
              },
              this);
        },
        PeerKey(call_.Peer()));
    call_.OnCancel(
        [](ServerCall&, void* self) {
          const Request& request = *static_cast<Request*>(self);
          request.engine_->programs().Cancel(request.compile_wait_);
        },
        this);
  }

  void Compiled() {
    ProgramCache::ProgramOr program = std::move(compiled_);
    compiled_ = nullptr;
    if (!program.ok()) {
      Fail(WithGraphField(program.status(), request_.graph));
      return;
    }
    program_ = *std::move(program);
    Start();
  }

  void Start() {
    const absl::Status there =
        CheckPlacement(request_.device, program_->device().info());
    if (!there.ok()) {
      Fail(there);
      return;
    }
    evaluation_ = CallEvaluation::Acquire(context_->EngineOf(*program_),
                                          context_->metrics);
    WorkRequest& work = evaluation_->request();
    work.program = program_;
    work.mode = request_.mode == 0 ? EvalMode::kEager
                                   : static_cast<EvalMode>(request_.mode);
    work.seed = request_.rng_seed;
    work.label = std::string(request_.label);
    const size_t tensors =
        program_->inputs().size() + program_->outputs().size();
    RunStep<&Request::Fill, &Request::WasFilled>(
        call_, context_->long_steps, ReadingBytes(call_, tensors), this);
  }

  absl::Status Fill() {
    WEIR_RETURN_IF_ERROR(FillInputs());
    return ChooseOutputs();
  }

  void WasFilled(absl::Status status) {
    if (!status.ok()) {
      // It was not started: what its work says is about an earlier request.
      CallEvaluation::Release(std::exchange(evaluation_, nullptr));
      Fail(status);
      return;
    }
    evaluation_->Start(
        call_,
        [](CallEvaluation&, void* self) {
          static_cast<Request*>(self)->Finish();
        },
        this);
  }

  // Whose inputs and outputs they are.
  std::string Whose() const {
    return model_ == nullptr ? "the graph"
                             : absl::StrCat("model \"", model_->name, "\"");
  }

  absl::Status FillInputs() {
    const ValueDecl* const missing =
        FindMissing(program_->inputs(), request_.inputs.size(),
                    [this](size_t i) { return request_.inputs[i].name; });
    if (missing != nullptr) return MissingInput(*missing, Whose());
    auto& inputs = evaluation_->request().inputs;
    inputs.resize(program_->inputs().size());
    places_.assign(inputs.size(), kNotGiven);
    std::pmr::vector<bool> given(inputs.size(), false, &call_.arena());
    const ValueFinder finder(program_->inputs(), request_.inputs.size());
    for (size_t i = 0; i < request_.inputs.size(); ++i) {
      const WireTensor& input = request_.inputs[i];
      const int at = finder.Find(input.name);
      if (at < 0) {
        return InvalidField(InputField(i),
                            absl::StrCat(Whose(), " has no input \"",
                                         AbslView(input.name), "\""));
      }
      const size_t index = static_cast<size_t>(at);
      if (given[index]) {
        return InvalidField(InputField(i),
                            absl::StrCat("input \"", AbslView(input.name),
                                         "\" is given twice"));
      }
      given[index] = true;
      places_[index] = i;
      absl::Status status = FillOne(input, index, &inputs[index]);
      if (!status.ok()) {
        return WithField(
            Annotate(status,
                     absl::StrCat("input \"", AbslView(input.name), "\": ")),
            InputField(i));
      }
      if (model_ == nullptr) continue;
      status = CheckBatch(*model_, Given(0), Given(i));
      if (!status.ok()) return WithField(status, InputField(i));
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!given[i]) return MissingInput(program_->inputs()[i], Whose());
    }
    return absl::OkStatus();
  }

  GivenShape Given(size_t i) const {
    const WireTensor& input = request_.inputs[i];
    return {input.name, {input.spec.shape.data(), input.spec.shape.size()}};
  }

  absl::Status FillOne(const WireTensor& input, size_t index,
                       InputSource* source) {
    const DType dtype = DTypeFromOnnx(input.spec.dtype).value();
    const auto* raw = std::get_if<ByteView>(&input.source);
    if (raw == nullptr) {
      if (std::holds_alternative<std::monostate>(input.source)) {
        return absl::InvalidArgumentError("it has no bytes (value.raw)");
      }
      return absl::UnimplementedError(
          "tensors kept on the server and shared regions are not offered by "
          "this server; send the bytes in value.raw");
    }
    if (model_ != nullptr) {
      WEIR_RETURN_IF_ERROR(CheckInputShape(
          *model_, index, {input.spec.shape.data(), input.spec.shape.size()}));
    }
    WEIR_RETURN_IF_ERROR(texts_.Take(dtype, input.spec.shape));
    return FillInput(dtype, input.spec.shape, *raw,
                     program_->InputOnHost(index), &call_.arena(), source);
  }

  absl::Status ChooseOutputs() {
    const auto& outputs = program_->outputs();
    auto& wishes = evaluation_->request().outputs;
    if (request_.outputs.empty()) {
      wishes.assign(outputs.size(), OutputWish::kInline);
      for (size_t i = 0; i < outputs.size(); ++i) wanted_.push_back(i);
      return absl::OkStatus();
    }
    wishes.assign(outputs.size(), OutputWish::kDrop);
    const ValueFinder finder(outputs, request_.outputs.size());
    for (size_t i = 0; i < request_.outputs.size(); ++i) {
      const WireOutputRequest& wanted = request_.outputs[i];
      const std::string field = absl::StrCat("outputs[", i, "]");
      const int at = finder.Find(wanted.name);
      if (at < 0) {
        return InvalidField(field, absl::StrCat(Whose(), " has no output \"",
                                                AbslView(wanted.name), "\""));
      }
      if (!std::holds_alternative<std::monostate>(wanted.destination)) {
        const bool kept =
            std::holds_alternative<WireTensorNumber>(wanted.destination);
        return NeedsSpace(field + (kept ? ".tensor" : ".region"),
                          "a destination other than the reply");
      }
      OutputWish& wish = wishes[static_cast<size_t>(at)];
      if (wish != OutputWish::kDrop) {
        return InvalidField(field,
                            absl::StrCat("output \"", AbslView(wanted.name),
                                         "\" is asked for twice"));
      }
      wish = OutputWish::kInline;
      wanted_.push_back(static_cast<size_t>(at));
    }
    return absl::OkStatus();
  }

  void Finish() {
    const Work& work = evaluation_->work();
    if (!work.status().ok()) {
      absl::Status status = WithRequestField(work.status(), places_);
      status.SetPayload(kReportDetail, absl::Cord(Report(work, true)));
      Fail(status);
      return;
    }
    bytes_.emplace(*evaluation_, wanted_);
    RunStep<&Request::Write, &Request::WasWritten>(call_, context_->long_steps,
                                                   bytes_->step_bytes(), this);
  }

  absl::Status Write() {
    WEIR_ASSIGN_OR_RETURN(reply_, BuildReply(evaluation_->work()));
    return absl::OkStatus();
  }

  void WasWritten(absl::Status status) {
    if (!status.ok()) return Fail(status);
    GiveUp(absl::StatusCode::kOk);
    // The arena runs no destructors: nothing is left here.
    call_.Reply(std::exchange(reply_, ReplyBuffer()));
  }

  std::string Report(const Work& work, bool full) const {
    v1::SyncReport report;
    FillReport(work.report(),
               {.device = program_->device().info(),
                .received = call_.received(),
                .replied = NowNanos(),
                .unix_minus_steady_ns = context_->unix_minus_steady_ns,
                .inline_reads = InlineReads(work.request),
                .full = full},
               &report);
    return report.SerializeAsString();
  }

  std::string Settings(const Work& work) const {
    v1::ResolvedSettings settings;
    settings.set_device_uuid(program_->device().info().uuid);
    settings.set_stream_id(work.report().stream_id);
    settings.set_mode(static_cast<v1::EvalMode>(work.mode()));
    settings.set_precision(v1::PRECISION_STRICT);
    settings.set_program(program_->id());
    settings.set_program_cached(program_cached_);
    settings.set_rng_seed(work.seed());
    return settings.SerializeAsString();
  }

  absl::StatusOr<ReplyBuffer> BuildReply(const Work& work) {
    const auto& declared = program_->outputs();
    // Before the results change hands: they are part of neither.
    const std::string report =
        Report(work, request_.report == v1::REPORT_LEVEL_FULL);
    const std::string settings =
        request_.report_settings ? Settings(work) : std::string();
    // While it may still be refused: what Prepare shares must be taken.
    WEIR_ASSIGN_OR_RETURN(
        const std::span<EvaluateOutput> outputs,
        call_.arena().TryAllocateSpan<EvaluateOutput>(wanted_.size()));
    for (size_t at = 0; at < wanted_.size(); ++at) {
      const size_t i = wanted_[at];
      const TensorMeta& meta = work.OutputMeta(i);
      EvaluateOutput& output = *new (&outputs[at]) EvaluateOutput();
      output.name = declared[i].name;
      output.spec.dtype = static_cast<int32_t>(meta.dtype);
      output.spec.shape = {meta.dims.data(), meta.dims.size()};
    }
    const EvaluateReply reply = {
        .outputs = outputs, .settings = settings, .report = report};
    WEIR_RETURN_IF_ERROR(bytes_->Prepare(CopiedBytes(reply)));
    for (size_t at = 0; at < wanted_.size(); ++at) {
      outputs[at].value = bytes_->Take(wanted_[at]);
    }
    ReplyBuffer built = BuildEvaluateReply(reply);
    WEIR_RETURN_IF_ERROR(call_.CheckReplySize(built.size()));
    return built;
  }

  void Fail(const absl::Status& status) {
    GiveUp(status.code());
    call_.Fail(status);
  }

  // Called once, before the answer: the arena runs no destructors.
  void GiveUp(absl::StatusCode code) {
    if (model_ != nullptr) {
      context_->model_metrics.Record(
          *model_, code,
          evaluation_ == nullptr ? nullptr : &evaluation_->work(),
          call_.received());
    }
    if (evaluation_ != nullptr) {
      CallEvaluation::Release(std::exchange(evaluation_, nullptr));
    }
    model_ = nullptr;
    program_ = nullptr;
  }

  ServiceContext* const context_;
  ServerCall& call_;
  EvaluateRequestView request_;
  ReplyBuffer reply_;
  Engine* engine_ = nullptr;                  // whose programs are asked
  std::shared_ptr<const ServedModel> model_;  // null: a program of its own
  std::shared_ptr<const Program> program_;
  std::optional<ProgramSearch> search_;
  ProgramCache::ProgramOr compiled_ = nullptr;
  ProgramCache::WaitId compile_wait_ = 0;
  CallEvaluation* evaluation_ = nullptr;
  TextElements texts_;
  std::optional<OutputBytes> bytes_;  // once it is done
  std::pmr::vector<size_t> places_;   // in the request, of the program's inputs
  std::pmr::vector<size_t> wanted_;   // the program's outputs, as asked for
  bool program_cached_ = false;
};

void EvaluatorService::Register(MethodTable* table) {
  table->Add("weir.v1.Evaluator", "Evaluate", Traffic::kHeavy,
             [this](ServerCall& call) {
               void* room =
                   call.arena().allocate(sizeof(Request), alignof(Request));
               (new (room) Request(context_, call))->Run();
             });
}

}  // namespace weir
