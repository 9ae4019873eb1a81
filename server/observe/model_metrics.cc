#include "server/observe/model_metrics.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "kernels/base/bucket.h"

namespace weir {
namespace {

using Labels = std::vector<std::string>;

constexpr double kMicrosPerNano = 1e-3;

int64_t Rows(const ServedModel& model, const Work& work) {
  if (model.max_batch_size == 0 || work.request.inputs.empty() ||
      work.request.inputs[0].dims.empty()) {
    return 1;
  }
  return work.request.inputs[0].dims[0];
}

uint64_t Elapsed(Nanos from, Nanos to) {
  return static_cast<uint64_t>(std::max<Nanos>(to - from, 0));
}

// Those codes that no caller causes.
bool IsServersFault(absl::StatusCode code) {
  return code == absl::StatusCode::kUnknown ||
         code == absl::StatusCode::kInternal ||
         code == absl::StatusCode::kUnavailable ||
         code == absl::StatusCode::kDataLoss;
}

void WriteOurs(const Labels& labels, const ModelCounts& counts,
               Metrics::Series* series) {
  series->Add(Metric::kModelRequests, labels,
              static_cast<double>(counts.success + counts.failures()));
  series->Add(Metric::kModelErrors, labels, static_cast<double>(counts.errors));
  series->AddTimes(Metric::kModelRequestSeconds, labels,
                   ModelCounts::kSecondsBounds, counts.seconds,
                   counts.request_ns);
  series->AddTimes(Metric::kModelGivenUpSeconds, labels,
                   ModelCounts::kGivenUpBounds, counts.given_up,
                   counts.given_up_ns);
}

void WriteTritons(const Labels& labels, const ModelCounts& counts,
                  Metrics::Series* series) {
  const auto count = [&](Metric metric, uint64_t value) {
    series->Add(metric, labels, static_cast<double>(value));
  };
  const auto micros = [&](Metric metric, uint64_t ns) {
    series->Add(metric, labels, static_cast<double>(ns) * kMicrosPerNano);
  };
  const auto failures = [&](const char* reason, uint64_t value) {
    Labels more = labels;
    more.push_back(reason);
    series->Add(Metric::kNvFailure, more, static_cast<double>(value));
  };
  count(Metric::kNvSuccess, counts.success);
  failures("REJECTED", counts.rejected);
  failures("CANCELED", counts.canceled);
  failures("BACKEND", counts.backend);
  failures("OTHER", counts.other);
  count(Metric::kNvCount, counts.inferences);
  count(Metric::kNvExecCount, counts.executions);
  micros(Metric::kNvRequestUs, counts.request_ns);
  micros(Metric::kNvQueueUs, counts.queue_ns);
  micros(Metric::kNvInputUs, counts.input_ns);
  micros(Metric::kNvInferUs, counts.infer_ns);
  micros(Metric::kNvOutputUs, counts.output_ns);
}

}  // namespace

OwnedCounter& ModelMetrics::FailureCounter(Counters& counters,
                                           absl::StatusCode code,
                                           bool executed) {
  switch (code) {
    case absl::StatusCode::kCancelled:
      return counters.canceled;
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kDeadlineExceeded:
      return counters.rejected;
    default:
      return executed ? counters.backend : counters.other;
  }
}

void ModelMetrics::Record(const ServedModel& model, absl::StatusCode code,
                          const Work* work, Nanos received) {
  if (work == nullptr) {
    Record(model, code, SyncReport(), 0, received);
  } else {
    Record(model, code, work->report(), Rows(model, *work), received);
  }
}

void ModelMetrics::Record(const ServedModel& model, absl::StatusCode code,
                          const SyncReport& report, int64_t rows,
                          Nanos received) {
  const Nanos now = NowNanos();
  Counters& counters = Find(model);
  const bool executed = report.launched_at != 0;
  // A lost device completes nothing.
  const Nanos completed_at =
      report.completed_at == 0 ? now : report.completed_at;
  const uint64_t input_ns = Elapsed(report.leased_at, report.launched_at);
  const uint64_t infer_ns = Elapsed(report.launched_at, completed_at);
  const uint64_t output_ns = Elapsed(completed_at, now);
  if (executed) {
    metrics_->RecordBatch(rows);
    counters.executions.Add(1);
    counters.last_executed_at.store(now, std::memory_order_relaxed);
    if (BatchCounters* batch = FindBatch(counters, rows)) {
      batch->executions.Add(1);
      batch->input_ns.Add(input_ns);
      batch->infer_ns.Add(infer_ns);
      batch->output_ns.Add(output_ns);
    }
  }
  if (code != absl::StatusCode::kOk) {
    if (IsServersFault(code)) counters.errors.Add(1);
    FailureCounter(counters, code, executed).Add(1);
    const uint64_t failure_ns = Elapsed(received, now);
    counters.failure_ns.Add(failure_ns);
    if (IsGivenUp(code)) {
      counters
          .given_up[BucketOf(ModelCounts::kGivenUpBounds,
                             static_cast<Nanos>(failure_ns))]
          .Add(1);
      counters.given_up_ns.Add(failure_ns);
    }
    return;
  }
  counters.success.Add(1);
  counters.inferences.Add(static_cast<uint64_t>(rows));
  const uint64_t request_ns = Elapsed(received, now);
  counters
      .seconds[BucketOf(ModelCounts::kSecondsBounds,
                        static_cast<Nanos>(request_ns))]
      .Add(1);
  counters.request_ns.Add(request_ns);
  counters.queue_ns.Add(Elapsed(received, report.leased_at));
  counters.input_ns.Add(input_ns);
  counters.infer_ns.Add(infer_ns);
  counters.output_ns.Add(output_ns);
}

ModelMetrics::Counters& ModelMetrics::Find(const ServedModel& model) {
  Shard& shard = shards_.Mine();
  if (model.number < shard.models.size() &&
      shard.models[model.number] != nullptr) {
    return *shard.models[model.number];
  }
  auto counters = std::make_unique<Counters>(&shard.mu);
  MutexLock lock(&shard.mu);
  if (model.number >= shard.models.size()) {
    shard.models.resize(model.number + 1);
  }
  return *(shard.models[model.number] = std::move(counters));
}

ModelMetrics::BatchCounters* ModelMetrics::FindBatch(Counters& counters,
                                                     int64_t rows) {
  if (rows == counters.latest_rows) return counters.latest;
  auto found = counters.batches.find(rows);
  if (found == counters.batches.end()) {
    if (counters.batches.size() >= kMaxBatchSizes) return nullptr;
    MutexLock lock(counters.mu);
    found = counters.batches.try_emplace(rows).first;
  }
  counters.latest_rows = rows;
  counters.latest = &found->second;
  return counters.latest;
}

void ModelMetrics::AddTotals(const Counters& from, ModelCounts* to) {
  to->success += from.success.value();
  to->rejected += from.rejected.value();
  to->canceled += from.canceled.value();
  to->backend += from.backend.value();
  to->other += from.other.value();
  to->errors += from.errors.value();
  to->inferences += from.inferences.value();
  to->executions += from.executions.value();
  to->request_ns += from.request_ns.value();
  to->queue_ns += from.queue_ns.value();
  to->input_ns += from.input_ns.value();
  to->infer_ns += from.infer_ns.value();
  to->output_ns += from.output_ns.value();
  for (size_t i = 0; i < from.seconds.size(); ++i) {
    to->seconds[i] += from.seconds[i].value();
  }
  for (size_t i = 0; i < from.given_up.size(); ++i) {
    to->given_up[i] += from.given_up[i].value();
  }
  to->given_up_ns += from.given_up_ns.value();
  to->failure_ns += from.failure_ns.value();
  to->last_executed_at =
      std::max(to->last_executed_at,
               from.last_executed_at.load(std::memory_order_relaxed));
}

ModelCounts ModelMetrics::Read(const ServedModel& model) const {
  ModelCounts sum;
  shards_.ForEach([&](const Shard& shard) {
    MutexLock lock(&shard.mu);
    if (model.number >= shard.models.size()) return;
    const Counters* const counters = shard.models[model.number].get();
    if (counters == nullptr) return;
    AddTotals(*counters, &sum);
    for (const auto& [rows, from] : counters->batches) {
      ModelCounts::Batch& to = sum.batches[rows];
      to.executions += from.executions.value();
      to.input_ns += from.input_ns.value();
      to.infer_ns += from.infer_ns.value();
      to.output_ns += from.output_ns.value();
    }
  });
  return sum;
}

void ModelMetrics::Collect(const ModelRepository& models, size_t most_series,
                           Metrics::Series* series) const {
  const auto served = models.Served();
  // All that have none of their own share the last.
  std::vector<ModelCounts> counts(served.size() + 1);
  const auto counts_of = [&](size_t i) -> ModelCounts& {
    return counts[served[i]->number < most_series ? i : served.size()];
  };
  shards_.ForEach([&](const Shard& shard) {
    MutexLock lock(&shard.mu);
    for (size_t i = 0; i < served.size(); ++i) {
      const size_t number = served[i]->number;
      if (number >= shard.models.size()) continue;
      const Counters* const counters = shard.models[number].get();
      if (counters != nullptr) AddTotals(*counters, &counts_of(i));
    }
  });
  bool others = false;
  for (size_t i = 0; i < served.size(); ++i) {
    if (served[i]->number >= most_series) {
      others = true;
      continue;
    }
    const Labels labels = {served[i]->name, served[i]->version};
    WriteOurs(labels, counts[i], series);
    if (metrics_->triton()) WriteTritons(labels, counts[i], series);
  }
  if (others) {
    WriteOurs({std::string(kOtherModels)}, counts[served.size()], series);
  }
}

void ModelMetrics::AddReaders(const ModelRepository& models,
                              size_t most_series) {
  metrics_->AddCollector([this, &models, most_series](Metrics::Series& series) {
    Collect(models, most_series, &series);
  });
}

}  // namespace weir
