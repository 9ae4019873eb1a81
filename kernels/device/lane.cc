#include "kernels/device/lane.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/device/device.h"

namespace weir {
namespace {

constexpr size_t kMinArena = size_t{64} << 10;
constexpr size_t kArenaStep = size_t{2} << 20;  // beyond it, no powers of two

constexpr absl::Duration kRetryFull = absl::Milliseconds(100);

size_t Rounded(size_t bytes) {
  if (bytes > kArenaStep) {
    return (bytes + kArenaStep - 1) / kArenaStep * kArenaStep;
  }
  return std::bit_ceil(std::max(bytes, kMinArena));
}

}  // namespace

Lane::Lane(std::unique_ptr<Stream> stream, uint64_t number, LaneArenas* arenas)
    : stream_(std::move(stream)), number_(number), arenas_(arenas) {}

Lane::~Lane() {
  arenas_->bytes.fetch_sub(counted_bytes_, std::memory_order_relaxed);
}

absl::Status LaneArenas::Full(size_t wanted) const {
  absl::Status status =
      WithReason(absl::ResourceExhaustedError(absl::StrCat(
                     "no scratch memory of ", wanted, " bytes: lanes hold ",
                     bytes.load(std::memory_order_relaxed), " of ", max,
                     " bytes (", max_name, ")")),
                 "DEVICE_MEMORY_EXHAUSTED");
  // Waiting does not help what can never fit.
  if (wanted > max) return status;
  return WithRetryAfter(std::move(status), kRetryFull);
}

void Lane::CountArena() {
  size_t bytes = arena_.size();
  for (const DeviceMemory& block : outgrown_) bytes += block.size();
  // Unsigned arithmetic wraps, and so a decrease is an addition too.
  arenas_->bytes.fetch_add(bytes - counted_bytes_, std::memory_order_relaxed);
  counted_bytes_ = bytes;
}

bool Lane::HasArena(size_t bytes) const {
  return bytes <= arena_.size() && (outgrown_.empty() || !stream_->idle());
}

void Lane::DropArena() {
  outgrown_.clear();
  arena_.Reset();
  CountArena();
}

size_t Lane::ArenaSize(size_t bytes) const {
  return bytes > arenas_->max ? bytes : std::min(Rounded(bytes), arenas_->max);
}

absl::Status Lane::GrowArena(size_t bytes, bool idle,
                             absl::FunctionRef<bool()> drop_idle) {
  if (idle) {
    outgrown_.clear();
    if (bytes > arena_.size()) arena_.Reset();
    CountArena();
    if (bytes <= arena_.size()) return absl::OkStatus();
  }
  const size_t size = ArenaSize(bytes);
  // Counted before it is there, so that two lanes do not take the same room.
  const auto fits = [this, size] {
    const size_t total =
        arenas_->bytes.fetch_add(size, std::memory_order_relaxed) + size;
    if (total <= arenas_->max) return true;
    arenas_->bytes.fetch_sub(size, std::memory_order_relaxed);
    return false;
  };
  bool room = fits();
  while (!room && size <= arenas_->max && drop_idle()) room = fits();
  if (!room) return arenas_->Full(size);
  absl::StatusOr<DeviceMemory> larger = stream_->device().Allocate(size);
  while (absl::IsResourceExhausted(larger.status()) && drop_idle()) {
    larger = stream_->device().Allocate(size);
  }
  if (!larger.ok()) {
    arenas_->bytes.fetch_sub(size, std::memory_order_relaxed);
    return std::move(larger).status();
  }
  counted_bytes_ += size;
  // Work may still use the smaller one.
  if (arena_.data() != nullptr) outgrown_.push_back(std::move(arena_));
  arena_ = *std::move(larger);
  CountArena();
  return absl::OkStatus();
}

absl::StatusOr<std::byte*> Lane::Arena(size_t bytes) {
  if (!HasArena(bytes)) {
    WEIR_RETURN_IF_ERROR(GrowArena(bytes, stream_->idle(), arenas_->drop_idle));
  }
  return static_cast<std::byte*>(arena_.data());
}

std::byte* Lane::ArenaNow(size_t bytes) {
  if (!HasArena(bytes)) {
    const size_t quick = stream_->device().quick_bytes();
    const bool idle = stream_->idle();
    if (ArenaSize(bytes) > quick || (idle && counted_bytes_ > quick) ||
        !GrowArena(bytes, idle, [] { return false; }).ok()) {
      return nullptr;
    }
  }
  return static_cast<std::byte*>(arena_.data());
}

}  // namespace weir
