#include "server/services/explain.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/clock.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "proto/weir/v1/catalog.pb.h"
#include "server/bytes/arena_ptr.h"
#include "server/evaluation/input_places.h"
#include "server/evaluation/request_fields.h"
#include "server/rpc/typed_method.h"
#include "server/rpc/wire/explain_request.h"
#include "server/services/graph_source.h"
#include "server/services/long_step.h"
#include "server/services/page.h"
#include "server/services/request_checks.h"

namespace weir {
namespace {

void FillSpec(const ValueDecl& value, v1::NamedTensorSpec* spec) {
  spec->set_name(value.name);
  spec->mutable_spec()->set_dtype(static_cast<v1::DataType>(value.dtype));
  for (Dim dim : value.shape.value_or(SymbolicDims())) {
    spec->mutable_spec()->add_shape(dim.known() ? dim.value() : -1);
  }
}

void FillStep(const StepOutline& from, v1::ProgramStep* step) {
  for (const std::string& node : from.nodes) step->add_nodes(node);
  step->set_kernel(from.kernel);
  for (const ValueDecl& output : from.outputs) {
    FillSpec(output, step->add_outputs());
  }
}

// About what a message takes of memory that says it.
constexpr size_t kSpecBytes = 256;
constexpr size_t kStringBytes = 64;

size_t MessageBytes(const ValueDecl& value) {
  const size_t rank = value.shape.has_value() ? value.shape->size() : 0;
  return kSpecBytes + value.name.size() + rank * sizeof(int64_t);
}

size_t MessageBytes(const StepOutline& step) {
  size_t bytes = kSpecBytes + step.kernel.size();
  for (const std::string& node : step.nodes) {
    bytes += kStringBytes + node.size();
  }
  for (const ValueDecl& output : step.outputs) bytes += MessageBytes(output);
  return bytes;
}

// Lives in the call's arena, from the handler's entry to the answer, which
// destroys it. Everything but long steps (long_step.h) runs on the call's I/O
// thread; what other threads find out comes through Resume.
class ExplainCall {
 public:
  static void Handle(ServiceContext* context, ServerCall& call) {
    auto made = MakeInArena<ExplainCall>(&call.arena(), context, call);
    ExplainCall* const self = made.get();
    self->self_ = std::move(made);
    RunStep<&ExplainCall::Read, &ExplainCall::WasRead>(
        call, context->long_steps, ReadingBytes(call), self);
  }

  ExplainCall(ServiceContext* context, ServerCall& call)
      : context_(context), call_(call), places_(&call.arena()) {}

 private:
  void WasRead(absl::Status status) {
    if (!status.ok()) return End(status);
    if (const auto* model = std::get_if<WireModelReference>(&request_.graph)) {
      FindModel(*model);
    } else {
      FindProgram();
    }
  }

  absl::Status Read() {
    WEIR_RETURN_IF_ERROR(
        ParseExplainRequest(call_.request(), &call_.arena(), &request_));
    WEIR_RETURN_IF_ERROR(CheckGraph(request_.graph));
    WEIR_RETURN_IF_ERROR(CheckSpecs(request_.inputs, "spec"));
    // Whether it is a token of this graph is seen when that is compiled.
    WEIR_RETURN_IF_ERROR(
        Page::Read(request_.page_size, "", /*list=*/"").status());
    WEIR_ASSIGN_OR_RETURN(engine_, context_->engines.Find(request_.device));
    return CheckPrecision(request_.precision);
  }

  void FindModel(const WireModelReference& reference) {
    auto model = FindServedModel(context_->models, reference);
    if (!model.ok()) return End(model.status());
    model_ = *std::move(model);
    program_ = model_->program;
    cached_ = true;
    Compiled();
  }

  void FindProgram() {
    search_.emplace(&call_, &engine_->programs(), &context_->long_steps);
    search_->Run(
        request_.graph, request_.inputs,
        [](ProgramRequest::Result result, void* self) {
          static_cast<ExplainCall*>(self)->Found(std::move(result));
        },
        this);
  }

