// What probes and balancers are told: sets the readiness that /readyz and the
// services read, and what grpc.health.v1 answers for "" (ready), "live",
// "model/NAME" and each gRPC service; follows what becomes of the device.
// Thread-safe; what it is made of outlives it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "kernels/base/mutex.h"
#include "kernels/device/health.h"
#include "server/models/repository.h"
#include "server/observe/readiness.h"
#include "server/rpc/transport.h"

namespace weir {

// Of several, the first is told.
enum class Fault : uint8_t { kDeviceLost, kThreadHangs };
inline constexpr size_t kFaults = 2;

class Health {
 public:
  // `services` are full names.
  Health(Readiness* readiness, const ModelRepository* models,
         Transport* transport, std::set<std::string> services);

  // What keeps traffic away, or no longer does: "".
  void Set(Unready cause, std::string why);
  // What a restart of the process would mend, or is over: "". While there is
  // anything, nothing is ready either.
  void SetFault(Fault cause, std::string why);
  // "" if there is none.
  std::string fault() const;

  // From now on: with a lost device it is neither ready nor live, with a
  // stalled one not ready until it moves. Of several that stand still, the one
  // that was followed first is told, after its name if it has one. `told` is
  // called after each change, with the device's status() or stall(), on
  // whichever thread noticed it.
  void Follow(DeviceHealth* device,
              std::function<void(const absl::Status&)> told,
              const std::string& name = "");
  // Waits for a call of `told` that another thread is in.
  void Unfollow();

 private:
  void SetStall(size_t device, std::string why);
  void Publish() WEIR_REQUIRES(mu_);

  Readiness* const readiness_;
  const ModelRepository* const models_;
  Transport* const transport_;
  const std::set<std::string> services_;
  mutable Mutex mu_;  // one change at a time
  std::array<std::string, kFaults> faults_ WEIR_GUARDED_BY(mu_);
  // Why each device that it follows stands still; "" for one that moves.
  std::vector<std::string> stalls_ WEIR_GUARDED_BY(mu_);
  std::vector<DeviceHealth::Watch> watches_;  // of those devices
};

}  // namespace weir
