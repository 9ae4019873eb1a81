#include "client/cli/tensor_argument.h"

#include <spng.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/weir/v1/tensor.pb.h"

namespace weir::client {
namespace {

struct Type {
  int number;
  const char* name;
  const char* kserve;
  size_t size;
};

constexpr Type kTypes[] = {{v1::DATA_TYPE_FLOAT, "float", "FP32", 4},
                           {v1::DATA_TYPE_DOUBLE, "double", "FP64", 8},
                           {v1::DATA_TYPE_UINT8, "uint8", "UINT8", 1},
                           {v1::DATA_TYPE_INT8, "int8", "INT8", 1},
                           {v1::DATA_TYPE_UINT16, "uint16", "UINT16", 2},
                           {v1::DATA_TYPE_INT16, "int16", "INT16", 2},
                           {v1::DATA_TYPE_UINT32, "uint32", "UINT32", 4},
                           {v1::DATA_TYPE_INT32, "int32", "INT32", 4},
                           {v1::DATA_TYPE_UINT64, "uint64", "UINT64", 8},
                           {v1::DATA_TYPE_INT64, "int64", "INT64", 8},
                           {v1::DATA_TYPE_BOOL, "bool", "BOOL", 1},
                           {v1::DATA_TYPE_FLOAT16, "float16", "FP16", 2},
                           {v1::DATA_TYPE_BFLOAT16, "bfloat16", "BF16", 2},
                           {v1::DATA_TYPE_STRING, "string", "BYTES", 0}};

const Type* FindType(int number) {
  for (const Type& type : kTypes) {
    if (type.number == number) return &type;
  }
  return nullptr;
}

const Type* FindType(const std::string& name) {
  for (const Type& type : kTypes) {
    if (name == type.name || name == type.kserve) return &type;
  }
  return nullptr;
}

// "float, double, ... or KServe's FP32, FP64, ...".
std::string TypeNames() {
  std::string names;
  std::string kserve;
  for (const Type& type : kTypes) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", type.name);
    absl::StrAppend(&kserve, kserve.empty() ? "" : ", ", type.kserve);
  }
  return absl::StrCat(names, ", or KServe's ", kserve);
}

absl::Status Invalid(const std::string& text, std::string why) {
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text, "': ", why,
      "; use NAME=@FILE, NAME=@FILE:DTYPE:DIMS or NAME=DTYPE:DIMS:V,V,..."));
}

// "2x3" or "2,3"; "" or "scalar" is rank 0.
bool ParseDims(const std::string& text, std::vector<int64_t>* dims) {
  if (text.empty() || text == "scalar") return true;
  for (absl::string_view part : absl::StrSplit(text, absl::ByAnyChar("x,"))) {
    int64_t extent = 0;
    if (!absl::SimpleAtoi(part, &extent) || extent < 0) return false;
    dims->push_back(extent);
  }
  return true;
}

