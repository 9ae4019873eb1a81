#include "server/observe/model_metrics.h"

#include <algorithm>
#include <utility>

namespace weir {
namespace {

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
    counters.failure_ns.Add(Elapsed(received, now));
    return;
  }
  counters.success.Add(1);
  counters.inferences.Add(static_cast<uint64_t>(rows));
  counters.request_ns.Add(Elapsed(received, now));
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

template <typename Visit>
void ModelMetrics::ForEach(const ServedModel& model, Visit visit) const {
  shards_.ForEach([&](const Shard& shard) {
    MutexLock lock(&shard.mu);
    if (model.number >= shard.models.size()) return;
    const Counters* const counters = shard.models[model.number].get();
    if (counters != nullptr) visit(*counters);
  });
}

ModelCounts ModelMetrics::Read(const ServedModel& model) const {
  ModelCounts sum;
  ForEach(model, [&sum](const Counters& one) {
    sum.success += one.success.value();
    sum.rejected += one.rejected.value();
    sum.canceled += one.canceled.value();
    sum.backend += one.backend.value();
    sum.other += one.other.value();
    sum.errors += one.errors.value();
    sum.inferences += one.inferences.value();
    sum.executions += one.executions.value();
    sum.request_ns += one.request_ns.value();
    sum.queue_ns += one.queue_ns.value();
    sum.input_ns += one.input_ns.value();
    sum.infer_ns += one.infer_ns.value();
    sum.output_ns += one.output_ns.value();
    sum.failure_ns += one.failure_ns.value();
    sum.last_executed_at =
        std::max(sum.last_executed_at,
                 one.last_executed_at.load(std::memory_order_relaxed));
    for (const auto& [rows, from] : one.batches) {
      ModelCounts::Batch& to = sum.batches[rows];
      to.executions += from.executions.value();
      to.input_ns += from.input_ns.value();
      to.infer_ns += from.infer_ns.value();
      to.output_ns += from.output_ns.value();
    }
  });
  return sum;
}

// The sum of `parts` over all threads, for each version that is served. `more`
// are the values of the labels after model and version.
void ModelMetrics::AddReader(Metric metric, const ModelRepository& models,
                             std::vector<OwnedCounter Counters::*> parts,
                             double unit, std::vector<std::string> more) {
  auto read = [this, &models, parts = std::move(parts), unit,
               more = std::move(more)] {
    std::vector<Metrics::Sample> samples;
    for (const auto& model : models.Served()) {
      uint64_t sum = 0;
      ForEach(*model, [&](const Counters& one) {
        for (const auto part : parts) sum += (one.*part).value();
      });
      Metrics::Sample& sample = samples.emplace_back();
      sample.labels = {model->name, model->version};
      sample.labels.insert(sample.labels.end(), more.begin(), more.end());
      sample.value = static_cast<double>(sum) * unit;
    }
    return samples;
  };
  metrics_->AddReader(metric, Metrics::ReadFn(std::move(read)));
}

void ModelMetrics::AddReaders(const ModelRepository& models) {
  auto count = [&](Metric metric, OwnedCounter Counters::*counter,
                   std::vector<std::string> more = {}) {
    AddReader(metric, models, {counter}, 1, std::move(more));
  };
  AddReader(Metric::kModelRequests, models,
            {&Counters::success, &Counters::rejected, &Counters::canceled,
             &Counters::backend, &Counters::other},
            1, {});
  count(Metric::kModelErrors, &Counters::errors);
  if (!metrics_->triton()) return;
  auto duration = [&](Metric metric, OwnedCounter Counters::*counter) {
    AddReader(metric, models, {counter}, kMicrosPerNano, {});
  };
  count(Metric::kNvSuccess, &Counters::success);
  count(Metric::kNvFailure, &Counters::rejected, {"REJECTED"});
  count(Metric::kNvFailure, &Counters::canceled, {"CANCELED"});
  count(Metric::kNvFailure, &Counters::backend, {"BACKEND"});
  count(Metric::kNvFailure, &Counters::other, {"OTHER"});
  count(Metric::kNvCount, &Counters::inferences);
  count(Metric::kNvExecCount, &Counters::executions);
  duration(Metric::kNvRequestUs, &Counters::request_ns);
  duration(Metric::kNvQueueUs, &Counters::queue_ns);
  duration(Metric::kNvInputUs, &Counters::input_ns);
  duration(Metric::kNvInferUs, &Counters::infer_ns);
  duration(Metric::kNvOutputUs, &Counters::output_ns);
}

}  // namespace weir
