#include "server/services/kserve_infer.h"

#include <memory_resource>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "server/rpc/wire/infer_contents.h"
#include "server/rpc/wire/infer_request.h"
#include "server/rpc/wire/infer_response.h"
#include "server/services/call_evaluation.h"
#include "server/services/infer_parameters.h"
#include "server/services/long_step.h"
#include "server/services/report_proto.h"
#include "server/services/request_checks.h"
#include "server/services/tensor_io.h"
#include "server/services/value_finder.h"

namespace weir {
namespace {

std::string InputLabel(const InferInput& input) {
  return absl::StrCat("input \"", AbslView(input.name), "\": ");
}

}  // namespace

// One call, from its bytes to its answer. Lives in the call's arena.
class KserveInferService::Request {
 public:
  Request(ServiceContext* context, ServerCall& call)
      : context_(context),
        call_(call),
        evaluation_(nullptr),
        places_(&call.arena()),
        wanted_(&call.arena()) {}

  void Run() {
    RunStep<&Request::Read, &Request::WasRead>(call_, context_->long_steps,
                                               ReadingBytes(call_), this);
  }

 private:
  absl::Status Read() {
    WEIR_RETURN_IF_ERROR(
        ParseInferRequest(call_.request(), &call_.arena(), &request_));
    call_.set_request_id(request_.id);
    WEIR_ASSIGN_OR_RETURN(
        model_,
        context_->models.Find(request_.model_name, request_.model_version));
    WEIR_ASSIGN_OR_RETURN(report_, ReadInferParameters(request_.parameters));
    return absl::OkStatus();
  }

  void WasRead(absl::Status status) {
    if (!status.ok()) return Fail(status);
    evaluation_ = CallEvaluation::Acquire(context_->EngineOf(*model_->program),
                                          context_->metrics);
    evaluation_->request().program = model_->program;
    evaluation_->request().mode = EvalMode::kSyncFull;
    const size_t tensors = model_->inputs.size() + model_->outputs.size();
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
      return Fail(status);
    }
    evaluation_->Start(
        call_,
        [](CallEvaluation&, void* self) {
          static_cast<Request*>(self)->Finish();
        },
        this);
  }

  std::string Whose() const {
    return absl::StrCat("model \"", model_->name, "\"");
  }

