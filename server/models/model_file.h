// A file of a model, opened for reading. What is read lies in its reader's
// memory and stays as it was, whatever becomes of the file: models are never
// mapped. Owned by who opened it; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weir {

class ModelFile {
 public:
  // `path` must name a regular file (symbolic links are followed); opening
  // anything else does not block. NOT_FOUND, PERMISSION_DENIED or
  // INVALID_ARGUMENT name the path.
  static absl::StatusOr<std::unique_ptr<ModelFile>> Open(
      const std::string& path);

  ~ModelFile();
  ModelFile(const ModelFile&) = delete;
  ModelFile& operator=(const ModelFile&) = delete;

  // As it was when the file was opened.
  uint64_t size() const { return size_; }

  // All `length` bytes from `offset` on, which lie within size().
  // FAILED_PRECONDITION names the path if the file has become shorter.
  absl::Status Read(uint64_t offset, char* to, size_t length) const;

 private:
  ModelFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  const std::string path_;
  const int fd_;
  uint64_t size_ = 0;
};

// The file that `relative` names inside `folder`, with every symbolic link
// followed. INVALID_ARGUMENT if it is too long for a path, absolute, contains
// "..", or ends up outside the folder; NOT_FOUND if there is no such file.
absl::StatusOr<std::string> ResolveInside(const std::string& folder,
                                          std::string_view relative);

}  // namespace weir