  void Found(ProgramRequest::Result result) {
    status_ = result.program.status();
    if (result.program.ok()) program_ = *std::move(result.program);
    cached_ = result.cached;
    Compiled();
  }

  void Compiled() {
    if (status_.ok()) status_ = call_.StillWanted(NowNanos());
    if (status_.ok()) {
      status_ = CheckPlacement(request_.device, program_->device().info());
    }
    if (!status_.ok()) return End(status_);
    RunStep<&ExplainCall::MakeOutline, &ExplainCall::Outlined>(
        call_, context_->long_steps, program_->outline_work(), this);
  }

  void Outlined(absl::Status status) {
    if (status.ok()) status = call_.StillWanted(NowNanos());
    if (!status.ok()) return End(status);
    if (!shapes_are_closed_ || plan_ != nullptr) return Write();
    plans_ = &context_->engines.Of(*program_).programs();
    plan_wait_ = plans_->MakePlan(
        program_, std::move(tensors_), call_.deadline(),
        [this](ProgramCache::PlanOr plan) {
          status_ = plan.status();
          if (plan.ok()) plan_ = *std::move(plan);
          Resume<&ExplainCall::Planned>();
        },
        call_.peer());
    call_.OnCancel(
        [](ServerCall&, void* self) {
          const ExplainCall& call = *static_cast<ExplainCall*>(self);
          call.plans_->Cancel(call.plan_wait_);
        },
        this);
  }

  void Planned() {
    if (status_.ok()) status_ = call_.StillWanted(NowNanos());
    if (!status_.ok()) return End(places_.WithRequestField(status_));
    Write();
  }

  // With the plan, if there is one already.
  absl::Status MakeOutline() {
    WEIR_RETURN_IF_ERROR(TakeSpecs());
    absl::StatusOr<ProgramOutline> outline = program_->Outline(shapes_);
    if (!outline.ok()) return places_.WithRequestField(outline.status());
    outline_ = *std::move(outline);
    shapes_are_closed_ = CloseShapes();
    if (shapes_are_closed_) plan_ = program_->FindPlan(tensors_);
    return absl::OkStatus();
  }

  absl::Status TakeSpecs() {
    const std::vector<ValueDecl>& declared = program_->inputs();
    WEIR_RETURN_IF_ERROR(call_.Charge(program_->outline_bytes()));
    shapes_.assign(declared.size(), SymbolicShape());
    WEIR_RETURN_IF_ERROR(
        places_.Begin(declared, request_.inputs.size(), model_.get()));
    for (size_t i = 0; i < request_.inputs.size(); ++i) {
      const WireTensor& input = request_.inputs[i];
      WEIR_ASSIGN_OR_RETURN(const size_t index, places_.Place(i, input.name));
      const absl::Status status = TakeSpec(input.spec, index);
      if (!status.ok()) {
        return WithField(
            Annotate(status,
                     absl::StrCat("input \"", AbslView(input.name), "\" ")),
            InputField(i));
      }
    }
    return model_ == nullptr ? absl::OkStatus() : CheckBatches();
  }

  // REQUIRES: each shape fits.
  absl::Status CheckBatches() const {
    GivenShape first;
    for (size_t i = 0; i < request_.inputs.size(); ++i) {
      const WireTensor& input = request_.inputs[i];
      const GivenShape given{
          input.name, {input.spec.shape.data(), input.spec.shape.size()}};
      if (given.shape.empty() || given.shape[0] == -1) continue;
      if (first.shape.empty()) first = given;
      const absl::Status status = CheckBatch(*model_, first, given);
      if (!status.ok()) return WithField(status, InputField(i));
    }
    return absl::OkStatus();
  }

