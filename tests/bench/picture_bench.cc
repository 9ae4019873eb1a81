// DALI's own request over gRPC: a 640x480 RGB picture sent inline, resized to a
// shorter side of 256, cropped to 224, mirrored, normalized to float planes,
// and returned, with 1, 4 and 16 callers in a closed loop. Usage: picture_bench
// [DEVICE [SECONDS_PER_CASE]]     (default: auto 3)
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "client/cpp/load.h"
#include "server/server.h"
#include "tests/bench/picture_request.h"

namespace weir {
namespace {

int Main(int argc, char** argv) {
  const double seconds = argc > 2 ? std::atof(argv[2]) : 3;
  ServerOptions options;
  options.grpc = {"127.0.0.1:0"};
  options.http.clear();
  options.devices = {argc > 1 ? argv[1] : "auto"};
  options.drain_delay = absl::ZeroDuration();
  auto server = Server::Start(options);
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.status().ToString().c_str());
    return 1;
  }
  const std::string request = bench::PictureRequest();
  std::printf("device %s\n", (*server)->device_names().c_str());
  double last = 0;
  bool held = true;
  for (int callers : {1, 4, 16}) {
    client::LoadOptions load;
    load.address = (*server)->grpc_addresses()[0];
    load.method = "/weir.v1.Evaluator/Evaluate";
    load.request = request;
    load.callers = callers;
    load.threads = std::min(callers, 8);
    load.seconds = seconds;
    load.warmup_seconds = 1;
    const client::LoadResult result = client::RunLoad(load);
    if (result.error_count() > 0) {
      std::fprintf(stderr, "%s\n", result.first_error.c_str());
      return 1;
    }
    std::printf(
        "%3d callers %8.0f/s   p50 %7.0f us   p99 %7.0f us = %.1f x p50\n",
        callers, result.PerSecond(), result.Quantile(0.5),
        result.Quantile(0.99), result.Quantile(0.99) / result.Quantile(0.5));
    if (callers == 16 && (*server)->device_names() != "cpu") {
      held = result.PerSecond() >= 3000 && result.PerSecond() > last &&
             result.Quantile(0.99) <= 5 * result.Quantile(0.5);
    }
    last = result.PerSecond();
  }
  if (!held) {
    std::printf(
        "DOES NOT HOLD: with 16 callers 3,000/s, more than with 4, and a p99 "
        "of at most 5 x p50\n");
  }
  return held ? 0 : 1;
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) { return weir::Main(argc, argv); }
