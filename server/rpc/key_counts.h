// How many there are of each key: calls of a connection, connections of a peer.
// Keys of which there is none take no room, so that whoever was here is
// forgotten. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/container/flat_hash_map.h"

namespace weir {

class KeyCounts {
 public:
  size_t Of(const std::string& key) const {
    const auto found = counts_.find(key);
    return found == counts_.end() ? 0 : found->second;
  }
  // Of the key that has most; 0 without any.
  size_t Most() const {
    size_t most = 0;
    for (const auto& [key, count] : counts_) most = std::max(most, count);
    return most;
  }

  void Add(const std::string& key) { ++counts_[key]; }
  // REQUIRES: Of(key) > 0.
  void Remove(const std::string& key) {
    const auto found = counts_.find(key);
    if (--found->second == 0) counts_.erase(found);
  }

 private:
  absl::flat_hash_map<std::string, size_t> counts_;
};

}  // namespace weir
