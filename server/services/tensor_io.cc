#include "server/services/tensor_io.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "server/bytes/bytes_elements.h"
#include "server/services/long_step.h"

namespace weir {
namespace {

// A reply that has less than this part of an evaluation's results holds none of
// their memory: what it holds and what it counts for differ by no more.
constexpr size_t kSmallPart = 4;

constexpr absl::Duration kCopyRetry = absl::Milliseconds(20);

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

// Bytes on the heap, freed when the reply is sent.
ForeignBytes Owned(std::string bytes) {
  auto* const owned = new std::string(std::move(bytes));
  return {owned->data(), owned->size(),
          [](void* arg) { delete static_cast<std::string*>(arg); }, owned};
}

std::span<const StringRef> Strings(const Work& work, size_t output) {
  return {reinterpret_cast<const StringRef*>(work.OutputBytes(output).data()),
          static_cast<size_t>(work.OutputMeta(output).elements)};
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

OutputBytes::OutputBytes(CallEvaluation& evaluation,
                         std::span<const size_t> wanted)
    : evaluation_(evaluation), wanted_(wanted) {
  const Work& work = evaluation_.work();
  size_t text = 0;
  size_t bytes = 0;
  for (size_t i : wanted_) {
    const TensorMeta& meta = work.OutputMeta(i);
    if (meta.dtype != DType::kString) {
      bytes += meta.bytes;
      continue;
    }
    text += meta.bytes;
    // How long so many strings are is itself long to find out.
    if (text <= kLongStepBytes) text += StringsSize(Strings(work, i));
  }
  // Readers may be slow, and evaluations need pinned memory: a small part must
  // not hold the whole, whatever it costs to copy it.
  if (bytes > kCopiedReplyBytes) {
    small_part_ = bytes < evaluation_.result_bytes() / kSmallPart;
    copies_ = small_part_ || evaluation_.engine().pinned().lends_much();
  }
  step_bytes_ =
      text + (copies_ ? bytes : 0) + wanted_.size() * kLongStepTensorBytes;
}

absl::Status OutputBytes::Prepare(size_t described) {
  const Work& work = evaluation_.work();
  int references = 0;
  size_t bytes = 0;
  size_t referenced = 0;  // of them: see BuildEvaluateReply, BuildInferReply
  size_t text_bytes = 0;
  WEIR_RETURN_IF_ERROR(evaluation_.CheckOutputs([&](size_t i) {
    return work.OutputMeta(i).dtype == DType::kString
               ? StringsSize(Strings(work, i))
               : work.OutputMeta(i).bytes;
  }));
  for (size_t i : wanted_) {
    const TensorMeta& meta = work.OutputMeta(i);
    if (meta.dtype == DType::kString) {
      text_bytes += StringsSize(Strings(work, i));
    } else {
      ++references;
      bytes += meta.bytes;
      if (meta.bytes > kCopiedReplyBytes) referenced += meta.bytes;
    }
  }
  const size_t copied = copies_ ? bytes : bytes - referenced;
  absl::Status room =
      evaluation_.call().ChargeReply(described + text_bytes + copied);
  if (!room.ok()) {
    if (!copies_ || small_part_) return room;
    // Another time it may be lent.
    return WithRetryAfter(
        Annotate(room,
                 "replies that are not sent yet hold half of the device's "
                 "pinned memory, and this one would have to be copied: "),
        kCopyRetry);
  }
  if (references == 0 || copies_) return absl::OkStatus();
  // The bytes stay where they are; only who frees them changes.
  const size_t lent = evaluation_.result_bytes();
  beside_ = lent - std::min(lent, referenced);
  results_ = evaluation_.ShareResults(references);
  return absl::OkStatus();
}

ForeignBytes OutputBytes::Take(size_t output) {
  const Work& work = evaluation_.work();
  const TensorMeta& meta = work.OutputMeta(output);
  const absl::Span<const std::byte> bytes = work.OutputBytes(output);
  if (meta.dtype == DType::kString) {
    return Owned(WriteStrings(Strings(work, output)));
  }
  if (copies_) {
    return Owned(
        std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  ForeignBytes lent{bytes.data(), bytes.size(), results_.release, results_.arg};
  if (bytes.size() > kCopiedReplyBytes) lent.beside = std::exchange(beside_, 0);
  return lent;
}

}  // namespace weir
