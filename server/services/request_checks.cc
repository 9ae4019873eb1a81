#include "server/services/request_checks.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "proto/weir/v1/evaluator.pb.h"
#include "server/engines.h"
#include "server/evaluation/request_fields.h"
#include "server/models/definition_import.h"

namespace weir {

namespace {

bool IsSound(const WireTensorSpec& spec) {
  return spec.sample_shapes.empty() && DTypeFromOnnx(spec.dtype).has_value() &&
         spec.shape.size() <= static_cast<size_t>(kMaxRank);
}

// What is wrong with the spec of an input, at `path`. REQUIRES: not IsSound.
absl::Status BadSpec(const WireTensor& input, const std::string& path) {
  const std::string label = InputLabel(input.name);
  if (!input.spec.sample_shapes.empty()) {
    return WithField(
        absl::UnimplementedError(label + "ragged batches are not supported"),
        path + ".sample_shapes");
  }
  const auto dtype = ImportDType(input.spec.dtype, path + ".dtype");
  if (!dtype.ok()) return Annotate(dtype.status(), label);
  return InvalidField(path + ".shape",
                      absl::StrCat(label, "rank ", input.spec.shape.size(),
                                   " is more than ", kMaxRank, " dimensions"));
}

}  // namespace

absl::Status CheckPlacement(std::string_view wanted, const DeviceInfo& device) {
  if (wanted.empty() || IsNamed(device, wanted)) return absl::OkStatus();
  return WithField(
      absl::UnimplementedError(absl::StrCat(
          "this runs on ", DeviceName(device), " and not on \"",
          std::string(wanted),
          "\": a graph with text runs on the CPU, a served model where its "
          "repository has it; leave the device unset")),
      "device");
}

absl::Status CheckPrecision(int32_t precision) {
  if (precision == v1::PRECISION_UNSPECIFIED ||
      precision == v1::PRECISION_STRICT) {
    return absl::OkStatus();
  }
  if (!v1::Precision_IsValid(precision)) {
    return InvalidField("precision",
                        absl::StrCat(precision,
                                     " is not a precision; this server "
                                     "computes in PRECISION_STRICT alone"));
  }
  const std::string& name =
      v1::Precision_Name(static_cast<v1::Precision>(precision));
  return WithField(
      WithReason(absl::UnimplementedError(absl::StrCat(
                     "this server computes in PRECISION_STRICT alone and not "
                     "in ",
                     name, "; leave the precision unset")),
                 "PRECISION_NOT_ALLOWED",
                 {{"precision", name}, {"allowed", "PRECISION_STRICT"}}),
      "precision");
}

absl::Status CheckSpecs(std::span<const WireTensor> inputs,
                        std::string_view spec) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (IsSound(inputs[i].spec)) continue;
    return BadSpec(inputs[i], absl::StrCat(InputField(i), ".", AbslView(spec)));
  }
  return absl::OkStatus();
}

}  // namespace weir
