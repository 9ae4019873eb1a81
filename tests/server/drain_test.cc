// Server::Drain: unready first, serving meanwhile, then no new connections,
// and no request lost.
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "client/cpp/client.h"
#include "client/cpp/load.h"
#include "kernels/backend/devices.h"
#include "server/drain_times.h"
#include "server/observe/line_writer.h"
#include "server/rpc/transport.h"
#include "tests/observe/holding_log.h"
#include "tests/rpc/raw_http2.h"
#include "tests/server/lane_hold.h"
#include "tests/server/raw_stream.h"
#include "tests/server/server_fixture.h"

namespace weir::testing {
namespace {

using grpc::StatusCode;
using std::chrono::milliseconds;

class Interrupt {
 public:
  Interrupt() : fd_(eventfd(0, EFD_CLOEXEC)) {}
  ~Interrupt() { close(fd_); }
  Server::WaitFn wait() const {
    return [fd = fd_](absl::Duration timeout) {
      pollfd entry{fd, POLLIN, 0};
      return poll(&entry, 1,
                  static_cast<int>(absl::ToInt64Milliseconds(timeout))) > 0;
    };
  }
  void Set() {
    const uint64_t one = 1;
    EXPECT_EQ(write(fd_, &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
  }
  // Drain only looks whether it is readable.
  void Clear() {
    uint64_t count = 0;
    EXPECT_EQ(read(fd_, &count, sizeof(count)),
              static_cast<ssize_t>(sizeof(count)));
  }

 private:
  const int fd_;
};

bool Unready(TestServer& server) {
  int code = 0;
  server.HttpGet("/readyz", &code);
  return code == 503;
}

TEST(DrainTest, EveryWaitHasRoomBeforeTheProcessIsGone) {
  using Times = DrainTimes;
  const absl::Duration after_timeout =
      Times::kLastWords + Times::kCutPatience + Transport::kHangPatience;
  EXPECT_LE(after_timeout + LineWriter::kPatience, Times::kOverrun)
      << "calls that are cut, a thread that hangs, a log that nobody reads";
  EXPECT_LE(Times::kLastAnswers + Times::kLastWords, Times::kLossPatience);
  const Times times = {absl::Seconds(3), absl::Seconds(4)};
  EXPECT_EQ(times.AtLatest(), absl::Seconds(7) + Times::kOverrun);
}

TEST(DrainTest, IsUnreadyButServesOnDuringTheDelay) {
  TestServer server([](ServerOptions& o) {
    o.model_repository = TestData("data");
    o.drain_delay = absl::Hours(1);
    o.drain_timeout = absl::Seconds(30);
    o.max_connection_age = absl::InfiniteDuration();
  });
  client::Client client({.address = server.address()});
  ASSERT_TRUE(*client.IsServing());
  Interrupt interrupt;
  std::thread drain([&] { server.server().Drain(interrupt.wait()); });
  ASSERT_TRUE(Eventually([&] { return Unready(server); }));
  int code = 0;
  server.HttpGet("/healthz", &code);
  EXPECT_EQ(code, 200);
  EXPECT_TRUE(Eventually([&] { return !*client.IsServing(); }));
  EXPECT_TRUE(Eventually([&] { return !*client.IsServing("model/digits"); }));
  EXPECT_TRUE(*client.IsServing("live"));
  const auto info = client.GetServerInfo();
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_FALSE(info->ready());
  EXPECT_EQ(info->reason(), "draining");
  // Old and new connections are served.
  EXPECT_TRUE(ServesOn(server));
  const auto stub = v1::Evaluator::NewStub(server.Connect());
  grpc::ClientContext context;
  SetPatience(&context);
  v1::EvaluateResponse response;
  EXPECT_TRUE(stub->Evaluate(&context, IdentityRequest(), &response).ok());
  interrupt.Set();
  drain.join();
}

TEST(DrainTest, AnswersWhatIsInFlightAndTakesNoNewConnections) {
  LaneHold hold;
  TestServer server([&](ServerOptions& o) {
    o.drain_timeout = absl::Seconds(30);
    o.max_connection_age = absl::InfiniteDuration();
    hold.AddTo(o);
  });
  HeldEvaluate running(server, hold);
  ASSERT_TRUE(Eventually([&] { return server.Leases() == 1; }));
  Interrupt interrupt;
  std::thread drain([&] { server.server().Drain(interrupt.wait()); });
  ASSERT_TRUE(Eventually([&] { return Unready(server); }));
  const auto stub = v1::Evaluator::NewStub(server.Connect());
  // Refused as soon as the listeners are closed.
  EXPECT_TRUE(Eventually([&] {
    const auto other = v1::Evaluator::NewStub(server.Connect());
    grpc::ClientContext context;
    SetPatience(&context);
    v1::EvaluateResponse response;
    return other->Evaluate(&context, IdentityRequest(), &response)
               .error_code() == StatusCode::UNAVAILABLE;
  }));
  EXPECT_TRUE(running.Release().status.ok())
      << running.Wait().status.error_message();
  drain.join();
}

TEST(DrainTest, CutsWhatOutlastsTheTimeout) {
  LaneHold hold;
  TestServer server([&](ServerOptions& o) {
    o.drain_timeout = absl::Milliseconds(100);
    hold.AddTo(o);
  });
  HeldEvaluate running(server, hold);
  ASSERT_TRUE(Eventually([&] { return server.Leases() == 1; }));
  Interrupt interrupt;
  // Its client hears that it was cut, and from then on it may answer.
  std::thread cut([&] {
    running.Wait();
    hold.Open();
  });
  const DrainResult result = server.server().Drain(interrupt.wait());
  cut.join();
  EXPECT_EQ(result.calls, 1);
  EXPECT_EQ(result.unanswered, 0);
  const StatusCode code = running.Wait().status.error_code();
  EXPECT_TRUE(code == StatusCode::CANCELLED || code == StatusCode::UNAVAILABLE)
      << code;
}

// Two servers behind one name: one drains while calls keep coming. Each of them
// is answered.
// Whoever watches health keeps its connection until it is told to go.
TEST(DrainTest, AWatchDoesNotHoldIt) {
  TestServer server([](ServerOptions& o) {
    o.drain_timeout = absl::Minutes(10);
    o.max_connection_age = absl::Milliseconds(200);
  });
  RawStream watch(server, "/grpc.health.v1.Health/Watch");
  ASSERT_TRUE(watch.Write(""));
  ASSERT_TRUE(watch.Read().has_value());
  Interrupt interrupt;
  const DrainResult result = server.server().Drain(interrupt.wait());
  EXPECT_TRUE(result.settled());
  while (watch.Read().has_value()) {
  }
  EXPECT_EQ(watch.Finish().error_code(), StatusCode::UNAVAILABLE);
}

// Nor does a reply that nobody reads, once the device is lost: with connections
// that do not age nothing else is left by then.
TEST(DrainTest, ALossIsHeardWhileAReplyIsNotRead) {
  Device* device = nullptr;
  TestServer server([&](ServerOptions& o) {
    o.devices = {"cpu"};
    o.make_device = [&](std::string_view name, const DeviceOptions& options,
                        OpRegistry& registry) {
      auto made = MakeDevice(name, options, registry);
      if (made.ok()) device = made->get();
      return made;
    };
    o.drain_timeout = absl::Minutes(10);
    o.max_connection_age = absl::InfiniteDuration();
    o.send_timeout = absl::InfiniteDuration();
  });
  RawHttp2 client(server.address(), /*window=*/0);
  const std::string message = IdentityRequest().SerializeAsString();
  client.Begin(1, "/weir.v1.Evaluator/Evaluate");
  client.Send(1, RawHttp2::Prefix(message.size()) + message, /*last=*/true);
  ASSERT_TRUE(client.Await(1));
  Interrupt interrupt;
  DrainResult result;
  std::thread drain([&] { result = server.server().Drain(interrupt.wait()); });
  EXPECT_TRUE(client.AwaitGoAway());
  device->health().Poison(absl::UnavailableError("lost"));
  drain.join();
  EXPECT_TRUE(result.settled());
}

// A handler that never comes back has the drain end without it: in time, and
// saying so.
TEST(DrainTest, AThreadThatHangsDoesNotHoldIt) {
  HoldingLog log;
  TestServer server(
      [](ServerOptions& o) {
        o.io_threads = 1;
        o.log_level = LogLevel::kInfo;
        o.drain_timeout = absl::Milliseconds(100);
      },
      log.stream());
  log.holds = true;
  v1::EvaluateRequest bad = IdentityRequest();
  bad.clear_inputs();
  PendingEvaluate call(server, bad);
  log.held.Wait();
  Interrupt interrupt;
  const DrainResult result = server.server().Drain(interrupt.wait());
  EXPECT_TRUE(result.hangs);
  EXPECT_FALSE(result.settled());
  log.go_on.Set();
  call.Wait();
}

TEST(DrainTest, LosesNothingUnderLoad) {
  const auto aging = [](ServerOptions& o) {
    o.drain_timeout = absl::Seconds(30);
    o.max_connection_age = absl::Milliseconds(500);
  };
  TestServer drained(aging);
  TestServer other(aging);
  v1::EvaluateRequest request = IdentityRequest();
  request.set_mode(v1::EVAL_MODE_SYNC_FULL);
  client::LoadOptions load;
  load.address = "ipv4:" + drained.address() + "," + other.address();
  load.method = "/weir.v1.Evaluator/Evaluate";
  load.request = request.SerializeAsString();
  load.callers = 8;
  load.threads = 2;
  load.warmup_seconds = 0;
  load.seconds = 3;
  Interrupt interrupt;
  std::thread drain;
  const client::LoadResult result =
      client::RunLoad(load, [&](const client::LoadProgress&) {
        if (drain.joinable()) return;
        drain = std::thread([&] { drained.server().Drain(interrupt.wait()); });
      });
  drain.join();
  EXPECT_EQ(result.error_count(), 0) << result.first_error;
  EXPECT_GT(result.calls, 0);
  EXPECT_GT(drained.Requests("Evaluate", "OK"), 0);
  EXPECT_GT(other.Requests("Evaluate", "OK"), 0);
}

}  // namespace
}  // namespace weir::testing
