#include "server/services/evaluate_calls.h"

#include <google/protobuf/message_lite.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "proto/weir/v1/command.pb.h"
#include "proto/weir/v1/evaluation.pb.h"
#include "server/evaluation/input_bytes.h"
#include "server/evaluation/request_fields.h"
#include "server/rpc/typed_method.h"
#include "server/rpc/wire/commands.h"
#include "server/rpc/wire/evaluate_request.h"
#include "server/rpc/wire/evaluate_response.h"
#include "server/services/evaluation_call.h"
#include "server/services/failure_proto.h"
#include "server/services/graph_source.h"
#include "server/services/request_checks.h"
#include "server/services/space_header.h"
#include "server/services/space_numbers.h"
#include "server/services/whole_spec.h"
#include "server/services/wire_shape.h"

namespace weir {
namespace {

// What this server offers in no space yet.
absl::Status NotOffered(std::string field, std::string what) {
  return WithField(
      absl::UnimplementedError(absl::StrCat(
          what, " is not offered by this server; leave ", field, " unset")),
      field);
}

// What a request says of an input that is kept, by its place in the program.
struct SaidShape {
  size_t input;
  Dims dims;  // kUnknownExtent fits everywhere
};

// Whether every tensor of a shape of which so much is known fits `said`.
bool IsSurely(const SymbolicShape& known, std::span<const int64_t> said) {
  if (!known.has_value() || known->size() != said.size()) return false;
  for (size_t i = 0; i < said.size(); ++i) {
    const Dim& dim = (*known)[i];
    if (said[i] >= 0 && !(dim.known() && dim.value() == said[i])) return false;
  }
  return true;
}

// What was not known of such inputs when the request was bound. `model` may be
// null.
absl::Status CheckKeptInputs(const std::vector<SaidShape>& said,
                             const ServedModel* model, const Plan& plan) {
  const auto dims = [&](size_t input) -> const Dims& {
    return plan.inputs()[input].meta.dims;
  };
  for (const auto& [input, wanted] : said) {
    if (FitsShape(wanted, dims(input))) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("a tensor that is read turned out to have the shape ",
                     DimsString(dims(input)), ", and not ", DimsString(wanted),
                     " as the request's value.spec says"));
  }
  if (model == nullptr) return absl::OkStatus();
  const auto given = [&](size_t i) {
    return GivenShape{model->inputs[i].name, dims(i)};
  };
  for (size_t i = 0; i < model->inputs.size(); ++i) {
    absl::Status fits = CheckInputShape(*model, i, dims(i));
    if (fits.ok()) fits = CheckBatch(*model, given(0), given(i));
    if (!fits.ok()) return Annotate(fits, InputLabel(model->inputs[i].name));
  }
  return absl::OkStatus();
}

// An evaluation as an EvaluateRequest asks for it, or what is read as one.
class EvaluateCall : public EvaluationCall {
 public:
  EvaluateCall(ServiceContext* context, ServerCall& call)
      : EvaluationCall(context, call) {}

 private:
  virtual absl::Status Parse(EvaluateRequestView* request) {
    return ParseEvaluateRequest(call().request(), &call().arena(), request);
  }

  absl::Status Read() override {
    WEIR_RETURN_IF_ERROR(Parse(&request_));
    call().set_label(request_.label);
    WEIR_RETURN_IF_ERROR(CheckGraph(request_.graph));
    WEIR_ASSIGN_OR_RETURN(space_, FindSpace(context(), call()));
    WEIR_RETURN_IF_ERROR(
        space_ ? numbers_.Find(*space_, &call().arena(), &request_)
               : CheckWithoutSpace());
    WEIR_RETURN_IF_ERROR(CheckSpecs(request_.inputs, "value.spec"));
    if (numbers_.context() != nullptr) {
      in_context_ = numbers_.context()->settings();
    }
    return CheckSettings();
  }

