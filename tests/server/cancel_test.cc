// Calls that nobody waits for any more: too late, cancelled, or with a client
// that is gone.
#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <string_view>

#include "kernels/backend/devices.h"
#include "kernels/base/status_macros.h"
#include "tests/device/fault_injecting_device.h"
#include "tests/rpc/raw_http2.h"
#include "tests/server/compile_hold.h"
#include "tests/server/lane_hold.h"
#include "tests/server/server_fixture.h"

namespace weir::testing {
namespace {

using grpc::StatusCode;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kInFlight[] = "weir_requests_in_flight";

class CancelTest : public ::testing::Test {
 protected:
  CancelTest()
      : server_([this](ServerOptions& o) {
          o.streams = 1;
          hold_.AddTo(o);
          compile_hold_.AddTo(o);
        }) {}

  // The only lane is.
  void WaitUntilHeld() {
    hold_.WaitUntilHeld();
    EXPECT_EQ(Leased(), 1);
  }
  double Leased() {
    return server_.DeviceMetric("weir_stream_pool_lanes", "state=\"leased\"");
  }
  void ExpectIdle() {
    EXPECT_TRUE(Eventually([&] { return server_.Metric(kInFlight) == 0; }));
    EXPECT_TRUE(server_.Settles());
    EXPECT_EQ(server_.DeviceMetric("weir_stream_pool_waiting"), 0);
    EXPECT_TRUE(ServesOn(server_));
  }

  LaneHold hold_;
  CompileHold compile_hold_;
  TestServer server_;
};

TEST_F(CancelTest, ADeadlineThatHasPassed) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() - seconds(1));
  v1::EvaluateResponse response;
  const grpc::Status status =
      server_.evaluator().Evaluate(&context, IdentityRequest(), &response);
  EXPECT_EQ(status.error_code(), StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(server_.Leases(), 0);
  ExpectIdle();
}

TEST_F(CancelTest, ADeadlineThatPassesInTheQueueLaunchesNothing) {
  HeldEvaluate running(server_, hold_);
  WaitUntilHeld();
  // One that passes on the way is another test's.
  bool waited = false;
  for (int patience = 50; !waited; patience *= 2) {
    PendingEvaluate late(server_, IdentityRequest(), milliseconds(patience));
    waited = Eventually(
        [&] { return server_.DeviceMetric("weir_stream_pool_waiting") == 1; },
        milliseconds(patience));
    EXPECT_EQ(late.Wait().status.error_code(), StatusCode::DEADLINE_EXCEEDED);
  }
  // It left the queue while the lane was still held.
  EXPECT_TRUE(Eventually([&] { return server_.Metric(kInFlight) == 1; }));
  EXPECT_TRUE(Eventually(
      [&] { return server_.DeviceMetric("weir_stream_pool_waiting") == 0; }));
  EXPECT_EQ(server_.Requests("Evaluate", "OK"), 0);
  EXPECT_TRUE(running.Release().status.ok());
  EXPECT_EQ(server_.Leases(), 1);
  ExpectIdle();
}

TEST_F(CancelTest, ACancelledCallInTheQueueLaunchesNothing) {
  HeldEvaluate running(server_, hold_);
  WaitUntilHeld();
  PendingEvaluate waiting(server_, IdentityRequest());
  ASSERT_TRUE(Eventually(
      [&] { return server_.DeviceMetric("weir_stream_pool_waiting") == 1; }));
  waiting.Cancel();
  EXPECT_EQ(waiting.Wait().status.error_code(), StatusCode::CANCELLED);
  ASSERT_TRUE(Eventually(
      [&] { return server_.Requests("Evaluate", "CANCELLED") == 1; }));
  EXPECT_EQ(server_.DeviceMetric("weir_stream_pool_waiting"), 0);
  EXPECT_EQ(server_.Requests("Evaluate", "OK"), 0);
  EXPECT_TRUE(running.Release().status.ok());
  EXPECT_EQ(server_.Leases(), 1);
  ExpectIdle();
}

TEST_F(CancelTest, ACancelledCallWaitsForNoCompilation) {
  PendingEvaluate compiled(server_, compile_hold_.Request());
  compile_hold_.WaitUntilHeld();
  PendingEvaluate waiting(server_, IdentityRequest());
  EXPECT_TRUE(Eventually(
      [&] { return server_.DeviceMetric("weir_compiles_waiting") == 1; }));
  waiting.Cancel();
  EXPECT_EQ(waiting.Wait().status.error_code(), StatusCode::CANCELLED);
  EXPECT_TRUE(Eventually(
      [&] { return server_.Requests("Evaluate", "CANCELLED") == 1; }));
  EXPECT_EQ(server_.Requests("Evaluate", "OK"), 0);
  compile_hold_.Open();
  EXPECT_TRUE(compiled.Wait().status.ok());
  ExpectIdle();
}

TEST_F(CancelTest, LaunchedWorkDrainsAndItsLaneReturns) {
  HeldEvaluate running(server_, hold_);
  WaitUntilHeld();
  running.Cancel();
  EXPECT_EQ(running.Wait().status.error_code(), StatusCode::CANCELLED);
  EXPECT_EQ(Leased(), 1);
  EXPECT_EQ(server_.Metric(kInFlight), 1);
  running.Release();
  ExpectIdle();
  EXPECT_TRUE(Eventually([&] { return Leased() == 0; }));
}

// The client's connection ends with calls running, queued and being compiled.
TEST_F(CancelTest, AClientThatDisappears) {
  constexpr int kCalls = 20;
  HeldEvaluate running(server_, hold_);
  WaitUntilHeld();
  {
    const auto channel = server_.Connect();
    const auto stub = v1::Evaluator::NewStub(channel);
    grpc::CompletionQueue queue;
    struct Call {
      grpc::ClientContext context;
      v1::EvaluateResponse response;
      grpc::Status status;
      std::unique_ptr<grpc::ClientAsyncResponseReader<v1::EvaluateResponse>>
          reader;
    };
    std::vector<std::unique_ptr<Call>> calls;
    for (int i = 0; i < kCalls; ++i) {
      calls.push_back(std::make_unique<Call>());
      Call& call = *calls.back();
      SetPatience(&call.context);
      // Programs of their own: some are compiled when the client goes.
      call.reader =
          stub->AsyncEvaluate(&call.context, hold_.Request(i + 1), &queue);
      call.reader->Finish(&call.response, &call.status, &call);
    }
    ASSERT_TRUE(
        Eventually([&] { return server_.Metric(kInFlight) > kCalls / 2; }));
    for (const auto& call : calls) call->context.TryCancel();
    for (int i = 0; i < kCalls; ++i) {
      void* tag = nullptr;
      bool ok = false;
      ASSERT_TRUE(queue.Next(&tag, &ok));
    }
  }
  EXPECT_TRUE(Eventually([&] { return server_.Metric(kInFlight) == 1; }));
  EXPECT_EQ(Leased(), 1);
  EXPECT_TRUE(running.Release().status.ok());
  ExpectIdle();
}

// Stock clients leave at their deadline, which ends a call by itself. These
// stay, and nobody but the server can end it.
class LateCallTest : public ::testing::Test {
 protected:
  LateCallTest()
      : server_([this](ServerOptions& o) {
          o.streams = 1;
          o.devices = {"cpu"};
          o.make_device = [this](std::string_view name,
                                 const DeviceOptions& options,
                                 OpRegistry& registry)
              -> absl::StatusOr<std::unique_ptr<Device>> {
            WEIR_ASSIGN_OR_RETURN(auto cpu,
                                  MakeDevice(name, options, registry));
            auto made = std::make_unique<FaultInjectingDevice>(std::move(cpu));
            device_ = made.get();
            // What is compiled takes its constants to the device.
            device_->set_takes_copies();
            return made;
          };
        }) {}

