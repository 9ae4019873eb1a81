#include "server/observe/pool_gauges.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

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
  metrics->AddReader(
      Metric::kRefused, Metrics::ReadFn([admission] {
        auto sample = [&](const char* reason, Admission::Refusal why) {
          return Sample{{reason}, Double(admission->refused(why))};
        };
        return Samples{
            sample("QUEUE_FULL", Admission::Refusal::kQueueFull),
            sample("QUEUE_BYTES_FULL", Admission::Refusal::kQueueBytesFull),
            sample("DEADLINE_PASSED", Admission::Refusal::kDeadlinePassed)};
      }));
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

void AddStreamGauges(Metrics* metrics, Engine& engine) {
  const std::string device = DeviceName(engine.device().info());
  StreamPool* const pool = &engine.streams();
  metrics->AddReader(Metric::kLanes, Metrics::ReadFn([pool, device] {
                       const StreamPoolStats stats = pool->stats();
                       return Samples{
                           {{device, "idle"}, Double(stats.idle)},
                           {{device, "leased"}, Double(stats.leased)},
                           {{device, "draining"}, Double(stats.draining)},
                           {{device, "retired"}, Double(stats.retired)}};
                     }));
  metrics->AddReader(Metric::kMaxLanes,
                     [pool] { return Double(pool->stats().max); });
  metrics->AddReader(Metric::kLaneWaiters,
                     [pool] { return Double(pool->stats().waiting); });
  metrics->AddReader(Metric::kLeases,
                     [pool] { return Double(pool->stats().leases_total); });
}

// Of all served versions; a program that two of them share counts once.
double ConstantBytes(const ModelRepository& models) {
  std::map<const Program*, uint64_t> bytes;
  for (const ModelIndexEntry& entry : models.Index()) {
    if (entry.state != ModelState::kReady) continue;
    const auto model = models.Find(entry.name, entry.version);
    if (!model.ok()) continue;
    bytes[(*model)->program.get()] = (*model)->program->constant_bytes();
  }
  double sum = 0;
  for (const auto& [program, size] : bytes) sum += Double(size);
  return sum;
}

void AddMemoryGauges(Metrics* metrics, Engine* engine,
                     const ModelRepository* models) {
  metrics->AddReader(
      Metric::kMemory, Metrics::ReadFn([engine, models] {
        const PinnedPoolStats host = engine->pinned().stats();
        const MemoryPoolStats tensor = engine->memory().stats();
        return Samples{
            {{"host", "used"}, Double(host.leased_bytes)},
            {{"host", "cached"}, Double(host.cached_bytes)},
            {{"tensor", "used"}, Double(tensor.used_bytes)},
            {{"tensor", "cached"}, Double(tensor.cached_bytes)},
            {{"arena", "used"}, Double(engine->streams().stats().arena_bytes)},
            {{"constants", "used"}, ConstantBytes(*models)},
            {{"program", "used"}, Double(engine->programs().stats().bytes)}};
      }));
  metrics->AddReader(
      Metric::kMemoryBudget, Metrics::ReadFn([engine] {
        return Samples{
            {{"host"}, Double(engine->pinned().stats().budget_bytes)},
            {{"tensor"}, Double(engine->memory().stats().budget_bytes)},
            {{"program"}, Double(engine->options().programs.max_bytes)}};
      }));
}

}  // namespace

void AddPoolGauges(Metrics* metrics, const ServerOptions& options,
                   Engine& engine, const Admission& admission,
                   const ModelRepository& models, const Readiness& readiness) {
  const std::string device = DeviceName(engine.device().info());
  metrics->AddReader(Metric::kBuildInfo, Metrics::ReadFn([device] {
                       return Samples{{{kVersion, kBuildId, device}, 1.0}};
                     }));
  metrics->AddReader(Metric::kReady,
                     [&readiness] { return readiness.ready() ? 1.0 : 0.0; });
  metrics->AddReader(
      Metric::kDeviceHealthy, Metrics::ReadFn([&engine, device] {
        return Samples{
            {{device}, engine.device().health().poisoned() ? 0.0 : 1.0}};
      }));
  metrics->AddReader(
      Metric::kDeviceStalls, Metrics::ReadFn([&engine, device] {
        return Samples{
            {{device}, Double(engine.device().health().stalls_total())}};
      }));
  AddQueueGauges(metrics, options, &admission);
  AddStreamGauges(metrics, engine);
  AddMemoryGauges(metrics, &engine, &models);
  metrics->AddReader(Metric::kParked, [&engine] {
    return Double(engine.dispatcher().parked());
  });
  metrics->AddReader(Metric::kPrograms, [&engine] {
    return Double(engine.programs().stats().programs);
  });
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

void AddTransportGauges(Metrics* metrics, const Transport& transport) {
  metrics->AddReader(Metric::kReceiving,
                     [&transport] { return Double(transport.receiving()); });
  metrics->AddReader(Metric::kUnsent,
                     [&transport] { return Double(transport.sending()); });
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
