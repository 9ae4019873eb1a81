// A file mapped for reading, unmapped by the last who holds it. Whoever
// truncates a mapped file kills its reader: model files are replaced, never
// overwritten.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace weir {

class MappedFile {
 public:
  // `path` must name a regular file (symbolic links are followed). An empty
  // file has an empty view. NOT_FOUND, PERMISSION_DENIED or INVALID_ARGUMENT
  // name the path.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Open(
      const std::string& path);

  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::string_view bytes() const { return {data_, size_}; }

 private:
  MappedFile(const char* data, size_t size) : data_(data), size_(size) {}

  const char* const data_;
  const size_t size_;
};

// The file that `relative` names inside `folder`, with every symbolic link
// followed. INVALID_ARGUMENT if it is absolute, contains "..", or ends up
// outside the folder; NOT_FOUND if there is no such file.
absl::StatusOr<std::string> ResolveInside(const std::string& folder,
                                          std::string_view relative);

}  // namespace weir