  absl::Status CheckSettings() {
    if (!v1::EvalMode_IsValid(request_.mode)) {
      return InvalidField(
          "mode", absl::StrCat(request_.mode,
                               " is not an evaluation mode; there are "
                               "EVAL_MODE_DEFERRED, EVAL_MODE_EAGER, "
                               "EVAL_MODE_SYNC_CPU and EVAL_MODE_SYNC_FULL"));
    }
    if (request_.mode == v1::EVAL_MODE_DEFERRED) {
      WEIR_RETURN_IF_ERROR(CheckDeferred());
    }
    WEIR_RETURN_IF_ERROR(FindEngine());
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

  absl::Status CheckDeferred() const {
    if (context().spaces == nullptr) {
      return NotOffered("mode", "DEFERRED evaluation");
    }
    if (request_.context != 0 || ReadsInline()) return absl::OkStatus();
    return InvalidField(
        "context",
        "a deferred work waits in a context of the caller's: make one "
        "(context_create) and name it, or ask for another mode");
  }

  bool ReadsInline() const {
    return request_.outputs.empty() ||
           std::any_of(request_.outputs.begin(), request_.outputs.end(),
                       [](const WireOutputRequest& output) {
                         return std::holds_alternative<std::monostate>(
                             output.destination);
                       });
  }

  absl::Status CheckWithoutSpace() const {
    if (request_.context != 0) return NeedsSpace("context", "a context");
    if (!request_.after.empty()) return NeedsSpace("after", "a point");
    if (!request_.signal.empty()) return NeedsSpace("signal", "a point");
    if (request_.work != 0) return NeedsSpace("work", "a work's number");
    for (size_t i = 0; i < request_.inputs.size(); ++i) {
      const WireTensor& input = request_.inputs[i];
      if (!std::holds_alternative<WireTensorNumber>(input.source)) continue;
      return Annotate(NeedsSpace(absl::StrCat(InputField(i), ".value.tensor"),
                                 "a tensor that is kept"),
                      InputLabel(input.name));
    }
    return absl::OkStatus();
  }

  // What needs a space, of which the call has none.
  absl::Status NeedsSpace(std::string field, std::string_view what) const {
    const std::string needs = absl::StrCat(AbslView(what), " needs a space");
    return WithField(
        context().spaces == nullptr
            ? absl::UnimplementedError(absl::StrCat(
                  needs, ", which this server does not offer; leave ", field,
                  " unset"))
            : absl::InvalidArgumentError(absl::StrCat(
                  needs,
                  ": open one (weir.v1.Spaces.Open), and send its token "
                  "as ",
                  AbslView(kSpaceHeader))),
        field);
  }

  // Where it is to run; what is not run there after all, Start finds.
  absl::Status FindEngine() {
    Engine* const of_context =
        numbers_.context() == nullptr ? nullptr : &numbers_.context()->engine();
    engine_ = of_context != nullptr ? of_context : numbers_.first_engine();
    if (engine_ == nullptr) engine_ = FirstEngineWritten();
    if (engine_ == nullptr || !request_.device.empty()) {
      WEIR_ASSIGN_OR_RETURN(engine_, context().engines.Find(request_.device));
    }
    return CheckContext(*engine_);
  }

  // Of the tensors that are written into; null if there are none.
  Engine* FirstEngineWritten() {
    for (size_t i = 0; i < request_.outputs.size(); ++i) {
      const std::optional<KeptOutput> output = KeptAs(i);
      if (!space_ || !output.has_value() || !output->into) continue;
      const auto kept = space_->tensors().Find(output->number);
      if (kept.ok()) return &(*kept)->engine();
    }
    return nullptr;
  }

  absl::Status CheckContext(const Engine& runs_on) const {
    if (numbers_.context() == nullptr ||
        &numbers_.context()->engine() == &runs_on) {
      return absl::OkStatus();
    }
    return WithField(
        WithReason(
            absl::FailedPreconditionError(absl::StrCat(
                "context ", request_.context, " is on ",
                DeviceName(numbers_.context()->engine().device().info()),
                ", and this runs on ",
                DeviceName(const_cast<Engine&>(runs_on).device().info()))),
            "WRONG_DEVICE"),
        "context");
  }

  absl::Status CheckStreamPolicy(const WireStreamPolicy& policy) const {
    if (!v1::StreamPolicy::Kind_IsValid(policy.kind)) {
      return InvalidField(
          "stream_policy.kind",
          absl::StrCat(policy.kind, " is not a kind of stream policy"));
    }
    if (policy.kind != v1::StreamPolicy::KIND_UNSPECIFIED &&
        policy.kind != v1::StreamPolicy::KIND_POOLED) {
      return NotOffered("stream_policy.kind", "a stream of one's own");
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
    if (space_) search_->KeepCallSites();
    search_->Run(
        request_.graph, request_.inputs,
        [](ProgramRequest::Result result, void* self) {
          static_cast<EvaluateCall*>(self)->Found(std::move(result));
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
    const KeptContext* const kept = numbers_.context();
    const Settings settings = {
        .mode = request_.mode != 0 ? static_cast<EvalMode>(request_.mode)
                                   : in_context_.mode,
        .seed = request_.rng_seed,
        .cpu_threads = in_context_.cpu_threads,
        .label = request_.label};
    if (!space_) return Evaluate(std::move(program), settings);
    Engine& runs_on = context().engines.Of(*program);
    const absl::Status fits = CheckContext(runs_on);
    if (!fits.ok()) return Fail(fits);
    EvaluateIn({.space = space_.shared(),
                .engine = &runs_on,
                .context = kept == nullptr ? nullptr : kept->context(),
                .queue = request_.on_conflict == v1::CONTEXT_CONFLICT_QUEUE ||
                         (request_.on_conflict == 0 && in_context_.queue)},
               std::move(program), settings);
  }

  // In a space: where its outputs go, what it waits for and moves.
  absl::Status WasBoundTo(std::span<const size_t> outputs) override {
    if (!space_) return absl::OkStatus();
    SpaceWork& work = *space_work();
    if (model() == nullptr) WEIR_RETURN_IF_ERROR(work.HoldProgram());
    for (size_t i = 0; i < request_.outputs.size(); ++i) {
      const std::optional<KeptOutput> output = KeptAs(i);
      if (!output.has_value()) continue;
      Engine& engine = context().engines.Of(program());
      const absl::Status kept =
          output->into
              ? work.WriteInto(outputs[i], output->number, engine, KeptShape())
              : work.Keep(outputs[i], output->number, engine, KeptShape());
      if (!kept.ok()) {
        return WithField(
            Annotate(kept,
                     absl::StrCat("output \"",
                                  AbslView(request_.outputs[i].name), "\": ")),
            absl::StrCat(OutputField(i), output->into ? ".into" : ".tensor"));
      }
    }
    if (request_.work != 0) {
      const absl::Status numbered = work.SetNumber(request_.work);
      if (!numbered.ok()) return WithField(numbered, "work");
    }
    if (search_.has_value()) work.request().call_sites = search_->call_sites();
    // What has a check of its own, or may draw on a model's weights, runs
    // alone.
    const bool is_checked =
        !said_.empty() || (model() != nullptr && reads_kept_);
    if (work.request().mode == EvalMode::kDeferred && !is_checked &&
        search_.has_value()) {
      work.request().graph = search_->SmallGraph();
    }
    if (is_checked) {
      work.set_plan_check(
          [model = shared_model(), said = std::move(said_)](const Plan& plan) {
            return CheckKeptInputs(said, model.get(), plan);
          });
    }
    work.request().after.assign(numbers_.after().begin(),
                                numbers_.after().end());
    work.request().signal.assign(numbers_.signal().begin(),
                                 numbers_.signal().end());
    return absl::OkStatus();
  }

  // Of the outputs that it keeps, if that is known whatever its program says.
  virtual SymbolicShape KeptShape() const { return std::nullopt; }

  struct KeptOutput {
    uint64_t number = 0;
    bool into = false;  // of a tensor that is there
  };
  // Empty: the output is wanted inline.
  std::optional<KeptOutput> KeptAs(size_t i) const {
    if (request_.outputs.empty()) return std::nullopt;
    const auto& destination = request_.outputs[i].destination;
    if (const auto* kept = std::get_if<WireTensorNumber>(&destination)) {
      return KeptOutput{kept->number, /*into=*/false};
    }
    if (const auto* into = std::get_if<WireTensorInto>(&destination)) {
      return KeptOutput{into->number, /*into=*/true};
    }
    return std::nullopt;
  }

  // -- Its tensors ------------------------------------------------------------

  size_t input_count() const override { return request_.inputs.size(); }

  GivenShape Input(size_t i) const override {
    const WireTensor& input = request_.inputs[i];
    return {input.name, {input.spec.shape.data(), input.spec.shape.size()}};
  }

  bool IsOpen(size_t i) const override {
    return std::holds_alternative<WireTensorNumber>(request_.inputs[i].source);
  }

  absl::StatusOr<DType> ReadInput(size_t i, DType) override {
    const WireTensor& input = request_.inputs[i];
    if (std::holds_alternative<WireTensorNumber>(input.source)) {
      return numbers_.input(i)->dtype();
    }
    if (std::holds_alternative<ByteView>(input.source)) {
      return DTypeFromOnnx(input.spec.dtype).value();
    }
    const absl::Status status =
        std::holds_alternative<std::monostate>(input.source)
            ? absl::InvalidArgumentError("it has no bytes (value.raw)")
            : absl::UnimplementedError(
                  "shared regions are not offered by this server; send the "
                  "bytes in value.raw");
    return WithField(Annotate(status, InputLabel(input.name)), InputField(i));
  }

  absl::Status FillElements(size_t i, DType dtype, bool on_host,
                            InputSource* source) override {
    const WireTensor& input = request_.inputs[i];
    if (const auto* raw = std::get_if<ByteView>(&input.source)) {
      return FillInput(dtype, input.spec.shape, *raw, on_host, &call().arena(),
                       source);
    }
    reads_kept_ = true;
    if (!IsSurely(numbers_.input(i)->shape(), input.spec.shape)) {
      const size_t place =
          static_cast<size_t>(source - space_work()->request().inputs.data());
      said_.push_back(
          {place, Dims(input.spec.shape.begin(), input.spec.shape.end())});
    }
    return space_work()->Read(source, numbers_.input(i),
                              context().engines.Of(program()));
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
    if (std::holds_alternative<WireRegion>(destination)) {
      return NotOffered(absl::StrCat(OutputField(i), ".region"),
                        "a shared region");
    }
    if (space_) return OutputWish::kKeep;
    return NeedsSpace(
        absl::StrCat(OutputField(i), KeptAs(i)->into ? ".into" : ".tensor"),
        "an output that is kept");
  }

  // -- Its answer -------------------------------------------------------------

  absl::Status InItsWords(const absl::Status& error) const override {
    return WithCallSite(error, request_.graph, &call().arena());
  }

  void Describe(absl::Status* error) const override {
    v1::SyncReport report;
    FillReport(this->report(), Frame(/*full=*/true), &report);
    error->SetPayload(kReportDetail, absl::Cord(report.SerializeAsString()));
  }

  v1::ResolvedSettings Resolved() const {
    v1::ResolvedSettings settings;
    settings.set_device_uuid(program().device().info().uuid);
    settings.set_stream_id(report().stream_id);
    settings.set_mode(static_cast<v1::EvalMode>(work().mode()));
    settings.set_precision(v1::PRECISION_STRICT);
    settings.set_program(program().id());
    settings.set_program_cached(program_cached_);
    settings.set_rng_seed(work().seed());
    if (const std::optional<RngState>& from = work().drawn_from()) {
      settings.mutable_drawn_from()->set_seed(from->seed);
      settings.mutable_drawn_from()->set_position(from->position);
    }
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
    FillReport(this->report(), Frame(request_.report == v1::REPORT_LEVEL_FULL),
               &report);
    EvaluateReply reply;
    reply.work = request_.work;
    WEIR_ASSIGN_OR_RETURN(reply.report, Serialized(report));
    if (request_.report_settings) {
      WEIR_ASSIGN_OR_RETURN(reply.settings, Serialized(Resolved()));
    }
    // While it may still be refused: what Prepare shares must be taken.
    WEIR_ASSIGN_OR_RETURN(
        const std::span<EvaluateOutput> outputs,
        call().arena().TryAllocateSpan<EvaluateOutput>(wanted.size()));
    for (size_t at = 0; at < wanted.size(); ++at) {
      EvaluateOutput& output = *new (&outputs[at]) EvaluateOutput();
      output.name = program().outputs()[wanted[at]].name;
      output.spec = OutputSpec(wanted[at]);
    }
    reply.outputs = outputs;
    WEIR_RETURN_IF_ERROR(bytes.Prepare(CopiedBytes(reply), *this));
    for (size_t at = 0; at < wanted.size(); ++at) {
      if (const std::optional<KeptOutput> kept = KeptAs(at)) {
        outputs[at].value = WireTensorNumber{kept->number};
      } else {
        outputs[at].value = bytes.Take(wanted[at]);
      }
    }
    return BuildEvaluateReply(reply);
  }

  // As far as it is known: in a space the work may not even have a plan.
  WireTensorSpec OutputSpec(size_t output) {
    WireTensorSpec spec;
    if (plan() != nullptr) {
      const TensorMeta& meta = plan()->outputs()[output].meta;
      spec.dtype = static_cast<int32_t>(meta.dtype);
      spec.shape = {meta.dims.data(), meta.dims.size()};
      return spec;
    }
    const ValueDecl& declared = program().outputs()[output];
    if (!declared.shape.has_value()) return spec;
    spec.dtype = static_cast<int32_t>(declared.dtype);
    spec.shape = WireShape(*declared.shape, &call().arena());
    return spec;
  }

  EvaluateRequestView request_;
  SpaceUse space_;  // none: the call is stateless
  SpaceNumbers numbers_;
  ContextSettings in_context_;   // as they are when the request is read
  std::vector<SaidShape> said_;  // of inputs that are kept, and not known yet
  bool reads_kept_ = false;
  Engine* engine_ = nullptr;  // whose programs are asked
  std::optional<ProgramRequest> search_;
  bool program_cached_ = false;
};

// The graph of both: y = x.
constexpr std::string_view kIn = "x";
constexpr std::string_view kOut = "y";

std::string_view IdentityGraph() {
  static const std::string* const graph = [] {
    v1::GraphDefinition definition;
    definition.add_inputs()->set_name(std::string(kIn));
    v1::Node* const node = definition.add_nodes();
    node->set_op(std::string("Identity"));
    node->add_inputs(std::string(kIn));
    node->add_outputs(std::string(kOut));
    definition.add_outputs(std::string(kOut));
    return new std::string(definition.SerializeAsString());
  }();
  return *graph;
}

// A request for y = x; both in the arena.
struct IdentityRequest {
  WireTensor* x;
  WireOutputRequest* y;
};
IdentityRequest MakeIdentity(CallArena* arena, EvaluateRequestView* request) {
  static const BytePiece piece = std::as_bytes(std::span(IdentityGraph()));
  request->graph = WireGraphDefinition{ByteView({&piece, 1}, piece.size())};
  WireTensor* const x = new (&arena->AllocateSpan<WireTensor>(1)[0]) WireTensor;
  x->name = kIn;
  request->inputs = {x, 1};
  auto* const y =
      new (&arena->AllocateSpan<WireOutputRequest>(1)[0]) WireOutputRequest;
  y->name = kOut;
  request->outputs = {y, 1};
  return {x, y};
}

// Copies, in the arena.
ByteView InArena(BytePiece bytes, CallArena* arena) {
  const std::span<std::byte> copy =
      arena->AllocateSpan<std::byte>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), copy.begin());
  const std::span<BytePiece> piece = arena->AllocateSpan<BytePiece>(1);
  piece[0] = copy;
  return {piece, copy.size()};
}
absl::StatusOr<std::string_view> InArena(std::string_view text,
                                         CallArena* arena) {
  WEIR_ASSIGN_OR_RETURN(const std::span<char> copy,
                        arena->TryAllocateSpan<char>(text.size()));
  std::copy(text.begin(), text.end(), copy.begin());
  return std::string_view(copy.data(), copy.size());
}

void SetDestination(uint64_t number, bool into, WireOutputRequest* output) {
  if (into) {
    output->destination = WireTensorInto{number};
  } else {
    output->destination = WireTensorNumber{number};
  }
}

// `error` without what the message has no such thing for: the input, the output
// and their fields, of which there is one.
absl::Status OfTheTensor(const absl::Status& error, std::string_view field) {
  if (Field(error).empty()) return error;
  std::string_view message(error.message().data(), error.message().size());
  for (const std::string_view label : {std::string_view("input \"x\": "),
                                       std::string_view("output \"y\": ")}) {
    if (message.substr(0, label.size()) == label) {
      message.remove_prefix(label.size());
    }
  }
  absl::Status told(error.code(), AbslView(message));
  error.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    told.SetPayload(url, payload);
  });
  return WithField(std::move(told), field);
}

// What makes, or writes, the tensor of its message's field `tensor`. Of calls
// in a space: whoever runs commands has asked for one.
class TensorWriteCall : public EvaluateCall {
 public:
  using EvaluateCall::EvaluateCall;

