#include "server/observe/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <utility>

namespace weir {
namespace {

constexpr std::array<const char*, kRpcMethods> kMethodNames = {
    "Evaluate", "ModelInfer", "Catalog", "KServe"};

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

ClientMetric Labeled(
    const std::vector<std::pair<std::string, std::string>>& labels) {
  ClientMetric metric;
  for (const auto& [name, value] : labels)
    metric.label.push_back({name, value});
  return metric;
}

}  // namespace

Metrics::Metrics() : shards_(std::make_unique<std::array<Shard, kShards>>()) {}
Metrics::~Metrics() = default;

Metrics::Shard& Metrics::MyShard() {
  static std::atomic<size_t> next{0};
  thread_local const size_t mine = next.fetch_add(1) % kShards;
  return (*shards_)[mine];
}

void Metrics::Record(RpcMethod method, absl::StatusCode code, Nanos duration) {
  Shard& shard = MyShard();
  const size_t m = static_cast<size_t>(method);
  const size_t c = std::min<size_t>(static_cast<size_t>(code), kCodes - 1);
  const double seconds = static_cast<double>(duration) * 1e-9;
  const size_t bucket = static_cast<size_t>(
      std::lower_bound(kBuckets.begin(), kBuckets.end(), seconds) -
      kBuckets.begin());
  shard.calls[m][c].fetch_add(1, std::memory_order_relaxed);
  shard.buckets[m][bucket].fetch_add(1, std::memory_order_relaxed);
  shard.nanos[m].fetch_add(static_cast<uint64_t>(std::max<Nanos>(duration, 0)),
                           std::memory_order_relaxed);
}

void Metrics::AddGauge(Gauge gauge) {
  MutexLock lock(&mu_);
  gauges_.push_back(std::move(gauge));
}

void Metrics::ClearGauges() {
  MutexLock lock(&mu_);
  gauges_.clear();
}

std::string Metrics::Text() const {
  MetricFamily calls{"weir_requests_total",
                     "Answered calls by status code.",
                     MetricType::Counter,
                     {}};
  MetricFamily latency{"weir_request_duration_seconds",
                       "From receiving a call to its answer.",
                       MetricType::Histogram,
                       {}};
  for (size_t m = 0; m < kRpcMethods; ++m) {
    const std::string method = kMethodNames[m];
    for (size_t c = 0; c < kCodes; ++c) {
      uint64_t count = 0;
      for (const Shard& shard : *shards_) count += shard.calls[m][c];
      if (count == 0) continue;
      ClientMetric metric = Labeled(
          {{"method", method},
           {"code",
            absl::StatusCodeToString(static_cast<absl::StatusCode>(c))}});
      metric.counter.value = static_cast<double>(count);
      calls.metric.push_back(std::move(metric));
    }
    ClientMetric metric = Labeled({{"method", method}});
    uint64_t seen = 0, nanos = 0;
    for (size_t b = 0; b <= kBuckets.size(); ++b) {
      for (const Shard& shard : *shards_) seen += shard.buckets[m][b];
      if (b < kBuckets.size()) {
        metric.histogram.bucket.push_back({seen, kBuckets[b]});
      }
    }
    for (const Shard& shard : *shards_) nanos += shard.nanos[m];
    metric.histogram.sample_count = seen;
    metric.histogram.sample_sum = static_cast<double>(nanos) * 1e-9;
    latency.metric.push_back(std::move(metric));
  }
  std::vector<MetricFamily> families;
  families.push_back(std::move(calls));
  families.push_back(std::move(latency));
  MutexLock lock(&mu_);
  for (const Gauge& gauge : gauges_) {
    MetricFamily family{gauge.name,
                        gauge.help,
                        gauge.counter ? MetricType::Counter : MetricType::Gauge,
                        {}};
    for (const Gauge::Sample& sample : gauge.read()) {
      ClientMetric metric = Labeled(sample.labels);
      (gauge.counter ? metric.counter.value : metric.gauge.value) =
          sample.value;
      family.metric.push_back(std::move(metric));
    }
    families.push_back(std::move(family));
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace weir
