// The gauges of what the server holds: the queue, lanes, memory, programs,
// models, device health. Read when /metrics is.
#pragma once

#include "server/engines.h"
#include "server/models/repository.h"
#include "server/observe/metrics.h"
#include "server/observe/readiness.h"
#include "server/options.h"
#include "server/rpc/transport.h"
#include "server/scheduling/admission.h"

namespace weir {

// All outlive the metrics, or Metrics::ClearReaders is called first.
void AddPoolGauges(Metrics* metrics, const ServerOptions& options,
                   const Engines& engines, const Admission& admission,
                   const ModelRepository& models, const Readiness& readiness);

void AddTransportGauges(Metrics* metrics, const Transport& transport);

}  // namespace weir
