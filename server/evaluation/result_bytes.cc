#include "server/evaluation/result_bytes.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/base/error_info.h"
#include "kernels/base/long_step_bytes.h"
#include "kernels/base/saturating.h"
#include "kernels/base/status_macros.h"
#include "server/bytes/bytes_elements.h"

namespace weir {
namespace {

// A reply that has less than this part of an evaluation's results holds none of
// their memory: what it holds and what it counts for differ by no more.
constexpr size_t kSmallPart = 4;

constexpr absl::Duration kCopyRetry = absl::Milliseconds(20);

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

// bytes_of(i) is what output i takes in a reply.
absl::Status CheckOutputs(const Work& work, const ReplyRoom& room,
                          absl::FunctionRef<size_t(size_t i)> bytes_of) {
  const auto& wishes = work.request.outputs;
  int64_t all = 0;
  int64_t most = -1;
  size_t largest = 0;
  for (size_t i = 0; i < wishes.size(); ++i) {
    if (wishes[i] != OutputWish::kInline) continue;
    const int64_t bytes = static_cast<int64_t>(bytes_of(i));
    all = SaturatingAdd(all, bytes);
    if (bytes > most) largest = i;
    most = std::max(most, bytes);
  }
  absl::Status fits = room.CheckReply(static_cast<size_t>(all));
  if (fits.ok()) return fits;
  return Annotate(
      fits,
      absl::StrCat("output \"", work.request.program->outputs()[largest].name,
                   "\" has ", most, " bytes: "));
}

}  // namespace

absl::Status CheckPlannedOutputs(const Work& work, const ReplyRoom& room) {
  const auto& outputs = work.plan()->outputs();
  return CheckOutputs(work, room, [&](size_t i) {
    const TensorMeta& meta = outputs[i].meta;
    return meta.dtype == DType::kString
               ? static_cast<size_t>(meta.elements) * sizeof(uint32_t)
               : meta.bytes;
  });
}

ResultBytes::ResultBytes(WorkResults& results, std::span<const size_t> wanted)
    : results_(results), wanted_(wanted) {
  const Work& work = results_.work();
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
    small_part_ = bytes < results_.bytes() / kSmallPart;
    copies_ = small_part_ || results_.pool().lends_much();
  }
  step_bytes_ =
      text + (copies_ ? bytes : 0) + wanted_.size() * kLongStepTensorBytes;
}

absl::Status ResultBytes::Prepare(size_t described, ReplyRoom& room) {
  const Work& work = results_.work();
  int references = 0;
  size_t bytes = 0;
  size_t referenced = 0;  // of them
  size_t text_bytes = 0;
  WEIR_RETURN_IF_ERROR(CheckOutputs(work, room, [&](size_t i) {
    return work.OutputMeta(i).dtype == DType::kString
               ? StringsSize(Strings(work, i))
               : work.OutputMeta(i).bytes;
  }));
  for (size_t i : wanted_) {
    const TensorMeta& meta = work.OutputMeta(i);
    if (meta.dtype == DType::kString) {
      text_bytes += StringsSize(Strings(work, i));
      continue;
    }
    bytes += meta.bytes;
    if (meta.bytes <= kCopiedReplyBytes) continue;
    ++references;
    referenced += meta.bytes;
  }
  const size_t copied = copies_ ? bytes : bytes - referenced;
  absl::Status charged = room.ChargeReply(described + text_bytes + copied);
  if (!charged.ok()) {
    if (!copies_ || small_part_) return charged;
    // Another time it may be lent.
    return WithRetryAfter(
        Annotate(charged,
                 "replies that are not sent yet hold half of the device's "
                 "pinned memory, and this one would have to be copied: "),
        kCopyRetry);
  }
  if (references == 0 || copies_) return absl::OkStatus();
  // The bytes stay where they are; only who frees them changes.
  const size_t lent = results_.bytes();
  beside_ = lent - std::min(lent, referenced);
  shared_ = results_.Share(references);
  return absl::OkStatus();
}

ForeignBytes ResultBytes::Take(size_t output) {
  const Work& work = results_.work();
  const TensorMeta& meta = work.OutputMeta(output);
  const absl::Span<const std::byte> bytes = work.OutputBytes(output);
  if (meta.dtype == DType::kString) {
    return Owned(WriteStrings(Strings(work, output)));
  }
  // A reply copies it while it is made.
  if (bytes.size() <= kCopiedReplyBytes) {
    return {bytes.data(), bytes.size(), [](void*) {}, nullptr};
  }
  if (copies_) {
    return Owned(
        std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  return {bytes.data(), bytes.size(), shared_.release, shared_.arg,
          std::exchange(beside_, 0)};
}

}  // namespace weir
