#include "client/cli/tensor_argument.h"

#include <spng.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/cli/plain_text.h"
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

absl::Status Invalid(const std::string& text, std::string why) {
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text, "': ", why,
      "; use NAME=@FILE, NAME=@FILE:DTYPE:DIMS or NAME=DTYPE:DIMS:V,V,..."));
}

}  // namespace

std::string TypeNames() {
  std::string names;
  std::string kserve;
  for (const Type& type : kTypes) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", type.name);
    absl::StrAppend(&kserve, kserve.empty() ? "" : ", ", type.kserve);
  }
  return absl::StrCat(names, ", or KServe's ", kserve);
}

bool ParseDims(const std::string& text, std::vector<int64_t>* dims) {
  if (text.empty() || text == "scalar") return true;
  for (absl::string_view part : absl::StrSplit(text, absl::ByAnyChar("x,"))) {
    int64_t extent = 0;
    if (!absl::SimpleAtoi(part, &extent) || extent < 0) return false;
    dims->push_back(extent);
  }
  return true;
}

namespace {

// The largest number where there are too many to count.
uint64_t CountElements(const std::vector<int64_t>& shape) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  uint64_t elements = 1;
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(elements, static_cast<uint64_t>(extent),
                               &elements)) {
      return std::numeric_limits<uint64_t>::max();
    }
  }
  return elements;
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

// The two half types: a sign, an exponent, a mantissa.
struct HalfFormat {
  int mantissa_bits;
  int bias;
};
constexpr HalfFormat kFloat16 = {10, 15};
constexpr HalfFormat kBfloat16 = {7, 127};

// Rounds to nearest, ties to even; infinite beyond the largest.
uint16_t ToHalf(const HalfFormat& format, double value) {
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const int infinity = (2 * format.bias + 1) << format.mantissa_bits;
  const double size = std::fabs(value);
  int bits = infinity;
  if (std::isnan(size)) {
    bits |= 1 << (format.mantissa_bits - 1);
  } else if (size == 0) {
    bits = 0;
  } else if (!std::isinf(size)) {
    // Denormals have the smallest normal's exponent.
    const int exponent = std::max(std::ilogb(size), 1 - format.bias);
    if (exponent <= format.bias) {
      const double mantissa =
          std::nearbyint(std::ldexp(size, format.mantissa_bits - exponent));
      // A leading one, and what rounding carries, count the exponent up.
      bits = ((exponent + format.bias - 1) << format.mantissa_bits) +
             static_cast<int>(mantissa);
    }
  }
  return static_cast<uint16_t>(sign | bits);
}

double FromHalf(const HalfFormat& format, uint16_t half) {
  const int mantissa = half & ((1 << format.mantissa_bits) - 1);
  const int exponent = (half & 0x7fff) >> format.mantissa_bits;
  double value = 0;
  if (exponent > 2 * format.bias) {
    value = mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                          : std::numeric_limits<double>::infinity();
  } else {
    const int leading = exponent > 0 ? 1 << format.mantissa_bits : 0;
    value = std::ldexp(leading + mantissa, std::max(exponent, 1) - format.bias -
                                               format.mantissa_bits);
  }
  return (half & 0x8000) != 0 ? -value : value;
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
    case v1::DATA_TYPE_FLOAT16:
      if (!absl::SimpleAtod(text, &real)) return false;
      Append(out, ToHalf(kFloat16, real));
      return true;
    case v1::DATA_TYPE_BFLOAT16:
      if (!absl::SimpleAtod(text, &real)) return false;
      Append(out, ToHalf(kBfloat16, real));
      return true;
    default:
      return false;
  }
}