  absl::Status FillInputs() {
    const auto& declared = model_->program->inputs();
    const ValueDecl* const missing =
        FindMissing(declared, request_.inputs.size(),
                    [this](size_t i) { return request_.inputs[i].name; });
    if (missing != nullptr) return MissingInput(*missing, Whose());
    auto& inputs = evaluation_->request().inputs;
    inputs.resize(model_->inputs.size());
    places_.assign(inputs.size(), kNotGiven);
    std::pmr::vector<bool> given(inputs.size(), false, &call_.arena());
    const ValueFinder finder(declared, request_.inputs.size());
    size_t next_raw = 0;
    for (size_t i = 0; i < request_.inputs.size(); ++i) {
      const InferInput& input = request_.inputs[i];
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
      WEIR_RETURN_IF_ERROR(
          CheckTensorParameters(input.name, InputField(i), input.parameters));
      WEIR_RETURN_IF_ERROR(FillOne(i, index, &next_raw, &inputs[index]));
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!given[i]) return MissingInput(declared[i], Whose());
    }
    if (next_raw != request_.raw_contents.size()) {
      return InvalidField("raw_input_contents",
                          absl::StrCat(request_.raw_contents.size(),
                                       " raw contents are given for ", next_raw,
                                       " inputs that take one"));
    }
    return absl::OkStatus();
  }

  absl::Status FillOne(size_t i, size_t index, size_t* next_raw,
                       InputSource* source) {
    const InferInput& input = request_.inputs[i];
    const std::optional<DType> dtype = DTypeFromKServe(input.datatype);
    const DType wanted = model_->inputs[index].dtype;
    if (!dtype.has_value() || *dtype != wanted) {
      return InvalidField(
          InputField(i) + ".datatype",
          absl::StrCat("input \"", AbslView(input.name), "\" has datatype \"",
                       AbslView(input.datatype), "\"; the model takes ",
                       AbslView(KServeName(wanted))));
    }
    const absl::Status fits = CheckInputShape(
        *model_, index, {input.shape.data(), input.shape.size()});
    if (!fits.ok()) {
      return WithField(Annotate(fits, InputLabel(input)),
                       InputField(i) + ".shape");
    }
    const absl::Status batch = CheckBatch(*model_, Given(0), Given(i));
    if (!batch.ok()) return WithField(batch, InputField(i) + ".shape");
    const bool on_host = model_->program->InputOnHost(index);
    std::string field = InputField(i);
    absl::Status status;
    if (input.contents.has_value()) {
      if (!request_.raw_contents.empty()) {
        return InvalidField(
            InputField(i) + ".contents",
            absl::StrCat("input \"", AbslView(input.name),
                         "\" has typed contents while the request "
                         "has raw_input_contents; use one of them"));
      }
      field += ".contents";
      status = FillTyped(input, *dtype, source);
    } else if (*next_raw >= request_.raw_contents.size()) {
      return InvalidField(
          InputField(i), absl::StrCat("input \"", AbslView(input.name),
                                      "\" has neither contents nor an entry of "
                                      "raw_input_contents"));
    } else {
      field = absl::StrCat("raw_input_contents[", *next_raw, "]");
      const ByteView& raw = request_.raw_contents[(*next_raw)++];
      status = texts_.Take(*dtype, input.shape);
      if (status.ok()) {
        status = FillInput(*dtype, input.shape, raw, on_host, &call_.arena(),
                           source);
      }
    }
    if (status.ok()) return status;
    return WithField(Annotate(status, InputLabel(input)), field);
  }

  GivenShape Given(size_t i) const {
    const InferInput& input = request_.inputs[i];
    return {input.name, {input.shape.data(), input.shape.size()}};
  }

  absl::Status FillTyped(const InferInput& input, DType dtype,
                         InputSource* source) {
    const absl::Span<const int64_t> shape(input.shape.data(),
                                          input.shape.size());
    WEIR_ASSIGN_OR_RETURN(const int64_t count, NumElements(shape));
    // An element takes at least a byte of the message: a shape that asks for
    // more is refused before memory is taken for it.
    if (static_cast<uint64_t>(count) > call_.request().size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the shape asks for ", count,
                       " elements; the contents cannot hold them"));
    }
    WEIR_RETURN_IF_ERROR(texts_.Take(dtype, input.shape));
    const size_t elements = static_cast<size_t>(count);
    WEIR_ASSIGN_OR_RETURN(void* const room, call_.arena().TryAllocate(
                                                elements * SizeOf(dtype), 64));
    std::byte* const out = static_cast<std::byte*>(room);
    WEIR_RETURN_IF_ERROR(
        DecodeContents(*input.contents, dtype, elements, &call_.arena(), out));
    source->dtype = dtype;
    source->dims.assign(input.shape.begin(), input.shape.end());
    source->pieces.push_back(
        {reinterpret_cast<const char*>(out), elements * SizeOf(dtype)});
    return absl::OkStatus();
  }

  absl::Status ChooseOutputs() {
    auto& wishes = evaluation_->request().outputs;
    const auto& outputs = model_->program->outputs();
    if (request_.outputs.empty()) {
      wishes.assign(outputs.size(), OutputWish::kInline);
      for (size_t i = 0; i < outputs.size(); ++i) wanted_.push_back(i);
      return absl::OkStatus();
    }
    wishes.assign(outputs.size(), OutputWish::kDrop);
    const ValueFinder finder(outputs, request_.outputs.size());
    for (size_t i = 0; i < request_.outputs.size(); ++i) {
      const InferRequestedOutput& wanted = request_.outputs[i];
      const int at = finder.Find(wanted.name);
      const std::string field = absl::StrCat("outputs[", i, "]");
      if (at < 0) {
        return InvalidField(field, absl::StrCat(Whose(), " has no output \"",
                                                AbslView(wanted.name), "\""));
      }
      OutputWish& wish = wishes[static_cast<size_t>(at)];
      if (wish != OutputWish::kDrop) {
        return InvalidField(field,
                            absl::StrCat("output \"", AbslView(wanted.name),
                                         "\" is asked for twice"));
      }
      WEIR_RETURN_IF_ERROR(
          CheckTensorParameters(wanted.name, field, wanted.parameters));
      wish = OutputWish::kInline;
      wanted_.push_back(static_cast<size_t>(at));
    }
    return absl::OkStatus();
  }

  void Finish() {
    const Work& work = evaluation_->work();
    if (!work.status().ok()) {
      Fail(WithRequestField(work.status(), places_));
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

  absl::StatusOr<ReplyBuffer> BuildReply(const Work& work) {
    // While it may still be refused: what Prepare shares must be taken.
    WEIR_ASSIGN_OR_RETURN(
        const std::span<InferOutput> outputs,
        call_.arena().TryAllocateSpan<InferOutput>(wanted_.size()));
    for (size_t at = 0; at < wanted_.size(); ++at) {
      const size_t i = wanted_[at];
      const TensorMeta& meta = work.OutputMeta(i);
      new (&outputs[at]) InferOutput{model_->outputs[i].name,
                                     KServeName(meta.dtype),
                                     {meta.dims.data(), meta.dims.size()},
                                     std::nullopt};
    }
    std::string json;
    InferParameter report;
    InferReply reply{model_->name, model_->version, request_.id, {}, outputs};
    if (report_ != ReportWish::kNone) {
      json = ReportJson(work.report(),
                        {.device = model_->program->device().info(),
                         .received = call_.received(),
                         .replied = NowNanos(),
                         .unix_minus_steady_ns = context_->unix_minus_steady_ns,
                         .inline_reads = InlineReads(work.request),
                         .full = report_ == ReportWish::kFull});
      report = {kReportParameter, std::string_view(json)};
      reply.parameters = {&report, 1};
    }
    WEIR_RETURN_IF_ERROR(bytes_->Prepare(CopiedBytes(reply)));
    for (size_t at = 0; at < wanted_.size(); ++at) {
      outputs[at].raw = bytes_->Take(wanted_[at]);
    }
    ReplyBuffer built = BuildInferReply(reply);
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
    if (evaluation_ != nullptr) CallEvaluation::Release(evaluation_);
    model_ = nullptr;
  }

  ServiceContext* const context_;
  ServerCall& call_;
  CallEvaluation* evaluation_;
  InferRequest request_;
  ReplyBuffer reply_;
  std::shared_ptr<const ServedModel> model_;
  ReportWish report_ = ReportWish::kNone;
  TextElements texts_;
  std::optional<OutputBytes> bytes_;  // once it is done
  std::pmr::vector<size_t> places_;   // in the request, of the program's inputs
  std::pmr::vector<size_t> wanted_;   // the program's outputs, as asked for
};

void KserveInferService::Register(MethodTable* table) {
  table->Add("inference.GRPCInferenceService", "ModelInfer", Traffic::kHeavy,
             [this](ServerCall& call) {
               void* room =
                   call.arena().allocate(sizeof(Request), alignof(Request));
               (new (room) Request(context_, call))->Run();
             });
}

}  // namespace weir