template <typename T>
void Append(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
bool AppendInteger(const std::string& text, std::string* out) {
  T value{};
  int64_t wide = 0;
  if constexpr (sizeof(T) < 4) {
    if (!absl::SimpleAtoi(text, &wide)) return false;
    value = static_cast<T>(wide);
    if (static_cast<int64_t>(value) != wide) return false;
  } else {
    if (!absl::SimpleAtoi(text, &value)) return false;
  }
  Append(out, value);
  return true;
}

bool AppendValue(const Type& type, const std::string& text, std::string* out) {
  double real = 0;
  switch (type.number) {
    case v1::DATA_TYPE_FLOAT:
      if (!absl::SimpleAtod(text, &real)) return false;
      Append(out, static_cast<float>(real));
      return true;
    case v1::DATA_TYPE_DOUBLE:
      if (!absl::SimpleAtod(text, &real)) return false;
      Append(out, real);
      return true;
    case v1::DATA_TYPE_UINT8:
      return AppendInteger<uint8_t>(text, out);
    case v1::DATA_TYPE_INT8:
      return AppendInteger<int8_t>(text, out);
    case v1::DATA_TYPE_UINT16:
      return AppendInteger<uint16_t>(text, out);
    case v1::DATA_TYPE_INT16:
      return AppendInteger<int16_t>(text, out);
    case v1::DATA_TYPE_UINT32:
      return AppendInteger<uint32_t>(text, out);
    case v1::DATA_TYPE_INT32:
      return AppendInteger<int32_t>(text, out);
    case v1::DATA_TYPE_UINT64:
      return AppendInteger<uint64_t>(text, out);
    case v1::DATA_TYPE_INT64:
      return AppendInteger<int64_t>(text, out);
    case v1::DATA_TYPE_BOOL:
      if (text != "0" && text != "1" && text != "true" && text != "false") {
        return false;
      }
      Append(out, static_cast<uint8_t>(text == "1" || text == "true"));
      return true;
    case v1::DATA_TYPE_STRING:
      Append(out, static_cast<uint32_t>(text.size()));
      *out += text;
      return true;
    default:
      return false;  // half types have no text form here
  }
}

absl::StatusOr<TensorArgument> ParseFile(const std::string& text,
                                         TensorArgument tensor,
                                         const std::string& value) {
  std::vector<std::string> parts = absl::StrSplit(value.substr(1), ':');
  const Type* type = nullptr;
  if (parts.size() >= 3 && (type = FindType(parts[parts.size() - 2])) &&
      ParseDims(parts.back(), &tensor.shape)) {
    parts.resize(parts.size() - 2);
  } else {
    type = nullptr;
    tensor.shape.clear();
  }
  auto bytes = ReadFile(absl::StrJoin(parts, ":"));
  if (!bytes.ok()) {
    return absl::Status(
        bytes.status().code(),
        absl::StrCat("'", text, "': ", bytes.status().message()));
  }
  tensor.bytes = *std::move(bytes);
  if (type == nullptr) {
    tensor.dtype = v1::DATA_TYPE_UINT8;
    tensor.shape = {static_cast<int64_t>(tensor.bytes.size())};
  } else {
    tensor.dtype = type->number;
  }
  return tensor;
}

double ElementAsDouble(const Type& type, const char* at) {
  auto read = [at](auto value) {
    std::memcpy(&value, at, sizeof(value));
    return static_cast<double>(value);
  };
  switch (type.number) {
    case v1::DATA_TYPE_FLOAT:
      return read(float{});
    case v1::DATA_TYPE_DOUBLE:
      return read(double{});
    case v1::DATA_TYPE_UINT8:
      return read(uint8_t{});
    case v1::DATA_TYPE_INT8:
      return read(int8_t{});
    case v1::DATA_TYPE_UINT16:
      return read(uint16_t{});
    case v1::DATA_TYPE_INT16:
      return read(int16_t{});
    case v1::DATA_TYPE_UINT32:
      return read(uint32_t{});
    case v1::DATA_TYPE_INT32:
      return read(int32_t{});
    case v1::DATA_TYPE_UINT64:
      return read(uint64_t{});
    case v1::DATA_TYPE_INT64:
      return read(int64_t{});
    case v1::DATA_TYPE_BOOL:
      return read(uint8_t{});
    case v1::DATA_TYPE_BFLOAT16: {
      uint16_t half = 0;
      std::memcpy(&half, at, sizeof(half));
      const uint32_t bits = static_cast<uint32_t>(half) << 16;
      float value = 0;
      std::memcpy(&value, &bits, sizeof(value));
      return value;
    }
    default:
      return 0;
  }
}

absl::Status WriteFile(const std::string& path, std::string_view bytes) {
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (file.flush()) return absl::OkStatus();
  return absl::ErrnoToStatus(errno != 0 ? errno : EIO,
                             absl::StrCat("cannot write ", path));
}

absl::Status WritePng(const std::string& path, int dtype,
                      const std::vector<int64_t>& shape,
                      const std::string& bytes) {
  if (dtype != v1::DATA_TYPE_UINT8 || shape.size() != 3 ||
      (shape[2] != 1 && shape[2] != 3)) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": a PNG is made of a uint8 tensor [H,W,3] or [H,W,1], not of ",
        Summary(dtype, shape, bytes, 0)));
  }
  std::unique_ptr<spng_ctx, void (*)(spng_ctx*)> png(
      spng_ctx_new(SPNG_CTX_ENCODER), spng_ctx_free);
  spng_set_option(png.get(), SPNG_ENCODE_TO_BUFFER, 1);
  spng_ihdr header = {};
  header.height = static_cast<uint32_t>(shape[0]);
  header.width = static_cast<uint32_t>(shape[1]);
  header.bit_depth = 8;
  header.color_type =
      shape[2] == 3 ? SPNG_COLOR_TYPE_TRUECOLOR : SPNG_COLOR_TYPE_GRAYSCALE;
  spng_set_ihdr(png.get(), &header);
  if (const int error = spng_encode_image(png.get(), bytes.data(), bytes.size(),
                                          SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE)) {
    return absl::InternalError(absl::StrCat(path, ": ", spng_strerror(error)));
  }
  size_t size = 0;
  int error = 0;
  void* const encoded = spng_get_png_buffer(png.get(), &size, &error);
  if (encoded == nullptr) return absl::InternalError(spng_strerror(error));
  const absl::Status written =
      WriteFile(path, {static_cast<const char*>(encoded), size});
  std::free(encoded);
  return written;
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  // Of an empty file there is nothing to insert, which << would call a failure.
  const bool empty =
      file && file.peek() == std::ifstream::traits_type::eof() && !file.bad();
  if (!empty && (!file || !(bytes << file.rdbuf()))) {
    return absl::NotFoundError(
        absl::StrCat("cannot read ", path, ": ", std::strerror(errno)));
  }
  return std::move(bytes).str();
}

