// A gRPC server of known latency: it answers any unary call with the call's own
// bytes after the time that the test says, and remembers who came when. For
// tests of what measures servers.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/base/mutex.h"

namespace weir::testing {

class PacedServer {
 public:
  using Clock = std::chrono::steady_clock;

  struct Answer {
    // Nothing: the call is never answered, and ends when its caller gives up.
    std::optional<Clock::time_point> at;
    grpc::Status status = {};
  };
  struct Arrival {
    Clock::time_point at;
    std::string peer;
    std::chrono::nanoseconds timeout;  // until the call's deadline
  };

  // `answer` is asked for every call, one at a time, with its number from 0 and
  // the time at which it came.
  explicit PacedServer(
      std::function<Answer(int64_t number, Clock::time_point now)> answer);
  ~PacedServer();
  PacedServer(const PacedServer&) = delete;
  PacedServer& operator=(const PacedServer&) = delete;

  const std::string& address() const { return address_; }
  std::vector<Arrival> arrivals() const;
  // The most calls that were there and not answered at one time.
  int64_t most_at_once() const;

 private:
  class Call;
  class Service;

  const std::function<Answer(int64_t, Clock::time_point)> answer_;
  mutable Mutex mu_;
  std::vector<Arrival> arrivals_ WEIR_GUARDED_BY(mu_);
  int64_t open_ WEIR_GUARDED_BY(mu_) = 0;
  int64_t most_ WEIR_GUARDED_BY(mu_) = 0;
  std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace weir::testing
