#include "server/observe/http_server.h"

#include <httplib.h>

#include <atomic>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace weir {
namespace {

constexpr char kText[] = "text/plain; charset=utf-8";

httplib::Server::Handler Probe(std::function<std::string()> problem) {
  return [problem = std::move(problem)](const httplib::Request&,
                                        httplib::Response& response) {
    const std::string why = problem();
    response.status = why.empty() ? 200 : 503;
    response.set_content((why.empty() ? "ok" : why) + "\n", kText);
  };
}

}  // namespace

struct HttpServer::Impl {
  httplib::Server server;
  std::atomic<bool> ended = false;
  std::thread thread;
};

HttpServer::HttpServer() : impl_(std::make_unique<Impl>()) {}

HttpServer::~HttpServer() {
  impl_->server.stop();
  if (impl_->thread.joinable()) impl_->thread.join();
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    const std::string& address, Callbacks callbacks) {
  std::unique_ptr<HttpServer> http(new HttpServer);
  httplib::Server& server = http->impl_->server;
  server.new_task_queue = [] { return new httplib::ThreadPool(1); };
  // The library's default shares the port with whoever has it already.
  server.set_socket_options([](socket_t socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
  server.set_keep_alive_max_count(1);
  server.Get("/healthz", Probe(std::move(callbacks.unhealthy)));
  server.Get("/readyz", Probe(std::move(callbacks.unready)));
  server.Get("/metrics", [read = std::move(callbacks.metrics)](
                             const httplib::Request&,
                             httplib::Response& response) {
    response.set_content(read(), "text/plain; version=0.0.4; charset=utf-8");
  });

  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') {
    host = host.substr(1, host.size() - 2);
  }
  int port = 0;
  if (colon == std::string::npos ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--http: \"", address, "\" is not HOST:PORT"));
  }
  if (port == 0) {
    port = server.bind_to_any_port(host.c_str());
  } else if (!server.bind_to_port(host.c_str(), port)) {
    port = -1;
  }
  if (port < 0) {
    return absl::UnavailableError(absl::StrCat(
        "--http: cannot listen on ", address,
        " (in use, or not an address of this machine); choose another"));
  }
  http->address_ = absl::StrCat(address.substr(0, colon), ":", port);
  std::atomic<bool>& ended = http->impl_->ended;
  http->impl_->thread = std::thread([&server, &ended] {
    server.listen_after_bind();
    ended = true;
  });
  // A stop that comes before the thread listens would be forgotten.
  while (!server.is_running() && !ended) std::this_thread::yield();
  return http;
}

}  // namespace weir
