// Nothing is unbounded: requests, bytes and messages over a limit are refused
// with a precise status, and the next request is served.
#include <gmock/gmock.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "server/observe/metrics.h"
#include "server/scheduling/admission.h"
#include "tests/observe/log_capture.h"
#include "tests/rpc/raw_http2.h"
#include "tests/server/lane_hold.h"
#include "tests/server/model_folder.h"
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
  constexpr int kCalls = 10'000, kQueue = 100;
  LaneHold hold;
  TestServer server([&](ServerOptions& o) {
    o.queue_length = kQueue;
    hold.AddTo(o);
  });
  // Both lanes are held, so that calls queue up whatever the machine's speed.
  HeldEvaluate first(server, hold), second(server, hold);
  ASSERT_TRUE(Eventually([&] {
    return server.DeviceMetric("weir_stream_pool_lanes", "state=\"leased\"") ==
           2;
  }));

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
    if (i == kCalls - kQueue) hold.Open();  // all others are refused by then
    void* tag = nullptr;
    bool ok = false;
    ASSERT_TRUE(queue.Next(&tag, &ok));
    const Call& call = *static_cast<Call*>(tag);
    EXPECT_EQ(call.status.ok(), i >= kCalls - kQueue);
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
  EXPECT_EQ(served, kQueue);
  EXPECT_EQ(refused, kCalls - kQueue);
  EXPECT_TRUE(first.Wait().status.ok());
  EXPECT_TRUE(second.Wait().status.ok());
  EXPECT_TRUE(ServesOn(server));
  EXPECT_EQ(server.Metric("weir_requests_in_flight"), 0);
  EXPECT_TRUE(server.Settles());
  EXPECT_EQ(server.Refused("Evaluate", "QUEUE_FULL"), refused);
  EXPECT_EQ(server.DeviceMetric("weir_stream_pool_waiting"), 0);
}

