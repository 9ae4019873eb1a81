// KServe's ModelStatistics over the wire: exact counts, whoever asks and
// whichever thread served.
#include <gmock/gmock.h>

#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/clock.h"
#include "kernels/base/error_info.h"
#include "server/rpc/status_mapping.h"
#include "tests/base/eventually.h"
#include "tests/server/lane_hold.h"
#include "tests/server/model_folder.h"
#include "tests/server/server_fixture.h"

namespace weir::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using StatisticsAnswer = Answer<inference::ModelStatisticsResponse>;

StatisticsAnswer Ask(TestServer& server, const std::string& name,
                     const std::string& version = "") {
  inference::ModelStatisticsRequest request;
  request.set_name(name);
  request.set_version(version);
  grpc::ClientContext context;
  SetPatience(&context);
  StatisticsAnswer answer;
  answer.status =
      server.kserve().ModelStatistics(&context, request, &answer.response);
  return answer;
}

// Of the only version of `name`.
inference::ModelStatistics Of(TestServer& server, const std::string& name) {
  const StatisticsAnswer answer = Ask(server, name);
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.response.model_stats_size(), 1);
  return answer.response.model_stats_size() == 1
             ? answer.response.model_stats(0)
             : inference::ModelStatistics();
}

inference::ModelInferRequest Digits(int64_t rows) {
  inference::ModelInferRequest request;
  request.set_model_name("digits");
  AddInput(&request, "image", "FP32", {rows, 1, 8, 8},
           std::string(static_cast<size_t>(rows) * 64 * sizeof(float), '\0'));
  return request;
}

inference::ModelInferRequest Gather(int64_t index) {
  inference::ModelInferRequest request;
  request.set_model_name("pick");
  AddInput(&request, "x", "FP32", {2}, Bytes<float>({1, 2}));
  AddInput(&request, "i", "INT64", {1}, Bytes<int64_t>({index}));
  return request;
}

void ServeDigits(ServerOptions& options) {
  options.model_repository = TestData("data");
}

uint64_t UnixMillis() {
  return static_cast<uint64_t>(absl::ToUnixMillis(absl::Now()));
}

TEST(StatisticsTest, NothingHasHappenedYet) {
  TestServer server(ServeDigits);
  const inference::ModelStatistics digits = Of(server, "digits");
  EXPECT_EQ(digits.name(), "digits");
  EXPECT_EQ(digits.version(), "1");
  EXPECT_EQ(digits.last_inference(), 0u);
  EXPECT_EQ(digits.inference_count(), 0u);
  EXPECT_EQ(digits.execution_count(), 0u);
  EXPECT_EQ(digits.inference_stats().success().count(), 0u);
  EXPECT_THAT(digits.batch_stats(), IsEmpty());
  EXPECT_TRUE(digits.response_stats().empty());
  // Its constants are on the device from the start.
  ASSERT_EQ(digits.memory_usage_size(), 1);
  EXPECT_EQ(digits.memory_usage(0).type(),
            TestDevice() == "cpu" ? "CPU" : "GPU");
  EXPECT_EQ(digits.memory_usage(0).id(), 0);
  EXPECT_EQ(static_cast<double>(digits.memory_usage(0).byte_size()),
            server.DeviceMetric("weir_memory_bytes",
                                "pool=\"constants\",state=\"used\""));
}

