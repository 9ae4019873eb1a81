// The server: made from its options, loading its models while it answers
// probes, drained and stopped in an order that loses no request. Owned and
// driven by main's thread; the rest happens on threads of its parts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/observe/log_sink.h"
#include "server/options.h"

namespace weir {

// How a drain ended.
struct DrainResult {
  int64_t calls = 0;       // taken since the start
  int64_t unanswered = 0;  // of them
  bool loading = false;    // a step of loading a model still runs
  bool hangs = false;      // an I/O thread is in something that does not end
  // Destroying the server would wait for what still runs.
  bool settled() const { return unanswered == 0 && !loading && !hangs; }
};

class Server {
 public:
  // Waits so long, or less; true if the drain is not to wait any more.
  using WaitFn = std::function<bool(absl::Duration)>;

  // Finds its devices, binds and answers, unready, while it loads the models;
  // then it is ready. Errors name the cause and the remedy. Log lines go to
  // `log`, which outlives the server; null: to standard error. `before_calls`
  // is called, once, in this thread, before the first port takes a connection,
  // after all that may hang: from there on there may be calls that only Drain
  // answers. Not if it fails before; null: nobody wants to know.
  static absl::StatusOr<std::unique_ptr<Server>> Open(
      const ServerOptions& options, LogSink* log = nullptr,
      const std::function<void()>& before_calls = nullptr);
  // The same, and waits until the models are loaded.
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      const ServerOptions& options, LogSink* log = nullptr);
  // Stops at once if nobody drained.
  ~Server();

  const std::vector<std::string>& grpc_addresses() const;
  std::string http_address() const;  // empty: off
  std::string device_names() const;  // as in "cuda:0,cuda:1"
  size_t models_ready() const;

  // Thread-safe, as long as the server.
  Logger& logger() const;

  // A descriptor that becomes readable when all models are loaded or refused.
  int loaded_fd() const;
  // Why the server should get no traffic now; "" if it should.
  std::string unready() const;

  // A descriptor that becomes readable when a device is lost. The process
  // should then end: nothing in it can mend the device.
  int device_lost_fd() const;
  absl::Status device_status() const;
  // The works that ran when it was lost, as the log names them.
  std::vector<std::string> device_suspects() const;

  // A descriptor that becomes readable when Admin.Drain asks for a drain.
  int drain_requested_fd() const;

  // Unready → serve on for the drain delay → no new connections → let the
  // connections end → end those left at the drain timeout; what is cut has two
  // seconds to answer, and what hangs is left alone a second later. All other
  // waiting is done by `wait`. While models are still loaded nobody relies on
  // the server: loading stops at the next step, and there are no waits. When
  // a device is lost, before or meanwhile, callers are told for a moment and
  // the drain ends: a `wait` that comes back when device_lost_fd is readable
  // has it end at once.
  DrainResult Drain(const WaitFn& wait);

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weir
