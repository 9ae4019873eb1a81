// weir.v1.Admin: who may, and what it does to the server.
#include "server/services/admin.h"

#include <gmock/gmock.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "kernels/base/error_info.h"
#include "kernels/base/mutex.h"
#include "tests/base/event.h"
#include "tests/models/temp_folder.h"
#include "tests/server/lane_hold.h"
#include "tests/server/server_fixture.h"

namespace weir::testing {
namespace {

using grpc::StatusCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

grpc::Status SetLevel(v1::Admin::Stub& stub, v1::LogLevel level,
                      const std::string& authorization = "") {
  grpc::ClientContext context;
  SetPatience(&context);
  if (!authorization.empty()) {
    context.AddMetadata("authorization", authorization);
  }
  v1::SetLogLevelRequest request;
  request.set_level(level);
  v1::SetLogLevelResponse response;
  return stub.SetLogLevel(&context, request, &response);
}

v1::DrainResponse Drain(TestServer& server) {
  grpc::ClientContext context;
  SetPatience(&context);
  v1::DrainResponse response;
  EXPECT_TRUE(server.admin().Drain(&context, {}, &response).ok());
  return response;
}

bool DrainWanted(TestServer& server) {
  pollfd entry{server.server().drain_requested_fd(), POLLIN, 0};
  return poll(&entry, 1, 0) == 1;
}

// An IPv4 address of this machine that is not loopback; "" if it has none.
std::string OuterAddress() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  std::string found;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    char host[NI_MAXHOST];
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET ||
        getnameinfo(each->ifa_addr, sizeof(sockaddr_in), host, sizeof(host),
                    nullptr, 0, NI_NUMERICHOST) != 0) {
      continue;
    }
    if (std::string(host).rfind("127.", 0) != 0) found = host;
  }
  freeifaddrs(all);
  return found;
}

// Proxies beside the server dial from the loopback interface for everybody.
TEST(AdminTest, OverTcpTheTokenIsNeededFromThisMachineToo) {
  TempFolder folder;
  const std::string path = folder.Write("token", "word");
  for (const std::string& host : {std::string("127.0.0.1"), OuterAddress()}) {
    if (host.empty()) continue;
    for (bool token : {false, true}) {
      TestServer server([&](ServerOptions& o) {
        o.grpc = {host + ":0"};
        o.insecure = true;
        if (token) o.admin_token_file = path;
      });
      const auto stub = v1::Admin::NewStub(server.Connect());
      const grpc::Status status =
          SetLevel(*stub, v1::LOG_LEVEL_ERROR, "Bearer word");
      if (token) {
        EXPECT_TRUE(status.ok()) << status.error_message();
      } else {
        EXPECT_TRUE(Refused(status, StatusCode::PERMISSION_DENIED,
                            "--admin-token-file"));
        EXPECT_THAT(status.error_message(), HasSubstr("unix:PATH"));
        EXPECT_EQ(Reason(FromGrpcStatus(status)), "ADMIN_OVER_TCP");
      }
      EXPECT_TRUE(ServesOn(server));
    }
  }
}

// Whoever may open the file may operate the server, with a token file or not.
TEST(AdminTest, OverAUnixSocketNoTokenIsNeeded) {
  TempFolder folder;
  for (bool token : {false, true}) {
    TestServer server([&](ServerOptions& o) {
      if (token) o.admin_token_file = folder.Write("token", "word");
    });
    EXPECT_TRUE(SetLevel(server.admin(), v1::LOG_LEVEL_ERROR).ok());
  }
}

