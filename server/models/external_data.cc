#include "server/models/external_data.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"
#include "server/models/aligned_bytes.h"
#include "server/models/model_file.h"

namespace weir {
namespace {

// Between two looks at whether the server stops.
constexpr uint64_t kStepBytes = uint64_t{64} << 20;

bool Within(const ExternalPlace& place, uint64_t size) {
  return place.offset <= size && place.length <= size - place.offset;
}

}  // namespace

const absl::StatusOr<std::string>& ExternalData::PathOf(
    std::string_view location) {
  const auto it = paths_.find(location);
  if (it != paths_.end()) return it->second;
  return paths_
      .emplace(location,
               folder_.empty()
                   ? absl::InvalidArgumentError(
                         "external data is only read from a model repository")
                   : ResolveInside(folder_, location))
      .first->second;
}

void ExternalData::Expect(const ExternalPlace& place) {
  if (folder_.empty()) return;
  const auto& path = PathOf(place.location);
  // Bounds that wrap are for Read to refuse.
  if (!path.ok() || place.length == 0 ||
      place.offset > UINT64_MAX - place.length) {
    return;
  }
  uint64_t& end = files_[*path].parts[place.offset].end;
  end = std::max(end, place.offset + place.length);
}

absl::Status ExternalData::ReadFile(const std::string& path, File* file) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<ModelFile> from,
                        ModelFile::Open(path));
  file->size = from->size();
  std::map<uint64_t, Part> joined;
  for (const auto& [begin, part] : file->parts) {
    if (begin >= file->size) break;
    // What lies beyond the file is for Read to refuse.
    const uint64_t end = std::min(part.end, file->size);
    if (!joined.empty() && begin < std::prev(joined.end())->second.end) {
      uint64_t& joined_end = std::prev(joined.end())->second.end;
      joined_end = std::max(joined_end, end);
    } else {
      joined.emplace_hint(joined.end(), begin, Part{end, nullptr});
    }
  }
  file->parts = std::move(joined);
  for (auto& [begin, part] : file->parts) {
    AlignedBytes bytes = TryMakeBytes(part.end - begin);
    if (bytes == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat("no memory for ", part.end - begin, " bytes of ", path));
    }
    for (uint64_t at = begin; at < part.end; at += kStepBytes) {
      if (stop_.stop_requested()) {
        return absl::CancelledError("the server stops");
      }
      WEIR_RETURN_IF_ERROR(
          from->Read(at, reinterpret_cast<char*>(bytes.get()) + (at - begin),
                     static_cast<size_t>(std::min(kStepBytes, part.end - at))));
    }
    part.bytes = std::move(bytes);
  }
  file->read = true;
  return absl::OkStatus();
}

absl::StatusOr<ExternalData::Bytes> ExternalData::Read(
    const ExternalPlace& place) {
  const auto& path = PathOf(place.location);
  if (!path.ok()) return path.status();
  File& file = files_[*path];
  if (!file.read) WEIR_RETURN_IF_ERROR(ReadFile(*path, &file));
  if (!Within(place, file.size)) {
    return absl::InvalidArgumentError(
        absl::StrCat("external data: bytes ", place.offset, " to ",
                     place.offset, "+", place.length, " lie beyond the ",
                     file.size, " bytes of ", QuoteStart(place.location)));
  }
  if (place.length == 0) return Bytes();
  auto it = file.parts.upper_bound(place.offset);
  if (it == file.parts.begin() ||
      place.offset + place.length > (--it)->second.end) {
    return absl::InternalError("nobody told of this external data");
  }
  return Bytes{it->second.bytes.get() + (place.offset - it->first),
               it->second.bytes};
}

}  // namespace weir
