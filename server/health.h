// What probes and balancers are told. The one owner of the readiness that
// /readyz, /healthz and the services read, and of what grpc.health.v1 answers
// for "" (ready), "live", "model/NAME" and each gRPC service; follows what
// becomes of the devices. Thread-safe.
#pragma once

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

class Health {
 public:
  // Nothing but loading keeps traffic away yet.
  Health() = default;

  const Readiness& readiness() const { return readiness_; }

  // What keeps traffic away, or no longer does: "". While there is a fault,
  // nothing is ready either. True if the cause came or went.
  bool Set(Unready cause, std::string why);

  // From now on gRPC's health says it too. `services` are full names; the
  // others outlive every change.
  void Tell(Transport* transport, const ModelRepository* models,
            std::set<std::string> services);

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
  bool SetLocked(Unready cause, std::string why) WEIR_REQUIRES(mu_);
  void SetStall(size_t device, std::string why);
  void Publish() WEIR_REQUIRES(mu_);

  Readiness readiness_;
  mutable Mutex mu_;                                     // one change at a time
  Transport* transport_ WEIR_GUARDED_BY(mu_) = nullptr;  // null: none is told
  const ModelRepository* models_ WEIR_GUARDED_BY(mu_) = nullptr;
  std::set<std::string> services_ WEIR_GUARDED_BY(mu_);
  // Why each device that it follows stands still; "" for one that moves.
  std::vector<std::string> stalls_ WEIR_GUARDED_BY(mu_);
  std::vector<DeviceHealth::Watch> watches_;  // of those devices
};

}  // namespace weir
