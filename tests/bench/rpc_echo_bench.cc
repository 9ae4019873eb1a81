// Our transport's echo against gRPC's own: async completion queues, and the
// callback API. Prints calls per second, latencies and ratios, all measured in
// this run. Usage: rpc_echo_bench [SECONDS_PER_CASE [ROUNDS]]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "client/cpp/load.h"
#include "kernels/device/cpu/host_limits.h"
#include "server/rpc/transport.h"
#include "tests/bench/raw_echo_server.h"

namespace weir {
namespace {

constexpr size_t kRequestBytes = 64;

// As a service would: looks at every byte, answers with a copy.
void Echo(ServerCall& call) {
  ReplyBuffer reply;
  const ByteView& request = call.request();
  if (!request.empty()) {
    request.CopyTo(reinterpret_cast<std::byte*>(
        reply.AppendUninitialized(request.size())));
  }
  call.Reply(std::move(reply));
}

// Answers through the inbox, as work that completes elsewhere does.
void EchoThroughInbox(ServerCall& call) {
  call.Resume([](ServerCall& resumed, void*) { Echo(resumed); }, nullptr);
}

std::unique_ptr<Transport> StartOurs(int threads, MethodHandler handler) {
  MethodTable table;
  table.Add("inference.GRPCInferenceService", "ModelInfer", Traffic::kHeavy,
            std::move(handler));
  TransportOptions options;
  options.addresses = {"127.0.0.1:0"};
  options.io_threads = threads;
  auto transport = Transport::Start(options, table);
  if (!transport.ok()) {
    std::fprintf(stderr, "%s\n", transport.status().ToString().c_str());
    std::exit(1);
  }
  return *std::move(transport);
}

struct Contender {
  const char* name;
  std::string address;
  std::vector<double> per_second;
  std::vector<double> p50;
  std::vector<double> p99;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Compare(std::vector<Contender> contenders, int callers, int threads,
             double seconds, int rounds) {
  // Round by round, so that a disturbance hits all alike.
  for (int round = 0; round < rounds; ++round) {
    for (Contender& contender : contenders) {
      client::LoadOptions load;
      load.address = contender.address;
      load.method = kRawEchoMethod;
      load.request.assign(kRequestBytes, 'x');
      load.callers = callers;
      load.threads = threads;
      load.seconds = seconds;
      const client::LoadResult result = client::RunLoad(load);
      if (result.error_count() > 0) {
        std::fprintf(stderr, "%s: %s\n", contender.name,
                     result.first_error.c_str());
        std::exit(1);
      }
      contender.per_second.push_back(result.PerSecond());
      contender.p50.push_back(result.Quantile(0.5));
      contender.p99.push_back(result.Quantile(0.99));
    }
  }
  const double base = Median(contenders.front().per_second);
  const double base_p50 = Median(contenders.front().p50);
  for (const Contender& contender : contenders) {
    const double rate = Median(contender.per_second);
    const double p50 = Median(contender.p50);
    std::printf(
        "callers=%-3d %-16s %9.0f/s  ratio %.2f  p50 %7.1f us (%+.1f)  "
        "p99 %8.1f us\n",
        callers, contender.name, rate, rate / base, p50, p50 - base_p50,
        Median(contender.p99));
  }
}

int Main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 1.5;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 3;
  const int threads = CpuQuota();
  const auto async = RawEchoServer::Start(RawEchoKind::kAsync, threads);
  const auto callback = RawEchoServer::Start(RawEchoKind::kCallback, threads);
  const auto ours = StartOurs(threads, Echo);
  const auto inbox = StartOurs(threads, EchoThroughInbox);
  const std::vector<Contender> contenders = {
      {"raw async", async->address(), {}, {}, {}},
      {"raw callback", callback->address(), {}, {}, {}},
      {"weir", ours->addresses().front(), {}, {}, {}},
      {"weir, inbox", inbox->addresses().front(), {}, {}, {}},
  };
  std::printf("64-byte echo, %d server threads, median of %d rounds\n", threads,
              rounds);
  Compare(contenders, 1, 1, seconds, rounds);
  Compare(contenders, 64, threads, seconds, rounds);
  return 0;
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) { return weir::Main(argc, argv); }
