#include "server/services/request_checks.h"

#include <algorithm>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "proto/weir/v1/evaluator.pb.h"

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
    const std::string label =
        absl::StrCat("input \"", AbslView(inputs[i].name), "\": ");
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

const ValueDecl* FindMissing(
    absl::Span<const ValueDecl> declared, size_t given,
    absl::FunctionRef<std::string_view(size_t i)> name_of) {
  if (given >= declared.size()) return nullptr;
  absl::flat_hash_set<absl::string_view> names;
  for (size_t i = 0; i < given; ++i) names.insert(AbslView(name_of(i)));
  // Among the first so many, one at least.
  const auto missing = std::find_if(
      declared.begin(), declared.end(),
      [&](const ValueDecl& input) { return !names.contains(input.name); });
  return missing == declared.end() ? nullptr : &*missing;
}

absl::Status MissingInput(const ValueDecl& input, std::string_view whose) {
  return InvalidField("inputs", absl::StrCat("input \"", input.name, "\" of ",
                                             AbslView(whose), " is missing"));
}

absl::Status TextElements::Take(DType dtype, std::span<const int64_t> shape) {
  if (dtype != DType::kString) return absl::OkStatus();
  WEIR_ASSIGN_OR_RETURN(const int64_t elements,
                        NumElements({shape.data(), shape.size()}));
  if (elements > kMaxTextElements - taken_) {
    const std::string total = absl::StrCat(static_cast<uint64_t>(elements) +
                                           static_cast<uint64_t>(taken_));
    return WithReason(
        absl::ResourceExhaustedError(
            absl::StrCat("has ", elements,
                         " BYTES elements, with those of the inputs "
                         "before it ",
                         total, "; all inputs of a request may have ",
                         kMaxTextElements, ": send less in one request")),
        "TOO_MANY_TEXT_ELEMENTS",
        {{"elements", total}, {"limit", absl::StrCat(kMaxTextElements)}});
  }
  taken_ += elements;
  return absl::OkStatus();
}

std::string InputField(size_t i) { return absl::StrCat("inputs[", i, "]"); }

absl::Status WithRequestField(const absl::Status& status,
                              std::span<const size_t> places) {
  const std::string field = Field(status);
  absl::string_view number = field;
  size_t i = 0;
  if (!absl::ConsumePrefix(&number, "inputs[") ||
      !absl::ConsumeSuffix(&number, "]") || !absl::SimpleAtoi(number, &i) ||
      i >= places.size()) {
    return status;
  }
  return WithField(status,
                   places[i] == kNotGiven ? "inputs" : InputField(places[i]));
}

}  // namespace weir
