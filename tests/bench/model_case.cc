#include "tests/bench/model_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace weir::bench {
namespace {

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

absl::StatusOr<CaseTensor> ReadTensor(const std::string& folder,
                                      const nlohmann::json& json) {
  CaseTensor tensor;
  tensor.name = json.at("name");
  tensor.datatype = json.at("datatype");
  tensor.dtype = tensor.datatype == "FP32"   ? DType::kFloat
                 : tensor.datatype == "FP16" ? DType::kFloat16
                                             : DType::kInt64;
  for (const auto& size : json.at("shape")) tensor.dims.push_back(size);
  WEIR_ASSIGN_OR_RETURN(
      tensor.bytes,
      ReadFile(absl::StrCat(folder, "/", json.at("file").get<std::string>())));
  WEIR_ASSIGN_OR_RETURN(const int64_t bytes,
                        ByteSize(tensor.dtype, tensor.dims));
  if (tensor.bytes.size() != static_cast<size_t>(bytes)) {
    return absl::DataLossError(absl::StrCat(folder, ": ", tensor.name, " has ",
                                            tensor.bytes.size(), " bytes"));
  }
  return tensor;
}

const CaseTensor* Find(const std::vector<CaseTensor>& tensors,
                       std::string_view name) {
  for (const CaseTensor& tensor : tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

std::vector<float> ToFloats(DType dtype, std::string_view bytes) {
  std::vector<float> values(bytes.size() / SizeOf(dtype));
  if (dtype == DType::kFloat) {
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  std::vector<Float16> halves(values.size());
  std::memcpy(halves.data(), bytes.data(), bytes.size());
  std::copy(halves.begin(), halves.end(), values.begin());
  return values;
}

}  // namespace

const CaseTensor* ModelCase::FindInput(std::string_view name) const {
  return Find(inputs, name);
}

const CaseTensor* ModelCase::FindReference(std::string_view name) const {
  return Find(references, name);
}

absl::StatusOr<ModelCase> ReadModelCase(const std::string& folder) {
  WEIR_ASSIGN_OR_RETURN(const std::string text,
                        ReadFile(folder + "/case.json"));
  const auto json = nlohmann::json::parse(text);
  ModelCase made;
  for (const auto& tensor : json.at("inputs")) {
    WEIR_ASSIGN_OR_RETURN(made.inputs.emplace_back(),
                          ReadTensor(folder, tensor));
  }
  for (const auto& tensor : json.at("outputs")) {
    WEIR_ASSIGN_OR_RETURN(made.references.emplace_back(),
                          ReadTensor(folder, tensor));
  }
  return made;
}

double RelativeError(const CaseTensor& reference, DType dtype, const Dims& dims,
                     std::string_view bytes) {
  constexpr double kWrong = std::numeric_limits<double>::infinity();
  const std::vector<float> wanted = ToFloats(reference.dtype, reference.bytes);
  if (dims != reference.dims || bytes.size() != wanted.size() * SizeOf(dtype)) {
    return kWrong;
  }
  const std::vector<float> got = ToFloats(dtype, bytes);
  double sum = 0, squares = 0, worst = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!std::isfinite(got[i])) return kWrong;
    const auto value = static_cast<double>(wanted[i]);
    sum += value;
    squares += value * value;
    worst = std::max(worst, std::abs(static_cast<double>(got[i]) - value));
  }
  const auto n = static_cast<double>(wanted.size());
  return worst / std::sqrt(squares / n - sum / n * (sum / n));
}

}  // namespace weir::bench
