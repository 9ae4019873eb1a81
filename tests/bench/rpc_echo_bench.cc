// Our transport's echo against gRPC's own: async completion queues, and the
// callback API; none of them parses the message. Exits with 1 if one fails or
// answers wrongly.
// Usage: rpc_echo_bench [SECONDS_PER_CASE [ROUNDS]]
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "kernels/base/status_macros.h"
#include "kernels/device/cpu/host_limits.h"
#include "server/rpc/transport.h"
#include "tests/bench/contest.h"
#include "tests/bench/raw_echo_server.h"
#include "tests/bench/self_served.h"

namespace weir {
namespace {

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

class Ours final : public bench::LocalServer {
 public:
  explicit Ours(std::unique_ptr<Transport> transport)
      : transport_(std::move(transport)) {}
  std::string address() const override {
    return transport_->addresses().front();
  }

 private:
  const std::unique_ptr<Transport> transport_;
};

constexpr char kOurs[] = "weir";
constexpr char kOursThroughInbox[] = "weir, inbox";

bench::LocalServerOr Start(const std::string& name) {
  const int threads = CpuQuota();
  if (auto raw = StartRawEcho(name, threads)) return raw;
  MethodTable table;
  table.Add("inference.GRPCInferenceService", "ModelInfer", Traffic::kHeavy,
            name == kOurs ? Echo : EchoThroughInbox);
  TransportOptions options;
  options.addresses = {"127.0.0.1:0"};
  options.io_threads = threads;
  WEIR_ASSIGN_OR_RETURN(auto transport, Transport::Start(options, table));
  return std::make_unique<Ours>(std::move(transport));
}

int Main(int argc, char** argv) {
  if (const auto served = bench::ServeIfAsked(argc, argv, Start)) {
    return *served;
  }
  bench::Contest contest;
  for (const char* name :
       {kRawAsyncBytes, kRawCallbackBytes, kOurs, kOursThroughInbox}) {
    contest.entrants.push_back(bench::SelfServed(name));
  }
  contest.method = kRawEchoMethod;
  contest.request.assign(64, 'x');
  contest.is_right = [&contest](const std::string& reply) {
    return reply == contest.request;
  };
  contest.seconds = argc > 1 ? std::atof(argv[1]) : 1.5;
  contest.rounds = argc > 2 ? std::atoi(argv[2]) : 3;
  contest.callers = 1;
  bool well = bench::Hold(contest, {});
  contest.callers = 64;
  well &= bench::Hold(contest, {});
  return well ? 0 : 1;
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) { return weir::Main(argc, argv); }