 protected:
  // Of its message: what it is made of, and whether it has a field, but for
  // those that it has under the names that an evaluation has.
  virtual std::string_view source_field() const = 0;
  virtual bool HasField(std::string_view) const { return false; }

 private:
  absl::Status InItsWords(const absl::Status& error) const final {
    const std::string field = Field(error);
    if (field == "context" || field == "device" || field == "mode" ||
        field == "report" || field == "work" || HasField(field)) {
      return error;
    }
    const bool of_output = field.rfind("outputs", 0) == 0;
    return OfTheTensor(error, of_output ? "tensor" : source_field());
  }
};

class TensorPutCall : public TensorWriteCall {
 public:
  using TensorWriteCall::TensorWriteCall;

 private:
  std::string_view source_field() const override { return "value"; }
  absl::Status Parse(EvaluateRequestView* request) override {
    TensorPutView put;
    WEIR_RETURN_IF_ERROR(
        ParseTensorPut(call().request(), &call().arena(), &put));
    const auto [x, y] = MakeIdentity(&call().arena(), request);
    *x = put.value;
    x->name = kIn;
    SetDestination(put.tensor, put.into_existing, y);
    request->context = put.context;
    request->device = put.device;
    request->mode = put.mode;
    request->work = put.work;
    request->report = put.report;
    return absl::OkStatus();
  }
};

class StagedPutCall final : public TensorPutCall {
 public:
  using TensorPutCall::TensorPutCall;