bool IsFile(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

// Of "FILE:REST", whose rest is no DTYPE:DIMS: what is wrong with it, if FILE
// is there and "FILE:REST" is none.
absl::Status CheckFileForm(const std::string& text, const std::string& value) {
  if (IsFile(value)) return absl::OkStatus();
  for (size_t colon = value.find(':'); colon != std::string::npos;
       colon = value.find(':', colon + 1)) {
    if (!IsFile(value.substr(0, colon))) continue;
    const std::vector<std::string> rest =
        absl::StrSplit(value.substr(colon + 1), ':');
    const std::string file = absl::StrCat("behind ", value.substr(0, colon));
    if (rest.size() != 2) {
      return Invalid(text, absl::StrCat(file, " there are no two parts"));
    }
    if (FindType(rest[0]) == nullptr) {
      return Invalid(text, absl::StrCat(file, " '", rest[0],
                                        "' is no element type: ", TypeNames()));
    }
    return Invalid(text,
                   absl::StrCat(file, " '", rest[1], "' are no dimensions"));
  }
  return absl::OkStatus();
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
    const absl::Status form = CheckFileForm(text, value.substr(1));
    if (!form.ok()) return form;
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

// Six digits, or as many more as tell the value from its neighbors.
template <typename T>
std::string RealText(T value) {
  if (std::isnan(value)) return "nan";
  for (int digits = 6;; ++digits) {
    char text[32];
    const char* const end = std::to_chars(text, text + sizeof(text), value,
                                          std::chars_format::general, digits)
                                .ptr;
    T read{};
    std::from_chars(text, end, read);
    if (read == value || digits >= std::numeric_limits<T>::max_digits10) {
      return std::string(static_cast<const char*>(text), end);
    }
  }
}

std::string ElementText(const Type& type, const char* at) {
  const auto read = [at](auto value) {
    std::memcpy(&value, at, sizeof(value));
    return value;
  };
  switch (type.number) {
    case v1::DATA_TYPE_FLOAT:
      return RealText(read(float{}));
    case v1::DATA_TYPE_DOUBLE:
      return RealText(read(double{}));
    case v1::DATA_TYPE_UINT8:
    case v1::DATA_TYPE_BOOL:
      return absl::StrCat(read(uint8_t{}));
    case v1::DATA_TYPE_INT8:
      return absl::StrCat(static_cast<int>(read(int8_t{})));
    case v1::DATA_TYPE_UINT16:
      return absl::StrCat(read(uint16_t{}));
    case v1::DATA_TYPE_INT16:
      return absl::StrCat(read(int16_t{}));
    case v1::DATA_TYPE_UINT32:
      return absl::StrCat(read(uint32_t{}));
    case v1::DATA_TYPE_INT32:
      return absl::StrCat(read(int32_t{}));
    case v1::DATA_TYPE_UINT64:
      return absl::StrCat(read(uint64_t{}));
    case v1::DATA_TYPE_INT64:
      return absl::StrCat(read(int64_t{}));
    // Six digits are more than either has.
    case v1::DATA_TYPE_FLOAT16:
      return absl::StrCat(FromHalf(kFloat16, read(uint16_t{})));
    case v1::DATA_TYPE_BFLOAT16:
      return absl::StrCat(FromHalf(kBfloat16, read(uint16_t{})));
    default:
      return "?";
  }
}

// The first elements of text; fewer if the bytes are cut short.
std::vector<std::string> Texts(std::string_view bytes, size_t count) {
  std::vector<std::string> texts;
  uint32_t length = 0;
  while (texts.size() < count && bytes.size() >= sizeof(length)) {
    std::memcpy(&length, bytes.data(), sizeof(length));
    bytes.remove_prefix(sizeof(length));
    if (length > bytes.size()) break;
    texts.emplace_back(bytes.substr(0, length));
    bytes.remove_prefix(length);
  }
  return texts;
}

// Quoted, escaped and cut short.
std::string Quoted(const std::string& text) {
  constexpr size_t kShownBytes = 60;
  return absl::StrCat("\"", absl::CEscape(text.substr(0, kShownBytes)),
                      text.size() > kShownBytes ? "\"..." : "\"");
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
  absl::Status written =
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

namespace {

// Where NAME ends. Where nothing behind an '=' looks like a tensor, the first
// one, which the error is about.
size_t EndOfName(const std::string& text) {
  for (size_t equals = text.find('='); equals != std::string::npos;
       equals = text.find('=', equals + 1)) {
    const std::string value = text.substr(equals + 1);
    const size_t colon = value.find(':');
    if (value.rfind('@', 0) == 0 ||
        (colon != std::string::npos &&
         FindType(value.substr(0, colon)) != nullptr)) {
      return equals;
    }
  }
  return text.find('=');
}

}  // namespace

absl::StatusOr<TensorArgument> ParseTensorArgument(const std::string& text) {
  const size_t equals = EndOfName(text);
  if (equals == std::string::npos || equals == 0) {
    return Invalid(text, "there is no NAME=");
  }
  TensorArgument tensor;
  tensor.name = text.substr(0, equals);
  if (!IsUtf8(tensor.name)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--input: the name \"", absl::CEscape(tensor.name), "\" is not UTF-8"));
  }
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
  std::vector<std::string> values = absl::StrSplit(parts[2], ',');
  // Nothing is no value; but one element of text may be empty.
  const bool one_text = type->number == v1::DATA_TYPE_STRING &&
                        std::all_of(tensor.shape.begin(), tensor.shape.end(),
                                    [](int64_t extent) { return extent == 1; });
  if (parts[2].empty() && !one_text) values.clear();
  if (const uint64_t elements = CountElements(tensor.shape);
      values.size() != elements) {
    return Invalid(
        text, absl::StrCat(values.size(), " values where the dimensions have ",
                           elements));
  }
  for (const std::string& one : values) {
    if (!AppendValue(*type, one, &tensor.bytes)) {
      return Invalid(text, absl::StrCat("'", one, "' is no ", type->name));
    }
  }
  return tensor;
}

std::string DtypeName(int dtype) {
  const Type* type = FindType(dtype);
  return type == nullptr ? "?" : type->name;
}

size_t ElementBytes(int dtype) {
  const Type* type = FindType(dtype);
  return type == nullptr ? 0 : type->size;
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
  if (type == nullptr || count == 0) return text;
  std::vector<std::string> shown;
  size_t elements = 1;
  if (type->number == v1::DATA_TYPE_STRING) {
    for (int64_t extent : shape) elements *= static_cast<size_t>(extent);
    for (const std::string& one : Texts(bytes, std::min(elements, count))) {
      shown.push_back(Quoted(one));
    }
    if (shown.empty()) return text;
  } else {
    elements = bytes.size() / type->size;
    for (size_t i = 0; i < elements && i < count; ++i) {
      shown.push_back(ElementText(*type, bytes.data() + i * type->size));
    }
  }
  absl::StrAppend(&text, ":", shown.empty() ? "" : " ",
                  absl::StrJoin(shown, " "));
  if (elements > shown.size()) absl::StrAppend(&text, " ...");
  return text;
}

std::vector<std::string> ElementTexts(int dtype, const std::string& bytes) {
  const Type* type = FindType(dtype);
  if (type == nullptr) return {};
  if (type->number == v1::DATA_TYPE_STRING) return Texts(bytes, bytes.size());
  std::vector<std::string> texts(bytes.size() / type->size);
  for (size_t i = 0; i < texts.size(); ++i) {
    texts[i] = ElementText(*type, bytes.data() + i * type->size);
  }
  return texts;
}

bool AppendElement(int dtype, double value, std::string* bytes) {
  const Type* type = FindType(dtype);
  if (type == nullptr) return false;
  switch (type->number) {
    case v1::DATA_TYPE_STRING:
      return false;
    case v1::DATA_TYPE_FLOAT:
      Append(bytes, static_cast<float>(value));
      return true;
    case v1::DATA_TYPE_DOUBLE:
      Append(bytes, value);
      return true;
    case v1::DATA_TYPE_FLOAT16:
      Append(bytes, ToHalf(kFloat16, value));
      return true;
    case v1::DATA_TYPE_BFLOAT16:
      Append(bytes, ToHalf(kBfloat16, value));
      return true;
    default:
      // Little-endian, as this machine is.
      const auto whole = static_cast<int64_t>(value);
      bytes->append(reinterpret_cast<const char*>(&whole), type->size);
      return true;
  }
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
