// The gauges of what the server holds: the queue, lanes, memory, programs,
// models, device health, connections. Read when /metrics is, which never waits
// for a driver.
#pragma once

#include <cstddef>

#include "server/engines.h"
#include "server/models/repository.h"
#include "server/observe/metrics.h"
#include "server/observe/readiness.h"
#include "server/observe/space_recorder.h"
#include "server/options.h"
#include "server/rpc/transport.h"
#include "server/scheduling/admission.h"
#include "server/services/session/sessions.h"
#include "server/spaces/spaces.h"

namespace weir {

// All outlive the metrics, or Metrics::ClearReaders is called first.
void AddPoolGauges(Metrics* metrics, const ServerOptions& options,
                   const Engines& engines, const Admission& admission,
                   const ModelRepository& models, const Readiness& readiness);

void AddSpaceGauges(Metrics* metrics, const Spaces& spaces,
                    const SpaceRecorder& recorder);

void AddSessionGauges(Metrics* metrics, const Spaces& spaces,
                      const Sessions& sessions);

// `most_connections` is the bound of its connections.
void AddTransportGauges(Metrics* metrics, const Transport& transport,
                        size_t most_connections);

}  // namespace weir
