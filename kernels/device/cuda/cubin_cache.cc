#include "kernels/device/cuda/cubin_cache.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
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

}  // namespace

CubinCache::CubinCache(std::string folder, uint64_t max_bytes)
    : folder_(std::move(folder)), max_bytes_(max_bytes) {
  if (folder_.empty()) return;
  std::error_code ignored;
  fs::create_directories(folder_, ignored);
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

void CubinCache::Insert(std::string_view key, std::string_view image) const {
  if (folder_.empty()) return;
  static std::atomic<uint64_t> counter{0};
  const std::string path = PathOf(key);
  const std::string temporary =
      absl::StrCat(path, ".", getpid(), ".", counter.fetch_add(1));
  std::error_code ignored;
  {
    Header header;
    header.key_size = key.size();
    header.image_size = image.size();
    header.checksum = Checksum(key, image);
    std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(&header), sizeof(header));
    file.write(key.data(), static_cast<std::streamsize>(key.size()));
    file.write(image.data(), static_cast<std::streamsize>(image.size()));
    file.close();
    if (!file) {
      fs::remove(temporary, ignored);
      return;
    }
  }
  fs::rename(temporary, path, ignored);
  if (ignored) {
    fs::remove(temporary, ignored);
    return;
  }
  Trim();
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
