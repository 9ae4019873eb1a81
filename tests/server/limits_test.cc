// Nothing is unbounded: requests, bytes and messages over a limit are refused
// with a precise status, and the next request is served.
#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/base/error_info.h"
#include "tests/server/server_fixture.h"

namespace weir::testing {
namespace {

using grpc::StatusCode;
using std::chrono::milliseconds;
using std::chrono::seconds;

struct Call {
  grpc::ClientContext context;
  v1::EvaluateResponse response;
  grpc::Status status;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::EvaluateResponse>> reader;
};

TEST(LimitsTest, TenThousandCallsAtOnceAgainstAQueueOf100) {
  TestServer server([](ServerOptions& o) { o.queue_length = 100; });
  // Both lanes are held, so that calls queue up whatever the machine's speed.
  PendingEvaluate first(server, SpinRequest(milliseconds(500)));
  PendingEvaluate second(server, SpinRequest(milliseconds(500)));
  ASSERT_TRUE(Eventually([&] {
    return server.Metric("weir_stream_pool_lanes{device=\"" + TestDevice() +
                         "\",state=\"leased\"}") == 2;
  }));

  constexpr int kCalls = 10'000;
  const v1::EvaluateRequest request = IdentityRequest();
  grpc::CompletionQueue queue;
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < kCalls; ++i) {
    calls.push_back(std::make_unique<Call>());
    Call& call = *calls.back();
    SetPatience(&call.context);
    call.reader =
        server.evaluator().AsyncEvaluate(&call.context, request, &queue);
    call.reader->Finish(&call.response, &call.status, &call);
  }
  int served = 0;
  int refused = 0;
  for (int i = 0; i < kCalls; ++i) {
    void* tag = nullptr;
    bool ok = false;
    ASSERT_TRUE(queue.Next(&tag, &ok));
    const Call& call = *static_cast<Call*>(tag);
    if (call.status.ok()) {
      ++served;
      EXPECT_EQ(call.response.outputs(0).value().raw(),
                request.inputs(0).value().raw());
      continue;
    }
    ++refused;
    ASSERT_EQ(call.status.error_code(), StatusCode::RESOURCE_EXHAUSTED)
        << call.status.error_message();
    const absl::Status error = FromGrpcStatus(call.status);
    ASSERT_EQ(Reason(error), "QUEUE_FULL");
    ASSERT_TRUE(RetryAfter(error).has_value());
    ASSERT_GT(*RetryAfter(error), absl::ZeroDuration());
  }
  EXPECT_GE(served, 100);
  EXPECT_GT(refused, 0);
  EXPECT_TRUE(first.Wait().status.ok());
  EXPECT_TRUE(second.Wait().status.ok());
  EXPECT_TRUE(ServesOn(server));
  EXPECT_EQ(server.Metric("weir_requests_refused_total{reason=\"QUEUE_FULL\"}"),
            refused);
  EXPECT_EQ(server.Metric("weir_requests_in_flight"), 0);
  EXPECT_EQ(server.Metric("weir_request_bytes_in_flight"), 0);
  EXPECT_EQ(server.Metric("weir_stream_pool_waiting"), 0);
}

TEST(LimitsTest, BytesInFlightAreBounded) {
  TestServer server([](ServerOptions& o) {
    o.queue_bytes = 1 << 16;
    o.streams = 1;
  });
  PendingEvaluate running(server, SpinRequest(seconds(1)));
  ASSERT_TRUE(Eventually(
      [&] { return server.Metric("weir_requests_in_flight") == 1; }));
  v1::EvaluateRequest large = IdentityRequest();
  large.clear_inputs();
  AddInput(&large, "x", v1::DATA_TYPE_FLOAT, {10'000},
           std::string(40'000, '\0'));
  {
    PendingEvaluate waiting(server, large);
    ASSERT_TRUE(Eventually([&] {
      return server.Metric("weir_request_bytes_in_flight") > 40'000;
    }));
    const grpc::Status refused = Evaluate(server, large).status;
    EXPECT_TRUE(
        Refused(refused, StatusCode::RESOURCE_EXHAUSTED, "--queue-bytes"));
    const absl::Status error = FromGrpcStatus(refused);
    EXPECT_EQ(Reason(error), "QUEUE_BYTES_FULL");
    EXPECT_TRUE(RetryAfter(error).has_value());
    EXPECT_TRUE(waiting.Wait().status.ok());
  }
  EXPECT_TRUE(running.Wait().status.ok());
  EXPECT_EQ(server.Metric("weir_request_bytes_in_flight"), 0);
  // Alone it runs even where it is larger than the bound.
  large.clear_inputs();
  AddInput(&large, "x", v1::DATA_TYPE_FLOAT, {100'000},
           std::string(400'000, '\0'));
  EXPECT_TRUE(Evaluate(server, large).status.ok());
  EXPECT_TRUE(ServesOn(server));
}

TEST(LimitsTest, MessagesThatAreTooLargeEitherWay) {
  TestServer server([](ServerOptions& o) { o.max_message_bytes = 1 << 16; });
  v1::EvaluateRequest request = IdentityRequest();
  request.clear_inputs();
  AddInput(&request, "x", v1::DATA_TYPE_FLOAT, {20'000},
           std::string(80'000, '\0'));
  EXPECT_TRUE(Refused(Evaluate(server, request).status,
                      StatusCode::RESOURCE_EXHAUSTED, "larger than max"));
  EXPECT_TRUE(ServesOn(server));

  request = Program(R"(
      inputs { name: "shape" spec { dtype: DATA_TYPE_INT64 shape: 1 } }
      nodes { name: "grow" op: "ConstantOfShape" inputs: "shape" outputs: "y" }
      outputs: "y")");
  AddInput(&request, "shape", v1::DATA_TYPE_INT64, {1},
           Bytes<int64_t>({20'000}));
  EXPECT_TRUE(Refused(Evaluate(server, request).status,
                      StatusCode::RESOURCE_EXHAUSTED, "larger than max"));
  EXPECT_TRUE(ServesOn(server));
  EXPECT_EQ(server.Metric("weir_requests_in_flight"), 0);
  EXPECT_EQ(server.Metric("weir_memory_bytes{pool=\"host\",state=\"used\"}"),
            0);
}

TEST(LimitsTest, HostMemoryIsBounded) {
  TestServer server([](ServerOptions& o) { o.host_bytes = 1 << 20; });
  v1::EvaluateRequest request = Program(R"(
      inputs { name: "shape" spec { dtype: DATA_TYPE_INT64 shape: 1 } }
      nodes { name: "grow" op: "ConstantOfShape" inputs: "shape" outputs: "y" }
      outputs: "y")");
  AddInput(&request, "shape", v1::DATA_TYPE_INT64, {1},
           Bytes<int64_t>({1 << 20}));
  const grpc::Status refused = Evaluate(server, request).status;
  EXPECT_TRUE(Refused(refused, StatusCode::RESOURCE_EXHAUSTED, ""));
  EXPECT_TRUE(ReportOf(refused).has_value());
  EXPECT_TRUE(ServesOn(server));
}

}  // namespace
}  // namespace weir::testing
