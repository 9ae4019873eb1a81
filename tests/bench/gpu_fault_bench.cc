// What a lost device costs its callers: 32 of them keep the server busy, then a
// kernel traps, or follows a wild address. Prints how long health went on
// saying SERVING, how long the process lived after the driver had said what
// happened, and how many calls of before got no answer of the server's. Fails
// if that is more than a second, a second, or any. Skipped without a GPU.
// Usage:
//   gpu_fault_bench [DEVICE]     (default cuda:0; on the CPU a fault is at
//   once)
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/client.h"
#include "client/cpp/status_details.h"
#include "tests/bench/server_process.h"

namespace weir::bench {
namespace {

constexpr int kCallers = 32;
constexpr auto kLoadBefore = std::chrono::seconds(2);
constexpr auto kProbeEvery = std::chrono::milliseconds(2);
constexpr double kLimitMs = 1000;
// What the server logs when it has heard of the loss.
constexpr char kAnswer[] = "the process ends so that a new one can take";

double MillisecondsBetween(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

// output = op(input), float [1024].
v1::EvaluateRequest Request(const char* op, const char* attribute,
                            const std::string& text, int64_t number) {
  v1::EvaluateRequest request;
  v1::GraphDefinition* graph = request.mutable_graph()->mutable_definition();
  graph->set_opset(17);
  v1::GraphInput* input = graph->add_inputs();
  input->set_name("input");
  input->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT);
  input->mutable_spec()->add_shape(1024);
  graph->add_outputs("output");
  v1::Node* node = graph->add_nodes();
  node->set_domain("weir");
  node->set_op(op);
  node->add_inputs("input");
  node->add_outputs("output");
  v1::Attribute* value = node->add_attributes();
  value->set_name(attribute);
  if (text.empty()) {
    value->set_i(number);
  } else {
    value->set_s(text);
  }
  v1::NamedTensor* x = request.add_inputs();
  x->set_name("input");
  x->mutable_value()->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT);
  x->mutable_value()->mutable_spec()->add_shape(1024);
  x->mutable_value()->set_raw(std::vector<char>(4096).data(), 4096);
  request.set_mode(v1::EVAL_MODE_SYNC_FULL);
  return request;
}

// How a caller's last call ended.
struct LastCall {
  absl::Status status;
  Clock::time_point begun;
  Clock::time_point at;
  int64_t answered_before = 0;

  // Not a broken connection's words, but the server's own.
  bool Answered() const { return !client::DetailsOf(status).reason.empty(); }
};

LastCall CallUntilError(const std::string& address,
                        const v1::EvaluateRequest& request) {
  client::Client client({.address = address,
                         .timeout = absl::Seconds(20),
                         .own_connection = true});
  LastCall last;
  for (;; ++last.answered_before) {
    last.begun = Clock::now();
    last.status = client.Evaluate(request).status();
    last.at = Clock::now();
    if (!last.status.ok()) return last;
  }
}

// When health stopped saying SERVING: that it does not, or nothing.
Clock::time_point WatchHealth(const std::string& address,
                              std::atomic<bool>* serving) {
  client::Client client({.address = address,
                         .timeout = absl::Seconds(20),
                         .own_connection = true});
  for (;;) {
    const auto answer = client.IsServing();
    if (!answer.ok() || !*answer) return Clock::now();
    *serving = true;
    std::this_thread::sleep_for(kProbeEvery);
  }
}

bool Check(const char* what, double milliseconds) {
  const bool ok = milliseconds <= kLimitMs;
  std::printf("  %-44s %7.0f ms%s\n", what, milliseconds,
              ok ? "" : "  MORE THAN 1000");
  return ok;
}

bool RunFault(const std::string& device, const std::string& mode) {
  auto server =
      ServerProcess::Start({absl::StrCat("--device=", device),
                            "--enable-test-operators", "--log-level=debug"});
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.status().ToString().c_str());
    return false;
  }
  const std::string address = (*server)->address();
  std::atomic<bool> serving = false;
  Clock::time_point not_serving;
  std::thread health([&] { not_serving = WatchHealth(address, &serving); });
  const v1::EvaluateRequest work = Request("Spin", "microseconds", "", 300);
  std::vector<LastCall> last(kCallers);
  std::vector<std::thread> callers;
  for (LastCall& call : last) {
    callers.emplace_back([&] { call = CallUntilError(address, work); });
  }
  std::this_thread::sleep_for(kLoadBefore);
  const Clock::time_point fault_at = Clock::now();
  LastCall fault;
  std::thread faulty([&] {
    fault = CallUntilError(address, Request("Fault", "mode", mode, 0));
  });
  const ServerProcess::End end = (*server)->Wait();
  faulty.join();
  for (std::thread& caller : callers) caller.join();
  health.join();

  std::optional<Clock::time_point> answer;
  for (const ServerProcess::Line& line : (*server)->lines()) {
    const auto has = [&](const char* part) {
      return line.text.find(part) != std::string::npos;
    };
    if (line.at < fault_at || has("call answered") || has("call failed")) {
      continue;
    }
    if (has(kAnswer)) answer = line.at;
    std::printf("    +%7.1f ms  %s\n", MillisecondsBetween(fault_at, line.at),
                line.text.c_str());
  }
  last.push_back(fault);
  int unanswered = 0;
  int turned_away = 0;  // came when the server had closed its doors
  int64_t before = 0;
  Clock::time_point last_answer = fault_at;
  std::map<std::string, int> messages;
  for (const LastCall& call : last) {
    before += call.answered_before;
    if (!call.Answered()) {
      ++(answer.has_value() && call.begun > *answer ? turned_away : unanswered);
    }
    if (call.Answered()) last_answer = std::max(last_answer, call.at);
    ++messages[std::string(call.status.message())];
  }
  std::printf("%s on %s, %d callers, %lld calls answered before\n",
              mode.c_str(), (*server)->device().c_str(), kCallers,
              static_cast<long long>(before));
  bool ok =
      Check("fault to NOT_SERVING", MillisecondsBetween(fault_at, not_serving));
  if (answer.has_value()) {
    std::printf("  %-44s %7.0f ms\n", "fault to the driver's answer",
                MillisecondsBetween(fault_at, *answer));
    ok &= Check("the driver's answer to the process's end",
                MillisecondsBetween(*answer, end.at));
  } else {
    std::printf("  the server never logged \"%s\"\n", kAnswer);
    ok = false;
  }
  std::printf("  %-44s %7.0f ms\n", "fault to the last caller's answer",
              MillisecondsBetween(fault_at, last_answer));
  std::printf("  %-44s %7d%s\n", "calls that got no answer", unanswered,
              unanswered == 0 ? "" : "  MORE THAN NONE");
  std::printf("  %-44s %7d\n", "calls begun later that were turned away",
              turned_away);
  std::printf("  %-44s %7d\n", "exit code", end.code);
  for (const auto& [message, count] : messages) {
    std::printf("  %3d x %s\n", count, message.c_str());
  }
  std::fflush(stdout);
  return ok && serving && unanswered == 0 && end.code == 3;
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) {
  const std::string device = argc > 1 ? argv[1] : "cuda:0";
  if (weir::bench::SkippedForLackOf(device)) return 0;
  bool ok = true;
  for (const char* mode : {"trap", "illegal_address"}) {
    ok &= weir::bench::RunFault(device, mode);
  }
  return ok ? 0 : 1;
}