  // The status of a call whose client has given it 50 ms.
  int StatusOfLateCall(const std::string& method,
                       const google::protobuf::MessageLite& request) {
    const std::string message = request.SerializeAsString();
    RawHttp2 client(server_.address(), 1 << 16);
    client.BeginWithin(1, method, "50m");
    client.Send(1, RawHttp2::Prefix(message.size()) + message, /*last=*/true);
    return client.AwaitStatus(1);
  }

  // The one that there was of an RPC, beside those that were not late.
  void ExpectCountedAsLate(const std::string& method) {
    EXPECT_TRUE(Eventually(
        [&] { return server_.Refused(method, "DEADLINE_PASSED") == 1; }));
    EXPECT_EQ(server_.Requests(method, "DEADLINE_EXCEEDED"), 1);
    EXPECT_EQ(server_.Requests(method, "CANCELLED"), 0);
  }

  FaultInjectingDevice* device_ = nullptr;
  TestServer server_;
};

TEST_F(LateCallTest, EndsAtItsDeadlineWhileTheOnlyLaneIsHeld) {
  auto& launch = device_->HoldCall(DeviceCall::kLaunch);
  // Too long for an I/O thread, so that only the lane's is held.
  PendingEvaluate running(server_, SpinRequest(milliseconds(1)));
  launch.WaitUntilHeld();
  EXPECT_EQ(StatusOfLateCall("/weir.v1.Evaluator/Evaluate", IdentityRequest()),
            StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(server_.Leases(), 1);
  ExpectCountedAsLate("Evaluate");
  launch.Release();
  EXPECT_TRUE(running.Wait().status.ok());
  EXPECT_TRUE(ServesOn(server_));
}

TEST_F(LateCallTest, EndsAtItsDeadlineWhileItsProgramIsCompiled) {
  v1::EvaluateRequest evaluate = Program(R"(
      inputs { name: "x" }
      constants { name: "c" value { spec { dtype: DATA_TYPE_FLOAT shape: 1 }
                                    raw: "\0\0\0\0" } }
      nodes { op: "Add" inputs: "x" inputs: "c" outputs: "y" }
      outputs: "y")");
  AddInput(&evaluate, "x", v1::DATA_TYPE_FLOAT, {1}, Bytes<float>({1}));
  v1::ExplainRequest explain;
  *explain.mutable_graph() = evaluate.graph();
  auto& allocation = device_->HoldCall(DeviceCall::kAllocate);
  PendingEvaluate first(server_, evaluate);
  allocation.WaitUntilHeld();
  EXPECT_EQ(StatusOfLateCall("/weir.v1.Evaluator/Evaluate", evaluate),
            StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(StatusOfLateCall("/weir.v1.Catalog/Explain", explain),
            StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(server_.Leases(), 0);
  ExpectCountedAsLate("Evaluate");
  ExpectCountedAsLate("Explain");
  allocation.Release();
  EXPECT_TRUE(first.Wait().status.ok());
  EXPECT_TRUE(ServesOn(server_));
}

}  // namespace
}  // namespace weir::testing
