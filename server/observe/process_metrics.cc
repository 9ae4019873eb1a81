#include "server/observe/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace weir {
namespace {

namespace fs = std::filesystem;

using Values = std::vector<std::pair<Metric, double>>;

// Fields of /proc/self/stat as proc(5) counts them, from 1.
constexpr size_t kState = 3;  // the first after the name
constexpr size_t kUserTime = 14;
constexpr size_t kSystemTime = 15;
constexpr size_t kThreads = 20;
constexpr size_t kStartTime = 22;  // after the machine's start
constexpr size_t kVirtualBytes = 23;
constexpr size_t kResidentPages = 24;

std::string Content(const fs::path& path) {
  std::ostringstream content;
  content << std::ifstream(path).rdbuf();
  return content.str();
}

// Unix time at which the machine started; -1: not known.
double MachineStart(const fs::path& proc) {
  std::ifstream file(proc / "stat");
  constexpr std::string_view kName = "btime ";
  for (std::string line; std::getline(file, line);) {
    double seconds = 0;
    if (line.rfind(kName, 0) == 0 &&
        absl::SimpleAtod(line.substr(kName.size()), &seconds)) {
      return seconds;
    }
  }
  return -1;
}

void AddStat(const fs::path& proc, Values* values) {
  const std::string stat = Content(proc / "self" / "stat");
  // The name, in parentheses, may have any characters.
  const size_t name_end = stat.rfind(") ");
  if (name_end == std::string::npos) return;
  const std::vector<std::string> fields =
      absl::StrSplit(stat.substr(name_end + 2), ' ');
  if (fields.size() <= kResidentPages - kState) return;
  const auto field = [&](size_t number) {
    double value = 0;
    (void)absl::SimpleAtod(fields[number - kState], &value);
    return value;
  };
  const double tick = 1.0 / static_cast<double>(sysconf(_SC_CLK_TCK));
  const auto page = static_cast<double>(sysconf(_SC_PAGESIZE));
  values->emplace_back(Metric::kProcessCpu,
                       (field(kUserTime) + field(kSystemTime)) * tick);
  values->emplace_back(Metric::kProcessThreads, field(kThreads));
  values->emplace_back(Metric::kProcessVirtual, field(kVirtualBytes));
  values->emplace_back(Metric::kProcessResident, field(kResidentPages) * page);
  const double machine = MachineStart(proc);
  if (machine < 0) return;
  values->emplace_back(Metric::kProcessStart,
                       machine + field(kStartTime) * tick);
}

void AddDescriptors(const fs::path& proc, Values* values) {
  std::error_code error;
  fs::directory_iterator it(proc / "self" / "fd", error);
  double open = 0;
  for (; !error && it != fs::directory_iterator(); it.increment(error)) ++open;
  if (error) return;
  // One of them is what lists them.
  values->emplace_back(Metric::kProcessFds, open - 1);
}

}  // namespace

std::vector<std::pair<Metric, double>> ReadProcess(const std::string& proc) {
  Values values;
  AddStat(proc, &values);
  AddDescriptors(proc, &values);
  rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    values.emplace_back(Metric::kProcessMaxFds,
                        static_cast<double>(files.rlim_cur));
  }
  return values;
}

void AddProcessMetrics(Metrics* metrics) {
  metrics->AddCollector([](Metrics::Series& series) {
    for (const auto& [metric, value] : ReadProcess()) {
      series.Add(metric, {}, value);
    }
  });
}

}  // namespace weir