TEST(AdminTest, DrainAsksTheProcessOnceAndTellsTheBounds) {
  TestServer server([](ServerOptions& o) {
    o.drain_delay = absl::Seconds(3);
    o.drain_timeout = absl::Seconds(7);
  });
  EXPECT_FALSE(DrainWanted(server));
  v1::DrainResponse response = Drain(server);
  EXPECT_TRUE(response.started());
  EXPECT_EQ(response.delay_ns(), 3'000'000'000);
  EXPECT_EQ(response.limit_ns(), 10'000'000'000);
  EXPECT_EQ(response.requests_in_flight(), 0u);
  EXPECT_TRUE(DrainWanted(server));
  EXPECT_FALSE(Drain(server).started());
  EXPECT_TRUE(ServesOn(server));
}

TEST(AdminTest, DrainTellsHowManyRequestsAreInFlight) {
  LaneHold hold;
  TestServer server([&](ServerOptions& o) { hold.AddTo(o); });
  HeldEvaluate running(server, hold);
  ASSERT_TRUE(Eventually([&] { return server.Leases() == 1; }));
  EXPECT_EQ(Drain(server).requests_in_flight(), 1u);
  EXPECT_TRUE(running.Release().status.ok())
      << running.Wait().status.error_message();
}

TEST(AdminTest, RefusesALevelThatIsNone) {
  TestServer server;
  for (int level : {0, 9}) {
    EXPECT_TRUE(
        Refused(SetLevel(server.admin(), static_cast<v1::LogLevel>(level)),
                StatusCode::INVALID_ARGUMENT,
                "is not a log level; there are LOG_LEVEL_DEBUG, "
                "LOG_LEVEL_INFO, LOG_LEVEL_WARNING and LOG_LEVEL_ERROR"));
  }
}

TEST(AdminTest, WithATokenFileEveryCallNeedsTheToken) {
  TempFolder folder;
  const std::string path = folder.Write("token", "s3cret-word\n");
  TestServer server([&](ServerOptions& o) { o.admin_token_file = path; });
  const auto admin = v1::Admin::NewStub(server.Connect());
  for (const char* header :
       {"", "Bearer ", "Bearer s3cret-wor", "Bearer s3cret-word2",
        "Bearer s3cret-worD", "Bearer s3cret-words3cret-word", "s3cret-word",
        "Basic s3cret-word"}) {
    const grpc::Status status = SetLevel(*admin, v1::LOG_LEVEL_ERROR, header);
    EXPECT_TRUE(
        Refused(status, StatusCode::UNAUTHENTICATED, "authorization: Bearer"))
        << header;
    EXPECT_EQ(Reason(FromGrpcStatus(status)), "ADMIN_TOKEN");
    // Who sent one is not told as who sent none.
    const bool sent = std::string(header).rfind("Bearer s", 0) == 0;
    EXPECT_EQ(status.error_message().rfind(
                  "the token is another than the server's: ", 0) == 0,
              sent)
        << status.error_message();
  }
  grpc::ClientContext context;
  SetPatience(&context);
  v1::DrainResponse response;
  EXPECT_EQ(admin->Drain(&context, {}, &response).error_code(),
            StatusCode::UNAUTHENTICATED);
  EXPECT_FALSE(DrainWanted(server));
  EXPECT_TRUE(SetLevel(*admin, v1::LOG_LEVEL_ERROR, "Bearer s3cret-word").ok());
  EXPECT_TRUE(ServesOn(server));  // others need no token
}

TEST(AdminTest, ATokenFileThatHoldsNoTokenIsAnError) {
  TempFolder folder;
  for (const std::string& content :
       {std::string(), std::string("\n \n"), std::string("two words"),
        std::string("a\0b", 3), std::string(5000, 'x')}) {
    ServerOptions options = TestOptions();
    options.admin_token_file = folder.Write("token", content);
    const auto server = Server::Start(options);
    ASSERT_FALSE(server.ok()) << content;
    EXPECT_THAT(std::string(server.status().message()),
                HasSubstr("--admin-token-file: " + options.admin_token_file));
  }
  ServerOptions options = TestOptions();
  options.admin_token_file = folder.path().string();
  EXPECT_THAT(std::string(Server::Start(options).status().message()),
              HasSubstr("--admin-token-file: " + options.admin_token_file +
                        ": not a file"));
  // Nobody writes to it: no waiting.
  options.admin_token_file = (folder.path() / "pipe").string();
  ASSERT_EQ(mkfifo(options.admin_token_file.c_str(), 0600), 0);
  EXPECT_THAT(std::string(Server::Start(options).status().message()),
              HasSubstr("--admin-token-file: " + options.admin_token_file +
                        ": not a file"));
  // This machine refuses it, not the command line: exit code 1, not 2.
  options.admin_token_file = "/no/such/file";
  EXPECT_THAT(
      std::string(Server::Start(options).status().message()),
      HasSubstr(
          "--admin-token-file: /no/such/file: No such file or directory"));
}

TEST(AdminTest, ARenewedTokenNeedsNoRestart) {
  TempFolder folder;
  const std::string path = folder.Write("token", "first");
  Mutex mu;
  Event heard;
  std::vector<std::string> events;
  const auto token = AdminToken::Open(
      path,
      [&](bool, const std::string& event) {
        const MutexLock lock(&mu);
        events.push_back(event);
        heard.Set();
      },
      absl::Milliseconds(1));
  ASSERT_TRUE(token.ok()) << token.status();
  EXPECT_TRUE((*token)->Matches("first"));
  const auto replace = [&](const std::string& content) {
    folder.Write("next", content);
    std::filesystem::rename(folder.path() / "next", path);
  };
  replace("");
  heard.Wait(1);
  EXPECT_TRUE((*token)->Matches("first"));
  replace("second");
  heard.Wait(2);
  EXPECT_TRUE((*token)->Matches("second"));
  EXPECT_FALSE((*token)->Matches("first"));
  const MutexLock lock(&mu);
  EXPECT_THAT(events, ElementsAre(HasSubstr("holds no token; the token of "
                                            "before stays in use"),
                                  HasSubstr("new token in use")));
}

}  // namespace
}  // namespace weir::testing
