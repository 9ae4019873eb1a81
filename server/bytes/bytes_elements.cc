#include "server/bytes/bytes_elements.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/base/saturating.h"
#include "kernels/base/status_macros.h"

namespace weir {
namespace {

// Where reading is in a list of pieces. Takes no more than is left.
class Cursor {
 public:
  explicit Cursor(const ByteView& bytes)
      : pieces_(bytes.pieces()), left_(bytes.size()) {}

  size_t left() const { return left_; }

  // The next `count` bytes where they lie; null if they are in several pieces.
  const std::byte* TakeWhole(size_t count) {
    SkipEmpty();
    if (count > 0 && pieces_.front().size() - at_ < count) return nullptr;
    const std::byte* const bytes =
        count == 0 ? nullptr : pieces_.front().data() + at_;
    at_ += count;
    left_ -= count;
    return bytes;
  }

  void Copy(std::byte* out, size_t count) {
    while (count > 0) {
      SkipEmpty();
      const size_t here = std::min(count, pieces_.front().size() - at_);
      std::memcpy(out, pieces_.front().data() + at_, here);
      out += here;
      at_ += here;
      left_ -= here;
      count -= here;
    }
  }

 private:
  void SkipEmpty() {
    while (!pieces_.empty() && at_ == pieces_.front().size()) {
      pieces_ = pieces_.subspan(1);
      at_ = 0;
    }
  }

  std::span<const BytePiece> pieces_;
  size_t at_ = 0;  // in the first
  size_t left_;
};

absl::StatusOr<StringRef> TakeString(Cursor& cursor, size_t size,
                                     CallArena* arena) {
  const std::byte* bytes = cursor.TakeWhole(size);
  if (size > 0 && bytes == nullptr) {
    WEIR_ASSIGN_OR_RETURN(const std::span<std::byte> copy,
                          arena->TryAllocateSpan<std::byte>(size));
    cursor.Copy(copy.data(), size);
    bytes = copy.data();
  }
  return StringRef{reinterpret_cast<const char*>(bytes), size};
}

}  // namespace

absl::Status SplitStrings(const ByteView& raw, CallArena* arena,
                          std::span<StringRef> out) {
  Cursor cursor(raw);
  for (size_t i = 0; i < out.size(); ++i) {
    uint32_t size = 0;
    const bool has_size = cursor.left() >= sizeof(size);
    if (has_size) {
      cursor.Copy(reinterpret_cast<std::byte*>(&size), sizeof(size));
    }
    if (!has_size || cursor.left() < size) {
      return absl::InvalidArgumentError(absl::StrCat(
          "BYTES element ", i, " of ", out.size(),
          " runs past the end of the tensor's ", raw.size(), " bytes"));
    }
    WEIR_ASSIGN_OR_RETURN(out[i], TakeString(cursor, size, arena));
  }
  if (cursor.left() > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(cursor.left(), " bytes follow the last of ", out.size(),
                     " BYTES elements"));
  }
  return absl::OkStatus();
}

size_t StringsSize(std::span<const StringRef> strings) {
  int64_t bytes = static_cast<int64_t>(strings.size() * sizeof(uint32_t));
  for (const StringRef& string : strings) {
    bytes = SaturatingAdd(bytes, static_cast<int64_t>(string.size));
  }
  return static_cast<size_t>(bytes);
}

std::string WriteStrings(std::span<const StringRef> strings) {
  std::string text;
  text.reserve(StringsSize(strings));
  for (const StringRef& string : strings) {
    const auto size = static_cast<uint32_t>(string.size);
    text.append(reinterpret_cast<const char*>(&size), sizeof(size));
    text.append(string.data, string.size);
  }
  return text;
}

absl::StatusOr<StringRef> InOnePiece(const ByteView& view, CallArena* arena) {
  StringRef text{nullptr, view.size()};
  if (!view.contiguous()) {
    WEIR_ASSIGN_OR_RETURN(const std::span<std::byte> copy,
                          arena->TryAllocateSpan<std::byte>(view.size()));
    view.CopyTo(copy.data());
    text.data = reinterpret_cast<const char*>(copy.data());
  } else if (!view.empty()) {
    text.data = reinterpret_cast<const char*>(view.pieces()[0].data());
  }
  return text;
}

}  // namespace weir
