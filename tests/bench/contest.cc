#include "tests/bench/contest.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "client/cpp/load.h"
#include "kernels/device/cpu/host_limits.h"

namespace weir::bench {
namespace {

std::vector<int> OwnCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<size_t>(cpu), &set)) cpus.push_back(cpu);
  }
  return cpus;
}

// This thread, and all threads and processes that it starts from now on.
bool PinTo(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(static_cast<size_t>(cpu), &set);
  if (sched_setaffinity(0, sizeof(set), &set) == 0) return true;
  std::fprintf(stderr, "cannot pin to CPUs %s: %s\n",
               absl::StrJoin(cpus, ",").c_str(), std::strerror(errno));
  return false;
}

// Puts the thread back where it was.
class KeepCpus {
 public:
  KeepCpus() : all(OwnCpus()) {}
  ~KeepCpus() { PinTo(all); }

  const std::vector<int> all;
};

struct Sides {
  std::vector<int> server;
  std::vector<int> client;
};

// Of as many CPUs as the process may keep busy. One both sides have.
Sides Divide(std::vector<int> cpus, bool shared) {
  cpus.resize(std::min(cpus.size(), static_cast<size_t>(CpuQuota())));
  if (shared) return {cpus, cpus};
  const auto middle =
      cpus.begin() + static_cast<std::ptrdiff_t>((cpus.size() + 1) / 2);
  Sides sides{{cpus.begin(), middle}, {middle, cpus.end()}};
  if (sides.client.empty()) sides.client = sides.server;
  return sides;
}

double CpuSeconds(pid_t pid) {
  clockid_t clock;
  timespec time = {};
  if (clock_getcpuclockid(pid, &clock) != 0 ||
      clock_gettime(clock, &time) != 0) {
    return 0;
  }
  return static_cast<double>(time.tv_sec) +
         static_cast<double>(time.tv_nsec) * 1e-9;
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half]
                                : (values[half - 1] + values[half]) / 2;
}

double MedianOf(double Figures::*what, const std::vector<Figures>& rounds) {
  std::vector<double> values;
  for (const Figures& round : rounds) values.push_back(round.*what);
  return Median(std::move(values));
}

double MedianRatio(const std::vector<Figures>& rival,
                   const std::vector<Figures>& own) {
  std::vector<double> values;
  for (size_t i = 0; i < own.size(); ++i) {
    values.push_back(own[i].per_second / rival[i].per_second);
  }
  return Median(std::move(values));
}

double MedianMoreP50(const std::vector<Figures>& rival,
                     const std::vector<Figures>& own) {
  std::vector<double> values;
  for (size_t i = 0; i < own.size(); ++i) {
    values.push_back(own[i].p50_us - rival[i].p50_us);
  }
  return Median(std::move(values));
}

// A window in which nobody answered is made longer until it has these seconds:
// on a busy machine a short one may pass before a thread runs.
constexpr double kLongEnoughSeconds = 2;

// One run of one server.
std::optional<Figures> Measure(const Contest& contest, const Entrant& entrant,
                               const Contender& server, size_t threads) {
  client::LoadOptions load;
  load.address = server.address();
  load.method = contest.method;
  load.request = contest.request;
  load.callers = contest.callers;
  load.threads = std::min(contest.callers, static_cast<int>(threads));
  load.seconds = contest.seconds;
  client::LoadResult result;
  double cpu = 0;
  for (;; load.seconds = std::max(load.seconds * 10, 1e-6)) {
    const double cpu_before = CpuSeconds(server.pid());
    result = client::RunLoad(load);
    cpu = CpuSeconds(server.pid()) - cpu_before;
    if (result.calls > 0 || result.error_count() > 0 ||
        load.seconds >= kLongEnoughSeconds) {
      break;
    }
  }
  if (result.error_count() > 0 || result.calls == 0) {
    std::fprintf(stderr, "%s: %s\n", entrant.name.c_str(),
                 result.calls == 0 && result.error_count() == 0
                     ? "answered nothing"
                     : result.first_error.c_str());
    return std::nullopt;
  }
  if (!contest.is_right(result.reply)) {
    std::fprintf(stderr, "%s: its reply is wrong\n", entrant.name.c_str());
    return std::nullopt;
  }
  return Figures{.per_second = result.PerSecond(),
                 .p50_us = result.Quantile(0.5),
                 .p99_us = result.Quantile(0.99),
                 .cpu_us = cpu * 1e6 / static_cast<double>(result.answered)};
}

}  // namespace

