#include "server/services/space_numbers.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/clock.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/tensor/shape.h"
#include "server/evaluation/request_fields.h"
#include "server/services/wire_shape.h"

namespace weir {
namespace {

bool MayBe(std::span<const int64_t> given, const SymbolicDims& known) {
  if (given.size() != known.size()) return false;
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i] >= 0 && Dim(given[i]).SurelyDiffers(known[i])) return false;
  }
  return true;
}

absl::Status FillSpec(const KeptTensor& tensor, CallArena* arena,
                      WireTensorSpec* spec) {
  const SymbolicShape shape = tensor.shape();
  const auto dtype = static_cast<int32_t>(tensor.dtype());
  if (spec->dtype == 0) {
    if (!shape.has_value()) {
      return absl::FailedPreconditionError(
          "its shape is not known yet; give value.spec, with -1 for extents "
          "that are not known");
    }
    spec->dtype = dtype;
    spec->shape = WireShape(*shape, arena);
    return absl::OkStatus();
  }
  if (spec->dtype != dtype) {
    return absl::FailedPreconditionError(
        absl::StrCat("its elements are ", AbslView(DTypeName(tensor.dtype())),
                     ", not what value.spec says; leave that out"));
  }
  if (shape.has_value() && !MayBe(spec->shape, *shape)) {
    return absl::FailedPreconditionError(
        absl::StrCat("its shape is not ",
                     DimsString({spec->shape.data(), spec->shape.size()}),
                     ", as value.spec says; leave that out"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Point> FindPoint(Space& space, const WirePoint& point) {
  WEIR_ASSIGN_OR_RETURN(const auto kept,
                        space.timelines().Find(point.timeline));
  return Point{HoldTimeline(kept), point.value};
}

std::string EntryField(const char* list, size_t i) {
  return absl::StrCat(list, "[", i, "].timeline");
}

}  // namespace

absl::Status SpaceNumbers::Find(Space& space, CallArena* arena,
                                EvaluateRequestView* request) {
  inputs_.resize(request->inputs.size());
  for (size_t i = 0; i < request->inputs.size(); ++i) {
    WireTensor& input = request->inputs[i];
    const auto* number = std::get_if<WireTensorNumber>(&input.source);
    if (number == nullptr) continue;
    auto tensor = space.tensors().Find(number->number);
    absl::Status status = tensor.status();
    if (status.ok()) {
      wanted_.push_back((*tensor)->Hold());
      status = FillSpec(**tensor, arena, &input.spec);
      inputs_[i] = *std::move(tensor);
    }
    if (!status.ok()) {
      return WithField(Annotate(status, InputLabel(input.name)),
                       absl::StrCat(InputField(i), ".value.tensor"));
    }
  }
  if (request->context != 0) {
    auto context = space.FindContext(request->context, NowNanos());
    if (!context.ok()) return WithField(context.status(), "context");
    context_ = *std::move(context);
  }
  for (size_t i = 0; i < request->after.size(); ++i) {
    auto point = FindPoint(space, request->after[i]);
    if (!point.ok()) return WithField(point.status(), EntryField("after", i));
    after_.push_back(*std::move(point));
  }
  for (size_t i = 0; i < request->signal.size(); ++i) {
    auto point = FindPoint(space, request->signal[i]);
    if (!point.ok()) return WithField(point.status(), EntryField("signal", i));
    signal_.push_back({std::move(point->timeline), point->value});
  }
  return absl::OkStatus();
}

Engine* SpaceNumbers::first_engine() const {
  const auto kept =
      std::find_if(inputs_.begin(), inputs_.end(),
                   [](const auto& input) { return input != nullptr; });
  return kept == inputs_.end() ? nullptr : &(*kept)->engine();
}

}  // namespace weir
