// What the load generator says of a server whose latency is known.
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "client/cpp/load.h"
#include "tests/client/cpp/paced_server.h"
#include "tests/server/child_process.h"

namespace weir::client {
namespace {

using std::chrono::milliseconds;
using weir::testing::ChildProcess;
using weir::testing::PacedServer;
using Clock = PacedServer::Clock;
using Answer = PacedServer::Answer;

LoadOptions Load(const std::string& address) {
  LoadOptions options;
  options.address = address;
  options.method = "/a/B";
  options.request = "request";
  options.warmup_seconds = 0;
  options.seconds = 1;
  return options;
}

Answer AtOnce(int64_t, Clock::time_point now) { return {.at = now}; }

double Microseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

TEST(LoadFiguresTest, AQuantileIsThatShareOfTheCalls) {
  LoadResult result;
  EXPECT_EQ(result.Quantile(0.5), 0);
  for (int i = 0; i <= 1000; ++i) {
    result.latencies.Add(std::chrono::microseconds(i));
  }
  EXPECT_EQ(result.Quantile(0), 0);
  EXPECT_NEAR(result.Quantile(0.5), 500, 1);
  EXPECT_NEAR(result.Quantile(0.9), 900, 2);
  EXPECT_NEAR(result.Quantile(0.999), 999, 2);
  EXPECT_EQ(result.Quantile(1), 1000);
}

TEST(LoadFiguresTest, NoLatencyIsLessThanTheServers) {
  PacedServer server([](int64_t, Clock::time_point now) {
    return Answer{.at = now + milliseconds(30)};
  });
  LoadOptions options = Load(server.address());
  options.callers = 5;
  options.threads = 2;
  const LoadResult result = RunLoad(options);
  EXPECT_EQ(result.error_count(), 0) << result.first_error;
  EXPECT_GE(result.Quantile(0), 29e3);  // two clocks
  EXPECT_EQ(server.most_at_once(), 5);
  EXPECT_EQ(result.reply, "request");
  EXPECT_EQ(result.seconds, 1);
  EXPECT_EQ(result.PerSecond(), static_cast<double>(result.rated));
  EXPECT_LE(result.rated, 5 * (1000 / 30 + 1));
}

// A queue of a hundred callers, of which a quarter is answered in the window:
// what was sent in it is no rate, however much of it is answered in the end.
TEST(LoadFiguresTest, TheRateOfAClosedLoopIsThatOfAnswers) {
  Clock::time_point free;
  PacedServer server([&free](int64_t, Clock::time_point now) {
    free = std::max(free, now) + milliseconds(20);
    return Answer{.at = free};
  });
  LoadOptions options = Load(server.address());
  options.callers = 100;
  options.threads = 2;
  options.seconds = 0.5;
  const LoadResult result = RunLoad(options);
  EXPECT_EQ(result.error_count(), 0) << result.first_error;
  EXPECT_EQ(result.calls, result.rated + 100) << "each answer sent one more";
  EXPECT_EQ(result.latencies.count(), result.calls) << "nobody is left out";
  EXPECT_GE(result.Quantile(1), 99 * 20e3 - 1e3);  // two clocks
  if (result.rated > 0) {
    EXPECT_EQ(result.seconds, 0.5);
  }
  EXPECT_GT(result.PerSecond(), 0);
  EXPECT_LT(result.PerSecond(), 52);
}

// Four answers before the window, four in it, four after it.
TEST(LoadFiguresTest, AnswersOutsideTheWindowAreNoRate) {
  Clock::time_point begin;  // the first arrival
  PacedServer server([&begin](int64_t number, Clock::time_point now) {
    if (number == 0) begin = now;
    if (number < 4) return Answer{.at = now};
    return Answer{.at = begin + milliseconds(number < 8 ? 1000 : 2500)};
  });
  LoadOptions options = Load(server.address());
  options.callers = 4;
  options.threads = 2;
  options.warmup_seconds = 0.5;
  options.seconds = 1.2;
  const LoadResult result = RunLoad(options);
  EXPECT_EQ(result.error_count(), 0) << result.first_error;
  EXPECT_EQ(result.answered, 12);
  EXPECT_EQ(result.calls, 4) << "those that left in the window";
  EXPECT_EQ(result.rated, 4) << "those that were answered in it";
  EXPECT_EQ(result.seconds, 1.2);
}

TEST(LoadFiguresTest, AServerThatIsTooLateForTheWindowHasARate) {
  PacedServer server([](int64_t, Clock::time_point now) {
    return Answer{.at = now + milliseconds(500)};
  });
  LoadOptions options = Load(server.address());
  options.callers = 6;
  options.threads = 2;
  options.seconds = 0.1;
  const LoadResult result = RunLoad(options);
  EXPECT_EQ(result.calls, 6);
  EXPECT_EQ(result.rated, 6);
  EXPECT_GE(result.seconds, 0.49);  // two clocks
  EXPECT_EQ(result.PerSecond(), 6 / result.seconds);
}

// gRPC takes no more than 4 MiB unless it is told to.
TEST(LoadFiguresTest, ARepliesSizeIsTheServersAffair) {
  constexpr size_t kBytes = size_t{8} << 20;
  PacedServer server(AtOnce);
  LoadOptions options = Load(server.address());
  options.request.assign(kBytes, 'x');
  const LoadResult result = RunLoad(options);
  EXPECT_EQ(result.error_count(), 0) << result.first_error;
  EXPECT_GT(result.calls, 0);
  EXPECT_EQ(result.reply.size(), kBytes);
}

// One answer in ten takes 300 ms.
TEST(LoadFiguresTest, ATailShowsWhereItBegins) {
  PacedServer server([](int64_t number, Clock::time_point now) {
    return Answer{.at = now + milliseconds(number % 10 == 9 ? 300 : 0)};
  });
  LoadOptions options = Load(server.address());
  options.rate = 200;
  options.callers = 1000;
  options.seconds = 2;
  const LoadResult result = RunLoad(options);
  ASSERT_GT(result.calls, 100);
  EXPECT_LT(result.Quantile(0.5), 250e3);
  EXPECT_GE(result.Quantile(0.95), 299e3);
}

// Twice what the server can do: all is answered in the end, and the rate is
// the server's.
TEST(LoadFiguresTest, LateAnswersAreNoRate) {
  Clock::time_point free;
  PacedServer server([&free](int64_t, Clock::time_point now) {
    free = std::max(free, now) + milliseconds(20);
    return Answer{.at = free};
  });
  LoadOptions options = Load(server.address());
  options.rate = 100;
  options.callers = 1000;
  const LoadResult result = RunLoad(options);
  EXPECT_EQ(result.skipped, 0);
  ASSERT_GT(result.calls, 60);
  EXPECT_LT(result.PerSecond(), 52);
}

TEST(LoadFiguresTest, WhatIsDueInTheWarmUpIsInNoFigure) {
  Clock::time_point begin;  // the first arrival
  PacedServer server([&begin](int64_t number, Clock::time_point now) {
    if (number == 0) begin = now;
    return Answer{.at = now - begin < milliseconds(500)
                            ? begin + milliseconds(800)
                            : now};
  });
  LoadOptions options = Load(server.address());
  options.rate = 400;
  options.callers = 1000;
  options.warmup_seconds = 1;
  const LoadResult result = RunLoad(options);
  EXPECT_NEAR(static_cast<double>(result.calls), 400, 5 * 20);
  EXPECT_GT(server.arrivals().size(), 500u);
  EXPECT_EQ(result.answered, static_cast<int64_t>(server.arrivals().size()));
}

// The gaps of a Poisson process deviate as much as they last; even ones, those
// of threads that leave together, and means of several gaps do not. A busy
// machine makes bunches, which deviate more.
TEST(LoadFiguresTest, DeparturesAreRandom) {
  PacedServer server(AtOnce);
  LoadOptions options = Load(server.address());
  options.rate = 400;
  options.callers = 1000;
  options.seconds = 3;
  RunLoad(options);
  const std::vector<PacedServer::Arrival> arrivals = server.arrivals();
  ASSERT_GT(arrivals.size(), 1000u);
  double sum = 0;
  double squares = 0;
  for (size_t i = 1; i < arrivals.size(); ++i) {
    const double gap = Microseconds(arrivals[i].at - arrivals[i - 1].at);
    sum += gap;
    squares += gap * gap;
  }
  const auto n = static_cast<double>(arrivals.size() - 1);
  const double mean = sum / n;
  const double deviation = std::sqrt(squares / n - mean * mean);
  EXPECT_GT(deviation / mean, 0.85);
}

TEST(LoadFiguresTest, ThreadsHaveConnectionsAndDeparturesOfTheirOwn) {
  PacedServer server(AtOnce);
  LoadOptions options = Load(server.address());
  options.rate = 100;
  options.threads = 2;
  options.callers = 1000;
  options.seconds = 3;
  RunLoad(options);
  std::map<std::string, std::vector<Clock::time_point>> of;
  for (const PacedServer::Arrival& arrival : server.arrivals()) {
    of[arrival.peer].push_back(arrival.at);
  }
  ASSERT_EQ(of.size(), 2u);
  const auto& first = of.begin()->second;
  const auto& second = of.rbegin()->second;
  EXPECT_NEAR(static_cast<double>(first.size() + second.size()), 300, 5 * 17.4);
  // How far the other thread's next one is: half of those of 50 a second are
  // more than 7 ms away.
  std::vector<double> distances;
  for (const auto at : first) {
    double nearest = 1e9;
    for (const auto other : second) {
      nearest = std::min(nearest, std::abs(Microseconds(other - at)));
    }
    distances.push_back(nearest);
  }
  ASSERT_GT(distances.size(), 50u);
  std::nth_element(distances.begin(),
                   distances.begin() + static_cast<long>(distances.size() / 2),
                   distances.end());
  EXPECT_GT(distances[distances.size() / 2], 2e3);
}

// Each connection waits for its first departure as for every other: twenty of
// all together, and not one more for each connection.
TEST(LoadFiguresTest, ARunBeginsWithNoBurst) {
  PacedServer server(AtOnce);
  LoadOptions options = Load(server.address());
  options.rate = 10;
  options.threads = 40;
  options.callers = 1000;
  options.seconds = 2;
  const LoadResult result = RunLoad(options);
  EXPECT_EQ(result.skipped, 0);
  EXPECT_NEAR(static_cast<double>(result.calls), 20, 5 * 4.5);
}

TEST(LoadFiguresTest, EveryCallIsAnAnswerAnErrorOrSkipped) {
  PacedServer server([](int64_t number, Clock::time_point now) {
    Answer answer{.at = now + milliseconds(50)};
    if (number % 2 == 1) {
      answer.status =
          grpc::Status(grpc::StatusCode::UNAVAILABLE, "every other");
    }
    return answer;
  });
  LoadOptions options = Load(server.address());
  options.rate = 400;
  options.callers = 4;
  options.threads = 2;
  int64_t seen = 0;
  const LoadResult result = RunLoad(
      options,
      [&seen](const LoadProgress& progress) { seen = progress.errors; });
  const auto arrivals = static_cast<int64_t>(server.arrivals().size());
  EXPECT_EQ(result.calls + result.error_count(), arrivals);
  EXPECT_EQ(result.answered, result.calls) << "of both threads";
  EXPECT_EQ(result.errors.at(grpc::StatusCode::UNAVAILABLE), arrivals / 2);
  EXPECT_GT(seen, 0);
  EXPECT_NEAR(static_cast<double>(arrivals + result.skipped), 400, 5 * 20);
}

TEST(LoadFiguresTest, ACallThatIsNeverAnsweredTimesOut) {
  PacedServer server([](int64_t, Clock::time_point) { return Answer{}; });
  LoadOptions options = Load(server.address());
  options.callers = 3;
  options.timeout_seconds = 0.4;
  const LoadResult result = RunLoad(options);
  EXPECT_EQ(result.calls, 0);
  // They left, were given up and left again, until the window had ended.
  EXPECT_GE(result.errors.at(grpc::StatusCode::DEADLINE_EXCEEDED), 3);
  EXPECT_EQ(result.error_count(),
            result.errors.at(grpc::StatusCode::DEADLINE_EXCEEDED));
  // gRPC reads two clocks one after the other to say when the deadline is: who
  // is interrupted between them reads a later one, of that call.
  const std::vector<PacedServer::Arrival> arrivals = server.arrivals();
  ASSERT_FALSE(arrivals.empty());
  const auto least = std::min_element(
      arrivals.begin(), arrivals.end(),
      [](const auto& a, const auto& b) { return a.timeout < b.timeout; });
  EXPECT_LT(least->timeout, milliseconds(401));
}

// The generator itself stands still for half a second. Callers would not have:
// what was due meanwhile leaves, and its waiting counts. This is the
// coordinated omission that a latency from sending makes.
TEST(LoadFiguresTest, WhatIsDueWhileTheGeneratorStandsStillHasWaited) {
  PacedServer server(AtOnce);
  ChildProcess generator({"/proc/self/exe", server.address()});
  ASSERT_EQ(generator.ReadLine(), "running");
  generator.Signal(SIGSTOP);
  // The stall's length: nothing is ordered by it.
  std::this_thread::sleep_for(milliseconds(500));
  generator.Signal(SIGCONT);
  const double calls = std::stod(generator.ReadLine());
  const double p90_us = std::stod(generator.ReadLine());
  EXPECT_EQ(generator.Wait(), 0) << generator.err();
  EXPECT_NEAR(calls, 400, 5 * 20);  // a quarter of them due in the stall
  EXPECT_GT(p90_us, 150e3);
}

// The generator of the last test: two seconds, 200 a second.
int Generate(const char* address) {
  LoadOptions options = Load(address);
  options.rate = 200;
  options.callers = 1000;
  options.seconds = 2;
  bool said = false;
  const LoadResult result = RunLoad(options, [&said](const LoadProgress&) {
    if (!said) std::puts("running");
    std::fflush(stdout);
    said = true;
  });
  std::printf("%lld\n%f\n", static_cast<long long>(result.calls),
              result.Quantile(0.9));
  return result.error_count() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace weir::client

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  if (argc > 1) return weir::client::Generate(argv[1]);
  return RUN_ALL_TESTS();
}
