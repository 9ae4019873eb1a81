// The one HTTP server: /healthz (the process lives), /readyz (it should get
// traffic), /metrics, and / (which says what there is). It is for probes and
// scrapers and answers them whatever others do to it: each connection carries
// one request, has a few seconds in all, a small head and no body. When there
// are too many, one of the peer that has most goes, those first whose other end
// has left, then the oldest: nobody's makes way for one of a peer that has as
// many.
//
// One thread serves all connections; health callbacks run on it and must not
// wait. The text of /metrics is made on another, for all together who asked
// before it was begun; who asks meanwhile shares the next.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace weir {

class HttpServer {
 public:
  struct Callbacks {
    // Empty: healthy (ready). Else why not, answered with status 503.
    std::function<std::string()> unhealthy;
    std::function<std::string()> unready;
    std::function<std::string()> metrics;
  };

  struct Limits {
    size_t connections = 256;
    size_t connections_per_peer = 64;
    // Texts of /metrics that are in memory because somebody still reads them,
    // and their bytes, by which there are two at least. Once there are so many
    // the newest of them, no older than `time`, is answered again.
    size_t texts = 16;  // at least 2
    size_t text_bytes = size_t{32} << 20;
    size_t head_bytes = size_t{16} << 10;
    // From accepting a connection to closing it.
    absl::Duration time = absl::Seconds(10);
  };

  // `address` is HOST:PORT; port 0 takes a free one. A port in use is an error
  // that names the address.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(
      const std::string& address, Callbacks callbacks, const Limits& limits);
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(
      const std::string& address, Callbacks callbacks) {
    return Start(address, std::move(callbacks), Limits());
  }
  // Cuts what is left; waits only for a text of /metrics that is being made.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  const std::string& address() const;

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weir
