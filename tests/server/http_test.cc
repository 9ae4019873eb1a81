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

}  // namespace
}  // namespace weir::testing
