#include "server/services/request_checks.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "proto/weir/v1/evaluator.pb.h"
#include "server/evaluation/request_fields.h"

namespace weir {

namespace {

bool Names(std::string_view name, const DeviceInfo& device) {
  return name == device.uuid || name == DeviceName(device);
}

}  // namespace

absl::StatusOr<Engine*> FindEngine(const ServiceContext& context,
                                   std::string_view device) {
  Engine& engine = context.engine;
  Engine* const host = context.host_engine;
  if (device.empty() || Names(device, engine.device().info())) return &engine;
  std::string names = DeviceName(engine.device().info());
  if (host != nullptr) {
    if (Names(device, host->device().info())) return host;
    absl::StrAppend(&names, " and ", DeviceName(host->device().info()));
  }
  return WithField(
      absl::NotFoundError(absl::StrCat("no device \"", std::string(device),
                                       "\"; this server has ", names)),
      "device");
}

absl::Status CheckPlacement(std::string_view wanted, const DeviceInfo& device) {
  if (wanted.empty() || Names(wanted, device)) return absl::OkStatus();
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
                        absl::StrCat(precision, " is not a precision"));
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
    const std::string path = absl::StrCat(InputField(i), ".", AbslView(spec));
    const std::string label = InputLabel(inputs[i].name);
    if (!inputs[i].spec.sample_shapes.empty()) {
      return WithField(
          absl::UnimplementedError(label + "ragged batches are not supported"),
          path + ".sample_shapes");
    }
    const auto dtype = ImportDType(inputs[i].spec.dtype, path + ".dtype");
    if (!dtype.ok()) return Annotate(dtype.status(), label);
    const size_t rank = inputs[i].spec.shape.size();
    if (rank > static_cast<size_t>(kMaxRank)) {
      return InvalidField(path + ".shape",
                          absl::StrCat(label, "rank ", rank, " is more than ",
                                       kMaxRank, " dimensions"));
    }
  }
  return absl::OkStatus();
}

}  // namespace weir
