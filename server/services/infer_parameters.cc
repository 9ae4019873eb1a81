#include "server/services/infer_parameters.h"

#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"

namespace weir {
namespace {

std::string FieldOf(const InferParameter& parameter) {
  return absl::StrCat("parameters.", AbslView(parameter.name));
}

absl::Status Wrong(const InferParameter& parameter, std::string_view rule) {
  return InvalidField(FieldOf(parameter),
                      absl::StrCat("parameter \"", AbslView(parameter.name),
                                   "\" must be ", AbslView(rule)));
}

absl::Status NotOffered(const InferParameter& parameter) {
  return WithField(absl::UnimplementedError(
                       absl::StrCat("parameter \"", AbslView(parameter.name),
                                    "\" is not supported; leave it out")),
                   FieldOf(parameter));
}

absl::Status ReadReportWish(const InferParameter& parameter, ReportWish* wish) {
  const auto* text = std::get_if<std::string_view>(&parameter.value);
  if (text != nullptr && *text == "brief") {
    *wish = ReportWish::kBrief;
  } else if (text != nullptr && *text == "full") {
    *wish = ReportWish::kFull;
  } else {
    return Wrong(parameter, "the string \"brief\" or \"full\"");
  }
  return absl::OkStatus();
}

// An integer in either of the wire's forms, 0 or more.
absl::Status CheckCount(const InferParameter& parameter,
                        std::string_view meaning) {
  if (std::holds_alternative<uint64_t>(parameter.value)) {
    return absl::OkStatus();
  }
  const auto* number = std::get_if<int64_t>(&parameter.value);
  if (number != nullptr && *number >= 0) return absl::OkStatus();
  return Wrong(parameter,
               absl::StrCat("an integer of 0 or more: ", AbslView(meaning),
                            number == nullptr
                                ? "; it was sent as another type"
                                : absl::StrCat("; it was sent as ", *number)));
}

// What clients write that always send a parameter: 0, "" and false.
bool IsNone(const InferParameter& parameter) {
  const auto& value = parameter.value;
  if (const auto* flag = std::get_if<bool>(&value)) return !*flag;
  if (const auto* number = std::get_if<int64_t>(&value)) return *number == 0;
  if (const auto* count = std::get_if<uint64_t>(&value)) return *count == 0;
  const auto* text = std::get_if<std::string_view>(&value);
  return text != nullptr && text->empty();
}

absl::Status CheckSequenceFlag(const InferParameter& parameter) {
  if (!std::holds_alternative<bool>(parameter.value)) {
    return Wrong(parameter, "a bool");
  }
  return IsNone(parameter) ? absl::OkStatus() : NotOffered(parameter);
}

absl::Status CheckSequenceId(const InferParameter& parameter) {
  if (!std::holds_alternative<int64_t>(parameter.value) &&
      !std::holds_alternative<uint64_t>(parameter.value) &&
      !std::holds_alternative<std::string_view>(parameter.value)) {
    return Wrong(parameter, "an integer or a string");
  }
  return IsNone(parameter) ? absl::OkStatus() : NotOffered(parameter);
}

absl::Status CheckReserved(const InferParameter& parameter) {
  // A unary request has one response, which is the final one and not empty,
  // whether it was asked for or not.
  if (parameter.name == "triton_enable_empty_final_response") {
    return std::holds_alternative<bool>(parameter.value)
               ? absl::OkStatus()
               : Wrong(parameter, "a bool");
  }
  return InvalidField(
      FieldOf(parameter),
      absl::StrCat("\"", AbslView(parameter.name),
                   "\" is a reserved name that this server does not know"));
}

absl::Status Read(const InferParameter& parameter, ReportWish* report) {
  const std::string_view name = parameter.name;
  if (name == kReportParameter) return ReadReportWish(parameter, report);
  if (name == "priority") {
    return CheckCount(parameter, "1 is served first, 0 is the default");
  }
  if (name == "timeout") {
    return CheckCount(parameter,
                      "microseconds that the request may wait in the queue");
  }
  if (name == "sequence_id") return CheckSequenceId(parameter);
  if (name == "sequence_start" || name == "sequence_end") {
    return CheckSequenceFlag(parameter);
  }
  if (name.rfind("triton_", 0) == 0) return CheckReserved(parameter);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ReportWish> ReadInferParameters(
    std::span<const InferParameter> parameters) {
  ReportWish report = ReportWish::kNone;
  for (const InferParameter& parameter : parameters) {
    absl::Status status = Read(parameter, &report);
    if (!status.ok()) return status;
  }
  return report;
}

absl::Status CheckTensorParameters(std::string_view tensor,
                                   std::string_view path,
                                   std::span<const InferParameter> parameters) {
  for (const InferParameter& parameter : parameters) {
    const std::string_view name = parameter.name;
    if (name != "classification" && name.rfind("shared_memory_", 0) != 0) {
      continue;
    }
    if (IsNone(parameter)) continue;
    return WithField(
        absl::UnimplementedError(absl::StrCat(
            "tensor \"", AbslView(tensor), "\": parameter \"", AbslView(name),
            "\" is not supported; send and receive the tensor's bytes")),
        absl::StrCat(AbslView(path), ".", FieldOf(parameter)));
  }
  return absl::OkStatus();
}

}  // namespace weir
