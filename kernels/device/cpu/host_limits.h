// How many threads and bytes this process may use: the smallest of the machine,
// the affinity mask and the control groups (version 1 and 2) it lives in.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/base/export.h"

namespace weir {

// Where the kernel shows itself; tests put a folder there.
struct HostFiles {
  std::string proc = "/proc";
  std::string cgroup = "/sys/fs/cgroup";
};

// A CPU quota of 1.5 gives two threads. At least 1; `online` are the CPUs that
// the process may run on at all.
WEIR_EXPORT int AllowedCpus(const HostFiles& files, int online);

// Bytes; `installed` is the machine's memory.
WEIR_EXPORT int64_t AllowedMemory(const HostFiles& files, int64_t installed);

// Bytes of `allowed` (see above) that can be had now: what the machine has
// available, or what is left of the tightest control group. Cached files count
// as free, as they make room.
WEIR_EXPORT int64_t FreeMemory(const HostFiles& files, int64_t allowed);

WEIR_EXPORT int OnlineCpus();
WEIR_EXPORT int64_t InstalledMemory();

// The CPUs that this process may use: what its thread counts default to.
WEIR_EXPORT int CpuQuota();

}  // namespace weir
