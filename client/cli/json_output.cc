#include "client/cli/json_output.h"

#include <google/protobuf/util/json_util.h>

#include <iostream>
#include <utility>

#include "absl/strings/escaping.h"
#include "client/cli/plain_text.h"
#include "client/cli/tensor_argument.h"
#include "client/cpp/status_details.h"
#include "proto/weir/v1/tensor.pb.h"

namespace weir::client {
namespace {

Json ElementJson(int dtype, const std::string& text) {
  if (dtype == v1::DATA_TYPE_STRING) {
    if (IsUtf8(text)) return text;
    return {{"base64", absl::Base64Escape(text)}};
  }
  if (dtype == v1::DATA_TYPE_BOOL) return text != "0";
  if (text == "nan") return "NaN";
  if (text == "inf") return "Infinity";
  if (text == "-inf") return "-Infinity";
  if (text == "-0") return -0.0;  // read as an integer it has no sign
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace

Json MessageJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  const auto status =
      google::protobuf::util::MessageToJsonString(message, &text, options);
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!status.ok() || json.is_discarded()) {
    return {{"unprintable", status.ToString()}};
  }
  return json;
}

Json SpecJson(const std::string& name, int dtype,
              const std::vector<int64_t>& shape) {
  return {{"name", name}, {"dtype", DtypeName(dtype)}, {"shape", shape}};
}

Json TensorJson(const std::string& name, int dtype,
                const std::vector<int64_t>& shape, const std::string& bytes) {
  Json json = SpecJson(name, dtype, shape);
  Json& values = json["values"] = Json::array();
  for (const std::string& text : ElementTexts(dtype, bytes)) {
    values.push_back(ElementJson(dtype, text));
  }
  return json;
}

void PrintJson(const Json& json) {
  std::cout << json.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
}

Json ErrorJson(const absl::Status& status) {
  const ErrorDetails details = DetailsOf(status);
  Json error = {{"code", absl::StatusCodeToString(status.code())},
                {"message", std::string(status.message())}};
  if (!details.reason.empty()) error["reason"] = details.reason;
  if (!details.metadata.empty()) error["metadata"] = details.metadata;
  for (const FieldViolation& violation : details.field_violations) {
    error["fields"].push_back(violation.field);
  }
  if (details.retry_after.has_value()) {
    error["retry_after_seconds"] = absl::ToDoubleSeconds(*details.retry_after);
  }
  return {{"error", std::move(error)}};
}

Json UsageJson(const std::string& what, const std::string& help) {
  return {{"error", {{"code", "USAGE"}, {"message", what}, {"help", help}}}};
}

void PrintErrorJson(const Json& json) {
  std::cerr << json.dump(-1, ' ', false, Json::error_handler_t::replace)
            << "\n";
}

}  // namespace weir::client