bool Holds(const MustHold& bound, const std::vector<Figures>& rival,
           const std::vector<Figures>& own) {
  bool held = !own.empty() && own.size() == rival.size();
  if (!held) {
    std::printf("  DOES NOT HOLD: %s was not measured\n", bound.name.c_str());
    return false;
  }
  const auto word = [&held](bool holds) {
    held &= holds;
    return holds ? "holds:" : "DOES NOT HOLD:";
  };
  if (bound.least_ratio > 0) {
    const double ratio = MedianRatio(rival, own);
    std::printf("  %s %s: %.2f of the rival's rate, at least %.2f\n",
                word(ratio >= bound.least_ratio), bound.name.c_str(), ratio,
                bound.least_ratio);
  }
  if (bound.most_more_p50_us.has_value()) {
    const double more = MedianMoreP50(rival, own);
    std::printf("  %s %s: p50 %+.0f us beside the rival's, at most %+.0f\n",
                word(more <= *bound.most_more_p50_us), bound.name.c_str(), more,
                *bound.most_more_p50_us);
  }
  return held;
}

bool Hold(const Contest& contest, const std::vector<MustHold>& bounds) {
  // Of the callers alone, as `weir load` does, so that they are less of a
  // limit: the servers are processes of their own.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  const KeepCpus keep;
  const Sides cpus = Divide(keep.all, contest.shared_cpus);
  if (!PinTo(cpus.server)) return false;
  const size_t n = contest.entrants.size();
  std::vector<std::unique_ptr<Contender>> servers;
  for (const Entrant& entrant : contest.entrants) {
    ContenderOr server = entrant.start();
    if (!server.ok()) {
      std::fprintf(stderr, "%s: %s\n", entrant.name.c_str(),
                   server.status().ToString().c_str());
      return false;
    }
    servers.push_back(*std::move(server));
  }
  if (!PinTo(cpus.client)) return false;
  std::vector<std::vector<Figures>> figures(n);
  for (int round = 0; round < contest.rounds; ++round) {
    for (size_t k = 0; k < n; ++k) {
      const size_t i = (static_cast<size_t>(round) + k) % n;
      const std::optional<Figures> measured = Measure(
          contest, contest.entrants[i], *servers[i], cpus.client.size());
      if (!measured.has_value()) return false;
      figures[i].push_back(*measured);
    }
  }
  std::printf(
      "messages of %zu bytes, %d callers, servers on CPUs %s, callers on %s, "
      "median of %d rounds\n",
      contest.request.size(), contest.callers,
      absl::StrJoin(cpus.server, ",").c_str(),
      absl::StrJoin(cpus.client, ",").c_str(), contest.rounds);
  for (size_t i = 0; i < n; ++i) {
    const std::vector<Figures>& own = figures[i];
    std::printf(
        "  %-20s %8.0f/s  ratio %.2f   p50 %7.0f us (%+.0f)   p99 %7.0f us   "
        "server CPU %6.1f us a request\n",
        contest.entrants[i].name.c_str(), MedianOf(&Figures::per_second, own),
        MedianRatio(figures[0], own), MedianOf(&Figures::p50_us, own),
        MedianMoreP50(figures[0], own), MedianOf(&Figures::p99_us, own),
        MedianOf(&Figures::cpu_us, own));
  }
  bool held = true;
  for (const MustHold& bound : bounds) {
    const auto at =
        std::find_if(contest.entrants.begin(), contest.entrants.end(),
                     [&](const Entrant& e) { return e.name == bound.name; });
    const auto i = static_cast<size_t>(at - contest.entrants.begin());
    held &=
        Holds(bound, figures[0], i < n ? figures[i] : std::vector<Figures>());
  }
  std::fflush(stdout);
  return held;
}

}  // namespace weir::bench
