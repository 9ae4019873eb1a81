#include "server/spaces_options.h"

#include <algorithm>
#include <limits>

#include "kernels/graph/program_cache.h"

namespace weir {
namespace {

uint64_t Times(uint64_t amount, uint64_t times) {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  return amount > kMost / times ? kMost : amount * times;
}

}  // namespace

SpacesOptions MakeSpacesOptions(const ServerOptions& options,
                                uint64_t tensor_bytes,
                                SpaceToken::Origin origin) {
  SpacesOptions spaces;
  spaces.lease = absl::ToInt64Nanoseconds(options.space_lease);
  spaces.origin = origin;
  Amounts& space = spaces.space;
  space[Holding::kTensorBytes] = options.space_tensor_bytes != 0
                                     ? options.space_tensor_bytes
                                     : options.tensor_bytes / 4;
  space[Holding::kTensors] = options.space_tensors;
  space[Holding::kContexts] = options.space_contexts;
  space[Holding::kTimelines] = options.space_timelines;
  space[Holding::kWorks] = options.space_works;
  space[Holding::kSessions] = options.space_sessions;
  // Works wait with their inputs in pinned memory, and hold programs; calls
  // that wait keep their places in the queue. Half of each is others'.
  const size_t program_bytes = ProgramCacheOptions().max_bytes;
  space[Holding::kInputBytes] = options.host_bytes / (2 * kIdentityTimes);
  space[Holding::kProgramBytes] = program_bytes / (2 * kIdentityTimes);
  space[Holding::kWaits] =
      std::max<uint64_t>(1, options.queue_length / (2 * kIdentityTimes));
  for (size_t i = 0; i < kHoldings; ++i) {
    const auto what = static_cast<Holding>(i);
    spaces.identity[what] = Times(space[what], kIdentityTimes);
    spaces.server[what] = Times(space[what], kServerTimes);
  }
  spaces.server[Holding::kTensorBytes] = tensor_bytes;
  spaces.server[Holding::kInputBytes] = options.host_bytes / 2;
  spaces.server[Holding::kProgramBytes] = program_bytes / 2;
  spaces.server[Holding::kWaits] =
      std::max<uint64_t>(1, options.queue_length / 2);
  spaces.server[Holding::kSpaces] = options.max_spaces;
  spaces.identity[Holding::kSpaces] =
      std::max<uint64_t>(1, options.max_spaces / kIdentityPart);
  return spaces;
}

}  // namespace weir