  // Errors continue the input's name.
  absl::Status TakeSpec(const WireTensorSpec& spec, size_t index) {
    const DType dtype = DTypeFromOnnx(spec.dtype).value();
    const DType wanted = program_->inputs()[index].dtype;
    if (dtype != wanted) {
      return absl::InvalidArgumentError(
          absl::StrCat("is ", AbslView(DTypeName(dtype)), " where ",
                       AbslView(DTypeName(wanted)), " is declared"));
    }
    const auto shape =
        absl::MakeConstSpan(spec.shape.data(), spec.shape.size());
    for (int64_t extent : shape) {
      if (extent >= -1) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("has shape ", DimsString(shape), ", in which ", extent,
                       " is no extent; -1 leaves one open"));
    }
    shapes_[index] = ToSymbolic(shape);
    if (model_ == nullptr) return absl::OkStatus();
    return Annotate(CheckOpenInputShape(*model_, index, shape), "has ");
  }

  // Fills tensors_ if a plan can be made without the inputs' elements.
  bool CloseShapes() {
    for (size_t i = 0; i < outline_->inputs.size(); ++i) {
      const ValueDecl& input = outline_->inputs[i];
      std::optional<Dims> dims = ToConcrete(input.shape);
      if (!dims.has_value() || program_->InputOnHost(i)) return false;
      tensors_.push_back({input.dtype, *std::move(dims), nullptr});
    }
    return true;
  }

  template <void (ExplainCall::*kNext)()>
  void Resume() {
    call_.Resume(
        [](ServerCall&, void* self) {
          (static_cast<ExplainCall*>(self)->*kNext)();
        },
        this);
  }

  void Write() {
    RunStep<&ExplainCall::FillResponse, &ExplainCall::End>(
        call_, context_->long_steps, program_->outline_bytes(), this);
  }

  // Made, written and freed here: a page has one entry at least, of any size.
  absl::Status FillResponse() {
    v1::ExplainResponse response;
    response.set_program(program_->id());
    response.set_program_cached(cached_);
    response.set_constant_bytes(program_->constant_bytes());
    response.set_device_uuid(program_->device().info().uuid);
    if (plan_ != nullptr) {
      response.set_arena_bytes(plan_->arena_bytes());
      // A plan knows better than the outline.
      for (size_t i = 0; i < outline_->outputs.size(); ++i) {
        outline_->outputs[i].shape = ToSymbolic(plan_->outputs()[i].meta.dims);
      }
    }
    WEIR_RETURN_IF_ERROR(FillPage(&response));
    DropOutline();
    WEIR_ASSIGN_OR_RETURN(
        reply_, WriteMessage(call_, response, "ask for a smaller page_size"));
    return absl::OkStatus();
  }

  // Nothing is left that takes long to free.
  void DropOutline() {
    outline_.reset();
    std::vector<SymbolicShape>().swap(shapes_);
    std::vector<HostTensor>().swap(tensors_);
  }

  // Answers. What was outlined goes before: it counts as long as it is there,
  // and a large one is freed on no I/O thread, whatever became of the call.
  void End(const absl::Status& status) {
    status_ = WithCallSite(status, request_.graph, &call_.arena());
    const bool made = outline_.has_value() || !shapes_.empty();
    if (!made || program_->outline_bytes() <= kLongStepBytes) return Answer();
    context_->long_steps.PostFirst(call_.peer(), [this] {
      DropOutline();
      Resume<&ExplainCall::Answer>();
    });
  }

  // Ends this object first: with the answer the arena may be gone.
  void Answer() {
    ServerCall& call = call_;
    const absl::Status status = std::move(status_);
    ReplyBuffer reply = std::move(reply_);
    self_.reset();
    if (!status.ok()) return call.Fail(status);
    call.Reply(std::move(reply));
  }