 private:
  v1::Transfers::Transport transport() const override {
    return v1::Transfers::TRANSPORT_STAGED;
  }
};

class TensorGetCall final : public EvaluateCall {
 public:
  using EvaluateCall::EvaluateCall;

 private:
  absl::Status InItsWords(const absl::Status& error) const override {
    return Field(error) == "context" ? error : OfTheTensor(error, "tensor");
  }
  absl::Status Parse(EvaluateRequestView* request) override {
    const auto [x, y] = MakeIdentity(&call().arena(), request);
    v1::TensorGet get;
    WEIR_RETURN_IF_ERROR(CheckSmallCommand(call()));
    WEIR_RETURN_IF_ERROR(ParseMessage(call().request(), &get));
    x->source = WireTensorNumber{get.tensor()};
    request->context = get.context();
    return absl::OkStatus();
  }
};

class TensorCopyCall final : public TensorWriteCall {
 public:
  using TensorWriteCall::TensorWriteCall;

 private:
  v1::Transfers::Transport transport() const override {
    return v1::Transfers::TRANSPORT_DEVICE;
  }
  std::string_view source_field() const override { return "source"; }
  absl::Status Parse(EvaluateRequestView* request) override {
    const auto [x, y] = MakeIdentity(&call().arena(), request);
    v1::TensorCopy copy;
    WEIR_RETURN_IF_ERROR(ParseMessage(call().request(), &copy));
    x->source = WireTensorNumber{copy.source()};
    SetDestination(copy.tensor(), copy.into_existing(), y);
    request->context = copy.context();
    WEIR_ASSIGN_OR_RETURN(request->device,
                          InArena(copy.device(), &call().arena()));
    request->mode = copy.mode();
    request->report = copy.report();
    request->work = copy.work();
    return absl::OkStatus();
  }
};

// The graph of a fill: y = x, a scalar, in the shape s.
constexpr std::string_view kShape = "s";

std::string_view ExpandGraph() {
  static const std::string* const graph = [] {
    v1::GraphDefinition definition;
    definition.add_inputs()->set_name(std::string(kIn));
    definition.add_inputs()->set_name(std::string(kShape));
    v1::Node* const node = definition.add_nodes();
    node->set_op(std::string("Expand"));
    node->add_inputs(std::string(kIn));
    node->add_inputs(std::string(kShape));
    node->add_outputs(std::string(kOut));
    definition.add_outputs(std::string(kOut));
    return new std::string(definition.SerializeAsString());
  }();
  return *graph;
}

class TensorFillCall final : public TensorWriteCall {
 public:
  using TensorWriteCall::TensorWriteCall;

