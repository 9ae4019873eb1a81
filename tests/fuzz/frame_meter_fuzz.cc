// Any bytes of a connection have a verdict, and it stays. Coming in more reads
// never makes them better. Nothing is changed but flags, and the meter stays
// small. The first byte says how large the reads are.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "server/rpc/frame_meter.h"

namespace weir {
namespace {

using Verdict = FrameMeter::Verdict;

constexpr size_t kHeaderBytes = 1000;
// Of more some messages may be forgotten.
constexpr size_t kMostBytes = size_t{16} << 10;
constexpr size_t kMostMeterBytes = (size_t{32} << 10) + 512;

void Check(bool holds) {
  if (!holds) std::abort();
}

void CheckChanges(const FrameMeter& meter, const uint8_t* before,
                  const std::vector<uint8_t>& after) {
  uint64_t changed = 0;
  for (size_t i = 0; i < after.size(); ++i) {
    if (before[i] == after[i]) continue;
    ++changed;
    Check((before[i] ^ after[i]) == FrameMeter::kEndingFlag);
  }
  // Flags may have been set before; streams that are forgotten are one.
  if (meter.ended_streams() == 0) Check(changed == 0);
  Check(meter.bytes() <= kMostMeterBytes);
}

void CheckAny(const uint8_t* bytes, size_t size) {
  if (size == 0 || size > kMostBytes) return;
  const size_t read = size_t{bytes[0]} + 1;
  ++bytes;
  --size;
  std::vector<uint8_t> taken(bytes, bytes + size);
  FrameMeter at_once(kHeaderBytes);
  const Verdict of_all = at_once.Take(taken.data(), size);
  CheckChanges(at_once, bytes, taken);
  Check(at_once.Take(taken.data(), size) == of_all || of_all == Verdict::kFine);

  taken.assign(bytes, bytes + size);
  FrameMeter in_reads(kHeaderBytes);
  Verdict verdict = Verdict::kFine;
  for (size_t at = 0; at < size; at += read) {
    const Verdict now =
        in_reads.Take(taken.data() + at, std::min(read, size - at));
    Check(now == verdict || verdict == Verdict::kFine);
    verdict = now;
  }
  CheckChanges(in_reads, bytes, taken);
  Check(of_all == Verdict::kFine || verdict != Verdict::kFine);
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weir::CheckAny(data, size);
  return 0;
}
