// What can be said about a start before anything takes its time: folders and
// addresses that the flags name, descriptors that connections need. Errors name
// flag, thing and cause.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weir {

// OK for a folder that can be listed, and for "" (no models).
absl::Status CheckModelRepository(const std::string& path);

// Makes the folder if it is not there, and tries whether files can be made in
// it. OK for "". RESOURCE_EXHAUSTED if it only has no room, which it may have
// later.
absl::Status CheckCacheFolder(const std::string& path);

// Whether all addresses can be listened on now, together. `http` may be "".
// Nobody can connect afterwards: they are left again.
absl::Status CheckAddresses(const std::vector<std::string>& grpc,
                            const std::string& http);

// File descriptors of a server that takes so many gRPC connections: those of
// its HTTP port, of files, devices and threads are among them.
size_t DescriptorsFor(size_t connections);

// The soft limit of open files that a process should have, and how many
// connections it leaves room for: no more than are wanted. FAILED_PRECONDITION
// if it is none, naming limit and remedy.
struct DescriptorPlan {
  uint64_t soft_limit = 0;
  size_t connections = 0;
};
absl::StatusOr<DescriptorPlan> PlanDescriptors(uint64_t soft_limit,
                                               uint64_t hard_limit,
                                               size_t connections);

// What one peer may have of `connections` where it was to have `of_peer` of
// `wanted`: the same share of them, one at least.
size_t PeerShare(size_t of_peer, size_t wanted, size_t connections);

// Raises this process's soft limit as planned; returns how many connections
// there is room for.
absl::StatusOr<size_t> TakeDescriptors(size_t connections);

}  // namespace weir
