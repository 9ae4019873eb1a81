// The bytes of a model's tensors that lie in files beside it. Whoever imports
// the model tells of all of them before reading any: each byte that tensors
// name is read once, however many name it, and no other. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/stop_token.h"

namespace weir {

struct ExternalPlace {
  std::string_view location;  // path beside the model
  uint64_t offset = 0;
  uint64_t length = 0;
};

class ExternalData {
 public:
  // An empty folder: no external data is allowed. CANCELLED from `stop` on.
  ExternalData(std::string folder, StopToken stop)
      : folder_(std::move(folder)), stop_(std::move(stop)) {}

  // That Read will be asked for this, unless the import fails before.
  void Expect(const ExternalPlace& place);

  // Lives as long as its owner. What no other tensor's bytes touch has an owner
  // of its own and begins aligned (aligned_bytes.h). INVALID_ARGUMENT (paths,
  // bounds), RESOURCE_EXHAUSTED, and what ModelFile says.
  struct Bytes {
    const std::byte* data = nullptr;
    std::shared_ptr<const void> owner;
  };
  absl::StatusOr<Bytes> Read(const ExternalPlace& place);

 private:
  struct Part {
    uint64_t end = 0;
    std::shared_ptr<const std::byte[]> bytes;
  };
  struct File {
    bool read = false;
    uint64_t size = 0;
    // Where parts begin; they share no byte once the file was read.
    std::map<uint64_t, Part> parts;
  };

  // By what the location leads to: files have many names.
  const absl::StatusOr<std::string>& PathOf(std::string_view location);
  absl::Status ReadFile(const std::string& path, File* file);

  const std::string folder_;
  const StopToken stop_;
  std::map<std::string, absl::StatusOr<std::string>, std::less<>> paths_;
  std::map<std::string, File, std::less<>> files_;
};

}  // namespace weir
