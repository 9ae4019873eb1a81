#include "server/models/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/base/status_macros.h"

namespace weir {
namespace {

absl::Status FileError(int error, const std::string& path) {
  return absl::ErrnoToStatus(error, absl::StrCat("cannot read ", path));
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

absl::StatusOr<std::string> RealPath(const std::string& path) {
  char buffer[PATH_MAX];
  if (realpath(path.c_str(), buffer) == nullptr) return FileError(errno, path);
  return std::string(buffer);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Open(
    const std::string& path) {
  // A FIFO would hold a blocking open up.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return FileError(errno, path);
  struct stat info;
  if (fstat(file.get(), &info) != 0) return FileError(errno, path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not a regular file"));
  }
  const size_t size = static_cast<size_t>(info.st_size);
  if (size == 0) {
    return std::shared_ptr<const MappedFile>(new MappedFile(nullptr, 0));
  }
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) return FileError(errno, path);
  return std::shared_ptr<const MappedFile>(
      new MappedFile(static_cast<const char*>(data), size));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<char*>(data_), size_);
}

absl::StatusOr<std::string> ResolveInside(const std::string& folder,
                                          std::string_view relative) {
  const absl::string_view path(relative.data(), relative.size());
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("path \"", path, "\" ", why));
  };
  if (path.empty()) return refuse("is empty");
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
