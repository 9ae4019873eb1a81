// Any bytes of a connection have a verdict, and it stays. Coming in more reads
// never makes them better. The first byte says how large the reads are.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "server/rpc/frame_meter.h"

namespace weir {
namespace {

using Verdict = FrameMeter::Verdict;

constexpr size_t kHeaderBytes = 1000;
// Of more some messages may be forgotten.
constexpr size_t kMostBytes = size_t{16} << 10;

void Check(bool holds) {
  if (!holds) std::abort();
}

void CheckAny(const uint8_t* bytes, size_t size) {
  if (size == 0 || size > kMostBytes) return;
  const size_t read = size_t{bytes[0]} + 1;
  ++bytes;
  --size;
  FrameMeter at_once(kHeaderBytes);
  const Verdict of_all = at_once.Take(bytes, size);
  Check(at_once.Take(bytes, size) == of_all || of_all == Verdict::kFine);

  FrameMeter in_reads(kHeaderBytes);
  Verdict verdict = Verdict::kFine;
  for (size_t at = 0; at < size; at += read) {
    const Verdict now = in_reads.Take(bytes + at, std::min(read, size - at));
    Check(now == verdict || verdict == Verdict::kFine);
    verdict = now;
  }
  Check(of_all == Verdict::kFine || verdict != Verdict::kFine);
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weir::CheckAny(data, size);
  return 0;
}
