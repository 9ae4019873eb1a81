// weir-server gets SIGTERM at random moments while 500 requests a second come
// in over many connections. Every request that it took is answered, and it
// exits with 0. The moments come from a seed that is printed; WEIR_TEST_SEED
// repeats a run's.
#include <gmock/gmock.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "client/cpp/client.h"
#include "kernels/base/mutex.h"
#include "tests/server/child_process.h"
#include "tests/server/server_fixture.h"

namespace weir::testing {
namespace {

constexpr int kCallers = 16;
constexpr double kRate = 500;  // per second, of all callers

struct Counts {
  int answered = 0;
  // Of a call that no server took: there was no connection to send it on. A
  // caller may send it again elsewhere.
  int refused = 0;
  std::map<std::string, int> lost;

  void Add(const Counts& other) {
    answered += other.answered;
    refused += other.refused;
    for (const auto& [why, count] : other.lost) lost[why] += count;
  }
};

// gRPC sends a call only on a connection whose handshake is over; without one
// it fails with this, and the server never saw it.
bool NeverLeft(const absl::Status& status) {
  return absl::IsUnavailable(status) &&
         status.message().find("failed to connect") != std::string::npos;
}

// Calls at random moments on a connection of its own, which gRPC makes anew
// each time the server lets it go, until `stop`.
Counts CallUntil(const std::atomic<bool>& stop, const std::string& address,
                 uint64_t seed) {
  client::Client client({.address = address, .own_connection = true});
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> gap(kRate / kCallers);
  v1::EvaluateRequest quick = IdentityRequest();
  quick.set_mode(v1::EVAL_MODE_SYNC_FULL);
  const v1::EvaluateRequest slow = SpinRequest(std::chrono::milliseconds(3));
  Counts counts;
  auto next = std::chrono::steady_clock::now();
  while (!stop) {
    next += std::chrono::nanoseconds(static_cast<int64_t>(gap(random) * 1e9));
    std::this_thread::sleep_until(next);
    const auto reply = client.Evaluate(random() % 8 == 0 ? slow : quick);
    if (reply.ok()) {
      ++counts.answered;
    } else if (NeverLeft(reply.status())) {
      ++counts.refused;
    } else {
      ++counts.lost[reply.status().ToString()];
    }
  }
  return counts;
}

// "calls=N" and "unanswered=N" of the server's last log line.
int64_t LastCount(const std::string& log, const std::string& name) {
  std::smatch match;
  const std::regex form("drained.*" + name + "=([0-9]+)");
  return std::regex_search(log, match, form) ? std::stoll(match[1]) : -1;
}

Counts Round(uint64_t seed) {
  ChildProcess server({BuiltProgram("weir-server"), "--device=cpu",
                       "--cpu-threads=1", "--io-threads=2",
                       "--enable-test-operators", "--http=off",
                       "--grpc=127.0.0.1:0", "--drain-delay=0.2",
                       "--drain-timeout=30", "--max-connection-age=0.5"});
  std::string line = server.ReadLine();
  line.erase(0, line.find("grpc=") + 5);
  const std::string address = line.substr(0, line.find(' '));

  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> moment(0, 0.7);
  const std::chrono::duration<double> until_signal(moment(random));
  std::atomic<bool> stop = false;
  Mutex mu;
  Counts counts;
  std::vector<std::thread> callers;
  for (int i = 0; i < kCallers; ++i) {
    callers.emplace_back([&, seed_of_caller = random()] {
      const Counts own = CallUntil(stop, address, seed_of_caller);
      const MutexLock lock(&mu);
      counts.Add(own);
    });
  }
  std::this_thread::sleep_for(until_signal);
  server.Signal(SIGTERM);
  const int code = server.Wait();
  stop = true;
  for (std::thread& caller : callers) caller.join();

  std::printf(
      "seed %llu: SIGTERM after %3.0f ms: %d answered, %d refused before they "
      "left, %zu lost; the server took %lld; exit code %d\n",
      static_cast<unsigned long long>(seed), until_signal.count() * 1e3,
      counts.answered, counts.refused, counts.lost.size(),
      static_cast<long long>(LastCount(server.err(), "calls")), code);
  EXPECT_EQ(code, 0) << server.err();
  for (const auto& [why, count] : counts.lost) {
    ADD_FAILURE() << count << " lost: " << why;
  }
  EXPECT_EQ(LastCount(server.err(), "calls"), counts.answered) << server.err();
  EXPECT_EQ(LastCount(server.err(), "unanswered"), 0) << server.err();
  return counts;
}

void Rounds(int rounds) {
  const char* given = std::getenv("WEIR_TEST_SEED");
  const uint64_t first =
      given == nullptr ? 1 : std::strtoull(given, nullptr, 10);
  Counts all;
  for (int i = 0; i < rounds; ++i) {
    all.Add(Round(first + static_cast<uint64_t>(i)));
  }
  std::printf("%d rounds from seed %llu: %d answered, %d refused, %zu lost\n",
              rounds, static_cast<unsigned long long>(first), all.answered,
              all.refused, all.lost.size());
  EXPECT_GT(all.answered, 0);
}

TEST(SigtermTest, LosesNothingInThreeRounds) { Rounds(3); }

// Of the label `slow`.
TEST(SigtermTest, LosesNothingInTwentyRounds) { Rounds(20); }

}  // namespace
}  // namespace weir::testing
