#include "client/cpp/load.h"

#include <gmock/gmock.h>

#include <string>

#include "tests/server/server_fixture.h"

namespace weir::client {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using weir::testing::IdentityRequest;
using weir::testing::SpinRequest;
using weir::testing::TestServer;

LoadOptions Load(const TestServer& server, const v1::EvaluateRequest& request) {
  LoadOptions options;
  options.address = server.address();
  options.method = "/weir.v1.Evaluator/Evaluate";
  options.request = request.SerializeAsString();
  options.warmup_seconds = 0;
  options.seconds = 0.6;
  return options;
}

TEST(LoadTest, ClosedLoopCountsItsCalls) {
  TestServer server;
  LoadOptions options = Load(server, IdentityRequest());
  options.callers = 5;
  options.threads = 2;
  int64_t reported = -1;
  const LoadResult result = RunLoad(options, [&](const LoadProgress& progress) {
    EXPECT_GE(progress.calls, reported);
    reported = progress.calls;
  });
  EXPECT_EQ(result.error_count(), 0) << result.first_error;
  EXPECT_GT(result.calls, 0);
  EXPECT_GE(reported, 0);
  EXPECT_EQ(result.calls, result.latencies.count());
  EXPECT_GT(result.Quantile(0), 0);
  EXPECT_LE(result.Quantile(0.5), result.Quantile(0.999));
  EXPECT_LE(result.Quantile(0.999), result.Quantile(1));
  EXPECT_EQ(result.skipped, 0);
  EXPECT_TRUE(server.Settles());
  EXPECT_EQ(result.calls,
            static_cast<int64_t>(server.Requests("Evaluate", "OK")));
}

// A request that is larger than what gRPC keeps for a second try by default, to
// a server that asks every connection to leave a hundred times: calls that had
// not begun on it begin on the next one.
TEST(LoadTest, CallsBeginElsewhereWhenAConnectionIsAskedToLeave) {
  TestServer server([](ServerOptions& options) {
    options.max_connection_age = absl::Milliseconds(20);
  });
  v1::EvaluateRequest request = IdentityRequest();
  v1::TensorValue* x = request.mutable_inputs(0)->mutable_value();
  x->mutable_spec()->set_shape(0, 80'000);
  x->set_raw(std::string(320'000, '\0'));
  LoadOptions options = Load(server, request);
  options.callers = 16;
  options.threads = 8;
  options.seconds = 3;
  const LoadResult result = RunLoad(options);
  EXPECT_GT(result.calls, 0);
  EXPECT_THAT(result.first_error, Not(HasSubstr("GOAWAY")));
}

TEST(LoadTest, CountsErrorsByCode) {
  TestServer server;
  v1::EvaluateRequest request = IdentityRequest();
  request.clear_inputs();
  const LoadResult result = RunLoad(Load(server, request));
  EXPECT_EQ(result.calls, 0);
  ASSERT_EQ(result.errors.size(), 1u);
  EXPECT_EQ(result.errors.begin()->first, grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_GT(result.error_count(), 0);
  EXPECT_THAT(result.first_error, HasSubstr("x"));
  EXPECT_EQ(result.Quantile(0.5), 0);
}

// The number of departures of a Poisson process: 600 within five deviations.
TEST(LoadTest, OpenLoopDepartsAtItsRateWhateverTheReplies) {
  TestServer server;
  LoadOptions options = Load(server, IdentityRequest());
  options.rate = 300;
  options.seconds = 2;
  options.callers = 1000;
  const LoadResult result = RunLoad(options);
  EXPECT_EQ(result.error_count(), 0) << result.first_error;
  EXPECT_EQ(result.skipped, 0);
  EXPECT_NEAR(static_cast<double>(result.calls), 600, 5 * 24.5);
}

// A latency counts from when the call should have left.
TEST(LoadTest, OpenLoopCountsTheQueue) {
  TestServer server([](ServerOptions& o) { o.streams = 1; });
  LoadOptions options =
      Load(server, SpinRequest(std::chrono::milliseconds(20)));
  options.rate = 100;  // twice what one lane can do
  options.callers = 1000;
  options.seconds = 1;
  const LoadResult result = RunLoad(options);
  EXPECT_EQ(result.error_count(), 0) << result.first_error;
  EXPECT_GT(result.Quantile(0.99), 10 * 20e3);
}

TEST(LoadTest, OpenLoopSkipsWhatIsOverItsBound) {
  TestServer server([](ServerOptions& o) { o.streams = 1; });
  LoadOptions options =
      Load(server, SpinRequest(std::chrono::milliseconds(20)));
  options.rate = 500;
  options.callers = 2;
  options.seconds = 0.5;
  const LoadResult result = RunLoad(options);
  EXPECT_GT(result.skipped, 0);
  EXPECT_GT(result.calls, 0);
}

// More than a clock can tell apart is as much as a client may send.
TEST(LoadTest, EndsInTimeWhateverTheRate) {
  TestServer server;
  LoadOptions options = Load(server, IdentityRequest());
  options.callers = 2;
  for (const double rate : {1e11, 1e300}) {
    options.rate = rate;
    const LoadResult result = RunLoad(options);
    EXPECT_GT(result.skipped, 0) << rate;
    EXPECT_GT(result.calls, 0) << rate;
  }
  options.rate = 1e-300;
  EXPECT_LE(RunLoad(options).calls, 1);
}

// A server may stand still until it is warm: only what is measured counts.
TEST(LoadTest, OpenLoopSkipsNothingThatIsDueInTheWarmUp) {
  TestServer server([](ServerOptions& o) { o.streams = 1; });
  LoadOptions options =
      Load(server, SpinRequest(std::chrono::milliseconds(20)));
  options.rate = 500;
  options.callers = 2;
  options.warmup_seconds = 0.5;
  options.seconds = 0;  // nothing that is due comes after the warm-up
  const LoadResult result = RunLoad(options);
  EXPECT_EQ(result.skipped, 0);
  EXPECT_EQ(result.calls, 0);
  EXPECT_EQ(result.error_count(), 0) << result.first_error;
}

}  // namespace
}  // namespace weir::client
