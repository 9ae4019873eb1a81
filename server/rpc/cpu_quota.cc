#include "server/rpc/cpu_quota.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <thread>

namespace weir {
namespace {

// CPUs that `folder` grants under cgroup v2 or v1, or `cpus` if it sets none.
double Granted(const std::string& folder, double cpus) {
  std::string quota;
  double period = 0;
  std::ifstream v2(folder + "/cpu.max");
  if (!(v2 >> quota >> period)) {
    std::ifstream v1_quota(folder + "/cpu.cfs_quota_us");
    std::ifstream v1_period(folder + "/cpu.cfs_period_us");
    if (!(v1_quota >> quota) || !(v1_period >> period)) return cpus;
  }
  if (quota.empty() || quota == "max" || quota[0] == '-' || period <= 0) {
    return cpus;
  }
  return std::min(cpus, std::strtod(quota.c_str(), nullptr) / period);
}

// The process's folder below the cgroup mount, e.g. "/system.slice/x".
std::string OwnGroup(const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    const size_t colon = line.rfind(':');
    if (colon == std::string::npos) continue;
    if (line.starts_with("0::") || line.find("cpu") < colon) {
      return line.substr(colon + 1);
    }
  }
  return "/";
}

int AffinityCpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

int CpuQuota(const std::string& root) {
  double cpus = std::max(1, AffinityCpus());
  // A limit on any folder above binds too.
  std::string group = OwnGroup(root);
  for (;;) {
    for (const char* mount : {"/sys/fs/cgroup", "/sys/fs/cgroup/cpu"}) {
      cpus = Granted(root + mount + group, cpus);
    }
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos) break;
    group.resize(slash);
  }
  return std::max(1, static_cast<int>(std::ceil(cpus)));
}

}  // namespace weir
