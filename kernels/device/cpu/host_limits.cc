#include "kernels/device/cpu/host_limits.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace weir {
namespace {

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

int64_t NumberIn(const std::string& path) {
  int64_t number = -1;
  if (!absl::SimpleAtoi(FirstLine(path), &number)) return -1;
  return number;
}

// The number behind `name` in a file of lines "name number ...", or -1.
int64_t Entry(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first;
    int64_t number = -1;
    if (words >> first && first == name && words >> number) return number;
  }
  return -1;
}

// The folders of the process's group in the hierarchy of `controller` (empty:
// version 2), from its own up to the root. Inside a container the path in
// /proc/self/cgroup may be the host's, so the root is always among them.
std::vector<std::string> GroupFolders(const HostFiles& files,
                                      const std::string& controller) {
  std::string path = "/";
  std::ifstream groups(files.proc + "/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::vector<std::string> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::vector<std::string> names = absl::StrSplit(parts[1], ',');
    if (std::find(names.begin(), names.end(), controller) != names.end()) {
      path = parts[2];
    }
  }
  const std::string root =
      controller.empty() ? files.cgroup : files.cgroup + "/" + controller;
  std::vector<std::string> folders;
  while (path.size() > 1) {
    folders.push_back(root + path);
    path.resize(path.rfind('/'));
  }
  folders.push_back(root);
  return folders;
}

}  // namespace

int AllowedCpus(const HostFiles& files, int online) {
  double allowed = online;
  for (const std::string& folder : GroupFolders(files, "")) {
    const std::vector<std::string> parts =
        absl::StrSplit(FirstLine(folder + "/cpu.max"), ' ');
    double quota = 0, period = 0;
    if (parts.size() == 2 && absl::SimpleAtod(parts[0], &quota) &&
        absl::SimpleAtod(parts[1], &period) && quota > 0 && period > 0) {
      allowed = std::min(allowed, quota / period);
    }
  }
  for (const std::string& folder : GroupFolders(files, "cpu")) {
    const int64_t quota = NumberIn(folder + "/cpu.cfs_quota_us");
    const int64_t period = NumberIn(folder + "/cpu.cfs_period_us");
    if (quota > 0 && period > 0) {
      allowed = std::min(
          allowed, static_cast<double>(quota) / static_cast<double>(period));
    }
  }
  const int whole = static_cast<int>(allowed);
  return std::max(1, whole + (allowed > whole ? 1 : 0));
}

int64_t AllowedMemory(const HostFiles& files, int64_t installed) {
  int64_t allowed = installed;
  for (const std::string& folder : GroupFolders(files, "")) {
    const int64_t limit = NumberIn(folder + "/memory.max");
    if (limit > 0) allowed = std::min(allowed, limit);
  }
  for (const std::string& folder : GroupFolders(files, "memory")) {
    const int64_t limit = NumberIn(folder + "/memory.limit_in_bytes");
    if (limit > 0) allowed = std::min(allowed, limit);
  }
  return allowed;
}

int64_t FreeMemory(const HostFiles& files, int64_t allowed) {
  int64_t free = allowed;
  const int64_t available = Entry(files.proc + "/meminfo", "MemAvailable:");
  if (available >= 0) free = std::min(free, available * 1024);
  const auto limit_to_group = [&free](int64_t limit, int64_t used,
                                      int64_t cached) {
    if (limit <= 0 || used < 0) return;
    const int64_t needed =
        std::max(int64_t{0}, used - std::max(int64_t{0}, cached));
    free = std::min(free, limit - std::min(limit, needed));
  };
  for (const std::string& folder : GroupFolders(files, "")) {
    limit_to_group(NumberIn(folder + "/memory.max"),
                   NumberIn(folder + "/memory.current"),
                   Entry(folder + "/memory.stat", "inactive_file"));
  }
  for (const std::string& folder : GroupFolders(files, "memory")) {
    limit_to_group(NumberIn(folder + "/memory.limit_in_bytes"),
                   NumberIn(folder + "/memory.usage_in_bytes"),
                   Entry(folder + "/memory.stat", "total_inactive_file"));
  }
  return free;
}

int OnlineCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    return std::max(1, CPU_COUNT(&set));
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int CpuQuota() { return AllowedCpus(HostFiles(), OnlineCpus()); }

int64_t InstalledMemory() {
  return int64_t{sysconf(_SC_PHYS_PAGES)} * int64_t{sysconf(_SC_PAGESIZE)};
}

}  // namespace weir
