// Constant load on a server for minutes: what its process's memory does.
// 16 callers send the picture request as fast as they are answered; anonymous
// memory is read every second, and a line fitted through it once the caches
// are warm. Fails if it rises by more than the limit. Usage:
//   soak [DEVICE [SECONDS [MAX_MB_PER_MINUTE]]]    (default: auto 30 1)
// The fit leaves out the first 40 %, so that 300 seconds judge minutes 2 to 5.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/load.h"
#include "tests/bench/picture_request.h"
#include "tests/bench/server_process.h"

namespace weir::bench {
namespace {

constexpr int kCallers = 16;
constexpr double kLeftOut = 0.4;

struct Sample {
  double seconds = 0;
  ServerProcess::Memory memory;
};

double Megabytes(int64_t bytes) { return static_cast<double>(bytes) / 1e6; }

// Of the least squares through what was read from `from` on, in MB a minute.
double Slope(const std::vector<Sample>& samples, double from) {
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (const Sample& sample : samples) {
    if (sample.seconds < from) continue;
    const double minutes = sample.seconds / 60;
    const double megabytes = Megabytes(sample.memory.anonymous_bytes);
    n += 1;
    x += minutes;
    y += megabytes;
    xx += minutes * minutes;
    xy += minutes * megabytes;
  }
  const double spread = n * xx - x * x;
  return spread == 0 ? 0 : (n * xy - x * y) / spread;
}

int Main(int argc, char** argv) {
  const std::string device = argc > 1 ? argv[1] : "auto";
  const double seconds = argc > 2 ? std::atof(argv[2]) : 30;
  const double limit = argc > 3 ? std::atof(argv[3]) : 1;
  auto server = ServerProcess::Start({absl::StrCat("--device=", device)});
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.status().ToString().c_str());
    return 1;
  }
  client::LoadOptions load;
  load.address = (*server)->address();
  load.method = "/weir.v1.Evaluator/Evaluate";
  load.request = PictureRequest();
  load.callers = kCallers;
  load.threads = 8;
  load.warmup_seconds = 0;
  load.seconds = seconds;
  std::vector<Sample> samples;
  const auto read = [&](const client::LoadProgress& progress) {
    if (!samples.empty() && progress.seconds < samples.back().seconds + 1) {
      return;
    }
    samples.push_back({progress.seconds, (*server)->memory()});
    if (samples.size() % 10 != 1) return;
    const ServerProcess::Memory& memory = samples.back().memory;
    std::printf("%5.0f s %9lld calls  resident %7.1f MB  anonymous %7.1f MB\n",
                progress.seconds, static_cast<long long>(progress.calls),
                Megabytes(memory.resident_bytes),
                Megabytes(memory.anonymous_bytes));
    std::fflush(stdout);
  };
  const client::LoadResult result = client::RunLoad(load, read);
  const ServerProcess::End end = (*server)->Terminate();
  if (result.error_count() > 0 || end.code != 0) {
    std::fprintf(stderr, "%lld calls failed: %s; exit code %d\n",
                 static_cast<long long>(result.error_count()),
                 result.first_error.c_str(), end.code);
    return 1;
  }
  const double slope = Slope(samples, kLeftOut * seconds);
  std::printf(
      "%s: %.0f calls/s, p50 %.0f us; anonymous memory rises by %.2f MB a "
      "minute after %.0f s%s\n",
      (*server)->device().c_str(), result.PerSecond(), result.Quantile(0.5),
      slope, kLeftOut * seconds, slope <= limit ? "" : "  TOO MUCH");
  return slope <= limit ? 0 : 1;
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) { return weir::bench::Main(argc, argv); }