TEST(LimitsTest, BytesInFlightAreBounded) {
  LaneHold hold;
  TestServer server([&](ServerOptions& o) {
    o.queue_bytes = 1 << 16;
    o.streams = 1;
    hold.AddTo(o);
  });
  HeldEvaluate running(server, hold);
  ASSERT_TRUE(Eventually([&] { return server.Leases() == 1; }));
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
    EXPECT_TRUE(running.Release().status.ok());
    EXPECT_TRUE(waiting.Wait().status.ok());
  }
  EXPECT_TRUE(server.Settles());
  // Alone it runs even where it is larger than the bound.
  large.clear_inputs();
  AddInput(&large, "x", v1::DATA_TYPE_FLOAT, {100'000},
           std::string(400'000, '\0'));
  EXPECT_TRUE(Evaluate(server, large).status.ok());
  EXPECT_TRUE(ServesOn(server));
}

// What the cache lets go of is gone with the last call that used it, though the
// objects of calls are kept for others.
TEST(LimitsTest, NoProgramOutlivesItsCalls) {
  TestServer server;
  const auto graph = [](const std::string& name, int64_t elements) {
    v1::EvaluateRequest request = Program(R"(
        nodes { op: "Identity" inputs: "c" outputs: ")" +
                                          name + R"(" }
        outputs: ")" + name + R"(")");
    v1::NamedTensor* constant =
        request.mutable_graph()->mutable_definition()->add_constants();
    constant->set_name("c");
    v1::TensorValue* value = constant->mutable_value();
    value->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT);
    value->mutable_spec()->add_shape(elements);
    value->set_raw(std::string(static_cast<size_t>(elements) * 4, '\0'));
    return request;
  };
  constexpr int64_t kLarge = 4 << 20;
  const auto held = [&] {
    return server.DeviceMetric("weir_memory_bytes",
                               "pool=\"program\",state=\"used\"");
  };
  ASSERT_TRUE(Evaluate(server, graph("large", kLarge)).status.ok());
  EXPECT_GT(held(), kLarge);
  // As many as the cache holds; they are compiled and not evaluated.
  for (int i = 0; i < 256; ++i) {
    v1::ExplainRequest request;
    *request.mutable_graph() = graph("y" + std::to_string(i), 1).graph();
    grpc::ClientContext context;
    SetPatience(&context);
    v1::ExplainResponse response;
    const grpc::Status status =
        server.catalog().Explain(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  EXPECT_EQ(server.DeviceMetric("weir_programs"), 256);
  EXPECT_EQ(server.DeviceMetric("weir_program_misses_total"), 257);
  EXPECT_EQ(server.DeviceMetric("weir_program_evictions_total"), 1);
  const double hits = server.DeviceMetric("weir_program_hits_total");
  ASSERT_TRUE(Evaluate(server, graph("y255", 1)).status.ok());
  EXPECT_GT(server.DeviceMetric("weir_program_hits_total"), hits);
  EXPECT_TRUE(Eventually([&] { return held() < kLarge; })) << held();
}

// A graph that makes as many floats as it is told.
v1::EvaluateRequest Grow(int64_t floats) {
  v1::EvaluateRequest request = Program(R"(
      inputs { name: "shape" spec { dtype: DATA_TYPE_INT64 shape: 1 } }
      nodes { name: "grow" op: "ConstantOfShape" inputs: "shape" outputs: "y" }
      outputs: "y")");
  AddInput(&request, "shape", v1::DATA_TYPE_INT64, {1},
           Bytes<int64_t>({floats}));
  return request;
}

TEST(LimitsTest, MessagesThatAreTooLargeEitherWay) {
  TestServer server([](ServerOptions& o) { o.max_message_bytes = 1 << 16; });
  v1::EvaluateRequest request = IdentityRequest();
  request.clear_inputs();
  AddInput(&request, "x", v1::DATA_TYPE_FLOAT, {20'000},
           std::string(80'000, '\0'));
  grpc::Status refused = Evaluate(server, request).status;
  EXPECT_TRUE(
      Refused(refused, StatusCode::RESOURCE_EXHAUSTED, "the message has 80"));
  EXPECT_EQ(Reason(FromGrpcStatus(refused)), "MESSAGE_TOO_LARGE");
  EXPECT_TRUE(ServesOn(server));

  refused = Evaluate(server, Grow(20'000)).status;
  EXPECT_TRUE(
      Refused(refused, StatusCode::RESOURCE_EXHAUSTED, "the reply has 80"));
  EXPECT_EQ(Reason(FromGrpcStatus(refused)), "REPLY_TOO_LARGE");
  EXPECT_TRUE(Eventually(
      [&] { return server.Requests("Evaluate", "RESOURCE_EXHAUSTED") == 2; }));
  // More servers would not help.
  EXPECT_TRUE(server.Settles());
  for (const std::string_view reason : Metrics::kRefusals) {
    EXPECT_EQ(server.Refused("Evaluate", std::string(reason)), 0) << reason;
  }
  EXPECT_TRUE(ServesOn(server));
  EXPECT_EQ(server.Metric("weir_requests_in_flight"), 0);
  EXPECT_EQ(
      server.DeviceMetric("weir_memory_bytes", "pool=\"host\",state=\"used\""),
      0);
}

// What reading a message makes of it counts too: an element of one byte becomes
// one of eight.
TEST(LimitsTest, TypedContentsCountAsWhatTheyBecome) {
  ModelFolder models;
  models.Write("identity", IdentityModel(onnx::TensorProto::INT64));
  TestServer server([&](ServerOptions& o) {
    o.model_repository = models.path();
    o.queue_bytes = 1 << 16;
  });
  const auto request = [](int64_t elements) {
    inference::ModelInferRequest request;
    request.set_model_name("identity");
    auto* const input = request.add_inputs();
    input->set_name("x");
    input->set_datatype("INT64");
    input->add_shape(elements);
    for (int64_t i = 0; i < elements; ++i) {
      input->mutable_contents()->add_int64_contents(1);
    }
    return request;
  };
  EXPECT_TRUE(Infer(server, request(1000)).status.ok());
  const grpc::Status refused = Infer(server, request(1 << 20)).status;
  EXPECT_TRUE(
      Refused(refused, StatusCode::RESOURCE_EXHAUSTED, "--queue-bytes"));
  EXPECT_EQ(Reason(FromGrpcStatus(refused)), "QUEUE_BYTES_FULL");
  EXPECT_TRUE(Infer(server, request(1000)).status.ok());
  EXPECT_TRUE(server.Settles());
}

TEST(LimitsTest, SampleShapesCountAsWhatTheyBecome) {
  TestServer server([](ServerOptions& o) { o.queue_bytes = 1 << 16; });
  v1::EvaluateRequest request = IdentityRequest();
  auto* const spec = request.mutable_inputs(0)->mutable_value()->mutable_spec();
  for (int i = 0; i < 65536; ++i) {
    v1::SampleShape* const shape = spec->add_sample_shapes();
    for (int d = 0; d < 8; ++d) shape->add_dims(1);
  }
  const grpc::Status refused = Evaluate(server, request).status;
  EXPECT_EQ(Reason(FromGrpcStatus(refused)), "QUEUE_BYTES_FULL")
      << refused.error_message();
  EXPECT_TRUE(ServesOn(server));
}

// A few bytes that name many: what a reply of text takes counts before it is
// written out.
TEST(LimitsTest, RepliesOfTextCountBeforeTheyAreWritten) {
  TestServer server([](ServerOptions& o) { o.queue_bytes = 1 << 16; });
  const auto pick = [](int64_t count) {
    v1::EvaluateRequest request = Program(R"(
        inputs { name: "s" spec { dtype: DATA_TYPE_STRING shape: 1 } }
        inputs { name: "i" }
        nodes { op: "Gather" inputs: "s" inputs: "i" outputs: "t" }
        outputs: "t")");
    AddInput(&request, "s", v1::DATA_TYPE_STRING, {1},
             BytesElements({std::string(10'000, 'x')}));
    AddInput(&request, "i", v1::DATA_TYPE_INT64, {count},
             std::string(static_cast<size_t>(count) * sizeof(int64_t), '\0'));
    return request;
  };
  const EvaluateAnswer small = Evaluate(server, pick(2));
  ASSERT_TRUE(small.status.ok()) << small.status.error_message();
  EXPECT_EQ(small.response.outputs(0).value().raw().size(), 2u * 10'004);
  // Beyond what a request alone may have.
  const grpc::Status refused = Evaluate(server, pick(200)).status;
  EXPECT_TRUE(
      Refused(refused, StatusCode::RESOURCE_EXHAUSTED, "--queue-bytes"));
  EXPECT_EQ(Reason(FromGrpcStatus(refused)), "QUEUE_BYTES_FULL");
  EXPECT_TRUE(server.Settles());
  EXPECT_EQ(server.Metric("weir_request_bytes_in_flight"), 0);
}

// Replies that nobody reads lie in memory that others need to be served.
TEST(LimitsTest, UnreadRepliesLeaveRoomForOthers) {
  constexpr uint32_t kReplies = 20;  // of 1 MiB
  TestServer server([](ServerOptions& o) { o.host_bytes = 16 << 20; });
  const v1::EvaluateRequest request = Grow(1 << 18);
  const std::string message = request.SerializeAsString();
  {
    RawHttp2 client(server.address(), /*window=*/0);
    for (uint32_t i = 0; i < kReplies; ++i) {
      client.Begin(2 * i + 1, "/weir.v1.Evaluator/Evaluate");
      client.Send(2 * i + 1, RawHttp2::Prefix(message.size()) + message,
                  /*last=*/true);
      ASSERT_TRUE(Eventually(
          [&] { return server.Metric("weir_replies_unsent") == i + 1; }));
    }
    EXPECT_GE(server.Metric("weir_request_bytes_in_flight"), kReplies << 20);
    EXPECT_EQ(server.Metric("weir_requests_in_flight"), 0);
    EXPECT_TRUE(Evaluate(server, request).status.ok());
  }
  EXPECT_TRUE(server.Settles());
  EXPECT_EQ(server.Metric("weir_replies_dropped_total{reason=\"CALLER_GONE\"}"),
            kReplies);
  EXPECT_TRUE(Eventually([&] {
    return server.DeviceMetric("weir_memory_bytes",
                               "pool=\"host\",state=\"used\"") == 0;
  }));
}

// However much unread replies hold, whoever operates the server can ask it.
TEST(LimitsTest, UnreadRepliesLeaveTheRoomOfSmallCalls) {
  TestServer server([](ServerOptions& o) {
    o.queue_bytes = 1 << 20;
    o.host_bytes = 256 << 20;
  });
  const std::string message = Grow(20 << 20).SerializeAsString();
  RawHttp2 client(server.address(), /*window=*/0);
  client.Begin(1, "/weir.v1.Evaluator/Evaluate");
  client.Send(1, RawHttp2::Prefix(message.size()) + message, /*last=*/true);
  ASSERT_TRUE(
      Eventually([&] { return server.Metric("weir_replies_unsent") == 1; }));
  ASSERT_GT(server.Metric("weir_request_bytes_in_flight"),
            static_cast<double>((1 << 20) + Admission::kSmallCallRoom));
  EXPECT_EQ(Reason(FromGrpcStatus(Evaluate(server, IdentityRequest()).status)),
            "QUEUE_BYTES_FULL");
  for (const std::string& address :
       {server.address(), server.admin_address()}) {
    const auto stub =
        inference::GRPCInferenceService::NewStub(server.Connect(address));
    grpc::ClientContext context;
    SetPatience(&context);
    inference::ServerReadyResponse ready;
    const grpc::Status status = stub->ServerReady(&context, {}, &ready);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_TRUE(ready.ready());
  }
}

// As many as are admitted together, with the flags' proportions: half of the
// pinned memory is left for evaluations.
TEST(LimitsTest, UnreadRepliesAdmittedTogetherLeaveHalfOfTheHostsMemory) {
  constexpr uint32_t kReplies = 14;  // of 1 MiB
  LaneHold hold;
  TestServer server([&](ServerOptions& o) {
    o.streams = 1;
    o.host_bytes = 16 << 20;
    o.queue_bytes = o.host_bytes / 2;
    hold.AddTo(o);
  });
  const std::string message = Grow(1 << 18).SerializeAsString();
  HeldEvaluate running(server, hold);
  ASSERT_TRUE(Eventually([&] { return server.Leases() == 1; }));
  RawHttp2 client(server.address(), /*window=*/0);
  for (uint32_t i = 0; i < kReplies; ++i) {
    client.Begin(2 * i + 1, "/weir.v1.Evaluator/Evaluate");
    client.Send(2 * i + 1, RawHttp2::Prefix(message.size()) + message,
                /*last=*/true);
  }
  const auto refused = [&] {
    return server.Requests("Evaluate", "RESOURCE_EXHAUSTED");
  };
  ASSERT_TRUE(Eventually([&] {
    return server.Metric("weir_requests_in_flight") + refused() == kReplies + 1;
  }));
  EXPECT_EQ(refused(), 0) << "requests are small";
  EXPECT_TRUE(running.Release().status.ok());
  ASSERT_TRUE(Eventually([&] {
    return server.Metric("weir_replies_unsent") + refused() == kReplies;
  }));
  EXPECT_GT(refused(), 0);
  EXPECT_TRUE(Eventually([&] {
    return server.Refused("Evaluate", "QUEUE_BYTES_FULL") == refused();
  }));
  // One more than half.
  EXPECT_TRUE(Eventually([&] {
    return server.DeviceMetric("weir_memory_bytes",
                               "pool=\"host\",state=\"used\"") <= 9 << 20;
  }));
}

// What is copied into a reply counts before it is copied, however small each of
// the outputs is.
TEST(LimitsTest, RepliesOfManySmallOutputsCountBeforeTheyAreWritten) {
  constexpr int kOutputs = 10'000;
  constexpr size_t kBytes = 1024;
  v1::EvaluateRequest request;
  auto* const graph = request.mutable_graph()->mutable_definition();
  v1::NamedTensor* const constant = graph->add_constants();
  constant->set_name("c");
  constant->mutable_value()->mutable_spec()->set_dtype(v1::DATA_TYPE_UINT8);
  constant->mutable_value()->mutable_spec()->add_shape(kBytes);
  constant->mutable_value()->set_raw(std::string(kBytes, '\1'));
  for (int i = 0; i < kOutputs; ++i) {
    v1::Node* const node = graph->add_nodes();
    node->set_op("Identity");
    node->add_inputs("c");
    node->add_outputs("y" + std::to_string(i));
    graph->add_outputs("y" + std::to_string(i));
  }
  for (const bool room : {true, false}) {
    TestServer server([&](ServerOptions& o) {
      o.queue_bytes = (room ? 2 : 1) * kOutputs * kBytes;
    });
    const EvaluateAnswer answer = Evaluate(server, request);
    if (room) {
      ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
      EXPECT_EQ(answer.response.outputs_size(), kOutputs);
    } else {
      EXPECT_EQ(Reason(FromGrpcStatus(answer.status)), "QUEUE_BYTES_FULL")
          << answer.status.error_message();
    }
    EXPECT_TRUE(server.Settles());
    EXPECT_TRUE(Eventually([&] {
      return server.DeviceMetric("weir_memory_bytes",
                                 "pool=\"host\",state=\"used\"") == 0;
    }));
  }
}

// A reply of 2 KiB must not hold the 4 MiB that were computed beside it.
TEST(LimitsTest, AnUnreadPartOfTheResultsDoesNotHoldTheRest) {
  constexpr uint32_t kReplies = 2;
  TestServer server([](ServerOptions& o) { o.host_bytes = 16 << 20; });
  v1::EvaluateRequest request = Program(R"(
      inputs { name: "shape" spec { dtype: DATA_TYPE_INT64 shape: 1 } }
      inputs { name: "x" spec { dtype: DATA_TYPE_FLOAT shape: 512 } }
      nodes { name: "grow" op: "ConstantOfShape" inputs: "shape" outputs: "y" }
      nodes { name: "small" op: "Relu" inputs: "x" outputs: "q" }
      outputs: "y"
      outputs: "q")");
  AddInput(&request, "shape", v1::DATA_TYPE_INT64, {1},
           Bytes<int64_t>({1 << 20}));
  const std::vector<float> x(512, 1.5f);
  AddInput(&request, "x", v1::DATA_TYPE_FLOAT, {512}, Bytes(x));
  request.add_outputs()->set_name("q");
  const std::string message = request.SerializeAsString();
  RawHttp2 client(server.address(), /*window=*/0);
  for (uint32_t i = 0; i < kReplies; ++i) {
    client.Begin(2 * i + 1, "/weir.v1.Evaluator/Evaluate");
    client.Send(2 * i + 1, RawHttp2::Prefix(message.size()) + message,
                /*last=*/true);
    ASSERT_TRUE(Eventually(
        [&] { return server.Metric("weir_replies_unsent") == i + 1; }));
  }
  EXPECT_TRUE(Eventually([&] {
    return server.DeviceMetric("weir_memory_bytes",
                               "pool=\"host\",state=\"used\"") == 0;
  }));
  const EvaluateAnswer answer = Evaluate(server, request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.response.outputs_size(), 1);
  EXPECT_EQ(answer.response.outputs(0).value().raw(), Bytes(x));
}

// Half of the results is not copied: it counts with the block that holds all.
TEST(LimitsTest, AnUnreadReplyCountsWithWhatItHolds) {
  constexpr int kElements = 300'000;  // twice 1.2 MB lie in a block of 4 MiB
  TestServer server([](ServerOptions& o) { o.host_bytes = 16 << 20; });
  v1::EvaluateRequest request = Program(R"(
      inputs { name: "a" spec { dtype: DATA_TYPE_INT64 shape: 1 } }
      inputs { name: "b" spec { dtype: DATA_TYPE_INT64 shape: 1 } }
      nodes { name: "y" op: "ConstantOfShape" inputs: "a" outputs: "y" }
      nodes { name: "q" op: "ConstantOfShape" inputs: "b" outputs: "q" }
      outputs: "y"
      outputs: "q")");
  for (const char* const name : {"a", "b"}) {
    AddInput(&request, name, v1::DATA_TYPE_INT64, {1},
             Bytes<int64_t>({kElements}));
  }
  request.add_outputs()->set_name("q");
  const grpc::Status read = Evaluate(server, request).status;
  ASSERT_TRUE(read.ok()) << read.error_message();
  const std::string message = request.SerializeAsString();
  {
    RawHttp2 client(server.address(), /*window=*/0);
    client.Begin(1, "/weir.v1.Evaluator/Evaluate");
    client.Send(1, RawHttp2::Prefix(message.size()) + message, /*last=*/true);
    ASSERT_TRUE(
        Eventually([&] { return server.Metric("weir_replies_unsent") == 1; }));
    // gRPC may still have an earlier one's.
    EXPECT_TRUE(Eventually([&] {
      return server.DeviceMetric("weir_memory_bytes",
                                 "pool=\"host\",state=\"used\"") == 4 << 20;
    }));
    EXPECT_GE(server.Metric("weir_request_bytes_in_flight"), 4 << 20);
  }
  EXPECT_TRUE(server.Settles());
  EXPECT_EQ(server.Metric("weir_request_bytes_in_flight"), 0);
}

// A call object keeps a block of its arena for the next call, however long its
// reply waits.
TEST(LimitsTest, AnUnreadReplyCountsWithItsArena) {
  TestServer server;
  v1::EvaluateRequest request = IdentityRequest();
  for (int i = 0; i < 100; ++i) {  // as many tensors in the arena
    const std::string name = "more" + std::to_string(i);
    auto* const input =
        request.mutable_graph()->mutable_definition()->add_inputs();
    input->set_name(name);
    input->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT);
    input->mutable_spec()->add_shape(1);
    AddInput(&request, name, v1::DATA_TYPE_FLOAT, {1}, std::string(4, '\0'));
  }
  const std::string message = request.SerializeAsString();
  RawHttp2 client(server.address(), /*window=*/0);
  client.Begin(1, "/weir.v1.Evaluator/Evaluate");
  client.Send(1, RawHttp2::Prefix(message.size()) + message, /*last=*/true);
  ASSERT_TRUE(
      Eventually([&] { return server.Metric("weir_replies_unsent") == 1; }));
  EXPECT_GE(server.Metric("weir_request_bytes_in_flight"), 24 << 10);
}

TEST(LimitsTest, ConnectionsOfOnePeerAreBounded) {
  LogCapture log;
  TestServer server(
      [](ServerOptions& o) {
        o.max_peer_connections = 2;
        o.pulse_interval = absl::Milliseconds(20);
        o.log_format = LogFormat::kJson;
        o.log_level = LogLevel::kWarning;
      },
      log.stream());
  const auto closed = [&] {
    return server.Metric(
        "weir_connections_closed_total{reason=\"PEER_CONNECTIONS\"}");
  };
  RawHttp2 first(server.address(), 1 << 16, "127.0.0.2");
  RawHttp2 second(server.address(), 1 << 16, "127.0.0.2");
  EXPECT_TRUE(Eventually([&] {
    RawHttp2 third(server.address(), 1 << 16, "127.0.0.2");
    return closed() > 0;
  }));
  EXPECT_TRUE(ServesOn(server));
  EXPECT_EQ(
      server.Metric(
          "weir_connections_closed_total{reason=\"TOO_MANY_CONNECTIONS\"}"),
      0);
  // Whoever is turned away is told nothing: the operator is.
  constexpr char kEvent[] = "connections were closed as they came";
  ASSERT_TRUE(Eventually([&] { return !log.Events(kEvent).empty(); }));
  const nlohmann::json event = log.Events(kEvent)[0];
  EXPECT_EQ(event["level"], "warning");
  EXPECT_EQ(event["reason"], "PEER_CONNECTIONS");
  EXPECT_GE(event["count"], 1);
  EXPECT_EQ(event["bound"], "--max-peer-connections=2");
}

// gRPC would hold some 42 bytes for each byte of such a message. A connection
// may be many callers': it goes on, but for one whose headers have no end.
TEST(LimitsTest, StreamsAndConnectionsAreCutAndTold) {
  LogCapture log;
  TestServer server(
      [](ServerOptions& o) {
        o.pulse_interval = absl::Milliseconds(20);
        o.log_format = LogFormat::kJson;
        o.log_level = LogLevel::kWarning;
      },
      log.stream());
  const auto cut = [&](const std::string& reason) {
    return server.Metric("weir_connections_cut_total{reason=\"" + reason +
                         "\"}");
  };
  constexpr char kEvaluate[] = "/weir.v1.Evaluator/Evaluate";
  EXPECT_EQ(server.Metric("weir_streams_cut_total"), 0);
  RawHttp2 client(server.address(), 1 << 16);
  client.Begin(1, kEvaluate);
  client.Send(1, RawHttp2::Prefix(1 << 20) + std::string(10'000, 'x'),
              /*last=*/false, /*frame_bytes=*/1);
  EXPECT_TRUE(client.Await(1));
  RawHttp2 other(server.address(), 1 << 16);
  other.BeginEndless(1, kEvaluate);
  while (other.SendHeader(1, 1 << 16)) {
  }
  EXPECT_TRUE(other.AwaitEnd());
  EXPECT_EQ(server.Metric("weir_streams_cut_total"), 1);
  EXPECT_EQ(cut("MESSAGE_PIECES"), 0);
  EXPECT_EQ(cut("HEADERS_TOO_LARGE"), 1);

  // Each is told of its own peer.
  const auto event = [&](const char* name) {
    EXPECT_TRUE(Eventually([&] { return !log.Events(name).empty(); }));
    return log.Events(name).at(0);
  };
  const nlohmann::json stream = event("streams were cut");
  EXPECT_EQ(stream["level"], "warning");
  EXPECT_EQ(stream["reason"], "MESSAGE_PIECES");
  EXPECT_EQ(stream["count"], 1);
  EXPECT_EQ(stream["last_peer"], client.name());
  EXPECT_EQ(stream["bound"],
            "256 pieces of a message, and one more for each 256 bytes");
  const nlohmann::json connection = event("connections were cut");
  EXPECT_EQ(connection["reason"], "HEADERS_TOO_LARGE");
  EXPECT_EQ(connection["last_peer"], other.name());
  EXPECT_TRUE(ServesOn(server));
}

TEST(LimitsTest, HostMemoryIsBounded) {
  TestServer server([](ServerOptions& o) { o.host_bytes = 1 << 20; });
  const grpc::Status refused = Evaluate(server, Grow(1 << 20)).status;
  EXPECT_TRUE(Refused(refused, StatusCode::RESOURCE_EXHAUSTED, ""));
  EXPECT_TRUE(ReportOf(refused).has_value());
  EXPECT_TRUE(ServesOn(server));
}

// q = relu(x x), x [N,N]: the product of matrices ("MatMul"), or of elements
// ("Mul").
std::string SquareGraph(const std::string& product) {
  return absl::StrCat(R"(
    inputs { name: "x" spec { dtype: DATA_TYPE_FLOAT shape: -1 shape: -1 } }
    nodes { name: "product" op: ")",
                      product,
                      R"(" inputs: "x" inputs: "x" outputs: "p" }
    nodes { name: "rectify" op: "Relu" inputs: "p" outputs: "q" }
    outputs: "q")");
}

onnx::ModelProto SquareModel(const std::string& product) {
  onnx::ModelProto model = EmptyModel();
  AddValue(model.mutable_graph()->add_input(), "x", onnx::TensorProto::FLOAT,
           {"N", "N"});
  AddValue(model.mutable_graph()->add_output(), "q", onnx::TensorProto::FLOAT,
           {"N", "N"});
  AddNode(&model, product, {"x", "x"}, {"p"}, "product");
  AddNode(&model, "Relu", {"p"}, {"q"}, "rectify");
  return model;
}

// The statuses of Evaluate (a graph, a model), ModelInfer and Explain (a graph,
// a model) for an x of [n,n]; the model's name is that of its product.
std::vector<grpc::Status> EveryWay(TestServer& server,
                                   const std::string& product, int64_t n) {
  const std::string bytes(static_cast<size_t>(n * n) * sizeof(float), '\0');
  std::vector<grpc::Status> statuses;
  v1::EvaluateRequest graph = Program(SquareGraph(product));
  v1::EvaluateRequest model;
  model.mutable_graph()->mutable_model()->set_name(product);
  for (v1::EvaluateRequest* request : {&graph, &model}) {
    AddInput(request, "x", v1::DATA_TYPE_FLOAT, {n, n}, bytes);
    statuses.push_back(Evaluate(server, *request).status);
  }
  inference::ModelInferRequest infer;
  infer.set_model_name(product);
  AddInput(&infer, "x", "FP32", {n, n}, bytes);
  statuses.push_back(Infer(server, infer).status);
  for (const v1::EvaluateRequest& request : {graph, model}) {
    v1::ExplainRequest explain;
    *explain.mutable_graph() = request.graph();
    v1::NamedTensorSpec* spec = explain.add_inputs();
    spec->set_name("x");
    *spec->mutable_spec() = request.inputs(0).value().spec();
    grpc::ClientContext context;
    SetPatience(&context);
    v1::ExplainResponse response;
    statuses.push_back(server.catalog().Explain(&context, explain, &response));
  }
  return statuses;
}

struct EvaluationCase {
  std::string product;
  std::function<void(ServerOptions&)> limit;
  const char* node;
  const char* flag;
};

// One element of x more than fits, on every way to an evaluation.
TEST(LimitsTest, AnEvaluationIsBoundedOnEveryWay) {
  ModelFolder models;
  for (const char* product : {"MatMul", "Mul"}) {
    models.Write(product, SquareModel(product));
  }
  const EvaluationCase cases[] = {
      // n^3 products, n^2 elements read twice, written and rectified, which
      // count ten times on a CPU. A GPU takes n^2 of 112^2, in tiles of 16^2.
      {"MatMul",
       [](ServerOptions& o) {
         o.max_operations = TestDevice() == "cpu"
                                ? 1'000'000 + 300'000 + 100'000
                                : 1'254'400 + 40'000;
       },
       "\"product\" (MatMul)", "--max-operations"},
      // The block between the two; no device takes scratch memory for either.
      {"Mul", [](ServerOptions& o) { o.max_scratch_bytes = 40'192; },
       "\"product\" (Mul)", "--max-scratch-bytes"},
      {"MatMul", [](ServerOptions& o) { o.max_output_bytes = 40'000; },
       "\"rectify\" (Relu)", "--max-output-bytes"},
  };
  for (const EvaluationCase& one : cases) {
    SCOPED_TRACE(one.flag);
    TestServer server([&](ServerOptions& o) {
      o.model_repository = models.path();
      one.limit(o);
    });
    for (const grpc::Status& status : EveryWay(server, one.product, 100)) {
      EXPECT_TRUE(status.ok()) << status.error_message();
    }
    for (const grpc::Status& status : EveryWay(server, one.product, 101)) {
      EXPECT_TRUE(Refused(status, StatusCode::RESOURCE_EXHAUSTED, one.node));
      EXPECT_TRUE(Refused(status, StatusCode::RESOURCE_EXHAUSTED, one.flag));
      const absl::Status error = FromGrpcStatus(status);
      EXPECT_EQ(Reason(error), "EVALUATION_TOO_LARGE");
      EXPECT_FALSE(RetryAfter(error).has_value());
    }
    EXPECT_TRUE(ServesOn(server));
  }
}

// Without a flag, operations must be what the CPU's two threads do in minutes:
// 13,000^3 products are 2.2 x 10^12.
TEST(LimitsTest, OperationsAreBoundedByTheDevicesThreads) {
  TestServer server([](ServerOptions& o) { o.devices = {"cpu"}; });
  v1::ExplainRequest request;
  *request.mutable_graph() = Program(R"(
      inputs { name: "x" spec { dtype: DATA_TYPE_FLOAT shape: -1 shape: -1 } }
      nodes { name: "product" op: "MatMul" inputs: "x" inputs: "x"
              outputs: "p" }
      nodes { op: "ReduceMax" inputs: "p" outputs: "q" }
      outputs: "q")")
                                 .graph();
  v1::NamedTensorSpec* input = request.add_inputs();
  input->set_name("x");
  input->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT);
  const auto explain = [&](int64_t n) {
    input->mutable_spec()->clear_shape();
    input->mutable_spec()->add_shape(n);
    input->mutable_spec()->add_shape(n);
    grpc::ClientContext context;
    SetPatience(&context);
    v1::ExplainResponse response;
    return server.catalog().Explain(&context, request, &response);
  };
  const grpc::Status fits = explain(12'000);
  EXPECT_TRUE(fits.ok()) << fits.error_message();
  const grpc::Status refused = explain(13'000);
  EXPECT_TRUE(Refused(refused, StatusCode::RESOURCE_EXHAUSTED,
                      "the limit is 2000000000000 (--max-operations)"));
  EXPECT_EQ(Reason(FromGrpcStatus(refused)), "EVALUATION_TOO_LARGE");
}

// Without a flag, outputs must fit into the memory that replies come out of.
TEST(LimitsTest, OutputsAreBoundedByTheHostsMemory) {
  ModelFolder models;
  models.Write("MatMul", SquareModel("MatMul"));
  struct {
    size_t host_bytes;
    int64_t too_large;
  } cases[] = {{1 << 20, 520},
               // A buffer takes a power of two: 2.5 MB would need 4 MiB.
               {3 << 20, 800}};
  for (const auto& [host_bytes, too_large] : cases) {
    SCOPED_TRACE(host_bytes);
    TestServer server([&, bytes = host_bytes](ServerOptions& o) {
      o.model_repository = models.path();
      o.host_bytes = bytes;
    });
    for (const grpc::Status& status : EveryWay(server, "MatMul", too_large)) {
      EXPECT_TRUE(Refused(status, StatusCode::RESOURCE_EXHAUSTED,
                          "--max-output-bytes"));
    }
  }
}

}  // namespace
}  // namespace weir::testing