absl::StatusOr<TensorArgument> ParseTensorArgument(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return Invalid(text, "there is no NAME=");
  }
  TensorArgument tensor;
  tensor.name = text.substr(0, equals);
  const std::string value = text.substr(equals + 1);
  if (!value.empty() && value[0] == '@') return ParseFile(text, tensor, value);
  const std::vector<std::string> parts =
      absl::StrSplit(value, absl::MaxSplits(':', 2));
  if (parts.size() != 3) return Invalid(text, "there are not three parts");
  const Type* type = FindType(parts[0]);
  if (type == nullptr) {
    return Invalid(text, absl::StrCat("'", parts[0],
                                      "' is no element type: ", TypeNames()));
  }
  if (!ParseDims(parts[1], &tensor.shape)) {
    return Invalid(text, absl::StrCat("'", parts[1], "' are no dimensions"));
  }
  tensor.dtype = type->number;
  if (parts[2].empty()) return tensor;
  for (const std::string& one :
       std::vector<std::string>(absl::StrSplit(parts[2], ','))) {
    if (!AppendValue(*type, one, &tensor.bytes)) {
      return Invalid(text, absl::StrCat("'", one, "' is no ", type->name));
    }
  }
  return tensor;
}

std::string KserveDatatype(int dtype) {
  const Type* type = FindType(dtype);
  return type == nullptr ? "" : type->kserve;
}

int DtypeFromKserve(const std::string& datatype) {
  const Type* type = FindType(datatype);
  return type == nullptr ? 0 : type->number;
}

absl::Status CheckTensorBytes(int dtype, const std::vector<int64_t>& shape,
                              size_t bytes) {
  const Type* type = FindType(dtype);
  const bool sized = type != nullptr && type->size > 0;
  size_t needed = sized ? type->size : 1;
  for (int64_t extent : shape) {
    if (extent < 0 ||
        __builtin_mul_overflow(needed, static_cast<size_t>(extent), &needed)) {
      return absl::InternalError(absl::StrCat("the server sent the shape ",
                                              Summary(dtype, shape, "", 0)));
    }
  }
  if (!sized || needed == bytes) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the server sent ", bytes, " bytes for ",
                   Summary(dtype, shape, "", 0), ", which has ", needed));
}

std::string Summary(int dtype, const std::vector<int64_t>& shape,
                    const std::string& bytes, size_t count) {
  const Type* type = FindType(dtype);
  std::string text = absl::StrCat(type == nullptr ? "?" : type->name, " [",
                                  absl::StrJoin(shape, ","), "]");
  if (type == nullptr || type->size == 0 || count == 0 ||
      type->number == v1::DATA_TYPE_FLOAT16) {
    return text;
  }
  const size_t elements = bytes.size() / type->size;
  absl::StrAppend(&text, ":");
  for (size_t i = 0; i < elements && i < count; ++i) {
    absl::StrAppend(&text, " ",
                    ElementAsDouble(*type, bytes.data() + i * type->size));
  }
  if (elements > count) absl::StrAppend(&text, " ...");
  return text;
}

absl::Status WriteTensor(const std::string& path, int dtype,
                         const std::vector<int64_t>& shape,
                         const std::string& bytes) {
  if (path.size() > 4 && path.substr(path.size() - 4) == ".png") {
    return WritePng(path, dtype, shape, bytes);
  }
  return WriteFile(path, bytes);
}

}  // namespace weir::client