TEST(StatisticsTest, ThreadsAddUpExactly) {
  constexpr int kThreads = 4;
  constexpr int kRequests = 60;  // of each; a third of each batch size
  TestServer server(ServeDigits);
  const uint64_t before = UnixMillis();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&server] {
      // A connection of its own, so that all I/O threads serve.
      const auto stub =
          inference::GRPCInferenceService::NewStub(server.Connect());
      for (int i = 0; i < kRequests; ++i) {
        grpc::ClientContext context;
        SetPatience(&context);
        inference::ModelInferResponse response;
        const grpc::Status status =
            stub->ModelInfer(&context, Digits(1 + i % 3), &response);
        EXPECT_TRUE(status.ok()) << status.error_message();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const uint64_t after = UnixMillis();

  constexpr uint64_t kAll = kThreads * kRequests;
  const inference::ModelStatistics digits = Of(server, "digits");
  EXPECT_EQ(digits.inference_count(), kAll / 3 * (1 + 2 + 3));
  EXPECT_EQ(digits.execution_count(), kAll);
  EXPECT_GE(digits.last_inference(), before);
  EXPECT_LE(digits.last_inference(), after);
  const inference::InferStatistics& stats = digits.inference_stats();
  EXPECT_EQ(stats.success().count(), kAll);
  EXPECT_EQ(stats.fail().count(), 0u);
  EXPECT_EQ(stats.fail().ns(), 0u);
  EXPECT_EQ(stats.cache_hit().count(), 0u);
  EXPECT_EQ(stats.cache_miss().count(), 0u);
  uint64_t parts = 0;
  for (const inference::StatisticDuration& part :
       {stats.queue(), stats.compute_input(), stats.compute_infer(),
        stats.compute_output()}) {
    EXPECT_EQ(part.count(), kAll);
    EXPECT_GT(part.ns(), 0u);
    parts += part.ns();
  }
  EXPECT_EQ(stats.success().ns(), parts);

  uint64_t input = 0, infer = 0, output = 0;
  std::vector<uint64_t> sizes;
  for (const inference::InferBatchStatistics& batch : digits.batch_stats()) {
    sizes.push_back(batch.batch_size());
    EXPECT_EQ(batch.compute_input().count(), kAll / 3);
    EXPECT_EQ(batch.compute_infer().count(), kAll / 3);
    EXPECT_EQ(batch.compute_output().count(), kAll / 3);
    input += batch.compute_input().ns();
    infer += batch.compute_infer().ns();
    output += batch.compute_output().ns();
  }
  EXPECT_THAT(sizes, ElementsAre(1, 2, 3));
  EXPECT_EQ(input, stats.compute_input().ns());
  EXPECT_EQ(infer, stats.compute_infer().ns());
  EXPECT_EQ(output, stats.compute_output().ns());
}

TEST(StatisticsTest, FailuresAreCountedApart) {
  ModelFolder models;
  models.Write("pick", GatherModel());
  TestServer server([&](ServerOptions& o) {
    o.model_repository = models.path();
    o.triton_metrics = true;
  });
  EXPECT_TRUE(Infer(server, Gather(1)).status.ok());
  // Found wrong while it ran.
  EXPECT_TRUE(Refused(Infer(server, Gather(7)).status,
                      grpc::StatusCode::INVALID_ARGUMENT, "out of range"));
  // Found wrong before.
  inference::ModelInferRequest bad = Gather(1);
  bad.mutable_inputs(0)->set_datatype("FP64");
  EXPECT_TRUE(Refused(Infer(server, bad).status,
                      grpc::StatusCode::INVALID_ARGUMENT, "FP64"));
  // Of no model.
  bad = Gather(1);
  bad.set_model_name("choose");
  EXPECT_TRUE(Refused(Infer(server, bad).status, grpc::StatusCode::NOT_FOUND,
                      "choose"));
  const inference::ModelStatistics pick = Of(server, "pick");
  EXPECT_EQ(pick.inference_count(), 1u);
  EXPECT_EQ(pick.execution_count(), 2u);
  EXPECT_EQ(pick.inference_stats().success().count(), 1u);
  EXPECT_EQ(pick.inference_stats().queue().count(), 1u);
  EXPECT_EQ(pick.inference_stats().compute_infer().count(), 1u);
  EXPECT_EQ(pick.inference_stats().fail().count(), 2u);
  EXPECT_GT(pick.inference_stats().fail().ns(), 0u);
  // Each execution is one, whatever became of it.
  ASSERT_EQ(pick.batch_stats_size(), 1);
  EXPECT_EQ(pick.batch_stats(0).batch_size(), 1u);
  EXPECT_EQ(pick.batch_stats(0).compute_infer().count(), 2u);
  for (const auto& [reason, count] :
       {std::pair("BACKEND", 1), std::pair("OTHER", 1),
        std::pair("REJECTED", 0), std::pair("CANCELED", 0)}) {
    EXPECT_EQ(server.Metric(absl::StrCat(
                  "nv_inference_request_failure{model=\"pick\",version=\"1\","
                  "reason=\"",
                  reason, "\"}")),
              count)
        << reason;
  }
}

// No name asks for all models, which have no version in common.
TEST(StatisticsTest, AVersionOfNoModelIsRefused) {
  TestServer server;
  EXPECT_TRUE(Ask(server, "").status.ok());
  EXPECT_TRUE(Refused(Ask(server, "", "1").status,
                      grpc::StatusCode::INVALID_ARGUMENT, "name is not set"));
}

// What the reply has beside its outputs counts too, and is known last.
TEST(StatisticsTest, AReplyThatIsTooLargeIsAFailure) {
  constexpr int64_t kFloats = 16'000;
  constexpr size_t kMessageBytes = kFloats * sizeof(float) + 100;
  ModelFolder models;
  onnx::ModelProto model = EmptyModel();
  const std::string output(200, 'y');
  AddValue(model.mutable_graph()->add_input(), "x", onnx::TensorProto::FLOAT,
           {"N"});
  AddValue(model.mutable_graph()->add_output(), output,
           onnx::TensorProto::FLOAT, {"N"});
  AddNode(&model, "Identity", {"x"}, {output});
  models.Write("identity", model);
  TestServer server([&](ServerOptions& o) {
    o.model_repository = models.path();
    o.max_message_bytes = kMessageBytes;
  });
  const std::string floats(kFloats * sizeof(float), '\0');
  v1::EvaluateRequest evaluate;
  evaluate.mutable_graph()->mutable_model()->set_name("identity");
  AddInput(&evaluate, "x", v1::DATA_TYPE_FLOAT, {kFloats}, floats);
  ASSERT_LE(evaluate.ByteSizeLong(), kMessageBytes);
  EXPECT_EQ(Reason(FromGrpcStatus(Evaluate(server, evaluate).status)),
            "REPLY_TOO_LARGE");
  inference::ModelInferRequest infer;
  infer.set_model_name("identity");
  AddInput(&infer, "x", "FP32", {kFloats}, floats);
  ASSERT_LE(infer.ByteSizeLong(), kMessageBytes);
  EXPECT_EQ(Reason(FromGrpcStatus(Infer(server, infer).status)),
            "REPLY_TOO_LARGE");
  const inference::ModelStatistics identity = Of(server, "identity");
  EXPECT_EQ(identity.inference_stats().success().count(), 0u);
  EXPECT_EQ(identity.inference_stats().fail().count(), 2u);
  EXPECT_EQ(
      server.DeviceMetric("weir_memory_bytes", "pool=\"host\",state=\"used\""),
      0);
}

// y = x, once its lane is let go.
onnx::ModelProto HoldModel() {
  onnx::ModelProto model = EmptyModel();
  AddForeignNode(&model, "weir", "Hold");
  return model;
}

// A request that was given up while it waited never ran, and failed.
TEST(StatisticsTest, WhoeverLeavesTheQueueIsAFailure) {
  ModelFolder models;
  models.Write("hold", HoldModel());
  models.Write("sum", AddModel());
  LaneHold hold;
  TestServer server([&](ServerOptions& o) {
    o.model_repository = models.path();
    o.streams = 1;
    hold.AddTo(o);
  });
  inference::ModelInferRequest held;
  held.set_model_name("hold");
  AddInput(&held, "x", "FP32", {1}, Bytes<float>({1}));
  inference::ModelInferRequest sum;
  sum.set_model_name("sum");
  AddInput(&sum, "x", "FP32", {1, 2}, Bytes<float>({1, 2}));
  // A driver may load its kernels only while nothing runs.
  ASSERT_TRUE(Infer(server, sum).status.ok());
  ASSERT_TRUE(Eventually([&] {
    return Of(server, "sum").inference_stats().success().count() == 1;
  }));
  const inference::ModelStatistics before = Of(server, "sum");
  const double leases = server.Leases();
  InferAnswer ran;
  std::thread running([&] { ran = Infer(server, held); });
  EXPECT_TRUE(Eventually([&] { return server.Leases() == leases + 1; }));
  const Nanos leased_at = NowNanos();
  grpc::ClientContext context;
  inference::ModelInferResponse response;
  std::thread waiting([&] {
    EXPECT_EQ(server.kserve().ModelInfer(&context, sum, &response).error_code(),
              grpc::StatusCode::CANCELLED);
  });
  EXPECT_TRUE(Eventually(
      [&] { return server.DeviceMetric("weir_stream_pool_waiting") == 1; }));
  context.TryCancel();
  waiting.join();
  EXPECT_TRUE(Eventually(
      [&] { return Of(server, "sum").inference_stats().fail().count() == 1; }));
  const auto held_for = static_cast<uint64_t>(NowNanos() - leased_at);
  hold.Open();
  running.join();
  EXPECT_TRUE(ran.status.ok()) << ran.status.error_message();
  const inference::ModelStatistics left = Of(server, "sum");
  EXPECT_EQ(left.inference_count(), before.inference_count());
  EXPECT_EQ(left.execution_count(), before.execution_count());
  EXPECT_EQ(left.last_inference(), before.last_inference());
  EXPECT_EQ(left.inference_stats().fail().count(), 1u);
  EXPECT_EQ(left.inference_stats().success().count(), 1u);
  const inference::InferStatistics stats = Of(server, "hold").inference_stats();
  EXPECT_EQ(stats.success().count(), 1u);
  EXPECT_GE(stats.success().ns(), held_for);
}

TEST(StatisticsTest, KnowsModelsAndVersionsByName) {
  ModelFolder models;
  models.Write("sum", AddModel(), 1);
  models.Write("sum", AddModel(), 2);
  models.WriteConfig("sum", "version_policy { all {} }");
  models.Write("pick", GatherModel());
  models.WriteBytes("broken", "garbage");
  TestServer server(
      [&](ServerOptions& o) { o.model_repository = models.path(); });
  inference::ModelInferRequest request;
  request.set_model_name("sum");
  request.set_model_version("1");
  AddInput(&request, "x", "FP32", {1, 2}, Bytes<float>({1, 2}));
  EXPECT_TRUE(Infer(server, request).status.ok());

  const auto names = [](const StatisticsAnswer& answer) {
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    std::vector<std::string> names;
    for (const auto& model : answer.response.model_stats()) {
      names.push_back(absl::StrCat(model.name(), "/", model.version(), ":",
                                   model.inference_count()));
    }
    return names;
  };
  EXPECT_THAT(names(Ask(server, "")),
              ElementsAre("pick/1:0", "sum/1:1", "sum/2:0"));
  EXPECT_THAT(names(Ask(server, "sum")), ElementsAre("sum/1:1", "sum/2:0"));
  EXPECT_THAT(names(Ask(server, "sum", "2")), ElementsAre("sum/2:0"));
  EXPECT_THAT(names(Ask(server, "sum", "1")), ElementsAre("sum/1:1"));
  EXPECT_TRUE(Refused(Ask(server, "sum", "3").status,
                      grpc::StatusCode::NOT_FOUND, "3"));
  EXPECT_TRUE(Refused(Ask(server, "product").status,
                      grpc::StatusCode::NOT_FOUND, "product"));
  const grpc::Status broken = Ask(server, "broken").status;
  EXPECT_TRUE(Refused(broken, grpc::StatusCode::NOT_FOUND, "no ONNX model"));
  EXPECT_EQ(Reason(FromGrpcStatus(broken)), "MODEL_REFUSED");
}

// One source, so that a dashboard and a load tester say the same.
TEST(StatisticsTest, AgreesWithTritonsMetrics) {
  TestServer server([](ServerOptions& o) {
    ServeDigits(o);
    o.triton_metrics = true;
  });
  for (int64_t rows : {1, 5, 5}) {
    EXPECT_TRUE(Infer(server, Digits(rows)).status.ok());
  }
  EXPECT_FALSE(Infer(server, Digits(513)).status.ok());
  const inference::ModelStatistics digits = Of(server, "digits");
  const inference::InferStatistics& stats = digits.inference_stats();
  const auto metric = [&](const std::string& name) {
    return server.Metric("nv_inference_" + name +
                         "{model=\"digits\",version=\"1\"}");
  };
  EXPECT_EQ(metric("request_success"), stats.success().count());
  EXPECT_EQ(metric("count"), digits.inference_count());
  EXPECT_EQ(metric("exec_count"), digits.execution_count());
  EXPECT_EQ(stats.fail().count(), 1u);
  const std::map<std::string, inference::StatisticDuration> durations = {
      {"request_duration_us", stats.success()},
      {"queue_duration_us", stats.queue()},
      {"compute_input_duration_us", stats.compute_input()},
      {"compute_infer_duration_us", stats.compute_infer()},
      {"compute_output_duration_us", stats.compute_output()}};
  for (const auto& [name, duration] : durations) {
    EXPECT_NEAR(metric(name), static_cast<double>(duration.ns()) * 1e-3, 1e-3)
        << name;
  }
}

}  // namespace
}  // namespace weir::testing
