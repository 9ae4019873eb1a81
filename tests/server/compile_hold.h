// Holds whatever is compiled with weir.HoldCompile, models of a TestServer
// while they are loaded or graphs of its callers, until the test lets it go.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>

#include "kernels/base/status_macros.h"
#include "kernels/ops/registry.h"
#include "tests/base/event.h"
#include "tests/graph/copy_operator.h"
#include "tests/models/onnx_model.h"
#include "tests/server/server_fixture.h"

namespace weir::testing {

class CompileHold {
 public:
  // Before the server starts; after whatever sets its `make_device`.
  void AddTo(ServerOptions& options) {
    options.make_device =
        [state = state_, make = options.make_device](
            std::string_view which, const DeviceOptions& device,
            OpRegistry& registry) -> absl::StatusOr<std::unique_ptr<Device>> {
      WEIR_RETURN_IF_ERROR(Register(registry, state));
      return make(which, device, registry);
    };
  }

  // y = x, x float [N]: a step of loading it waits to be let go.
  onnx::ModelProto Model() const {
    onnx::ModelProto model = EmptyModel();
    AddForeignNode(&model, "weir", "HoldCompile");
    return model;
  }

  // The same, x float [4], as a caller's graph.
  v1::EvaluateRequest Request() const {
    v1::EvaluateRequest request = Program(
        "inputs { name: \"x\" } nodes { domain: \"weir\" op: \"HoldCompile\" "
        "inputs: \"x\" outputs: \"y\" } outputs: \"y\"");
    AddInput(&request, "x", v1::DATA_TYPE_FLOAT, {4},
             Bytes<float>({1, 2, 3, 4}));
    return request;
  }

  // Returns once so many are held.
  void WaitUntilHeld(size_t number = 1) { state_->held.Wait(number); }

  // Lets them go, those to come as well. Before the server ends.
  void Open() { state_->open.Set(); }

 private:
  struct State {
    Event held;
    Event open;
  };

  static absl::Status Register(OpRegistry& registry,
                               const std::shared_ptr<State>& state) {
    if (registry.Find("weir", "HoldCompile") != nullptr)
      return absl::OkStatus();
    const auto make = [state](const NodeInfo&, Device&) {
      state->held.Set();
      state->open.Wait();
      return std::make_unique<const CopyKernel>();
    };
    WEIR_RETURN_IF_ERROR(registry.Register(CopyDef("HoldCompile"), make));
    return registry.RegisterKernel(DeviceKind::kCuda, "weir", "HoldCompile",
                                   make);
  }

  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace weir::testing
