// Tensors on the command line. Pure but for reading and writing files.
//
//   NAME=@FILE                 the bytes of FILE as uint8 [n] (pictures)
//   NAME=@FILE:DTYPE:DIMS      raw little-endian elements: x=@a.f32:float:2x3
//   NAME=DTYPE:DIMS:V,V,...    the values themselves, as many as DIMS have:
//                              x=float:3:1,2,3
//
// NAME may hold '=': it ends at the first one behind which '@' or a DTYPE with
// its colon stands.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weir::client {

struct TensorArgument {
  std::string name;
  int dtype = 0;  // weir.v1.DataType
  std::vector<int64_t> shape;
  std::string bytes;
};

// INVALID_ARGUMENT says what is wrong and what the form is.
absl::StatusOr<TensorArgument> ParseTensorArgument(const std::string& text);

// "2x3" or "2,3"; "" or "scalar" is rank 0. False if it is neither.
bool ParseDims(const std::string& text, std::vector<int64_t>* dims);

// "float, double, ..., or KServe's FP32, FP64, ...".
std::string TypeNames();

// As the command line writes it, "float"; "?" if unknown.
std::string DtypeName(int dtype);
size_t ElementBytes(int dtype);  // 0 of text, and if unknown

// KServe's name of an element type ("FP32"), or "" for one without.
std::string KserveDatatype(int dtype);
int DtypeFromKserve(const std::string& datatype);  // 0 if unknown

// INTERNAL unless so many bytes are what a server's tensor of that type and
// shape has. Of BYTES and of unknown types the dimensions alone are looked at.
absl::Status CheckTensorBytes(int dtype, const std::vector<int64_t>& shape,
                              size_t bytes);

// "float [2,3]: 1 2 0.5 ...", at most `count` elements: integers as they are,
// reals with as many digits as tell them from their neighbors, text in quotes,
// escaped and cut short.
std::string Summary(int dtype, const std::vector<int64_t>& shape,
                    const std::string& bytes, size_t count = 8);

// Each element: numbers as Summary shows them, text as it is. Fewer if the
// bytes are cut short.
std::vector<std::string> ElementTexts(int dtype, const std::string& bytes);

// Appends one element of a value that the type can hold. False for text, and if
// the type is unknown.
bool AppendElement(int dtype, double value, std::string* bytes);

// Writes a tensor to `path`: a PNG for *.png (uint8 [H,W,3] or [H,W,1]), raw
// bytes otherwise.
absl::Status WriteTensor(const std::string& path, int dtype,
                         const std::vector<int64_t>& shape,
                         const std::string& bytes);

absl::StatusOr<std::string> ReadFile(const std::string& path);

}  // namespace weir::client
