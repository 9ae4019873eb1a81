// The HTTP port: /healthz, /readyz, /metrics.
#include <gmock/gmock.h>

#include <string>

#include "tests/server/server_fixture.h"

namespace weir::testing {
namespace {

using ::testing::HasSubstr;

TEST(HttpTest, TellsHealthAndReadiness) {
  TestServer server;
  for (const char* path : {"/healthz", "/readyz"}) {
    int code = 0;
    server.HttpGet(path, &code);
    EXPECT_EQ(code, 200) << path;
  }
  int code = 0;
  server.HttpGet("/nothing", &code);
  EXPECT_EQ(code, 404);
  server.HttpGet("/../etc/passwd", &code);
  EXPECT_NE(code, 200);
}

TEST(HttpTest, CanBeOff) {
  TestServer server([](ServerOptions& o) { o.http = ""; });
  EXPECT_EQ(server.server().http_address(), "");
  EXPECT_TRUE(ServesOn(server));
}

TEST(HttpTest, MetricsHaveTheirNames) {
  TestServer server(
      [](ServerOptions& o) { o.model_repository = TestData("models"); });
  EXPECT_TRUE(ServesOn(server));
  const std::string text = server.HttpGet("/metrics");
  for (const char* name :
       {"weir_requests_total", "weir_request_duration_seconds",
        "weir_build_info", "weir_ready", "weir_device_healthy",
        "weir_stream_pool_lanes", "weir_stream_pool_max_lanes",
        "weir_stream_pool_waiting", "weir_stream_pool_leases_total",
        "weir_requests_in_flight", "weir_request_bytes_in_flight",
        "weir_requests_refused_total", "weir_works_parked", "weir_pinned_bytes",
        "weir_programs", "weir_models"}) {
    EXPECT_THAT(text, HasSubstr("# HELP " + std::string(name) + " "));
    EXPECT_THAT(text, HasSubstr("# TYPE " + std::string(name) + " "));
  }
  EXPECT_EQ(server.Metric("weir_ready"), 1);
  EXPECT_EQ(server.Metric("weir_device_healthy"), 1);
  EXPECT_EQ(server.Metric("weir_models{state=\"ready\"}"), 1);
  EXPECT_EQ(server.Metric("weir_stream_pool_max_lanes"), 2);
  EXPECT_EQ(server.Metric("weir_build_info{version=\"" +
                          std::string(Version()) + "\"}"),
            1);
}

TEST(HttpTest, MetricsCountCallsByMethodAndCode) {
  TestServer server;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(ServesOn(server));
  v1::EvaluateRequest bad = IdentityRequest();
  bad.clear_inputs();
  EXPECT_FALSE(Evaluate(server, bad).status.ok());
  EXPECT_EQ(
      server.Metric("weir_requests_total{method=\"Evaluate\",code=\"OK\"}"), 3);
  EXPECT_EQ(
      server.Metric("weir_requests_total{method=\"Evaluate\",code=\"INVALID_"
                    "ARGUMENT\"}"),
      1);
  EXPECT_EQ(
      server.Metric("weir_request_duration_seconds_count{method=\"Evaluate\"}"),
      4);
  EXPECT_EQ(server.Metric("weir_request_duration_seconds_bucket{method="
                          "\"Evaluate\",le=\"+Inf\"}"),
            4);
  EXPECT_GT(
      server.Metric("weir_request_duration_seconds_sum{method=\"Evaluate\"}"),
      0);
  EXPECT_EQ(server.Metric(
                "weir_request_duration_seconds_count{method=\"ModelInfer\"}"),
            0);
}

// What was created is somewhere, and never more than the limit.
TEST(HttpTest, ThePoolEquationHolds) {
  TestServer server;
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(ServesOn(server));
    double sum = 0;
    for (const char* state : {"idle", "leased", "draining", "retired"}) {
      sum += server.Metric("weir_stream_pool_lanes{device=\"cpu\",state=\"" +
                           std::string(state) + "\"}");
    }
    EXPECT_LE(sum, server.Metric("weir_stream_pool_max_lanes"));
  }
}

}  // namespace
}  // namespace weir::testing
