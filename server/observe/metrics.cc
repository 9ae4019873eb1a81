#include "server/observe/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>

#include "absl/strings/str_split.h"
#include "kernels/base/bucket.h"

namespace weir {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr MetricDef kDefs[] = {
#define WEIR_METRIC(id, name, type, labels, help) \
  {name, MetricDef::Type::type, labels, help, false},
#define TRITON_METRIC(id, name, type, labels, help) \
  {name, MetricDef::Type::type, labels, help, true},
#include "server/observe/metrics.def"
#undef TRITON_METRIC
#undef WEIR_METRIC
};

// Dividing by it keeps a decimal bound decimal: 60e9 * 1e-9 is above 60.
constexpr double kNanosPerSecond = 1e9;

MetricType TypeOf(MetricDef::Type type) {
  switch (type) {
    case MetricDef::Type::kCounter:
      return MetricType::Counter;
    case MetricDef::Type::kGauge:
      return MetricType::Gauge;
    case MetricDef::Type::kHistogram:
      return MetricType::Histogram;
  }
  return MetricType::Untyped;
}

}  // namespace

absl::Span<const MetricDef> MetricDefs() { return kDefs; }

const char* MetricTypeName(MetricDef::Type type) {
  switch (type) {
    case MetricDef::Type::kCounter:
      return "counter";
    case MetricDef::Type::kGauge:
      return "gauge";
    case MetricDef::Type::kHistogram:
      return "histogram";
  }
  return "";
}

// A metric being read.
struct Metrics::Family {
  explicit Family(const MetricDef& def)
      : labels(absl::StrSplit(def.labels, ',', absl::SkipEmpty())),
        family{def.name, def.help, TypeOf(def.type), {}} {}

  ClientMetric& Add(const std::vector<std::string>& values) {
    ClientMetric& metric = family.metric.emplace_back();
    for (size_t i = 0; i < std::min(labels.size(), values.size()); ++i) {
      metric.label.push_back({labels[i], values[i]});
    }
    return metric;
  }

  void AddValue(const std::vector<std::string>& values, double value) {
    ClientMetric& metric = Add(values);
    (family.type == MetricType::Counter ? metric.counter.value
                                        : metric.gauge.value) = value;
  }

  // The sum over shards of the histogram that histogram_of(shard) returns, or
  // null for none.
  template <typename Bounds, typename HistogramOf>
  void AddHistogram(const std::vector<std::string>& values,
                    const PerThread<Shard>& shards, const Bounds& bounds,
                    double divisor, HistogramOf histogram_of) {
    std::vector<uint64_t> counts(bounds.size() + 1);
    uint64_t sum = 0;
    shards.ForEach([&](const Shard& shard) {
      const auto* histogram = histogram_of(shard);
      if (histogram == nullptr) return;
      for (size_t i = 0; i < counts.size(); ++i) {
        counts[i] += histogram->buckets[i].value();
      }
      sum += histogram->sum.value();
    });
    AddCounts(values, bounds, counts, sum, divisor);
  }

  // `counts` has one more than `bounds`.
  template <typename Bounds>
  void AddCounts(const std::vector<std::string>& values, const Bounds& bounds,
                 absl::Span<const uint64_t> counts, uint64_t sum,
                 double divisor) {
    auto& read = Add(values).histogram;
    uint64_t seen = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      seen += counts[i];
      if (i < bounds.size()) {
        read.bucket.push_back({seen, static_cast<double>(bounds[i]) / divisor});
      }
    }
    read.sample_count = seen;
    read.sample_sum = static_cast<double>(sum) / divisor;
  }

  const std::vector<std::string> labels;
  MetricFamily family;
};

Metrics::Metrics(bool triton)
    : triton_(triton), shards_([this] { return MakeShard(); }) {}
Metrics::~Metrics() = default;

std::unique_ptr<Metrics::Shard> Metrics::MakeShard() const {
  auto shard = std::make_unique<Shard>();
  MutexLock lock(&mu_);
  shard->methods = std::vector<MethodShard>(methods_.size());
  return shard;
}

void Metrics::SetMethods(std::vector<std::string> names) {
  MutexLock lock(&mu_);
  methods_ = std::move(names);
}

template <size_t kBounds>
void Metrics::Observe(const std::array<Nanos, kBounds>& bounds, Nanos duration,
                      Histogram<kBounds>* histogram) {
  histogram->buckets[BucketOf(bounds, duration)].Add(1);
  histogram->sum.Add(static_cast<uint64_t>(std::max<Nanos>(duration, 0)));
}

void Metrics::RecordCall(size_t method, absl::StatusCode code, Nanos duration) {
  Shard& shard = shards_.Mine();
  if (method >= shard.methods.size()) return;
  MethodShard& calls = shard.methods[method];
  calls.codes[std::min<size_t>(static_cast<size_t>(code), kCodes - 1)].Add(1);
  // A call that fails fast must not pass for a fast one.
  if (code == absl::StatusCode::kOk) {
    Observe(kTimeBounds, duration, &calls.seconds);
  } else if (IsGivenUp(code)) {
    Observe(kGivenUpBounds, duration, &calls.given_up);
  }
}

void Metrics::RecordRefusal(size_t method, std::string_view reason) {
  Shard& shard = shards_.Mine();
  if (method >= shard.methods.size()) return;
  const auto found = std::find(kRefusals.begin(), kRefusals.end() - 1, reason);
  shard.methods[method]
      .refusals[static_cast<size_t>(found - kRefusals.begin())]
      .Add(1);
}

