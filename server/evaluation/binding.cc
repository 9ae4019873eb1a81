#include "server/evaluation/binding.h"

#include <numeric>

#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "server/evaluation/request_fields.h"
#include "server/evaluation/value_finder.h"

namespace weir {
namespace {

// What a work has for each input.
constexpr size_t kInputBytes = sizeof(InputSource) + sizeof(HostTensor);

}  // namespace

absl::Status Binding::Bind(const Program& program, const ServedModel* model,
                           RequestTensors& request, WorkRequest* work) {
  WEIR_RETURN_IF_ERROR(BindInputs(program, model, request, work));
  return BindOutputs(program, model, request, work);
}

absl::Status Binding::BindInputs(const Program& program,
                                 const ServedModel* model,
                                 RequestTensors& request, WorkRequest* work) {
  const std::vector<ValueDecl>& declared = program.inputs();
  const size_t given = request.input_count();
  const ValueDecl* const missing = FindMissing(
      declared, given, [&](size_t i) { return request.Input(i).name; });
  if (missing != nullptr) return MissingInput(*missing, OwnerOf(model));
  WEIR_RETURN_IF_ERROR(arena_->Charge(declared.size() * kInputBytes));
  work->inputs.resize(declared.size());
  WEIR_RETURN_IF_ERROR(places_.Begin(declared, given, model));
  for (size_t i = 0; i < given; ++i) {
    WEIR_ASSIGN_OR_RETURN(const size_t index,
                          places_.Place(i, request.Input(i).name));
    WEIR_RETURN_IF_ERROR(
        BindInput(program, model, request, i, index, &work->inputs[index]));
  }
  for (size_t i = 0; i < declared.size(); ++i) {
    if (!places_.given(i)) return MissingInput(declared[i], OwnerOf(model));
  }
  return request.CheckInputs();
}

absl::Status Binding::BindInput(const Program& program,
                                const ServedModel* model,
                                RequestTensors& request, size_t i, size_t index,
                                InputSource* source) {
  const GivenShape given = request.Input(i);
  WEIR_ASSIGN_OR_RETURN(
      const DType dtype,
      request.ReadInput(i, model == nullptr ? program.inputs()[index].dtype
                                            : model->inputs[index].dtype));
  if (model != nullptr) {
    const absl::Status fits =
        request.IsOpen(i) ? CheckOpenInputShape(*model, index, given.shape)
                          : CheckInputShape(*model, index, given.shape);
    if (!fits.ok()) {
      return WithField(Annotate(fits, InputLabel(given.name)),
                       request.ShapeField(i));
    }
    const absl::Status batch = CheckBatch(*model, request.Input(0), given);
    if (!batch.ok()) return WithField(batch, request.ShapeField(i));
  }
  absl::Status status = texts_.Take(dtype, given.shape);
  if (status.ok()) {
    status = request.FillElements(i, dtype, program.InputOnHost(index), source);
  }
  if (status.ok()) return status;
  return WithField(Annotate(status, InputLabel(given.name)),
                   request.ElementsField(i));
}

absl::Status Binding::BindOutputs(const Program& program,
                                  const ServedModel* model,
                                  RequestTensors& request, WorkRequest* work) {
  const std::vector<ValueDecl>& declared = program.outputs();
  const size_t asked = request.output_count();
  WEIR_RETURN_IF_ERROR(
      arena_->Charge(declared.size() * sizeof(OutputWish) +
                     ValueFinder::Bytes(declared.size(), asked)));
  WEIR_ASSIGN_OR_RETURN(wanted_, arena_->TryAllocateSpan<size_t>(
                                     asked == 0 ? declared.size() : asked));
  if (asked == 0) {
    work->outputs.assign(declared.size(), OutputWish::kInline);
    std::iota(wanted_.begin(), wanted_.end(), size_t{0});
    return absl::OkStatus();
  }
  work->outputs.assign(declared.size(), OutputWish::kDrop);
  const ValueFinder finder(declared, asked);
  for (size_t i = 0; i < asked; ++i) {
    const std::string_view name = request.OutputName(i);
    const int at = finder.Find(name);
    if (at < 0) {
      return NoSuch("output", name, NamesOf(declared), model, OutputField(i));
    }
    WEIR_ASSIGN_OR_RETURN(const OutputWish asked_as, request.ReadOutput(i));
    OutputWish& wish = work->outputs[static_cast<size_t>(at)];
    if (wish != OutputWish::kDrop) {
      return InvalidField(
          OutputField(i),
          absl::StrCat("output \"", AbslView(name), "\" is asked for twice"));
    }
    wish = asked_as;
    wanted_[i] = static_cast<size_t>(at);
  }
  return absl::OkStatus();
}

}  // namespace weir
