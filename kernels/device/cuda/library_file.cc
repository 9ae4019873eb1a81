#include "kernels/device/cuda/library_file.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace weir {
namespace {

#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#endif
// Of what one asks for in a file that may hold anything.
constexpr size_t kMaxHeaders = 64;
constexpr size_t kMaxDynamicBytes = 64 * 1024;
constexpr size_t kMaxNoteBytes = 4096;
constexpr size_t kMaxName = 256;

class File {
 public:
  explicit File(const std::string& path)
      : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    struct stat info;
    if (fd_ >= 0 && fstat(fd_, &info) == 0 && S_ISREG(info.st_mode)) {
      size_ = static_cast<uint64_t>(info.st_size);
    }
  }
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  bool opened() const { return fd_ >= 0; }
  uint64_t size() const { return size_; }

  // False if the file ends before.
  bool Read(uint64_t offset, void* to, size_t bytes) const {
    if (offset > size_ || bytes > size_ - offset) return false;
    auto* at = static_cast<char*>(to);
    while (bytes > 0) {
      const ssize_t n = pread(fd_, at, bytes, static_cast<off_t>(offset));
      if (n <= 0) {
        if (n < 0 && errno == EINTR) continue;
        return false;
      }
      at += n;
      offset += static_cast<uint64_t>(n);
      bytes -= static_cast<size_t>(n);
    }
    return true;
  }

 private:
  const int fd_;
  uint64_t size_ = 0;
};

class Elf {
 public:
  explicit Elf(const File& file) : file_(file) {}

  // Why it is no library of this machine; null if it is.
  const char* ReadHeaders() {
    Elf64_Ehdr header;
    if (!file_.Read(0, &header, sizeof(header)) ||
        std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_type != ET_DYN) {
      return "is no shared library";
    }
    if (header.e_machine != kMachine) return "is for another machine";
    if (header.e_phentsize != sizeof(Elf64_Phdr) ||
        header.e_phnum > kMaxHeaders) {
      return "is no shared library";
    }
    segments_.resize(header.e_phnum);
    if (!file_.Read(header.e_phoff, segments_.data(),
                    segments_.size() * sizeof(Elf64_Phdr))) {
      return "is cut off";
    }
    for (const Elf64_Phdr& segment : segments_) {
      if (segment.p_type == PT_LOAD &&
          (segment.p_offset > file_.size() ||
           segment.p_filesz > file_.size() - segment.p_offset)) {
        return "is cut off";
      }
    }
    return nullptr;
  }

  std::string Soname() const {
    for (const Elf64_Phdr& segment : segments_) {
      if (segment.p_type != PT_DYNAMIC) continue;
      if (segment.p_filesz > kMaxDynamicBytes) return "";
      std::vector<Elf64_Dyn> entries(segment.p_filesz / sizeof(Elf64_Dyn));
      if (!file_.Read(segment.p_offset, entries.data(),
                      entries.size() * sizeof(Elf64_Dyn))) {
        return "";
      }
      std::optional<uint64_t> strings, name;
      for (const Elf64_Dyn& entry : entries) {
        if (entry.d_tag == DT_NULL) break;
        if (entry.d_tag == DT_STRTAB) strings = entry.d_un.d_ptr;
        if (entry.d_tag == DT_SONAME) name = entry.d_un.d_val;
      }
      if (strings && name) return TextAt(*strings + *name);
    }
    return "";
  }

  std::string BuildId() const {
    for (const Elf64_Phdr& segment : segments_) {
      if (segment.p_type != PT_NOTE || segment.p_filesz > kMaxNoteBytes) {
        continue;
      }
      std::string notes(segment.p_filesz, '\0');
      if (!file_.Read(segment.p_offset, notes.data(), notes.size())) continue;
      std::string id = BuildIdIn(notes);
      if (!id.empty()) return id;
    }
    return "";
  }

 private:
  // The text at an address of the loaded library.
  std::string TextAt(uint64_t address) const {
    for (const Elf64_Phdr& segment : segments_) {
      if (segment.p_type != PT_LOAD || address < segment.p_vaddr ||
          address - segment.p_vaddr >= segment.p_filesz) {
        continue;
      }
      const uint64_t inside = address - segment.p_vaddr;
      std::string text(std::min<uint64_t>(kMaxName, segment.p_filesz - inside),
                       '\0');
      if (!file_.Read(segment.p_offset + inside, text.data(), text.size())) {
        return "";
      }
      return text.substr(0, text.find('\0'));
    }
    return "";
  }

  static std::string BuildIdIn(std::string_view notes) {
    auto padded = [](size_t bytes) { return (bytes + 3) & ~size_t{3}; };
    Elf64_Nhdr note;
    while (notes.size() >= sizeof(note)) {
      std::memcpy(&note, notes.data(), sizeof(note));
      notes.remove_prefix(sizeof(note));
      if (note.n_namesz > notes.size() || note.n_descsz > notes.size() ||
          padded(note.n_namesz) + padded(note.n_descsz) > notes.size()) {
        return "";
      }
      const std::string_view name = notes.substr(0, note.n_namesz);
      const std::string_view id =
          notes.substr(padded(note.n_namesz), note.n_descsz);
      if (note.n_type == NT_GNU_BUILD_ID &&
          name == std::string_view("GNU\0", 4)) {
        return absl::BytesToHexString(absl::string_view(id.data(), id.size()));
      }
      notes.remove_prefix(padded(note.n_namesz) + padded(note.n_descsz));
    }
    return "";
  }

  const File& file_;
  std::vector<Elf64_Phdr> segments_;
};

}  // namespace

absl::StatusOr<LibraryFile> InspectLibrary(const std::string& path,
                                           const std::string& soname) {
  const File file(path);
  if (!file.opened()) return absl::NotFoundError(absl::StrCat("no ", path));
  Elf elf(file);
  if (const char* problem = elf.ReadHeaders()) {
    return absl::FailedPreconditionError(absl::StrCat(path, " ", problem));
  }
  const std::string found = elf.Soname();
  if (found != soname) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is \"", found, "\", not ", soname));
  }
  return LibraryFile{path, elf.BuildId()};
}

}  // namespace weir
