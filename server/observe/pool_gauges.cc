#include "server/observe/pool_gauges.h"

#include <map>
#include <string>
#include <utility>

#include "server/options.h"

namespace weir {
namespace {

using Sample = Metrics::Gauge::Sample;
using Labels = std::vector<std::pair<std::string, std::string>>;

void AddOne(Metrics* metrics, std::string name, std::string help,
            std::function<double()> read, bool counter = false) {
  metrics->AddGauge({std::move(name), std::move(help),
                     [read = std::move(read)] {
                       return std::vector<Sample>{{{}, read()}};
                     },
                     counter});
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

void AddStreamGauges(Metrics* metrics, Engine& engine) {
  const std::string device = DeviceName(engine.device().info());
  StreamPool* const pool = &engine.streams();
  metrics->AddGauge({"weir_stream_pool_lanes",
                     "Lanes of the stream pool by state; their sum is at most "
                     "weir_stream_pool_max_lanes.",
                     [pool, device] {
                       const StreamPoolStats stats = pool->stats();
                       auto sample = [&](const char* state, size_t count) {
                         return Sample{{{"device", device}, {"state", state}},
                                       static_cast<double>(count)};
                       };
                       return std::vector<Sample>{
                           sample("idle", stats.idle),
                           sample("leased", stats.leased),
                           sample("draining", stats.draining),
                           sample("retired", stats.retired)};
                     }});
  AddOne(metrics, "weir_stream_pool_max_lanes", "Most lanes there may be.",
         [pool] { return static_cast<double>(pool->stats().max); });
  AddOne(metrics, "weir_stream_pool_waiting", "Works waiting for a lane.",
         [pool] { return static_cast<double>(pool->stats().waiting); });
  AddOne(
      metrics, "weir_stream_pool_leases_total", "Leases handed out.",
      [pool] { return static_cast<double>(pool->stats().leases_total); }, true);
}

}  // namespace

void AddPoolGauges(Metrics* metrics, Engine& engine, const Admission& admission,
                   const ModelRepository& models, const Readiness& readiness) {
  metrics->AddGauge(
      {"weir_build_info", "Always 1; the label tells the version.", [] {
         return std::vector<Sample>{{{{"version", Version()}}, 1.0}};
       }});
  AddOne(metrics, "weir_ready", "1 if the server should get traffic.",
         [&readiness] { return readiness.ready() ? 1.0 : 0.0; });
  AddOne(metrics, "weir_device_healthy", "0 once the device is lost.",
         [&engine] { return engine.device().health().poisoned() ? 0.0 : 1.0; });
  AddStreamGauges(metrics, engine);
  AddOne(metrics, "weir_requests_in_flight", "Admitted, not yet answered.",
         [&admission] { return static_cast<double>(admission.requests()); });
  AddOne(metrics, "weir_request_bytes_in_flight", "Bytes of those requests.",
         [&admission] { return static_cast<double>(admission.bytes()); });
  AddOne(
      metrics, "weir_requests_refused_total",
      "Refused because a limit was reached.",
      [&admission] { return static_cast<double>(admission.refused()); }, true);
  AddOne(metrics, "weir_works_parked", "Works waiting for points.", [&engine] {
    return static_cast<double>(engine.dispatcher().parked());
  });
  metrics->AddGauge(
      {"weir_pinned_bytes", "Pinned host memory by state.", [&engine] {
         const PinnedPoolStats stats = engine.pinned().stats();
         return std::vector<Sample>{
             {{{"state", "leased"}}, static_cast<double>(stats.leased_bytes)},
             {{{"state", "cached"}}, static_cast<double>(stats.cached_bytes)},
             {{{"state", "budget"}}, static_cast<double>(stats.budget_bytes)}};
       }});
  AddOne(metrics, "weir_programs", "Compiled programs in the cache.",
         [&engine] {
           return static_cast<double>(engine.programs().stats().programs);
         });
  metrics->AddGauge({"weir_models", "Model versions by state.", [&models] {
                       std::map<std::string, double> count;
                       for (const ModelIndexEntry& entry : models.Index()) {
                         ++count[StateName(entry.state)];
                       }
                       std::vector<Sample> samples;
                       for (const auto& [state, number] : count) {
                         samples.push_back({{{"state", state}}, number});
                       }
                       return samples;
                     }});
}

}  // namespace weir
