// What hostile and broken clients do to a running server: the graphs of
// hostile_graphs.h, messages that are none or ask for too much, connections
// that stall or never end. And what is looked at afterwards: the next honest
// request, and the server's memory. For tests and benchmarks of a server
// process on any device. Each call waits; used by one thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace weir::testing {

// A server with the models of WriteHostileModels and HostileServerFlags.
struct HostileTarget {
  std::string grpc;  // "127.0.0.1:PORT"
  std::string http;
  bool on_cuda = false;

  // Out of a server's ready line; empty addresses if it is none.
  static HostileTarget FromReadyLine(const std::string& line);
};

struct HostileAnswer {
  absl::Status status;  // OK too where no answer is waited for
  // Connections and calls that go on until it is dropped.
  std::shared_ptr<void> open = nullptr;
};

struct HostileRequest {
  std::string name;
  std::function<HostileAnswer(const HostileTarget&)> send;
  // The right answers; empty: any.
  std::vector<absl::StatusCode> codes = {};
  // Resident bytes that the server may take for it meanwhile, at most.
  int64_t peak_limit = INT64_MAX;
};

std::vector<HostileRequest> HostileRequests();

// Into a folder that is there.
void WriteHostileModels(const std::string& folder);
// Kernels are not kept for the next server: each is compiled, as on a machine
// that never ran one.
std::vector<std::string> HostileServerFlags(const std::string& device,
                                            const std::string& models);

// Runs what the honest and the hostile run rightly, on every stream, and
// something of each kind that a device has a library for (products,
// convolutions, kernels that are compiled), so that libraries are loaded and
// arenas are as large as they get: what comes after takes nothing for the first
// time.
absl::Status WarmUp(const HostileTarget& target);

// A caller who asks for little, on new connections: ModelInfer, Evaluate and
// /healthz. Why it was not served in `patience`.
absl::Status AskHonestly(const HostileTarget& target,
                         std::chrono::milliseconds patience);

// What a process has in memory, in bytes: the whole and its parts; -1 if there
// is no such process.
struct ResidentMemory {
  int64_t all = -1;        // VmRSS
  int64_t anonymous = -1;  // RssAnon: heap, stacks
  int64_t file = -1;       // RssFile: programs and libraries
  int64_t shared = -1;     // RssShmem
};
ResidentMemory MemoryOf(pid_t process);
// "resident 1.5 -> 2.0 MiB (anonymous 0.5 -> 1.0, file 1.0 -> 1.0, shared 0.0
// -> 0.0)".
std::string DescribeMemory(const ResidentMemory& before,
                           const ResidentMemory& after);

struct HostileOutcome {
  absl::Status answer;
  bool right = false;    // the answer's code is one of the request's
  bool within = false;   // what it took meanwhile, its limit
  absl::Status honest;   // of the next honest request
  double honest_ms = 0;  // until it was answered
  // Resident bytes of the server above `baseline`: the most while it was under
  // attack, and what was left.
  int64_t peak_bytes = 0;
  int64_t left_bytes = 0;
  ResidentMemory before;  // the attack
  ResidentMemory after;   // when memory had had its time to go back
};

// Sends it, asks honestly while its connections are open, drops these, and
// waits a little for memory to go back.
HostileOutcome Attack(const HostileRequest& request,
                      const HostileTarget& target, pid_t server,
                      const ResidentMemory& baseline);

inline constexpr int64_t kHostileMemoryLeft = int64_t{64} << 20;

}  // namespace weir::testing
