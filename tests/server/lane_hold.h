// Holds lanes of a TestServer until the test lets them go.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/base/status_macros.h"
#include "tests/conformance/hold_operator.h"
#include "tests/server/server_fixture.h"

namespace weir::testing {

class LaneHold {
 public:
  // Before the server starts; after whatever sets its `make_device`.
  void AddTo(ServerOptions& options) {
    options.make_device =
        [hold = operator_, make = options.make_device](
            std::string_view which, const DeviceOptions& device,
            OpRegistry& registry) -> absl::StatusOr<std::unique_ptr<Device>> {
      WEIR_RETURN_IF_ERROR(hold->Register(registry));
      return make(which, device, registry);
    };
  }

  // y = x, for x float [4], when it is let go. Those of different numbers are
  // different programs.
  v1::EvaluateRequest Request(int number = 0) const {
    v1::EvaluateRequest request = Program(
        "inputs { name: \"x\" } nodes { domain: \"weir\" op: \"Hold\" "
        "inputs: \"x\" outputs: \"y\" attributes { name: \"number\" i: " +
        std::to_string(number) + " } } outputs: \"y\"");
    AddInput(&request, "x", v1::DATA_TYPE_FLOAT, {4},
             Bytes<float>({1, 2, 3, 4}));
    return request;
  }

  void WaitUntilHeld() { operator_->WaitUntilHeld(); }
  void Open() { operator_->Open(); }

 private:
  const std::shared_ptr<HoldOperator> operator_ =
      std::make_shared<HoldOperator>();
};

// A call that holds a lane, at the latest until this object ends: it ends
// before its server does.
class HeldEvaluate : public PendingEvaluate {
 public:
  HeldEvaluate(TestServer& server, LaneHold& hold, v1::EvaluateRequest request)
      : PendingEvaluate(server, std::move(request)), hold_(hold) {}
  HeldEvaluate(TestServer& server, LaneHold& hold)
      : HeldEvaluate(server, hold, hold.Request()) {}
  ~HeldEvaluate() { hold_.Open(); }

  // Lets it go, and all others of its kind.
  const EvaluateAnswer& Release() {
    hold_.Open();
    return Wait();
  }

 private:
  LaneHold& hold_;
};

}  // namespace weir::testing
