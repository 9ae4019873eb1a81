#include "server/models/model_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace weir {
namespace {

absl::Status FileError(int error, const std::string& path) {
  return absl::ErrnoToStatus(error, absl::StrCat("cannot read ", path));
}

absl::StatusOr<std::string> RealPath(const std::string& path) {
  char buffer[PATH_MAX];
  if (realpath(path.c_str(), buffer) == nullptr) return FileError(errno, path);
  return std::string(buffer);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelFile>> ModelFile::Open(
    const std::string& path) {
  // A FIFO would hold a blocking open up.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return FileError(errno, path);
  std::unique_ptr<ModelFile> file(new ModelFile(path, fd));
  struct stat info;
  if (fstat(fd, &info) != 0) return FileError(errno, path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not a regular file"));
  }
  file->size_ = static_cast<uint64_t>(info.st_size);
  return file;
}

ModelFile::~ModelFile() { close(fd_); }

absl::Status ModelFile::Read(uint64_t offset, char* to, size_t length) const {
  while (length > 0) {
    const ssize_t count = pread(fd_, to, length, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FileError(errno, path_);
    if (count == 0) {
      return absl::FailedPreconditionError(absl::StrCat(
          "cannot read ", path_, ": it ends after ", offset, " bytes where it ",
          "had ", size_,
          "; model files are to be replaced, not changed while they are read"));
    }
    offset += static_cast<uint64_t>(count);
    to += count;
    length -= static_cast<size_t>(count);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ResolveInside(const std::string& folder,
                                          std::string_view relative) {
  const absl::string_view path(relative.data(), relative.size());
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("path ", QuoteStart(relative), " ", why));
  };
  if (path.empty()) return refuse("is empty");
  if (path.size() >= PATH_MAX) return refuse("is too long");
  if (path.find('\0') != absl::string_view::npos) {
    return absl::InvalidArgumentError("a path contains a zero byte");
  }
  if (path[0] == '/') return refuse("is absolute");
  for (absl::string_view part : absl::StrSplit(path, '/')) {
    if (part == "..") return refuse("contains \"..\"");
  }
  WEIR_ASSIGN_OR_RETURN(const std::string root, RealPath(folder));
  WEIR_ASSIGN_OR_RETURN(const std::string target,
                        RealPath(absl::StrCat(folder, "/", path)));
  const std::string inside = root == "/" ? root : root + "/";
  if (target.compare(0, inside.size(), inside) != 0) {
    return refuse("leads out of its folder");
  }
  return target;
}

}  // namespace weir
