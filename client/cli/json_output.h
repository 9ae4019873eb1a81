// What --json prints: one JSON document for programs. Messages are in
// protobuf's JSON form with their own field names, so that integers of 64 bits
// are strings; elements of tensors are numbers. Pure; any thread.
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace weir::client {

// Members stay in the order in which they were added.
using Json = nlohmann::ordered_json;

Json MessageJson(const google::protobuf::Message& message);

// {"name", "dtype", "shape", "values"}: the elements in row-major order, NaN
// and infinities as "NaN", "Infinity" and "-Infinity", text that is not UTF-8
// as {"base64": ...}. Of bytes that are cut short, the whole elements.
Json TensorJson(const std::string& name, int dtype,
                const std::vector<int64_t>& shape, const std::string& bytes);
// The same without "values".
Json SpecJson(const std::string& name, int dtype,
              const std::vector<int64_t>& shape);

// On standard output, with a line end.
void PrintJson(const Json& json);

// {"error": {"code": "RESOURCE_EXHAUSTED", "message", "reason", "metadata",
// "fields", "retry_after_seconds"}}: what the server did not say is not there.
Json ErrorJson(const absl::Status& status);
// {"error": {"code": "USAGE", "message", "help"}}: a command line that is
// wrong, and the command that says how to write it.
Json UsageJson(const std::string& what, const std::string& help);
// On standard error, in one line.
void PrintErrorJson(const Json& json);

}  // namespace weir::client
