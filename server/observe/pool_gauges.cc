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

using Engines = std::vector<Engine*>;

std::string NameOf(Engine* engine) {
  return DeviceName(engine->device().info());
}

// Of all devices together.
template <typename Number>
double Sum(const Engines& engines, const Number& number) {
  double sum = 0;
  for (Engine* engine : engines) sum += Double(number(*engine));
  return sum;
}

void AddStreamGauges(Metrics* metrics, const Engines& engines) {
  metrics->AddReader(
      Metric::kLanes, Metrics::ReadFn([engines] {
        Samples samples;
        for (Engine* engine : engines) {
          const std::string device = NameOf(engine);
          const StreamPoolStats stats = engine->streams().stats();
          samples.push_back({{device, "idle"}, Double(stats.idle)});
          samples.push_back({{device, "leased"}, Double(stats.leased)});
          samples.push_back({{device, "draining"}, Double(stats.draining)});
          samples.push_back({{device, "retired"}, Double(stats.retired)});
        }
        return samples;
      }));
  metrics->AddReader(Metric::kMaxLanes, [engines] {
    return Sum(engines, [](Engine& e) { return e.streams().stats().max; });
  });
  metrics->AddReader(Metric::kLaneWaiters, [engines] {
    return Sum(engines, [](Engine& e) { return e.streams().stats().waiting; });
  });
  metrics->AddReader(
      Metric::kLeases, Metrics::ReadFn([engines] {
        Samples samples;
        for (Engine* engine : engines) {
          samples.push_back({{NameOf(engine)},
                             Double(engine->streams().stats().leases_total)});
        }
        return samples;
      }));
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

void AddMemoryGauges(Metrics* metrics, const Engines& engines,
                     const ModelRepository* models) {
  metrics->AddReader(
      Metric::kMemory, Metrics::ReadFn([engines, models] {
        double host_used = 0, host_cached = 0, tensor_used = 0,
               tensor_cached = 0, arena = 0, program = 0;
        for (Engine* engine : engines) {
          const PinnedPoolStats host = engine->pinned().stats();
          const MemoryPoolStats tensor = engine->memory().stats();
          host_used += Double(host.leased_bytes);
          host_cached += Double(host.cached_bytes);
          tensor_used += Double(tensor.used_bytes);
          tensor_cached += Double(tensor.cached_bytes);
          arena += Double(engine->streams().stats().arena_bytes);
          program += Double(engine->programs().stats().bytes);
        }
        return Samples{{{"host", "used"}, host_used},
                       {{"host", "cached"}, host_cached},
                       {{"tensor", "used"}, tensor_used},
                       {{"tensor", "cached"}, tensor_cached},
                       {{"arena", "used"}, arena},
                       {{"constants", "used"}, ConstantBytes(*models)},
                       {{"program", "used"}, program}};
      }));
  metrics->AddReader(
      Metric::kMemoryBudget, Metrics::ReadFn([engines] {
        return Samples{
            {{"host"},
             Sum(engines,
                 [](Engine& e) { return e.pinned().stats().budget_bytes; })},
            {{"tensor"},
             Sum(engines,
                 [](Engine& e) { return e.memory().stats().budget_bytes; })},
            {{"arena"},
             Sum(engines,
                 [](Engine& e) {
                   return e.options().streams.max_arena_bytes;
                 })},
            {{"program"}, Sum(engines, [](Engine& e) {
               return e.options().programs.max_bytes;
             })}};
      }));
}

}  // namespace

void AddPoolGauges(Metrics* metrics, const ServerOptions& options,
                   const Engines& engines, const Admission& admission,
                   const ModelRepository& models, const Readiness& readiness) {
  const std::string device = NameOf(engines.front());
  metrics->AddReader(Metric::kBuildInfo, Metrics::ReadFn([device] {
                       return Samples{{{kVersion, kBuildId, device}, 1.0}};
                     }));
  metrics->AddReader(Metric::kReady,
                     [&readiness] { return readiness.ready() ? 1.0 : 0.0; });
  metrics->AddReader(
      Metric::kDeviceHealthy, Metrics::ReadFn([engines] {
        Samples samples;
        for (Engine* engine : engines) {
          const bool lost = engine->device().health().poisoned();
          samples.push_back({{NameOf(engine)}, lost ? 0.0 : 1.0});
        }
        return samples;
      }));
  metrics->AddReader(
      Metric::kDeviceStalls, Metrics::ReadFn([engines] {
        Samples samples;
        for (Engine* engine : engines) {
          samples.push_back({{NameOf(engine)},
                             Double(engine->device().health().stalls_total())});
        }
        return samples;
      }));
  AddQueueGauges(metrics, options, &admission);
  AddStreamGauges(metrics, engines);
  AddMemoryGauges(metrics, engines, &models);
  metrics->AddReader(Metric::kParked, [engines] {
    return Sum(engines, [](Engine& e) { return e.dispatcher().parked(); });
  });
  metrics->AddReader(Metric::kPrograms, [engines] {
    return Sum(engines,
               [](Engine& e) { return e.programs().stats().programs; });
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
  metrics->AddReader(
      Metric::kConnectionsClosed, Metrics::ReadFn([&transport] {
        const Listener::Closed closed = transport.closed_connections();
        return Samples{{{"TOO_MANY_CONNECTIONS"}, Double(closed.all)},
                       {{"PEER_CONNECTIONS"}, Double(closed.of_peer)}};
      }));
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
