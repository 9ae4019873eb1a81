#include "server/evaluation/binding.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "server/evaluation/request_fields.h"
#include "server/evaluation/value_finder.h"
#include "server/models/name_list.h"

namespace weir {
namespace {

// Whose inputs and outputs they are.
std::string Owner(const ServedModel* model) {
  return model == nullptr ? "the graph"
                          : absl::StrCat("model \"", model->name, "\"");
}

// INVALID_ARGUMENT: none of what is declared has that name. `kind`: "input".
absl::Status NoSuch(std::string_view kind, std::string_view name,
                    const std::vector<ValueDecl>& declared,
                    const ServedModel* model, std::string_view field) {
  NameList names;
  for (const ValueDecl& each : declared) names.Add(each.name);
  return InvalidField(
      field, absl::StrCat(Owner(model), " has no ", AbslView(kind), " \"",
                          AbslView(name), "\", but ", names.Text()));
}

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
  if (missing != nullptr) return MissingInput(*missing, Owner(model));
  work->inputs.resize(declared.size());
  places_.assign(declared.size(), kNotGiven);
  const ValueFinder finder(declared, given);
  for (size_t i = 0; i < given; ++i) {
    const std::string_view name = request.Input(i).name;
    const int at = finder.Find(name);
    if (at < 0) {
      return NoSuch("input", name, declared, model, InputField(i));
    }
    const size_t index = static_cast<size_t>(at);
    if (places_[index] != kNotGiven) {
      return InvalidField(
          InputField(i),
          absl::StrCat("input \"", AbslView(name), "\" is given twice"));
    }
    places_[index] = i;
    WEIR_RETURN_IF_ERROR(
        BindInput(program, model, request, i, index, &work->inputs[index]));
  }
  for (size_t i = 0; i < declared.size(); ++i) {
    if (places_[i] == kNotGiven) {
      return MissingInput(declared[i], Owner(model));
    }
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
    const absl::Status fits = CheckInputShape(*model, index, given.shape);
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
  if (asked == 0) {
    work->outputs.assign(declared.size(), OutputWish::kInline);
    for (size_t i = 0; i < declared.size(); ++i) wanted_.push_back(i);
    return absl::OkStatus();
  }
  work->outputs.assign(declared.size(), OutputWish::kDrop);
  const ValueFinder finder(declared, asked);
  for (size_t i = 0; i < asked; ++i) {
    const std::string_view name = request.OutputName(i);
    const int at = finder.Find(name);
    if (at < 0) {
      return NoSuch("output", name, declared, model, OutputField(i));
    }
    WEIR_ASSIGN_OR_RETURN(const OutputWish asked_as, request.ReadOutput(i));
    OutputWish& wish = work->outputs[static_cast<size_t>(at)];
    if (wish != OutputWish::kDrop) {
      return InvalidField(
          OutputField(i),
          absl::StrCat("output \"", AbslView(name), "\" is asked for twice"));
    }
    wish = asked_as;
    wanted_.push_back(static_cast<size_t>(at));
  }
  return absl::OkStatus();
}

absl::Status Binding::WithRequestField(const absl::Status& status) const {
  return weir::WithRequestField(status, places_);
}

}  // namespace weir
