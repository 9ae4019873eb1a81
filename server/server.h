// The server: made from its options, ready when Start returns, drained and
// stopped in an order that loses no request. Owned and driven by main's thread;
// the rest happens on threads of its parts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/options.h"

namespace weir {

class Server {
 public:
  // Finds the device, loads the models, binds, and is ready. Errors name the
  // cause and the remedy.
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      const ServerOptions& options);
  // Stops at once if nobody drained.
  ~Server();

  const std::vector<std::string>& grpc_addresses() const;
  std::string http_address() const;  // empty: off
  std::string device_name() const;
  size_t models_ready() const;
  // What the operator should know: bad models, what "auto" chose.
  const std::vector<std::string>& notes() const;

  // A descriptor that becomes readable when the device is lost. The process
  // should then end: nothing in it can mend the device.
  int device_lost_fd() const;
  absl::Status device_status() const;

  // Unready → serve on for the drain delay → no new connections → let the
  // connections end → end those left at the drain timeout. `interrupt_fd`
  // becoming readable cuts the waits short.
  void Drain(int interrupt_fd);

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weir
