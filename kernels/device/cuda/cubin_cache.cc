#include "kernels/device/cuda/cubin_cache.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace weir {
namespace {

namespace fs = std::filesystem;

constexpr char kSuffix[] = ".cubin";

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

// The error that kept the file from being written; 0 if it was.
int WriteFile(const std::string& path,
              std::initializer_list<std::string_view> parts) {
  const int fd =
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
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
  return error;
}

}  // namespace

CubinCache::CubinCache(std::string folder, uint64_t max_bytes)
    : folder_(std::move(folder)), max_bytes_(max_bytes) {
  if (folder_.empty()) return;
  std::error_code ignored;
  fs::create_directories(folder_, ignored);
  const std::string trial = absl::StrCat(folder_, "/.trial.", getpid());
  writes_ = WriteFile(trial, {}) == 0;
  unlink(trial.c_str());
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
  static std::atomic<uint64_t> counter{0};
  const std::string path = PathOf(key);
  const std::string temporary =
      absl::StrCat(path, ".", getpid(), ".", counter.fetch_add(1));
  Header header;
  header.key_size = key.size();
  header.image_size = image.size();
  header.checksum = Checksum(key, image);
  int error = WriteFile(
      temporary,
      {{reinterpret_cast<const char*>(&header), sizeof(header)}, key, image});
  if (error == 0 && rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    unlink(temporary.c_str());
    return absl::ErrnoToStatus(error,
                               absl::StrCat("cannot write to ", folder_));
  }
  Trim();
  return absl::OkStatus();
}

void CubinCache::Trim() const {
  struct Entry {
    fs::path path;
    uint64_t size;
    fs::file_time_type used;
  };
  std::vector<Entry> entries;
  uint64_t total = 0;
  std::error_code error;
  for (fs::directory_iterator it(folder_, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() != kSuffix) continue;
    std::error_code gone;
    Entry entry{it->path(), it->file_size(gone), it->last_write_time(gone)};
    if (gone) continue;
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
