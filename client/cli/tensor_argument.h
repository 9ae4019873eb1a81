// Tensors on the command line. Pure but for reading and writing files.
//
//   NAME=@FILE                 the bytes of FILE as uint8 [n] (pictures)
//   NAME=@FILE:DTYPE:DIMS      raw little-endian elements: x=@a.f32:float:2x3
//   NAME=DTYPE:DIMS:V,V,...    the values themselves: x=float:3:1,2,3
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

// Writes a tensor to `path`: a PNG for *.png (uint8 [H,W,3] or [H,W,1]), raw
// bytes otherwise.
absl::Status WriteTensor(const std::string& path, int dtype,
                         const std::vector<int64_t>& shape,
                         const std::string& bytes);

absl::StatusOr<std::string> ReadFile(const std::string& path);

}  // namespace weir::client
