#include "server/pool_gauges.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend/devices.h"
#include "kernels/base/build_info.h"
#include "kernels/base/clock.h"

namespace weir {
namespace {

using Sample = Metrics::Sample;
using Samples = std::vector<Sample>;

template <typename Number>
double Double(Number number) {
  return static_cast<double>(number);
}

const char* StateName(ModelState state) {
  switch (state) {
    case ModelState::kLoading:
      return "loading";
    case ModelState::kReady:
      return "ready";
    case ModelState::kUnavailable:
      return "unavailable";
  }
  return "";
}

void AddQueueGauges(Metrics* metrics, const ServerOptions& options,
                    const Admission* admission) {
  metrics->AddReader(Metric::kInFlight,
                     [admission] { return Double(admission->requests()); });
  metrics->AddReader(Metric::kBytesInFlight,
                     [admission] { return Double(admission->bytes()); });
  metrics->AddReader(Metric::kQueueDepth,
                     [admission] { return Double(admission->waiting()); });
  metrics->AddReader(Metric::kQueueLimit,
                     [limit = options.queue_length] { return Double(limit); });
  metrics->AddReader(Metric::kQueueAge, [admission] {
    const Nanos oldest = admission->oldest_waiting();
    return oldest == 0 ? 0.0 : Double(NowNanos() - oldest) * 1e-9;
  });
}

std::string NameOf(Engine* engine) {
  return DeviceName(engine->device().info());
}

// One series for each device.
template <typename Number>
Metrics::ReadFn PerDevice(const Engines& engines, const Number& number) {
  return [engines = &engines, number] {
    Samples samples;
    for (Engine* engine : engines->all()) {
      samples.push_back({{NameOf(engine)}, Double(number(*engine))});
    }
    return samples;
  };
}

void AddStreamGauges(Metrics* metrics, const Engines& engines) {
  metrics->AddReader(
      Metric::kLanes, Metrics::ReadFn([engines = &engines] {
        Samples samples;
        for (Engine* engine : engines->all()) {
          const std::string device = NameOf(engine);
          const StreamPoolStats stats = engine->streams().stats();
          samples.push_back({{device, "idle"}, Double(stats.idle)});
          samples.push_back({{device, "leased"}, Double(stats.leased)});
          samples.push_back({{device, "draining"}, Double(stats.draining)});
          samples.push_back({{device, "retired"}, Double(stats.retired)});
        }
        return samples;
      }));
  metrics->AddReader(Metric::kMaxLanes, PerDevice(engines, [](Engine& e) {
                       return e.streams().stats().max;
                     }));
  metrics->AddReader(Metric::kLaneWaiters, PerDevice(engines, [](Engine& e) {
                       return e.streams().stats().waiting;
                     }));
  metrics->AddReader(Metric::kLeases, PerDevice(engines, [](Engine& e) {
                       return e.streams().stats().leases_total;
                     }));
}

// Of all served versions, by device; a program that two of them share counts
// once.
std::map<const Device*, double> ConstantBytes(const ModelRepository& models) {
  std::set<const Program*> seen;
  std::map<const Device*, double> bytes;
  for (const ModelIndexEntry& entry : models.Index()) {
    if (entry.state != ModelState::kReady) continue;
    const auto model = models.Find(entry.name, entry.version);
    if (!model.ok()) continue;
    const Program& program = *(*model)->program;
    if (!seen.insert(&program).second) continue;
    bytes[&program.device()] += Double(program.constant_bytes());
  }
  return bytes;
}

void AddMemoryGauges(Metrics* metrics, const Engines& engines,
                     const ModelRepository* models) {
  metrics->AddReader(
      Metric::kMemory, Metrics::ReadFn([engines = &engines, models] {
        Samples samples;
        std::map<const Device*, double> constants = ConstantBytes(*models);
        for (Engine* engine : engines->all()) {
          auto add = [&, device = NameOf(engine)](
                         const char* pool, const char* state, double bytes) {
            samples.push_back({{device, pool, state}, bytes});
          };
          const PinnedPoolStats host = engine->pinned().stats();
          const MemoryPoolStats tensor = engine->memory().stats();
          add("host", "used", Double(host.leased_bytes));
          add("host", "cached", Double(host.cached_bytes));
          add("tensor", "used", Double(tensor.used_bytes));
          add("tensor", "cached", Double(tensor.cached_bytes));
          add("arena", "used", Double(engine->streams().stats().arena_bytes));
          add("constants", "used", constants[&engine->device()]);
          add("program", "used", Double(engine->programs().stats().bytes));
        }
        return samples;
      }));
  metrics->AddReader(
      Metric::kMemoryBudget, Metrics::ReadFn([engines = &engines] {
        Samples samples;
        for (Engine* engine : engines->all()) {
          auto add = [&, device = NameOf(engine)](const char* pool,
                                                  size_t bytes) {
            samples.push_back({{device, pool}, Double(bytes)});
          };
          add("host", engine->pinned().stats().budget_bytes);
          add("tensor", engine->memory().stats().budget_bytes);
          add("arena", engine->options().streams.max_arena_bytes);
          add("program", engine->options().programs.max_bytes);
        }
        return samples;
      }));
  metrics->AddReader(
      Metric::kDeviceMemory, Metrics::ReadFn([engines = &engines] {
        Samples samples;
        for (Engine* engine : engines->all()) {
          const std::optional<int64_t> free = engines->free_bytes(*engine);
          if (engine->device().host_addressable() || !free) continue;
          const std::string device = NameOf(engine);
          const int64_t total = engine->device().info().total_memory;
          samples.push_back({{device, "used"}, Double(total - *free)});
          samples.push_back({{device, "free"}, Double(*free)});
        }
        return samples;
      }));
}

void AddCompileGauges(Metrics* metrics, const Engines& engines) {
  metrics->AddCollector([engines = &engines](Metrics::Series& series) {
    for (Engine* engine : engines->all()) {
      const std::string device = NameOf(engine);
      const ProgramCacheStats stats = engine->programs().stats();
      series.Add(Metric::kPrograms, {device}, Double(stats.programs));
      series.Add(Metric::kProgramHits, {device}, Double(stats.hits));
      series.Add(Metric::kProgramMisses, {device}, Double(stats.misses));
      series.Add(Metric::kProgramEvictions, {device}, Double(stats.evicted));
      series.Add(Metric::kCompilesWaiting, {device}, Double(stats.queued));
      series.Add(Metric::kCompilesRunning, {device}, Double(stats.running));
      series.AddTimes(Metric::kCompileSeconds, {device},
                      CompileQueue::Times::kBounds, stats.times.counts,
                      stats.times.sum_ns);
      const auto kernels = engine->device().kernel_cache_stats();
      if (!kernels.has_value()) continue;
      series.Add(Metric::kKernelHits, {device, "memory"},
                 Double(kernels->memory_hits_total));
      series.Add(Metric::kKernelHits, {device, "disk"},
                 Double(kernels->disk_hits_total));
      series.Add(Metric::kKernelMisses, {device},
                 Double(kernels->misses_total));
      series.Add(Metric::kKernelWriteFailures, {device},
                 Double(kernels->write_failures_total));
    }
  });
}

}  // namespace

void AddPoolGauges(Metrics* metrics, const ServerOptions& options,
                   const Engines& engines, const Admission& admission,
                   const ModelRepository& models, const Readiness& readiness) {
  metrics->AddReader(
      Metric::kBuildInfo, Metrics::ReadFn([device = engines.names()] {
        return Samples{{{kVersion, std::string(BuildId()), device}, 1.0}};
      }));
  metrics->AddReader(Metric::kReady,
                     [&readiness] { return readiness.ready() ? 1.0 : 0.0; });
  metrics->AddReader(Metric::kDeviceHealthy, PerDevice(engines, [](Engine& e) {
                       return e.device().health().poisoned() ? 0 : 1;
                     }));
  metrics->AddReader(Metric::kDeviceStalls, PerDevice(engines, [](Engine& e) {
                       return e.device().health().stalls_total();
                     }));
  AddQueueGauges(metrics, options, &admission);
  AddStreamGauges(metrics, engines);
  AddMemoryGauges(metrics, engines, &models);
  metrics->AddReader(Metric::kParked, PerDevice(engines, [](Engine& e) {
                       return e.dispatcher().parked();
                     }));
  AddCompileGauges(metrics, engines);
  metrics->AddReader(
      Metric::kModels, Metrics::ReadFn([&models] {
        std::map<ModelState, size_t> count = {{ModelState::kLoading, 0},
                                              {ModelState::kReady, 0},
                                              {ModelState::kUnavailable, 0}};
        for (const ModelIndexEntry& entry : models.Index()) {
          ++count[entry.state];
        }
        Samples samples;
        for (const auto& [state, number] : count) {
          samples.push_back({{StateName(state)}, Double(number)});
        }
        return samples;
      }));
}

void AddSpaceGauges(Metrics* metrics, const Spaces& spaces,
                    const SpaceRecorder& recorder) {
  metrics->AddCollector([&spaces, &recorder](Metrics::Series& series) {
    const Amounts held = spaces.held();
    series.Add(Metric::kSpaces, {}, Double(held[Holding::kSpaces]));
    series.Add(Metric::kSpacesOpened, {}, Double(recorder.opened_total()));
    for (const auto end :
         {SpaceRecorder::End::kClosed, SpaceRecorder::End::kLease}) {
      series.Add(Metric::kSpacesClosed,
                 {SpaceRecorder::kEndNames[static_cast<size_t>(end)]},
                 Double(recorder.closed_total(end)));
    }
    for (const auto& [what, name] :
         {std::pair(Holding::kTensorBytes, "tensor_bytes"),
          std::pair(Holding::kTensors, "tensors"),
          std::pair(Holding::kContexts, "contexts"),
          std::pair(Holding::kTimelines, "timelines"),
          std::pair(Holding::kWorks, "works"),
          std::pair(Holding::kInputBytes, "input_bytes"),
          std::pair(Holding::kProgramBytes, "program_bytes"),
          std::pair(Holding::kWaits, "waits"),
          std::pair(Holding::kSessions, "sessions")}) {
      series.Add(Metric::kSpaceHeld, {name}, Double(held[what]));
    }
  });
}

void AddSessionGauges(Metrics* metrics, const Spaces& spaces,
                      const Sessions& sessions) {
  metrics->AddReader(Metric::kSessions, Metrics::ReadFn([&] {
                       const uint64_t all = spaces.held()[Holding::kSessions];
                       const uint64_t attached =
                           std::min<uint64_t>(all, sessions.streams());
                       return Samples{{{"attached"}, Double(attached)},
                                      {{"detached"}, Double(all - attached)}};
                     }));
}

void AddTransportGauges(Metrics* metrics, const Transport& transport,
                        size_t most_connections) {
  metrics->AddReader(Metric::kConnections, [&transport] {
    return Double(transport.open_connections());
  });
  metrics->AddReader(Metric::kConnectionsLimit,
                     [most_connections] { return Double(most_connections); });
  metrics->AddReader(Metric::kReceiving,
                     [&transport] { return Double(transport.receiving()); });
  metrics->AddReader(Metric::kUnsent,
                     [&transport] { return Double(transport.sending()); });
  metrics->AddReader(
      Metric::kConnectionsClosed, Metrics::ReadFn([&transport] {
        const Listener::Closed closed = transport.closed_connections();
        return Samples{{{"TOO_MANY_CONNECTIONS"}, Double(closed.all)},
                       {{"PEER_CONNECTIONS"}, Double(closed.of_peer)}};
      }));
  metrics->AddReader(Metric::kConnectionsCut, Metrics::ReadFn([&transport] {
                       const FrameGuard::Cuts cuts = transport.cuts();
                       return Samples{
                           {{"MESSAGE_PIECES"}, Double(cuts.pieces.count)},
                           {{"HEADERS_TOO_LARGE"}, Double(cuts.headers.count)}};
                     }));
  metrics->AddReader(Metric::kStreamsCut, [&transport] {
    return Double(transport.cuts().streams.count);
  });
  const CallCounts* const counts = &transport.counts();
  metrics->AddReader(
      Metric::kUploadsCut, Metrics::ReadFn([counts] {
        return Samples{
            {{"RECEIVE_TIMEOUT"}, Double(counts->uploads_timed_out.load())},
            {{"TOO_MANY_UPLOADS"}, Double(counts->uploads_displaced.load())}};
      }));
  metrics->AddReader(
      Metric::kRepliesDropped, Metrics::ReadFn([counts] {
        return Samples{
            {{"CALLER_GONE"}, Double(counts->replies_abandoned.load())},
            {{"SEND_TIMEOUT"}, Double(counts->replies_cut.load())}};
      }));
}

}  // namespace weir
