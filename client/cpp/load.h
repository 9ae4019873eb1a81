// A load generator: the same request over and over, each call measured. Closed
// loop: a number of callers, each sending its next request when it has its
// reply. Open loop: requests leave at random moments (Poisson) at a given rate,
// whether or not replies come, and a call's latency counts from the moment at
// which it should have left; one that is due while too many are in flight is
// skipped, and counted. Bounded in time and in calls in flight; what it holds
// does not grow with the calls.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "client/cpp/latency_histogram.h"
#include "client/cpp/tls.h"

namespace weir::client {

// No single client sends more requests per second.
inline constexpr double kMaxLoadRate = 1e6;
inline constexpr double kMinLoadRate = 1e-3;

struct LoadOptions {
  std::string address;
  std::string method;   // "/package.Service/Method"
  std::string request;  // the message's bytes
  int callers = 1;      // closed loop; in the open loop, the most in flight
  // Requests per second, at least kMinLoadRate and at most kMaxLoadRate, or as
  // many as that; 0: closed loop.
  double rate = 0;
  int threads = 1;  // each with a channel and a completion queue of its own
  double warmup_seconds = 0.3;  // not counted
  double seconds = 3;
  double timeout_seconds =
      30;               // of a call; no call outlasts the run for longer
  TlsOptions tls = {};  // without a CA: plain
};

struct LoadProgress {
  double seconds = 0;  // since the start of what is counted
  int64_t calls = 0;
  int64_t errors = 0;
};

// The window is LoadOptions::seconds long and follows the warm-up. A call
// belongs to it that was due in it (closed loop: sent), however late its answer
// comes: figures of answers alone would leave out those that take longest.
struct LoadResult {
  int64_t calls = 0;              // of the window, answered with OK
  int64_t answered = 0;           // the same with those of the warm-up
  std::map<int, int64_t> errors;  // of the window, by gRPC status code
  std::string first_error;
  // Open loop: due while too many were in flight; like calls, not those that
  // were due in the warm-up.
  int64_t skipped = 0;
  // The rate is that at which the server answered: so many answers with OK, in
  // so many seconds since the window began. Closed loop: those that came in the
  // window, whenever they were asked for, in its seconds. Open loop, and where
  // none came in the window: `calls`, in the time to the last of them or the
  // window's seconds, whichever is longer.
  int64_t rated = 0;
  double seconds = 0;
  LatencyHistogram latencies;  // of `calls`
  std::string reply;           // of one of the calls

  int64_t error_count() const;
  double PerSecond() const { return static_cast<double>(rated) / seconds; }
  // In microseconds, within 0.2 %; `q` from 0 to 1. 0 if nothing was measured.
  double Quantile(double q) const;
};

// Waits for the end. `progress`, if given, is called twice a second from the
// calling thread.
LoadResult RunLoad(
    const LoadOptions& options,
    const std::function<void(const LoadProgress&)>& progress = nullptr);

}  // namespace weir::client
