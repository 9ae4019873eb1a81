// nvJPEG, opened when the first program that decodes pictures is compiled.
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/clock.h"
#include "kernels/device/stream.h"

namespace weir::cuda {

// What a decoder keeps once it has decoded such a picture, on the host and on
// the device each, at most: coefficients of two bytes of three full components,
// rounded up so that pictures of about the same size share decoders.
size_t NvJpegBytes(int64_t width, int64_t height);

class NvJpeg {
 public:
  // UNIMPLEMENTED naming the library if it is missing.
  static absl::StatusOr<std::unique_ptr<NvJpeg>> Open();
  ~NvJpeg();

  // Decodes to dense RGB in device memory: entropy decoding in this thread, the
  // rest on `stream`. Waits while too many pictures, or bytes for them
  // (NvJpegBytes), are in flight, and as long as `go_on` is OK.
  // INVALID_ARGUMENT for damaged data; UNIMPLEMENTED for a kind of JPEG that
  // nvJPEG does not know.
  absl::Status Decode(Stream& stream, std::span<const std::byte> file,
                      int64_t width, int64_t height, void* rgb,
                      Stream::GoOn go_on);

  // As Device::TrimOne: a decoder with its buffers.
  bool TrimOne(Nanos before);

 private:
  struct State;
  explicit NvJpeg(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace weir::cuda
