// A peer that has many graphs compiled leaves room for others, whichever of the
// services it asks through.
#include <gmock/gmock.h>

#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops/registry.h"
#include "tests/base/event.h"
#include "tests/device/fault_injecting_device.h"
#include "tests/graph/plan_runner.h"
#include "tests/server/server_fixture.h"

namespace weir::testing {
namespace {

enum class Service { kEvaluate, kExplain };

class CompileTurns : public ::testing::TestWithParam<Service> {
 protected:
  CompileTurns() {
    server_ = std::make_unique<TestServer>([open = open_](ServerOptions& o) {
      o.queue_length = 1000;
      o.device = "cuda:0";
      o.make_device =
          [open](
              std::string_view, const DeviceOptions&,
              OpRegistry& registry) -> absl::StatusOr<std::unique_ptr<Device>> {
        WEIR_RETURN_IF_ERROR(registry.RegisterKernel(
            DeviceKind::kCuda, "", "Identity",
            [open](const NodeInfo&,
                   Device&) -> absl::StatusOr<std::unique_ptr<const Kernel>> {
              open->Wait();
              return absl::UnimplementedError("the test is over");
            }));
        return std::make_unique<FaultInjectingDevice>(
            std::make_unique<FarDevice>());
      };
    });
  }

  // Has a graph of this name compiled, or waits for that as long.
  absl::Status Ask(const std::shared_ptr<grpc::Channel>& channel,
                   const std::string& graph, std::chrono::nanoseconds timeout) {
    v1::EvaluateRequest request = Program(
        absl::StrCat("inputs { name: 'x' } nodes { op: 'Identity' inputs: 'x' "
                     "outputs: '",
                     graph, "' } outputs: '", graph, "'"));
    AddInput(&request, "x", v1::DATA_TYPE_FLOAT, {1}, Bytes<float>({1}));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + timeout);
    if (GetParam() == Service::kEvaluate) {
      v1::EvaluateResponse response;
      return FromGrpcStatus(v1::Evaluator::NewStub(channel)->Evaluate(
          &context, request, &response));
    }
    v1::ExplainRequest explain;
    *explain.mutable_graph() = request.graph();
    v1::ExplainResponse response;
    return FromGrpcStatus(
        v1::Catalog::NewStub(channel)->Explain(&context, explain, &response));
  }

  // Compilations end when it is set.
  const std::shared_ptr<Event> open_ = std::make_shared<Event>();
  std::unique_ptr<TestServer> server_;
};

INSTANTIATE_TEST_SUITE_P(Services, CompileTurns,
                         ::testing::Values(Service::kEvaluate,
                                           Service::kExplain),
                         [](const auto& info) {
                           return info.param == Service::kEvaluate ? "Evaluate"
                                                                   : "Explain";
                         });

TEST_P(CompileTurns, APeerLeavesRoomForOthers) {
  // More than a half of what may wait.
  constexpr size_t kAsked = 140;
  Event answered;
  std::vector<absl::Status> answers(kAsked);
  std::vector<std::thread> callers;
  std::vector<std::shared_ptr<grpc::Channel>> tcp;
  for (int i = 0; i < 4; ++i) tcp.push_back(server_->Connect());
  for (size_t i = 0; i < kAsked; ++i) {
    callers.emplace_back([&, i] {
      answers[i] = Ask(tcp[i % tcp.size()], absl::StrCat("a", i), kPatience);
      answered.Set();
    });
  }
  // None is compiled: its share is full.
  answered.Wait();
  // It waits for its turn, and no longer than it wants to.
  EXPECT_EQ(Ask(server_->Connect(server_->admin_address()), "b",
                std::chrono::seconds(1))
                .code(),
            absl::StatusCode::kDeadlineExceeded);
  open_->Set();
  for (std::thread& caller : callers) caller.join();
  std::set<std::string> reasons;
  for (const absl::Status& answer : answers) reasons.insert(Reason(answer));
  EXPECT_THAT(reasons, ::testing::Contains("COMPILE_QUEUE_FULL"));
}

}  // namespace
}  // namespace weir::testing