  absl::Status FillPage(v1::ExplainResponse* response) {
    WEIR_ASSIGN_OR_RETURN(
        Page page,
        Page::Read(request_.page_size, request_.page_token, ListName()));
    const auto fill_input = [&](size_t i) {
      return Fill<v1::NamedTensorSpec>(outline_->inputs[i], &FillSpec);
    };
    const auto fill_output = [&](size_t i) {
      return Fill<v1::NamedTensorSpec>(outline_->outputs[i], &FillSpec);
    };
    const auto fill_step = [&](size_t i) {
      if (plan_ == nullptr) {
        return Fill<v1::ProgramStep>(outline_->steps[i], &FillStep);
      }
      return Fill<v1::ProgramStep>(plan_->Step(i), &FillStep);
    };
    const size_t steps =
        plan_ == nullptr ? outline_->steps.size() : plan_->steps();
    WEIR_ASSIGN_OR_RETURN(bool all,
                          FillList('1', outline_->inputs.size(), &page,
                                   response->mutable_inputs(), fill_input));
    if (all) {
      WEIR_ASSIGN_OR_RETURN(all,
                            FillList('2', outline_->outputs.size(), &page,
                                     response->mutable_outputs(), fill_output));
    }
    if (all) {
      WEIR_ASSIGN_OR_RETURN(
          all,
          FillList('3', steps, &page, response->mutable_steps(), fill_step));
    }
    if (!all) response->set_next_page_token(page.next_token());
    return absl::OkStatus();
  }

  // An entry of the page, charged before it is made.
  template <typename Entry, typename From>
  absl::StatusOr<Entry> Fill(const From& from,
                             void (*fill)(const From&, Entry*)) {
    WEIR_RETURN_IF_ERROR(call_.Charge(MessageBytes(from)));
    Entry entry;
    fill(from, &entry);
    return entry;
  }

  // Adds what belongs to the page of entries that come at `place`; false if it
  // is full.
  template <typename Entries, typename EntryOf>
  static absl::StatusOr<bool> FillList(char place, size_t count, Page* page,
                                       Entries* entries,
                                       const EntryOf& entry_of) {
    for (size_t i = 0; i < count; ++i) {
      const std::string key =
          absl::StrCat(std::string(1, place), absl::Dec(i, absl::kZeroPad8));
      if (page->Had(key)) continue;
      auto entry = entry_of(i);
      // What there is no room for may have it on a page of its own.
      if (absl::IsResourceExhausted(entry.status()) && page->EndHere()) {
        return false;
      }
      WEIR_RETURN_IF_ERROR(entry.status());
      if (!AddToPage(key, *std::move(entry), page, entries)) return false;
    }
    return true;
  }

  // The same for the same steps: another plan may have others.
  std::string ListName() const {
    std::string name = absl::StrCat("explain ", program_->id(),
                                    plan_ == nullptr ? "" : " planned");
    for (const ValueDecl& input : outline_->inputs) {
      absl::StrAppend(&name, ";");
      for (Dim dim : input.shape.value_or(SymbolicDims())) {
        absl::StrAppend(&name, dim.known() ? dim.value() : -1, ",");
      }
    }
    return name;
  }

  ServiceContext* const context_;
  ServerCall& call_;
  ArenaPtr<ExplainCall> self_;  // until the answer
  ExplainRequestView request_;
  Engine* engine_ = nullptr;                  // whose programs are asked
  std::shared_ptr<const ServedModel> model_;  // null: a program of its own
  std::shared_ptr<const Program> program_;
  std::shared_ptr<const Plan> plan_;
  std::optional<ProgramRequest> search_;
  std::vector<SymbolicShape> shapes_;  // given, of the program's inputs
  std::optional<ProgramOutline> outline_;
  bool shapes_are_closed_ = false;
  std::vector<HostTensor> tensors_;
  InputPlaces places_;
  ProgramCache* plans_ = nullptr;  // where plan_wait_ is
  ProgramCache::WaitId plan_wait_ = 0;
  absl::Status status_;
  ReplyBuffer reply_;
  bool cached_ = false;
};

}  // namespace

void Explain(ServiceContext* context, ServerCall& call) {
  ExplainCall::Handle(context, call);
}

}  // namespace weir
