#include "client/cli/made_inputs.h"

#include <algorithm>
#include <limits>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/name_list.h"
#include "proto/weir/v1/tensor.pb.h"

namespace weir::client {
namespace {

using Metadata = inference::ModelMetadataResponse;

// Protobuf's, for all inputs of a request together, and something for names.
constexpr size_t kMaxBytes =
    std::numeric_limits<int32_t>::max() - (size_t{1} << 20);

bool IsReal(int dtype) {
  return dtype == v1::DATA_TYPE_FLOAT || dtype == v1::DATA_TYPE_DOUBLE ||
         dtype == v1::DATA_TYPE_FLOAT16 || dtype == v1::DATA_TYPE_BFLOAT16;
}

absl::Status CheckName(const Metadata& model, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& input : model.inputs()) {
    if (input.name() == name) return absl::OkStatus();
    names.push_back(input.name());
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the model has no input '", name, "', but ", NameList(names)));
}

absl::StatusOr<std::vector<int64_t>> ShapeOf(
    const Metadata::TensorMetadata& input, const NamedShapes& shapes,
    int64_t free) {
  std::vector<int64_t> shape(input.shape().begin(), input.shape().end());
  const auto said = shapes.find(input.name());
  bool fits = said == shapes.end() || said->second.size() == shape.size();
  for (size_t i = 0; i < shape.size() && fits; ++i) {
    if (said != shapes.end()) {
      fits = shape[i] < 0 || shape[i] == said->second[i];
      shape[i] = said->second[i];
    } else if (shape[i] < 0) {
      shape[i] = free;
    }
  }
  if (fits) return shape;
  return absl::InvalidArgumentError(
      absl::StrCat("--shape ", input.name(), "=",
                   absl::StrJoin(said->second, "x"), ": the model's shape is [",
                   absl::StrJoin(input.shape(), ","), "], where -1 is open"));
}

absl::StatusOr<TensorArgument> Make(const Metadata::TensorMetadata& input,
                                    std::vector<int64_t> shape,
                                    size_t room_bytes) {
  TensorArgument made;
  made.name = input.name();
  made.dtype = DtypeFromKserve(input.datatype());
  made.shape = std::move(shape);
  const size_t element_bytes = ElementBytes(made.dtype);
  if (element_bytes == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("input '", made.name, "' is of type ", input.datatype(),
                     ", which cannot be made up: give it with --input"));
  }
  size_t elements = 1;
  size_t bytes = 0;
  for (int64_t extent : made.shape) {
    if (__builtin_mul_overflow(elements, static_cast<size_t>(extent),
                               &elements)) {
      elements = kMaxBytes + 1;
    }
  }
  if (__builtin_mul_overflow(elements, element_bytes, &bytes) ||
      bytes > room_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "input '", made.name, "' ", Summary(made.dtype, made.shape, "", 0),
        " is more than a message can carry"));
  }
  // Not std::uniform_real_distribution, whose numbers are each library's own.
  std::mt19937 random;
  made.bytes.reserve(bytes);
  for (size_t i = 0; i < elements; ++i) {
    const double value =
        IsReal(made.dtype) ? static_cast<double>(random() >> 8) / (1 << 24) : 1;
    AppendElement(made.dtype, value, &made.bytes);
  }
  return made;
}

}  // namespace

absl::StatusOr<NamedShapes> ParseShapes(const std::vector<std::string>& texts) {
  NamedShapes shapes;
  for (const std::string& text : texts) {
    const size_t equals = text.rfind('=');
    std::vector<int64_t> dims;
    if (equals == std::string::npos || equals == 0 ||
        !ParseDims(text.substr(equals + 1), &dims)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--shape: '", text, "' is not NAME=DIMS, as x=8x3"));
    }
    std::string name = text.substr(0, equals);
    if (shapes.count(name) > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--shape: '", name, "' is given twice"));
    }
    shapes.emplace(std::move(name), std::move(dims));
  }
  return shapes;
}

absl::StatusOr<MadeInputs> MakeInputs(const Metadata& model,
                                      std::vector<TensorArgument> given,
                                      const NamedShapes& shapes, int64_t free) {
  std::map<std::string, TensorArgument> by_name;
  size_t room = kMaxBytes;
  for (TensorArgument& input : given) {
    if (absl::Status known = CheckName(model, input.name); !known.ok()) {
      return known;
    }
    room -= std::min(room, input.bytes.size());
    std::string name = input.name;
    by_name[std::move(name)] = std::move(input);
  }
  for (const auto& [name, shape] : shapes) {
    if (absl::Status known = CheckName(model, name); !known.ok()) return known;
    if (by_name.count(name) > 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--shape: input '", name, "' has the shape that --input says"));
    }
  }
  MadeInputs made;
  for (const auto& input : model.inputs()) {
    if (const auto at = by_name.find(input.name()); at != by_name.end()) {
      made.inputs.push_back(std::move(at->second));
      continue;
    }
    auto shape = ShapeOf(input, shapes, free);
    if (!shape.ok()) return shape.status();
    for (int64_t extent : input.shape()) {
      made.chose_extents |= extent < 0 && shapes.count(input.name()) == 0;
    }
    auto tensor = Make(input, *std::move(shape), room);
    if (!tensor.ok()) return tensor.status();
    room -= tensor->bytes.size();
    made.notes.push_back(absl::StrCat(
        tensor->name, ": ", Summary(tensor->dtype, tensor->shape, "", 0),
        IsReal(tensor->dtype) ? " of random numbers from 0 to 1" : " of ones"));
    made.inputs.push_back(*std::move(tensor));
  }
  return made;
}

}  // namespace weir::client