 private:
  v1::Transfers::Transport transport() const override {
    return v1::Transfers::TRANSPORT_DEVICE;
  }
  std::string_view source_field() const override { return "spec"; }
  bool HasField(std::string_view field) const override {
    return field == "tensor" || field == "value" || field.rfind("spec", 0) == 0;
  }
  absl::Status Parse(EvaluateRequestView* request) override {
    v1::TensorFill fill;
    WEIR_RETURN_IF_ERROR(CheckSmallCommand(call()));
    WEIR_RETURN_IF_ERROR(ParseMessage(call().request(), &fill));
    WEIR_ASSIGN_OR_RETURN(const TensorSpec spec, SpecOf(fill));
    shape_ = ToSymbolic(spec.dims);
    const size_t size = SizeOf(spec.dtype);
    if (!fill.value().empty() && fill.value().size() != size) {
      return InvalidField(
          "value",
          absl::StrCat("one element of ", AbslView(DTypeName(spec.dtype)),
                       " has ", size, " bytes, and not ", fill.value().size()));
    }
    std::string value = fill.value();
    value.resize(size);
    CallArena& arena = call().arena();
    static const BytePiece piece = std::as_bytes(std::span(ExpandGraph()));
    request->graph = WireGraphDefinition{ByteView({&piece, 1}, piece.size())};
    const std::span<WireTensor> inputs = arena.AllocateSpan<WireTensor>(2);
    auto* const x = new (&inputs[0]) WireTensor;
    x->name = kIn;
    x->spec.dtype = static_cast<int32_t>(spec.dtype);
    x->source = InArena(std::as_bytes(std::span(value)), &arena);
    auto* const shape = new (&inputs[1]) WireTensor;
    shape->name = kShape;
    shape->spec.dtype = static_cast<int32_t>(DType::kInt64);
    const std::span<int64_t> rank = arena.AllocateSpan<int64_t>(1);
    rank[0] = static_cast<int64_t>(spec.dims.size());
    shape->spec.shape = rank;
    shape->source = InArena(
        std::as_bytes(std::span(spec.dims.data(), spec.dims.size())), &arena);
    request->inputs = inputs;
    auto* const y =
        new (&arena.AllocateSpan<WireOutputRequest>(1)[0]) WireOutputRequest;
    y->name = kOut;
    SetDestination(fill.tensor(), fill.into_existing(), y);
    request->outputs = {y, 1};
    request->context = fill.context();
    request->mode = fill.mode();
    request->report = fill.report();
    request->work = fill.work();
    WEIR_ASSIGN_OR_RETURN(request->device, InArena(fill.device(), &arena));
    return absl::OkStatus();
  }

