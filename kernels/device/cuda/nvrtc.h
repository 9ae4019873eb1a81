// NVRTC: compiles CUDA C++ to machine code. Needs no GPU. Takes 30 MiB when it
// is opened and as much again for its first compilation, so it is found at
// start and opened when there is something to compile. Immutable after Open;
// any thread.
#pragma once

#include <nvrtc.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device/cuda/library_file.h"

namespace weir {

class Nvrtc {
 public:
  // FAILED_PRECONDITION if the library is missing or of another major version.
  static absl::StatusOr<LibraryFile> Find();
  static absl::StatusOr<Nvrtc> Open(const LibraryFile& file);

  // A cubin for `capability` (90 for 9.0); PTX for the newest architecture that
  // this NVRTC knows if the device is newer. Kernels are extern "C". A failure
  // is INTERNAL (our text is at fault) and carries the compiler's log.
  absl::StatusOr<std::string> Compile(const std::string& source,
                                      int capability) const;

  // "13.0".
  std::string version() const;

 private:
  absl::Status Check(nvrtcResult result, const char* what) const;

  int major_ = 0;
  int minor_ = 0;
  std::vector<int> architectures_;

  decltype(&nvrtcVersion) version_ = nullptr;
  decltype(&nvrtcGetNumSupportedArchs) num_archs_ = nullptr;
  decltype(&nvrtcGetSupportedArchs) archs_ = nullptr;
  decltype(&nvrtcGetErrorString) error_string_ = nullptr;
  decltype(&nvrtcCreateProgram) create_ = nullptr;
  decltype(&nvrtcDestroyProgram) destroy_ = nullptr;
  decltype(&nvrtcCompileProgram) compile_ = nullptr;
  decltype(&nvrtcGetProgramLogSize) log_size_ = nullptr;
  decltype(&nvrtcGetProgramLog) log_ = nullptr;
  decltype(&nvrtcGetCUBINSize) cubin_size_ = nullptr;
  decltype(&nvrtcGetCUBIN) cubin_ = nullptr;
  decltype(&nvrtcGetPTXSize) ptx_size_ = nullptr;
  decltype(&nvrtcGetPTX) ptx_ = nullptr;
};

}  // namespace weir
