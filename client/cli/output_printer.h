// The outputs of a reply as eval and infer tell them: a line each, or with
// --json a member each of a list; those that have a file are written to it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/cli/json_output.h"

namespace weir::client {

class OutputPrinter {
 public:
  // `files` by the outputs that they are for.
  OutputPrinter(bool json, std::map<std::string, std::string> files);

  // Writes the output's file, if it has one, and prints its line. In JSON an
  // output with a file has "file" in place of "values".
  absl::Status Add(const std::string& name, int dtype,
                   const std::vector<int64_t>& shape, const std::string& bytes);

  Json TakeJson() { return std::move(outputs_); }

 private:
  const bool json_;
  const std::map<std::string, std::string> files_;
  Json outputs_ = Json::array();
};

}  // namespace weir::client