void Metrics::RecordStages(const StageTimes& times) {
  Shard& shard = shards_.Mine();
  if (times.queue >= 0) Observe(kTimeBounds, times.queue, &shard.queue);
  if (times.lane >= 0) Observe(kTimeBounds, times.lane, &shard.lane);
  if (times.compute >= 0) Observe(kTimeBounds, times.compute, &shard.compute);
}

void Metrics::RecordBatch(int64_t rows) {
  BatchHistogram& batch = shards_.Mine().batch;
  batch.buckets[BucketOf(kBatchBounds, rows)].Add(1);
  batch.sum.Add(static_cast<uint64_t>(rows));
}

void Metrics::Series::Add(Metric metric, const std::vector<std::string>& labels,
                          double value) {
  (*families_)[static_cast<size_t>(metric)].AddValue(labels, value);
}

void Metrics::Series::AddTimes(Metric metric,
                               const std::vector<std::string>& labels,
                               absl::Span<const Nanos> bounds,
                               absl::Span<const uint64_t> counts,
                               uint64_t sum_ns) {
  (*families_)[static_cast<size_t>(metric)].AddCounts(labels, bounds, counts,
                                                      sum_ns, kNanosPerSecond);
}

void Metrics::AddCollector(CollectFn collect) {
  MutexLock lock(&mu_);
  collectors_.push_back(std::move(collect));
}

void Metrics::AddReader(Metric metric, ReadFn read) {
  AddCollector([metric, read = std::move(read)](Series& series) {
    for (const Sample& sample : read()) {
      series.Add(metric, sample.labels, sample.value);
    }
  });
}

void Metrics::AddReader(Metric metric, std::function<double()> read) {
  AddReader(metric, ReadFn([read = std::move(read)] {
              return std::vector<Sample>{{{}, read()}};
            }));
}

void Metrics::ClearReaders() {
  MutexLock lock(&mu_);
  collectors_.clear();
}

// Every RPC has all its series from the start: a counter that begins with its
// first event has no rate then.
void Metrics::ReadCalls(Family* requests, Family* refused, Family* seconds,
                        Family* given_up) const {
  std::vector<std::string> names;
  {
    MutexLock lock(&mu_);
    names = methods_;
  }
  for (size_t m = 0; m < names.size(); ++m) {
    std::array<uint64_t, kCodes> codes = {};
    std::array<uint64_t, kRefusals.size()> refusals = {};
    shards_.ForEach([&](const Shard& shard) {
      if (m >= shard.methods.size()) return;
      const MethodShard& calls = shard.methods[m];
      for (size_t c = 0; c < kCodes; ++c) codes[c] += calls.codes[c].value();
      for (size_t r = 0; r < kRefusals.size(); ++r) {
        refusals[r] += calls.refusals[r].value();
      }
    });
    for (size_t c = 0; c < kCodes; ++c) {
      requests->AddValue({names[m], absl::StatusCodeToString(
                                        static_cast<absl::StatusCode>(c))},
                         static_cast<double>(codes[c]));
    }
    for (size_t r = 0; r < kRefusals.size(); ++r) {
      refused->AddValue({names[m], std::string(kRefusals[r])},
                        static_cast<double>(refusals[r]));
    }
    seconds->AddHistogram(
        {names[m]}, shards_, kTimeBounds, kNanosPerSecond,
        [m](const Shard& shard) -> const TimeHistogram* {
          return m < shard.methods.size() ? &shard.methods[m].seconds : nullptr;
        });
    given_up->AddHistogram({names[m]}, shards_, kGivenUpBounds, kNanosPerSecond,
                           [m](const Shard& shard) -> const GivenUpHistogram* {
                             return m < shard.methods.size()
                                        ? &shard.methods[m].given_up
                                        : nullptr;
                           });
  }
}

std::string Metrics::Text() const {
  std::vector<Family> read;
  for (const MetricDef& def : kDefs) read.emplace_back(def);
  auto at = [&read](Metric metric) {
    return &read[static_cast<size_t>(metric)];
  };
  ReadCalls(at(Metric::kRequests), at(Metric::kRefused),
            at(Metric::kRequestSeconds), at(Metric::kGivenUpSeconds));
  auto add_times = [&](Metric metric, TimeHistogram Shard::*member) {
    at(metric)->AddHistogram(
        {}, shards_, kTimeBounds, kNanosPerSecond,
        [member](const Shard& shard) { return &(shard.*member); });
  };
  add_times(Metric::kQueueWaitSeconds, &Shard::queue);
  add_times(Metric::kLaneWaitSeconds, &Shard::lane);
  add_times(Metric::kComputeSeconds, &Shard::compute);
  at(Metric::kBatchSize)
      ->AddHistogram({}, shards_, kBatchBounds, 1,
                     [](const Shard& shard) { return &shard.batch; });
  {
    MutexLock lock(&mu_);
    Series series(&read);
    for (const CollectFn& collect : collectors_) collect(series);
  }
  std::vector<MetricFamily> families;
  for (size_t i = 0; i < read.size(); ++i) {
    if (kDefs[i].triton && !triton_) continue;
    families.push_back(std::move(read[i].family));
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace weir
