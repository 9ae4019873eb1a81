// A work's SyncReport as its message, and as JSON for protocols that have no
// field for it (KServe's response parameter weir_sync_report). Pure; any
// thread.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/device/device.h"
#include "kernels/eval/work.h"
#include "proto/weir/v1/sync_report.pb.h"

namespace weir {

inline constexpr int kMaxReportedWaits = 64;

// The report of a done work. `full` or an error fills the details.
void FillReport(const Work& work, const DeviceInfo& device, bool full,
                int64_t unix_minus_steady_ns, v1::SyncReport* message);

// Keys are the message's field names.
std::string ReportJson(const Work& work, const DeviceInfo& device, bool full,
                       int64_t unix_minus_steady_ns);

}  // namespace weir
