// A run that crashes says how it is replayed.
#pragma once

namespace weir::sim {

// From here on, for segmentation faults and aborts of this process.
void ReportCrashes();

}  // namespace weir::sim