  // Which the program does not say: it takes any shape.
  SymbolicShape KeptShape() const override { return shape_; }

  // Of what is filled.
  absl::StatusOr<TensorSpec> SpecOf(const v1::TensorFill& fill) {
    if (!fill.into_existing() || fill.has_spec()) {
      return ReadWholeSpec(fill.spec());
    }
    WEIR_ASSIGN_OR_RETURN(const SpaceUse space,
                          RequireSpace(context(), call()));
    const auto kept = space->tensors().Find(fill.tensor());
    if (!kept.ok()) return WithField(kept.status(), "tensor");
    const std::optional<Dims> dims = ToConcrete((*kept)->shape());
    if (!dims.has_value()) {
      return WithField(absl::FailedPreconditionError(
                           "the shape of the tensor is not known yet; wait for "
                           "it, or give spec"),
                       "spec");
    }
    return TensorSpec{.dtype = (*kept)->dtype(), .dims = *dims, .layout = ""};
  }

  SymbolicShape shape_;
};

template <typename T>
MethodHandler HandlerOf(ServiceContext* context) {
  return
      [context](ServerCall& call) { EvaluationCall::Handle<T>(context, call); };
}

}  // namespace

MethodHandler EvaluateHandler(ServiceContext* context) {
  return HandlerOf<EvaluateCall>(context);
}

MethodHandler TensorPutHandler(ServiceContext* context) {
  return HandlerOf<TensorPutCall>(context);
}

MethodHandler TensorGetHandler(ServiceContext* context) {
  return HandlerOf<TensorGetCall>(context);
}

MethodHandler TensorCopyHandler(ServiceContext* context) {
  return HandlerOf<TensorCopyCall>(context);
}

MethodHandler StagedPutHandler(ServiceContext* context) {
  return HandlerOf<StagedPutCall>(context);
}

MethodHandler TensorFillHandler(ServiceContext* context) {
  return HandlerOf<TensorFillCall>(context);
}

}  // namespace weir
