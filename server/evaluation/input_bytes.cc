#include "server/evaluation/input_bytes.h"

#include <cstring>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "server/bytes/bytes_elements.h"

namespace weir {
namespace {

// A client may send a message in pieces of a byte. Shorter ones than this, by
// and large, are joined, so that the list of others is a small part of them.
constexpr size_t kSmallPiece = 16 * sizeof(std::string_view);

std::string_view View(BytePiece piece) {
  return {reinterpret_cast<const char*>(piece.data()), piece.size()};
}

// Whether every byte is 0 or 1. Most are: looked at eight at a time.
bool AreBooleans(const ByteView& raw) {
  constexpr uint64_t kOthers = 0xFEFEFEFEFEFEFEFE;
  uint64_t seen = 0;
  for (BytePiece piece : raw.pieces()) {
    size_t i = 0;
    for (; i + sizeof(uint64_t) <= piece.size(); i += sizeof(uint64_t)) {
      uint64_t word;
      std::memcpy(&word, piece.data() + i, sizeof(word));
      seen |= word;
    }
    for (; i < piece.size(); ++i) seen |= static_cast<uint64_t>(piece[i]);
  }
  return (seen & kOthers) == 0;
}

absl::StatusOr<std::span<const std::byte>> AsBooleans(const ByteView& raw,
                                                      CallArena* arena) {
  WEIR_ASSIGN_OR_RETURN(const std::span<std::byte> booleans,
                        arena->TryAllocateSpan<std::byte>(raw.size()));
  raw.CopyTo(booleans.data());
  for (std::byte& byte : booleans) byte = std::byte{byte != std::byte{0}};
  return std::span<const std::byte>(booleans);
}

absl::Status FillStrings(int64_t count, const ByteView& raw, CallArena* arena,
                         InputSource* input) {
  // Each element takes at least its length, so that the count is bounded by the
  // message before memory is taken for it.
  if (static_cast<uint64_t>(count) > raw.size() / sizeof(uint32_t)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the shape asks for ", count, " strings; the ", raw.size(),
                     " bytes given cannot hold them"));
  }
  WEIR_ASSIGN_OR_RETURN(
      const std::span<StringRef> strings,
      arena->TryAllocateSpan<StringRef>(static_cast<size_t>(count)));
  WEIR_RETURN_IF_ERROR(SplitStrings(raw, arena, strings));
  input->pieces.push_back(
      {reinterpret_cast<const char*>(strings.data()), strings.size_bytes()});
  return absl::OkStatus();
}

}  // namespace

absl::Status FillInput(DType dtype, std::span<const int64_t> shape,
                       const ByteView& raw, bool on_host, CallArena* arena,
                       InputSource* input) {
  input->dtype = dtype;
  input->dims.assign(shape.begin(), shape.end());
  input->pieces.clear();
  WEIR_ASSIGN_OR_RETURN(const int64_t elements, NumElements(input->dims));
  WEIR_ASSIGN_OR_RETURN(const int64_t bytes, ByteSize(dtype, input->dims));
  if (dtype == DType::kString) {
    return FillStrings(elements, raw, arena, input);
  }
  if (raw.size() != static_cast<size_t>(bytes)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "has ", raw.size(), " bytes; its type and shape need ", bytes));
  }
  if (dtype == DType::kBool && !AreBooleans(raw)) {
    WEIR_ASSIGN_OR_RETURN(const std::span<const std::byte> booleans,
                          AsBooleans(raw, arena));
    input->pieces.push_back(View(booleans));
    return absl::OkStatus();
  }
  // A list of many small pieces would take more than they do.
  const bool small = raw.pieces().size() > raw.size() / kSmallPiece;
  if (raw.contiguous() || (!on_host && !small)) {
    input->pieces.reserve(raw.pieces().size());
    for (BytePiece piece : raw.pieces()) input->pieces.push_back(View(piece));
    if (raw.pieces().empty()) input->pieces.push_back({});
    return absl::OkStatus();
  }
  WEIR_ASSIGN_OR_RETURN(const std::span<std::byte> joined,
                        arena->TryAllocateSpan<std::byte>(raw.size()));
  raw.CopyTo(joined.data());
  input->pieces.push_back(View(joined));
  return absl::OkStatus();
}

absl::Status TextElements::Take(DType dtype, absl::Span<const int64_t> shape) {
  if (dtype != DType::kString) return absl::OkStatus();
  WEIR_ASSIGN_OR_RETURN(const int64_t elements, NumElements(shape));
  if (elements > kMaxTextElements - taken_) {
    const std::string total = absl::StrCat(static_cast<uint64_t>(elements) +
                                           static_cast<uint64_t>(taken_));
    return WithReason(
        absl::ResourceExhaustedError(
            absl::StrCat("has ", elements,
                         " BYTES elements, with those of the inputs "
                         "before it ",
                         total, "; all inputs of a request may have ",
                         kMaxTextElements, ": send less in one request")),
        "TOO_MANY_TEXT_ELEMENTS",
        {{"elements", total}, {"limit", absl::StrCat(kMaxTextElements)}});
  }
  taken_ += elements;
  return absl::OkStatus();
}

}  // namespace weir
