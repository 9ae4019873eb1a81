// The HTTP port: /healthz and /readyz. For /metrics see metrics_test.cc.
#include <gtest/gtest.h>

#include <string>

#include "tests/server/server_fixture.h"

namespace weir::testing {
namespace {

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

// Leaks are looked for as what is 0 in the end.
TEST(TestServerDeathTest, WhatIsNotToldIsNotZero) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  TestServer server;
  EXPECT_EQ(server.Requests("Evaluate", "OK"), 0);
  EXPECT_DEATH(server.Requests("Evaluat", "OK"), "no series .*Evaluat");
  EXPECT_DEATH(server.Requests("Evaluate", "Ok"), "no series .*Ok");
  EXPECT_DEATH(server.Metric("weir_nothing"), "no series weir_nothing");
  TestServer silent([](ServerOptions& o) { o.http = ""; });
  EXPECT_DEATH(silent.Requests("Evaluate", "OK"), "no metrics");
}

}  // namespace
}  // namespace weir::testing
