#include "client/cli/output_printer.h"

#include <iostream>
#include <utility>

#include "client/cli/tensor_argument.h"

namespace weir::client {

OutputPrinter::OutputPrinter(bool json,
                             std::map<std::string, std::string> files)
    : json_(json), files_(std::move(files)) {}

absl::Status OutputPrinter::Add(const std::string& name, int dtype,
                                const std::vector<int64_t>& shape,
                                const std::string& bytes) {
  if (!json_) {
    std::cout << name << " = " << Summary(dtype, shape, bytes) << "\n";
  }
  const auto file = files_.find(name);
  if (file == files_.end()) {
    if (json_) outputs_.push_back(TensorJson(name, dtype, shape, bytes));
    return absl::OkStatus();
  }
  absl::Status written = WriteTensor(file->second, dtype, shape, bytes);
  if (!written.ok()) return written;
  if (json_) {
    Json output = SpecJson(name, dtype, shape);
    output["file"] = file->second;
    outputs_.push_back(std::move(output));
  } else {
    std::cout << "  written to " << file->second << "\n";
  }
  return absl::OkStatus();
}

}  // namespace weir::client
