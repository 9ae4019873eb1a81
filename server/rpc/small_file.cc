#include "server/rpc/small_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace weir {

absl::StatusOr<std::string> ReadSmallFile(const std::string& path,
                                          size_t most_bytes) {
  const auto refuse = [](int error) {
    return absl::FailedPreconditionError(std::strerror(error));
  };
  // Without waiting: the path may be a pipe that nobody writes to.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return refuse(errno);
  struct stat info = {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return absl::FailedPreconditionError("not a file");
  }
  std::string text(most_bytes + 1, '\0');
  size_t size = 0;
  ssize_t part = 0;
  while (size < text.size() &&
         (part = read(fd, text.data() + size, text.size() - size)) > 0) {
    size += static_cast<size_t>(part);
  }
  const int error = part < 0 ? errno : 0;
  close(fd);
  if (error != 0) return refuse(error);
  if (size > most_bytes) {
    return absl::FailedPreconditionError(
        absl::StrCat("larger than ", most_bytes, " bytes"));
  }
  text.resize(size);
  return text;
}

}  // namespace weir
