// A weir-server as a process of its own, with what it says and when: for
// benchmarks of how it ends, and of its memory. Killed if it outlives the
// object. Used by one thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/mutex.h"

namespace weir::bench {

using Clock = std::chrono::steady_clock;

class ServerProcess {
 public:
  // Starts the server of WEIR_BIN_DIR (default build/bin) on free ports of the
  // loopback interface, with `flags` too, and waits until it is ready. Without
  // --http there is no such port.
  static absl::StatusOr<std::unique_ptr<ServerProcess>> Start(
      const std::vector<std::string>& flags);
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  const std::string& address() const { return address_; }  // of gRPC
  const std::string& http_address() const { return http_address_; }
  const std::string& device() const { return device_; }
  pid_t pid() const { return pid_; }  // -1 after Wait

  struct End {
    Clock::time_point at;
    int code = -1;  // or -1 after a signal
  };
  // Waits for the end that the server comes to by itself.
  End Wait();
  // Asks it to end, and waits.
  End Terminate();

  struct Line {
    Clock::time_point at;  // when it was read
    std::string text;
  };
  // What it wrote so far; all of it after Wait.
  std::vector<Line> lines() const;

  // Resident memory; zeros once it is gone.
  struct Memory {
    int64_t resident_bytes = 0;
    int64_t anonymous_bytes = 0;
  };
  Memory memory() const;

 private:
  ServerProcess() = default;
  absl::Status Launch(const std::vector<std::string>& arguments);
  absl::Status AwaitReady();
  void ReadOutput();

  pid_t pid_ = -1;
  int output_ = -1;
  std::string address_;
  std::string http_address_;
  std::string device_;
  mutable Mutex mu_;
  CondVar changed_;
  bool ended_ WEIR_GUARDED_BY(mu_) = false;
  std::vector<Line> lines_ WEIR_GUARDED_BY(mu_);
  std::thread reader_;
};

// Whether the device is a GPU and this machine has none, which is all that
// makes a server with --device=auto take the CPU. Prints then that the
// benchmark is skipped.
bool SkippedForLackOf(const std::string& device);

}  // namespace weir::bench
