// A shared library of NVIDIA's, opened by its soname when it is first needed.
// Looked for in the folders of WEIR_CUDA_LIBRARY_PATH (colon-separated), then
// on the loader's path, beside our own library, in /usr/local/cuda and in the
// nvidia-* wheels of the usual Python folders. Never closed. Any thread.
//
// FindLibrary looks in the same places and opens nothing.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device/cuda/library_file.h"

namespace weir {

// The first sound file of that name. NOT_FOUND when no folder has it,
// FAILED_PRECONDITION when those that do have a damaged or foreign one.
absl::StatusOr<LibraryFile> FindLibrary(const std::string& soname);

class DynamicLibrary {
 public:
  // NOT_FOUND with the loader's words when no folder has it.
  static absl::StatusOr<DynamicLibrary> Open(const std::string& soname);
  // The file that was found; FAILED_PRECONDITION with the loader's words.
  static absl::StatusOr<DynamicLibrary> Open(const LibraryFile& file);

  // Sets `*function` to the symbol; FAILED_PRECONDITION if there is none, which
  // means that the library is of another version.
  template <typename F>
  absl::Status Load(const char* symbol, F** function) const {
    void* address = nullptr;
    absl::Status status = Find(symbol, &address);
    *function = reinterpret_cast<F*>(address);
    return status;
  }

  // Loads `soname` from this library's folder, if it is there: for a library
  // that opens another by its name alone, which finds what is loaded already.
  void LoadNeighbor(const std::string& soname) const;

  const std::string& path() const { return path_; }

 private:
  DynamicLibrary(void* handle, std::string path)
      : handle_(handle), path_(std::move(path)) {}
  absl::Status Find(const char* symbol, void** address) const;

  void* handle_;
  std::string path_;
};

// The folders searched before and after the loader's own; for error texts and
// for libraries that load others (cuDNN's parts).
std::vector<std::string> CudaLibraryFolders();

}  // namespace weir
