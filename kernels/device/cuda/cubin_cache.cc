#include "kernels/device/cuda/cubin_cache.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace weir {
namespace {

namespace fs = std::filesystem;

constexpr char kSuffix[] = ".cubin";
constexpr char kTrial[] = "trial";
constexpr size_t kHashDigits = 32;
constexpr size_t kRandomDigits = 16;
// Nobody writes at one file for so long.
constexpr std::chrono::hours kAbandoned{1};

struct Header {
  char magic[8] = {'W', 'E', 'I', 'R', 'C', 'U', 'B', '1'};
  uint64_t key_size = 0;
  uint64_t image_size = 0;
  uint64_t checksum = 0;
};

uint64_t Fnv1a(std::string_view bytes, uint64_t hash) {
  for (const char c : bytes) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  }
  return hash;
}

uint64_t Checksum(std::string_view key, std::string_view image) {
  return Fnv1a(image, Fnv1a(key, 0xcbf29ce484222325u));
}

// A file to be renamed to `path`: a name that no other process has or foresees.
// In containers that share a folder, the servers' process numbers are alike.
std::string Temporary(const std::string& path) {
  uint64_t random = 0;
  // Without it a file that is there is left alone all the same.
  static_cast<void>(!getrandom(&random, sizeof(random), 0));
  return absl::StrFormat("%s.%016x", path, random);
}

bool AreAll(std::string_view text, std::string_view of) {
  return text.find_first_not_of(of) == std::string_view::npos;
}

bool IsHex(std::string_view text, size_t digits) {
  return text.size() == digits && AreAll(text, "0123456789abcdef");
}

// The name of PathOf. Whatever else is in the folder is somebody else's.
bool IsKernel(std::string_view name) {
  const std::string_view hash = name.substr(0, name.find('.'));
  return IsHex(hash, kHashDigits) && name.substr(hash.size()) == kSuffix;
}

bool IsTemporary(std::string_view name) {
  const std::string_view stem = name.substr(0, name.find('.'));
  if (stem != kTrial && !IsHex(stem, kHashDigits)) return false;
  const std::string_view rest = name.substr(stem.size());
  const std::string mark = absl::StrCat(kSuffix, ".");
  if (!rest.starts_with(mark)) return false;
  const std::string_view end = rest.substr(mark.size());
  if (IsHex(end, kRandomDigits)) return true;
  // A process number and a count, as names once ended.
  return AreAll(end, "0123456789.") && end.find('.') != end.npos;
}

// A folder that takes no files, rather than none now as on a full disk.
bool IsOnlyRead(int error) {
  return error == EROFS || error == EACCES || error == EPERM ||
         error == ENOENT || error == ENOTDIR;
}

// Makes the file, which must not be there. The error that kept it from being
// written whole, which leaves none; 0 if it was.
int WriteFile(const std::string& path,
              std::initializer_list<std::string_view> parts) {
  const int fd =
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return errno;
  int error = 0;
  for (std::string_view part : parts) {
    while (!part.empty() && error == 0) {
      const ssize_t written = write(fd, part.data(), part.size());
      if (written > 0) {
        part.remove_prefix(static_cast<size_t>(written));
      } else if (written == 0) {
        error = ENOSPC;
      } else if (errno != EINTR) {
        error = errno;
      }
    }
  }
  // Some file systems tell only now.
  if (close(fd) != 0 && error == 0) error = errno;
  if (error != 0) unlink(path.c_str());
  return error;
}

}  // namespace

CubinCache::CubinCache(std::string folder, uint64_t max_bytes)
    : folder_(std::move(folder)), max_bytes_(max_bytes) {
  if (folder_.empty()) return;
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) {
    writes_ = !IsOnlyRead(error.value());
    return;
  }
  const std::string trial =
      Temporary(absl::StrCat(folder_, "/", kTrial, kSuffix));
  const int refused = WriteFile(trial, {});
  if (refused == 0) unlink(trial.c_str());
  writes_ = !IsOnlyRead(refused);
}

std::string CubinCache::PathOf(std::string_view key) const {
  return absl::StrFormat("%s/%016x%016x%s", folder_,
                         Fnv1a(key, 0xcbf29ce484222325u),
                         Fnv1a(key, 0x9ae16a3b2f90404fu), kSuffix);
}

std::optional<std::string> CubinCache::Find(std::string_view key) const {
  if (folder_.empty()) return std::nullopt;
  const std::string path = PathOf(key);
  std::ifstream file(path, std::ios::binary);
  Header header;
  const Header expected;
  if (!file.read(reinterpret_cast<char*>(&header), sizeof(header)) ||
      std::memcmp(header.magic, expected.magic, sizeof(header.magic)) != 0 ||
      header.key_size != key.size() || header.image_size > max_bytes_) {
    return std::nullopt;
  }
  std::string stored_key(header.key_size, '\0');
  std::string image(header.image_size, '\0');
  if (!file.read(stored_key.data(),
                 static_cast<std::streamsize>(stored_key.size())) ||
      !file.read(image.data(), static_cast<std::streamsize>(image.size())) ||
      stored_key != key || header.checksum != Checksum(key, image)) {
    return std::nullopt;
  }
  std::error_code ignored;
  fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
  return image;
}

absl::Status CubinCache::Insert(std::string_view key,
                                std::string_view image) const {
  if (!writes_) return absl::OkStatus();
  const std::string path = PathOf(key);
  const std::string temporary = Temporary(path);
  Header header;
  header.key_size = key.size();
  header.image_size = image.size();
  header.checksum = Checksum(key, image);
  // On a full disk there was no room for the folder either.
  std::error_code not_made;
  fs::create_directories(folder_, not_made);
  int error =
      not_made
          ? not_made.value()
          : WriteFile(temporary,
                      {{reinterpret_cast<const char*>(&header), sizeof(header)},
                       key,
                       image});
  if (error == 0 && rename(temporary.c_str(), path.c_str()) != 0) {
    error = errno;
    unlink(temporary.c_str());
  }
  // Also when there was no room, which may make some.
  Trim();
  if (error == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(error, absl::StrCat("cannot write to ", folder_));
}

void CubinCache::Trim() const {
  struct Entry {
    fs::path path;
    uint64_t size;
    fs::file_time_type used;
  };
  const auto abandoned = fs::file_time_type::clock::now() - kAbandoned;
  std::vector<Entry> entries;
  uint64_t total = 0;
  std::error_code error;
  for (fs::directory_iterator it(folder_, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    const bool temporary = IsTemporary(name);
    if (!temporary && !IsKernel(name)) continue;
    std::error_code gone;
    Entry entry{it->path(), it->file_size(gone), it->last_write_time(gone)};
    if (gone) continue;
    if (temporary) {
      if (entry.used < abandoned) fs::remove(entry.path, gone);
      continue;
    }
    total += entry.size;
    entries.push_back(std::move(entry));
  }
  if (total <= max_bytes_) return;
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (const Entry& entry : entries) {
    if (total <= max_bytes_) return;
    std::error_code ignored;
    if (fs::remove(entry.path, ignored)) total -= entry.size;
  }
}

}  // namespace weir
