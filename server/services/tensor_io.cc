#include "server/services/tensor_io.h"

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace weir {
namespace {

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

std::span<const std::byte> AsBooleans(const ByteView& raw, CallArena* arena) {
  const std::span<std::byte> booleans =
      arena->AllocateSpan<std::byte>(raw.size());
  raw.CopyTo(booleans.data());
  for (std::byte& byte : booleans) byte = std::byte{byte != std::byte{0}};
  return booleans;
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
  const std::span<StringRef> strings =
      arena->AllocateSpan<StringRef>(static_cast<size_t>(count));
  WEIR_RETURN_IF_ERROR(SplitStrings(raw, arena, strings));
  input->pieces.push_back(
      {reinterpret_cast<const char*>(strings.data()), strings.size_bytes()});
  return absl::OkStatus();
}

void ReleaseString(void* arg) { delete static_cast<std::string*>(arg); }

}  // namespace

absl::Status FillInput(DType dtype, std::span<const int64_t> shape,
                       const ByteView& raw, bool on_host, CallArena* arena,
                       InputSource* input) {
  input->dtype = dtype;
  input->dims.assign(shape.begin(), shape.end());
  input->pieces.clear();
  WEIR_ASSIGN_OR_RETURN(const int64_t elements, NumElements(input->dims));
  WEIR_RETURN_IF_ERROR(ByteSize(dtype, input->dims).status());
  if (dtype == DType::kString) {
    return FillStrings(elements, raw, arena, input);
  }
  if (dtype == DType::kBool && !AreBooleans(raw)) {
    input->pieces.push_back(View(AsBooleans(raw, arena)));
    return absl::OkStatus();
  }
  if (raw.contiguous() || !on_host) {
    for (BytePiece piece : raw.pieces()) input->pieces.push_back(View(piece));
    if (raw.pieces().empty()) input->pieces.push_back({});
    return absl::OkStatus();
  }
  const std::span<std::byte> joined =
      arena->AllocateSpan<std::byte>(raw.size());
  raw.CopyTo(joined.data());
  input->pieces.push_back(View(joined));
  return absl::OkStatus();
}

int FindValue(const std::vector<ValueDecl>& declared, std::string_view name) {
  for (size_t i = 0; i < declared.size(); ++i) {
    if (declared[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

OutputBytes::OutputBytes(CallEvaluation& evaluation,
                         std::span<const size_t> wanted)
    : evaluation_(evaluation) {
  int references = 0;
  for (size_t i : wanted) {
    if (evaluation.work().OutputMeta(i).dtype != DType::kString) ++references;
  }
  // The bytes stay where they are; only who frees them changes.
  if (references > 0) results_ = evaluation.ShareResults(references);
}

ForeignBytes OutputBytes::Take(size_t output) {
  const Work& work = evaluation_.work();
  const TensorMeta& meta = work.OutputMeta(output);
  const absl::Span<const std::byte> bytes = work.OutputBytes(output);
  if (meta.dtype != DType::kString) {
    return {bytes.data(), bytes.size(), results_.release, results_.arg};
  }
  auto text = std::make_unique<std::string>();
  const auto* strings = reinterpret_cast<const StringRef*>(bytes.data());
  for (int64_t i = 0; i < meta.elements; ++i) {
    const uint32_t size = static_cast<uint32_t>(strings[i].size);
    text->append(reinterpret_cast<const char*>(&size), sizeof(size));
    text->append(strings[i].data, strings[i].size);
  }
  std::string* const owned = text.release();
  return {owned->data(), owned->size(), ReleaseString, owned};
}

}  // namespace weir
