// A work's SyncReport as its message, and as JSON for protocols that have no
// field for it (KServe's response parameter weir_sync_report). Pure; any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/device/device.h"
#include "kernels/eval/sync_report.h"
#include "kernels/eval/work.h"
#include "proto/weir/v1/sync_report.pb.h"

namespace weir {

// What a report says of the call that its work was for.
struct ReportFrame {
  const DeviceInfo& device;
  Nanos received = 0;  // when the request was there
  Nanos replied = 0;   // when the reply is made
  // What turns those of the steady clock into nanoseconds since the epoch.
  int64_t unix_minus_steady_ns = 0;
  size_t inline_reads = 0;  // see InlineReads; told if there are results
  bool full = false;        // an error fills the details too
  v1::Transfers::Transport transport = v1::Transfers::TRANSPORT_INLINE;
};

// How many outputs the request reads inline.
size_t InlineReads(const WorkRequest& request);

v1::WorkState StateToProto(WorkState state);

// The report of a done work.
void FillReport(const SyncReport& report, const ReportFrame& frame,
                v1::SyncReport* message);

// Keys are the message's field names.
std::string ReportJson(const SyncReport& report, const ReportFrame& frame);

}  // namespace weir
