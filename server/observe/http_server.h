// The one HTTP server: /healthz (the process lives), /readyz (it should get
// traffic) and /metrics. Two threads of its own; callbacks run on them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"

namespace weir {

class HttpServer {
 public:
  struct Callbacks {
    // Empty: healthy (ready). Else why not, answered with status 503.
    std::function<std::string()> unhealthy;
    std::function<std::string()> unready;
    std::function<std::string()> metrics;
  };

  // `address` is HOST:PORT; port 0 takes a free one. A port in use is an error
  // that names the address.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(
      const std::string& address, Callbacks callbacks);
  ~HttpServer();  // stops and joins

  const std::string& address() const { return address_; }

 private:
  HttpServer();
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::string address_;
};

}  // namespace weir
