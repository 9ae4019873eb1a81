// /metrics: every metric of the table, and what they count.
#include "server/observe/metrics.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/backend/devices.h"
#include "server/observe/model_metrics.h"
#include "tests/server/compile_hold.h"
#include "tests/server/lane_hold.h"
#include "tests/server/model_folder.h"
#include "tests/server/server_fixture.h"

namespace weir::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> Lines(const std::string& text) {
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

inference::ModelInferRequest Digits(int rows) {
  inference::ModelInferRequest request;
  request.set_model_name("digits");
  AddInput(&request, "image", "FP32", {rows, 1, 8, 8},
           std::string(static_cast<size_t>(rows) * 64 * sizeof(float), '\0'));
  return request;
}

void ServeModels(ServerOptions& options) {
  options.model_repository = TestData("data");
}

TEST(MetricsTest, ListsTheWholeTableAndNoSeriesTwice) {
  for (bool triton : {false, true}) {
    TestServer server([&](ServerOptions& o) {
      ServeModels(o);
      o.triton_metrics = triton;
    });
    EXPECT_TRUE(ServesOn(server));
    EXPECT_TRUE(Infer(server, Digits(1)).status.ok());
    std::set<std::string> types, series;
    for (const std::string& line : Lines(server.HttpGet("/metrics"))) {
      if (line.rfind("# TYPE ", 0) == 0) {
        types.insert(line.substr(7));
      } else if (line[0] != '#') {
        EXPECT_TRUE(series.insert(line.substr(0, line.rfind(' '))).second)
            << line;
      }
    }
    std::set<std::string> expected;
    for (const MetricDef& def : MetricDefs()) {
      if (def.triton && !triton) continue;
      expected.insert(absl::StrCat(def.name, " ", MetricTypeName(def.type)));
    }
    EXPECT_EQ(types, expected);
  }
}

// Who asks for le="60" gets nothing of le="60.00000000000001".
TEST(MetricsTest, BoundsAreTheDecimalsThatTheyStandFor) {
  TestServer server(ServeModels);
  EXPECT_TRUE(ServesOn(server));
  EXPECT_TRUE(Infer(server, Digits(1)).status.ok());
  std::set<std::string> bounds;
  for (const std::string& line : Lines(server.HttpGet("/metrics"))) {
    const std::pair<std::string, std::string> split =
        absl::StrSplit(line, absl::MaxSplits("le=\"", 1));
    const std::string bound = split.second.substr(0, split.second.find('"'));
    if (bound.empty() || bound == "+Inf") continue;
    bounds.insert(bound);
    const double value = std::strtod(bound.c_str(), nullptr);
    const std::string nanos = absl::StrCat(std::llround(value * 1e9), "e-9");
    EXPECT_EQ(value, std::strtod(nanos.c_str(), nullptr)) << line;
  }
  EXPECT_EQ(bounds.count("60"), 1u);
}

TEST(MetricsTest, TellsWhatTheServerIs) {
  TestServer server(ServeModels);
  const std::string device = "{device=\"" + TestDevice() + "\"}";
  EXPECT_EQ(server.Metric("weir_ready"), 1);
  EXPECT_EQ(server.Metric("weir_device_healthy" + device), 1);
  EXPECT_EQ(server.Metric("weir_models{state=\"ready\"}"), 1);
  EXPECT_EQ(server.Metric("weir_queue_limit"), ServerOptions().queue_length);
  EXPECT_EQ(server.DeviceMetric("weir_stream_pool_max_lanes"), 2);
  EXPECT_EQ(server.DeviceMetric("weir_memory_budget_bytes", "pool=\"host\""),
            static_cast<double>(ServerOptions().host_bytes));
  EXPECT_EQ(server.DeviceMetric("weir_memory_budget_bytes", "pool=\"tensor\""),
            static_cast<double>(ServerOptions().tensor_bytes));
  EXPECT_GT(server.DeviceMetric("weir_memory_bytes",
                                "pool=\"constants\",state=\"used\""),
            0);
  EXPECT_EQ(server.Metric(absl::StrCat("weir_build_info{version=\"", Version(),
                                       "\",build=\"", std::string(BuildId()),
                                       "\",device=\"", TestDevice(), "\"}")),
            1);
}

// Before callers are turned away, one can see it coming.
TEST(MetricsTest, ShowsConnectionsAndTheirLimit) {
  TestServer server([](ServerOptions& o) { o.max_connections = 20; });
  EXPECT_EQ(server.Metric("weir_connections_limit"), 20);
  EXPECT_TRUE(ServesOn(server));
  const double before = server.Metric("weir_connections");
  EXPECT_GE(before, 1);
  {
    const auto channel = server.Connect();
    EXPECT_TRUE(channel->WaitForConnected(std::chrono::system_clock::now() +
                                          std::chrono::minutes(1)));
    EXPECT_TRUE(Eventually(
        [&] { return server.Metric("weir_connections") == before + 1; }));
  }
  EXPECT_TRUE(
      Eventually([&] { return server.Metric("weir_connections") == before; }));
}

TEST(MetricsTest, TellsWhatTheProcessTakes) {
  TestServer server;
  for (const char* name :
       {"process_cpu_seconds_total", "process_resident_memory_bytes",
        "process_virtual_memory_bytes", "process_open_fds", "process_max_fds",
        "process_start_time_seconds", "process_threads"}) {
    EXPECT_GT(server.Metric(name), 0) << name;
  }
}

// Each device is told apart from the other, so that what is full on one can be
// seen: the CPU beside a GPU has as many streams and a quarter of the bytes.
TEST(MetricsTest, TellsEachDeviceByItself) {
  TestServer server(ServeModels);
  const bool two = TestDevice() != "cpu";
  const double bytes = two ? .25 : 1;
  auto cpu = [&](const std::string& name, const std::string& labels = "") {
    return server.Metric(absl::StrCat(name, "{device=\"cpu\"", labels, "}"));
  };
  EXPECT_EQ(cpu("weir_stream_pool_max_lanes"), 2);
  EXPECT_EQ(cpu("weir_memory_budget_bytes", ",pool=\"host\""),
            bytes * static_cast<double>(ServerOptions().host_bytes));
  EXPECT_EQ(cpu("weir_memory_budget_bytes", ",pool=\"tensor\""),
            bytes * static_cast<double>(ServerOptions().tensor_bytes));
  if (two) {
    EXPECT_EQ(cpu("weir_memory_bytes", ",pool=\"constants\",state=\"used\""),
              0);
  }
}

TEST(MetricsTest, CountsCallsByMethodAndCode) {
  TestServer server(ServeModels);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(ServesOn(server));
  v1::EvaluateRequest bad = IdentityRequest();
  bad.clear_inputs();
  EXPECT_FALSE(Evaluate(server, bad).status.ok());
  EXPECT_EQ(server.CallRaw("/weir.v1.Evaluator/Evaluate", "\xff").error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(server.CallRaw("/weir.v1.Catalog/ListModels", "\xff").error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  auto requests = [&](const std::string& method, const std::string& code) {
    return server.Requests(method, code);
  };
  EXPECT_TRUE(server.Settles());
  EXPECT_EQ(requests("Evaluate", "OK"), 3);
  EXPECT_EQ(requests("Evaluate", "INVALID_ARGUMENT"), 2);
  EXPECT_EQ(requests("ListModels", "INVALID_ARGUMENT"), 1);
  // The two that failed, and fast, are not among the durations.
  const std::string evaluate = "{method=\"Evaluate\"}";
  EXPECT_EQ(server.Metric("weir_request_seconds_count" + evaluate), 3);
  EXPECT_EQ(server.Metric(
                "weir_request_seconds_bucket{method=\"Evaluate\",le=\"+Inf\"}"),
            3);
  EXPECT_GT(server.Metric("weir_request_seconds_sum" + evaluate), 0);
  // However many names callers make up, they are one series.
  for (const char* method : {"/weir.v1.Catalog/Nothing", "/no.such/Method"}) {
    EXPECT_TRUE(Refused(server.CallRaw(method, "x"),
                        grpc::StatusCode::UNIMPLEMENTED, method));
  }
  EXPECT_TRUE(server.Settles());
  EXPECT_EQ(requests("unknown", "UNIMPLEMENTED"), 2);
  EXPECT_THAT(server.HttpGet("/metrics"), Not(HasSubstr("method=\"Nothing\"")));
}

// What begins at its first value has no rate when that comes.
TEST(MetricsTest, SeriesAreThereFromTheStart) {
  TestServer server(ServeModels);
  for (const char* method :
       {"Evaluate", "ModelInfer", "ListModels", "unknown"}) {
    for (const char* code : {"OK", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}) {
      EXPECT_EQ(server.Requests(method, code), 0);
    }
    for (const std::string_view reason : Metrics::kRefusals) {
      EXPECT_EQ(server.Refused(method, std::string(reason)), 0);
    }
    for (const char* name :
         {"weir_request_seconds", "weir_request_given_up_seconds"}) {
      EXPECT_EQ(
          server.Metric(absl::StrCat(name, "_count{method=\"", method, "\"}")),
          0);
    }
  }
  for (const char* name :
       {"weir_model_requests_total", "weir_model_errors_total",
        "weir_model_request_seconds_count",
        "weir_model_given_up_seconds_count"}) {
    EXPECT_EQ(
        server.Metric(absl::StrCat(name, "{model=\"digits\",version=\"1\"}")),
        0);
  }
}

TEST(MetricsTest, MeasuresTheStagesOfWhatWasEvaluated) {
  TestServer server(ServeModels);
  EXPECT_TRUE(Evaluate(server, SpinRequest(milliseconds(20))).status.ok());
  EXPECT_TRUE(Infer(server, Digits(3)).status.ok());
  EXPECT_TRUE(Infer(server, Digits(200)).status.ok());
  // Refused before it asked for a lane.
  EXPECT_FALSE(Infer(server, inference::ModelInferRequest()).status.ok());
  for (const char* name : {"weir_queue_wait_seconds", "weir_lane_wait_seconds",
                           "weir_compute_seconds"}) {
    EXPECT_EQ(server.Metric(absl::StrCat(name, "_count")), 3) << name;
  }
  EXPECT_GE(server.Metric("weir_compute_seconds_sum"), 0.02);
  EXPECT_LE(server.Metric("weir_compute_seconds_bucket{le=\"0.01\"}"), 2);
  EXPECT_EQ(server.Metric("weir_batch_size_count"), 2);
  EXPECT_EQ(server.Metric("weir_batch_size_sum"), 203);
  EXPECT_EQ(server.Metric("weir_batch_size_bucket{le=\"2\"}"), 0);
  EXPECT_EQ(server.Metric("weir_batch_size_bucket{le=\"4\"}"), 1);
  EXPECT_EQ(server.Metric("weir_batch_size_bucket{le=\"128\"}"), 1);
  EXPECT_GT(
      server.DeviceMetric("weir_memory_bytes", "pool=\"arena\",state=\"used\""),
      0);
}

// What is compiled, and planned, waits in the queue; lanes are free.
TEST(MetricsTest, TheWaitForALaneBeginsWhenAWorkIsReady) {
  TestServer server;
  ASSERT_TRUE(Evaluate(server, SpinRequest(milliseconds(1))).status.ok());
  const auto sum = [&](const char* stage) {
    return server.Metric(absl::StrCat("weir_", stage, "_wait_seconds_sum"));
  };
  const double queue = sum("queue"), lane = sum("lane");
  ASSERT_TRUE(Evaluate(server, IdentityRequest()).status.ok());
  EXPECT_LT(sum("lane") - lane, sum("queue") - queue);
}

TEST(MetricsTest, ShowsWhatIsCompiled) {
  CompileHold hold;
  TestServer server([&](ServerOptions& o) { hold.AddTo(o); });
  const auto metric = [&](const char* name) {
    return server.DeviceMetric(absl::StrCat("weir_compile", name));
  };
  EXPECT_EQ(metric("s_running"), 0);
  EXPECT_EQ(metric("s_waiting"), 0);
  EXPECT_EQ(metric("_seconds_count"), 0);
  {
    PendingEvaluate held(server, hold.Request());
    hold.WaitUntilHeld();
    PendingEvaluate waiting(server, IdentityRequest());
    EXPECT_TRUE(Eventually([&] { return metric("s_waiting") == 1; }));
    EXPECT_EQ(metric("s_running"), 1);
    EXPECT_EQ(metric("_seconds_count"), 0);
    hold.Open();
    EXPECT_TRUE(held.Wait().status.ok());
    EXPECT_TRUE(waiting.Wait().status.ok());
  }
  EXPECT_EQ(metric("s_waiting"), 0);
  EXPECT_EQ(metric("s_running"), 0);
  EXPECT_EQ(metric("_seconds_count"), 2);
  EXPECT_GT(metric("_seconds_sum"), 0);
}

TEST(MetricsTest, ShowsTheQueueAndItsAge) {
  LaneHold hold;
  TestServer server([&](ServerOptions& o) {
    o.streams = 1;
    hold.AddTo(o);
  });
  {
    HeldEvaluate running(server, hold);
    ASSERT_TRUE(Eventually([&] {
      return server.Metric("weir_requests_in_flight") == 1 &&
             server.Metric("weir_queue_depth") == 0;
    }));
    PendingEvaluate first(server, IdentityRequest());
    PendingEvaluate second(server, IdentityRequest());
    ASSERT_TRUE(
        Eventually([&] { return server.Metric("weir_queue_depth") == 2; }));
    const double age = server.Metric("weir_queue_age_seconds");
    EXPECT_GT(age, 0);
    EXPECT_TRUE(Eventually(
        [&] { return server.Metric("weir_queue_age_seconds") > age; }));
    EXPECT_TRUE(running.Release().status.ok());
  }
  EXPECT_EQ(server.Metric("weir_queue_depth"), 0);
  EXPECT_EQ(server.Metric("weir_queue_age_seconds"), 0);
  EXPECT_EQ(server.Metric("weir_requests_in_flight"), 0);
}

// What was created is somewhere, and never more than the limit.
// A lane is in one state, and in the right one.
TEST(MetricsTest, ThePoolEquationHolds) {
  LaneHold hold;
  TestServer server([&](ServerOptions& o) { hold.AddTo(o); });
  const auto lanes = [&server](const char* state) {
    return server.DeviceMetric("weir_stream_pool_lanes",
                               absl::StrCat("state=\"", state, "\""));
  };
  const auto all = [&lanes] {
    return lanes("idle") + lanes("leased") + lanes("draining") +
           lanes("retired");
  };
  EXPECT_TRUE(ServesOn(server));
  EXPECT_TRUE(Eventually([&] { return lanes("idle") == 1; }));
  EXPECT_EQ(all(), 1);
  HeldEvaluate running(server, hold);
  EXPECT_TRUE(Eventually([&] { return lanes("leased") == 1; }));
  EXPECT_EQ(lanes("idle"), 0);
  EXPECT_EQ(all(), 1);
  EXPECT_TRUE(ServesOn(server));
  EXPECT_EQ(all(), 2);
  EXPECT_LE(all(), server.DeviceMetric("weir_stream_pool_max_lanes"));
  EXPECT_TRUE(running.Release().status.ok());
  EXPECT_TRUE(Eventually([&] { return lanes("idle") == 2; }));
  EXPECT_EQ(all(), 2);
}

// The three metrics of a model; no version: of those without series of their
// own.
struct ModelSeries {
  double requests, errors, successes;
  bool operator==(const ModelSeries&) const = default;
};
ModelSeries SeriesOf(const TestServer& server, const std::string& model,
                     const std::string& version = "1") {
  std::string labels = absl::StrCat("{model=\"", model, "\"");
  if (!version.empty()) absl::StrAppend(&labels, ",version=\"", version, "\"");
  labels += "}";
  return {server.Metric("weir_model_requests_total" + labels),
          server.Metric("weir_model_errors_total" + labels),
          server.Metric("weir_model_request_seconds_count" + labels)};
}

ModelSeries SeriesOfOthers(const TestServer& server) {
  return SeriesOf(server, std::string(ModelMetrics::kOtherModels), "");
}

// `right` requests that succeed, and one that is the caller's mistake.
void Ask(TestServer& server, const std::string& model, int right) {
  inference::ModelInferRequest request;
  request.set_model_name(model);
  AddInput(&request, "x", "FP32", {2}, Bytes<float>({1, 2}));
  for (int i = 0; i < right; ++i) {
    EXPECT_TRUE(Infer(server, request).status.ok());
  }
  request.mutable_inputs(0)->set_datatype("FP64");
  EXPECT_FALSE(Infer(server, request).status.ok());
}

// However many models there are, a scrape stays small.
TEST(MetricsTest, ModelsBeyondTheirBoundAreSummedUp) {
  ModelFolder models;
  for (const char* name : {"a", "c", "d"}) {
    models.Write(name, IdentityModel(onnx::TensorProto::FLOAT));
  }
  // Keeps a place although it is refused, so that all servers choose alike.
  models.WriteBytes("b", "garbage");
  TestServer server([&](ServerOptions& o) {
    o.model_repository = models.path();
    o.triton_metrics = true;
    o.metrics_models = 2;
  });
  EXPECT_EQ(SeriesOf(server, "a"), (ModelSeries{0, 0, 0}));
  EXPECT_EQ(SeriesOfOthers(server), (ModelSeries{0, 0, 0}));
  Ask(server, "a", 1);
  Ask(server, "c", 2);
  Ask(server, "d", 3);
  EXPECT_EQ(SeriesOf(server, "a"), (ModelSeries{2, 0, 1}));
  EXPECT_EQ(SeriesOfOthers(server), (ModelSeries{7, 0, 5}));
  const std::string text = server.HttpGet("/metrics");
  EXPECT_THAT(text, HasSubstr("nv_inference_count{model=\"a\""));
  EXPECT_THAT(text, Not(HasSubstr("model=\"c\"")));
  EXPECT_THAT(text, Not(HasSubstr("model=\"d\"")));
  for (const std::string& line : Lines(text)) {
    if (line.rfind("nv_", 0) != 0) continue;
    EXPECT_THAT(line, Not(HasSubstr(ModelMetrics::kOtherModels)));
  }
}

TEST(MetricsTest, AScrapeOfFiveHundredModelsIsSmall) {
  constexpr int kModels = 500;
  constexpr size_t kMostBytes = size_t{2} << 20;
  ModelFolder models;
  const auto name = [](int i) { return absl::StrCat("a-team-s-model-", i); };
  models.Write(name(0), IdentityModel(onnx::TensorProto::FLOAT));
  for (int i = 1; i < kModels; ++i) models.Link(name(0), name(i));
  const auto scrape = [&](size_t own, bool triton) {
    TestServer server([&](ServerOptions& o) {
      o.model_repository = models.path();
      o.metrics_models = own;
      o.triton_metrics = triton;
    });
    EXPECT_EQ(server.server().models_ready(), size_t{kModels});
    Ask(server, name(1), 2);
    const ModelSeries asked = {3, 0, 2};
    EXPECT_EQ(own == 0 ? SeriesOfOthers(server) : SeriesOf(server, name(1)),
              asked);
    return server.HttpGet("/metrics").size();
  };
  const size_t all = scrape(kModels, /*triton=*/true);
  EXPECT_LT(all, kMostBytes);
  const size_t bounded = scrape(ServerOptions().metrics_models, false);
  EXPECT_LT(bounded, kMostBytes / 4);
  const size_t none = scrape(0, false);
  EXPECT_LT(none, bounded);
  RecordProperty("bytes", absl::StrCat(all, ", ", bounded, ", ", none));
}

TEST(MetricsTest, NoModelMayHaveSeriesOfItsOwn) {
  TestServer server([](ServerOptions& o) {
    ServeModels(o);
    o.metrics_models = 0;
  });
  EXPECT_TRUE(Infer(server, Digits(1)).status.ok());
  EXPECT_EQ(SeriesOfOthers(server), (ModelSeries{1, 0, 1}));
  EXPECT_THAT(server.HttpGet("/metrics"), Not(HasSubstr("model=\"digits\"")));
}

// What counts under one name goes on under it: a model that was loaded later
// than others takes no place from them, nor one that they had taken.
TEST(MetricsTest, NoModelChangesItsSeries) {
  ModelFolder models;
  CompileHold hold;
  models.Write("a", hold.Model());
  models.Write("b", IdentityModel(onnx::TensorProto::FLOAT));
  models.Write("c", IdentityModel(onnx::TensorProto::FLOAT));
  TestServer server(
      [&](ServerOptions& o) {
        o.model_repository = models.path();
        o.metrics_models = 1;
        hold.AddTo(o);
      },
      std::cerr, Models::kLoading);
  EXPECT_TRUE(Eventually(
      [&] { return server.Metric("weir_models{state=\"ready\"}") == 2; }));
  Ask(server, "b", 1);
  Ask(server, "c", 1);
  const ModelSeries others = {4, 0, 2};
  EXPECT_EQ(SeriesOfOthers(server), others);
  hold.Open();
  EXPECT_TRUE(Eventually(
      [&] { return server.Metric("weir_models{state=\"ready\"}") == 3; }));
  EXPECT_EQ(SeriesOf(server, "a"), (ModelSeries{0, 0, 0}));
  EXPECT_EQ(SeriesOfOthers(server), others);
  Ask(server, "a", 1);
  EXPECT_EQ(SeriesOf(server, "a"), (ModelSeries{2, 0, 1}));
  EXPECT_EQ(SeriesOfOthers(server), others);
}

// Failures are no requests of short times.
TEST(MetricsTest, TheTimesOfAModelAreThoseOfSuccesses) {
  TestServer server(ServeModels);
  EXPECT_TRUE(Infer(server, Digits(1)).status.ok());
  inference::ModelInferRequest bad = Digits(1);
  bad.clear_raw_input_contents();
  EXPECT_FALSE(Infer(server, bad).status.ok());
  const std::string labels = "model=\"digits\",version=\"1\"";
  const std::string name = "weir_model_request_seconds";
  EXPECT_EQ(server.Metric(absl::StrCat(name, "_count{", labels, "}")), 1);
  EXPECT_EQ(
      server.Metric(absl::StrCat(name, "_bucket{", labels, ",le=\"+Inf\"}")),
      1);
  EXPECT_GT(server.Metric(absl::StrCat(name, "_sum{", labels, "}")), 0);
}

TEST(MetricsTest, CountsServedModelsUnderTritonsNames) {
  TestServer server([](ServerOptions& o) {
    ServeModels(o);
    o.triton_metrics = true;
  });
  EXPECT_TRUE(Infer(server, Digits(1)).status.ok());
  EXPECT_TRUE(Infer(server, Digits(5)).status.ok());
  inference::ModelInferRequest bad = Digits(1);
  bad.clear_raw_input_contents();
  EXPECT_FALSE(Infer(server, bad).status.ok());
  auto metric = [&](const std::string& name) {
    return server.Metric(name + "{model=\"digits\",version=\"1\"}");
  };
  EXPECT_EQ(metric("weir_model_requests_total"), 3);
  EXPECT_EQ(metric("weir_model_errors_total"), 0);
  EXPECT_EQ(metric("nv_inference_request_success"), 2);
  EXPECT_EQ(metric("nv_inference_count"), 6);
  EXPECT_EQ(metric("nv_inference_exec_count"), 2);
  EXPECT_EQ(server.Metric("nv_inference_request_failure{model=\"digits\","
                          "version=\"1\",reason=\"OTHER\"}"),
            1);
  const double parts = metric("nv_inference_queue_duration_us") +
                       metric("nv_inference_compute_input_duration_us") +
                       metric("nv_inference_compute_infer_duration_us") +
                       metric("nv_inference_compute_output_duration_us");
  EXPECT_GT(metric("nv_inference_compute_infer_duration_us"), 0);
  EXPECT_NEAR(metric("nv_inference_request_duration_us"), parts, 1);
}

}  // namespace
}  // namespace weir::testing
