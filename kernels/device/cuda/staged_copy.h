// Pinned memory through which data made on the host, such as decoded pictures,
// travels to the device. Kept for later copies; bounded. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "absl/status/status.h"
#include "kernels/device/cuda/in_flight_pool.h"
#include "kernels/device/stream.h"

namespace weir::cuda {

class StagedCopies {
 public:
  StagedCopies() : staging_(kMaxInFlight, kMaxBytes) {}

  // Lets `fill` write `bytes` of pinned memory, then copies them to `target`.
  // Waits while too many copies are in flight, and as long as `go_on` is OK.
  // RESOURCE_EXHAUSTED as InFlightPool for what is too large.
  // REQUIRES: called inside StreamTask::Launch, on a thread that may wait.
  absl::Status CopyFilled(
      Stream& stream, size_t bytes, void* target,
      const std::function<absl::Status(std::span<uint8_t>)>& fill,
      Stream::GoOn go_on);

  // As Device::TrimOne.
  bool TrimOne(Nanos before) { return staging_.TrimOne(before); }

 private:
  static constexpr size_t kMaxInFlight = 256;
  static constexpr size_t kMaxBytes = size_t{512} << 20;

  struct Staging {
    uint8_t* data = nullptr;
    size_t size = 0;
    Staging() = default;
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;
    ~Staging();
  };

  InFlightPool<Staging> staging_;
};

}  // namespace weir::cuda
