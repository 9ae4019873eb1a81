// Compiled kernels on disk: one file per key, named by the key's hash, written
// atomically, verified when read. Corrupt files count as absent and are written
// anew. The total is bounded: with each file that is written the longest unused
// go, and what a process left an hour ago or more that ended while it wrote.
// Files with names that the cache does not give are left alone. A folder that
// takes no files when the cache is made is only read; one that is full then, or
// could not be made for want of room, is tried again, and one that is removed
// is made again. Thread-safe, also between processes that share the folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace weir {

class CubinCache {
 public:
  static constexpr uint64_t kDefaultMaxBytes = uint64_t{256} << 20;

  // An empty folder name: nothing is kept.
  explicit CubinCache(std::string folder,
                      uint64_t max_bytes = kDefaultMaxBytes);

  std::optional<std::string> Find(std::string_view key) const;
  // Names the folder and the reason if it was to be kept and could not be.
  absl::Status Insert(std::string_view key, std::string_view image) const;

  // The file that holds `key`, for tests.
  std::string PathOf(std::string_view key) const;

 private:
  // Removes what is too much or abandoned.
  void Trim() const;

  const std::string folder_;
  const uint64_t max_bytes_;
  bool writes_ = false;
};

}  // namespace weir
